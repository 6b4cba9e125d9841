"""Ranks that exchange messages by MPI, and that all end when one of them fails.

Before anything is exchanged the ranks meet, and each says whether it goes on.  A rank that fails
says so at the next meeting, whatever the others meet for.  So no rank waits for one that has ended.
"""
import contextlib
import hashlib
import math
import os
import pathlib
import platform
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad import compiled
from model.processes import Ranks
from model.ranks.mean import OverRanks, SharedMuon
from model.settings import Settings
from model.start import ROOT

_let_others_run = getattr(os, "sched_yield", lambda: time.sleep(0))     # Windows has none
INTERRUPTED = 130   # the status after a second Ctrl-C
PATIENCE = 10.0     # seconds that a rank that has failed waits for the others to meet
OWN = ("data", "out_dir", "threads")    # flags that may differ: the first rank reads and writes


class EndedElsewhere(SystemExit):
    """Other ranks have failed; `number` is that of the first of them."""

    def __init__(self, number: int) -> None:
        super().__init__(1)
        self.number = number


class MPIRanks(Ranks):
    """This process as one of several that an MPI launcher has started; `comm` is mpi4py's
    communicator of all of them.

    While it waits, a rank lets other processes run, and notices signals.  MPI's own waiting does
    neither: with more ranks than processors, a message would take a thousand times as long.
    """

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.number = comm.Get_rank()
        self.size = comm.Get_size()
        self.threads = self._processor_share()
        self._exchanging = False    # or it can still take part in the next meeting
        self._rooms = {}            # for what others send to `sum`

    def _processor_share(self):
        """Return this rank's share of the processors on which ranks of its machine may run."""
        from mpi4py import MPI
        mine = (os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity")
                else set(range(os.cpu_count() or 1)))
        affinities = self.comm.Split_type(MPI.COMM_TYPE_SHARED).allgather(mine)
        sharing = sum([not mine.isdisjoint(other) for other in affinities])
        return max(1, compiled.thread_limit()[0] // sharing)

    def problems(self, settings: Settings) -> list[str]:
        if settings.explain and self.size > 1:
            return ["--explain goes through a step of one process; start it without mpiexec"]
        return []

    def check_alike(self, flags: dict[str, object]) -> None:
        """Refuse ranks that are given other settings than the first, or run another program.

        Raises
        ------
        ValueError : says which rank, and what it has.
        """
        mine = {f"--{name}": value for name, value in flags.items() if name not in OWN}
        first, *others = self.gather(mine | program())
        for number, other in enumerate(others, start=1):
            for name in sorted(first.keys() | other.keys()):
                here, there = (rank.get(name, "left out") for rank in (other, first))
                if here != there:
                    raise ValueError(f"rank {number} has {name} {here}, where the first rank has "
                                     f"{there}; give all ranks the same settings and software")

    def averager(self, parameters, batch_size) -> OverRanks:
        return OverRanks(self, parameters, batch_size)

    def muon(self, *args, **settings) -> SharedMuon:
        return SharedMuon(self, *args, **settings)

    def any(self, flag: bool) -> bool:
        return bool(self.meet(flag).any())

    def total(self, number: float) -> float:
        return sum(self.meet(number).tolist())

    def broadcast(self, number: float) -> float:
        return float(self.meet(number)[0])

    def call_on_first(self, make: Callable[[], Any]) -> Any:
        value = make() if self.first else None
        with self._exchange():
            return self.comm.bcast(value)

    def gather(self, value: Any) -> list[Any]:
        with self._exchange():
            return self.comm.allgather(value)

    def sum(self, row: np.ndarray) -> None:
        """All-reduce: each rank adds up one part of the row for all.  So all get the same bits, and
        the same ones every time, unlike MPI's own sums; and none sends more than two rows."""
        ends = [row.size * r // self.size for r in range(self.size + 1)]
        counts = np.diff(ends)
        key = (row.size, row.dtype)
        parts = (row, (counts, ends[:-1]))
        if key not in self._rooms:
            self._rooms[key] = np.empty((self.size, counts[self.number]), row.dtype)
        total, *others = room = self._rooms[key]
        with self._exchange(array=True):
            _wait(self.comm.Ialltoallv(parts, (room, [total.size] * self.size)))
            for other in others:
                total += other
            _wait(self.comm.Iallgatherv(total, parts))

    def exchange(self, arrays: list[list[np.ndarray]]) -> None:
        """Copy arrays between the ranks: all get the first list of arrays from the first rank, the
        second list from the second, and so on."""
        with self._exchange(array=True):
            for request in [self.comm.Ibcast(a, number)
                            for number, theirs in enumerate(arrays) for a in theirs]:
                _wait(request)

    @contextlib.contextmanager
    def _exchange(self, array=False):
        """Meet, and then exchange more; time it if it is an array."""
        self.meet()
        started = time.perf_counter()
        self._exchanging = True     # so it stays if a signal ends it
        yield
        self._exchanging = False
        if array:
            self.summing += time.perf_counter() - started

    def meet(self, number: float = 0.0) -> np.ndarray:
        """Wait for all ranks; return a number of each, (size,)."""
        started = time.perf_counter()
        self._exchanging = True
        failed, numbers = self._gathered(False, number)
        self._exchanging = False
        self.waiting += time.perf_counter() - started
        if failed.any():
            raise EndedElsewhere(int(failed.argmax()))
        return numbers

    def _gathered(self, failed, number=0.0, patience=math.inf):
        """Return of each rank whether it has failed, and its number; None if they do not come."""
        # Kept here: a signal may end the waiting, and then MPI still writes to them.
        sent = np.array([failed, number], float)
        received = np.empty((self.size, 2))
        self._met = sent, received
        in_time = _wait(self.comm.Iallgather(sent, received), patience)
        return received.T if in_time else None

    def end(self, failed: bool, status: int = 0, message: str = "") -> int:
        """End with the other ranks, and have the first say why; return the status of the process.

        Parameters
        ----------
        failed : whether this rank has failed, with a status, and a message that says why.
        """
        try:
            gathered = None if self._exchanging else self._gathered(
                failed, patience=PATIENCE if failed else math.inf)
        except KeyboardInterrupt:
            gathered = None
        if gathered is None:
            if self.first or status != INTERRUPTED:
                _say(self._signed(message))
            self.comm.Abort(status or 1)
            os._exit(status or 1)       # MPI ends the others, and this one perhaps not at once
        failures = gathered[0]
        return self.follow(int(failures.argmax()), status, message) if failures.any() else 0

    def follow(self, number: int, status: int = 0, message: str = "") -> int:
        """End as the rank of this number does; see `end`."""
        status, message = self.comm.bcast((status, self._signed(message)), number)
        if self.first:
            _say(message)
            with contextlib.suppress(OSError):
                sys.stdout.flush()      # a launcher ends this rank as soon as another has ended
        return status

    def _signed(self, message):
        if self.first or not message:
            return message
        return f"rank {self.number} on {platform.node()}: {message}"


def _say(message):
    if message:
        print(message, file=sys.__stderr__, flush=True)


def _wait(request, patience=math.inf):
    """Wait for an exchange; return whether it ended in time."""
    until = time.monotonic() + patience
    while not request.Test():
        if time.monotonic() > until:
            return False
        _let_others_run()
    return True


def program() -> dict[str, str]:
    """Return the versions of what computes, and a digest of the program's files."""
    files = [path for folder in ("data", "minigrad", "model")
             for path in sorted(pathlib.Path(ROOT, folder).rglob("*.py"))]
    files.append(pathlib.Path(ROOT, "train.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    return {"Python": platform.python_version(), "NumPy": np.__version__,
            "Numba": compiled.version(), "the program with the digest": digest[:12]}
