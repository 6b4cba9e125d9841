"""Matrix products, with further steps on each row of the product while it is still in the cache.

How it runs (Goto & van de Geijn 2008, "Anatomy of High-Performance Matrix Multiplication"): the
inner dimension is cut into depths of at most KC.  For each depth, B is packed into panels of NR
columns; one of them stays in the first-level cache.  The rows of A and C are cut into blocks, which
the threads share.  A block is processed in tiles of MR x NR, whose sums `tiles.micro_kernel` keeps
in registers.  Operands may be transposed: A is read where it lies, and B is packed anyway.
"""
import functools
from typing import NamedTuple

import numpy as np

from minigrad import formulas
from minigrad.formulas import GELU, RELU2
from minigrad.kernels.compiler.compiling import (A3, C1, C3, dense, kernel, stands_in_for,
                                                 threads_for, writable)
from minigrad.kernels.compiler.lanes import part
from minigrad.kernels.compiler.linking import allocating, serial
from minigrad.kernels.compiler.parallel import in_stages, on_threads
from minigrad.kernels.compiler.tiles import MR, NV, TILE_BYTES, micro_kernel, transpose_square
from minigrad.kernels.elementwise import activate, multiply_by_slope

KC = 384                # depth of a panel: KC x NR floats take 24 KB where vectors have 256 bits
BLOCK_PANELS = 16       # height of a block in units of MR; KC deep, it fits the second-level cache
PACKED_BYTES = 1 << 21  # of B at a time
# For `multiply`; each literal would compile its own version.
SET, ADD = np.bool_(False), np.bool_(True)


class Product(NamedTuple):
    """N products c = a @ b, and the steps after them, as `product` takes them; absent arrays are
    empty."""
    a: A3
    b: A3
    c: C3
    bias: C1
    slope_at: C3
    activated: C3
    activation: int


@stands_in_for(formulas.matmul)
def matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return product(a, b)


@stands_in_for(formulas.linear)
def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    return product(x, weight.T, bias)


