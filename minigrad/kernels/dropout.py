"""Dropout (Srivastava et al. 2014, section 4) whose mask is computed where needed, never stored.

The mask is a counter-based generator (Salmon et al. 2011, "Parallel random numbers: as easy as
1, 2, 3"), so element i of it is the same on every platform and for every number of threads.
Its mixing step, once with each half of the seed, is lowbias32 (Wellons 2018, "Prospecting for Hash
Functions").
"""
import numpy as np

from minigrad import formulas
from minigrad.kernels.compiler.compiling import dense, kernel, serial, stands_in_for, threads_for
from minigrad.kernels.compiler.lanes import fma
from minigrad.kernels.compiler.parallel import on_threads, portion, share


@stands_in_for(formulas.dropout)
def dropout(x: np.ndarray, p: float, seed: int, residual: np.ndarray | None = None, first: int = 0
            ) -> np.ndarray:
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
