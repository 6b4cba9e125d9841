"""Ops that move, pick, repeat or sum elements: each returns the value and its vjps."""
from itertools import accumulate, pairwise

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from minigrad.core import Added, Array, Rule, op

Axes = int | tuple[int, ...] | None
Arrays = list[Array]


@op
def sum(x: Array, axis: Axes = None, keepdims: bool = False) -> Rule:
    """Sum over some axes, over all by default.  Back:  dx = g, broadcast to the shape of x."""
    shape = x.shape
    return x.sum(axis=axis, keepdims=keepdims), (
        lambda g: np.broadcast_to(_expanded(g, axis, keepdims), shape),)


@op
def mean(x: Array, axis: Axes = None, keepdims: bool = False) -> Rule:
    """Mean over some axes, over all by default.  Back:  dx = g / n, for each of the n elements."""
    shape, value = x.shape, x.mean(axis=axis, keepdims=keepdims)
    share = value.size / x.size if x.size else 0.0
    return value, (lambda g: np.broadcast_to(_expanded(g * share, axis, keepdims), shape),)


@op
def max(x: Array, axis: Axes = None, keepdims: bool = False) -> Rule:
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
def reshape(x: Array, shape: int | tuple[int, ...]) -> Rule:
    """The same elements in another shape; one size may be -1."""
    before = x.shape
    return x.reshape(shape), (lambda g: g.reshape(before),)


@op
def transpose(x: Array, axes: tuple[int, ...] | None = None) -> Rule:
    """The axes in another order, reversed by default; they are counted from 0."""
    if axes is not None and sorted(axes) != list(range(x.ndim)):
        raise ValueError(f"transpose orders axes 0 to {x.ndim - 1}, not {axes}; see swapaxes")
    back = None if axes is None else np.argsort(axes)
    return x.transpose(axes), (lambda g: g.transpose(back),)


@op
def swapaxes(x: Array, axis1: int, axis2: int) -> Rule:
    """x with two axes exchanged."""
    return x.swapaxes(axis1, axis2), (lambda g: g.swapaxes(axis1, axis2),)


@op
def broadcast_to(x: Array, shape: tuple[int, ...]) -> Rule:
    """x broadcast to a shape, without copying."""
    return np.broadcast_to(x, shape), (lambda g: g,)


@op
def concatenate(arrays: Arrays, axis: int = 0) -> Rule:
    """Join arrays along an existing axis, or flat if it is None."""
    arrays = _several(arrays)
    before = [part.shape for part in arrays]
    if axis is None:                    # flat, as NumPy joins them
        arrays = [part.reshape(-1) for part in arrays]
        axis = 0
    value = np.concatenate(arrays, axis)
    bounds = accumulate((part.shape[axis] for part in arrays), initial=0)
    return value, [lambda g, place=place, shape=shape: g[place].reshape(shape)
                   for place, shape in zip(_places(bounds, axis, value.ndim), before)]


@op
def stack(arrays: Arrays, axis: int = 0) -> Rule:
    """Join arrays of one shape along a new axis."""
    arrays = _several(arrays)
    value = np.stack(arrays, axis)
    return value, [lambda g, i=i: g[_along(axis, g.ndim, i)] for i in range(len(arrays))]


def _several(arrays):
    """Return what is given as a list of arrays."""
    if isinstance(arrays, np.ndarray):
        raise TypeError(f"a list of arrays is joined, and this is one array, {list(arrays.shape)}")
    return [np.asarray(part) for part in arrays]


@op
def split(x: Array, indices_or_sections: int | list[int], axis: int = 0) -> Rule:
    """Split x into a list of views: into a number of equal parts, or at the given indices."""
    n = x.shape[normalize_axis_index(axis, x.ndim)]
    sections = np.ndim(indices_or_sections) == 0
    if sections and indices_or_sections < 1:
        raise ValueError(f"x is split into 1 part or more, not into {indices_or_sections}")
    parts = np.split(x, indices_or_sections, axis)
    if sections:
        bounds = np.arange(len(parts) + 1) * (n // len(parts))
    else:
        bounds = [0, *indices_or_sections, n]
    return parts, [(_added_at(place),) for place in _places(bounds, axis, x.ndim)]


def _places(bounds, axis, ndim):
    """Return the index of each part between two neighbouring bounds along an axis."""
    return [_along(axis, ndim, slice(*ends)) for ends in pairwise(bounds)]


@op
def take(x: Array, index: object, axis: int | None = None) -> Rule:
    """x[index], for every index that NumPy takes; with an axis, the entries `index` along it."""
    index = index if axis is None else _along(axis, x.ndim, index)
    return x[index], (_added_at(index),)


def _along(axis, ndim, index):
    """Return the index that picks `index` along one axis and everything along the others."""
    return (slice(None),) * normalize_axis_index(axis, ndim) + (index,)


def _added_at(index):
    """Return the vjp of x[index]: it adds g there in place, so the zeros elsewhere cost nothing."""
    plain = all(part is None or part is Ellipsis or isinstance(part, (int, np.integer, slice))
                for part in (index if isinstance(index, tuple) else (index,)))

    def vjp(g):
        def add(total):
            if plain:
                total[index] += g
            else:
                np.add.at(total, index, g)      # an index array may repeat an index
        return Added(add)
    return vjp
