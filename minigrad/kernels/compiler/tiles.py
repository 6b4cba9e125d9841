"""Tiles of a matrix product, with their sums in registers: the innermost loop of `matmul`.

In plain NumPy:  c[:height, :n] = a[:height, :depth] @ b[:depth, :n],  or  c += ...

LLVM's vectoriser does not keep the sums of plain loops in registers.  So the loop is written in
LLVM's own vector types.  LLVM lowers them to AVX-512, AVX2, SSE and NEON; only the tile's size
depends on the host.
"""
import math
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from minigrad.kernels.compiler import cache
from minigrad.kernels.compiler.lanes import address, emit_fma, shuffled, spread_value
from minigrad.kernels.compiler.processor import target_machine, vector_bytes, vector_registers


class Size(NamedTuple):
    """Of a tile of C: MR rows of NV vectors, whose sums stay in registers, beside NV vectors of B
    and a number of A."""
    vector_bytes: int
    MR: int
    NV: int


# For each kind of processor: the size of a vector, and the number of registers for vectors.
SIZES = {(64, 32): Size(64, 6, 4),      # AVX-512
         (32, 16): Size(32, 6, 2),      # AVX2
         (16, 32): Size(16, 4, 4),      # NEON
         (16, 16): Size(16, 6, 2)}      # SSE
HERE = SIZES[vector_bytes(), vector_registers()]
VECTOR_BYTES, MR, NV = HERE
TILE_BYTES = VECTOR_BYTES * NV          # a tile of C is MR rows of this many bytes
STEPS = 4           # of the inner dimension, between two tests for its end
WIDE = 8            # vectors of a single row, so that its sums need not wait for one another
COPIED = 1 << (MR - 1).bit_length()     # numbers of a column that `copy_tile_columns` copies
COLUMNS = 8         # that it copies at once


@intrinsic
def micro_kernel(typingctx, a, a_row, a_col, a_tile, b, b_panel, c, c_row, depth, add, rows,
                 vectors):
    """C[rows, n] = A[rows, depth] @ B[depth, n], or += if `add`; n is `vectors` full of floats,
    at most NV; for a single row at most WIDE, a multiple of NV.

    `a`, `b`, `c` are arrays of one float type, of which the first element is used; `*_row` and
    `*_col` are strides, in elements.  A's rows are dense (a_col is 1), or its columns are (a_row is
    1, and `vectors` at most NV); those for the next tile begin `a_tile` further on.  B's rows
    follow each other, NR apart; the next NV vectors of each are in the next panel, `b_panel`
    further on.  C's columns are adjacent.
    """
    signature = types.void(a, types.intp, types.intp, types.intp, b, types.intp, c, types.intp,
                           types.intp, types.boolean, types.intp, types.intp)

    def codegen(context, builder, signature, values):
        scalar = context.get_data_type(a.dtype)
        tiles = cgutils.get_or_insert_function(builder.module, _type(scalar, _i64), _name(scalar))
        operands = list(values)
        for i, kind in enumerate(signature.args):
            if isinstance(kind, types.Array):
                operands[i] = address(context, builder, signature, values, i, _i64(0))
        builder.call(tiles, operands)
        return context.get_dummy_value()

    return signature, codegen


def define_tiles(dtype: np.dtype, kept_in: pathlib.Path | None) -> None:
    """Load the tiles of a float type from a folder; else compile them, and keep them there.

    Kernels refer to them by name, so that each is compiled once and not again with every kernel.
    Call this before such a kernel is loaded.
    """
    if dtype in _engines:
        return
    scalar = ir.FloatType() if dtype == np.float32 else ir.DoubleType()
    engine = engine_of(f"tiles.{dtype}", kept_in, lambda: tiles_of(scalar))
    llvm.add_symbol(_name(scalar), engine.get_function_address(_name(scalar)))
    _engines[dtype] = engine            # it holds the machine code


