"""The optimisers' steps, each over all parameters in one pass; and the sum of squares.

AdamW: Loshchilov & Hutter 2019, "Decoupled Weight Decay Regularization", algorithm 2.  The kernels
get the addresses of many arrays at once, cut into pieces of at most PIECE elements, which the
threads share.  Each piece has its own sum, so that a norm does not depend on the threads.  A
gradient may be given as some rows of a table (`gradients.Rows`): the zeros of the others need no
memory.  Any other array counts as a table of one row.

Muon: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks", with its
coefficients A, B, C.  For z = U S V^T the steps keep U and V, and bring singular values to between
0.68 and 1.21: in five steps all that are 0.0015 or more of |z|, in three those from 0.018 on.

How Muon runs: with G = z z^T, A + B G + C G^2 = C (G + B/2C)^2 + A - B^2/4C, and for C^(1/4) z in
place of z the factor C is 1.  Then a step is products, and numbers added to a diagonal.  Symmetric
matrices are computed below the diagonal only.  Where rows are much longer than columns, the steps
are taken on G: a step with the polynomial P takes G to P G P, and all P together multiply z once,
at the end.  Where columns are longer, the same is done from the other side, with G = z^T z.  One
thread steps a whole matrix, which stays in its cache; the result does not depend on the threads.
"""
import ctypes
import functools
import math
from collections.abc import Collection, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from minigrad import formulas
from minigrad.gradients import Rows
from minigrad.formulas import MUON, TINY, muon_length
from minigrad.kernels.compiler.compiling import (C1, C2, D1, D2, IDS1, IDS2, dense, kernel,
                                                 stands_in_for, threads_for)
from minigrad.kernels.compiler.lanes import LANES, array_at, fma, part, squares
from minigrad.kernels.compiler.linking import allocating, serial
from minigrad.kernels.compiler.parallel import share
from minigrad.kernels.compiler.tiles import MR, TILE_BYTES, VECTOR_BYTES, transpose_square
from minigrad.kernels.matmul import KC, ceil_div, multiply, on_a_line, pack_columns
from minigrad.optim import Known

PIECE = 1 << 14
SCALED = 4      # numbers that are read, multiplied and written in the time of an elementary step
VALUES, IDS, COUNT, LENGTH = range(4)   # rows of what `rows_of_gradients` returns
P, M, V = range(3)      # rows of addresses
G = 2                   # of Muon's

_Bytes = ctypes.c_char * 0      # of any buffer, which may be empty
_ONE_ROW = np.array([0])        # its id

