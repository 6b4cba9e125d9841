"""Matrix products, with further steps on each row of the product while it is still in the cache.

How it runs (Goto & van de Geijn 2008, "Anatomy of High-Performance Matrix Multiplication"): the
inner dimension is cut into depths of at most KC.  For each depth, B is packed into panels of NR
columns; one of them stays in the first-level cache.  The rows of A and C are cut into blocks.  A
block is processed in tiles of MR x NR, whose sums `tiles.micro_kernel` keeps in registers.

Threads divide C into blocks of rows and columns, and each packs what it reads: to fetch what
another thread has packed, and to wait for it, takes longer.

Operands may be transposed.  B is packed anyway, and A is read where it lies if its rows are dense.
If its columns are, and far apart, it is packed, too, in panels of MR rows: columns that are a power
of two apart would share a few places of the cache.
"""
import functools
import math
from typing import NamedTuple

import numpy as np

from minigrad import formulas
from minigrad.kernels.compiler.compiling import (A3, C1, C3, dense, kernel, stands_in_for,
                                                 threads_for, writable)
from minigrad.kernels.compiler.lanes import part
from minigrad.kernels.compiler.linking import allocating, inlined, serial
from minigrad.kernels.compiler.parallel import count_up, counted, on_threads, share
from minigrad.kernels.compiler.tiles import (COLUMNS, COPIED, MR, NV, TILE_BYTES,
                                             copy_tile_columns, copy_tile_row, micro_kernel,
                                             transpose_square)
from minigrad.kernels.elementwise import GELU, RELU2, activate, multiply_by_slope

