"""Sums of the rows of a table, where dropout may leave out whole rows; and, for decoding, the rows
that belong to the n-grams that end at a character.  (`formulas.ngram_rows` finds those of a batch.)
"""
import numpy as np

from minigrad import formulas
from minigrad.formulas import FNV_BASIS, FNV_PRIME
from minigrad.kernels.compiler.compiling import (C2, IDS2, dense, kernel, rows, stands_in_for,
                                                 threads_for)
from minigrad.kernels.compiler.lanes import LANES, fma, load, part, spread, store
from minigrad.kernels.compiler.linking import inlined, serial
from minigrad.kernels.compiler.parallel import share
from minigrad.kernels.elementwise import Mask, keeps, mask_of

FOLD = np.uint64(32)


@stands_in_for(formulas.sum_rows)
def sum_rows(table, ids, drop):
    check_ids(ids, table)
    C = table.shape[1]
    out = np.empty((*ids.shape[:-1], C), table.dtype)
    sum_rows_kernel(
        dense(table),
        rows(ids),
        rows(out),
        *mask_of(drop),
        threads_for(ids.size * C // 8))
    return out


def check_ids(ids: np.ndarray, table: np.ndarray) -> None:
    """Raise an IndexError if there is no row for an id."""
    unsigned = ids.view(np.uint64)      # in which a number below 0 is a large one
    if ids.size and unsigned.item(unsigned.argmax()) >= len(table):
        raise IndexError(f"ids lie from {ids.min()} to {ids.max()}, and the table has "
                         f"{len(table)} rows")


@kernel
def sum_rows_kernel(thread, threads, table: C2, ids: IDS2, out: C2, mask: Mask):
    R, n = ids.shape
    C = table.shape[1]
    scale = table.dtype.type(mask.scale)
    for r in share(R, thread, threads):
        into = part(out, r * C, C)
        if mask.bound == 0:
            sum_whole_rows(
                table,
                ids[r],
                scale,
                into)
            continue
        into[:] = 0
        for i in range(n):
            if keeps(mask, r * n + i):
                add_row(part(table, ids[r, i] * C, C), into)
        for c in range(C):
            into[c] *= scale


@inlined
def sum_whole_rows(table, ids, scale, out):
    """Write the scaled sum of some rows of a table.  The sums of LANES channels stay in registers,
    and the processor waits for all rows at once."""
    C = out.size
    for c in range(0, C, LANES):
        sums = spread(table.dtype.type(0))
        for i in ids:
            sums += load(part(table, i * C, C), c, 0)
        store(out, c, sums * scale)


@serial
def add_row(added, row):
    for c in range(row.size):
        row[c] += added[c]


@stands_in_for(formulas.add_rows)
def add_rows(total, ids, g, drop):
    check_ids(ids, total)
    C = total.shape[1]
    if g.shape != (*ids.shape[:-1], C):
        raise ValueError(f"{list(g.shape)} cannot be added to rows of {list(total.shape)} for "
                         f"ids of {list(ids.shape)}")
    add_rows_kernel(
        total,
        rows(ids),
        rows(g),
        *mask_of(drop),
        threads_for(ids.size * C // 8, 1))


@kernel
def add_rows_kernel(thread, threads, total: C2, ids: IDS2, g: C2, mask: Mask):
    """Each thread has rows of its own, so no two write to the same row."""
    R, n = ids.shape
    C = g.shape[1]
    scale = g.dtype.type(mask.scale)
    for r in range(R):
        row = part(g, r * C, C)
        for i in range(n):
            at = ids[r, i]
            if at % threads == thread and keeps(mask, r * n + i):
                into = part(total, at * C, C)
                for c in range(C):
                    into[c] = fma(scale, row[c], into[c])


@serial
def rows_at(ids, t, count, out):
    """Write the rows of the n-grams that end at place t of a sequence."""
    state = (FNV_BASIS ^ np.uint64(ids[t] + 1)) * FNV_PRIME
    for back in range(1, out.size + 1):
        before = np.uint64(ids[t - back] + 1) if back <= t else np.uint64(0)
        state = (state ^ before) * FNV_PRIME
        folded = state ^ state >> FOLD
        out[back - 1] = np.int64(folded % np.uint64(count))
