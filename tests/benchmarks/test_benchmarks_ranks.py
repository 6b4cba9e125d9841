"""What is predicted of ranks follows from what a step costs.  No test times anything."""
import argparse

import pytest

from tests.benchmarks import ranks
from tests.benchmarks.ranks import COUNTS, WAYS, efficiencies, predicted, walls
from tests.benchmarks.report import Report

COST = dict(row=0.01, fixed=0.02, shared=0.0, batch=16, bytes=4e6, stepped=0)


def test_without_a_network_only_what_every_rank_does_costs_efficiency():
    strong, _, weak, _ = efficiencies(4, COST, 0.0, 0.0)
    assert weak == 1 and strong == pytest.approx((0.02 + 0.16) / 4 / (0.02 + 0.04))
    assert efficiencies(4, COST | dict(fixed=0.0), 0.0, 0.0) == pytest.approx([1] * 4)


def test_what_ranks_share_costs_each_its_part_and_half_a_sum_of_what_is_stepped():
    muon = COST | dict(fixed=0.0, shared=0.02)
    assert efficiencies(4, muon, 0.0, 0.0)[:2] == pytest.approx([1] * 2)
    of_muon, of_sums = (predicted(4, 1, COST | more, "ring", 1e-3, 1e-9)
                        for more in (dict(stepped=8e6), dict(bytes=8e6)))
    without = predicted(4, 1, COST, "ring", 1e-3, 1e-9)
    assert of_muon - without == pytest.approx(WAYS["ring"](4, 8e6, 1e-3, 1e-9) / 2)
    assert of_sums - without == pytest.approx(WAYS["ring"](4, 4e6, 0.0, 1e-9))


def test_ranks_without_a_row_gain_nothing():
    of_16, of_32 = (efficiencies(W, COST, 0.0, 0.0)[0] for W in (16, 32))
    assert of_32 == pytest.approx(of_16 / 2)


def test_a_ring_sends_twice_the_row_whatever_the_ranks_and_a_tree_has_fewer_messages():
    assert WAYS["ring"](1024, 1e6, 0.0, 1.0) == pytest.approx(2e6, rel=1e-2)
    assert WAYS["tree"](1024, 1e6, 0.0, 1.0) == 20e6
    assert (WAYS["ring"](1024, 0, 1.0, 0.0), WAYS["tree"](1024, 0, 1.0, 0.0)) == (2046, 20)


def test_each_wall_is_where_it_begins():
    rows, fixed, sums, latency = walls(COST, 1e-6, 1e-10)
    assert "from 32 ranks on" in rows and "from 16 ranks on" in fixed
    assert "not up to 1,024 ranks" in sums and "from 512 ranks on" in latency
    assert "from 1,024 ranks on" in walls(COST, 1e-6, 1e-9)[2]


def test_the_table_sets_what_is_predicted_beside_what_was_measured(monkeypatch, capsys):
    def in_ranks(size, threads, name, steps, reduce="fast"):
        seconds = 0.02 + 0.01 * 16 / size / threads
        return dict(seconds=seconds, computing=seconds, waiting=0.0, summing=0.001 * (size > 1),
                    fixed=0.02, shared=0.0, batch=16, block=8, ranks=size, bytes=4e6,
                    stepped=0)
    monkeypatch.setattr(ranks, "in_ranks", in_ranks)
    options = argparse.Namespace(steps=3, quick=False, threads=2, sizes=["small"], ranks=[2, 4],
                                 latency=10.0, bandwidth=3.0, scaling=None)
    report = Report(None)
    ranks.measure_ranks(options, report)
    said, tables = capsys.readouterr().out, report.content["tables"]
    assert [len(table["rows"]) for table in tables] == [6, len(COUNTS)] * 2
    _, alone, two, four, *exact = tables[0]["rows"]
    assert alone[5] is None and two[5] == pytest.approx(1e3 * (0.02 + 0.08 + 0.001))
    assert four[5] == pytest.approx(2e3 * (0.02 + 0.04 + 0.0015))      # two turns
    assert [row[0] for row in exact] == ["2 ranks, exact sums", "4 ranks, exact sums"]
    assert "A row of the batch takes 10.00 ms" in said
