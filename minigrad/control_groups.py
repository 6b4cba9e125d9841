"""Linux's control groups, which may give a process less than the machine has."""
import pathlib
from collections.abc import Iterator

OF_PROCESS, ROOT = pathlib.Path("/proc/self/cgroup"), pathlib.Path("/sys/fs/cgroup")


def control_groups(controller: str, of_process: pathlib.Path = OF_PROCESS,
                   root: pathlib.Path = ROOT) -> Iterator[pathlib.Path]:
    """The folders of the groups that bound what a controller, such as cpu, gives this process: its
    own and those around it, of which none can have more.  There are none outside of Linux.

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
