"""Differentiable ops that change the shape, as NumPy's: sums, views, joins, parts and products.

Each op returns its value and its vjps.  A vjp keeps the arrays alive that it names.
"""
import math
from functools import lru_cache
from string import ascii_letters

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from minigrad import formulas
from minigrad.core import Array, Tensor, brief, one_type, op
from minigrad.formulas import rows
from minigrad.gradients import Added
from minigrad.words import number_of

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
def var(
        x: Array,
        axis: Axes = None,
        keepdims: bool = False,
        correction: float = 0):
    """Variance over some axes, over all by default: the sum of (x - mean)^2 / (n - correction).

    The correction is 0 by default, as NumPy's (which also calls it ddof); PyTorch's default is 1.
    All is added up in float64.  Back:  dx = 2 g (x - mean) / (n - correction).
    """
    x, = one_type(x)
    axis = _as_axes(axis)
    variance, deviations, freedom = _moments(
        x,
        axis,
        keepdims,
        correction)

    def dx(g):
        return _expanded(g, axis, keepdims) * (2 * deviations / freedom)
    return variance.astype(x.dtype), (dx,)


@op
def std(
        x: Array,
        axis: Axes = None,
        keepdims: bool = False,
        correction: float = 0):
    """Standard deviation over some axes, over all by default: the square root of `var`, whose
    correction it takes.  Where it is 0, the gradient is 0, as in PyTorch."""
    x, = one_type(x)
    axis = _as_axes(axis)
    variance, deviations, freedom = _moments(
        x,
        axis,
        keepdims,
        correction)
    y = np.sqrt(variance)

    def dx(g):
        slope = np.where(y == 0, 0, g / np.where(y == 0, 1, y))
        return _expanded(slope, axis, keepdims) * (deviations / freedom)
    return y.astype(x.dtype), (dx,)


def _moments(x, axis, keepdims, correction):
    """Return the variance, x - mean, and n - correction, in float64."""
    deviations = x.astype(np.float64)
    for _ in range(2):                          # the second time, by what rounding has left
        deviations = deviations - deviations.mean(axis=axis, keepdims=True)
    squares = np.square(deviations).sum(axis=axis, keepdims=keepdims)
    n = x.size / (squares.size or 1)
    freedom = max(n - correction, 0)
    return squares / freedom, deviations, freedom


@op
def max_(x: Array, axis: Axes = None, keepdims: bool = False):
    """Maximum over some axes, over all by default; equal maxima share the gradient evenly."""
    axis = _as_axes(axis)
    value = x.max(axis=axis, keepdims=keepdims)
    dx = _extremum_vjp(
        x,
        value,
        axis,
        keepdims)
    return value, (dx,)


@op
def min_(x: Array, axis: Axes = None, keepdims: bool = False):
    """Minimum over some axes, over all by default; equal minima share the gradient evenly."""
    axis = _as_axes(axis)
    value = x.min(axis=axis, keepdims=keepdims)
    dx = _extremum_vjp(
        x,
        value,
        axis,
        keepdims)
    return value, (dx,)


def _extremum_vjp(x, value, axis, keepdims):
    """Return the vjp of a maximum or minimum."""
    def dx(g):
        best = x == _expanded(value, axis, keepdims)
        winners = best.sum(axis=axis, keepdims=True).astype(g.dtype)
        winners = np.where(winners == 0, np.nan, winners)       # nan, the value, equals nothing
        return best * (_expanded(g, axis, keepdims) / winners)
    return dx


@op
def cumsum(x: Array, axis: int | None = None):
    """Sums of the elements up to each along an axis, or of all, flat, if it is None.
    Back:  the same sums of g, from the last element on."""
    shape = x.shape
    along = 0 if axis is None else axis

    def dx(g):
        from_the_last = np.flip(g, along).cumsum(along)
        return np.flip(from_the_last, along).reshape(shape)
    return x.cumsum(axis), (dx,)


