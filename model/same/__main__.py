"""Compare this machine's bits with those that are published:  python -m model.same

Short runs of both recipes, in float32, on one thread and on all: every loss and weight must have
the published bits.  What dropout keeps, batches and samples must be those published, and a run in
float64 must be equal when it is rounded.  The exit status is 0 if all is so, and 1 if not.
"""
from model.answers import answering     # before slow imports
from model.command import Parser

import dataclasses
import json
import platform
import sys

import numpy as np
from tqdm import tqdm

import minigrad as mg
from minigrad import compiled
from minigrad.words import number_of
from model.same.runs import FILE, digest, float32_run, masks, short_run
from model.settings import RECIPES

CLOSE = 1e-10       # of losses in float64, nats a character; machines differ by some 1e-12


@dataclasses.dataclass(frozen=True)
class Settings:
    """The command has no settings."""


def main(argv: list[str] | None = None) -> None:
    """Run the command."""
    Parser("python -m model.same", __doc__, Settings).parse(argv)
    with answering("model.same"):
        compiled.announce("compiling", sys.stderr)
        difference = first_difference(json.loads(FILE.read_text(encoding="utf-8")))
        if difference:
            print(f"not the published bits: {difference} ({machine()}); {advice()}")
        else:
            print(f"all bits are those published ({machine()})")
    sys.exit(1 if difference else 0)


def first_difference(published: dict) -> str | None:
    """Run all that is published.  Return what differs first, or None."""
    counts = sorted({1, compiled.thread_limit()[0]})
    parts = [(recipe, threads) for recipe in RECIPES for threads in counts]
    with tqdm(total=len(parts) + 1, desc="short runs", unit="run", leave=False,
              delay=0.1) as bar:        # shown after a run, so below the line on compiling
        for recipe, threads in parts:
            compiled.set_threads(threads)
            run, names = float32_run(recipe)
            bar.update()
            if run != published["float32"][recipe]:
                return (f"--recipe {recipe} in float32 with --threads {threads}, "
                        + in_float32(run, published["float32"][recipe], names))
        return in_float64(short_run(), published)


def in_float32(run: dict, published: dict, names: list[list[str]]) -> str:
    """Return which op of which step differs first, and by how much the losses do."""
    places = [f"first in {name} of step {step}"
              for step, (found, *marks) in enumerate(
                  zip(names, run["marks"], published["marks"]), 1)
              for name, ours, theirs in zip(found, *map(str.split, marks)) if ours != theirs]
    places = places[:1] or ["in bits that leave no mark"]
    for step, (ours, theirs) in enumerate(zip(run["losses"], published["losses"]), 1):
        if ours != theirs:
            return f"{places[0]}; the loss of step {step} is {abs(ours - theirs):.2g} nats away"
    return f"{places[0]}; all losses are equal"


def in_float64(run: dict, published: dict) -> str | None:
    """Return what is drawn otherwise, or computed too far away; or None."""
    for name in ("weights", "batches", "masks", "sample"):
        if run[name] != published[name]:
            return f"{name}: drawn otherwise than published"
    if digest("u1", *masks(np.float32)) != published["masks"]:
        return "masks in float32: drawn otherwise than published"
    away = np.abs(np.subtract(run["losses"], published["losses"])).max()    # nan if one is nan
    if run["run"] != published["run"] or not away <= CLOSE:
        return f"in float64, losses are up to {away:.2g} nats away, and weights round otherwise"


def machine() -> str:
    """Return the processor, the versions and the number of threads."""
    processor = platform.machine()
    if mg.COMPILED:
        from minigrad.kernels.compiler.processor import name_and_features
        processor += f" {name_and_features()[0]}"
    return (f"{processor}, NumPy {np.__version__}, Numba {compiled.version()}, "
            + number_of(compiled.thread_limit()[0], "thread"))


def advice() -> str:
    """Return what to do where bits differ."""
    if not mg.COMPILED:
        return "plain NumPy rounds otherwise; install Numba, and run without NUMBA_DISABLE_JIT"
    from minigrad.kernels.compiler.processor import fuses
    if not fuses():
        return ("this processor rounds a product and its sum separately, so bits differ and losses "
                "are equal up to rounding; take one with FMA or NEON for the published bits")
    return "run python -m pytest tests/minigrad, and report this line with what fails there"


if __name__ == "__main__":
    main()
