"""Products with a frozen, packed weight: y = x W^T, and back dx = g W.

Forward, pieces of W's panels are unpacked for the tiles, as when a prompt is read (`decoding`).

Back, the inner dimension is that of W's rows, which lie side by side in a panel.  So a thread has
some columns of dx, a unit of them at a time.  For as many panels as `matmul` takes for a depth, it
unpacks those columns of W and transposes them into panels of its own, which it then multiplies.
The sums have the order of `matmul`, and the same bits.
"""
from typing import NamedTuple

import numpy as np

from minigrad import packed
from minigrad.kernels.compiler.compiling import C2, I2, kernel, rows, stands_in_for, threads_for
from minigrad.kernels.compiler.linking import allocating, serial
from minigrad.kernels.compiler.parallel import on_threads, share
from minigrad.kernels.compiler.tiles import MR, TILE_BYTES
from minigrad.kernels.decoding import multiply as multiply_unpacked
from minigrad.kernels.decoding import part_with, rows_of
from minigrad.kernels.matmul import BLOCK_PANELS, KC, ceil_div, multiply, pack_columns
from minigrad.kernels.packed import PANELS, UNPACK, call_packed, rows_of_table

NR = TILE_BYTES // 4            # rows of W in a panel
UNIT = max(NR, 64)              # columns of W: whole blocks, and whole panels of dx
DEPTH = max(1, KC // NR) * NR   # rows of W that are unpacked at a time


class Frozen(NamedTuple):
    """A table of the parts of a packed matrix, as `decoding.Weights` has it of many; no gains."""
    gains: C2
    matrices: I2


@stands_in_for(packed.product)
def product(x, weight):
    if x.dtype != np.float32:
        return packed.product.plain(x, weight)
    frozen = table_of(weight)
    P, K = weight.shape
    y = np.empty((*x.shape[:-1], frozen.matrices[0, PANELS] * NR), np.float32)
    if y.size:
        product_kernel(*frozen, rows(x), rows(y), threads_for(y.size * K // 16, 1))
    return y[..., :P]


def table_of(weight: packed.Packed) -> Frozen:
    """Return the table of a matrix, whose panels live as long as it does."""
    rows = rows_of_table(weight, NR, bias=0, following=1)
    return Frozen(np.empty((0, 0), np.float32), np.array(rows))


@kernel
@allocating
def product_kernel(frozen: Frozen, x: C2, y: C2, threads: int):
    unpacked = np.empty((threads, KC * NR), x.dtype)
    on_threads(threads, multiply_part, frozen, x, y, unpacked)


@serial
def multiply_part(thread, threads, frozen, x, y, unpacked):
    """Write a thread's columns of y."""
    multiply_unpacked(x, frozen, 0, y, 0, unpacked[thread], thread, threads)


@stands_in_for(packed.product_vjp)
def product_vjp(g, weight):
    if g.dtype != np.float32:
        return packed.product_vjp.plain(g, weight)
    frozen = table_of(weight)
    P, K = weight.shape
    dx = np.empty((*g.shape[:-1], K), np.float32)
    if dx.size:
        product_vjp_kernel(*frozen, rows(g), rows(dx), threads_for(dx.size * P // 16, 1))
    return dx


@kernel
@allocating
def product_vjp_kernel(frozen: Frozen, g: C2, dx: C2, threads: int):
    unpacked = np.empty((threads, UNIT, NR), g.dtype)
    transposed = np.empty((threads, UNIT // NR, DEPTH, NR), g.dtype)
    on_threads(threads, product_vjp_part, frozen, g, dx, unpacked, transposed)


@allocating
def product_vjp_part(thread, threads, frozen, g, dx, unpacked, transposed):
    """Write a thread's columns of dx."""
    M, P = g.shape
    K = dx.shape[1]
    height = BLOCK_PANELS * MR
    for unit in share(ceil_div(K, UNIT), thread, threads):
        left = unit * UNIT
        right = min(K, left + UNIT)
        for begin in range(0, P, DEPTH):
            end = min(P, begin + DEPTH)
            for panel in range(begin // NR, ceil_div(end, NR)):
                transpose_piece(frozen, panel, left, right - left, unpacked[thread],
                                transposed[thread, :, panel * NR - begin:])
            for top in range(0, M, height):
                bottom = min(M, top + height)
                multiply(g[top:bottom, begin:end], transposed[thread], dx[top:bottom, left:right],
                         begin > 0)


@serial
def transpose_piece(frozen, panel, left, count, unpacked, transposed):
    """Unpack the columns of NR rows of W from `left` on, and write them to `transposed`, whose
    panels have NR columns: [n / NR, row, n % NR]."""
    matrix = part_with(frozen, 0, panel)
    blocks = rows_of(frozen, matrix, panel, left)
    call_packed(frozen.matrices, matrix, UNPACK, blocks, blocks, unpacked, count)
    for n in range(0, count, NR):
        width = min(NR, count - n)
        pack_columns(unpacked[n:n + width].T, transposed[n // NR:n // NR + 1, :NR])
