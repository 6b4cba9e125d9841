"""Training steps, of sizes and of recipes, and sampling, minigrad's beside those of PyTorch."""
import argparse
import dataclasses
import math
import string
import sys
from functools import partial

import numpy as np

import data
import train
from minigrad import formulas
from model import CharTokenizer, Transformer
from model.generation import stream_many
from model.settings import Settings, completed
from tests.benchmarks.board import read_text, run_of
from tests.benchmarks.peers import Minigrad, config_of, random_batch
from tests.benchmarks.remote import ABSENT, PyTorch, has_pytorch, training_of
from tests.benchmarks.report import Report
from tests.benchmarks.sizes import Size, step_flops
from tests.benchmarks.timing import Seconds, Timed, dropped_turns, plan, say, take_turns, timed

STEPS = {"small": (10, 10), "baby": (3, 1)}         # rounds, steps of a turn
RECIPE_STEPS = 8, 10                                # the same
ENDLESS = 10**9                                     # steps
TEXT = "lantern"                                    # that recipes are measured on
SAMPLES = {"small": (8, 2048), "baby": (5, 384)}    # rounds, characters of a turn: half blocks
ANEW = 50           # times fewer where each character reads its window anew
MANY = 16           # sequences at once
PRODUCT = 2048      # rows and columns of the matrices whose product is the peak
AGREEMENT = 1e-4    # of the losses of both sides, relative
CHECKED = 3         # steps, after which a wrong gradient shows in the loss
FASTER = "{:.2f} x as fast"


def measure_step(size: Size, options: argparse.Namespace, report: Report) -> None:
    """Training steps, in each mode of PyTorch; and what share of the peak they reach."""
    batch, notes, theirs = random_batch(size), [] if has_pytorch() else [ABSENT], []
    ours = Minigrad(size)
    ours.loss(batch)
    contestants = {"minigrad": partial(ours.loss, batch)}
    try:
        if has_pytorch():
            notes.append(agreement(size))
        for mode in options.modes if has_pytorch() else ():
            say(f"step {size.name}: PyTorch {mode}, its first step")
            try:
                theirs.append(PyTorch(Transformer(config_of(size)), mode))
                theirs[-1].loss(batch)
                contestants[f"PyTorch {mode}"] = partial(theirs[-1].step, batch)
            except RuntimeError as error:
                notes.append(f"PyTorch {mode}: absent, because {error}")
        rounds, steps = plan(options, *STEPS[size.name])
        contestants, products = timed(contestants, steps), timed_products()
        try:
            take_turns(contestants + products, rounds, f"step {size.name}",
                       warmup=0 if size.name == "baby" else 2)      # each has taken its first step
        finally:
            show_steps(report, size, contestants, products, notes)
    finally:
        for side in theirs:
            side.close()


def agreement(size: Size) -> str:
    """See that both sides compute the same, on two sequences and without dropout; says how well."""
    size = dataclasses.replace(size, batch=2, dropout=0.0)
    batch, twin = random_batch(size), PyTorch(Transformer(config_of(size)))
    try:
        ours, theirs = ([side.loss(batch) for _ in range(CHECKED)]
                        for side in (Minigrad(size), twin))
    finally:
        twin.close()
    apart = max(abs(a / b - 1) for a, b in zip(ours, theirs))
    if not apart < AGREEMENT:
        sys.exit(f"minigrad and PyTorch do not compute the same: the losses of {CHECKED} steps "
                 f"are {ours} and {theirs}")
    return (f"The losses of {CHECKED} steps from the same weights, without dropout, agree with "
            f"PyTorch's to {apart:.0e}.")


def timed_products() -> list[Timed]:
    """A large float32 product by NumPy's library and by ours."""
    a, b = np.random.default_rng(0).standard_normal((2, PRODUCT, PRODUCT), np.float32)
    return timed({"NumPy": partial(np.matmul, a, b), "minigrad": partial(formulas.matmul, a, b)})


