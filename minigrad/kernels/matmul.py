"""Matrix products, with further steps on each row of the product while it is still in the cache.

How it runs (Goto & van de Geijn 2008, "Anatomy of High-Performance Matrix Multiplication"): the
inner dimension is cut into depths of at most KC.  For each depth, B is packed into panels of NR
columns; one of them stays in the first-level cache.  The rows of A and C are cut into blocks, which
the threads share; or they share the panels of a B that is larger than A, so that each packs what it
reads.  A block is processed in tiles of MR x NR, whose sums `tiles.micro_kernel` keeps in
registers.  Operands may be transposed: A is read where it lies, and B is packed anyway.
"""
import functools
import math
from typing import NamedTuple

import numpy as np

from minigrad import formulas
from minigrad.kernels.compiler.compiling import (A3, C1, C3, dense, kernel, stands_in_for,
                                                 threads_for, writable)
from minigrad.kernels.compiler.lanes import part
from minigrad.kernels.compiler.linking import allocating, serial
from minigrad.kernels.compiler.parallel import in_stages, on_threads, share
from minigrad.kernels.compiler.tiles import MR, NV, TILE_BYTES, micro_kernel, transpose_square
from minigrad.kernels.elementwise import GELU, RELU2, activate, multiply_by_slope

KC = 384                # depth of a panel: KC x NR floats take 24 KB where vectors have 256 bits
BLOCK_PANELS = 16       # height of a block in units of MR; KC deep, it fits the second-level cache
PACKED_BYTES = 1 << 21  # of B at a time
# For `multiply`; each literal would compile its own version.
SET = np.bool_(False)
ADD = np.bool_(True)


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
def matmul(a, b):
    if b.ndim == 2:
        return product(a, b)
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = [np.broadcast_to(x, (*lead, *x.shape[-2:])).reshape(math.prod(lead), *x.shape[-2:])
            for x in (a, b)]
    c = product(a, b)                                           # (N, M, P)
    return c.reshape(*lead, *c.shape[1:])


@stands_in_for(formulas.linear)
def linear(x, weight, bias):
    return product(x, weight.T, bias)


