"""Matrix products.  In plain NumPy:  c = a @ b,  or  c += a @ b,  for each of a batch.

How it runs (Goto & van de Geijn 2008, "Anatomy of High-Performance Matrix Multiplication"): the
inner dimension is cut into blocks of at most KC; of each, B is packed into panels of NR columns, of
which one stays in the first-level cache; the rows of A and C are cut into blocks, which threads
share out; and a block is walked in tiles of MR x NR, whose sums `simd.micro_kernel` keeps in
registers.  Operands may have any strides, so a transpose costs nothing but the packing; ragged
edges are padded with zeros in the panels.
"""
import numpy as np
from numba import prange

from minigrad.kernels.compiling import kernel, serial, threads_for, writable
from minigrad.kernels.simd import MR, TILE_BYTES, micro_kernel

KC = 384            # depth of a panel: KC x NR floats take 24 KB where vectors have 256 bits
BLOCK_PANELS = 16   # height of a block in units of MR; KC deep, it fits the second-level cache
# For `multiply`; as literals, each would compile a version of its own.
SET, ADD = np.bool_(False), np.bool_(True)


def matmul(a: np.ndarray, b: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """(N, M, K) @ (N, K, P) -> (N, M, P), or (M, K) @ (K, P) -> (M, P); added to `out` if given."""
    add = out is not None
    if not add:
        out = np.empty(a.shape[:-1] + b.shape[-1:], a.dtype)
    batch = (lambda x: x[None]) if a.ndim == 2 else (lambda x: x)
    if a.shape[-1] == 0:
        out[...] = out if add else 0
    elif out.size:
        matmul_kernel(batch(writable(a)), batch(writable(b)), batch(out), add,
                      threads_for(out.size * a.shape[-1] // 16))
    return out


@kernel("A3 A3 A3 bool threads")
def matmul_kernel(a, b, c, add, threads):
    N, M, K = a.shape
    P = b.shape[2]
    NR = TILE_BYTES // c.itemsize
    wide = (P + NR - 1) // NR                   # panels of B, of NR columns
    tall = (M + MR - 1) // MR                   # panels of A, of MR rows
    cuts = (K + KC - 1) // KC
    depth = (K + cuts - 1) // cuts
    blocks = threads * ((tall + BLOCK_PANELS * threads - 1) // (BLOCK_PANELS * threads))
    packed = np.empty((wide, depth, NR), c.dtype)
    for n in range(N):
        for start in range(0, K, depth):
            stop = min(K, start + depth)
            for t in prange(threads):
                first, last = t * wide // threads, (t + 1) * wide // threads
                pack_columns(b[n, start:stop, first * NR:last * NR], packed[first:last])
            for block in prange(blocks):
                top, bottom = block * tall // blocks * MR, (block + 1) * tall // blocks * MR
                multiply(a[n, top:bottom, start:stop], packed, c[n, top:bottom], add or start > 0)


@serial
def pack_columns(b, packed):
    """Copy b (depth, P) into panels of NR columns: packed[panel, k, NR]."""
    depth, P = b.shape
    NR = TILE_BYTES // b.itemsize
    for panel in range((P + NR - 1) // NR):
        left = panel * NR
        for k in range(depth):
            row = packed[panel, k]
            if left + NR <= P:
                for j in range(NR):             # a constant width, so that it is unrolled
                    row[j] = b[k, left + j]
            else:
                row[:] = 0
                for j in range(P - left):
                    row[j] = b[k, left + j]


@serial
def pack_rows(a, packed):
    """Copy a (M, depth) into panels of MR rows: packed[panel, k, MR]."""
    M, depth = a.shape
    for panel in range((M + MR - 1) // MR):
        top = panel * MR
        for k in range(depth):
            column = packed[panel, k]
            if top + MR <= M:
                for i in range(MR):             # a constant height, so that it is unrolled
                    column[i] = a[top + i, k]
            else:
                column[:] = 0
                for i in range(M - top):
                    column[i] = a[top + i, k]


@serial
def multiply(a, packed, c, add):
    """c = a @ b, or c += a @ b, with b as `pack_columns` left it.

    a (M, depth) may have any strides; c (M, P) has dense rows.
    """
    M, depth = a.shape
    P = c.shape[1]
    NR = TILE_BYTES // c.itemsize
    a_row, c_row = a.strides[0] // a.itemsize, c.strides[0] // c.itemsize
    panel_size = packed.shape[1] * NR
    tall = (M + MR - 1) // MR
    # Rows that are dense are read where they lie; what is transposed or ragged is packed first.
    direct = M // MR if a.strides[1] == a.itemsize else 0
    packed_a = np.empty((tall - direct, depth, MR), c.dtype)
    pack_rows(a[direct * MR:], packed_a)
    edge = np.zeros((MR, NR), c.dtype)
    for j in range((P + NR - 1) // NR):
        for i in range(tall):
            height, width = min(MR, M - i * MR), min(NR, P - j * NR)
            if height == MR and width == NR:
                at = i * MR * c_row + j * NR
                if i < direct:
                    micro_kernel(a, i * MR * a_row, a_row, 1, packed, j * panel_size,
                                 c, at, c_row, depth, add)
                else:
                    micro_kernel(packed_a, (i - direct) * depth * MR, 1, MR, packed, j * panel_size,
                                 c, at, c_row, depth, add)
            else:       # by a whole tile aside, so that a row's bits do not depend on its place
                corner = c[i * MR:i * MR + height, j * NR:j * NR + width]
                if add:
                    copy(corner, edge, height, width)
                if i < direct:
                    micro_kernel(a, i * MR * a_row, a_row, 1, packed, j * panel_size,
                                 edge, 0, NR, depth, add)
                else:
                    micro_kernel(packed_a, (i - direct) * depth * MR, 1, MR, packed, j * panel_size,
                                 edge, 0, NR, depth, add)
                copy(edge, corner, height, width)


@serial
def copy(source, target, height, width):
    """The first rows and columns of a matrix into another."""
    for y in range(height):
        for x in range(width):
            target[y, x] = source[y, x]