KC = 384                # depth of a panel: KC x NR floats take 24 KB where vectors have 256 bits
BLOCK_PANELS = 16       # height of a block in units of MR; KC deep, it fits the second-level cache
BLOCK_COLUMNS = max(1, 512 // TILE_BYTES)   # panels of B that are packed at a time for all rows
PACKED_BYTES = 1 << 21  # of an operand at a time
MOVED = 8               # multiply-adds, for which it takes as long as to pack a number
LINE = 64               # bytes of a line of the cache
FAR = 4 * LINE          # from a column of A to the next
REUSED = 3              # panels of B, from which on such an A is packed in any case
NEAR_BYTES = 1 << 18    # 64 pages, as many as the first-level TLB has at least
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


def product(a: np.ndarray, b: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """Return a @ b + bias, (..., K), (K, P) -> (..., P), or of stacks, (N, M, K), (N, K, P) ->
    (N, M, P)."""
    prepared = prepare(a, b, bias)
    compute(prepared)
    return prepared.value


class Prepared(NamedTuple):
    """A product that is to be computed."""
    value: np.ndarray       # the result, whose numbers are not there yet
    arguments: tuple        # of `matmul_kernel`, but for the last
    threads: int            # the last; 0 if there is nothing to compute


def prepare(a: np.ndarray, b: np.ndarray, bias: np.ndarray | None = None,
            slope_at: np.ndarray | None = None, activated: np.ndarray | None = None,
            activation: int = GELU) -> Prepared:
    """Prepare the same after the steps of an MLP.  Forward, the squared ReLU is applied, or the
    GELU is written to `activated`.  Back, with `slope_at`, which is what `formulas.mlp` keeps, the
    product is multiplied by the activation's derivative there."""
    *lead, K = a.shape
    P = b.shape[-1]
    c = np.empty((*lead, P), a.dtype)
    if K == 0:
        c[...] = 0
    if c.size == 0:
        return Prepared(c, (), 0)
    no_rows, no_bias = absent(a.dtype)
    if b.ndim == 2:
        a = formulas.rows(a)[None]
        b = b[None]
    N, M, _ = a.shape
    has_dense_axis = a.itemsize in a.strides[1:]
    arguments = (
        writable(a) if has_dense_axis else dense(a),
        writable(b),
        c.reshape(N, M, P),
        no_bias if bias is None else dense(bias),
        no_rows if slope_at is None else dense(slope_at).reshape(N, M, P),
        no_rows if activated is None else dense(activated).reshape(N, M, P),
        activation)
    return Prepared(c, arguments, threads_for(c.size * K // 16, 1))


def compute(first: Prepared, second: Prepared | None = None) -> None:
    """Compute a product, and then a second one, which may be of the first: by one kernel, as Python
    takes time to start each."""
    if second is None or not first.threads or not second.threads:
        for one in (first, second):
            if one is not None and one.threads:
                matmul_kernel(*one.arguments, one.threads)
        return
    two_products_kernel(*first.arguments, *second.arguments, max(first.threads, second.threads))


@functools.cache
def absent(dtype):
    """Return stand-ins for matrices, and for a bias, that are not given."""
    return np.empty((0, 0, 0), dtype), np.empty(0, dtype)


class Division(NamedTuple):
    """The parts of C: each of N products is cut into so many blocks of rows and of columns, which
    are numbered down the rows first."""
    down: int               # blocks of rows
    across: int             # blocks of columns
    tall: int               # panels of A in a block, at most
    wide: int               # panels of B
    depth: int              # of a panel
    kept: int               # depths of B that a thread keeps for the next block of rows
    packs: bool             # whether A is packed
    by_columns: bool        # whether B is packed a few columns at a time, for all rows of a block


@kernel
def matmul_kernel(product: Product, threads: int):
    multiply_all(product, threads)


@kernel
def two_products_kernel(first: Product, second: Product, threads: int):
    multiply_all(first, threads)
    multiply_all(second, threads)


@allocating
def multiply_all(product, threads):
    division = divide(product, threads)
    begun = np.zeros(len(product.a) * division.down * division.across, np.int64)
    on_threads(threads, multiply_parts, begun, (product, division))


@serial
def divide(product, threads):
    """Return how C is divided."""
    N, M, K = product.a.shape
    P = product.c.shape[2]
    itemsize = product.c.itemsize
    tall = ceil_div(M, MR)
    wide = ceil_div(P, TILE_BYTES // itemsize)
    depth = max(1, ceil_div(K, cuts(K)))
    packs = packs_rows(product.a[0, :, :depth], wide)
    sharing = ceil_div(threads, N)
    down, across = shares(tall, wide, TILE_BYTES // itemsize, sharing, packs)
    by_columns = ceil_div(M, down) <= ceil_div(P, across)
    # What follows a product is applied to whole rows, and to a few at a time, which are still in
    # the cache.
    if goes_on(product):
        by_columns = False
        if tall >= sharing:
            down = sharing
            across = 1
    most_tall = max(1, PACKED_BYTES // (depth * MR * itemsize))
    most_wide = max(1, PACKED_BYTES // (depth * TILE_BYTES))
    kept = 1
    # Where smaller blocks pack nothing twice, a thread that is late leaves more of them to others.
    if by_columns and not packs:
        most_wide = BLOCK_COLUMNS
    elif not packs:
        of_all = cuts(K) * min(ceil_div(wide, across), most_wide)
        if of_all * depth * TILE_BYTES <= PACKED_BYTES:
            kept = cuts(K)
            most_tall = BLOCK_PANELS
    down *= ceil_div(tall, down * most_tall)
    across *= ceil_div(wide, across * most_wide)
    tall = ceil_div(tall, down)
    wide = ceil_div(wide, across)
    return Division(down, across, tall, wide, depth, kept, packs, by_columns)


@allocating
def multiply_parts(thread, threads, begun, work):
    """Compute the parts of a thread's own share, then any that no thread has begun."""
    product, division = work
    down, _, tall, wide, depth, kept, packs, by_columns = division
    NR = TILE_BYTES // product.c.itemsize
    if by_columns:
        wide = min(wide, BLOCK_COLUMNS)
    else:
        tall = min(tall, BLOCK_PANELS)
    packed_b = on_a_line(kept * wide * depth * NR, product.c).reshape(kept, wide, depth, NR)
    packed_a = on_a_line(tall * panel_size(depth) if packs else 0, product.c)
    keeps_all = not by_columns and kept * depth >= product.a.shape[2]
    columns = -1                    # of which product, and which of them: those that are packed
    parts = begun.size
    for i in range(parts):
        number = (thread * parts // threads + i) % parts
        if counted(begun, number) == 0 and count_up(begun, number) == 0:
            is_packed = keeps_all and number // down == columns
            multiply_part(product, number, division, packed_a, packed_b, is_packed)
            columns = number // down


@allocating
def multiply_part(product, number, division, packed_a, packed_b, is_packed):
    """Compute a part of C, a depth at a time.  Pack its columns of B, unless they are packed
    already."""
    down, across, _, _, depth, _, _, _ = division
    _, M, K = product.a.shape
    P = product.c.shape[2]
    NR = TILE_BYTES // product.c.itemsize
    n = number // down // across
    tiles = share(ceil_div(M, MR), number % down, down)
    panels = share(ceil_div(P, NR), number // down % across, across)
    rows = slice(tiles.start * MR, min(M, tiles.stop * MR))
    columns = slice(panels.start * NR, min(P, panels.stop * NR))
    c = product.c[n, rows, columns]
    width = packed_b.shape[1] * NR
    for start in range(0, K, depth):
        cut = slice(start, min(K, start + depth))
        a = product.a[n, rows.start:, cut]
        b = product.b[n, cut, columns]
        packed = packed_b[start // depth % len(packed_b)]
        for left in range(0, c.shape[1], width):
            block = c[:, left:left + width]
            used = packed[:ceil_div(block.shape[1], NR)]
            if not is_packed:
                pack_columns(b[:, left:left + width], used)
            multiply_blocks(a, left == 0, division, packed_a, used, block, start > 0)
    if goes_on(product):
        for i in range(rows.start, rows.stop):          # the rows of an absent array are empty
            finish_row(
                cut_row(product.c[n, i], columns),
                cut_row(product.bias, columns),
                cut_row(product.slope_at[n, i], columns),
                cut_row(product.activated[n, i], columns),
                product.activation)


@inlined
def cut_row(row, columns):
    """Return some columns of a dense row, dense, which slicing is not to Numba: LLVM would not
    vectorise loops over them.  An empty row stays empty."""
    return part(row, columns.start, min(row.size, columns.stop) - min(row.size, columns.start))


@allocating
def multiply_blocks(a, is_new, division, packed_a, packed_b, c, add):
    """Compute c = a @ b, or c += a @ b, a block of rows at a time.  Pack a, if it is to be packed,
    when it `is_new`; without `by_columns`, there is room for one block."""
    height = BLOCK_PANELS * MR
    size = panel_size(division.depth)
    for top in range(0, len(c), height):
        block = c[top:top + height]
        if division.packs:
            panels = part(packed_a, top // MR * size if division.by_columns else 0, 0)
            if is_new:
                pack_rows(a[top:], len(block), panels, division.depth)
            run_tiles(panels, 1, MR, size, a.shape[1], packed_b, block, add)
        else:
            run_in_place(a[top:], packed_b, block, add)


@serial
def shares(tall, wide, NR, threads, packs):
    """Return into how many shares of rows and of columns threads divide a product that is so many
    tiles high and wide: so that the one with most to do has least.  It takes as long to pack a
    number of A or B as for MOVED multiply-adds, and half of that to read one."""
    moved_row = MOVED if packs else MOVED // 2
    least = np.inf
    best = 1, 1
    for across in range(1, min(wide, threads) + 1):
        down = min(tall, threads // across)
        rows = ceil_div(tall, down) * MR
        columns = ceil_div(wide, across) * NR
        work = rows * columns + moved_row * rows + MOVED * columns
        if work < least:
            least = work
            best = down, across
    return best


@serial
def packs_rows(a, wide):
    """Whether panels are made of a's rows first, for so many panels of B: if the numbers of a
    column are adjacent, and the columns far apart.  They may all fall into the same few places of
    the cache.  To copy them costs more than that if only a few panels need them, and if they lie
    within NEAR_BYTES."""
    column = abs(a.strides[1])
    if a.strides[0] != a.itemsize or column <= FAR:
        return False
    return wide >= REUSED or a.shape[1] * column > NEAR_BYTES


@serial
def goes_on(product):
    """Whether there are further steps after the product."""
    given = product.bias.size + product.slope_at.size + product.activated.size
    return product.activation == RELU2 or given > 0


@serial
def finish_row(c, bias, slope_at, activated, activation):
    """Take the steps after a product in a row of it.  A function of its own, so that LLVM keeps the
    constants of its loops in registers or on the stack: within a loop over rows, it makes each of
    them again for every vector."""
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
    if not packs_rows(a, len(packed)):
        run_in_place(a, packed, c[:M], add)
        return
    height = BLOCK_PANELS * MR
    size = panel_size(depth)
    panels = np.empty(ceil_div(min(M, height), MR) * size, c.dtype)
    for row in range(0, M, height):
        rows = slice(row, min(M, row + height))
        pack_rows(a[row:], rows.stop - row, panels, depth)
        run_tiles(part(panels, 0, 0), 1, MR, size, depth, packed, c[rows], add)


@allocating
def run_in_place(a, packed, c, add):
    """Do the same, where a is read where it lies."""
    a_row = a.strides[0] // a.itemsize
    a_column = a.strides[1] // a.itemsize
    run_tiles(part(a, 0, 0), a_row, a_column, MR * a_row, a.shape[1], packed, c, add)


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