def _as_axes(axis):
    """Return axes as NumPy takes them: of a list, a tuple."""
    if isinstance(axis, np.ndarray) and axis.ndim:
        raise TypeError(f"an axis is a number, and this is {brief(axis)}; mg.maximum and "
                        "mg.minimum compare two arrays")
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
def ravel(x: Array):
    """The same elements along a single axis."""
    before = x.shape
    return x.reshape(-1), (lambda g: g.reshape(before),)


@op
def squeeze(x: Array, axis: Axes = None):
    """x without some axes of size 1, without all of them by default."""
    before = x.shape
    return x.squeeze(_as_axes(axis)), (lambda g: g.reshape(before),)


@op
def expand_dims(x: Array, axis: int | tuple[int, ...]):
    """x with new axes of size 1, at these places of the result."""
    before = x.shape
    return np.expand_dims(x, axis), (lambda g: g.reshape(before),)


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
    return [Tensor(part).data for part in arrays]       # it refuses masked arrays


@op
def pad(
        x: Array,
        pad_width: object,
        mode: str = "constant",
        constant_values: object = 0):
    """x with more elements before and after it along each axis: `constant_values`, or, in one of
    the modes "edge", "reflect", "symmetric" and "wrap", elements of x.

    `pad_width` is as NumPy's: a pair (before, after) for each axis, from the first axis on (where
    PyTorch begins with the last), or one pair or one number for all axes.
    """
    if np.ndim(pad_width) == 1 and np.size(pad_width) > 2:
        raise ValueError("pad_width is a number, (before, after), or a list of such pairs, one for "
                         "each axis, from the first on; PyTorch's is flat, and begins with the "
                         "last")
    if mode == "constant":
        pairs = np.broadcast_to(pad_width, (x.ndim, 2))
        inner = tuple(slice(before, before + n) for (before, _), n in zip(pairs, x.shape))
        value = np.pad(x, pad_width, constant_values=constant_values)
        return value, (lambda g: g[inner],)
    if mode not in ("edge", "reflect", "symmetric", "wrap"):
        raise ValueError('mode is "constant", "edge", "reflect", "symmetric" or "wrap", not '
                         f"{brief(mode)}")
    places = np.pad(np.arange(x.size).reshape(x.shape), pad_width, mode)
    index = np.unravel_index(places, x.shape)
    return x[index], (_added_at(index, once=False),)


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


@op
def einsum(subscripts: str, x: Array, y: Array = None, *more: Array):
    """Sums of products, with a letter for each axis, as NumPy's, of one array or two.

    einsum("bik,bkj->bij", x, y) is x @ y, the sums over k, which the value has not;
    einsum("ii", x) is a trace, and einsum("...ij->...ji", x) exchanges the last two axes.
    Where products are summed, this is one product of matrices.
    Back:  dx is the einsum of g and y whose value has the letters of x.
    """
    if not isinstance(subscripts, str):
        raise TypeError('the letters of the axes stand first: mg.einsum("ij,jk->ik", x, y)')
    if more:
        raise TypeError("einsum takes one array or two: multiply more of them one after the other")
    x = np.asarray(x)
    if y is None:
        x_letters, out_letters, sizes = _letters(subscripts, x.shape)
        y_letters = ""
        y = np.ones((), x.dtype)                # a factor without axes
    else:
        y = np.asarray(y)
        x_letters, y_letters, out_letters, sizes = _letters(subscripts, x.shape, y.shape)
    if "f" in (x.dtype.kind, y.dtype.kind):
        x, y = one_type(x, y)

    def dx(g):
        return _einsum_vjp(
            g,
            out_letters,
            y,
            y_letters,
            x_letters,
            sizes)

    def dy(g):
        return _einsum_vjp(
            g,
            out_letters,
            x,
            x_letters,
            y_letters,
            sizes)

    value = _contracted(
        x,
        x_letters,
        y,
        y_letters,
        out_letters,
        sizes)
    return value, (None, dx, dy)


