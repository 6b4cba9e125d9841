"""How the time and the memory of a training step grow with length, width and depth."""
import argparse
import math
from functools import partial

import numpy as np

from tests.benchmarks.peers import Minigrad, random_batch
from tests.benchmarks.processes import memory_of_steps
from tests.benchmarks.report import Report
from tests.benchmarks.sizes import Size
from tests.benchmarks.timing import plan, say, take_turns, timed

HEAD = 32           # channels
LENGTHS = {T: Size(f"T = {T}", 2, 4, 128, T, 4) for T in (64, 128, 256, 512, 1024, 2048)}
WIDTHS = {C: Size(f"C = {C}", 2, C // HEAD, C, 128, 8) for C in (64, 128, 192, 256, 384, 512)}
DEPTHS = {n: Size(f"layers = {n}", n, 4, 128, 128, 8) for n in (1, 2, 4, 8)}
QUICK = 4           # values of each
TURNS = 5, 10       # rounds, steps of a turn
PATIENCE = 0.5      # seconds of a turn


def measure_growth(options: argparse.Namespace, report: Report) -> None:
    """A table for each of the three; memory over the length alone."""
    measure("length T: 2 layers, 128 channels, batch 4", LENGTHS, options, report, memory=True)
    measure(f"width C: 2 layers, heads of {HEAD}, block 128, batch 8", WIDTHS, options, report)
    measure("depth: 128 channels, block 128, batch 8", DEPTHS, options, report)


def measure(title: str, sizes: dict[int, Size], options: argparse.Namespace, report: Report,
            memory: bool = False) -> None:
    """The table, and the exponents of its upper half."""
    sizes = dict(list(sizes.items())[:QUICK if options.quick else None])
    rounds, steps = plan(options, *TURNS)
    calls = {size.name: partial(Minigrad(size).loss, random_batch(size))
             for size in sizes.values()}
    contestants, megabytes = timed(calls, steps, PATIENCE), dict.fromkeys(sizes, math.nan)
    try:
        take_turns(contestants, rounds, f"growth over {title.split(':')[0]}")
        for value, size in sizes.items() if memory else ():
            say(f"growth: memory at {size.name}")
            loaded, peak = memory_of_steps(size)
            megabytes[value] = peak - loaded
    finally:
        columns = {"": "{}", "median ms": "{:,.2f}", "10 %": "{:,.2f}", "90 %": "{:,.2f}",
                   "us a token": "{:,.2f}"} | ({"MB of the steps": "{:,.1f}"} if memory else {})
        rows = [[t.name, *t.milliseconds(), 1e6 * t.median / size.tokens, added][:len(columns)]
                for t, size, added in zip(contestants, sizes.values(), megabytes.values())]
        powers = {"time": exponent(sizes, [t.median for t in contestants]),
                  "memory": exponent(sizes, megabytes.values())}
        report.table(
            f"Growth of a training step with {title}", columns, rows,
            [f"In the upper half, {what} grows as the power {power:.2f}."
             for what, power in powers.items() if not math.isnan(power)], contestants)


def exponent(values, measured) -> float:
    """The power b of the a x^b that fits the upper half best, by least squares of logarithms."""
    half = len(values) // 2
    x, y = np.log(list(values)[half:]), np.log(list(measured)[half:])
    x = x - x.mean()
    return float(x @ y / (x @ x))
