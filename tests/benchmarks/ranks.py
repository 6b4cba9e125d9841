"""How a step of several ranks is spent, and how it would scale.

    mpiexec -n 2 python -m tests.benchmarks.ranks modern 20 fast

prints the times of 20 steps with `--reduce fast`, as JSON.
"""
import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import time
from dataclasses import replace

from tests.benchmarks.plot import draw_scaling

WAYS = {        # seconds of a sum: ranks, bytes of a row, seconds of a message and of a byte
    "ring": lambda W, n, message, byte: 2 * (W - 1) * (message + n / W * byte),
    "tree": lambda W, n, message, byte: 2 * math.ceil(math.log2(W)) * (message + n * byte)}
MEETINGS = 4        # of a step
COUNTS = [2**i for i in range(1, 11)]
ENDLESS = 10**6


def measure(name: str, steps: int, reduce: str = "fast") -> None:
    """Print the seconds of a step: in all; computing, and of that clipping and the optimiser, and
    of that Muon, which ranks share; waiting for other ranks; exchanging sums and Muon's matrices.
    They are medians, averaged over the ranks."""
    import numpy as np

    import data
    import train
    from model import Transformer
    from model.processes import join
    from model.run import optimizer_of
    from model.settings import RECIPES
    from model.run import Run
    from model.settings import Settings
    from tests.benchmarks.sizes import SIZES
    with join("tests.benchmarks.ranks") as ranks:
        size = SIZES.get(name)
        s = Settings(**RECIPES[name]) if size is None else Settings(
            n_layer=size.layers, n_head=size.heads, n_embd=size.channels, block_size=size.block,
            batch_size=size.batch, dropout=size.dropout)
        s = replace(s, max_iters=ENDLESS, reduce=reduce)
        text = data.Text.read("lantern")
        model = Transformer(s.model_config(text.tokenizer.vocab_size), s.seed)
        optimizer = optimizer_of(model, s, ranks)
        run, spent, clocks = Run(s, text, model, optimizer, ranks=ranks), [0.0, 0.0], []

        def counted(f, kind):
            def counted_f(*args):
                started = time.perf_counter()
                value = f(*args)
                spent[kind] += time.perf_counter() - started
                return value
            return counted_f
        train.mg.clip_grad_norm_ = counted(train.mg.clip_grad_norm_, 0)
        optimizer.step = counted(optimizer.step, 0)
        muons = [part for part in optimizer.parts if isinstance(part, train.mg.Muon)]
        for muon in muons:
            muon.step = counted(muon.step, 1)
        for _ in itertools.islice(train.steps(run), steps + 2):
            clocks.append((time.perf_counter(), *spent, ranks.waiting, ranks.summing))
        times = np.median(np.diff(clocks[1:], axis=0), axis=0)
        total, fixed, shared, waiting, summing = np.mean(ranks.of_each(times), axis=0)
        print(json.dumps(dict(
            seconds=total, computing=total - waiting - summing, fixed=fixed - shared,
            shared=shared, waiting=waiting, summing=summing, batch=s.batch_size,
            block=s.block_size, ranks=ranks.size,
            bytes=sum(p.data.nbytes for p in model.parameters()),
            stepped=sum(2 * m.nbytes for muon in muons for m in muon.momentum))))


def in_ranks(size: int, threads: int, name: str, steps: int, reduce: str = "fast"
             ) -> dict[str, float]:
    """What `measure` prints in so many ranks of so many threads each."""
    from tests.model.ranks.mpiexec import MPIEXEC, OPEN_MPI
    launcher = [] if size == 1 else [MPIEXEC, "-n", str(size)]
    command = [*launcher, sys.executable, "-m", "tests.benchmarks.ranks", name,
               str(steps), reduce]
    names = "NUMBA_NUM_THREADS", "OMP_NUM_THREADS"
    ended = subprocess.run(command, capture_output=True, text=True,
                           env=os.environ | OPEN_MPI | dict.fromkeys(names, str(threads)))
    if ended.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{ended.stderr}")
    return json.loads(ended.stdout)


def predicted(W: int, rows: float, cost: dict[str, float], way: str, message: float, byte: float
              ) -> float:
    """Seconds of a step of W ranks with so many rows each."""
    sums = WAYS[way](W, cost["bytes"], message, byte)
    matrices = WAYS[way](W, cost["stepped"], message, byte) / 2     # sent once, and not back
    return (cost["fixed"] + cost["shared"] / W + rows * cost["row"] + sums
            + (cost["stepped"] > 0) * matrices + MEETINGS * math.ceil(math.log2(W)) * message)


def efficiencies(W: int, cost: dict[str, float], message: float, byte: float) -> list[float]:
    """Of W ranks, by ring and by tree: the share of W times one rank's speed, where they share out
    its batch, and where each has as much."""
    alone = cost["fixed"] + cost["shared"] + cost["batch"] * cost["row"]
    strong = [alone / W / predicted(W, math.ceil(cost["batch"] / W), cost, way, message, byte)
              for way in WAYS]
    weak = [alone / predicted(W, cost["batch"], cost, way, message, byte) for way in WAYS]
    return strong + weak


