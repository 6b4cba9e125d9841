"""The board of recipes, and of one recipe without its parts: what runs, and what is made of it."""
import json
import os
import sys
from unittest import mock

import pytest

from tests.kit import TINY
from model.command import Parser
from model.settings import RECIPES, Settings, completed
from tests.benchmarks import board, plot, sizes
from tests.benchmarks.__main__ import main, parse
from tests.benchmarks.report import Report


@pytest.fixture
def of(monkeypatch, tmp_path, small_text):
    """Measures with made-up runs in place of training, and returns the flags of each; the third run
    may be interrupted."""
    def measure(measure, *argv, interrupted=False):
        taken, written = [], []

        def run(flags, text):
            taken.append(list(flags))
            if interrupted and len(taken) == 3:
                written.append(json.loads(options.json.read_text(encoding="utf-8")))
                raise KeyboardInterrupt
            seed = int(flags[flags.index("--seed") + 1])
            return {"loss": 2 + seed / 10 + ("gpt2" in flags) + len(flags) / 1000,
                    "steps": 40, "seconds": 10.0, "sample": "To be"}

        def twin(flags, text):
            return run(flags, text) | {"seconds": 20.0}
        monkeypatch.setattr(board, "train", run)
        monkeypatch.setattr(board, "train_twin", twin)
        monkeypatch.setattr(board, "has_pytorch", lambda: True)
        options = parse([measure.__name__.removeprefix("measure_"), "--data", str(small_text),
                         "--json", str(tmp_path / "b.json"), "--plot", str(tmp_path / "b.svg"),
                         "--threads", "1", *argv])
        earlier = board.read_earlier(options.json, "") if options.resume else None
        if interrupted:
            with pytest.raises(KeyboardInterrupt):
                measure(options, Report(options.json))
            assert len(written[0]["board"]["runs"]) == 2        # before anything was shown
        else:
            measure(options, Report(options.json, earlier))
        return taken, json.loads(options.json.read_text(encoding="utf-8"))
    return measure


def test_the_board_runs_all_of_a_seed_before_the_next(of):
    taken, found = of(board.measure_board, "--minutes", "1", "3", "--seeds", "2")
    runs = [(run["seed"], run["minutes"], run["entry"]) for run in found["board"]["runs"]]
    assert runs == [(seed, minutes, entry) for seed in (1, 2) for minutes in (1, 3)
                    for entry in ("modern", "modern, PyTorch", "gpt2", "gpt2, PyTorch")]
    flags = "--recipe modern --minutes 3 --seed 2".split()
    assert any(one[:6] == flags and one[-2:] == ["--threads", "1"] for one in taken)


def test_the_board_shows_mean_and_spread_and_how_much_faster(of):
    _, found = of(board.measure_board, "--minutes", "1", "--seeds", "3", "--recipes", "modern")
    table, = found["tables"]
    ours, theirs = (dict(zip(table["columns"], row)) for row in table["rows"])
    losses = [run["loss"] for run in found["board"]["runs"][::2]]
    assert (ours["least"], ours["most"]) == (losses[0], losses[2])
    assert ours["loss"] == pytest.approx(losses[1]) and ours["seeds"] == 3
    assert (ours["steps/s"], theirs["steps/s"]) == (4, 2)
    assert (ours["minigrad is"], theirs["minigrad is"]) == (None, 2)
    said = "\n".join(table["notes"])
    assert "counted bigram" in said and "'To be'" in said


def test_an_interrupted_board_has_written_and_shown_what_was_run(of):
    _, found = of(board.measure_board, "--minutes", "1", interrupted=True)
    assert [run["entry"] for run in found["board"]["runs"]] == ["modern", "modern, PyTorch"]
    assert len(found["tables"][0]["rows"]) == 2


def test_a_resumed_board_takes_the_runs_that_it_lacks_and_keeps_the_others(of):
    _, before = of(board.measure_board, "--minutes", "1", interrupted=True)
    taken, found = of(board.measure_board, "--minutes", "1", "--seeds", "2", "--resume")
    assert found["board"]["runs"][:2] == before["board"]["runs"] and len(taken) == 6
    whole = of(board.measure_board, "--minutes", "1", "--seeds", "2")[1]
    assert found["board"]["runs"] == whole["board"]["runs"]
    assert found["tables"] == whole["tables"]