A, B, C = MUON
SCALE = C ** 0.25
SHIFT = B / (2 * math.sqrt(C))
REST = A - B * B / (4 * C)
# Rows of a product at a time; whole tiles, and columns of whole vectors.
STRIP = math.lcm(4 * MR, VECTOR_BYTES // 4)
FULL, SYMMETRIC = np.bool_(False), np.bool_(True)       # for `product`; literals compile it twice


@stands_in_for(formulas.adamw_of_each)
def adamw_of_each(updates):
    ps, gs, ms, vs, settings = zip(*updates)
    layout, dtype = layout_of(ps)
    gs = [g if isinstance(g, Rows) or g.flags.carray else dense(g) for g in gs]
    adamw_kernel(
        zeros(dtype),
        rows_of_gradients(gs, layout, dtype),
        known_addresses(ps, ms, vs),
        layout.pieces,
        numbers_of_each(settings, dtype),
        threads_for(layout.total))


def numbers_of_each(settings: tuple[dict, ...], dtype: np.dtype) -> np.ndarray:
    """Return a row of `adamw_numbers` for each of the settings, of which many may be one dict."""
    distinct = {id(each): each for each in settings}
    row = {key: i for i, key in enumerate(distinct)}
    numbers = np.array([adamw_numbers(**each) for each in distinct.values()], dtype)
    return numbers.take([row[id(each)] for each in settings], axis=0)


def adamw_numbers(lr: float, beta1: float, beta2: float, eps: float, weight_decay: float,
                  steps: int) -> tuple[float, ...]:
    """Return what `update` takes of the settings of a parameter."""
    return (beta1, 1 - beta1, beta2, 1 - beta2, 1 - lr * weight_decay,
            lr / (1 - beta1 ** steps), 1 / (1 - beta2 ** steps), eps)


@stands_in_for(formulas.sum_of_squares)
def sum_of_squares(xs):
    if not are_alike(xs):
        return formulas.sum_of_squares.plain(xs)
    xs = [_summed(x) for x in xs]
    layout, dtype = layout_of(xs)
    sums = np.zeros(len(layout.pieces))
    sum_of_squares_kernel(
        np.empty(0, dtype),
        rows_of_gradients(xs, layout, dtype),
        layout.pieces,
        sums,
        threads_for(layout.total))
    return float(sums.sum())


def are_alike(xs: Collection) -> bool:
    """Whether there are arrays, all of one type."""
    dtypes = [x.dtype for x in xs]
    return bool(dtypes) and dtypes.count(dtypes[0]) == len(dtypes)


def _summed(x):
    """Return an array of which the kernel takes the squares."""
    if isinstance(x, Rows) and _in_first_lanes(x):
        return x
    return dense(np.asarray(x))


def _in_first_lanes(x):
    """Whether each row begins in the first lane of a sum: rows that are all zero can be left out
    then."""
    length = row_length(x)
    return length > 0 and length % (2 * LANES) == 0 and PIECE % length == 0


def row_length(x: Rows) -> int:
    """Return how many numbers a row of a table has."""
    return math.prod(x.shape[1:])


class Layout(NamedTuple):
    """What kernels ask of arrays of these sizes."""
    sizes: tuple[int, ...]
    total: int
    pieces: np.ndarray      # rows of (array, first element, end)
    rows: np.ndarray        # what `rows_of_gradients` returns of arrays, but for their addresses


def layout_of(xs: list) -> tuple[Layout, np.dtype]:
    """Return the layout of arrays, and the type of the first."""
    return layout_of_sizes(tuple([x.size for x in xs])), xs[0].dtype


@functools.cache
def layout_of_sizes(sizes: tuple[int, ...]) -> Layout:
    pieces = [(i, start, min(start + PIECE, size)) for i, size in enumerate(sizes)
              for start in range(0, size, PIECE)]
    rows = np.empty((4, len(sizes)), np.int64)
    rows[IDS] = _AT_ONE_ROW
    rows[COUNT] = 1
    rows[LENGTH] = sizes
    return Layout(sizes, sum(sizes), np.array(pieces, np.int64).reshape(-1, 3), rows)


def rows_of_gradients(gs: list, layout: Layout, dtype: np.dtype) -> np.ndarray:
    """Return the addresses of the rows of each gradient and of their ids, the number of rows, and
    their length, (4, gradients).  A dense array is one row.  Gradients that are clipped and then
    stepped are looked at once."""
    if Rows in map(type, gs):
        return _rows_of(gs, layout, dtype)
    known = _tables.knows(gs)
    if known is not None and known[0] is layout and known[1] == dtype:
        return known[2]
    table = layout.rows.copy()
    table[VALUES] = addresses_of(gs, layout.sizes, dtype)
    _tables.keep(gs, (layout, dtype, table))
    return table


def _rows_of(gs, layout, dtype):
    """Return the same of gradients of which some are `Rows`."""
    table = layout.rows.copy()
    for i, (g, size) in enumerate(zip(gs, layout.sizes)):
        if isinstance(g, Rows):
            check(g, size, dtype)
            table[VALUES, i] = address(g.values, g.values.size, dtype)
            table[IDS, i] = address(g.ids, len(g.ids), np.int64)
            table[COUNT, i] = len(g.ids)
            table[LENGTH, i] = row_length(g)
        else:
            table[VALUES, i] = address(g, size, dtype)
    return table


_tables = Known()       # what `rows_of_gradients` returned
_known = Known()        # the addresses of arrays


def known_addresses(*lists: Sequence[np.ndarray]) -> np.ndarray:
    """Return `addresses` of arrays that stay from step to step, and are looked at the first time
    only.  NumPy neither moves nor resizes an array to which there is a weak reference."""
    arrays = [*chain(*lists)]
    table = _known.knows(arrays)
    if table is None:
        table = addresses(*lists)
        _known.keep(arrays, table)
    return table


def addresses(*lists: list) -> np.ndarray:
    """Return the address of the first element of each array, (lists, arrays), after checking that
    the first arrays of all lists have one size, and the second, and so on, and all one type."""
    first, *_ = lists
    dtype = first[0].dtype
    sizes = tuple([x.size for x in first])
    return np.array([addresses_of(arrays, sizes, dtype) for arrays in lists], np.int64)


def addresses_of(xs: Sequence[np.ndarray], sizes: tuple[int, ...], dtype: np.dtype) -> list[int]:
    """Return the address of the first element of each dense array, after checking that there are as
    many as a kernel will take from there, and of its type."""
    if tuple([x.size for x in xs]) != sizes or [x.dtype for x in xs].count(dtype) != len(xs):
        for x, size in zip(xs, sizes, strict=True):
            check(x, size, dtype)
    return [*map(ctypes.addressof, map(_Bytes.from_buffer, xs))]


def address(x: np.ndarray, size: int, dtype: np.dtype) -> int:
    """Return the address of one array, after the same checks."""
    return addresses_of([x], (size,), dtype)[0]


def check(x: np.ndarray | Rows, size: int, dtype: np.dtype) -> None:
    """Raise a ValueError unless an array has so many numbers of this type."""
    if x.size != size or x.dtype != dtype:      # as where a parameter's data was replaced
        raise ValueError(f"a kernel takes {size} numbers of {dtype} from an array that has {x.size}"
                         f" of {x.dtype}")


_AT_ONE_ROW = address(_ONE_ROW, 1, np.int64)


@functools.cache
def zeros(dtype: np.dtype) -> np.ndarray:
    """Return the gradient of a piece of a row that is not given."""
    return np.zeros(PIECE, dtype)


@kernel
def adamw_kernel(thread, threads, zeros: C1, gradients: IDS2, at: IDS2, pieces: IDS2, numbers: C2):
    for piece in share(len(pieces), thread, threads):
        i, start, stop = pieces[piece]
        C = gradients[LENGTH, i]
        last = (stop - 1) // C          # row
        ids = array_at(gradients, IDS, i, 0, gradients[COUNT, i], pieces)
        k = count_below(ids, start // C)        # of the next row that is given
        for row in range(start // C, last + 1):
            first = max(start, row * C)
            n = min(stop, row * C + C) - first
            g = part(zeros, 0, n)
            if k < ids.size and ids[k] == row:
                g = array_at(gradients, VALUES, i, first + (k - row) * C, n, zeros)
                k += 1
            p = array_at(at, P, i, first, n, zeros)
            m = array_at(at, M, i, first, n, zeros)
            v = array_at(at, V, i, first, n, zeros)
            update(p, g, m, v, numbers[i])


@serial
def count_below(ids, row):
    """Return how many of some rising ids are smaller than a row's number."""
    count = 0
    end = ids.size
    while count < end:
        middle = (count + end) // 2
        if ids[middle] < row:
            count = middle + 1
        else:
            end = middle
    return count


@serial
def update(p, g, m, v, numbers):
    beta1, new1, beta2, new2, decay, step, scale, tiny = numbers
    for j in range(p.size):
        m[j] = fma(beta1, m[j], new1 * g[j])
        v[j] = fma(beta2, v[j], new2 * g[j] * g[j])
        p[j] = fma(p[j], decay, -(step * m[j] / (np.sqrt(v[j] * scale) + tiny)))


@kernel
def sum_of_squares_kernel(thread, threads, like: C1, gradients: IDS2, pieces: IDS2, sums: D1):
    for piece in share(len(pieces), thread, threads):
        i, start, stop = pieces[piece]
        C = gradients[LENGTH, i]
        ids = array_at(gradients, IDS, i, 0, gradients[COUNT, i], pieces)
        start = count_below(ids, start // C) * C + start % C
        stop = count_below(ids, stop // C) * C + stop % C
        x = array_at(gradients, VALUES, i, start, stop - start, like)
        sums[piece] = squares(x, x.dtype.type(0))


@stands_in_for(formulas.scale)
def scale(xs, factor):
    if not are_alike(xs) or not all([x.flags.carray for x in xs]):
        formulas.scale.plain(xs, factor)
        return
    layout, dtype = layout_of(xs)
    scale_kernel(
        np.array([factor], dtype),
        rows_of_gradients(xs, layout, dtype),
        layout.pieces,
        threads_for(layout.total // SCALED))


@kernel
def scale_kernel(thread, threads, factor: C1, gradients: IDS2, pieces: IDS2):
    for piece in share(len(pieces), thread, threads):
        i, start, stop = pieces[piece]
        x = array_at(gradients, VALUES, i, start, stop - start, factor)
        for j in range(x.size):
            x[j] *= factor[0]


@stands_in_for(formulas.muon_of_each)
def muon_of_each(updates):
    ps, gs, ms, settings = zip(*updates)
    gs = [dense(g) for g in gs]
    shapes = np.array([p.shape for p in ps], np.int64)
    largest_first = np.argsort(-shapes.prod(axis=1), kind="stable")
    numbers = np.array([(each["momentum"], 1 - each["lr"] * each["weight_decay"],
                         each["lr"] * muon_length(p)) for p, each in zip(ps, settings)])
    muon_kernel(
        ps[0].reshape(-1),
        addresses(ps, ms, gs),
        shapes,
        largest_first,
        numbers,
        settings[0]["ns_steps"],
        settings[0].get("equal_rows", False),
        threads_for(sum(p.size for p in ps)))


@kernel
def muon_kernel(thread, threads, like: C1, at: IDS2, shapes: IDS2, order: IDS1, settings: D2,
                steps: int, equal_rows: bool):
    for i in order[thread::threads]:            # each thread gets large and small ones
        rows, columns = shapes[i]
        n = rows * columns
        if n > 0:
            p = array_at(at, P, i, 0, n, like)
            m = array_at(at, M, i, 0, n, like)
            g = array_at(at, G, i, 0, n, like)
            step_matrix(p, g, m, (rows, columns), settings[i], steps, equal_rows)


@allocating
def step_matrix(p, g, m, shape, settings, steps, equal_rows):
    """Update one matrix, whose p, g and m are given row after row."""
    real = p.dtype.type
    momentum = real(settings[0])
    decay = real(settings[1])
    lr = real(settings[2] / SCALE)
    z = np.empty_like(p)
    for i in range(p.size):
        m[i] = fma(momentum, m[i], g[i])
        z[i] = fma(momentum, m[i], g[i])
    scale = real(SCALE / (np.sqrt(squares(z, real(0))) + TINY))
    for i in range(z.size):
        z[i] *= scale
    direction = orthogonal(z.reshape(shape)[::1], steps)
    rows, columns = shape
    if equal_rows:
        equalize_rows(direction)
    for i in range(rows):
        row = part(direction[i], 0, columns)
        into = part(p, i * columns, columns)
        for j in range(columns):
            into[j] = fma(decay, into[j], -(lr * row[j]))


@serial
def equalize_rows(z):
    """Give all rows of a matrix, which is multiplied by SCALE, the same length."""
    rows, columns = z.shape
    zero = z.dtype.type(0)
    total = zero
    for i in range(rows):
        total += squares(part(z[i], 0, columns), zero)
    usual = np.sqrt(total / rows)
    for i in range(rows):
        row = part(z[i], 0, columns)
        factor = z.dtype.type(usual / (np.sqrt(squares(row, zero)) + SCALE * TINY))
        for j in range(columns):
            row[j] *= factor


@allocating
def orthogonal(z, steps):
    """Take all steps from z = SCALE z / |z|.  ([::1] gives each matrix the type of any strides:
    then all have one type, and each function of them is compiled once.)"""
    short = min(z.shape)
    tall = len(z) > short
    gram = square(short, z)
    new = square(short, z)
    all_P = square(short, z)
    next_P = square(short, z)
    out = np.empty_like(z)[::1]
    on_rows = 2 * max(z.shape) <= 3 * short     # beyond, steps on the gram take fewer products
    for step in range(steps):
        first = step == 0 or on_rows
        if first:
            rows = z.T if tall else z
            product(rows, rows.T, gram, SYMMETRIC)
        P = all_P if first else next_P
        polynomial(gram, P)
        if not first:
            product(P, all_P, new, SYMMETRIC)
            all_P, new = new, all_P
        if on_rows or step == steps - 1:
            a, b = (z, all_P) if tall else (all_P, z)
            product(a, b, out, FULL)
            z, out = out, z
        else:
            product(P, gram, new, SYMMETRIC)
            product(new, P, gram, SYMMETRIC)
    return z


@allocating
def square(n, like):
    """Return an empty matrix, n by n."""
    return on_a_line(n * n, like).reshape(n, n)[::1]


@allocating
def polynomial(gram, P):
    """Compute P = (gram + SHIFT)^2 + REST."""
    diagonal = np.diag(gram).copy()
    for i in range(len(gram)):
        gram[i, i] += gram.dtype.type(SHIFT)
    product(gram, gram, P, SYMMETRIC)
    for i in range(len(P)):
        P[i, i] += P.dtype.type(REST)
        gram[i, i] = diagonal[i]


@allocating
def product(a, b, c, symmetric):
    """Compute c = a @ b, half of it if the result is symmetric; c has dense rows."""
    M, K = a.shape
    columns = c.shape[1]
    NR = TILE_BYTES // c.itemsize
    depth = min(K, KC)
    panels = ceil_div(columns, NR)
    packed = on_a_line(panels * depth * NR, c).reshape(panels, depth, NR)
    for start in range(0, K, depth):
        end = min(K, start + depth)
        pack_columns(b[start:end], packed)
        for top in range(0, M, STRIP):
            bottom = min(M, top + STRIP)
            right = bottom if symmetric else columns
            multiply(a[top:, start:end], packed, c[top:bottom, :right], start > 0)
    if symmetric:
        mirror(c)


@serial
def mirror(c):
    """Copy what is below the diagonal above it, in squares as wide as a vector where they fit."""
    M = len(c)
    row = c.strides[0] // c.itemsize
    wide = VECTOR_BYTES // c.itemsize
    for left in range(0, M, wide):
        for top in range(left, M, wide):
            if left < top <= M - wide:
                transpose_square(c, top * row + left, row, c, left * row + top, row)
            else:
                for j in range(left, min(M, left + wide)):
                    for i in range(max(top, j), min(M, top + wide)):
                        c[j, i] = c[i, j]