def walls(cost: dict[str, float], message: float, byte: float) -> list[str]:
    """Where strong scaling ends, one line for each reason, and what would have to change."""
    def first(grows):
        return next((f"from {W:,} ranks on" for W in COUNTS if grows(W)), "not up to 1,024 ranks")

    def computing(W):
        return math.ceil(cost["batch"] / W) * cost["row"]
    return [f"More ranks than rows: {first(lambda W: W > cost['batch'])}.  A larger batch.",
            "Clipping and AdamW, which every rank does for all parameters, take longer than its "
            f"rows: {first(lambda W: cost['fixed'] > computing(W))}.  Optimiser state shared out "
            "among the ranks.",
            "The sum takes longer than the rows: "
            + first(lambda W: WAYS["ring"](W, cost["bytes"], message, byte) > computing(W))
            + ".  Sums while the backward pass runs, and gradients of fewer bits.",
            "Messages' latency takes half of the sum: "
            + first(lambda W: 2 * WAYS["ring"](W, 0, message, byte)
                    > WAYS["ring"](W, cost["bytes"], message, byte))
            + ".  A tree, or rings of nodes and of the ranks within each."]


def measure_ranks(options: argparse.Namespace, report) -> None:
    """Steps of 1, 2 and 4 ranks, and of one process on two threads; then predictions."""
    steps = options.steps or (5 if options.quick else 20)
    processors, scaling = options.threads, {}
    message, byte_sent = 1e-6 * options.latency, 1e-9 / options.bandwidth
    network = f"messages of {options.latency:g} us and {options.bandwidth:g} GB/s"
    for name in [*options.sizes, "modern"]:
        one = in_ranks(1, 1, name, steps)
        cost = {key: one[key] for key in ("fixed", "shared", "batch", "bytes", "stepped")}
        cost["row"] = (one["seconds"] - one["fixed"] - one["shared"]) / one["batch"]
        found = {f"1 rank, {processors} threads": in_ranks(1, processors, name, steps),
                 "1 rank, 1 thread": one}
        found |= {f"{W} ranks, 1 thread each": in_ranks(W, 1, name, steps) for W in options.ranks}
        found |= {f"{W} ranks, exact sums": in_ranks(W, 1, name, steps, "exact")
                  for W in options.ranks if one["batch"] % W == 0}
        # Of this machine's messages, from what two ranks needed: all of it for bytes.
        two = found.get("2 ranks, 1 thread each", {"summing": math.nan})
        byte = two["summing"] / (one["bytes"] + one["stepped"] / 2)
        rows = []
        for what, times in found.items():
            W = times["ranks"]
            if "each" in what:
                slower = max(1, W / processors)
                times["predicted"] = slower * predicted(W, one["batch"] / W, cost, "ring", 0, byte)
            rows.append([what, *(1e3 * times.get(kind, math.nan) for kind in (
                "seconds", "computing", "waiting", "summing", "predicted")),
                found[f"1 rank, {processors} threads"]["seconds"] / times["seconds"],
                (2 * (4 if "exact" in what else 1) * one["bytes"] + one["stepped"])
                * (W - 1) / W / 1e6])
        report.table(
            f"A training step on ranks, {name}: {one['batch']} x {one['block']} characters",
            {"": "{}", "ms": "{:,.1f}", "computing": "{:,.1f}", "waiting": "{:,.1f}",
             "summing": "{:,.1f}", "predicted": "{:,.1f}", "speed": "{:.2f}",
             "MB a rank sends": "{:,.1f}"}, rows,
            [f"Medians of {steps} steps, averaged over the ranks.  A row of the batch takes "
             f"{1e3 * cost['row']:,.2f} ms on one thread, clipping and AdamW "
             f"{1e3 * cost['fixed']:,.1f} ms, Muon, which ranks share, "
             f"{1e3 * cost['shared']:,.1f} ms.  Predicted from these, and for what is sent from "
             f"two ranks; more ranks than the {processors} processors take turns."])
        scaling[name] = [efficiencies(W, cost, message, byte_sent) for W in COUNTS]
        report.table(
            f"Predicted efficiency of ranks of one thread, {name}, by {network}",
            {"ranks": "{:,}", "strong, ring": "{:.0%}", "strong, tree": "{:.0%}",
             "weak, ring": "{:.0%}", "weak, tree": "{:.0%}"},
            [[W, *shares] for W, shares in zip(COUNTS, scaling[name])],
            ["Strong: the batch is shared out.  Weak: each rank has as many rows.  train.py sends "
             "as much as a ring.", *walls(cost, message, byte_sent)])
    if options.scaling:
        print(draw_scaling(COUNTS, scaling, f"predicted for {network}", options.scaling))


if __name__ == "__main__":
    _, name, steps, reduce = sys.argv
    measure(name, int(steps), reduce)