def engine_of(name: str, kept_in: pathlib.Path | None, make: Callable[[], ir.Module]
              ) -> llvm.ExecutionEngine:
    """Return an engine with the machine code of the module that `make` makes: from a file of a
    folder; else compiled, and kept there.  The code is gone when the engine is."""
    path = kept_in and kept_in / name
    code = cache.read(path)
    if not code:
        code = target_machine().emit_object(llvm.parse_assembly(str(make())))
        cache.write(path, code)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


_engines = {}
_i64 = ir.IntType(64)


def _name(scalar):
    return f"minigrad_tile_{scalar}"


def _type(scalar, *more):
    """Return the type of a function of a, a_row, a_col, a_tile, b, b_panel, c, c_row, depth, add,
    count."""
    pointer = scalar.as_pointer()
    return ir.FunctionType(ir.VoidType(), [pointer, _i64, _i64, _i64, pointer, _i64, pointer, _i64,
                                           _i64, ir.IntType(1), _i64, *more])


def tiles_of(scalar: ir.Type, size: Size = HERE) -> ir.Module:
    """Return the tiles of a float type as a module of one function, of the type _type(vectors),
    whose count is that of the rows: it runs as many tiles of MR rows as fit, and one for the
    remaining rows."""
    MR = size.MR
    NV = size.NV
    module = ir.Module(_name(scalar))
    function = ir.Function(module, _type(scalar, _i64), _name(scalar))
    a, a_row, a_col, a_tile, b, b_panel, c, c_row, depth, add, rows, vectors = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))

    def call(number, tiles, a, c, count):
        """Call the tile of that number, if there is one."""
        after = function.append_basic_block("after")
        cases = builder.switch(number, after)
        for key, tile in tiles.items():
            block = function.append_basic_block(tile.name)
            cases.add_case(_i64(key), block)
            builder.position_at_end(block)
            builder.call(tile, [a, a_row, a_col, a_tile, b, b_panel, c, c_row, depth, add, count])
            builder.branch(after)
        builder.position_at_end(after)

    whole = builder.udiv(rows, _i64(MR))        # tiles
    left = builder.urem(rows, _i64(MR))         # rows
    # These are nearly all of a product, so each layout of A has tiles of its own.
    by_columns = builder.zext(builder.icmp_unsigned("!=", a_col, _i64(1)), _i64)
    kind = builder.add(builder.mul(vectors, _i64(2)), by_columns)
    any_whole = builder.icmp_unsigned(">", whole, _i64(0))
    tiles = {2 * v + p: _tile(module, scalar, size, MR, v, p)
             for v in range(1, NV + 1) for p in (0, 1)}
    call(builder.select(any_whole, kind, _i64(0)), tiles, a, c, whole)

    sizes = [(height, v) for v in range(1, NV + 1) for height in range(1, MR)]
    sizes += [(1, v) for v in range(2 * NV, WIDE + 1, NV)]
    tiles = {v * MR + height: _tile(module, scalar, size, height, v) for height, v in sizes}
    number = builder.add(builder.mul(vectors, _i64(MR)), left)
    done = builder.mul(whole, _i64(MR))
    call(number, tiles, _moved(builder, a, a_tile, whole), _moved(builder, c, c_row, done), _i64(1))
    builder.ret_void()
    return module


