"""How the time of a step of several ranks is spent, and how it would scale.

    mpiexec -n 2 python -m tests.benchmarks.ranks modern 20

prints the times of 20 steps, as JSON.
"""
import itertools
import json
import math
import os
import subprocess
import sys
import time

from tests.benchmarks.report import plot

WAYS = {        # seconds of a sum: ranks, bytes of a row, seconds of a message and of a byte
    "ring": lambda W, n, message, byte: 2 * (W - 1) * (message + n / W * byte),
    "tree": lambda W, n, message, byte: 2 * math.ceil(math.log2(W)) * (message + n * byte)}
MEETINGS = 4        # of a step
MEASURED = 2, 4
COUNTS = [2**i for i in range(1, 11)]
COLOURS = ("#0b62a4", "#c8500a", "#2a7f3f", "#7b3fa0")


def measure(name, steps):
    """Print the seconds of a step: the total; computing, of that clipping and the optimiser, of
    that Muon, which ranks share; waiting for other ranks; exchanging sums and Muon's matrices.
    They are medians, averaged over the ranks."""
    import numpy as np

    import data
    import minigrad as mg
    import train
    from model.run import join
    from tests.benchmarks.steps import settings_of
    from tests.kit import run_of
    with join("tests.benchmarks.ranks") as ranks:
        text = data.Text.read("lantern")
        s = settings_of(name, len(text))
        run, clocks = run_of(s, text, ranks), []
        with mg.Profile() as profile:
            for _ in itertools.islice(train.steps(run), steps + 2):
                spent = (profile.seconds[part, "part"] for part in ("clipping", "AdamW", "Muon"))
                clocks.append((time.perf_counter(), *spent, ranks.waiting, ranks.summing))
        times = np.median(np.diff(clocks[1:], axis=0), axis=0)
        total, clipping, adamw, shared, waiting, summing = np.mean(ranks.gather(times), axis=0)
        print(json.dumps(dict(
            seconds=total, computing=total - waiting - summing, fixed=clipping + adamw,
            shared=shared, waiting=waiting, summing=summing, batch=s.batch_size,
            block=s.block_size, ranks=ranks.size,
            bytes=sum(p.data.nbytes for p in run.model.parameters()),
            stepped=sum(2 * m.nbytes for part in run.optimizer.parts if isinstance(part, mg.Muon)
                        for m in part.momentum))))


def in_ranks(size, threads, name, steps):
    """Return what `measure` prints on so many ranks with so many threads each."""
    from tests.model.ranks.mpiexec import MPIEXEC, OPEN_MPI
    launcher = [] if size == 1 else [MPIEXEC, "-n", str(size)]
    command = [*launcher, sys.executable, "-m", "tests.benchmarks.ranks", name, str(steps)]
    names = "NUMBA_NUM_THREADS", "OMP_NUM_THREADS"
    ended = subprocess.run(command, capture_output=True, text=True,
                           env=os.environ | OPEN_MPI | dict.fromkeys(names, str(threads)))
    if ended.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{ended.stderr}")
    return json.loads(ended.stdout)


def predicted(W, rows, cost, way, message, byte):
    """Return the seconds of a step of W ranks with so many rows each."""
    sums = WAYS[way](W, cost["bytes"], message, byte)
    matrices = WAYS[way](W, cost["stepped"], message, byte) / 2     # sent once, and not back
    return (cost["fixed"] + cost["shared"] / W + rows * cost["row"] + sums
            + (cost["stepped"] > 0) * matrices + MEETINGS * math.ceil(math.log2(W)) * message)


def efficiencies(W, cost, message, byte):
    """Return the share of W times one rank's speed: of strong scaling, where W ranks share its
    batch, by ring and by tree, and of weak scaling, where each has as large a batch."""
    alone = cost["fixed"] + cost["shared"] + cost["batch"] * cost["row"]
    strong = [alone / W / predicted(W, math.ceil(cost["batch"] / W), cost, way, message, byte)
              for way in WAYS]
    weak = [alone / predicted(W, cost["batch"], cost, way, message, byte) for way in WAYS]
    return strong + weak


def walls(cost, message, byte):
    """Return where strong scaling ends, one line for each reason, and what would have to change."""
    def rows(W):
        return math.ceil(cost["batch"] / W) * cost["row"]

    def ring(W, size=cost["bytes"]):
        return WAYS["ring"](W, size, message, byte)
    reasons = [
        ("There are more ranks than rows", lambda W: W > cost["batch"], "A larger batch."),
        ("Clipping and AdamW, which every rank does for all parameters, take longer than its rows",
         lambda W: cost["fixed"] > rows(W), "Optimiser state shared out among the ranks."),
        ("The sum takes longer than the rows", lambda W: ring(W) > rows(W),
         "Sums while the backward pass runs, and gradients of fewer bits."),
        ("Latency takes half of the sum", lambda W: 2 * ring(W, 0) > ring(W),
         "A tree, or rings of nodes and of the ranks within each.")]
    first = [next((f"from {W:,} ranks on" for W in COUNTS if holds(W)), "not up to 1,024 ranks")
             for _, holds, _ in reasons]
    return [f"{reason}: {where}.  {remedy}" for (reason, _, remedy), where in zip(reasons, first)]


