"""Sums of the rows of a table, and the gradient.  In plain NumPy, for ids (N, n) and with
w = keep / (1 - p), where dropout keeps or leaves out whole rows,
    y = (w[..., None] * table[ids]).sum(1)
and back
    np.add.at(total, ids, w[..., None] * g[:, None])
"""
import numpy as np

from minigrad.kernels.build.compiling import dense, kernel, rows, serial, threads_for
from minigrad.kernels.build.lanes import fma
from minigrad.kernels.build.parallel import on_threads, share
from minigrad.kernels.dropout import keeps, seed_and_bound


def sum_rows(table: np.ndarray, ids: np.ndarray, p: float = 0.0, seed: int = 0) -> np.ndarray:
    """Return sums of n rows each, (V, C), (N, n) -> (N, C), with rows dropped as `dropout` drops
    elements."""
    out = np.empty((len(ids), table.shape[1]), table.dtype)
    sum_rows_kernel(dense(table), np.ascontiguousarray(ids), out, *seed_and_bound(p, seed),
                    1 / (1 - p), threads_for(ids.size * table.shape[1]))
    return out


@kernel("C2 ids2 C2 key key key double threads")
def sum_rows_kernel(table, ids, out, low, high, bound, scale, threads):
    on_threads(threads, sums_of_rows, table, ids, out, low, high, bound, scale)


@serial
def sums_of_rows(thread, threads, table, ids, out, low, high, bound, scale):
    n, factor = ids.shape[1], table.dtype.type(scale)
    for r in share(len(ids), thread, threads):
        into = out[r]
        into[:] = 0
        for i in range(n):
            if keeps(low, high, bound, r * n + i):
                row = table[ids[r, i]]
                for c in range(row.size):
                    into[c] += row[c]
        for c in range(into.size):
            into[c] *= factor


def add_rows(total: np.ndarray, ids: np.ndarray, g: np.ndarray, p: float = 0.0, seed: int = 0
             ) -> None:
    """Add g[r] to total[ids[r, i]] for every r and i, repeated ids too, except dropped rows:
    (V, C), (N, n), (N, C)."""
    if ids.size:
        add_rows_kernel(total, np.ascontiguousarray(ids), rows(g), *seed_and_bound(p, seed),
                        1 / (1 - p), threads_for(ids.size * g.shape[1]))


@kernel("C2 ids2 C2 key key key double threads")
def add_rows_kernel(total, ids, g, low, high, bound, scale, threads):
    on_threads(threads, add_rows_of_thread, total, ids, g, low, high, bound, scale)


@serial
def add_rows_of_thread(thread, threads, total, ids, g, low, high, bound, scale):
    """Each thread has rows of its own, so no two write to the same row."""
    n, factor = ids.shape[1], g.dtype.type(scale)
    for r in range(len(ids)):
        row = g[r]
        for i in range(n):
            at = ids[r, i]
            if at % threads == thread and keeps(low, high, bound, r * n + i):
                into = total[at]
                for c in range(row.size):
                    into[c] = fma(factor, row[c], into[c])
