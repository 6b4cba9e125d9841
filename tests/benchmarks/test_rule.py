import json

import pytest

from tests.benchmarks import rule
from tests.benchmarks.__main__ import parse
from tests.benchmarks.report import Report


def test_each_text_is_measured_with_and_without_the_rule_in_as_many_steps(
        tmp_path, monkeypatch, capsys):
    lengths, taken = {"long": 9_000, "short": 1_500}, []
    for name, length in lengths.items():
        (tmp_path / f"{name}.txt").write_text("so many\n" * (length // 8), encoding="ascii")

    def train(flags, text):
        taken.append(flags)
        return {"loss": 2.0 + 0.5 * ("--dropout" in flags)}
    monkeypatch.setattr(rule, "train", train)
    monkeypatch.chdir(tmp_path)
    options = parse("rule --texts long.txt short.txt --characters 50_000 --seeds 2 --threads 1 "
                    "--json r.json --plot r.svg".split())
    rule.measure_rule(options, Report(options.json))
    assert len(taken) == 8
    for ruled, usual in zip(taken[::2], taken[1::2]):
        assert [flag for flag in usual if flag not in rule.WITHOUT] == ruled
    steps = [int(flags[flags.index("--max_iters") + 1]) for flags in taken]
    assert len({*steps[:4]}) == len({*steps[4:]}) == 1 and steps[0] != steps[4]
    found = json.loads(options.json.read_text(encoding="utf-8"))
    rows = found["tables"][0]["rows"]
    assert [row[0] for row in rows] == ["long", "short"]        # by their passes
    assert rows[0][1] == pytest.approx(50_000 / 8_100, rel=1e-2) and rows[1][1] == 20
    assert all(row[-1] == -0.5 for row in rows) and rows[1][2] > rows[0][2] > 0.5
    assert "with the rule" in capsys.readouterr().out
