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


ROWS = [["long", 0.2, 0, 0, 1.15, 1.18, -0.03], ["even", 3.0, 0, 0, 1.45, 1.449, 0.001],
        ["short", 20.0, 0, 0, 1.5, 1.6, -0.1]]


@pytest.mark.parametrize("rows, says", [
    (ROWS, "The rule lowers the loss by up to 0.100 (short), and raises it by at most 0.001"),
    (ROWS[::2], "The rule lowers the loss by up to 0.100 (short), and raises it by 0.000"),
    (ROWS[1:2], "The rule lowers the loss of no text, and raises it by at most 0.001")])
def test_headline_says_the_most_that_the_rule_gains_and_loses(rows, says):
    assert rule.headline(rows) == says


def test_draw_sorts_the_texts_by_their_gain_and_shows_dots_that_coincide():
    calls = {}

    class Axes:
        def plot(self, x, y, marker, label, **how):
            calls[label] = list(x), list(y), how

        def set_yticks(self, places, labels):
            calls["labels"] = list(zip(places, labels))

        def set_title(self, words, **how):
            calls["title"] = words
        hlines = set_xlabel = lambda *_, **how: None
    rule.draw(Axes(), ROWS)
    assert calls["labels"] == [(0, "even, 3 passes"), (1, "long, 0.2 passes"),
                               (2, "short, 20 passes")]         # from below
    assert calls["with the rule"][0] == [1.45, 1.15, 1.5]
    assert calls["without it"][0] == [1.449, 1.18, 1.6]
    assert calls["title"] == rule.headline(ROWS)
    ring, dot = calls["without it"][2], calls["with the rule"][2]
    assert ring["mfc"] == "none" and ring["ms"] > dot["ms"] + 2 * ring["mew"]
