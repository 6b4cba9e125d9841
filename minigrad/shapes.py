"""Differentiable ops that change the shape, as NumPy's: sums, views, joins, parts and products.

Each op returns its value and its vjps.  A vjp keeps the arrays alive that it names.
"""
import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from minigrad import formulas
from minigrad.core import Array, one_type, op
from minigrad.formulas import rows
from minigrad.gradients import Added

Axes = int | tuple[int, ...] | None
Arrays = list[Array]


@op
def sum_(x: Array, axis: Axes = None, keepdims: bool = False):
    """Sum over some axes, over all by default.  Back:  dx = g, broadcast to the shape of x."""
    shape = x.shape
    axis = _as_axes(axis)
    return x.sum(axis=axis, keepdims=keepdims), (
        lambda g: np.broadcast_to(_expanded(g, axis, keepdims), shape),)


@op
def mean(x: Array, axis: Axes = None, keepdims: bool = False):
    """Mean over some axes, over all by default.  Back:  dx = g / n, for each of the n elements."""
    shape = x.shape
    axis = _as_axes(axis)
    value = x.mean(axis=axis, keepdims=keepdims)
    share = value.size / (x.size or 1)
    return value, (lambda g: np.broadcast_to(_expanded(g * share, axis, keepdims), shape),)


@op
def max_(x: Array, axis: Axes = None, keepdims: bool = False):
    """Maximum over some axes, over all by default; equal maxima share the gradient evenly."""
    axis = _as_axes(axis)
    value = x.max(axis=axis, keepdims=keepdims)

    def dx(g):
        best = x == _expanded(value, axis, keepdims)
        winners = best.sum(axis=axis, keepdims=True).astype(g.dtype)
        winners[winners == 0] = np.nan          # the maximum is nan, which equals nothing
        return best * (_expanded(g, axis, keepdims) / winners)
    return value, (dx,)


def _as_axes(axis):
    """Return axes as NumPy takes them: of a list, a tuple."""
    return tuple(axis) if type(axis) is list else axis


def _expanded(y, axis, keepdims):
    """Return the result of a reduction with the reduced axes as size 1."""
    return y if axis is None or keepdims else np.expand_dims(y, axis)


@op
def reshape(x: Array, shape: int | tuple[int, ...], *sizes: int):
    """The same elements in another shape; one size may be -1.  Sizes may follow one by one."""
    before = x.shape
    if sizes:
        shape = shape, *sizes
    return x.reshape(shape), (lambda g: g.reshape(before),)


@op
def transpose(x: Array, axes: tuple[int, ...] | None = None, *more: int):
    """The axes in another order, reversed by default; they are counted from 0."""
    if more:
        raise TypeError("the axes are one tuple, as in mg.transpose(x, (1, 0)); "
                        "mg.swapaxes(x, 0, 1) exchanges two")
    if axes is not None and sorted(axes) != list(range(x.ndim)):
        raise ValueError(f"transpose orders axes 0 to {x.ndim - 1}, not {axes}; see swapaxes")
    back = None if axes is None else np.argsort(axes)
    return x.transpose(axes), (lambda g: g.transpose(back),)


@op
def swapaxes(x: Array, axis1: int, axis2: int):
    """x with two axes exchanged."""
    return x.swapaxes(axis1, axis2), (lambda g: g.swapaxes(axis1, axis2),)


@op
def broadcast_to(x: Array, shape: tuple[int, ...]):
    """x broadcast to a shape, without copying."""
    return np.broadcast_to(x, shape), (lambda g: g,)


@op
def concatenate(arrays: Arrays, axis: int = 0):
    """Join arrays along an existing axis, or flat if it is None."""
    arrays = _several(arrays)
    value = np.concatenate(arrays, axis)
    shapes = [part.shape for part in arrays]
    sizes = [part.size if axis is None else part.shape[axis] for part in arrays]

    def vjp(g):
        parts = np.split(g, np.cumsum(sizes[:-1]), axis or 0)
        return [dx.reshape(shape) for dx, shape in zip(parts, shapes)]
    return value, vjp


