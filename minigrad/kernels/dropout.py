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


def plain_keep(n, p, seed, first=0):
    """Return which of n elements, from number `first` on, dropout keeps, (n,)."""
    if p == 0:
        return np.ones(n, bool)
    bits = np.arange(first, first + n).astype(np.uint32)
    for half in (seed & 0xFFFFFFFF, seed >> 32):
        bits = bits ^ np.uint32(half)
        bits = (bits ^ bits >> np.uint32(16)) * np.uint32(0x7FEB352D)
        bits = (bits ^ bits >> np.uint32(15)) * np.uint32(0x846CA68B)
        bits = bits ^ bits >> np.uint32(16)
    return bits >= np.uint32(min(p * 2**32, 2**32 - 1))


def plain_dropout(x, p, seed, residual=None, first=0):
    kept = plain_keep(x.size, p, seed, first).reshape(x.shape)
    y = np.where(kept, x * (1 / (1 - p)), 0).astype(x.dtype)
    return y if residual is None else residual + y


@instead_of(plain_dropout)
def dropout(x: np.ndarray, p: float, seed: int, residual: np.ndarray | None = None, first: int = 0
            ) -> np.ndarray:
    """Zero elements of x with probability p, scale others by 1 / (1 - p), and add a residual of the
    same shape; `seed` has 64 bits.  `first` is the number of x's first element, where x is a part
    of a larger array."""
    out = np.empty(x.shape, x.dtype)
    flat = dense(x).reshape(-1)
    dropout_kernel(flat, flat[:0] if residual is None else dense(residual).reshape(-1),
                   out.reshape(-1), *mask_of(p, seed, first), 1 / (1 - p), threads_for(x.size))
    return out


def mask_of(p: float, seed: int, first: int) -> tuple[np.uint32, np.uint32, np.uint32, int]:
    """Return what a mask is computed from: both halves of the seed; the bound, which the 32 bits of
    an element that is kept reach; and the number of the first element."""
    bound = np.uint32(min(p * 2**32, 2**32 - 1))
    return np.uint32(seed & 0xFFFFFFFF), np.uint32(seed >> 32), bound, first


@kernel("C1 C1 C1 key key key int double threads")
def dropout_kernel(x, residual, out, low, high, bound, first, scale, threads):
    on_threads(threads, drop, x, residual, out, low, high, bound, first, scale)


@serial
def drop(thread, threads, x, residual, out, low, high, bound, first, scale):
    first, real = first + share(x.size, thread, threads).start, x.dtype.type
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
