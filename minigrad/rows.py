"""Gradients that are mostly zero: those of a table, of which few rows were read."""
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np


class Rows(NamedTuple):
    """The gradient of a table with V rows, most of them zero: only the rows that may not be.

    Row v of the table is values[places[v]], if places[v + 1] is larger; else it is zero.
    """
    values: np.ndarray      # the rows that are kept, (N, ...)
    places: np.ndarray      # (V + 1,): how many rows are kept before each row, and in all

    dtype = property(lambda self: self.values.dtype)
    shape = property(lambda self: (len(self.places) - 1, *self.values.shape[1:]))   # of the table
    length = property(lambda self: math.prod(self.values.shape[1:]))
    size = property(lambda self: (len(self.places) - 1) * self.length)      # of the table

    def __array__(self, *dtype, **copy) -> np.ndarray:
        """Return the table."""
        table = np.zeros(self.shape, self.dtype)
        table[np.diff(self.places) > 0] = self.values
        return table


@dataclass(frozen=True, slots=True)
class Added:
    """A gradient that is mostly zero, as the function that adds it to an array in place.

    If it adds to rows of a table, `ids` are their numbers.  Then add(array, places) adds to rows
    with other numbers, `places`, instead.
    """
    add: Callable[..., None]
    ids: np.ndarray | None = None

    def to(self, total: "np.ndarray | Rows | None", writable: bool, parent: Any
           ) -> np.ndarray | Rows:
        """Add it to the gradient that a parent, a Node, has so far, in place if that is writable;
        return the sum.  The first sum of a leaf of which few rows were read is kept as `Rows`."""
        few = self.ids is not None and parent.op == "leaf" and self.ids.size < parent.shape[0]
        if total is None and few:
            return self._rows(parent)
        if total is None:
            total = np.zeros(parent.shape, parent.dtype)
        elif isinstance(total, Rows):
            total = np.asarray(total)
        elif not (writable and total.flags.c_contiguous):       # as kernels write into it
            total = total.copy()
        self.add(total)
        return total

    def _rows(self, table):
        """Return the rows of a table's gradient that something is added to."""
        kept = np.zeros(table.shape[0], bool)
        kept[self.ids] = True
        places = np.zeros(len(kept) + 1, np.int64)
        np.cumsum(kept, out=places[1:])
        values = np.zeros((places[-1], *table.shape[1:]), table.dtype)
        self.add(values, places[self.ids])
        return Rows(values, places)
