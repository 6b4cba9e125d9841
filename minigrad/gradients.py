"""What vjps return, and how it is added up.  Most of a gradient may be zero, as that of a table of
which few rows were read."""
import math
from collections.abc import Callable
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np


# Their vjps write into no gradient that they are given.  Kernels would copy a read-only array.
TRUSTED = "minigrad.elementwise", "minigrad.shapes", "minigrad.network", "minigrad.formulas"


def parts_of(vjps, parents, g):
    """Return the node of each input with its part of the gradient: an array of its shape and type,
    or `Added`."""
    if callable(vjps):
        parts = vjps(_for_vjp(vjps, g))
        if not isinstance(parts, (tuple, list)):
            raise TypeError("one vjp for all arguments returns a tuple of gradients, not one array")
        if len(parts) > len(parents):
            raise ValueError(f"the vjp gave {len(parts)} gradients for {len(parents)} arguments")
    else:
        parts = [vjp(_for_vjp(vjp, g)) for vjp in vjps]
    found = []
    for parent, dx in zip_longest(parents, parts):
        if parent is None:
            continue
        if dx is None:
            raise ValueError("there is no vjp for an argument that requires a gradient")
        if not isinstance(dx, Added):
            dx = np.asarray(dx)
            if dx.shape != parent.shape:
                dx = unbroadcast(dx, parent.shape)
            if dx.dtype != parent.dtype:
                dx = dx.astype(parent.dtype)
        found.append((parent, dx))
    return found


def _for_vjp(vjp, g):
    """Return g; for a vjp from elsewhere, a view that it cannot write into, as others get g, too.
    """
    if getattr(vjp, "__module__", None) not in TRUSTED:
        g = g.view()
        g.flags.writeable = False
    return g


class Gradient:
    """The gradient of a node so far: the sum of the parts that came from the nodes made from it."""
    __slots__ = ("node", "array", "ours")

    def __init__(self, node: Any, array: np.ndarray | None = None) -> None:
        self.node = node
        self.array = array      # None before the first part, and `Rows` if few rows of it are kept
        self.ours = False       # whether the engine made the array, and so may write into it

    def add(self, dx: "np.ndarray | Added") -> None:
        """Add a part: an array of the node's shape and type, or `Added`."""
        if isinstance(dx, Added):
            self.array = dx.to(self.node, self.array, self.ours)
        elif self.array is None:
            self.array = dx
            return                      # others may hold dx, too
        elif self.ours and not isinstance(self.array, Rows):
            self.array += dx
        else:
            self.array = np.asarray(np.add(self.array, dx))     # of two 0-d arrays, not a scalar
        self.ours = True


def unbroadcast(g: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Sum g over the axes along which NumPy broadcast an array of `shape`."""
    if g.shape == shape:
        return g
    extra = g.ndim - len(shape)
    if extra < 0 or any(n not in (1, m) for n, m in zip(shape, g.shape[extra:])):
        raise ValueError(f"the vjp gave {list(g.shape)} for an argument of shape {list(shape)}")
    padded = (1,) * extra + shape
    repeated = tuple(axis for axis, n in enumerate(padded) if n == 1)
    return g.sum(axis=repeated, keepdims=True).reshape(shape)


class Added(NamedTuple):
    """A sparse gradient: a function that adds it to a dense array, in place.

    If it adds to rows of a table, `ids` are their numbers.  Then add(array, other_ids) adds to rows
    with other numbers instead.
    """
    add: Callable[..., None]
    ids: np.ndarray | None = None

    def to(self, parent: Any, total: "np.ndarray | Rows | None", writable: bool
           ) -> "np.ndarray | Rows":
        """Return the sum with the gradient that a parent has so far, which is written into if that
        is allowed.  The first sum of a leaf of which few rows were read is kept as `Rows`."""
        if total is None:
            if self.ids is not None and parent.op == "leaf" and self.ids.size < parent.shape[0]:
                return self._rows(parent)
            total = np.zeros(parent.shape, parent.dtype)
        elif isinstance(total, Rows) or not writable or not total.flags.c_contiguous:
            total = np.array(total, order="C")      # as kernels write into it
        self.add(total)
        return total

    def _rows(self, table):
        """Return the rows of a table's gradient that something is added to."""
        V, *rest = table.shape
        if self.ids.size and not 0 <= self.ids.min() <= self.ids.max() < V:
            raise IndexError(f"the ids of Added are rows of the table, from 0 to {V - 1}")
        read = np.zeros(V, bool)
        read[self.ids] = True
        ids = np.flatnonzero(read)
        positions = np.empty(V, np.int64)       # among these, of those that were read
        positions[ids] = np.arange(len(ids))
        values = np.zeros((len(ids), *rest), table.dtype)
        self.add(values, positions[self.ids])
        return Rows(ids, values, table.shape)


class Rows(NamedTuple):
    """The gradient of a table, most of whose rows are zero: only the rows that may not be."""
    ids: np.ndarray             # their numbers, rising, (N,)
    values: np.ndarray          # (N, ...)
    shape: tuple[int, ...]      # of the table, (V, ...)

    dtype = property(lambda self: self.values.dtype)
    size = property(lambda self: math.prod(self.shape))

    def __array__(self, *dtype, **copy) -> np.ndarray:
        """Return the table."""
        table = np.zeros(self.shape, self.dtype)
        table[self.ids] = self.values
        return table