def measure_ranks(options, report):
    """Measure steps of one process and of several ranks; then predict larger numbers of ranks."""
    message, byte = 1e-6 * options.latency, 1e-9 / options.bandwidth
    network = f"messages of {options.latency:g} µs and {options.bandwidth:g} GB/s"
    scaling = {}
    for name in [*options.sizes, "modern"]:
        cost = measure_model(name, options, report)
        scaling[name] = [efficiencies(W, cost, message, byte) for W in COUNTS]
        report.table(
            f"Predicted efficiency of ranks of one thread, {name}, by {network}",
            {"ranks": "{:,}", "strong, ring": "{:.0%}", "strong, tree": "{:.0%}",
             "weak, ring": "{:.0%}", "weak, tree": "{:.0%}"},
            [[W, *shares] for W, shares in zip(COUNTS, scaling[name])],
            ["Strong: the batch is shared out.  Weak: each rank has as many rows.  train.py sends "
             "as much as a ring.", *walls(cost, message, byte)])
    if options.scaling:
        print(plot(lambda axes: draw(axes, scaling, f"predicted for {network}"), 3.6,
                   options.scaling))


def measure_model(name, options, report):
    """Show the steps of a model, measured and predicted; return the costs of one rank."""
    steps, processors = options.steps or (5 if options.quick else 20), options.threads
    one = in_ranks(1, 1, name, steps)
    cost = {key: one[key] for key in ("fixed", "shared", "batch", "bytes", "stepped")}
    cost["row"] = (one["seconds"] - one["fixed"] - one["shared"]) / one["batch"]
    whole = in_ranks(1, processors, name, steps)
    found = {f"1 rank, {processors} threads": whole, "1 rank, 1 thread": one}
    found |= {f"{W} ranks, 1 thread each": in_ranks(W, 1, name, steps) for W in MEASURED}
    # The seconds of a byte on this machine, from two ranks: all of their exchange is for bytes.
    two = found["2 ranks, 1 thread each"]
    byte = two["summing"] / (one["bytes"] + one["stepped"] / 2)
    rows = []
    for what, times in found.items():
        W = times["ranks"]
        if "each" in what:
            times["predicted"] = max(1, W / processors) * predicted(W, one["batch"] / W, cost,
                                                                    "ring", 0, byte)
        sent = (2 * one["bytes"] + one["stepped"]) * (W - 1) / W
        rows.append([what, *(1e3 * times.get(kind, math.nan) for kind in (
            "seconds", "computing", "waiting", "summing", "predicted")),
            whole["seconds"] / times["seconds"], sent / 1e6])
    report.table(
        f"A training step on ranks, {name}: {one['batch']} x {one['block']} characters",
        {"": "{}", "ms": "{:,.1f}", "computing": "{:,.1f}", "waiting": "{:,.1f}",
         "summing": "{:,.1f}", "predicted": "{:,.1f}", "speed": "{:.2f}",
         "MB a rank sends": "{:,.1f}"}, rows,
        [f"Medians of {steps} steps, averaged over the ranks.  A row of the batch takes "
         f"{1e3 * cost['row']:,.2f} ms on one thread, clipping and AdamW "
         f"{1e3 * cost['fixed']:,.1f} ms, Muon, which ranks share, {1e3 * cost['shared']:,.1f} ms. "
         " Predictions take these, and the time to send from two ranks; more ranks than the "
         f"{processors} processors take turns."])
    return cost


def draw(axes, scaling, title):
    """Draw efficiency over ranks: for each model, strong and weak scaling by a ring."""
    for (name, rows), colour in zip(scaling.items(), COLOURS):
        strong, _, weak, _ = zip(*rows)
        axes.plot(COUNTS, weak, colour, marker="o", label=f"{name}, weak")
        axes.plot(COUNTS, strong, colour, marker="o", linestyle=":", markerfacecolor="white",
                  label=f"{name}, strong")
    axes.set_xscale("log", base=2)
    axes.set_xticks(COUNTS, [f"{n:,}" for n in COUNTS])
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("ranks (log scale)")
    axes.set_ylabel("efficiency")
    axes.set_title(title, loc="left", fontsize=10)


if __name__ == "__main__":
    measure(sys.argv[1], int(sys.argv[2]))
