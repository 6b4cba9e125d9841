"""Ops that move, pick, repeat or sum elements: each returns the value and its vjps."""
import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from minigrad.core import Array, op
from minigrad.gradients import Added

Axes = int | tuple[int, ...] | None
Arrays = list[Array]


@op
def sum(x: Array, axis: Axes = None, keepdims: bool = False):
    """Sum over some axes, over all by default.  Back:  dx = g, broadcast to the shape of x."""
    shape = x.shape
    return x.sum(axis=axis, keepdims=keepdims), (
        lambda g: np.broadcast_to(_expanded(g, axis, keepdims), shape),)


@op
def mean(x: Array, axis: Axes = None, keepdims: bool = False):
    """Mean over some axes, over all by default.  Back:  dx = g / n, for each of the n elements."""
    shape, value = x.shape, x.mean(axis=axis, keepdims=keepdims)
    share = value.size / x.size if x.size else 0.0
    return value, (lambda g: np.broadcast_to(_expanded(g * share, axis, keepdims), shape),)


@op
def max(x: Array, axis: Axes = None, keepdims: bool = False):
    """Maximum over some axes, over all by default; equal maxima share the gradient evenly."""
    value = x.max(axis=axis, keepdims=keepdims)

    def dx(g):
        best = x == _expanded(value, axis, keepdims)
        winners = best.sum(axis=axis, keepdims=True).astype(g.dtype)
        return best * (_expanded(g, axis, keepdims) / winners)
    return value, (dx,)


def _expanded(y, axis, keepdims):
    """Return the result of a reduction with the reduced axes as size 1."""
    return y if axis is None or keepdims else np.expand_dims(y, axis)


@op
def reshape(x: Array, shape: int | tuple[int, ...]):
    """The same elements in another shape; one size may be -1."""
    before = x.shape
    return x.reshape(shape), (lambda g: g.reshape(before),)


@op
def transpose(x: Array, axes: tuple[int, ...] | None = None):
    """The axes in another order, reversed by default; they are counted from 0."""
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
    shapes = [part.shape for part in arrays]
    if axis is None:                    # flat, as NumPy joins them
        arrays = [part.reshape(-1) for part in arrays]
        axis = 0
    value = np.concatenate(arrays, axis)
    ends = np.cumsum([part.shape[axis] for part in arrays])

    def vjp(g):
        parts = np.split(g, ends[:-1], axis)
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
    vjps = []
    for part in np.split(places, indices_or_sections):
        picked = slice(part[0], part[-1] + 1) if part.size else slice(0)
        vjps.append((_added_at(_along(axis, x.ndim, picked), once=True),))
    return np.split(x, indices_or_sections, axis), vjps


@op
def take(x: Array, index: object, axis: int | None = None):
    """x[index], for every index that NumPy takes; with an axis, the entries `index` along it."""
    index = index if axis is None else _along(axis, x.ndim, index)
    value = x[index]
    once = np.may_share_memory(value, x)        # a view; an index array may repeat an index
    return value, (_added_at(index, once),)


def _along(axis, ndim, index):
    """Return the index that picks `index` along one axis and everything along the others."""
    return (slice(None),) * normalize_axis_index(axis, ndim) + (index,)


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
