"""AdamW's step and the sum of squares, over all parameters in one pass (Loshchilov & Hutter 2019,
"Decoupled Weight Decay Regularization", algorithm 2).

How it runs: the kernels get the addresses of many arrays at once, cut into pieces of at most PIECE
elements, which the threads share.  Each piece has its own sum, so that a norm does not depend on
the threads.
"""
import ctypes
import functools

import numpy as np

from minigrad.kernels.build.compiling import dense, instead_of, kernel, serial, threads_for
from minigrad.kernels.build.lanes import fma
from minigrad.kernels.build.parallel import on_threads, share
from minigrad.kernels.build.simd import array_at
from minigrad.kernels.build.sums import dot

PIECE = 1 << 14

_Bytes = ctypes.c_char * 0      # of any buffer, which may be empty


def plain_adamw(ps, gs, ms, vs, settings):
    for p, g, m, v, row in zip(ps, gs, ms, vs, settings.tolist()):
        lr, beta1, beta2, eps, weight_decay, correction1, correction2 = row
        m += (1 - beta1) * (g - m)
        v += (1 - beta2) * (g * g - v)
        p -= lr * (weight_decay * p + m / correction1 / (np.sqrt(v / correction2) + eps))


@instead_of(plain_adamw)
def adamw(ps: list, gs: list, ms: list, vs: list, settings: np.ndarray) -> None:
    """Update every p, m and v in place; all are dense and of one float type.

    `settings` (float64) has a row for each: lr, beta1, beta2, eps, weight_decay, correction1,
    correction2.
    """
    gs = [dense(g) for g in gs]
    places = np.stack([addresses(arrays) for arrays in (ps, gs, ms, vs)], axis=1)
    sizes = tuple(p.size for p in ps)
    adamw_kernel(ps[0].reshape(-1), places, pieces(sizes), settings, threads_for(sum(sizes)))


def plain_sum_of_squares(xs):
    return float(sum(np.square(x, dtype=np.float64).sum() for x in xs))


@instead_of(plain_sum_of_squares)
def sum_of_squares(xs: list) -> float:
    """Return the sum of the squares of all elements of all arrays, which have one float type."""
    xs = [dense(x) for x in xs]
    sizes = tuple(x.size for x in xs)
    sums = np.zeros(len(pieces(sizes)))
    sum_of_squares_kernel(xs[0].reshape(-1), addresses(xs), pieces(sizes), sums,
                          threads_for(sum(sizes)))
    return float(sums.sum())


def addresses(arrays: list) -> np.ndarray:
    """Return the address of the first element of each array."""
    return np.array([ctypes.addressof(_Bytes.from_buffer(x)) for x in arrays], np.int64)


@functools.cache
def pieces(sizes: tuple[int, ...]) -> np.ndarray:
    """Return rows of (array, first element, end) for arrays of these sizes."""
    return np.array([(i, start, min(start + PIECE, size)) for i, size in enumerate(sizes)
                     for start in range(0, size, PIECE)], np.int64).reshape(-1, 3)


@kernel("C1 ids2 ids2 D2 threads")
def adamw_kernel(like, places, pieces, settings, threads):
    on_threads(threads, adamw_pieces, like, places, pieces, settings)


@serial
def adamw_pieces(thread, threads, like, places, pieces, settings):
    real = like.dtype.type
    for piece in share(len(pieces), thread, threads):
        i, start, stop = pieces[piece, 0], pieces[piece, 1], pieces[piece, 2]
        n, offset = stop - start, start * like.itemsize
        p, g = array_at(places[i, 0] + offset, n, like), array_at(places[i, 1] + offset, n, like)
        m, v = array_at(places[i, 2] + offset, n, like), array_at(places[i, 3] + offset, n, like)
        lr, beta1, beta2, eps, weight_decay, correction1, correction2 = settings[i]
        keep1, keep2, decay = real(1 - beta1), real(1 - beta2), real(1 - lr * weight_decay)
        step, scale, tiny = real(lr / correction1), real(1 / correction2), real(eps)
        for j in range(n):
            m[j] = fma(keep1, g[j] - m[j], m[j])
            v[j] = fma(keep2, fma(g[j], g[j], -v[j]), v[j])
            p[j] = fma(p[j], decay, -(step * m[j] / (np.sqrt(v[j] * scale) + tiny)))


@kernel("C1 ids1 ids2 D1 threads")
def sum_of_squares_kernel(like, places, pieces, sums, threads):
    on_threads(threads, sums_of_pieces, like, places, pieces, sums)


@serial
def sums_of_pieces(thread, threads, like, places, pieces, sums):
    for piece in share(len(pieces), thread, threads):
        i, start, stop = pieces[piece]
        x = array_at(places[i] + start * like.itemsize, stop - start, like)
        sums[piece] = dot(x, x)