@lru_cache(maxsize=256)
def _letters(subscripts, *shapes):
    """Return the letters of the axes of each array and of the value, with letters in place of
    "...", and the size of each letter.  Raise a ValueError if they do not fit the shapes."""
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(shapes):
        raise ValueError(f"{brief(inputs)} has the letters of {number_of(len(terms), 'array')}, "
                         f"divided by commas, and {len(shapes)} came")
    dotted = [len(shape) + 3 - len(term) if "..." in term else 0        # how many axes "..." are
              for term, shape in zip(terms, shapes)]
    unused = [letter for letter in ascii_letters if letter not in subscripts]
    dots = "".join(unused[:max(0, *dotted)])
    if not arrow:                               # NumPy's: what stands once, in the alphabet's order
        output = "..." + "".join(sorted(c for c in inputs if c.isalpha() and inputs.count(c) == 1))
    if dots and "..." not in output:
        raise ValueError('the axes of "..." are not summed: write it into the output, too')
    terms = [term.replace("...", dots[len(dots) - n:]) for term, n in zip(terms, dotted)]
    output = output.replace("...", dots)
    # NumPy names what is wrong with letters and sizes.
    operands = [np.broadcast_to(0, shape) for shape in shapes]
    np.einsum_path(f"{','.join(terms)}->{output}", *operands)
    sizes = {}
    for term, shape in zip(terms, shapes):
        for letter, n in zip(term, shape):
            if sizes.get(letter, 1) == 1:       # an axis of size 1 is broadcast
                sizes[letter] = n
    return *terms, output, sizes


def _contracted(x, x_letters, y, y_letters, out_letters, sizes):
    """Return the sums of products of x and y, by letters, over those that `out_letters` has not."""
    in_x, in_y, in_out = set(x_letters), set(y_letters), set(out_letters)
    shared = sorted(in_x & in_y & in_out)
    summed = sorted(in_x & in_y - in_out)
    left = sorted(in_x & in_out - in_y)
    right = sorted(in_y & in_out - in_x)
    a = _as_matrices(
        x,
        x_letters,
        shared,
        left,
        summed,
        sizes)
    b = _as_matrices(
        y,
        y_letters,
        shared,
        summed,
        right,
        sizes)
    if not summed:
        value = a * b
    elif a.dtype.kind == "f":
        value = formulas.matmul(a, b)
    else:
        value = a @ b                           # integers stay integers
    axes = shared + left + right
    value = value.reshape([sizes[letter] for letter in axes])
    return value.transpose([axes.index(letter) for letter in out_letters])


def _as_matrices(x, letters, shared, left, right, sizes):
    """Return x as matrices, (..., M, P), of which letters on the left count rows, and on the right
    columns.  Repeated letters are a diagonal, and others are summed over."""
    axes = shared + left + right
    x = np.einsum(f"{letters}->{''.join(axes)}", x)
    x = np.broadcast_to(x, [sizes[letter] for letter in axes])
    rows_and_columns = [math.prod([sizes[letter] for letter in side]) for side in (left, right)]
    return x.reshape(*x.shape[:len(shared)], *rows_and_columns)


def _einsum_vjp(g, out_letters, other, other_letters, letters, sizes):
    """Return the gradient of an array with these letters, from g and the other array."""
    there = out_letters + other_letters
    reached = [letter for letter in dict.fromkeys(letters) if letter in there]
    dx = _contracted(
        g,
        out_letters,
        other,
        other_letters,
        reached,
        sizes)
    if len(reached) == len(letters):
        return dx
    alone = set(letters) - set(reached)         # summed over: each element gets the same
    total = np.zeros([sizes[letter] for letter in letters], g.dtype)
    view = np.einsum(f"{letters}->{''.join([*alone, *reached])}", total)    # of a diagonal, too
    view[...] = dx
    return total
