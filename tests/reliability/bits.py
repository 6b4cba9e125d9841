"""Compute every kernel and op in processes that compile and that load, and compare all bits.

Each process computes all results on one thread and on every thread, in an order of its own.  After
the kernels that are kept on disk, which are used as they are, these compile into empty folders:
--rounds times for this processor, once without LLVM's vectorisers, and once for each other
processor that is named.  Another process then loads what each of them compiled.  Short runs of
train.py whose first half compiles are compared with runs that load all kernels.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

from tests.reliability.outcome import ROOT, differences

THREADS = {"NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"}
UNVECTORISED = {"NUMBA_LOOP_VECTORIZE": "0", "NUMBA_SLP_VECTORIZE": "0"}
STEPS = 20
RUN = ["--n_layer", "2", "--n_head", "2", "--n_embd", "64", "--block_size", "64", "--batch_size",
       "16", "--eval_interval", "10", "--eval_iters", "2", "--warmup_iters", "5",
       "--lr_decay_iters", str(STEPS)]


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The settings on the command line."""
    add = parser.add_argument
    add("--rounds", type=int, default=1, help="of compiling for this processor anew "
                                              "(default: %(default)s)")
    add("--cpu", nargs="*", default=[], metavar="NAME",
        help="LLVM's names of other processors whose code this one runs, such as haswell")
    add("--only", nargs="*", default=[], metavar="WORD",
        help="kernels and ops whose name begins so, and no runs (default: all)")


def run(options: argparse.Namespace, folder: pathlib.Path) -> bool:
    """Whether all bits are equal."""
    kinds = {f"compiled, round {n}": {} for n in range(1, options.rounds + 1)}
    kinds["compiled without vectorisers"] = UNVECTORISED
    kinds |= {f"compiled for {cpu}": {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": ""}
              for cpu in options.cpu}
    expected, wrong = results({}, options.only, 0), []
    print(f"{len(expected):,} results, each on 1 thread and on all: {compared(expected, expected)}")
    for n, (kind, settings) in enumerate(kinds.items(), 1):
        kept = settings | {"NUMBA_CACHE_DIR": str(folder / str(n))}
        for how, order in ((kind, 2 * n), (kind.replace("compiled", "loaded"), 2 * n + 1)):
            found = compared(expected, results(kept, options.only, order))
            print(f"{how}: {found}", flush=True)
            wrong += [how] * (found != EQUAL)
    for recipe in () if options.only else ("modern", "gpt2"):
        cold, warm = folder / f"{recipe}_cold", folder / f"{recipe}_warm"
        train(recipe, cold, {"NUMBA_CACHE_DIR": str(folder / recipe)})
        train(recipe, warm, {})
        found = differences(cold, warm)
        print(f"{recipe}, begun by a process that compiles: "
              + (f"{len(found)} differences, such as {found[0]}" if found else EQUAL), flush=True)
        wrong += found
    return not wrong and compared(expected, expected) == EQUAL


EQUAL = "all bits are equal"


def results(settings: dict[str, str], only: list[str], order: int) -> dict[str, list[str]]:
    """The digests of each result, by name, that a process computes with such an environment."""
    command = ["-m", "tests.reliability.results", "--order", str(order)]
    found = {}
    for line in python(*command, *["--only", *only] * bool(only), **settings).splitlines():
        name, _, digest = json.loads(line)
        found.setdefault(name, []).append(digest)
    return found


def compared(expected: dict[str, list[str]], found: dict[str, list[str]]) -> str:
    """Which results do not all have the same digest, in words."""
    names = [name for name in expected.keys() | found.keys()
             if len({*expected.get(name, [""]), *found.get(name, [""])}) > 1]
    if not names:
        return EQUAL
    return f"{len(names)} of {len(expected)} differ, such as {', '.join(sorted(names)[:3])}"


def train(recipe: str, out_dir: pathlib.Path, settings: dict[str, str]) -> None:
    """A run whose first half one process takes, and whose second half another."""
    common = ["train.py", "--out_dir", str(out_dir)]
    python(*common, "--recipe", recipe, "--max_iters", str(STEPS // 2), *RUN, **settings)
    python(*common, "--init_from", "resume", "--max_iters", str(STEPS))


def python(*arguments: str, **settings: str) -> str:
    """What a process prints, with as many threads as the machine has."""
    environment = {name: value for name, value in os.environ.items() if name not in THREADS}
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment | settings,
                          stdout=subprocess.PIPE, text=True, encoding="utf-8")
    if done.returncode:
        sys.exit(f"a process that had to compute ended with status {done.returncode}: "
                 + " ".join(arguments))
    return done.stdout
