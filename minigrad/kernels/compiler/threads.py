"""The number of threads for kernels, and the cases in which they use one.

A step wakes its threads a hundred times, and each time waits for the last of them.  So more threads
than processors cost more than they gain, however many processors the machine seems to have.
"""
import contextlib
import ctypes
import functools
import math
import os
import pathlib
import threading

import llvmlite.binding as llvm
import numba

from minigrad.machine import control_groups

FORKED = ("this process was forked from one that had threads at work, and a fork does not copy "
          "them; start it with multiprocessing's spawn, or fork before anything is computed")
OPENMP = "OMP_NUM_THREADS", "OMP_THREAD_LIMIT"

# The symbol at which kernels find the address of the function that runs Numba's threads.  Compiled
# code on disk holds the symbol and not the address, which differs between processes.
PARALLEL_FOR = "minigrad_parallel_for"
_parallel_for = ctypes.c_void_p()
llvm.add_symbol(PARALLEL_FOR, ctypes.addressof(_parallel_for))

# The symbol of the system's function by which a thread lets others run.
YIELD = "minigrad_yield"
_yield = ctypes.windll.kernel32.SwitchToThread if os.name == "nt" else ctypes.CDLL(None).sched_yield
llvm.add_symbol(YIELD, ctypes.cast(_yield, ctypes.c_void_p).value)

_forked = False
_one_at_a_time, _nothing = threading.RLock(), contextlib.nullcontext()


def count() -> int:
    """Return how many threads a kernel called now may use: as many as this Python thread has set
    with numba.set_num_threads, at most the limit."""
    most, _ = limit()
    if most == 1:
        return 1
    asked = _launched()()
    if asked > most:
        numba.set_num_threads(most)
    return min(asked, most)


def limit() -> tuple[int, str]:
    """Return the most threads that this process may use, and the reason for that limit."""
    return (1, FORKED) if _forked else _limit()


@functools.cache
def _limit():
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


@functools.cache
def guard() -> contextlib.AbstractContextManager:
    """Return a context for calls of kernels on threads, so that several Python threads may call
    them at once.  OpenMP and TBB allow that; Numba's own work queue, used without those, would end
    the process."""
    _launched()
    return _one_at_a_time if _layer() == "workqueue" else _nothing


@functools.cache
def _launched():
    """Start Numba's threads, and let kernels find them.  Return Numba's function for how many of
    them this Python thread has set: numba.get_num_threads takes two locks before it calls that."""
    numba.get_num_threads()
    _parallel_for.value = llvm.address_of_symbol("numba_parallel_for")
    return ctypes.PYFUNCTYPE(ctypes.c_int)(llvm.address_of_symbol("get_num_threads"))


def _layer():
    """Return the library that runs Numba's threads; None until they are started."""
    try:
        return numba.threading_layer()
    except ValueError:
        return None


def _note_fork():
    """In a child, record whether its parent had started threads.  If asked for them again, GNU's
    OpenMP would end the child or wait for ever."""
    global _forked
    _forked = _forked or _layer() is not None


if hasattr(os, "register_at_fork"):     # Windows has no fork
    os.register_at_fork(after_in_child=_note_fork)
