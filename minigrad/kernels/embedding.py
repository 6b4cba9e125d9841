"""Sums of the rows of a table, where dropout may leave out whole rows; and the rows that belong to
the n-grams that end at each character of a sequence.
"""
import numpy as np

from minigrad.kernels.build.compiling import dense, instead_of, kernel, rows, serial, threads_for
from minigrad.kernels.build.lanes import LANES, fma, load, spread, store
from minigrad.kernels.build.parallel import on_threads, share
from minigrad.kernels.build.simd import part
from minigrad.kernels.build.tiles import prefetch
from minigrad.kernels.dropout import keeps, mask_of, plain_keep

FNV_BASIS, FNV_PRIME = np.uint64(0xcbf29ce484222325), np.uint64(0x100000001b3)
FOLD = np.uint64(32)
AHEAD = 2       # rows are prefetched so many sums before their own


def plain_sum_rows(table, ids, p=0.0, seed=0, first=0):
    if (ids < 0).any():
        raise IndexError("an id is below 0")
    kept = plain_keep(ids.size, p, seed, first).reshape(*ids.shape, 1)
    return np.where(kept, table[ids], 0).sum(axis=1, dtype=table.dtype) * (1 / (1 - p))


@instead_of(plain_sum_rows)
def sum_rows(table: np.ndarray, ids: np.ndarray, p: float = 0.0, seed: int = 0, first: int = 0
             ) -> np.ndarray:
    """Return sums of n rows each, (V, C), (N, n) -> (N, C), with rows dropped as `dropout` drops
    elements, from number `first` on.  Raise an IndexError if there is no such row."""
    out = np.empty((len(ids), table.shape[1]), table.dtype)
    sum_rows_kernel(dense(table), np.ascontiguousarray(ids), out, *mask_of(p, seed, first),
                    1 / (1 - p), threads_for(ids.size * table.shape[1] // 8))
    return out


@kernel("C2 ids2 C2 key key key int double threads")
def sum_rows_kernel(table, ids, out, low, high, bound, first, scale, threads):
    for r in range(len(ids)):
        for i in range(ids.shape[1]):
            if not 0 <= ids[r, i] < len(table):
                raise IndexError("there is no such row")
    on_threads(threads, sums_of_rows, table, ids, out, low, high, bound, first, scale)


@serial
def sums_of_rows(thread, threads, table, ids, out, low, high, bound, first, scale):
    R, C, real = len(ids), table.shape[1], table.dtype.type
    found = np.empty(ids.shape[1], np.int64)
    for r in share(R, thread, threads):
        if r + AHEAD < R:       # rows lie anywhere in the table
            for i in range(kept_rows(ids, r + AHEAD, low, high, bound, first, found)):
                for c in range(0, C, LANES):
                    prefetch(table, found[i] * C + c)
        count, into = kept_rows(ids, r, low, high, bound, first, found), part(out, r * C, C)
        for c in range(0, C, LANES):
            sums = spread(real(0))
            for i in range(count):
                sums += load(part(table, found[i] * C, C), c, 0)
            store(into, c, sums * real(scale))


@serial
def kept_rows(ids, r, low, high, bound, first, found):
    """Write which rows sum r has, but dropped ones, to `found`; return their number."""
    count, n = 0, ids.shape[1]
    for i in range(n):
        if bound == 0 or keeps(low, high, bound, first + r * n + i):
            found[count] = ids[r, i]
            count += 1
    return count


def plain_add_rows(total, ids, g, p=0.0, seed=0, first=0):
    of, at = np.nonzero(plain_keep(ids.size, p, seed, first).reshape(ids.shape))
    np.add.at(total, ids[of, at], g[of] * (1 / (1 - p)))


@instead_of(plain_add_rows)
def add_rows(total: np.ndarray, ids: np.ndarray, g: np.ndarray, p: float = 0.0, seed: int = 0,
             first: int = 0) -> None:
    """Add g[r] to total[ids[r, i]] for every r and i, repeated ids too, except dropped rows, which
    are numbered from `first` on: (V, C), (N, n), (N, C)."""
    if ids.size:
        add_rows_kernel(total, np.ascontiguousarray(ids), rows(g), *mask_of(p, seed, first),
                        1 / (1 - p), threads_for(ids.size * g.shape[1] // 8))


@kernel("C2 ids2 C2 key key key int double threads")
def add_rows_kernel(total, ids, g, low, high, bound, first, scale, threads):
    on_threads(threads, add_rows_of_thread, total, ids, g, low, high, bound, first, scale)


@serial
def add_rows_of_thread(thread, threads, total, ids, g, low, high, bound, first, scale):
    """Each thread has rows of its own, so no two write to the same row."""
    (R, n), C, factor = ids.shape, g.shape[1], g.dtype.type(scale)
    for r in range(R):
        row = part(g, r * C, C)
        for i in range(n):
            at = ids[r, i]
            if at % threads == thread and keeps(low, high, bound, first + r * n + i):
                into = part(total, at * C, C)
                for c in range(C):
                    into[c] = fma(factor, row[c], into[c])


def plain_ngram_rows(ids, n, count):
    T = ids.shape[-1]
    begun = np.zeros((*ids.shape[:-1], n - 1 + T), np.uint64)
    begun[..., n - 1:] = ids.astype(np.uint64) + np.uint64(1)
    found, state = [], FNV_BASIS
    for back in range(n):
        state = (state ^ begun[..., n - 1 - back:n - 1 - back + T]) * FNV_PRIME
        found.append(state)                                     # of back + 1 characters
    states = np.stack(found[1:], axis=-1)
    return ((states ^ states >> FOLD) % np.uint64(count)).astype(np.int64)


@instead_of(plain_ngram_rows)
def ngram_rows(ids: np.ndarray, n: int, count: int) -> np.ndarray:
    """Return a row below `count` for each n-gram, from pairs on: (..., T) -> (..., T, n - 1).

    The hash is Fowler, Noll & Vo's FNV-1a of 64 bits, folded, over the characters of an n-gram from
    the last to the first.  Characters before the sequence count as 0, and id i as i + 1.
    """
    found = np.empty((*ids.shape, n - 1), np.int64)
    flat = rows(np.ascontiguousarray(ids, np.int64))
    ngram_rows_kernel(flat, count, found.reshape(*flat.shape, n - 1))
    return found


@kernel("ids2 int I3")
def ngram_rows_kernel(ids, count, found):
    for s in range(len(ids)):
        for t in range(ids.shape[1]):
            rows_at(ids[s], t, count, found[s, t])


@serial
def rows_at(ids, t, count, found):
    """Write the rows of the n-grams that end at place t of a sequence."""
    state = (FNV_BASIS ^ np.uint64(ids[t] + 1)) * FNV_PRIME
    for back in range(1, found.size + 1):
        before = np.uint64(ids[t - back] + 1) if back <= t else np.uint64(0)
        state = (state ^ before) * FNV_PRIME
        found[back - 1] = np.int64((state ^ state >> FOLD) % np.uint64(count))
