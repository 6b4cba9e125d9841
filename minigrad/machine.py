"""The control groups (cgroups) that limit what a container may use of a machine."""
import pathlib
from collections.abc import Iterator

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
