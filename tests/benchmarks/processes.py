"""What only a fresh process can show: how long a run takes to start, and what its steps hold."""
import argparse
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from model import Transformer
from tests.benchmarks.peers import Minigrad, config_of, random_batch
from tests.benchmarks.remote import ABSENT, PyTorch, has_pytorch
from tests.benchmarks.report import Report
from tests.benchmarks.sizes import Size
from tests.benchmarks.timing import alone, peak_memory, plan, say

ROOT = pathlib.Path(__file__).parents[2]
WARM_STARTS = 3
LOADED = Size("loaded", 1, 4, 128, 64, 8)       # enough for every kernel and for threads


def measure_start(options: argparse.Namespace, report: Report) -> None:
    """From the start of a process to a training step or a character, without and with kernels on
    disk."""
    rounds, _ = plan(options, WARM_STARTS, 1)
    seconds = {"train.py, to the end of its first step": [],
               "model.sample, to its first character": []}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            for i in range(1 + rounds):
                say(f"start: {i + 1} of {1 + rounds}")
                for took, start in zip(seconds.values(), (first_step, first_character)):
                    took.append(start(pathlib.Path(folder), options.threads))
        finally:
            report.table(
                "From the start of `python train.py` and of `python -m model.sample`",
                {"seconds": "{}", "kernels compiled": "{:.2f}", "on disk, median": "{:.2f}"},
                [[name, took[0], statistics.median(took[1:]) if took[1:] else math.nan]
                 for name, took in seconds.items() if took],
                ["The step: the text, its n-grams and two short evaluations included.  The "
                 "character: from the model of the row before, which has compiled some kernels.",
                 *(f"One by one, {name}: " + ", ".join(f"{s:.2f}" for s in took) + " s."
                   for name, took in seconds.items())])


def first_step(folder: pathlib.Path, threads: int) -> float:
    """Seconds until train.py says how good the model is after one step."""
    command = [sys.executable, "train.py", "--max_iters", "2", "--eval_interval", "1",
               "--eval_iters", "1", "--threads", str(threads), "--out_dir", str(folder / "out")]
    return seconds_until(lambda line: line.split()[:2] == ["step", "1"], command, folder)


def first_character(folder: pathlib.Path, threads: int) -> float:
    """Seconds until model.sample, which has the threads of the environment, has written a line
    that is not about compiling."""
    command = [sys.executable, "-m", "model.sample", "--out_dir", str(folder / "out"),
               "--max_new_tokens", "1"]
    return seconds_until(lambda line: not line.startswith("compiling"), command, folder)


def seconds_until(done: Callable[[str], bool], command: list[str], folder: pathlib.Path) -> float:
    """Seconds until a command writes a certain line; it is then ended."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder / "kernels"), "PYTHONUNBUFFERED": "1"}
    line = ""
    started = time.perf_counter()
    with subprocess.Popen(command, cwd=ROOT, env=environment, text=True, encoding="utf-8",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            for line in process.stdout:
                if done(line):
                    return time.perf_counter() - started
        finally:
            process.kill()
    sys.exit(f"{' '.join(command[1:3])} ended before its time: {line.strip()}")


def measure_memory(size: Size, options: argparse.Namespace, report: Report) -> None:
    """The most that two steps hold, each side in a process of its own."""
    sides = {"minigrad": memory_of_steps} | ({"PyTorch eager": memory_of_pytorch}
                                             if has_pytorch() else {})
    rows, notes = [], [] if has_pytorch() else [ABSENT]
    try:
        for name, memory in sides.items():
            say(f"memory {size.name}: {name}")
            loaded, peak = memory(size)
            rows.append([name, peak, loaded, peak - loaded])
        if math.isnan(peak):
            notes.append("Absent, because this system does not tell it.")
    finally:
        report.table(f"Peak resident memory of two steps, {size.name}",
                     {"MB": "{}", "peak": "{:,.0f}", "once all is loaded": "{:,.0f}",
                      "of the steps": "{:,.0f}"}, rows, notes)


def memory_of_steps(size: Size) -> tuple[float, float]:
    """Peak memory of a process once all is loaded, and after two steps; MB."""
    Minigrad(LOADED).loss(random_batch(LOADED))     # compiles what has to be, which would weigh
    return alone(_steps, size)


def _steps(size):
    Minigrad(LOADED).loss(random_batch(LOADED))
    loaded = peak_memory()
    peer, batch = Minigrad(size), random_batch(size)
    for _ in range(2):
        peer.loss(batch)
    return loaded, peak_memory()


def memory_of_pytorch(size: Size) -> tuple[float, float]:
    """The same on PyTorch's side; there the model itself is already among what is loaded."""
    twin = PyTorch(Transformer(config_of(size)))
    try:
        loaded = twin.peak_memory()
        for _ in range(2):
            twin.loss(random_batch(size))
        return loaded, twin.peak_memory()
    finally:
        twin.close()
