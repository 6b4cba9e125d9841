"""Dropout (Srivastava et al. 2014, section 4) whose mask is computed where needed, never stored.

The mask is a counter-based generator (Salmon et al. 2011, "Parallel random numbers: as easy as
1, 2, 3"), so element i of it is the same on every platform and for every number of threads.
Its mixing step, once with each half of the seed, is lowbias32 (Wellons 2018, "Prospecting for Hash
Functions").
"""
import numpy as np

from minigrad.kernels.build.compiling import dense, instead_of, kernel, serial, threads_for
from minigrad.kernels.build.lanes import fma
from minigrad.kernels.build.parallel import on_threads, portion, share


def plain_keep(n, p, seed):
    """Return which of n elements dropout keeps, (n,)."""
    if p == 0:
        return np.ones(n, bool)
    bits = np.arange(n).astype(np.uint32)
    for half in (seed & 0xFFFFFFFF, seed >> 32):
        bits = bits ^ np.uint32(half)
        bits = (bits ^ bits >> np.uint32(16)) * np.uint32(0x7FEB352D)
        bits = (bits ^ bits >> np.uint32(15)) * np.uint32(0x846CA68B)
        bits = bits ^ bits >> np.uint32(16)
    return bits >= np.uint32(min(p * 2**32, 2**32 - 1))


def plain_dropout(x, p, seed, residual=None):
    y = np.where(plain_keep(x.size, p, seed).reshape(x.shape), x * (1 / (1 - p)), 0).astype(x.dtype)
    return y if residual is None else residual + y


@instead_of(plain_dropout)
def dropout(x: np.ndarray, p: float, seed: int, residual: np.ndarray | None = None) -> np.ndarray:
    """Zero elements of x with probability p, scale others by 1 / (1 - p), and add a residual of the
    same shape; `seed` has 64 bits."""
    out = np.empty(x.shape, x.dtype)
    flat = dense(x).reshape(-1)
    dropout_kernel(flat, flat[:0] if residual is None else dense(residual).reshape(-1),
                   out.reshape(-1), *seed_and_bound(p, seed), 1 / (1 - p), threads_for(x.size))
    return out


def seed_and_bound(p: float, seed: int) -> tuple[np.uint32, np.uint32, np.uint32]:
    """Return both halves of the seed, and the bound: an element is kept if its 32 bits reach it."""
    return np.uint32(seed & 0xFFFFFFFF), np.uint32(seed >> 32), np.uint32(min(p * 2**32, 2**32 - 1))


@kernel("C1 C1 C1 key key key double threads")
def dropout_kernel(x, residual, out, low, high, bound, scale, threads):
    on_threads(threads, drop, x, residual, out, low, high, bound, scale)


@serial
def drop(thread, threads, x, residual, out, low, high, bound, scale):
    first, real = share(x.size, thread, threads).start, x.dtype.type
    x, out = portion(x, thread, threads), portion(out, thread, threads)
    residual = portion(residual, thread, threads)
    if residual.size:
        for i in range(x.size):
            kept = x[i] if keeps(low, high, bound, first + i) else real(0)
            out[i] = fma(kept, real(scale), residual[i])
    else:
        for i in range(x.size):
            out[i] = x[i] * real(scale) if keeps(low, high, bound, first + i) else real(0)


@serial
def keeps(low, high, bound, i):
    """Whether element i is kept."""
    return mix(np.uint32(mix(np.uint32(np.uint32(i) ^ low)) ^ high)) >= bound


@serial
def mix(x):
    x = np.uint32((x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D))
    x = np.uint32((x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B))
    return np.uint32(x ^ (x >> np.uint32(16)))
