"""Training steps, of sizes and of recipes, and sampling: minigrad beside PyTorch."""
import argparse
import dataclasses
import string
import sys
from functools import partial

import numpy as np

import data
import minigrad as mg
import train
from model import CharTokenizer, Transformer, TransformerConfig
from model.generation import stream_many
from model.run import decayed_and_other
from model.settings import Settings, completed
from tests.benchmarks.board import read_text, run_of
from tests.benchmarks.remote import ABSENT, has_pytorch, pytorch, training_of
from tests.benchmarks.report import Report
from tests.benchmarks.sizes import MAX_NORM, OPTIMIZER, VOCABULARY, Size
from tests.benchmarks.timing import Seconds, plan, say, timed

STEPS = {"small": (10, 10), "baby": (3, 1)}         # rounds, steps of a turn
RECIPE_STEPS = 8, 10                                # the same
ENDLESS = 10**9                                     # steps
TEXT = "lantern"                                    # the text of the recipes
SAMPLES = {"small": (8, 2048), "baby": (5, 384)}    # rounds, characters of a turn: half blocks
MANY = 16           # sequences at once
AGREEMENT = 1e-4    # of the losses of both sides, relative
CHECKED = 3         # steps, after which a wrong gradient shows in the loss


class Minigrad:
    """A model of a size and its optimiser.  The same on PyTorch is twin.PyTorch."""

    def __init__(self, size: Size) -> None:
        self.model = Transformer(config_of(size))
        self.optimizer = mg.AdamW(decayed_and_other(self.model), **OPTIMIZER)
        self.rng = np.random.default_rng(0)

    def step(self, ids: np.ndarray, targets: np.ndarray) -> float:
        """Train on one batch, (B, T) each; return the loss before the step."""
        loss = mg.cross_entropy(self.model(ids, rng=self.rng), targets)
        loss.backward()
        mg.clip_grad_norm_(self.model.parameters(), MAX_NORM)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


def config_of(size: Size) -> TransformerConfig:
    """Return the configuration of a size."""
    return TransformerConfig(VOCABULARY, size.block, size.layers, size.heads, size.channels,
                             size.dropout)


def random_batch(size: Size) -> np.ndarray:
    """Return ids and targets, (2, B, T)."""
    return np.random.default_rng(0).integers(VOCABULARY, size=(2, size.batch, size.block))


def measure_step(size: Size, options: argparse.Namespace, report: Report) -> None:
    """Compare training steps, in each mode of PyTorch."""
    batch, notes, theirs = random_batch(size), [] if has_pytorch() else [ABSENT], []
    ours = Minigrad(size)
    ours.step(*batch)
    calls = {"minigrad": partial(ours.step, *batch)}
    try:
        if has_pytorch():
            notes.append(agreement(size))
        for mode in options.modes if has_pytorch() else ():
            say(f"step {size.name}: PyTorch {mode}, its first step")
            try:
                theirs.append(pytorch(Transformer(config_of(size)), mode))
                theirs[-1].call("step", *batch)
                calls[f"PyTorch {mode}"] = partial(theirs[-1].time, "step", *batch)
            except RuntimeError as error:
                notes.append(f"PyTorch {mode}: absent, because {error}")
        rounds, steps = plan(options, *STEPS[size.name])
        report.turns(f"A training step, {size.name}: {size}", timed(calls, steps), rounds,
                     {"tokens/s": ("{:,.0f}", size.tokens)}, notes,
                     warmup=0 if size.name == "baby" else 2)    # each has taken its first step
    finally:
        for side in theirs:
            side.close()


def agreement(size: Size) -> str:
    """Check that both sides have the same losses without dropout; return a note."""
    size = dataclasses.replace(size, batch=2, dropout=0.0)
    batch, ours = random_batch(size), Minigrad(size)
    twin = pytorch(Transformer(config_of(size)))
    try:
        pairs = [(ours.step(*batch), twin.call("step", *batch)) for _ in range(CHECKED)]
    finally:
        twin.close()
    apart = max(abs(a / b - 1) for a, b in pairs)
    if not apart < AGREEMENT:
        sys.exit(f"minigrad and PyTorch do not compute the same: the losses of {CHECKED} steps "
                 f"are {pairs}")
    return (f"The losses of {CHECKED} steps from the same weights, without dropout, agree with "
            f"PyTorch's to {apart:.0e}.")


def measure_recipes(options: argparse.Namespace, report: Report) -> None:
    """Compare training steps of train.py's recipes, each with its own optimiser."""
    text = read_text(TEXT)
    for recipe in options.recipes:
        s = dataclasses.replace(Settings(**completed({"recipe": recipe}, len(text))),
                                minutes=None, max_iters=ENDLESS)
        run, twin = run_of(s, text), None
        calls = {"minigrad": partial(next, train.steps(run))}
        try:
            if has_pytorch():
                twin = pytorch(run.model, **training_of(s))
                batch = data.random_batch(text.train, s.batch_size, s.block_size,
                                          run.state.batches)
                rates = run.learning_rate(s.learning_rate), run.learning_rate(s.muon_lr)
                calls["PyTorch eager"] = partial(twin.time, "step", *batch, *rates)
            rounds, steps = plan(options, *RECIPE_STEPS)
            report.turns(f"A training step of --recipe {recipe}, {s.batch_size} x {s.block_size} "
                         "characters", timed(calls, steps), rounds,
                         {"tokens/s": ("{:,.0f}", s.characters)}, [] if twin else [ABSENT],
                         warmup=2, only_quiet=True)
        finally:
            if twin:
                twin.close()


def measure_sampling(size: Size, options: argparse.Namespace, report: Report) -> None:
    """Compare sampling with windows as full as they become, of one sequence and of many."""
    rounds, count = plan(options, *SAMPLES[size.name])
    slow = max(1, count // 50)      # characters by PyTorch, which takes as long for each
    tokenizer = CharTokenizer(string.ascii_letters + string.digits + "\n .")
    model, ids = Transformer(config_of(size)), random_batch(size)[0, 0]
    start = tokenizer.decode(ids[:size.block // 2])
    twin = pytorch(model) if has_pytorch() else None

    def ours(sequences):
        for _ in stream_many(model, tokenizer, start, range(sequences), count):
            pass

    def theirs(windows):        # of the whole block
        return Seconds(count / slow * twin.time("generate", windows, slow))
    try:
        for sequences in (1, MANY):
            calls = {"minigrad": partial(ours, sequences)}
            if twin:
                calls["PyTorch eager"] = partial(theirs, np.tile(ids, (sequences, 1)))
            report.turns(f"Sampling, {size.name}, {sequences} at once: milliseconds of a character "
                         f"of each, over {count}, or {slow} by PyTorch", timed(calls), rounds,
                         {"characters/s": ("{:,.0f}", sequences * count)},
                         [] if twin else [ABSENT], "{:.3f}", count)
    finally:
        if twin:
            twin.close()
