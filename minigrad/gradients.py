"""What vjps return, and how it is added up.  Most of a gradient may be zero, as that of a table of
which few rows were read."""
import math
from collections.abc import Callable
from itertools import zip_longest
from sys import getrefcount
from typing import Any, NamedTuple

import numpy as np

from minigrad import formulas

# The vjps of their ops write into no gradient that they are given.  Kernels would copy a read-only
# array.
TRUSTED = "minigrad.elementwise", "minigrad.shapes", "minigrad.network"

ALONE = 2       # references to what only one thing holds, while `getrefcount` looks


def read_only(g: np.ndarray) -> np.ndarray:
    """Return a view that a vjp cannot write into, as others are given the same array."""
    g = g.view()
    g.flags.writeable = False
    return g


def gradient_parts(vjps, parents, g):
    """Return the node of each input with its part of the gradient: an array of its shape and type,
    or `Added`."""
    if callable(vjps):
        parts = vjps(g)
        if not isinstance(parts, (tuple, list)):
            raise TypeError("one vjp for all arguments returns a tuple of gradients, not one array")
        if len(parts) > len(parents):
            raise ValueError(f"the vjp gave {len(parts)} gradients for {len(parents)} arguments")
    else:
        parts = [vjp(g) for vjp in vjps]
    return [(parent, _fitted(part, parent)) for parent, part in zip_longest(parents, parts)
            if parent is not None]


def _fitted(part, node):
    """Return a part of a node's gradient as an array of its shape and type, or `Added`."""
    if type(part) is not np.ndarray:
        if part is None:
            raise ValueError("there is no vjp for an argument that requires a gradient")
        if isinstance(part, Added):
            return part
        part = np.asarray(part)
    if part.shape != node.shape:
        part = unbroadcast(part, node.shape)
    if part.dtype != node.dtype:
        part = part.astype(node.dtype)
    return part


class Gradient:
    """The gradient of a node so far: the sum of the parts that came from the nodes made from it."""
    __slots__ = ("node", "array", "ours")

    def __init__(self, node: Any, part: "np.ndarray | Added") -> None:
        self.node = node
        self.ours = False       # whether the engine made the array, and so may write into it
        self.array = part       # `Rows` if few rows of it are kept
        if isinstance(part, Added):
            self.array = None
            self.add(part)

    def add(self, part: "np.ndarray | Added") -> None:
        """Add a part: an array of the node's shape and type, or `Added`."""
        if isinstance(part, Added):
            self.array = part.to(self.node, self.array, self.ours)
        elif self.ours and not isinstance(self.array, Rows):
            formulas.add(self.array, part, self.array)
        else:
            total = formulas.add(self.array, part)
            self.array = np.asarray(total)          # of two 0-d arrays, no scalar
        self.ours = True

    def to_keep(self) -> "np.ndarray | Rows":
        """Return the sum as an array that nobody else holds."""
        if self.ours or self._holds_it_alone():
            return self.array
        return self.array.copy()

    def _holds_it_alone(self):
        """Whether nobody else can read or write the array: a vjp has made it and kept nothing."""
        if not self.array.flags.carray or getrefcount(self.array) > ALONE:
            return False
        if self.array.base is None:
            return self.array.flags.owndata
        # A view of a whole array that only the view holds, as of rows that are folded.
        return (type(self.array.base) is np.ndarray
                and getrefcount(self.array.base) == ALONE
                and self.array.base.flags.owndata
                and self.array.base.size == self.array.size)


def is_held_elsewhere(node: Any) -> bool:
    """Whether others than a leaf hold its gradient, or an array of which it is a view.  A vjp keeps
    neither if nobody does."""
    if isinstance(node.grad, Rows) or getrefcount(node.grad) > ALONE:
        return True
    if node.grad.base is None:
        return False
    return (type(node.grad.base) is not np.ndarray
            or getrefcount(node.grad.base) > ALONE
            or node.grad.base.base is not None)


def kept_numbers(g: "np.ndarray | Rows") -> np.ndarray:
    """Return the array of a leaf's gradient that holds its numbers."""
    return g.values if isinstance(g, Rows) else g


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

    def to(
            self,
            parent: Any,
            total: "np.ndarray | Rows | None",
            writable: bool) -> "np.ndarray | Rows":
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
