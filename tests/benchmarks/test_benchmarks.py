"""The benchmarks run without PyTorch, and count what they divide by.  No test times anything."""
import json
import math
import os
import subprocess
import sys
from functools import partial
from unittest import mock

import numpy as np
import pytest

import minigrad as mg
from minigrad import formulas
from minigrad.ops import network
from model import Transformer
from tests.benchmarks import steps, timing
from tests.benchmarks.__main__ import main
from tests.benchmarks.growth import exponent
from tests.benchmarks.peers import config_of, random_batch
from tests.benchmarks.sizes import Size, step_flops


def test_the_flops_of_a_step_are_those_of_its_products(monkeypatch):
    size, counted = Size("tiny", 2, 2, 16, 8, 3), []

    def counting(f, flops):
        def counted_f(*args, **settings):
            counted.append(flops(*args))
            return f(*args, **settings)
        return counted_f

    monkeypatch.setattr(formulas, "matmul", counting(
        formulas.matmul, lambda a, b, **rest: 2 * a.shape[0] * a.shape[1] * b.shape[1]))
    monkeypatch.setattr(formulas, "attention", counting(     # half of two products, forward
        formulas.attention, lambda q, *rest: 2 * q.size * size.block))
    monkeypatch.setattr(formulas, "attention_vjp", counting(     # half of four, back
        formulas.attention_vjp, lambda g, *rest: 4 * g.size * size.block))
    ids, targets = random_batch(size)
    mg.cross_entropy(Transformer(config_of(size))(ids), targets).backward()
    assert network.formulas is formulas and sum(counted) == step_flops(size)


def test_an_exponent_is_that_of_the_upper_half():
    x = [1, 2, 4, 8, 16, 32]
    assert np.isclose(exponent(x, [9, 9, 9, 8**1.5, 16**1.5, 32**1.5]), 1.5)


def test_the_command_prints_tables_and_writes_them_as_json(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(timing, "PAUSE", 0.0)
    monkeypatch.setattr(timing, "WAKING", 0.0)
    monkeypatch.setattr(steps, "PRODUCT", 64)
    with mock.patch.dict(os.environ):
        main(["step", "recipe", "sampling", "--sizes", "small", "--quick", "--rounds", "1",
              "--steps", "1", "--modes", "eager", "--json", str(tmp_path / "b.json")])
    said = capsys.readouterr().out
    written = json.loads((tmp_path / "b.json").read_text(encoding="utf-8"))
    titles = [table["title"] for table in written["tables"]]
    for title, begins in zip(titles, (
            "A training step, small", "A training step of --recipe modern", "A training step of "
            "--recipe gpt2", "Sampling, small, 1 at", "Sampling, small, 16 at"), strict=True):
        assert title.startswith(begins) and begins in said
    for table in written["tables"]:
        assert table["rows"][0][0] == "minigrad" and table["rows"][0][1] > 0
    assert said.count("median ms") == len(titles) and written["machine"]


@pytest.mark.parametrize("words", [["--sizes", "huge"], ["--gap", "-1"], ["huge"]])
def test_a_mistake_on_the_command_line_is_answered_in_words(words):
    said = subprocess.run([sys.executable, "-m", "tests.benchmarks", *words],
                          capture_output=True, text=True)
    assert said.returncode == 2 and words[-1] in said.stderr and "Traceback" not in said.stderr


@pytest.mark.parametrize("used, kept, dropped", [
    ([0, 0, 0, 0, 0, 0], [1, 2, 3], 0), ([math.nan] * 6, [1, 2, 3], 0),
    ([0, 9e9, 0, 0, 0, 0], [2, 3], 1), ([0, 9e9, 0, 9e9, 0, 9e9], [1, 2, 3], 3)])
def test_a_turn_beside_other_programs_is_dropped_unless_all_are(monkeypatch, used, kept, dropped):
    monkeypatch.setattr(timing, "PAUSE", 0.0)
    monkeypatch.setattr(timing, "WAKING", -1.0)
    monkeypatch.setattr(timing, "by_others", partial(next, iter(used)))
    results = iter([0, 0, 1, 0, 2, 0, 3])       # the warmup, and a first call in each turn
    timed = timing.Timed("minigrad", lambda: lambda: timing.Seconds(next(results)))
    timing.take_turns([timed], 3, "", only_quiet=True)
    assert timed.times == kept and timed.dropped == dropped
    assert f"minigrad {dropped}." in timing.dropped_turns([timed], 3)


@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="this system does not tell")
def test_processes_of_a_benchmark_are_no_others(monkeypatch):
    lines = {"/proc/stat": "cpu  100 10 30 5000 5 3 2 1 0 0", f"/proc/{os.getpid()}/stat":
             " ".join(["1 (a b) R"] + ["0"] * 10 + ["40", "20"] + ["0"] * 37)}
    monkeypatch.setattr(timing.pathlib.Path, "read_text",
                        lambda path, encoding: lines[str(path)] + "\n")
    assert timing.by_others() * timing.TICKS == 100 + 10 + 30 + 3 + 2 + 1 - 40 - 20


def test_a_gap_before_a_call_is_not_timed():
    clock = iter([0.0, 0.5, 1.5, 2.5, 2.75])
    with mock.patch.object(timing.time, "perf_counter", lambda: next(clock)):
        assert timing.Timed("", lambda: lambda: None, gap=2.0)._call() == 0.25
