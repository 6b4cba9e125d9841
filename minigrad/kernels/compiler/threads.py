"""The number of threads for kernels, and the cases in which they use one.

A step runs a hundred kernels on threads, and each ends with its last part.  So more threads than
processors cost more than they gain, however many processors the machine seems to have.
"""
import functools
import math
import os
import pathlib

import numba

from minigrad.kernels.compiler import workers
from minigrad.machine import control_groups

OPENMP = "OMP_NUM_THREADS", "OMP_THREAD_LIMIT"


def count() -> int:
    """Return how many threads a kernel called now may use: as many as this Python thread has set
    with numba.set_num_threads, at most the limit."""
    most, _ = limit()
    if most == 1:
        return 1
    count = min(numba.get_num_threads(), most)
    if workers.started < count - 1:
        workers.start(count - 1)
    return count


@functools.cache
def limit() -> tuple[int, str]:
    """Return the most threads that this process may use, and the reason for that limit."""
    machine = os.cpu_count() or 1
    bounds = [(machine, f"this machine has {_processors(machine)}")]
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
        bounds.append((allowed, f"this process may run on {_processors(allowed)} only"))
    share = quota()
    if share < math.inf:                # on 1.5 processors, two threads do more than one
        bounds.append((max(1, math.ceil(share)),
                       f"a control group gives this process the time of {_processors(share)}"))
    started = numba.config.NUMBA_NUM_THREADS
    bounds.append((started, f"NUMBA_NUM_THREADS is {started}"))
    for name in OPENMP:
        first = os.environ.get(name, "").split(",")[0].strip()      # further ones: nested threads'
        if first.isdecimal() and int(first) > 0:        # OpenMP ignores any other value
            bounds.append((int(first), f"{name} is {first}"))
    return min(bounds, key=lambda bound: bound[0])


def _processors(n):
    return f"{n:g} processor{'s' * (n != 1)}"


def quota(*where: pathlib.Path) -> float:
    """Return how many processors' time Linux's control groups give this process; inf for no limit.
    `where` is passed to `control_groups`, to look in another than the usual place.

    Source: the kernel's "Control Group v2", section "CPU Interface Files", and "CFS Bandwidth
    Control", section "Management", for the first version.
    """
    return min(map(_share, control_groups("cpu", *where)), default=math.inf)


def _share(group):
    """Return the quota of one group."""
    try:
        if (group / "cpu.max").exists():
            time, period = (group / "cpu.max").read_text().split()
        else:
            time, period = ((group / f"cpu.cfs_{name}_us").read_text()
                            for name in ("quota", "period"))
        return math.inf if time == "max" or int(time) < 0 else int(time) / int(period)
    except (OSError, ValueError, ZeroDivisionError):    # no such group, or an unknown format
        return math.inf
