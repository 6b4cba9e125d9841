"""The benchmarks measure, compare and predict what they say.  No test times anything."""
import argparse
import contextlib
import dataclasses
import importlib.util
import json
import math
import os
from functools import partial
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

import data
from model import CharTokenizer, Transformer, TransformerConfig, save_checkpoint
from model.command import Parser
from model.run import make_optimizer
from model.settings import RECIPES, Settings, complete_settings
from tests.benchmarks import board, ranks, real, sizes, timing
from tests.benchmarks.__main__ import main, parse
from tests.benchmarks.jax_twin import Jax, check
from tests.benchmarks.remote import jax_is_absent, training_of
from tests.benchmarks.report import Report, earlier
from tests.benchmarks.timing import Seconds
from tests.kit import TINY, refusal, refused, take_step


MEASURE = """
import sys
from tests.benchmarks import __main__ as benchmarks, timing
timing.PAUSE = timing.WAKING = 0.0
benchmarks.main(["step", "recipe", "sampling", *sys.argv[1:]])
"""


@pytest.mark.meanwhile("-c", MEASURE, *"--sizes small --quick --rounds 1 --steps 1 --modes eager "
                       "--threads 1 --json FOLDER/written.json".split())
def test_the_command_prints_tables_and_writes_them_as_json(ended, small_text):
    assert ended.returncode == 0, ended.stderr
    said = ended.stdout
    written = json.loads((small_text.parent / "written.json").read_text(encoding="utf-8"))
    titles = [table["title"] for table in written["tables"]]
    for title, begins in zip(titles, (
            "A training step, small", "A training step of --recipe modern", "A training step of "
            "--recipe gpt2", "Sampling, small, 1 at", "Sampling, small, 16 at"), strict=True):
        assert title.startswith(begins) and begins in said
    for table in written["tables"]:
        assert table["rows"][0][0] == "minigrad" and table["rows"][0][1] > 0
    assert said.count("median ms") == len(titles) and written["machine"]


@pytest.mark.parametrize("words, answer", [
    ("--sizes huge", "huge"), ("huge", "no huge"), ("ranks --latency 0", "a number above 0"),
    ("real", "name it with --out_dir"), ("rule", "with --texts"),
    ("board --minutes 0", "a number above 0"), ("step --resume", "leave out step"),
    ("board --seeds 0", "a whole number of at least 1"),
    ("board --json nowhere.json --resume", "nowhere.json"),
    ("board --json setup.cfg --resume", "it is no JSON"),
    ("board --json small/written.json --data nowhere.txt", "nowhere.txt")])
def test_a_mistake_on_the_command_line_is_answered_in_words(words, answer, tmp_path, capsys):
    words = words.replace("small/", f"{tmp_path}/").split()
    with mock.patch.dict(os.environ):
        assert answer in refused(capsys, *words, main=main)


@pytest.mark.parametrize("used, kept, dropped", [
    ([0, 0, 0, 0, 0, 0], [1, 2, 3], 0), ([math.nan] * 6, [1, 2, 3], 0),
    ([0, 9e9, 0, 0, 0, 0], [2, 3], 1), ([0, 9e9, 0, 9e9, 0, 9e9], [1, 2, 3], 3)])
def test_a_turn_beside_other_programs_is_dropped_unless_all_are(monkeypatch, used, kept, dropped):
    monkeypatch.setattr(timing, "PAUSE", 0.0)
    monkeypatch.setattr(timing, "WAKING", -1.0)
    monkeypatch.setattr(timing, "by_others", partial(next, iter(used)))
    results = iter([0, 0, 1, 0, 2, 0, 3])       # the warmup, and a first call in each turn
    timed = timing.Timed("minigrad", lambda: lambda: Seconds(next(results)))
    timing.take_turns([timed], 3, "", only_quiet=True)
    assert timed.times == kept and len(timed.loud) == dropped


# The board

@pytest.fixture
def of(monkeypatch, tmp_path, small_text):
    """Measures with made-up runs in place of training, and returns the flags of each and the JSON;
    the third run may be interrupted."""
    def measured(what, words, interrupted=False):
        taken = []

        def run(flags, text, seconds=10.0):
            taken.append(list(flags))
            if interrupted and len(taken) == 3:
                raise KeyboardInterrupt
            seed = int(flags[flags.index("--seed") + 1])
            return {"loss": 2 + seed / 10 + ("gpt2" in flags) + len(flags) / 1000,
                    "steps": 40, "seconds": seconds}
        monkeypatch.setattr(board, "train", run)
        monkeypatch.setattr(board, "train_twin", partial(run, seconds=20.0))
        monkeypatch.setattr(board, "has_pytorch", lambda: True)
        monkeypatch.chdir(tmp_path)
        options = parse([what, "--data", str(small_text),
                         *f"--json b.json --plot b.svg --threads 1 {words}".split()])
        measure = getattr(board, f"measure_{what}")
        with pytest.raises(KeyboardInterrupt) if interrupted else mock.MagicMock():
            measure(options, Report(options.json, earlier(options)))
        return taken, json.loads(options.json.read_text(encoding="utf-8"))
    return measured


