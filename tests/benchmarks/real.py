"""Starts of processes; and the model of a folder, such as a converted one, by transformers too."""
import argparse
import importlib.util
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial

import numba
import numpy as np

import data
from model import Transformer
from model.checkpoint import BEST, load_checkpoint
from model.kv_cache.decoder import Decoder
from tests.benchmarks.remote import transformers
from tests.benchmarks.report import Report
from tests.benchmarks.sizes import TEMPERATURE
from tests.benchmarks.timing import plan, say, timed
from tests.kit import ROOT

WARM_STARTS = 3
TURNS = 5, 64           # rounds, tokens of a turn
BEGINNING, PROMPT = 8, 200      # tokens, before those that are drawn, and to be read at once
MEMORY = 2 ** 28        # bytes, more than any cache holds
TEXT = "lantern"
AGREEMENT = 1e-3        # of the logits of both sides, relative to the largest
ABSENT = "transformers: absent, because it is not installed"


def measure_start(options: argparse.Namespace, report: Report) -> None:
    """Time train.py until the end of its first step, and model.sample until its first character,
    with that model."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        out_dir = os.path.join(folder, "out")
        train = ["train.py", "--max_iters", "2", "--eval_interval", "1", "--eval_iters", "1",
                 "--threads", str(options.threads), "--out_dir", out_dir]
        show_starts(options, report, folder, {
            "train.py, to the end of its first step":
                (train, lambda line: line.split()[:2] == ["step", "1"]),
            "model.sample, to its first character": first_token(out_dir)})


def first_token(out_dir: str | os.PathLike) -> tuple[list[str], Callable[[str], bool]]:
    """Return the command that draws one token, and whether a line comes with it."""
    return (["-m", "model.sample", "--out_dir", os.fspath(out_dir), "--max_new_tokens", "1"],
            lambda line: not line.startswith("compiling"))


def show_starts(options: argparse.Namespace, report: Report, folder: str,
                starts: dict[str, tuple[list[str], Callable[[str], bool]]]) -> None:
    """Show the seconds until each command writes a certain line, without and with kernels on
    disk."""
    rounds, _ = plan(options, WARM_STARTS, 1)
    seconds = {name: [] for name in starts}
    for i in range(1 + rounds):
        say(f"start: {i + 1} of {1 + rounds}")
        for name, (command, done) in starts.items():
            seconds[name].append(seconds_until(done, command, folder))
    report.table("From the start of a process",
                 {"seconds": "{}", "kernels compiled": "{:.2f}", "on disk, median": "{:.2f}"},
                 [[name, took[0], statistics.median(took[1:])] for name, took in seconds.items()],
                 [f"One by one, {name}: " + ", ".join(f"{s:.2f}" for s in took) + " s."
                  for name, took in seconds.items()])


def seconds_until(done: Callable[[str], bool], command: list[str], folder: str) -> float:
    """Return the seconds until a command of Python writes a certain line; then end it.  Its kernels
    are kept in the folder."""
    environment = os.environ | {"NUMBA_CACHE_DIR": os.path.join(folder, "kernels"),
                                "PYTHONUNBUFFERED": "1"}
    line, started = "", time.perf_counter()
    with subprocess.Popen([sys.executable, *command], cwd=ROOT, env=environment, text=True,
                          encoding="utf-8", stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as process:
        try:
            for line in process.stdout:
                if done(line):
                    return time.perf_counter() - started
        finally:
            process.kill()
    sys.exit(f"{' '.join(command[:2])} ended too early: {line.strip()}")


def measure_real(options: argparse.Namespace, report: Report) -> None:
    """Measure the tokens of the model of --out_dir, and the time to its first token."""
    out_dir = options.out_dir.resolve()
    measure_tokens(options, report, out_dir / BEST)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        show_starts(options, report, folder, {
            "model.sample, to its first token": first_token(out_dir)})


def measure_tokens(options: argparse.Namespace, report: Report, path: pathlib.Path) -> None:
    """Compare tokens that are drawn one by one, and a prompt that is read at once."""
    model, tokenizer, *_ = load_checkpoint(path)
    text, _ = tokenizer.without_unknown(data.read_text(TEXT))
    ids = tokenizer.encode(text[:8 * PROMPT])[None, :min(PROMPT, model.config.block_size - 1)]
    start, (rounds, count) = ids[:, :BEGINNING], plan(options, *TURNS)
    count = min(count, model.config.block_size - BEGINNING)
    decoder, u = Decoder(model), np.random.default_rng(0).random((1, count))
    length = len(tokenizer.decode(decoder.draw(start, 0, u, TEMPERATURE, None, None)[0])) / count
    drawing = {"minigrad": lambda: decoder.draw(start, 0, u, TEMPERATURE, None, None)}
    reading = {"minigrad": partial(decoder.read, ids)}
    notes, other = [], None
    try:
        if importlib.util.find_spec("transformers"):
            say("real: transformers, its start")
            try:
                other = transformers(path)
                notes.append(agreement(decoder.read(ids), other.call("logits", ids)))
                drawing["transformers"] = partial(other.time, "generate", start, count)
                reading["transformers"] = partial(other.time, "logits", ids)
            except (RuntimeError, ValueError) as error:
                notes.append(f"transformers: absent, because {error}")
        else:
            notes.append(ABSENT)
        memory, = timed({"memory": partial(summed, np.ones(MEMORY // 4, np.float32))}, 8)
        memory.turn()
        size, bandwidth = bytes_of_a_step(model), MEMORY / min(memory.times)
        notes.append(f"Each token needs {size / 1e6:,.0f} MB of weights; the memory gives "
                     f"{bandwidth / 1e9:.1f} GB/s, the best of reading {MEMORY / 1e6:,.0f} MB.")
        report.turns(f"Tokens drawn, one text, {count} after {BEGINNING}, which are read too",
                     timed(drawing), rounds,
                     {"tokens/s": ("{:.1f}", count), "characters/s": ("{:.0f}", length * count),
                      "GB/s": ("{:.1f}", size * count / 1e9),
                      "of memory": ("{:.0%}", size * count / bandwidth)}, notes, calls=count)
        prompt = ids.shape[1]
        report.turns(f"A prompt read, {prompt} tokens", timed(reading), rounds,
                     {"tokens/s": ("{:,.0f}", prompt)}, form="{:,.0f}")
    finally:
        if other:
            other.close()


def bytes_of_a_step(model: Transformer) -> int:
    """Return the bytes of the weights that each token needs as a whole."""
    looked_up = {"position_embedding.weight", "ngram_embedding.weight"}
    if not model.config.tied:
        looked_up.add("token_embedding.weight")
    return sum(p.data.nbytes for name, p in model.named_parameters() if name not in looked_up)


@numba.njit(parallel=True, fastmath=True)
def summed(a):
    """Read an array as fast as the memory allows."""
    total = np.float32(0)
    for i in numba.prange(a.size):
        total += a[i]
    return total


def agreement(ours: np.ndarray, theirs: np.ndarray) -> str:
    """Check that both sides compute the same logits; return a note."""
    apart = np.abs(ours - theirs).max() / np.abs(theirs).max()
    if not apart < AGREEMENT:
        sys.exit(f"minigrad and transformers do not compute the same: logits are {apart:.0e} of "
                 "the largest apart")
    return f"The logits after the prompt agree with those of transformers to {apart:.0e}."
