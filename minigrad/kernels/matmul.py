"""Matrix products, with further steps on each row of the product while it is still in the cache.

How it runs (Goto & van de Geijn 2008, "Anatomy of High-Performance Matrix Multiplication"): the
inner dimension is cut into depths of at most KC.  For each depth, B is packed into panels of NR
columns; one of them stays in the first-level cache.  The rows of A and C are cut into blocks, which
the threads share; or they share the panels of a B that is larger than A, so that each packs what it
reads, a block of columns at a time.  A block is processed in tiles of MR x NR, whose sums
`tiles.micro_kernel` keeps in registers.  Operands may be transposed.  B is packed anyway, and A is
read where it lies if its rows are dense.  If its columns are, and far apart, it is packed, too, in
panels of MR rows: columns that are a power of two apart would share a few places of the cache.
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
from minigrad.kernels.compiler.tiles import (COLUMNS, COPIED, MR, NV, TILE_BYTES,
                                             copy_tile_columns, copy_tile_row, micro_kernel,
                                             transpose_square)
from minigrad.kernels.elementwise import GELU, RELU2, activate, multiply_by_slope

KC = 384                # depth of a panel: KC x NR floats take 24 KB where vectors have 256 bits
BLOCK_PANELS = 16       # height of a block in units of MR; KC deep, it fits the second-level cache
PACKED_BYTES = 1 << 21  # of an operand at a time
BLOCK_COLUMNS = 512     # bytes of a row of B that are packed at a time, if its panels are shared
LINE = 64               # bytes of a line of the cache
FAR = 4 * LINE          # from a column of A to the next
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
    itemsize = product.c.itemsize
    NR = TILE_BYTES // itemsize
    tall = ceil_div(M, MR)                      # panels of A, of MR rows
    wide = ceil_div(product.c.shape[2], NR)     # panels of B, of NR columns
    depth = max(1, ceil_div(K, cuts(K)))
    by_columns = shares_columns(product, wide, threads)
    far = has_far_rows(product.a[0])
    if by_columns:
        blocks = threads * ceil_div(wide, max(1, BLOCK_COLUMNS // TILE_BYTES) * threads)
        size = tall * panel_size(depth) if far else 0
    else:
        blocks = threads * ceil_div(tall, BLOCK_PANELS * threads)
        size = wide * depth * NR
    # A block of columns of B, or of a transposed A, is a short part of each of their rows.  The
    # parts of one depth are read soon after each other, so that memory is read in its order.
    together = 1
    if not (by_columns or far):
        together = min(cuts(K), max(1, PACKED_BYTES // (size * itemsize)))
    packed = on_a_line(together * size, product.c)
    stages = 2 * N * ceil_div(cuts(K), together)
    begun = np.zeros((stages, blocks), np.int64)
    done = np.zeros(stages, np.int64)
    on_threads(threads, pack_and_multiply, begun, done,
               (product, packed.reshape(together, size), depth, by_columns))


@in_stages
@serial
def pack_and_multiply(block, blocks, stage, work):
    """Pack a share of one operand for all blocks, or compute a block of C: stages take turns."""
    product, packed, depth, by_columns = work
    _, M, K = product.a.shape
    rounds = ceil_div(cuts(K), len(packed))     # of two stages, for each of the N products
    n = stage // 2 // rounds
    begin = stage // 2 % rounds * len(packed) * depth
    end = min(K, begin + len(packed) * depth)
    packs = stage % 2 == 0
    NR = TILE_BYTES // product.c.itemsize
    wide = ceil_div(product.c.shape[2], NR)
    panels = share(wide, block, blocks)
    tall = share(ceil_div(M, MR), block, blocks)
    rows = slice(tall.start * MR, min(M, tall.stop * MR))
    for start in range(begin, end, depth):
        cut = slice(start, min(K, start + depth))
        shared = packed[(start - begin) // depth]
        a = product.a[n, :, cut]
        b = product.b[n, cut]
        if by_columns and packs:
            pack_share(a, rows, shared, depth)
        elif by_columns:
            multiply_columns(a, shared, b, product.c[n], panels, depth, start > 0)
        else:
            of_b = shared.reshape(wide, depth, NR)
            if packs:
                pack_columns(b[:, panels.start * NR:panels.stop * NR],
                             of_b[panels.start:panels.stop])
            else:
                multiply(a[rows.start:], of_b, product.c[n, rows], start > 0)
    if end == K and not packs:
        finish_rows(product, n, rows.start, rows.stop)


@serial
def pack_share(a, rows, packed, depth):
    """Copy a thread's share of rows into panels, if a's columns are far apart: then `packed` has
    room for them."""
    if packed.size == 0:
        return
    height = BLOCK_PANELS * MR
    for top in range(rows.start, rows.stop, height):
        panels = part(packed, top // MR * panel_size(depth), 0)
        pack_rows(a[top:], min(height, rows.stop - top), panels, depth)


@allocating
def multiply_columns(a, packed, b, c, panels, depth, add):
    """Compute some panels' columns of c = a @ b, or c += a @ b: a is read from its panels, if
    `packed` has them, and these columns of b are packed here."""
    M, P = c.shape
    NR = TILE_BYTES // c.itemsize
    columns = slice(panels.start * NR, min(P, panels.stop * NR))
    packed_b = on_a_line(len(panels) * depth * NR, c).reshape(len(panels), depth, NR)
    pack_columns(b[:, columns], packed_b)
    height = BLOCK_PANELS * MR
    for top in range(0, M, height):
        rows = slice(top, min(M, top + height))
        if packed.size == 0:
            multiply(a[rows], packed_b, c[rows, columns], add)
        else:
            size = panel_size(depth)
            run_tiles(part(packed, top // MR * size, 0), 1, MR, size, len(b), packed_b,
                      c[rows, columns], add)


@serial
def shares_columns(product, wide, threads):
    """Whether threads share the panels of B, and not the rows of A: if B is larger, the shares are
    alike, and no further step needs whole rows."""
    _, M, P = product.c.shape
    alike = wide % threads == 0 or wide >= 4 * threads
    return P >= M and alike and not goes_on(product)


@serial
def has_far_rows(a):
    """Whether the numbers of a column are adjacent, and the columns far apart, so that panels are
    made of them first: they may all fall into the same few places of the cache."""
    return a.strides[0] == a.itemsize and abs(a.strides[1]) > FAR


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


@allocating
def on_a_line(size, like):
    """Return room for so many numbers, from the beginning of a line of the cache on."""
    room = np.empty(size + LINE // like.itemsize, like.dtype)
    skip = -room.ctypes.data % LINE // like.itemsize
    return room[skip:skip + size]


@serial
def panel_size(depth):
    """Return the numbers of a panel of A, with room for what `copy_tile_columns` copies beyond
    its last column."""
    return depth * MR + COPIED - MR


@serial
def pack_rows(a, rows, packed, room):
    """Copy the first rows of a (M, depth), whose columns are dense, into panels of MR rows:
    packed[panel, k, MR]."""
    M, depth = a.shape
    size = panel_size(room)
    a_column = a.strides[1] // a.itemsize
    whole = min(rows, max(0, M - COPIED + MR)) // MR        # panels that enough numbers follow
    at_once = depth // COLUMNS * COLUMNS
    for k in range(0, at_once, COLUMNS):
        for panel in range(whole):
            copy_tile_columns(a, k * a_column + panel * MR, a_column, packed, panel * size + k * MR)
    for panel in range(ceil_div(rows, MR)):
        for k in range(at_once if panel < whole else 0, depth):
            for i in range(panel * MR, min(rows, panel * MR + MR)):
                packed[panel * size + k * MR + i - panel * MR] = a[i, k]


@serial
def pack_columns(b, packed):
    """Copy b (depth, P) into panels of NR columns: packed[panel, k, NR].  Columns after the last
    are zeros, as far as `multiply` reads them."""
    depth, P = b.shape
    panels, room, NR = packed.shape
    lanes = NR // NV                            # of a vector
    b_row = b.strides[0] // b.itemsize
    b_column = b.strides[1] // b.itemsize
    whole_panels = min(panels, P // NR) if b_column == 1 else 0
    for k in range(depth if whole_panels > 0 else 0):
        for panel in range(whole_panels):
            copy_tile_row(b, k * b_row + panel * NR, packed, (panel * room + k) * NR)
    for panel in range(whole_panels, panels):
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

    a (M or more, depth) has dense rows or columns; c (M or more, P) has dense rows.
    """
    M = min(len(a), len(c))
    depth = a.shape[1]
    a_row = a.strides[0] // a.itemsize
    a_column = a.strides[1] // a.itemsize
    if not has_far_rows(a):
        run_tiles(part(a, 0, 0), a_row, a_column, MR * a_row, depth, packed, c[:M], add)
        return
    height = BLOCK_PANELS * MR
    size = panel_size(depth)
    panels = np.empty(ceil_div(min(M, height), MR) * size, c.dtype)
    for row in range(0, M, height):
        rows = slice(row, min(M, row + height))
        pack_rows(a[row:], rows.stop - row, panels, depth)
        run_tiles(part(panels, 0, 0), 1, MR, size, depth, packed, c[rows], add)


@allocating
def run_tiles(a, a_row, a_column, a_tile, depth, packed, c, add):
    """Compute c, (M, P), by `micro_kernel`, whose a, strides and a_tile are given."""
    M, P = c.shape
    panels, room, NR = packed.shape
    lanes = NR // NV
    size = room * NR                            # of a panel
    c_row = c.strides[0] // c.itemsize
    for panel in range(panels):
        left = panel * NR
        width = min(NR, P - left)
        vectors = ceil_div(width, lanes)
        b = part(packed, panel * size, size)
        if width % lanes == 0:
            micro_kernel(a, a_row, a_column, a_tile, b, size, part(c, left, 0), c_row, depth, add,
                         M, vectors)
        else:                                   # a whole vector would go beyond C's rows
            edge = np.empty((M, NR), c.dtype)
            corner = c[:, left:]
            if add:
                copy(corner, edge, M, width)
            micro_kernel(a, a_row, a_column, a_tile, b, size, part(edge, 0, 0), NR, depth, add, M,
                         vectors)
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
