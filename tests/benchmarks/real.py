"""Sampling and reading by the model of a folder, such as a converted one, beside `transformers`."""
import argparse
import importlib.util
import math
import os
import pathlib
import statistics
import sys
import tempfile
from functools import partial

import numba
import numpy as np

import data
from model import Transformer
from model.kv_cache.decoder import Decoder
from model.checkpoint import BEST, load_checkpoint
from tests.benchmarks.processes import WARM_STARTS, seconds_until
from tests.benchmarks.remote import Transformers
from tests.benchmarks.report import Report
from tests.benchmarks.sizes import TEMPERATURE
from tests.benchmarks.timing import plan, say, take_turns, timed

TURNS = 5, 64           # rounds, tokens of a turn
BEGINNING, PROMPT = 8, 200      # tokens, before those that are drawn, and to be read at once
MEMORY = 2 ** 28        # bytes, more than any cache holds
TEXT = "lantern"
AGREEMENT = 1e-3        # of the logits of both sides, relative to the largest
ABSENT = "transformers: absent, because it is not installed"
FASTER = "{:.2f} x as fast"


def measure_real(options: argparse.Namespace, report: Report) -> None:
    """What a real model's tokens take, and the first of them."""
    path = options.out_dir.resolve() / BEST
    measure_tokens(options, report, path)
    measure_first_token(options, report, path)


def measure_tokens(options: argparse.Namespace, report: Report, path: pathlib.Path) -> None:
    """Tokens drawn one by one, and a prompt that is read at once."""
    model, tokenizer, *_ = load_checkpoint(path)
    text, _ = tokenizer.without_unknown(data.read_text(TEXT))
    ids = tokenizer.encode(text[:8 * PROMPT])[None, :min(PROMPT, model.config.block_size - 1)]
    rounds, count = plan(options, *TURNS)
    count = min(count, model.config.block_size - BEGINNING)
    decoder, u = Decoder(model), np.random.default_rng(0).random((1, count))
    drawn = []

    def draw():
        drawn.append(decoder.draw(ids[:, :BEGINNING], 0, u, TEMPERATURE, None, None))
    memory, = timed({"memory": partial(summed, np.ones(MEMORY // 4, np.float32))}, 8)
    calls = {"minigrad": (draw, partial(decoder.read, ids))}
    notes, other = [], None
    try:
        if importlib.util.find_spec("transformers"):
            say("real: transformers, its start")
            try:
                other = Transformers(path)
                notes.append(agreement(decoder.read(ids), other.logits(ids)))
                calls["transformers"] = (partial(other.generate, ids[:, :BEGINNING], count),
                                         partial(other.read, ids))
            except (RuntimeError, ValueError) as error:
                notes.append(f"transformers: absent, because {error}")
        else:
            notes.append(ABSENT)
        drawing, reading = (timed({name: both[i] for name, both in calls.items()}, 1)
                            for i in (0, 1))
        try:
            take_turns([*drawing, memory, *reading], rounds, "real")
        finally:
            show(report, drawing, reading, memory, bytes_of_a_step(model), count, ids.shape[1],
                 len(tokenizer.decode(drawn[-1][0])) / count if drawn else math.nan, notes)
    finally:
        if other:
            other.close()


def bytes_of_a_step(model: Transformer) -> int:
    """Of the weights that each token needs all of."""
    apart = {"position_embedding.weight", "ngram_embedding.weight"}
    if not model.config.tied:
        apart.add("token_embedding.weight")
    return sum(p.data.nbytes for name, p in model.named_parameters() if name not in apart)


@numba.njit(parallel=True, fastmath=True)
def summed(a):
    """Read an array as fast as the memory allows."""
    total = np.float32(0)
    for i in numba.prange(a.size):
        total += a[i]
    return total


def agreement(ours: np.ndarray, theirs: np.ndarray) -> str:
    """See that both sides compute the same; says how well."""
    apart = np.abs(ours - theirs).max() / np.abs(theirs).max()
    if not apart < AGREEMENT:
        sys.exit(f"minigrad and transformers do not compute the same: logits are {apart:.0e} of "
                 "the largest apart")
    return f"The logits after the prompt agree with those of transformers to {apart:.0e}."


def show(report, drawing, reading, memory, size, count, prompt, length, notes) -> None:
    """The tables of what was measured until now."""
    if not (memory.times and drawing[0].times and reading[0].times):
        return
    bandwidth = MEMORY / min(memory.times)
    report.table(
        f"Tokens drawn, one text, {count} after {BEGINNING}, which are read too",
        {"": "{}", "median ms": "{:.1f}", "10 %": "{:.1f}", "90 %": "{:.1f}",
         "tokens/s": "{:.1f}", "characters/s": "{:.0f}", "GB/s": "{:.1f}", "of memory": "{:.0%}",
         "minigrad is": FASTER},
        [[t.name, *(ms / count for ms in t.milliseconds()), count / t.median,
          length * count / t.median, size * count / t.median / 1e9,
          size * count / t.median / bandwidth, t.median / drawing[0].median] for t in drawing],
        [f"Each token needs {size / 1e6:,.0f} MB of weights; the memory gives "
         f"{bandwidth / 1e9:.1f} GB/s, the best of reading {MEMORY / 1e6:,.0f} MB in the same "
         "rounds.", *notes],
        [*drawing, memory])
    report.table(
        f"A prompt of {prompt} tokens read",
        {"": "{}", "median ms": "{:,.0f}", "10 %": "{:,.0f}", "90 %": "{:,.0f}",
         "tokens/s": "{:,.0f}", "minigrad is": FASTER},
        [[t.name, *t.milliseconds(), prompt / t.median, t.median / reading[0].median]
         for t in reading], [], reading)


def measure_first_token(options: argparse.Namespace, report: Report, path: pathlib.Path) -> None:
    """From the command to the first token, without and with kernels on disk."""
    rounds, _ = plan(options, WARM_STARTS, 1)
    command = [sys.executable, "-m", "model.sample", "--out_dir", os.fspath(path.parent),
               "--max_new_tokens", "1"]
    took = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for i in range(1 + rounds):
            say(f"real, start: {i + 1} of {1 + rounds}")
            took.append(seconds_until(lambda line: not line.startswith("compiling"), command,
                                      pathlib.Path(folder)))
    report.table("From the start of `python -m model.sample` to its first token",
                 {"seconds": "{}", "kernels compiled": "{:.2f}", "on disk, median": "{:.2f}"},
                 [[path.parent.name, took[0], statistics.median(took[1:])]],
                 ["One by one: " + ", ".join(f"{s:.2f}" for s in took) + " s."])