def _tile(module, scalar, size, height, vectors, by_columns=None):
    """Define a module's _type() for `count` tiles of one height and width, each below the one
    before; with `by_columns` given, for an A of dense columns, or of dense rows."""
    itemsize = _itemsize(scalar)
    vector = ir.VectorType(scalar, size.vector_bytes // itemsize)
    name = f"{_name(scalar)}_{height}x{vectors}"
    if by_columns is not None:
        name += f"_{by_columns}"
    function = ir.Function(module, _type(scalar), name)
    function.linkage = "internal"
    a, a_row, a_col, a_tile, b, b_panel, c, c_row, depth, add, left = function.args
    if by_columns == 1:
        a_row = _i64(1)
    if by_columns == 0:
        a_col = _i64(1)
    entry, tile, resume, start = map(function.append_basic_block,
                                     ("entry", "tile", "resume", "start"))
    builder = ir.IRBuilder(entry)
    places = [builder.add(builder.mul(c_row, _i64(i)), _i64(v * vector.count))
              for i in range(height) for v in range(vectors)]
    b_at = [_moved(builder, b, b_panel, _i64(n)) for n in range(math.ceil(vectors / size.NV))]
    builder.branch(tile)

    # for _ in range(count): a tile of C, whose sums start at zero or at what it holds
    builder.position_at_end(tile)
    state = a, c, left = _phis(builder, entry, [a, c, left])
    builder.cbranch(add, resume, start)
    builder.position_at_end(resume)
    held = [_load(builder, c, place, vector) for place in places]
    builder.branch(start)
    builder.position_at_end(start)
    zero = ir.Constant(vector, [ir.Constant(scalar, 0.0)] * vector.count)
    sums = _phis(builder, tile, [zero] * len(places))
    _come_back(sums, held, resume)
    a_at = [_moved(builder, a, a_row, _i64(i)) for i in range(height)]

    for at_once in (1,) if by_columns is None else (STEPS, 1):
        depth, a_at, b_at, sums = _steps(builder, size.NV, at_once, a_col, depth, a_at, b_at, sums)

    for total, place in zip(sums, places):
        builder.store(total, _vector_at(builder, c, place, vector)).align = itemsize
    more = builder.sub(left, _i64(1))
    _come_back(state, [builder.gep(a, [a_tile]), _moved(builder, c, c_row, _i64(height)), more],
               builder.block)
    end = function.append_basic_block("end")
    builder.cbranch(builder.icmp_signed(">", more, _i64(0)), tile, end)
    builder.position_at_end(end)
    builder.ret_void()
    return function


def _steps(builder, NV, at_once, a_col, depth, a_at, b_at, sums):
    """Take steps of the inner dimension, `at_once` between two tests of how many are left: in each,
    sums[i, :] += a[i, 0] * b[0, :].  Return the depth that is left, the pointers and the sums.

    Pointers move and offsets are constant; an index beside the pointers would not fit in registers.
    """
    vector = sums[0].type
    height = len(a_at)
    vectors = len(sums) // height
    before = builder.block
    test, body, after = map(builder.append_basic_block,
                            (f"test_{at_once}", f"body_{at_once}", f"after_{at_once}"))
    builder.branch(test)
    builder.position_at_end(test)
    state = _phis(builder, before, [depth, *a_at, *b_at, *sums])
    depth = state[0]
    a_at = state[1:1 + height]
    b_at = state[1 + height:-len(sums)]
    sums = state[-len(sums):]
    builder.cbranch(builder.icmp_signed(">=", depth, _i64(at_once)), body, after)

    builder.position_at_end(body)
    totals = list(sums)
    for k in range(at_once):
        b_row = [_load(builder, b_at[v // NV], _i64((k * NV + v % NV) * vector.count), vector)
                 for v in range(vectors)]
        for i, at in enumerate(a_at):       # one number of A after the other, or LLVM spills sums
            a_i = spread_value(builder, builder.load(_moved(builder, at, a_col, _i64(k))), vector)
            for v, b in enumerate(b_row):
                place = i * vectors + v
                totals[place] = emit_fma(builder, a_i, b, totals[place])
    left = builder.sub(depth, _i64(at_once))
    following = [_moved(builder, at, a_col, _i64(at_once)) for at in a_at]
    b_step = _i64(at_once * NV * vector.count)
    following += [builder.gep(at, [b_step]) for at in b_at]
    _come_back(state, [left, *following, *totals], body)
    builder.branch(test)
    builder.position_at_end(after)
    return depth, a_at, b_at, sums


def _itemsize(scalar):
    return 4 if isinstance(scalar, ir.FloatType) else 8


def _moved(builder, pointer, row, count):
    """Return a pointer that is so many rows further on."""
    return builder.gep(pointer, [builder.mul(row, count)])


def _vector_at(builder, base, offset, vector):
    return builder.bitcast(builder.gep(base, [offset]), vector.as_pointer())


def _load(builder, base, offset, vector):
    return builder.load(_vector_at(builder, base, offset, vector), align=_itemsize(vector.element))


def _phis(builder, before, values):
    """Begin a block that may run again: return what has these values if the block `before` ran
    last."""
    phis = [builder.phi(value.type) for value in values]
    _come_back(phis, values, before)
    return phis


def _come_back(phis, values, block):
    """Give phis their values for when that block ran last."""
    for phi, value in zip(phis, values, strict=True):
        phi.add_incoming(value, block)


@intrinsic
def transpose_square(typingctx, source, source_at, source_row, target, target_at, target_row):
    """Copy a square, as many floats wide as a vector, from one array into another, transposed.

    `*_at` is where it starts, `*_row` the distance of its rows; the floats of a row are adjacent.
    """
    signature = types.void(source, types.intp, types.intp, target, types.intp, types.intp)

    def codegen(context, builder, signature, values):
        itemsize = source.dtype.bitwidth // 8
        lanes = VECTOR_BYTES // itemsize
        vector = ir.VectorType(context.get_data_type(source.dtype), lanes)

        def places(i, at, row):
            start = address(context, builder, signature, values, i, at)
            return [_vector_at(builder, start, builder.mul(row, _i64(n)), vector)
                    for n in range(lanes)]

        rows = [builder.load(place, align=itemsize) for place in places(0, *values[1:3])]
        # To transpose is to swap the numbers of a float's row and column: here, bit by bit.
        for bit in (1 << n for n in range(lanes.bit_length() - 1)):
            swapped = []
            for i in range(lanes):
                taken = [j & ~bit | i & bit | (lanes if j & bit else 0) for j in range(lanes)]
                swapped.append(shuffled(builder, rows[i & ~bit], rows[i | bit], taken))
            rows = swapped
        for row, place in zip(rows, places(3, *values[4:6])):
            builder.store(row, place, align=itemsize)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def copy_tile_row(typingctx, source, source_at, target, target_at):
    """Copy a row of B for a tile, NV vectors, from a place in one array to a place in another."""
    signature = types.void(source, types.intp, target, types.intp)

    def codegen(context, builder, signature, values):
        vector = _vector_of(context, source, TILE_BYTES)
        start = address(context, builder, signature, values, 0, values[1])
        end = address(context, builder, signature, values, 2, values[3])
        _copy(builder, vector, [start], [end])
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def copy_tile_columns(typingctx, source, source_at, source_column, target, target_at):
    """Copy COLUMNS columns of A for a tile, of MR adjacent numbers each; those of the source are
    source_column apart, those of the target follow each other.

    For each, COPIED numbers are read, and written: the next ones replace those beyond MR.
    """
    signature = types.void(source, types.intp, types.intp, target, types.intp)

    def codegen(context, builder, signature, values):
        itemsize = source.dtype.bitwidth // 8
        vector = _vector_of(context, source, COPIED * itemsize)
        start = address(context, builder, signature, values, 0, values[1])
        end = address(context, builder, signature, values, 3, values[4])
        _copy(builder, vector,
              [_moved(builder, start, values[2], _i64(k)) for k in range(COLUMNS)],
              [builder.gep(end, [_i64(k * MR)]) for k in range(COLUMNS)])
        return context.get_dummy_value()

    return signature, codegen


def _vector_of(context, array, size):
    """Return LLVM's vector of an array's numbers, of so many bytes."""
    return ir.VectorType(context.get_data_type(array.dtype), size // (array.dtype.bitwidth // 8))


def _copy(builder, vector, sources, targets):
    """Load a vector from each source, then store each at its target."""
    loaded = [_load(builder, source, _i64(0), vector) for source in sources]
    for value, target in zip(loaded, targets, strict=True):
        place = _vector_at(builder, target, _i64(0), vector)
        builder.store(value, place).align = _itemsize(vector.element)
