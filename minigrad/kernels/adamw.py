"""AdamW's step and the sum of squares, over all parameters in one pass (Loshchilov & Hutter 2019,
"Decoupled Weight Decay Regularization", algorithm 2).

How it runs: the kernels get the addresses of many arrays at once, cut into pieces of at most PIECE
elements, which the threads share.  Each piece has its own sum, so that a norm does not depend on
the threads.  A gradient may be given as some rows of a table (`core.Rows`): the zeros of the others
need no memory.  Any other array counts as a table of one row.
"""
import ctypes
import functools

import numpy as np

from minigrad import formulas
from minigrad.kernels.compiler.compiling import (C1, D1, D2, IDS2, dense, kernel, stands_in_for,
                                                 threads_for)
from minigrad.kernels.compiler.lanes import LANES, fma
from minigrad.kernels.compiler.linking import serial
from minigrad.kernels.compiler.parallel import share
from minigrad.kernels.compiler.simd import array_at, part
from minigrad.kernels.compiler.sums import dot

PIECE = 1 << 14

_Bytes = ctypes.c_char * 0      # of any buffer, which may be empty
_ONE_ROW = np.array([0, 1])     # its places


@stands_in_for(formulas.adamw)
def adamw(ps: list, gs: list, ms: list, vs: list, settings: np.ndarray) -> None:
    at, gs = rows_of(gs)
    at = np.column_stack((at, *map(addresses, (ps, ms, vs))))
    sizes = tuple([p.size for p in ps])
    adamw_kernel(zeros(ps[0].dtype), at, pieces(sizes), settings, threads_for(sum(sizes)))


@stands_in_for(formulas.sum_of_squares)
def sum_of_squares(xs: list) -> float:
    # Rows that are all zero can be left out if each row begins in the first lane of a sum.
    xs = [x if isinstance(x, np.ndarray) or x.length % (2 * LANES) == PIECE % (x.length or 1) == 0
          else np.asarray(x) for x in xs]
    sizes = tuple([x.size for x in xs])
    at, xs = rows_of(xs)
    sums = np.zeros(len(pieces(sizes)))
    like = np.empty(0, xs[0].dtype)
    sum_of_squares_kernel(like, at, pieces(sizes), sums, threads_for(sum(sizes)))
    return float(sums.sum())


def rows_of(xs: list) -> tuple[np.ndarray, list]:
    """Return the addresses of the rows of each array, and of their places, and the length of a
    row; and dense arrays, which hold that memory."""
    xs = [dense(x) if isinstance(x, np.ndarray) else x for x in xs]
    return np.array([(address(x), _AT_ONE_ROW, x.size) if isinstance(x, np.ndarray) else
                     (address(x.values), address(x.places), x.length) for x in xs], np.int64), xs


def addresses(arrays: list) -> np.ndarray:
    """Return the address of the first element of each array."""
    return np.array([address(x) for x in arrays], np.int64)


def address(x: np.ndarray) -> int:
    """Return the address of an array's first element."""
    return ctypes.addressof(_Bytes.from_buffer(x))


_AT_ONE_ROW = address(_ONE_ROW)


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
        numbers = (real(1 - beta1), real(1 - beta2), real(1 - lr * weight_decay),
                   real(lr / correction1), real(1 / correction2), real(eps))
        C, last = at[i, 2], (stop - 1) // at[i, 2]
        places = array_at(at[i, 1], last + 2, pieces)
        for row in range(start // C, last + 1):
            first = max(start, row * C)
            n, offset = min(stop, row * C + C) - first, first * like.itemsize
            g = part(zeros, 0, n)
            if places[row] < places[row + 1]:       # the row is given
                g = array_at(at[i, 0] + offset + (places[row] - row) * C * like.itemsize, n, like)
            update(array_at(at[i, 3] + offset, n, like), g, array_at(at[i, 4] + offset, n, like),
                   array_at(at[i, 5] + offset, n, like), numbers)


@serial
def update(p, g, m, v, numbers):
    keep1, keep2, decay, step, scale, tiny = numbers
    for j in range(p.size):
        m[j] = fma(keep1, g[j] - m[j], m[j])
        v[j] = fma(keep2, fma(g[j], g[j], -v[j]), v[j])
        p[j] = fma(p[j], decay, -(step * m[j] / (np.sqrt(v[j] * scale) + tiny)))


@kernel
def sum_of_squares_kernel(thread, threads, like: C1, at: IDS2, pieces: IDS2, sums: D1):
    for piece in share(len(pieces), thread, threads):
        i, start, stop = pieces[piece, 0], pieces[piece, 1], pieces[piece, 2]
        C, places = at[i, 2], array_at(at[i, 1], stop // at[i, 2] + 1, pieces)
        start = places[start // C] * C + start % C
        n = places[stop // C] * C + stop % C - start
        x = array_at(at[i, 0] + start * like.itemsize, n, like)
        sums[piece] = dot(x, x)
