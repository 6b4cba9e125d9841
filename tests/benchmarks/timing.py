"""Times, taken in turns, so that all that is compared meets the same machine."""
import math
import multiprocessing
import os
import pathlib
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from tqdm import tqdm

PAUSE = 0.1         # seconds, in which the threads of the turn before stop waiting for work
LONG = 1.0          # seconds of a call to which waking the threads adds nothing that counts
WAKING = 0.15       # seconds of calls that do not count, while threads wake and find their cores
QUIET = 0.15        # of a core: a turn in which other programs use more may be dropped
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else math.nan


class Seconds(float):
    """What a call returns if it was timed elsewhere."""


@dataclass
class Timed:
    """Something to time, and the seconds that each call took.

    Parameters
    ----------
    prepare : returns the call to time; is not timed itself.
    repeats : calls in one turn.
    patience : seconds after which a turn ends early.
    loud : the seconds of each turn that does not count, because other programs were running.
    """
    name: str
    prepare: Callable[[], Callable[[], object]]
    repeats: int = 1
    patience: float = math.inf
    times: list[float] = field(default_factory=list)
    loud: list[list[float]] = field(default_factory=list)

    def turn(self):
        """Return the seconds of some calls, one by one.  Calls before them wake the threads; they
        count only if they are long."""
        started = time.perf_counter()
        first = self._call()
        while time.perf_counter() < started + WAKING:
            self._call()
        end = time.perf_counter() + self.patience
        times = [first] if first > LONG else [self._call()]
        while len(times) < self.repeats and time.perf_counter() < end:
            times.append(self._call())
        return times

    def _call(self):
        call = self.prepare()
        started = time.perf_counter()
        result = call()
        took = time.perf_counter() - started
        return float(result) if isinstance(result, Seconds) else took

    def quantile(self, q):
        """Return the q-quantile of the calls in seconds; nan before the first call."""
        return float(np.quantile(self.times, q)) if self.times else math.nan

    @property
    def median(self):
        """The median call in seconds."""
        return self.quantile(0.5)


def timed(calls, *repeats_and_patience):
    """Return calls that need no preparation, as what can be timed."""
    return [Timed(name, lambda call=call: call, *repeats_and_patience)
            for name, call in calls.items()]


def take_turns(contestants, rounds, label, warmup=1, only_quiet=False):
    """Time the contestants A B C, A B C, ...; after an interruption, earlier times are still there.

    With `only_quiet`, a turn is dropped if other programs used more than QUIET of a core, unless
    that would drop all turns of a contestant.
    """
    for contestant in contestants:
        for _ in range(warmup):
            contestant.prepare()()
    for _ in tqdm(range(rounds), desc=label, unit="round", leave=False, disable=None):
        for contestant in contestants:
            time.sleep(PAUSE)
            used, started = by_others(), time.perf_counter()
            turn = contestant.turn()
            used = (by_others() - used) / (time.perf_counter() - started)
            if only_quiet and used > QUIET:
                contestant.loud.append(turn)
            else:
                contestant.times += turn
    for contestant in contestants:
        if not contestant.times:
            contestant.times = sum(contestant.loud, [])


def by_others():
    """Return the seconds of processor time that other programs have used since the system started;
    nan on a system that does not count them.  Child processes of this one are not others."""
    try:
        user, nice, system, _, _, *interrupts = _ticks("/proc/stat", 1, 8)
        own = [os.getpid(), *(child.pid for child in multiprocessing.active_children())]
        return (user + nice + system + sum(interrupts)
                - sum(sum(_ticks(f"/proc/{pid}/stat", -39, 2)) for pid in own)) / TICKS
    except (OSError, ValueError):
        return math.nan


def _ticks(path, first, count):
    """Return some of the numbers of a file's first line."""
    line = pathlib.Path(path).read_text(encoding="utf-8").split("\n")[0].split()
    return [int(word) for word in line[first:][:count]]


def dropped_turns(contestants, turns):
    """Return a note of how many turns were dropped, by name."""
    dropped = Counter()
    for contestant in contestants:
        dropped[contestant.name] += len(contestant.loud)
    counts = ", ".join(f"{name} {count}" for name, count in dropped.items())
    return (f"Of {turns} turns each, these were dropped because other programs used more than "
            f"{QUIET:.0%} of a core: {counts}.  If all turns of one would be dropped, none is.")


def plan(options, rounds, steps):
    """Return rounds, and steps of a turn: from the command line, else these; fewer with --quick."""
    if options.quick:
        rounds, steps = 2, max(1, steps // 5)
    return options.rounds or rounds, options.steps or steps


def say(text):
    """Print a line of progress to standard error."""
    print(text, file=sys.stderr, flush=True)