@pytest.mark.parametrize("what, other", [
    ("data", {"board": {"data": "another", "threads": 1, "runs": []}}),
    ("threads", {"board": {"data": None, "threads": 9, "runs": []}}),
    ("processor", {"board": {"data": None, "threads": 1, "runs": []},
                   "machine": {"processor": "another"}})])
def test_a_board_is_not_resumed_under_other_conditions(of, tmp_path, small_text, what, other):
    _, found = of(board.measure_board, "--minutes", "1", "--seeds", "1")
    other["board"]["data"] = other["board"]["data"] or str(small_text)
    changed = found | other | {"machine": found["machine"] | other.get("machine", {})}
    (tmp_path / "b.json").write_text(json.dumps(changed), encoding="utf-8")
    with pytest.raises(SystemExit, match=f"has another {what}: .* Begin a new one with"):
        of(board.measure_board, "--minutes", "1", "--resume")
    assert json.loads((tmp_path / "b.json").read_text(encoding="utf-8")) == changed


def test_without_pytorch_the_board_has_minigrad_alone(of):
    _, found = of(board.measure_board, "--minutes", "1", "--seeds", "1", "--no-pytorch")
    assert [run["entry"] for run in found["board"]["runs"]] == ["modern", "gpt2"]


def test_a_pytorch_that_fails_is_absent_with_its_reason(small_text, tmp_path, monkeypatch):
    def fails(flags, text):
        raise RuntimeError("its process ended")
    monkeypatch.setattr(board, "train_twin", fails)
    options = parse(["board", "--minutes", "1", "--seeds", "1", "--data", str(small_text),
                     "--json", str(tmp_path / "b.json")])
    report = Report(options.json)
    found = board.begun("board", [], options, report)
    board.take_runs("board", [board.Entry("x, PyTorch", (), True)], found, options, report)
    assert found["notes"] == ["x, PyTorch, 1 min, seed 1: absent, because its process ended"]


def test_an_ablation_is_held_against_the_whole_recipe_seed_by_seed(of):
    _, found = of(board.measure_ablation, "--seeds", "2")
    table, = found["tables"]
    assert [row[0] for row in table["rows"]] == ["modern", *board.WITHOUT]
    above = {row[0]: row[table["columns"].index("above it")] for row in table["rows"]}
    assert above["modern"] is None
    assert above["--no-qk_norm"] == pytest.approx(0.001) == above["--norm layer"] / 2


def test_each_ablation_changes_one_part_of_the_recipe_and_all_have_one():
    changed = set()
    for flags in board.WITHOUT:
        given = Parser("train.py", "", Settings).given(["--recipe", "modern", *flags.split()])
        before, after = (completed(flags, 1_000_000) for flags in ({"recipe": "modern"}, given))
        different = {name for name in before if after[name] != before[name]}
        assert different == given.keys() - {"recipe"}, flags
        changed |= different
    parts = {name for name, value in RECIPES["modern"].items() if isinstance(value, (bool, str))
             and value != RECIPES["gpt2"][name]}
    assert changed == parts | {"ngrams", "ngram_dropout", "block_size", "batch_size"}


def test_the_recipes_of_the_board_are_those_of_train():
    assert sizes.RECIPES == tuple(RECIPES)


def test_a_run_of_train_is_judged_by_its_best_model_and_not_its_last(small_text):
    flags = [*TINY, "--max_iters", "3", "--eval_interval", "1", "--learning_rate", "10",
             "--threads", "1", "--data", str(small_text)]
    run = board.train(flags, board.read_text(str(small_text)))
    assert run["steps"] == 3 and run["seconds"] > 0 and len(run["sample"]) == 300
    assert 0 < run["loss"] < 3.5        # as before the first step


class Pretended:
    """PyTorch's side, each of whose steps takes a second; its losses are given."""
    losses = [3.0, 2.0, 2.5, 2.2]

    def __init__(self, model, optimizer, muon):
        self.model, self.muon, self.said, Pretended.last = model, muon, [], self
        self.evaluations = iter(self.losses)

    def step_at(self, batch, *rates):
        self.said.append(rates)
        return 2.0, 1.0

    def evaluate(self, x, y, batch_size):
        self.said.append(len(x))
        return next(self.evaluations)

    def keep(self):
        self.said.append("keep")

    def go_back(self):
        self.said.append("go back")

    def close(self):
        self.said.append("close")


