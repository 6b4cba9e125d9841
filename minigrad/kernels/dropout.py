"""Dropout (Srivastava et al. 2014, section 4) whose mask is computed where needed, never stored.

The mask is a counter-based generator (Salmon et al. 2011, "Parallel random numbers: as easy as
1, 2, 3"), so element i of it is the same on every platform and for every number of threads.
Its mixing step, once with each half of the seed, is lowbias32 (Wellons 2018, "Prospecting for Hash
Functions").
"""
from typing import NamedTuple

import numpy as np

from minigrad import formulas
from minigrad.kernels.compiler.compiling import C1, dense, kernel, stands_in_for, threads_for
from minigrad.kernels.compiler.lanes import fma
from minigrad.kernels.compiler.linking import serial
from minigrad.kernels.compiler.parallel import portion, share


class Mask(NamedTuple):
    """What a mask is computed from: both halves of the seed; the bound, which the 32 bits of an
    element that is kept reach; the number of the first element; and by what an element that is kept
    is multiplied."""
    low: int
    high: int
    bound: int
    first: int
    scale: float


def mask_of(p: float, seed: int, first: int) -> tuple[int, int, int, int, float]:
    """Return the fields of a `Mask`, for dropout with probability p.  (Numba takes Python's numbers
    faster than NumPy's.)"""
    return seed & 0xFFFFFFFF, seed >> 32, min(int(p * 2**32), 2**32 - 1), first, 1 / (1 - p)


@stands_in_for(formulas.dropout)
def dropout(x: np.ndarray, p: float, seed: int, residual: np.ndarray | None = None, first: int = 0
            ) -> np.ndarray:
    out = np.empty(x.shape, x.dtype)
    flat = dense(x).reshape(-1)
    dropout_kernel(flat, flat[:0] if residual is None else dense(residual).reshape(-1),
                   out.reshape(-1), *mask_of(p, seed, first), threads_for(x.size))
    return out


@kernel
def dropout_kernel(thread, threads, x: C1, residual: C1, out: C1, mask: Mask):
    first, real = share(x.size, thread, threads).start, x.dtype.type
    x, out = portion(x, thread, threads), portion(out, thread, threads)
    residual = portion(residual, thread, threads)
    if residual.size:
        for i in range(x.size):
            kept = x[i] if keeps(mask, first + i) else real(0)
            out[i] = fma(kept, real(mask.scale), residual[i])
    else:
        for i in range(x.size):
            out[i] = x[i] * real(mask.scale) if keeps(mask, first + i) else real(0)


@serial
def keeps(mask, i):
    """Whether element i is kept."""
    bits = mix(np.uint32(np.uint32(mask.first + i) ^ np.uint32(mask.low)))
    return mix(np.uint32(bits ^ np.uint32(mask.high))) >= np.uint32(mask.bound)


@serial
def mix(x):
    x = np.uint32((x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D))
    x = np.uint32((x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B))
    return np.uint32(x ^ (x >> np.uint32(16)))