def show_steps(report: Report, size: Size, contestants: list[Timed], products: list[Timed],
               notes: list[str]) -> None:
    """The table, with what was measured until now."""
    rates = {p.name: 2 * PRODUCT**3 / p.median for p in products if p.times}
    peak, flops = max(rates.values(), default=math.nan), step_flops(size)
    rows = [[t.name, *t.milliseconds(), size.tokens / t.median, flops / t.median / peak,
             t.median / contestants[0].median] for t in contestants]
    measured = ", ".join(f"{name} {rate / 1e9:.0f}" for name, rate in rates.items())
    report.table(
        f"A training step, {size.name}: {size}",
        {"": "{}", "median ms": "{:,.1f}", "10 %": "{:,.1f}", "90 %": "{:,.1f}",
         "tokens/s": "{:,.0f}", "of peak": "{:.0%}", "minigrad is": FASTER}, rows,
        [f"{len(contestants[0].times)} steps of each.  Their products take {flops / 1e9:,.2f} "
         f"GFLOP; the peak is the fastest of {measured} GFLOP/s, measured in the same rounds, in a "
         f"product of {PRODUCT} x {PRODUCT} float32 matrices.", *notes],
        contestants + [dataclasses.replace(p, name=f"product by {p.name}") for p in products])


def measure_recipes(options: argparse.Namespace, report: Report) -> None:
    """Training steps of train.py's recipes, each with its own optimiser, beside the same on
    PyTorch."""
    text = read_text(TEXT)
    for recipe in options.recipes:
        s = dataclasses.replace(Settings(**completed({"recipe": recipe}, len(text))),
                                minutes=None, max_iters=ENDLESS)
        run, twin = run_of(s, text), None
        calls = {"minigrad": partial(next, train.steps(run))}
        try:
            if has_pytorch():
                twin = PyTorch(run.model, **training_of(s))
                batch = data.random_batch(text.train, s.batch_size, s.block_size,
                                          run.state.batches)
                rates = run.learning_rate(s.learning_rate), run.learning_rate(s.muon_lr)
                calls["PyTorch eager"] = lambda: Seconds(twin.step_at(batch, *rates)[1])
            rounds, steps = plan(options, *RECIPE_STEPS)
            contestants = timed(calls, steps)
            try:
                take_turns(contestants, rounds, f"recipe {recipe}", warmup=2, only_quiet=True)
            finally:
                report.table(
                    f"A training step of --recipe {recipe}, {s.batch_size} x {s.block_size} "
                    "characters",
                    {"": "{}", "median ms": "{:,.1f}", "10 %": "{:,.1f}", "90 %": "{:,.1f}",
                     "tokens/s": "{:,.0f}", "minigrad is": FASTER},
                    [[t.name, *t.milliseconds(), s.characters / t.median,
                      t.median / contestants[0].median] for t in contestants],
                    [f"{len(contestants[0].times)} steps of minigrad.",
                     dropped_turns(contestants, rounds)] + ([] if twin else [ABSENT]), contestants)
        finally:
            if twin:
                twin.close()


def measure_sampling(size: Size, options: argparse.Namespace, report: Report) -> None:
    """Characters a second once windows are as full as they will be, of one sequence and of many."""
    rounds, count = plan(options, *SAMPLES[size.name])
    few = max(1, count // ANEW)     # where each takes as long as the one before
    tokenizer = CharTokenizer(string.ascii_letters + string.digits + "\n .")
    model, ids = Transformer(config_of(size)), random_batch(size)[0, 0]
    twin = PyTorch(model) if has_pytorch() else None

    def sample(beginning, sequences, count, **settings):
        for _ in stream_many(model, tokenizer, tokenizer.decode(beginning), range(sequences), count,
                             **settings):
            pass
    try:
        for sequences in (1, MANY):
            # The window has half a block and more; PyTorch's has the whole of it.
            calls = {"minigrad": (count, sample, ids[:size.block // 2], sequences),
                     "minigrad, no cache": (few, partial(sample, cache=False),
                                            ids[:size.block * 3 // 4], sequences)}
            if twin:
                calls["PyTorch eager"] = few, twin.generate, np.tile(ids, (sequences, 1))
            contestants = timed({name: partial(call, *beginning, n)
                                 for name, (n, call, *beginning) in calls.items()})
            try:
                take_turns(contestants, rounds, f"sampling {size.name}, {sequences}")
            finally:
                times = [[ms / n for ms in t.milliseconds()]
                         for t, (n, *_) in zip(contestants, calls.values())]
                report.table(
                    f"Sampling, {size.name}, {sequences} at once: milliseconds of a character of "
                    f"each, over {count} of them {rounds} times, or {few} without a cache",
                    {"": "{}", "median ms": "{:.3f}", "10 %": "{:.3f}", "90 %": "{:.3f}",
                     "characters/s": "{:,.0f}", "minigrad is": FASTER},
                    [[t.name, *ms, 1e3 * sequences / ms[0], ms[0] / times[0][0]]
                     for t, ms in zip(contestants, times)],
                    [] if twin else [ABSENT], contestants)
    finally:
        if twin:
            twin.close()
