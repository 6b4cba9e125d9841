"""The gradient of looking rows up.  In plain NumPy:  np.add.at(total, ids, g)."""
import numpy as np
from numba import prange

from minigrad.kernels.compiling import kernel, rows, threads_for


def add_rows(total: np.ndarray, ids: np.ndarray, g: np.ndarray) -> None:
    """total[ids[n]] += g[n] for every n, repeated ids too: (V, C), (N,), (N, C)."""
    if g.size:
        add_rows_kernel(total, ids, rows(g), threads_for(g.size))


@kernel("C2 ids1 C2 threads")
def add_rows_kernel(total, ids, g, threads):
    C = total.shape[1]
    for t in prange(threads):       # each has columns of its own, so no two write to one place
        first, last = t * C // threads, (t + 1) * C // threads
        for n in range(ids.size):
            into, row = total[ids[n]], g[n]
            for c in range(first, last):
                into[c] += row[c]
