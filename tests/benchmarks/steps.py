"""Training steps, of sizes and of recipes, and sampling: minigrad beside PyTorch, and steps of
sizes beside JAX.

test_benchmarks_twin.py tests that both sides take the same steps."""
import contextlib
import string
from dataclasses import replace
from functools import partial

import numpy as np

import data
import train
from model import CharTokenizer, Transformer, TransformerConfig
from model.generation import stream_many
from model.settings import Settings, complete_settings
from tests.benchmarks.board import read_text
from tests.benchmarks.remote import ABSENT, has_pytorch, jax, jax_is_absent, pytorch
from tests.benchmarks.sizes import MODES, SIZES, VOCABULARY
from tests.benchmarks.timing import Seconds, plan, say, timed
from tests.kit import run_of

STEPS = {"small": (10, 10), "baby": (3, 1)}         # rounds, steps of a turn
RECIPE_STEPS = 8, 10                                # the same
ENDLESS = 10**9                                     # steps
TEXT = "lantern"
JAX = "JAX"                                         # among the modes of PyTorch
SAMPLES = {"small": (8, 2048), "baby": (5, 384)}    # rounds, characters of a turn: half blocks
MANY = 16           # sequences at once


def settings_of(name, characters):
    """Return the settings of an endless run of a size or a recipe, for a text of this length."""
    given = {"recipe": name}
    if size := SIZES.get(name):
        given = dict(recipe="gpt2", n_layer=size.layers, n_head=size.heads, n_embd=size.channels,
                     block_size=size.block, batch_size=size.batch, dropout=size.dropout)
    settings = Settings(**complete_settings(given, characters))
    return replace(settings, minutes=None, max_iters=ENDLESS)


def measure_step(size, options, report):
    """Compare training steps of a size, in each mode of PyTorch, and in JAX."""
    measure_training(size.name, f"A training step, {size.name}: {size}", STEPS[size.name],
                     [*options.modes, JAX], options, report,
                     warmup=0 if size.name == "baby" else 2)


def measure_recipe(options, report):
    """Compare training steps of train.py's recipes."""
    for recipe in options.recipes:
        measure_training(recipe, f"A training step of --recipe {recipe}", RECIPE_STEPS,
                         options.modes, options, report, warmup=2, only_quiet=True)


def measure_training(name, title, turns, modes, options, report, **how):
    """Compare steps of train.py with the same steps on PyTorch, in these modes, and in JAX."""
    text = read_text(TEXT)
    s = settings_of(name, len(text))
    run, notes = run_of(s, text), []
    batch = data.random_batch(text.train, s.batch_size, s.block_size, run.state.batches)
    multiplier = run.multiplier()
    step = "step", *batch, s.learning_rate * multiplier, s.muon_lr * multiplier, run.ahead()
    calls = {"minigrad": partial(next, train.steps(run))}
    absent = {JAX: jax_is_absent()} | dict.fromkeys(MODES, "" if has_pytorch() else ABSENT)
    with contextlib.ExitStack() as twins:
        for mode in modes:
            if absent[mode]:
                notes.append(absent[mode])
                continue
            label = JAX if mode == JAX else f"PyTorch {mode}"
            say(f"step {name}: {label}, its first step")
            try:
                if mode == JAX:
                    other = jax(run.model, s, options.threads)
                else:
                    other = pytorch(run.model, s, mode)
                twin = twins.enter_context(other)
                twin.call(*step)
                calls[label] = partial(twin.time, *step)
            except RuntimeError as error:
                notes.append(f"{label}: absent, because {error}")
        notes = list(dict.fromkeys(notes))      # one line for both modes
        rounds, steps = plan(options, *turns)
        report.turns(title, timed(calls, steps), rounds, {"tokens/s": ("{:,.0f}", s.characters)},
                     notes, **how)


def config_of(size):
    """Return the configuration of a size."""
    return TransformerConfig(VOCABULARY, size.block, size.layers, size.heads, size.channels,
                             size.dropout)


def measure_sampling(size, options, report):
    """Compare sampling with windows as full as they become, of one sequence and of many."""
    rounds, count = plan(options, *SAMPLES[size.name])
    slow = max(1, count // 50)      # characters by PyTorch, which takes as long for each
    tokenizer = CharTokenizer(string.ascii_letters + string.digits + "\n .")
    model, ids = Transformer(config_of(size)), np.arange(size.block) % VOCABULARY
    start = tokenizer.decode(ids[:size.block // 2])
    there = has_pytorch()

    def ours(sequences):
        for _ in stream_many(model, tokenizer, start, range(sequences), count):
            pass

    def theirs(windows):        # of the whole block
        return Seconds(count / slow * twin.time("generate", windows, slow))
    with pytorch(model, Settings()) if there else contextlib.nullcontext() as twin:
        for sequences in (1, MANY):
            calls = {"minigrad": partial(ours, sequences)}
            if there:
                calls["PyTorch eager"] = partial(theirs, np.tile(ids, (sequences, 1)))
            report.turns(f"Sampling, {size.name}, {sequences} at once: milliseconds of a character "
                         f"of each, over {count}, or {slow} by PyTorch", timed(calls), rounds,
                         {"characters/s": ("{:,.0f}", sequences * count)},
                         [] if there else [ABSENT], "{:.3f}", count)
