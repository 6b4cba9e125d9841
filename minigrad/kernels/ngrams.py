"""The rows of a table that belong to the n-grams that end at each character of a sequence.

The hash is Fowler, Noll & Vo's FNV-1a of 64 bits, folded, over the characters of an n-gram from the
last to the first.  Characters before the sequence count as 0, and id i as i + 1.
"""
import math

import numpy as np

from minigrad.kernels.build.compiling import kernel
from minigrad.kernels.plain import FNV_BASIS, FNV_PRIME, FOLD


def ngram_rows(ids: np.ndarray, n: int, count: int) -> np.ndarray:
    """Return a row below `count` for each n-gram, from pairs on: (..., T) -> (..., T, n - 1)."""
    found = np.empty((*ids.shape, n - 1), np.int64)
    flat = np.ascontiguousarray(ids, np.int64).reshape(math.prod(ids.shape[:-1]), ids.shape[-1])
    ngram_rows_kernel(flat, count, found.reshape(*flat.shape, n - 1))
    return found


@kernel("ids2 int I3")
def ngram_rows_kernel(ids, count, found):
    N, T, longest = found.shape
    for s in range(N):
        for t in range(T):
            state = (FNV_BASIS ^ np.uint64(ids[s, t] + 1)) * FNV_PRIME
            for back in range(1, longest + 1):
                before = np.uint64(ids[s, t - back] + 1) if back <= t else np.uint64(0)
                state = (state ^ before) * FNV_PRIME
                found[s, t, back - 1] = np.int64((state ^ state >> FOLD) % np.uint64(count))
