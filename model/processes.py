"""Ranks: the processes that train one model together.  Here there is only one.

`model.ranks.mpi.MPIRanks` does the same by messages, with an all-reduce of the gradients.  It is
imported only where an MPI launcher has started several processes.  All ranks call the same methods
in the same order; of one rank alone, each does what is left to do for one, which is mostly nothing.
"""
from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad import Muon, Tensor


class Averager:
    """The rows of each batch that a process computes, and the mean over all processes.  Here there
    is one: it computes all rows, and its own gradients are the mean.

    `model.ranks.mean.OverRanks` does the same for several.

    Attributes
    ----------
    rows : the rows of each batch that this process computes.
    """
    rows = slice(None)

    def generator(self, rng: np.random.Generator) -> np.random.Generator:
        """Return the generator for the dropout of these rows, which draws what `rng` would."""
        return rng

    def average(self, loss: float) -> float:
        """Replace the gradient of each parameter by its mean over the rows of all processes; return
        the mean of their losses."""
        return loss


class Ranks:
    """This process as the only rank.

    Attributes
    ----------
    number, size : the number of this rank, from 0, and how many there are.
    threads : how many this rank should use; 0 for all that the process may use.
    waiting, summing : seconds spent waiting for other ranks, and exchanging arrays with them.
    """
    number = 0
    size = 1
    threads = 0
    waiting = summing = 0.0

    @property
    def first(self) -> bool:
        """Whether this is the rank that reads, prints and writes for all."""
        return self.number == 0

    def problems(self, settings: object) -> list[str]:
        """Return a line for each setting of a run that does not go with so many ranks."""
        return []

    def check_alike(self, flags: dict[str, object]) -> None:
        """Refuse ranks with other settings than the first rank, or with another program."""

    def averager(self, parameters: list[Tensor], batch_size: int) -> Averager:
        """Return what shares out the rows of batches of this size, and averages the gradients of
        the parameters."""
        return Averager()

    def muon(self, *args, **settings) -> Muon:
        """Return Muon; ranks share out its matrices."""
        return Muon(*args, **settings)

    def meet(self) -> None:
        """Wait for all ranks; end if one of them has failed."""

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set on any rank."""
        return flag

    def total(self, number: float) -> float:
        """Return the sum of a number of each rank, added up in their order."""
        return number

    def broadcast(self, number: float) -> float:
        """Return rank 0's number."""
        return number

    def call_on_first(self, make: Callable[[], Any]) -> Any:
        """Return what `make` returns on the first rank, which alone calls it."""
        return make()

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in their order."""
        return [value]

    def sum(self, row: np.ndarray) -> None:
        """All-reduce: replace a row of numbers by its sum over the ranks, added in their order."""
