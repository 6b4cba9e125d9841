"""The processes, called ranks, that train one model: here this one alone, which waits for nobody.

`model.ranks.mpi.MPIRanks` does the same by messages; it is imported only where a launcher of MPI
has started several processes.  All ranks call the same methods in the same order.
"""
import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from minigrad import Muon, Tensor

# What launchers tell a rank, its number and how many there are: MPICH's and most others;
# Open MPI's; and SLURM's by PMIx, which itself tells no size.
TOLD = (("PMI_RANK", "PMI_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMIX_RANK", "SLURM_STEP_NUM_TASKS"))
Batch = tuple[np.ndarray, np.ndarray]       # ids and targets, (B, T) each


class Mean:
    """The mean of a step's loss and gradients over the rows of its batches: of all ranks, here of
    this process."""

    def rows(self, batches: Iterable[Batch], rng: np.random.Generator
             ) -> Iterator[tuple[np.ndarray, np.ndarray, np.random.Generator]]:
        """Yield what this rank is to go forward and back with, in turn: ids and targets of rows of
        a batch, and the generator for their dropout."""
        for x, y in batches:
            yield x, y, rng

    def add_gradients(self) -> None:
        """Add the gradients of these rows to those of the rows before, unless backward did."""

    def average_gradients(self) -> None:
        """Replace the gradient of each parameter by the mean over the rows of all ranks."""

    def average_loss(self, loss: float) -> float:
        """Return the mean over the rows of all ranks, given the sum of the losses of this one."""
        return loss


class Ranks:
    """This process as the only rank.

    Attributes
    ----------
    number, size : the number of this rank, from 0, and how many there are.
    threads : how many this rank should use; 0 for all that the process may.
    waiting, summing : seconds that it has waited for other ranks, and exchanged sums and arrays
        with them.
    """
    number, size, threads = 0, 1, 0
    waiting = summing = 0.0

    @property
    def first(self) -> bool:
        """Whether this is the rank that reads, prints and writes for all."""
        return self.number == 0

    def check_alike(self, given: dict[str, object]) -> None:
        """Refuse ranks that are given other settings than the first, or run another program."""

    def mean(self, parameters: list[Tensor], batch_size: int, exact: bool = False) -> Mean:
        """Return how the gradients of these parameters are averaged over the rows of batches; if
        exactly, with the same bits for any number of ranks."""
        if exact:
            from model.ranks.mean import Exact
            return Exact(self, parameters, batch_size)
        return Mean()

    def muon(self, *args, **settings) -> Muon:
        """Return the optimiser, whose matrices ranks share out."""
        return Muon(*args, **settings)

    def meet(self) -> None:
        """Wait for all ranks; end if one of them has failed."""

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set on any rank."""
        return flag

    def total(self, number: float) -> float:
        """Return the sum of a number of each rank, added up in their order."""
        return number

    def firsts(self, number: float) -> float:
        """Return the number of the first rank."""
        return number

    def made_by_first(self, make: Callable[[], Any]) -> Any:
        """Return what `make` returns on the first rank, which alone calls it."""
        return make()

    def of_each(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in their order."""
        return [value]

    def sum(self, row: np.ndarray) -> None:
        """Replace a row of numbers by its sum over the ranks, added up in their order."""


def told() -> tuple[int, int | None] | None:
    """Return the number of this rank and how many there are (None if unknown), as the launcher
    tells; None if there is no launcher."""
    for number, size in TOLD:
        if os.environ.get(number, "").isdecimal():
            return int(os.environ[number]), int(os.environ[size]) if size in os.environ else None
    return None


def joined(command: str) -> contextlib.AbstractContextManager[Ranks]:
    """Join the other ranks, if a launcher has started several.  See `model.ranks.launch`."""
    rank = told()
    if rank is None or rank[1] == 1:
        return contextlib.nullcontext(Ranks())
    from model.ranks import launch
    return launch.joined(command, *rank)
