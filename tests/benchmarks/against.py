"""This checkout beside another commit's, in fresh processes in turns.

A change that costs 2 % cannot be seen in a figure of today beside one of yesterday.  So both
commits have a turn in each round, and what is shown is the ratio of their medians, and how far the
ratios of single rounds lie apart.  The counts of calls have no noise.
"""
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass

import numpy as np

from tests.benchmarks.sizes import ENVIRONMENT
from tests.benchmarks.timing import plan, say
from tests.flags import THREADS

ROOT = pathlib.Path(__file__).parents[2]
SIDE = ROOT / "tests/benchmarks/side.py"
TIMED = ("modern", "gpt2", "sampling", "small", "kernels")
ROUNDS = 7, 1           # and steps of a turn, of which there is no choice
UNITS = ((1, "s"), (1e-3, "ms"), (1e-6, "us"))


def measure_against(options, report):
    """Compare this checkout with another commit."""
    rounds, _ = plan(options, *ROUNDS)
    with checkouts(options.commit) as sides:
        counts = {name: side.measured("calls", options.threads) for name, side in sides.items()}
        report.table(f"Calls of functions in an op, here and at {options.commit}: no noise",
                     {"": "{}", "here": "{}", "there": "{}"}, rows_of_counts(counts))
        for what in TIMED:
            say(f"{what}: both sides once, to compile")
            for side in sides.values():
                side.measured(what, options.threads)
            found = {name: [] for name in sides}
            for n in range(rounds):
                say(f"{what}: round {n + 1} of {rounds}")
                for name, side in sides.items():
                    found[name].append(side.measured(what, options.threads))
            report.keep(what, found)
            report.table(f"{what}, here and at {options.commit}: medians of {rounds} processes",
                         {"": "{}", "here": "{}", "there": "{}", "here is": "{:.3f} x as fast",
                          "lowest": "{:.3f}", "highest": "{:.3f}"}, rows_of_times(found))


@dataclass
class Side:
    """A checkout, and the folder of its kernels on disk, so that each side has its own."""
    folder: pathlib.Path
    kernels: pathlib.Path

    def measured(self, what, threads):
        """Return what a fresh process measures: name -> seconds or a count."""
        environment = ENVIRONMENT | dict.fromkeys(THREADS, str(threads)) | {
            "PYTHONPATH": str(self.folder), "NUMBA_CACHE_DIR": str(self.kernels)}
        done = subprocess.run([sys.executable, str(SIDE), what], cwd=self.folder, env=environment,
                              capture_output=True, encoding="utf-8")
        if done.returncode:
            last = (done.stderr.strip() or "it said nothing").splitlines()[-1]
            sys.exit(f"tests.benchmarks: {what} cannot be measured in {self.folder}: {last}")
        return json.loads(done.stdout.splitlines()[-1])


@contextlib.contextmanager
def checkouts(commit):
    """Lend both sides: this checkout, and a worktree of the commit."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        there = pathlib.Path(folder, "there")
        try:
            git("worktree", "add", "--detach", there, commit)
        except (OSError, subprocess.CalledProcessError) as error:
            reason = (getattr(error, "stderr", None) or str(error)).splitlines()[-1]
            sys.exit(f"tests.benchmarks: git has no worktree of {commit}: {reason}; name a commit "
                     "that `git log` shows")
        try:
            yield {"here": Side(ROOT, pathlib.Path(folder, "kernels here")),
                   "there": Side(there, pathlib.Path(folder, "kernels there"))}
        finally:
            git("worktree", "remove", "--force", there)


def git(*words):
    subprocess.run(["git", *map(str, words)], cwd=ROOT, check=True, capture_output=True,
                   encoding="utf-8")


def rows_of_counts(counts):
    """Rows (name, here, there) of what both sides count."""
    return [[name, here, counts["there"][name]] for name, here in counts["here"].items()
            if name in counts["there"]]


def rows_of_times(found):
    """Rows of what both sides measure: its name, the median of each, the ratio of the medians
    (there over here), and the lowest and highest ratio of a round; then the geometric mean."""
    rows = []
    for name in found["here"][0].keys() & found["there"][0].keys():
        here = np.array([times[name] for times in found["here"]])
        there = np.array([times[name] for times in found["there"]])
        ratios = there / here
        ratio = float(np.median(there) / np.median(here))
        rows.append([name, brief(np.median(here)), brief(np.median(there)), ratio,
                     float(ratios.min()), float(ratios.max())])
    order = list(found["here"][0])
    rows.sort(key=lambda row: order.index(row[0]))
    if len(rows) > 1:
        mean = float(np.exp(np.mean(np.log([row[3] for row in rows]))))
        rows.append(["geometric mean", "", "", mean, float("nan"), float("nan")])
    return rows


def brief(seconds):
    """A time with three digits and its unit."""
    size, unit = next((pair for pair in UNITS if seconds >= pair[0]), UNITS[-1])
    return f"{seconds / size:#.3g} {unit}"
