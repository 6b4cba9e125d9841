"""How much memory this process may use, by what the machine and its limits say."""
import math
import os

from minigrad.control_groups import control_groups


def memory_limit() -> float:
    """Bytes that this process may use at most: the least of what the machine has, what its control
    groups may have, and what it may have itself; inf where none of these can be read."""
    return min(_of_machine(), _of_process(), _of_groups())


def _of_machine():
    if os.name == "nt":
        return _of_windows()
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError):       # a system that does not know these names
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
    return min(map(_of_group, control_groups("memory", *where)), default=math.inf)


def _of_group(group):
    for name in ("memory.max", "memory.limit_in_bytes"):        # versions 2 and 1
        try:
            return float((group / name).read_text(encoding="ascii"))
        except (OSError, ValueError):   # there is no such file, or no limit: "max"
            continue
    return math.inf
