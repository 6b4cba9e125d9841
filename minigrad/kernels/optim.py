"""The optimisers' steps, each over all parameters in one pass; and the sum of squares.

AdamW: Loshchilov & Hutter 2019, "Decoupled Weight Decay Regularization", algorithm 2.  The kernels
get the addresses of many arrays at once, cut into pieces of at most PIECE elements, which the
threads share.  Each piece has its own sum, so that a norm does not depend on the threads.  A
gradient may be given as some rows of a table (`core.Rows`): the zeros of the others need no memory.
Any other array counts as a table of one row.

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

import numpy as np

from minigrad import formulas
from minigrad.core import Rows
from minigrad.formulas import MUON, TINY
from minigrad.kernels.compiler.compiling import (C1, D1, D2, IDS1, IDS2, dense, kernel,
                                                 stands_in_for, threads_for)
from minigrad.kernels.compiler.lanes import LANES, array_at, fma, part, squares
from minigrad.kernels.compiler.linking import allocating, serial
from minigrad.kernels.compiler.parallel import share
from minigrad.kernels.compiler.tiles import MR, TILE_BYTES, VECTOR_BYTES, transpose_square
from minigrad.kernels.matmul import KC, multiply, pack_columns

PIECE = 1 << 14

_Bytes = ctypes.c_char * 0      # of any buffer, which may be empty
_ONE_ROW = np.array([0, 1])     # its places

A, B, C = MUON
SCALE = C ** 0.25
SHIFT = B / (2 * math.sqrt(C))
REST = A - B * B / (4 * C)
STRIP = 4 * MR      # rows of a product at a time; whole tiles, and columns of whole vectors
FULL, SYMMETRIC = np.bool_(False), np.bool_(True)       # for `product`; literals compile it twice


@stands_in_for(formulas.adamw)
def adamw(ps: list, gs: list, ms: list, vs: list, settings: np.ndarray) -> None:
    sizes, dtype = tuple([p.size for p in ps]), ps[0].dtype
    gs = [dense(g) if isinstance(g, np.ndarray) else g for g in gs]
    at = np.array([(*rows_at(g, size, dtype), address(p, size, dtype), address(m, size, dtype),
                    address(v, size, dtype))
                   for p, g, m, v, size in zip(ps, gs, ms, vs, sizes, strict=True)], np.int64)
    adamw_kernel(zeros(dtype), at, pieces(sizes), settings, threads_for(sum(sizes)))


@stands_in_for(formulas.sum_of_squares)
def sum_of_squares(xs: list) -> float:
    # Rows that are all zero can be left out if each row begins in the first lane of a sum.
    xs = [x if isinstance(x, np.ndarray) or x.length % (2 * LANES) == PIECE % (x.length or 1) == 0
          else np.asarray(x) for x in xs]
    sizes, dtype = tuple([x.size for x in xs]), xs[0].dtype
    xs = [dense(x) if isinstance(x, np.ndarray) else x for x in xs]
    at = np.array([rows_at(x, size, dtype) for x, size in zip(xs, sizes)], np.int64)
    sums = np.zeros(len(pieces(sizes)))
    sum_of_squares_kernel(np.empty(0, dtype), at, pieces(sizes), sums, threads_for(sum(sizes)))
    return float(sums.sum())


def rows_at(x: np.ndarray | Rows, size: int, dtype: np.dtype) -> tuple[int, int, int]:
    """Return the addresses of the rows of an array and of their places, and the length of a row."""
    if isinstance(x, np.ndarray):
        return address(x, size, dtype), _AT_ONE_ROW, size
    if x.size != size:
        raise _other(x, size, dtype)
    return address(x.values, x.values.size, dtype), address(x.places, len(x.places)), x.length


def address(x: np.ndarray, size: int, dtype: np.dtype = np.int64) -> int:
    """Return the address of the first element of a dense array, after checking that there are as
    many as a kernel will take from there, and of its type."""
    if x.size != size or x.dtype != dtype:      # as where a parameter's data was replaced
        raise _other(x, size, dtype)
    return ctypes.addressof(_Bytes.from_buffer(x))


def _other(x, size, dtype):
    return ValueError(f"a kernel takes {size} numbers of {dtype} from an array that has {x.size} "
                      f"of {x.dtype}")


_AT_ONE_ROW = address(_ONE_ROW, 2)


@functools.cache
def zeros(dtype: np.dtype) -> np.ndarray:
    """Return the gradient of a piece of a row that is not given."""
    return np.zeros(PIECE, dtype)


@functools.cache
def pieces(sizes: tuple[int, ...]) -> np.ndarray:
    """Return rows of (array, first element, end) for arrays of these sizes."""
    return np.array([(i, start, min(start + PIECE, size)) for i, size in enumerate(sizes)
                     for start in range(0, size, PIECE)], np.int64).reshape(-1, 3)


@kernel
def adamw_kernel(thread, threads, zeros: C1, at: IDS2, pieces: IDS2, settings: D2):
    like, real = zeros, zeros.dtype.type
    for piece in share(len(pieces), thread, threads):
        i, start, stop = pieces[piece, 0], pieces[piece, 1], pieces[piece, 2]
        lr, beta1, beta2, eps, weight_decay, correction1, correction2 = settings[i]
        numbers = (real(beta1), real(1 - beta1), real(beta2), real(1 - beta2),
                   real(1 - lr * weight_decay), real(lr / correction1), real(1 / correction2),
                   real(eps))
        C, last = at[i, 2], (stop - 1) // at[i, 2]
        places = array_at(at, i, 1, 0, last + 2, pieces)
        for row in range(start // C, last + 1):
            first = max(start, row * C)
            n = min(stop, row * C + C) - first
            g = part(zeros, 0, n)
            if places[row] < places[row + 1]:       # the row is given
                g = array_at(at, i, 0, first + (places[row] - row) * C, n, like)
            update(array_at(at, i, 3, first, n, like), g, array_at(at, i, 4, first, n, like),
                   array_at(at, i, 5, first, n, like), numbers)


@serial
def update(p, g, m, v, numbers):
    beta1, new1, beta2, new2, decay, step, scale, tiny = numbers
    for j in range(p.size):
        m[j] = fma(beta1, m[j], new1 * g[j])
        v[j] = fma(beta2, v[j], new2 * g[j] * g[j])
        p[j] = fma(p[j], decay, -(step * m[j] / (np.sqrt(v[j] * scale) + tiny)))


@kernel
def sum_of_squares_kernel(thread, threads, like: C1, at: IDS2, pieces: IDS2, sums: D1):
    for piece in share(len(pieces), thread, threads):
        i, start, stop = pieces[piece, 0], pieces[piece, 1], pieces[piece, 2]
        C, places = at[i, 2], array_at(at, i, 1, 0, stop // at[i, 2] + 1, pieces)
        start = places[start // C] * C + start % C
        n = places[stop // C] * C + stop % C - start
        x = array_at(at, i, 0, start, n, like)
        sums[piece] = squares(x, x.dtype.type(0))


@stands_in_for(formulas.muon)
def muon(ps: list, gs: list, ms: list, settings: np.ndarray, steps: int) -> None:
    gs = [dense(g) for g in gs]
    places = np.array([[address(x, p.size, ps[0].dtype) for x in (p, g, m)]
                       for p, g, m in zip(ps, gs, ms, strict=True)], np.int64)
    shapes = np.array([p.shape for p in ps], np.int64)
    largest_first = np.argsort(-shapes.prod(axis=1), kind="stable")
    muon_kernel(ps[0].reshape(-1), places, shapes, largest_first, settings, steps,
                threads_for(sum(p.size for p in ps)))


@kernel
def muon_kernel(thread, threads, like: C1, places: IDS2, shapes: IDS2, order: IDS1, settings: D2,
                steps: int):
    for i in order[thread::threads]:            # each thread gets large and small ones
        rows, columns = shapes[i]
        n = rows * columns
        p, g, m = (array_at(places, i, 0, 0, n, like), array_at(places, i, 1, 0, n, like),
                   array_at(places, i, 2, 0, n, like))
        if n > 0:
            step_matrix(p, g, m, (rows, columns), settings[i], steps)


@allocating
def step_matrix(p, g, m, shape, settings, steps):
    """Update one matrix, whose p, g and m are given row after row."""
    real = p.dtype.type
    momentum, decay, lr = real(settings[0]), real(settings[1]), real(settings[2] / SCALE)
    z = np.empty_like(p)
    for i in range(p.size):
        m[i] = fma(momentum, m[i], g[i])
        z[i] = fma(momentum, m[i], g[i])
    scale = real(SCALE / (np.sqrt(squares(z, real(0))) + TINY))
    for i in range(z.size):
        z[i] *= scale
    made = orthogonal(z.reshape(shape)[::1], steps)
    for i in range(shape[0]):
        row, into = part(made[i], 0, shape[1]), part(p, i * shape[1], shape[1])
        for j in range(row.size):
            into[j] = fma(decay, into[j], -(lr * row[j]))


@allocating
def orthogonal(z, steps):
    """Take all steps from z = SCALE z / |z|.  ([::1] gives each matrix the type of any strides:
    then all have one type, and each function of them is compiled once.)"""
    short, long = min(z.shape), max(z.shape)
    tall = len(z) > short
    gram, new, all_P = square(short, z), square(short, z), square(short, z)
    next_P, out = square(short, z), np.empty_like(z)[::1]
    on_rows = 2 * long <= 3 * short     # beyond, steps on the gram take fewer products
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
    return np.empty((n, n), like.dtype)[::1]


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
    (M, K), P = a.shape, c.shape[1]
    NR, depth = TILE_BYTES // c.itemsize, min(K, KC)
    packed = np.empty(((P + NR - 1) // NR, depth, NR), c.dtype)
    for start in range(0, K, depth):
        end = min(K, start + depth)
        pack_columns(b[start:end], packed)
        for top in range(0, M, STRIP):
            bottom = min(M, top + STRIP)
            multiply(a[top:bottom, start:end], packed,
                     c[top:bottom, :bottom if symmetric else P], start > 0)
    if symmetric:
        mirror(c)


@serial
def mirror(c):
    """Copy what is below the diagonal above it, in squares as wide as a vector where they fit."""
    M, row, wide = len(c), c.strides[0] // c.itemsize, VECTOR_BYTES // c.itemsize
    for left in range(0, M, wide):
        for top in range(left, M, wide):
            if left < top <= M - wide:
                transpose_square(c, top * row + left, row, c, left * row + top, row)
            else:
                for j in range(left, min(M, left + wide)):
                    for i in range(max(top, j), min(M, top + wide)):
                        c[j, i] = c[i, j]