@op
def stack(arrays: Arrays, axis: int = 0):
    """Join arrays of one shape along a new axis."""
    return np.stack(_several(arrays), axis), lambda g: list(np.moveaxis(g, axis, 0))


def _several(arrays):
    """Return what is given as a list of arrays."""
    if isinstance(arrays, np.ndarray):
        raise TypeError(f"a list of arrays is joined, and this is one array, {list(arrays.shape)}")
    return [np.asarray(part) for part in arrays]


@op
def split(x: Array, indices_or_sections: int | list[int], axis: int = 0):
    """Split x into a list of views: into a number of equal parts, or at the given indices."""
    if np.ndim(indices_or_sections) == 0 and indices_or_sections < 1:
        raise ValueError(f"x is split into 1 part or more, not into {indices_or_sections}")
    places = np.arange(x.shape[normalize_axis_index(axis, x.ndim)])
    vjps = [(_added_at(_along(axis, x.ndim, picked), once=True),)
            for picked in np.split(places, indices_or_sections)]
    return np.split(x, indices_or_sections, axis), vjps


@op
def take(x: Array, index: object, axis: int | None = None):
    """x[index], for every index that NumPy takes; with an axis, the entries `index` along it."""
    index = index if axis is None else _along(axis, x.ndim, index)
    value = x[index]
    once = np.may_share_memory(value, x)        # a view; an index array may repeat an index
    return value, (_added_at(index if once else _copied(index), once),)


def _along(axis, ndim, index):
    """Return the index that picks `index` along one axis and everything along the others."""
    return (slice(None),) * normalize_axis_index(axis, ndim) + (index,)


def _copied(index):
    """Return an index with copies of its arrays and lists, which nobody can change."""
    if isinstance(index, tuple):
        return tuple(_copied(part) for part in index)
    if not hasattr(index, "__len__"):
        return index
    copy = np.array(index)
    return copy if copy.size else copy.astype(bool if copy.dtype == bool else int)


def _added_at(index, once):
    """Return the vjp of x[index]: it adds g there in place, so the zeros elsewhere cost nothing.
    `once` says that no element is picked twice."""
    def vjp(g):
        def add(total):
            if once:
                total[index] += g
            else:
                np.add.at(total, index, g)
        return Added(add)
    return vjp


@op
def matmul(x: Array, y: Array):
    """Product of the last two axes, (..., M, K), (..., K, P) -> (..., M, P); vectors as NumPy's.
    Back:  dx = g y^T, dy = x^T g.
    """
    x, y = np.asarray(x), np.asarray(y)
    if x.ndim == 0 or y.ndim == 0:
        raise ValueError("matmul takes arrays of at least one axis; to scale by a number, use *")
    a = x[None] if x.ndim == 1 else x                           # (..., M, K)
    b = y[:, None] if y.ndim == 1 else y                        # (..., K, P)
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"the inner sizes differ: {list(x.shape)} has {a.shape[-1]} columns, "
                         f"{list(y.shape)} has {b.shape[-2]} rows")
    if "f" in (a.dtype.kind, b.dtype.kind):
        a, b = one_type(a, b)
        value = formulas.matmul(a, b)
    else:
        value = a @ b                       # integers stay integers
    shape = value.shape                                         # (..., M, P)
    right = y.shape                                             # dy reads no number of y
    several = b.ndim > 2

    def dx(g):
        return formulas.matmul(g.reshape(shape), b.swapaxes(-1, -2))

    def dy(g):
        g = g.reshape(shape)
        if several:
            return formulas.matmul(a.swapaxes(-1, -2), g)
        db = formulas.matmul(rows(a).T, rows(g))                # summed over all matrices of a
        return db.reshape(right)
    if x.ndim == 1:
        value = value[..., 0, :]
    if y.ndim == 1:
        value = value[..., 0]
    return value, (dx, dy)