def test_the_board_runs_all_of_a_seed_before_the_next_and_shows_their_spread(of):
    taken, found = of("board", "--minutes 1 3 --seeds 3")
    runs = [(run["seed"], run["budget"], run["entry"]) for run in found["board"]["runs"]]
    assert runs == [(seed, minutes, entry) for seed in (1, 2, 3) for minutes in (1, 3)
                    for entry in ("modern", "modern, PyTorch", "gpt2", "gpt2, PyTorch")]
    flags = "--recipe modern --minutes 3 --seed 2".split()
    assert any(one[:6] == flags and one[-2:] == ["--threads", "1"] for one in taken)
    table, = found["tables"]
    ours, theirs = (dict(zip(table["columns"], row)) for row in table["rows"][:2])
    losses = [run["loss"] for run in found["board"]["runs"][::8]]
    assert (ours["least"], ours["most"]) == (losses[0], losses[2])
    assert ours["loss"] == pytest.approx(losses[1]) and ours["seeds"] == 3
    assert (ours["steps/s"], theirs["steps/s"]) == (4, 2)
    assert (ours["minigrad is"], theirs["minigrad is"]) == (None, 2)
    assert "counted bigram" in "\n".join(table["notes"])


def test_runs_of_so_many_characters_have_the_steps_that_read_them(of):
    taken, found = of("board", "--characters 10_000 2.5e4 --seeds 1 --recipes gpt2 --no-pytorch")
    assert [flags[2:4] for flags in taken] == [["--max_iters", "14"], ["--max_iters", "33"]]
    assert [run["budget"] for run in found["board"]["runs"]] == [10_000, 25_000]
    table, = found["tables"]
    assert [row[table["columns"].index("characters")] for row in table["rows"]] == [10_000, 25_000]


def test_an_interrupted_board_is_resumed_and_ends_as_if_left_alone(of):
    _, before = of("board", "--minutes 1", interrupted=True)
    assert [run["entry"] for run in before["board"]["runs"]] == ["modern", "modern, PyTorch"]
    assert len(before["tables"][0]["rows"]) == 2
    taken, found = of("board", "--minutes 1 --seeds 2 --resume")
    assert found["board"]["runs"][:2] == before["board"]["runs"] and len(taken) == 6
    whole = of("board", "--minutes 1 --seeds 2")[1]
    assert found["board"]["runs"] == whole["board"]["runs"]
    assert found["tables"] == whole["tables"]


@pytest.mark.parametrize("what", ["data", "processor"])
def test_a_board_is_not_resumed_under_other_conditions(of, tmp_path, what):
    _, found = of("board", "--minutes 1 --seeds 1")
    found["board"]["conditions"][what] = "another"
    (tmp_path / "b.json").write_text(json.dumps(found), encoding="utf-8")
    with pytest.raises(SystemExit, match=f"has another {what}: .* Begin a new one with"):
        of("board", "--minutes 1 --resume")


def test_an_ablation_is_compared_with_the_whole_recipe_seed_by_seed(of):
    _, found = of("ablation", "--seeds 2")
    table, = found["tables"]
    assert [row[0] for row in table["rows"]] == ["modern", *board.WITHOUT]
    above = {row[0]: row[table["columns"].index("above it")] for row in table["rows"]}
    assert above["modern"] is None
    assert above["--no-qk_norm"] == pytest.approx(0.001) == above["--norm layer"] / 2


def test_each_ablation_changes_one_part_of_the_recipe_and_all_have_one():
    changed = set()
    for flags in board.WITHOUT:
        given = Parser("train.py", "", Settings).parse(["--recipe", "modern", *flags.split()])
        before = complete_settings({"recipe": "modern"}, 1_000_000)
        after = complete_settings(given, 1_000_000)
        different = {name for name in before if after[name] != before[name]}
        assert different == given.keys() - {"recipe"}, flags
        changed |= different
    parts = {name for name, value in RECIPES["modern"].items() if isinstance(value, (bool, str))
             and value != RECIPES["gpt2"][name]}
    assert changed == parts | {"ngrams", "ngram_dropout", "ngram_decay", "ahead", "block_size",
                               "batch_size"}
    assert sizes.RECIPES == tuple(RECIPES)