def product(a: np.ndarray, b: np.ndarray, bias: np.ndarray | None = None,
            slope_at: np.ndarray | None = None, activated: np.ndarray | None = None,
            activation: int = GELU) -> np.ndarray:
    """Return a @ b + bias after the steps of an MLP.  Forward, the squared ReLU is applied, or the
    GELU is written to `activated`.  Back, with `slope_at`, which is what `formulas.mlp` keeps, the
    product is multiplied by the activation's derivative there."""
    c = np.empty(a.shape[:-1] + b.shape[-1:], a.dtype)
    if a.shape[-1] == 0:
        c[...] = 0
    if c.size == 0:
        return c
    no_rows, nothing = absent(a.dtype)
    stacks = [x[None] if x.ndim == 2 else x for x in (a, b, c)]
    after = [no_rows if x is None else dense(x).reshape(stacks[2].shape)
             for x in (slope_at, activated)]
    stacks[0] = writable(stacks[0]) if a.itemsize in a.strides[-2:] else dense(stacks[0])
    stacks[1] = writable(stacks[1])
    matmul_kernel(*stacks, nothing if bias is None else dense(bias), *after, activation,
                  threads_for(c.size * a.shape[-1] // 16, 1))
    return c


@functools.cache
def absent(dtype):
    """Return stand-ins for matrices, and for a bias, that are not given."""
    return np.empty((0, 0, 0), dtype), np.empty(0, dtype)


@kernel
def matmul_kernel(product: Product, threads: int):
    (N, M, K), P, dtype = product.a.shape, product.c.shape[2], product.c.dtype
    NR = TILE_BYTES // product.c.itemsize
    wide = (P + NR - 1) // NR                   # panels of B, of NR columns
    depth = max(1, (K + cuts(K) - 1) // cuts(K))
    together = min(cuts(K), max(1, PACKED_BYTES // (wide * depth * NR * product.c.itemsize)))
    packed = np.empty((together, wide, depth, NR), dtype)
    tall = (M + MR - 1) // MR                   # panels of A, of MR rows
    blocks = threads * ((tall + BLOCK_PANELS * threads - 1) // (BLOCK_PANELS * threads))
    stages = 2 * N * ((cuts(K) + together - 1) // together)
    begun, done = np.zeros((stages, blocks), np.int64), np.zeros(stages, np.int64)
    on_threads(threads, pack_and_multiply, begun, done, (product, packed))


@in_stages
@serial
def pack_and_multiply(block, blocks, stage, work):
    """Pack a share of B's panels, or compute a block of C from all of them."""
    product, packed = work
    M, K = product.a.shape[1:]
    together, wide, depth, NR = packed.shape
    groups = (cuts(K) + together - 1) // together
    n, begin = stage // 2 // groups, stage // 2 % groups * together * depth
    end = min(K, begin + together * depth)
    if stage % 2 == 0:
        first, last = block * wide // blocks, (block + 1) * wide // blocks
        for start in range(begin, end, depth):
            pack_columns(product.b[n, start:start + depth, first * NR:last * NR],
                         packed[(start - begin) // depth, first:last])
    else:
        tall = (M + MR - 1) // MR
        top, bottom = block * tall // blocks * MR, min(M, (block + 1) * tall // blocks * MR)
        for start in range(begin, end, depth):
            multiply(product.a[n, top:bottom, start:start + depth],
                     packed[(start - begin) // depth], product.c[n, top:bottom],
                     start > 0)
        if end == K:
            finish_rows(product, n, top, bottom)


@serial
def finish_rows(product, n, top, bottom):
    """Apply the further steps to some rows of product n."""
    bias, slope_at, activated = product.bias, product.slope_at, product.activated
    if product.activation == RELU2 or bias.size + slope_at.size + activated.size > 0:
        for i in range(top, bottom):        # the rows of an absent array are empty
            finish_row(product.c[n, i], bias, slope_at[n, i], activated[n, i], product.activation)


@serial
def finish_row(c, bias, slope_at, activated, activation):
    for j in range(bias.size):
        c[j] += bias[j]
    if slope_at.size:
        multiply_by_slope(c, slope_at, activation, activated)
    elif activation == RELU2:
        activate(c, activation, c)
    elif activated.size:
        activate(c, activation, activated)


@serial
def cuts(K):
    """Return the number of depths into which the inner dimension is cut."""
    return max(1, (K + KC - 1) // KC)


@serial
def pack_columns(b, packed):
    """Copy b (depth, P) into panels of NR columns: packed[panel, k, NR].  Columns after the last
    are zeros, as far as `multiply` reads them."""
    (depth, P), (_, room, NR) = b.shape, packed.shape
    lanes = NR // NV                                        # of a vector
    b_row, b_column = b.strides[0] // b.itemsize, b.strides[1] // b.itemsize
    for panel in range(len(packed)):
        left = panel * NR
        width = min(NR, P - left)
        if b_column == 1:
            for k in range(depth):
                copy_row(part(b, k * b_row + left, width),
                         part(packed, (panel * room + k) * NR, width))
        else:
            whole = width // lanes * lanes      # columns, and rows of them, that are full squares
            squares = depth // lanes * lanes if b_row == 1 else 0
            for j in range(0, whole, lanes):
                for k in range(0, squares, lanes):
                    transpose_square(b, k + (left + j) * b_column, b_column,
                                     packed, (panel * room + k) * NR + j, NR)
            for j in range(width):
                for k in range(squares if j < whole else 0, depth):
                    packed[panel, k, j] = b[k, left + j]
        for k in range(depth if width % lanes else 0):
            for j in range(width, (width + lanes - 1) // lanes * lanes):
                packed[panel, k, j] = 0


@allocating
def multiply(a, packed, c, add):
    """Compute c = a @ b, or c += a @ b, with b as packed by `pack_columns`.

    a (M, depth) has dense rows or columns; c (M or more, P) has dense rows.
    """
    (M, depth), P = a.shape, c.shape[1]
    a_row, a_column = a.strides[0] // a.itemsize, a.strides[1] // a.itemsize
    NR, size, c_row = packed.shape[2], packed.shape[1] * packed.shape[2], c.strides[0] // c.itemsize
    lanes = NR // NV
    for panel in range(len(packed)):
        left, b = panel * NR, part(packed, panel * size, size)
        width = min(NR, P - left)
        vectors = (width + lanes - 1) // lanes
        if width % lanes == 0:
            micro_kernel(a, a_row, a_column, b, size, part(c, left, 0), c_row, depth, add, M,
                         vectors)
        else:                                   # a whole vector would go beyond C's rows
            edge = np.empty((M, NR), c.dtype)
            corner = c[:, left:left + width]
            if add:
                copy(corner, edge)
            micro_kernel(a, a_row, a_column, b, size, part(edge, 0, 0), NR, depth, add, M, vectors)
            copy(edge, corner)


@serial
def copy_row(source, target):
    for i in range(source.size):
        target[i] = source[i]


@serial
def copy(source, target):
    """Copy the rows and columns that both matrices have from one to the other."""
    for y in range(min(len(source), len(target))):
        for x in range(min(source.shape[1], target.shape[1])):
            target[y, x] = source[y, x]
