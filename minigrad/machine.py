"""The limits of this machine or its container: the memory that a process may use, and the control
groups that may give it less than the machine has."""
import math
import os
import pathlib
from collections.abc import Iterator
from contextlib import suppress

OF_PROCESS, ROOT = pathlib.Path("/proc/self/cgroup"), pathlib.Path("/sys/fs/cgroup")


def control_groups(controller: str, of_process: pathlib.Path = OF_PROCESS,
                   root: pathlib.Path = ROOT) -> Iterator[pathlib.Path]:
    """Yield the folders of the control groups that limit a controller, such as cpu, for this
    process: its own group and those around it, none of which it can exceed.  Only Linux has them.

    Source: the kernel's "Control Group v2", section "Organizing Processes and Threads", and
    "Control Groups version 1", section 2.1.
    """
    try:
        lines = of_process.read_text(errors="surrogateescape").splitlines()
    except OSError:                     # this is not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers or controller in controllers.split(","):     # version 2, or this one
            top = root / controllers
            group = top / path.lstrip("/")
            # In a container, the path may be that outside of it, and then only its end, the root,
            # is there.
            while group.is_relative_to(top):
                yield group
                group = group.parent


def memory_limit() -> float:
    """Return the most bytes that this process may use: the least of the machine's memory and the
    limits of its control groups and of the process; inf where none of these can be read."""
    return min(_of_machine(), _of_process(), _of_groups())


def _of_machine():
    if os.name == "nt":
        return _of_windows()
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError):       # this system does not know these names
        return math.inf


def _of_windows():
    import ctypes

    class Status(ctypes.Structure):     # MEMORYSTATUSEX
        _fields_ = [("length", ctypes.c_uint32), ("load", ctypes.c_uint32),
                    ("physical", ctypes.c_uint64), ("others", ctypes.c_uint64 * 6)]
    status = Status(length=ctypes.sizeof(Status))
    found = ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
    return float(status.physical) if found else math.inf


def _of_process():
    try:
        import resource
    except ImportError:                 # Windows
        return math.inf
    limits = (resource.getrlimit(which)[0] for which in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    return min((float(limit) for limit in limits if limit != resource.RLIM_INFINITY),
               default=math.inf)


def _of_groups(*where):
    limits = [math.inf]
    for group in control_groups("memory", *where):
        for name in ("memory.max", "memory.limit_in_bytes"):        # versions 2 and 1
            with suppress(OSError, ValueError):     # there is no such file, or no limit: "max"
                limits.append(float((group / name).read_text(encoding="ascii")))
    return min(limits)