def product(a: np.ndarray, b: np.ndarray, bias: np.ndarray | None = None,
            slope_at: np.ndarray | None = None, activated: np.ndarray | None = None,
            activation: int = GELU) -> np.ndarray:
    """Return a @ b + bias after the steps of an MLP, (..., K), (K, P) -> (..., P), or of stacks,
    (N, M, K), (N, K, P) -> (N, M, P).  Forward, the squared ReLU is applied, or the
    GELU is written to `activated`.  Back, with `slope_at`, which is what `formulas.mlp` keeps, the
    product is multiplied by the activation's derivative there."""
    *lead, K = a.shape
    P = b.shape[-1]
    c = np.empty((*lead, P), a.dtype)
    if K == 0:
        c[...] = 0
    if c.size == 0:
        return c
    no_rows, no_bias = absent(a.dtype)
    if b.ndim == 2:
        a = formulas.rows(a)[None]
        b = b[None]
    N, M, _ = a.shape
    has_dense_axis = a.itemsize in a.strides[1:]
    matmul_kernel(
        writable(a) if has_dense_axis else dense(a),
        writable(b),
        c.reshape(N, M, P),
        no_bias if bias is None else dense(bias),
        no_rows if slope_at is None else dense(slope_at).reshape(N, M, P),
        no_rows if activated is None else dense(activated).reshape(N, M, P),
        activation,
        threads_for(c.size * K // 16, 1))
    return c


@functools.cache
def absent(dtype):
    """Return stand-ins for matrices, and for a bias, that are not given."""
    return np.empty((0, 0, 0), dtype), np.empty(0, dtype)


@kernel
@allocating
def matmul_kernel(product: Product, threads: int):
    N, M, K = product.a.shape
    P = product.c.shape[2]
    itemsize = product.c.itemsize
    NR = TILE_BYTES // itemsize
    wide = ceil_div(P, NR)                      # panels of B, of NR columns
    depth = max(1, ceil_div(K, cuts(K)))
    together = min(cuts(K), max(1, PACKED_BYTES // (wide * depth * NR * itemsize)))
    packed = np.empty((together, wide, depth, NR), product.c.dtype)
    tall = ceil_div(M, MR)                      # panels of A, of MR rows
    by_columns = shares_columns(product, wide, threads)
    blocks = threads
    if not by_columns:
        blocks *= ceil_div(tall, BLOCK_PANELS * threads)
    stages = 2 * N * ceil_div(cuts(K), together)
    begun = np.zeros((stages, blocks), np.int64)
    done = np.zeros(stages, np.int64)
    on_threads(threads, pack_and_multiply, begun, done, (product, packed, by_columns))


@in_stages
@serial
def pack_and_multiply(block, blocks, stage, work):
    """Pack a share of B's panels, or compute a block of C, rows of it or the columns of that share:
    stages take turns."""
    product, packed, by_columns = work
    _, M, K = product.a.shape
    P = product.c.shape[2]
    together, wide, depth, NR = packed.shape
    rounds = ceil_div(cuts(K), together)        # of two stages, for each of the N products
    n = stage // 2 // rounds
    begin = stage // 2 % rounds * together * depth
    end = min(K, begin + together * depth)
    packs = stage % 2 == 0
    panels = share(wide, block, blocks)
    top = 0
    bottom = M
    if not (packs or by_columns):
        panels = range(wide)
        tall = share(ceil_div(M, MR), block, blocks)
        top = tall.start * MR
        bottom = min(M, tall.stop * MR)
    left = panels.start * NR
    right = min(P, panels.stop * NR)
    height = BLOCK_PANELS * MR
    for start in range(begin, end, depth):
        cut = slice(start, start + depth)
        b = packed[(start - begin) // depth, panels.start:panels.stop]
        if packs:
            pack_columns(product.b[n, cut, left:right], b)
            continue
        for row in range(top, bottom, height):
            rows = slice(row, min(bottom, row + height))
            multiply(product.a[n, rows, cut], b, product.c[n, rows, left:right], start > 0)
    if end == K and not packs:
        finish_rows(product, n, top, bottom)


@serial
def shares_columns(product, wide, threads):
    """Whether threads share the panels of B, and not the rows of A: if B is larger, the shares are
    alike, and no further step needs whole rows."""
    _, M, P = product.c.shape
    alike = wide % threads == 0 or wide >= 4 * threads
    return P >= M and alike and not goes_on(product)


@serial
def goes_on(product):
    """Whether there are further steps after the product."""
    given = product.bias.size + product.slope_at.size + product.activated.size
    return product.activation == RELU2 or given > 0


@serial
def finish_rows(product, n, top, bottom):
    """Apply the further steps to some rows of product n."""
    if goes_on(product):
        for i in range(top, bottom):        # the rows of an absent array are empty
            finish_row(product.c[n, i], product.bias, product.slope_at[n, i],
                       product.activated[n, i], product.activation)


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
    return max(1, ceil_div(K, KC))


@serial
def ceil_div(n, size):
    """Return how many pieces of a size n needs, where the last may be shorter."""
    return (n + size - 1) // size


@serial
def pack_columns(b, packed):
    """Copy b (depth, P) into panels of NR columns: packed[panel, k, NR].  Columns after the last
    are zeros, as far as `multiply` reads them."""
    depth, P = b.shape
    _, room, NR = packed.shape
    lanes = NR // NV                            # of a vector
    b_row = b.strides[0] // b.itemsize
    b_column = b.strides[1] // b.itemsize
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
        filled = (width + lanes - 1) // lanes * lanes
        for k in range(depth if width < filled else 0):
            for j in range(width, filled):
                packed[panel, k, j] = 0


@allocating
def multiply(a, packed, c, add):
    """Compute c = a @ b, or c += a @ b, with b as packed by `pack_columns`.

    a (M, depth) has dense rows or columns; c (M or more, P) has dense rows.
    """
    M, depth = a.shape
    P = c.shape[1]
    panels, room, NR = packed.shape
    lanes = NR // NV
    size = room * NR                            # of a panel
    a_row = a.strides[0] // a.itemsize
    a_column = a.strides[1] // a.itemsize
    c_row = c.strides[0] // c.itemsize
    for panel in range(panels):
        left = panel * NR
        width = min(NR, P - left)
        vectors = ceil_div(width, lanes)
        b = part(packed, panel * size, size)
        if width % lanes == 0:
            micro_kernel(a, a_row, a_column, b, size, part(c, left, 0), c_row, depth, add, M,
                         vectors)
        else:                                   # a whole vector would go beyond C's rows
            edge = np.empty((M, NR), c.dtype)
            corner = c[:, left:]
            if add:
                copy(corner, edge, M, width)
            micro_kernel(a, a_row, a_column, b, size, part(edge, 0, 0), NR, depth, add, M, vectors)
            copy(edge, corner, M, width)


@serial
def copy_row(source, target):
    for i in range(source.size):
        target[i] = source[i]


@serial
def copy(source, target, rows, columns):
    for y in range(rows):
        for x in range(columns):
            target[y, x] = source[y, x]
