"""What this process may use of its machine: the memory, and the control groups (cgroups) that limit
a container."""
import math
import os
import pathlib
from collections.abc import Iterator
from contextlib import suppress

from minigrad.words import scaled

OF_PROCESS = pathlib.Path("/proc/self/cgroup")
ROOT = pathlib.Path("/sys/fs/cgroup")


def control_groups(controller: str, of_process: pathlib.Path = OF_PROCESS,
                   root: pathlib.Path = ROOT) -> Iterator[pathlib.Path]:
    """Yield the folders of the control groups that limit this process, for a controller such as
    cpu: its own group and those around it, none of which it can exceed.  Only Linux has them.

    Source: the kernel's "Control Group v2", section "Organizing Processes and Threads", and
    "Control Groups version 1", section 2.1.
    """
    try:
        lines = of_process.read_text(errors="surrogateescape").splitlines()
    except OSError:             # another system, or a sandbox that hides it
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers or controller in controllers.split(","):     # version 2, or this one
            top = root / controllers
            group = top / path.lstrip("/")
            # In a container the path may be that on the host, of which only the root exists here.
            while group.is_relative_to(top):
                yield group
                group = group.parent


def memory_limit(*where: pathlib.Path) -> float:
    """Return the most bytes that this process may use: the least of the machine's memory and the
    limits of the process and its control groups; inf where none of these can be read.  `where` is
    passed to `control_groups`."""
    limits = [math.inf]
    with suppress(ImportError, OSError, ValueError):        # Windows, or another unknown system
        import resource
        limits += [limit for limit, _ in map(resource.getrlimit, (resource.RLIMIT_AS,
                                                                  resource.RLIMIT_DATA))
                   if limit != resource.RLIM_INFINITY]
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    if os.name == "nt":
        import ctypes
        status = (ctypes.c_uint64 * 8)(64)      # MEMORYSTATUSEX, which begins with its size
        if ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
            limits.append(status[1])            # ullTotalPhys
    for group in control_groups("memory", *where):
        for name in ("memory.max", "memory.limit_in_bytes"):        # versions 2 and 1
            with suppress(OSError, ValueError):     # there is no such file, or no limit: "max"
                limits.append(float((group / name).read_text(encoding="ascii")))
    return float(min(limits))


def check_fits(needed: float, what: str, remedy: str = "take less of one of them") -> None:
    """Compare the bytes that something needs with the memory of this machine, before any is taken.

    Raises
    ------
    ValueError : it needs more.
    """
    if needed > (limit := memory_limit()):
        raise ValueError(f"{what} need {scaled(needed, 'B')} of memory, and this machine has "
                         f"{scaled(limit, 'B')}; {remedy}")
