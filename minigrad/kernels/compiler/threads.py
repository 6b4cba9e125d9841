"""The number of threads for kernels, and the cases in which they use one.

A step runs a hundred kernels on threads, and each ends with its last part.  So more threads than
processors cost more than they gain, however many processors the machine seems to have; and so do
threads on processors that are less than half as fast as others.
"""
import contextlib
import ctypes
import functools
import math
import os
import pathlib
import sys

import llvmlite.binding as llvm
import numba

from minigrad.kernels.compiler import workers
from minigrad.machine import control_groups
from minigrad.words import number_of

OPENMP = "OMP_NUM_THREADS", "OMP_THREAD_LIMIT"
DEVICES = pathlib.Path("/sys/devices")      # of Linux


def count() -> int:
    """Return how many threads a kernel called now may use: as many as this Python thread has set
    with numba.set_num_threads, at most the limit."""
    most, _ = limit()
    if most == 1:
        return 1
    count = min(_numbas_count()(), most)
    if workers.started < count - 1:
        workers.start(count - 1)
    return count


@functools.cache
def _numbas_count():
    """Return what numba.get_num_threads calls, as a function that keeps Python's lock: to give that
    back and take it again, a hundred times a step, takes longer than to look."""
    numba.get_num_threads()         # loads it
    place = llvm.address_of_symbol("get_num_threads")
    return ctypes.PYFUNCTYPE(ctypes.c_int)(place) if place else numba.get_num_threads


@functools.cache
def limit() -> tuple[int, str]:
    """Return the most threads that this process may use, and the reason for that limit."""
    machine = os.cpu_count() or 1
    bounds = [(machine, f"this machine has {number_of(machine, 'processor')}")]
    allowed = may_run_on()
    usable = number_of(len(allowed), "processor")
    bounds.append((len(allowed), f"this process may run on {usable} only"))
    if fast := fast_processors(allowed):
        bounds.append((fast, f"the number of fast processors here is {fast}"))
    share = quota()
    if share < math.inf:                # on 1.5 processors, two threads do more than one
        time = number_of(round(share, 2), "processor")
        bounds.append((max(1, math.ceil(share)),
                       f"a control group gives this process the time of {time}"))
    started = numba.config.NUMBA_NUM_THREADS
    bounds.append((started, f"NUMBA_NUM_THREADS is {started}"))
    for name in OPENMP:
        first = os.environ.get(name, "").split(",")[0].strip()      # further ones: nested threads'
        if first.isdecimal() and int(first) > 0:        # OpenMP ignores any other value
            bounds.append((int(first), f"{name} is {first}"))
    return min(bounds, key=lambda bound: bound[0])


def may_run_on() -> set[int]:
    """Return the processors on which this process may run; all where the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    mask = ctypes.c_size_t()
    of_all = ctypes.c_size_t()
    if os.name == "nt":
        kernel32 = ctypes.windll.kernel32
        this_process = ctypes.c_void_p(kernel32.GetCurrentProcess())
        kernel32.GetProcessAffinityMask(this_process, ctypes.byref(mask), ctypes.byref(of_all))
    # Windows gives 0 if a process has processors of several groups of 64.
    bits = mask.value or (1 << (os.cpu_count() or 1)) - 1
    return {n for n in range(bits.bit_length()) if bits >> n & 1}


def fast_processors(allowed: set[int], devices: pathlib.Path = DEVICES) -> int:
    """Return how many of these processors are fast ones; 0 where the system does not say, or none
    of them is.

    Apple: "hw.perflevel0", in sys/sysctl.h.  Linux: its pages on /sys/devices/system/cpu, for ARM,
    and on Intel's performance events, "Hybrid CPU".
    """
    if sys.platform == "darwin":
        count = ctypes.c_int()
        size = ctypes.c_size_t(ctypes.sizeof(count))
        ctypes.CDLL(None).sysctlbyname(b"hw.perflevel0.physicalcpu", ctypes.byref(count),
                                       ctypes.byref(size), None, ctypes.c_size_t())
        return count.value
    fast = set()
    with contextlib.suppress(OSError, ValueError):      # processors of one kind have no such files
        if (listed := devices / "cpu_core/cpus").exists():      # as in 0-7,16
            for numbers in listed.read_text().split(","):
                first, _, last = numbers.partition("-")
                fast |= {*range(int(first), int(last or first) + 1)}
        speed = {n: int((devices / f"system/cpu/cpu{n}/cpu_capacity").read_text())
                 for n in allowed if not fast}
        fast |= {n for n in speed if 2 * speed[n] >= max(speed.values())}
    return len(fast & allowed)


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
            time = (group / "cpu.cfs_quota_us").read_text()
            period = (group / "cpu.cfs_period_us").read_text()
        if time == "max" or int(time) < 0:
            return math.inf
        return int(time) / int(period)
    except (OSError, ValueError, ZeroDivisionError):    # no such group, or an unknown format
        return math.inf