def test_a_run_of_train_is_judged_by_its_best_model_and_not_its_last(small_text):
    flags = "--max_iters 3 --eval_interval 1 --learning_rate 10 --threads 1 --data"
    run = board.train([*TINY, *flags.split(), str(small_text)], board.read_text(str(small_text)))
    assert run["steps"] == 3 and run["seconds"] > 0
    assert 0 < run["loss"] < 3.5        # as before the first step


@pytest.mark.needs("board")
def test_a_plot_has_every_line_and_near_ngram_named(of, tmp_path, monkeypatch):
    monkeypatch.setattr(board, "yardstick", lambda *_: {"bigram": 2.48, "unigram": 5.0})
    of("board", "--minutes 1 3 --seeds 2")
    drawn = (tmp_path / "b.svg").read_text(encoding="utf-8")
    assert all(f">{name}<" in drawn for name in ("modern", "modern, PyTorch", "gpt2"))
    assert "bigram 2.48" in drawn and "unigram" not in drawn


# Ranks

COST = dict(row=0.01, fixed=0.02, shared=0.0, batch=16, bytes=4e6, stepped=0)


def test_the_efficiency_of_ranks_is_that_of_a_known_case():
    strong, _, weak, _ = ranks.efficiencies(4, COST, 0.0, 0.0)
    assert weak == 1 and strong == pytest.approx((0.02 + 0.16) / 4 / (0.02 + 0.04))
    shared = COST | dict(fixed=0.0, shared=0.02)            # by Muon, among the ranks
    assert ranks.efficiencies(4, shared, 0.0, 0.0)[:2] == pytest.approx([1] * 2)
    of_16, of_32 = (ranks.efficiencies(W, COST, 0.0, 0.0)[0] for W in (16, 32))
    assert of_32 == pytest.approx(of_16 / 2)        # half of the ranks have no row
    ring, tree = ranks.WAYS["ring"], ranks.WAYS["tree"]
    assert ring(1024, 1e6, 1.0, 1.0) == pytest.approx(2046 + 2e6, rel=1e-2)
    assert tree(1024, 1e6, 1.0, 1.0) == 20 + 20e6
    without, muon = (ranks.predicted(4, 1, COST | dict(stepped=n), "ring", 1e-3, 1e-9)
                     for n in (0, 8e6))
    assert muon - without == pytest.approx(ring(4, 8e6, 1e-3, 1e-9) / 2)
    rows, fixed, sums, latency = ranks.walls(COST, 1e-6, 1e-10)
    assert "from 32 ranks on" in rows and "from 16 ranks on" in fixed
    assert "not up to 1,024 ranks" in sums and "from 512 ranks on" in latency


def test_the_table_of_ranks_compares_predictions_with_measurements(monkeypatch, capsys):
    def in_ranks(size, threads, name, steps):
        seconds = 0.02 + 0.01 * 16 / size / threads
        return dict(seconds=seconds, computing=seconds, waiting=0.0, summing=0.001 * (size > 1),
                    fixed=0.02, shared=0.0, batch=16, block=8, ranks=size, bytes=4e6,
                    stepped=0)
    monkeypatch.setattr(ranks, "in_ranks", in_ranks)
    report = Report(None)
    ranks.measure_ranks(parse("ranks --sizes small --steps 3 --threads 2".split()), report)
    said, tables = capsys.readouterr().out, report.content["tables"]
    assert [len(table["rows"]) for table in tables] == [4, len(ranks.COUNTS)] * 2
    _, alone, two, four = tables[0]["rows"]
    assert alone[5] is None and two[5] == pytest.approx(1e3 * (0.02 + 0.08 + 0.001))
    assert four[5] == pytest.approx(2e3 * (0.02 + 0.04 + 0.0015))      # two turns
    assert "A row of the batch takes 10.00 ms" in said


# The model of a folder

LLAMA = dict(block_size=24, n_layer=1, n_head=2, n_embd=8, position="rotary", norm="rms_gain",
             activation="swiglu")