def test_the_twin_trains_by_the_clock_rates_and_evaluations_of_train(small_text, monkeypatch):
    monkeypatch.setattr(board, "PyTorch", Pretended)
    flags = [*TINY, "--recipe", "modern", "--learning_rate", "4e-3", "--minutes", "0.1",
             "--eval_interval", "4", "--eval_iters", "1", "--warmup_iters", "2"]
    run = board.train_twin(flags, board.read_text(str(small_text)))
    said = Pretended.last.said
    rates = [x for x in said if isinstance(x, tuple)]
    assert run["steps"] == 6 == len(rates) and run["seconds"] == 6.0
    assert [muon / lr for lr, muon in rates] == pytest.approx([0.01 / 4e-3] * 6)
    assert rates[0][0] < rates[1][0] < rates[2][0] > rates[5][0]
    *some, whole = [x for x in said if isinstance(x, int)]
    assert some == [4, 4, 4] and whole > 4      # windows: one batch, three times, then all
    assert [x for x in said if isinstance(x, str)] == ["keep", "keep", "go back", "close"]
    assert run["loss"] == 2.2 and Pretended.last.muon


def test_a_board_is_shown_again_without_training_or_writing(of, tmp_path, monkeypatch, capsys):
    _, found = of(board.measure_board, "--minutes", "1", "--seeds", "1")
    monkeypatch.setattr(board, "train", None)
    before, said = json.dumps(found | {"tables": [{"title": "A step"}]}), capsys.readouterr().out
    (tmp_path / "b.json").write_text(before, encoding="utf-8")
    options = parse(["board", "--from", str(tmp_path / "b.json"),
                     "--plot", str(tmp_path / "b.svg")])
    again = Report(options.json, board.read_earlier(options.earlier, ""))
    board.measure_board(options, again)
    assert capsys.readouterr().out == said and again.content == found
    assert (tmp_path / "b.json").read_text(encoding="utf-8") == before


@pytest.mark.parametrize("words, answer", [
    (["step", "--from", "b.json"], "name one of them"),
    (["board", "step", "--from", "b.json"], "leave out step"),
    (["board", "--from", "nowhere.json"], "cannot read nowhere.json"),
    (["board", "--from", "setup.cfg"], "not what --json writes"),
    (["board", "--from", "b.json", "--resume"], "give one of them"),
    (["step", "--resume"], "--resume is about the board or the ablation"),
    (["board", "--resume"], "begin without --resume"),
    (["board", "--minutes", "0"], "a number above 0"),
    (["board", "--data", "nowhere.txt"], "nowhere.txt")])
def test_a_mistake_about_the_board_is_answered_in_words(words, answer, tmp_path, capsys):
    json_file = [] if "--from" in words else ["--json", str(tmp_path / "b.json")]
    with mock.patch.dict(os.environ), pytest.raises(SystemExit) as caught:
        main([*words, *json_file])
    said = capsys.readouterr().err + str(caught.value.code)
    assert caught.value.code not in (0, None) and answer in said


def made_up():
    """A board of two budgets."""
    runs = [{"entry": name, "minutes": minutes, "seed": seed, "steps": 10, "seconds": 1.0,
             "loss": 2 - minutes / 10 + seed / 50 + i / 5}
            for seed in (1, 2) for minutes in (1.0, 3.0)
            for i, name in enumerate(("modern", "modern, PyTorch", "gpt2", "gpt2, PyTorch"))]
    counted = {"unigram": 3.35, "bigram": 2.48, "trigram": 2.1, "4-gram": 1.85}
    return {"data": "a text", "threads": 2, "counted": counted, "runs": runs, "notes": []}


@pytest.mark.needs("board")
def test_the_plot_is_a_small_file_with_every_line_and_near_ngram_named(tmp_path):
    found, path = made_up(), tmp_path / "board.svg"
    assert str(path) in plot.draw(found, dict(board.grouped(found["runs"])), path)
    drawn = path.read_text(encoding="utf-8")
    assert len(drawn) < 40_000
    assert all(f">{name}<" in drawn for name in ("modern", "modern, PyTorch", "gpt2"))
    assert "bigram 2.48" in drawn and "unigram" not in drawn


def test_without_matplotlib_the_remedy_stands_in_place_of_the_plot(of, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    _, found = of(board.measure_board, "--minutes", "1", "--seeds", "1")
    assert "pip install -e '.[board]'" in found["tables"][0]["notes"][-1]
    assert not (tmp_path / "b.svg").exists()
