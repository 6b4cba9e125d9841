"""Compute every kernel and op in processes that compile and that load, and compare all bits.

Each process computes all results on one thread and on all, in an order of its own.  The first one
uses the kernels on disk.  The others compile into empty folders: --rounds times for this processor,
once without LLVM's vectorisers, and once for each --cpu.  After each, another process loads what it
compiled.  Runs of train.py whose first half compiles are compared with runs that load all kernels.
"""
import argparse
import json
import pathlib
import subprocess
import sys

from tests.flags import count
from tests.kit import ROOT
from tests.reliability.runs import differences, environment_of_all_threads

FLAGS = {"rounds": (count, 1, "of compiling for this processor"),
         "cpu": (str, [], "LLVM's names of other processors whose code this one runs: haswell"),
         "only": (str, [], "kernels and ops whose names begin so, and no runs (default: all)")}
EQUAL = "all bits are equal"
UNVECTORISED = {"NUMBA_LOOP_VECTORIZE": "0", "NUMBA_SLP_VECTORIZE": "0"}
STEPS = 20
RUN = ["--n_layer", "2", "--n_head", "2", "--n_embd", "64", "--block_size", "64", "--batch_size",
       "16", "--eval_interval", "10", "--eval_iters", "2", "--warmup_iters", "5",
       "--lr_decay_iters", str(STEPS)]


def run(options: argparse.Namespace, folder: pathlib.Path) -> bool:
    """Return whether all bits are equal."""
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


def results(settings: dict[str, str], only: list[str], order: int) -> dict[str, list[str]]:
    """Return the digests of each result, by name, from a process with these variables."""
    command = ["-m", "tests.reliability.results", "--order", str(order)]
    found = {}
    for line in python(*command, *["--only", *only] * bool(only), **settings).splitlines():
        name, _, digest = json.loads(line)
        found.setdefault(name, []).append(digest)
    return found


def compared(expected: dict[str, list[str]], found: dict[str, list[str]]) -> str:
    """Return in words which results do not all have the same digest."""
    names = [name for name in expected.keys() | found.keys()
             if len({*expected.get(name, [""]), *found.get(name, [""])}) > 1]
    if not names:
        return EQUAL
    return f"{len(names)} of {len(expected)} differ, such as {', '.join(sorted(names)[:3])}"


def train(recipe: str, out_dir: pathlib.Path, settings: dict[str, str]) -> None:
    """Run train.py: the first half in one process, the second half in another."""
    common = ["train.py", "--out_dir", str(out_dir)]
    python(*common, "--recipe", recipe, "--max_iters", str(STEPS // 2), *RUN, **settings)
    python(*common, "--init_from", "resume", "--max_iters", str(STEPS))


def python(*arguments: str, **settings: str) -> str:
    """Return what a process prints, with as many threads as the machine has."""
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True,
                          env=environment_of_all_threads() | settings, encoding="utf-8")
    if done.returncode:
        sys.exit(f"a process ended with status {done.returncode}: {' '.join(arguments)}")
    return done.stdout