def test_tokens_are_measured_beside_others_and_transformers_only_if_logits_agree(
        tmp_path, monkeypatch, capsys):
    tokenizer, path = CharTokenizer(data.read_text(real.TEXT)), tmp_path / "ckpt.npz"
    save_checkpoint(path, Transformer(TransformerConfig(tokenizer.vocab_size, **LLAMA)), tokenizer)
    decoder = real.Decoder(real.load_checkpoint(path).model)

    def measured(apart, there=True):
        """The rows of each table beside others that draw in half a second; the logits of
        transformers are so far from the right ones."""
        other = SimpleNamespace(
            call=lambda what, ids: decoder.read(ids) * (1 + apart),
            time=lambda what, *_: Seconds(0.5 if what == "generate" else 0.25))
        for name in ("transformers", "llama_cpp"):
            monkeypatch.setattr(real, name, lambda *_: contextlib.nullcontext(other))
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: there or None)
        report = Report(None)
        options = argparse.Namespace(quick=True, rounds=1, steps=3, threads=2)
        real.measure_tokens(options, report, path)
        return [table["rows"] for table in report.content["tables"]]
    (ours, theirs, llama_cpp), (reading, other, _) = measured(0.0)
    assert llama_cpp[0] == "llama.cpp" and llama_cpp[1:] == theirs[1:]
    assert theirs[4] == pytest.approx(6) and theirs[5] == pytest.approx(6)      # a second
    assert other[-2] == pytest.approx(23 / 0.25) and ours[-1] == reading[-1] == 1
    assert [len(rows) for rows in measured(0.0, there=False)] == [1, 1]
    said = " ".join(capsys.readouterr().out.split())
    for library in ("transformers", "xllamacpp"):
        assert f"absent, because {library} is not installed" in said
    assert "do not compute the same: logits are 2e-03" in refusal(SystemExit, measured, 2e-3)


@pytest.mark.parametrize("options, apart", [
    (LLAMA, []), (LLAMA | {"tied": False}, ["token"]),
    (dict(block_size=24, n_layer=1, n_head=2, n_embd=8), ["position"])])
def test_a_token_needs_all_weights_but_those_it_looks_up(options, apart):
    model = Transformer(TransformerConfig(5, **options))
    assert real.bytes_of_a_step(model) == sum(
        p.data.nbytes for name, p in model.named_parameters()
        if name not in [f"{part}_embedding.weight" for part in apart])


# JAX

GPT2 = dict(recipe="gpt2", n_layer=2, n_head=2, n_embd=32, block_size=16, batch_size=4,
            dropout=0.0)


def settings_and_model(**options):
    """Settings and a small model of them, of which no weight is 0."""
    s = Settings(**complete_settings(GPT2 | options, 1000))
    model = Transformer(s.model_config(vocab_size=11))
    rng = np.random.default_rng(1)
    for p in model.parameters():
        p.data += 0.1 * rng.standard_normal(p.shape, np.float32)
    return s, model


@pytest.mark.skipif(bool(jax_is_absent()), reason="jax or optax is not installed")
def test_the_twin_in_jax_has_the_losses_of_the_model_and_trains_to_the_same_weights():
    # Much decay and clipping, so that a twin without them has other weights.
    s, model = settings_and_model(weight_decay=10.0, grad_clip=0.5)
    optimizer = make_optimizer(model, s)
    highest = [group["lr"] for group in optimizer.param_groups]
    twin = Jax(dataclasses.asdict(model.config), model.state_dict(), 1, **training_of(s))
    rng = np.random.default_rng(0)
    before = {name: w.copy() for name, w in model.state_dict().items()}
    for step in range(1, 4):
        ids, targets = rng.integers(11, size=(2, 4, 16))
        rates = [rate / step for rate in highest]
        loss = take_step(model, optimizer, (ids, targets), s.grad_clip, rates)
        assert abs(twin.step(ids, targets, s.learning_rate / step) - loss) < 1e-5
    for name, w in model.state_dict().items():
        assert np.allclose(twin.weights[name], w, atol=1e-4), name
        assert not np.allclose(w, before[name], atol=1e-3), f"{name} has hardly moved"


@pytest.mark.parametrize("name, value", [
    ("position", "rotary"), ("norm", "rms"), ("activation", "relu2"), ("bias", True)])
def test_what_the_twin_in_jax_has_not_is_refused(name, value):
    _, model = settings_and_model()
    config = dataclasses.asdict(model.config)
    check(config, {})
    assert f"of {name} the twin in JAX has " in refusal(ValueError, check, config | {name: value},
                                                        {})
    assert "no Muon" in refusal(ValueError, check, config, {"muon": True})


@pytest.mark.parametrize("missing, says", [
    ([], ""),
    (["optax"], "because optax cannot be imported; install both with"),
    (["jax", "optax"], "because jax and optax cannot be imported")])
def test_jax_is_absent_says_what_is_missing(missing, says, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec",
                        lambda name: None if name in missing else "found")
    said = jax_is_absent()
    assert says in said and bool(said) == bool(missing)
