"""What ranks say to each other, for a process that is the only one.

`model.ranks.mpi.MPIRanks` does the same by messages.  All ranks call the same methods in the same
order.
"""
from collections.abc import Callable
from typing import Any

import numpy as np


class EndedElsewhere(SystemExit):
    """Other ranks have failed; `number` is that of the first of them."""

    def __init__(self, number: int) -> None:
        super().__init__(1)
        self.number = number


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

    def exchange(self, arrays: list[list[np.ndarray]]) -> None:
        """Copy arrays of one float type between the ranks: all get the first list of arrays from
        the first rank, the second list from the second, and so on."""
