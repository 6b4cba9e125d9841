"""Tiles of a matrix product, with their sums in registers: the innermost loop of `matmul`.

In plain NumPy:  c[:height, :n] = a[:height, :depth] @ b[:depth, :n],  or  c += ...

LLVM's vectoriser does not keep the sums of plain loops in registers.  So the loop is written in
LLVM's own vector types.  LLVM lowers them to AVX-512, AVX2, SSE and NEON; only the tile's size
depends on the host.
"""
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
from minigrad.kernels.compiler.lanes import address, spread_value
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


@intrinsic
def micro_kernel(typingctx, a, a_row, a_col, b, b_panel, c, c_row, depth, add, rows, vectors):
    """C[rows, n] = A[rows, depth] @ B[depth, n], or += if `add`; n is `vectors` full of floats,
    at most NV; for a single row at most WIDE, a multiple of NV.

    `a`, `b`, `c` are arrays of one float type, of which the first element is used; `*_row` and
    `*_col` are strides, in elements.  A's rows are dense (a_col is 1), or its columns are (a_row is
    1, and `vectors` at most NV).  B's rows follow each other, NR apart; the next NV vectors of each
    are in the next panel, `b_panel` further on.  C's columns are adjacent.
    """
    signature = types.void(a, types.intp, types.intp, b, types.intp, c, types.intp, types.intp,
                           types.boolean, types.intp, types.intp)

    def codegen(context, builder, signature, values):
        scalar = context.get_data_type(signature.args[0].dtype)
        tiles = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), _operands(scalar) + [_i64]),
            _name(scalar))
        builder.call(tiles, [
            address(context, builder, signature, values, i, _i64(0))
            if isinstance(kind, types.Array) else value
            for i, (kind, value) in enumerate(zip(signature.args, values))])
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


def _operands(scalar):
    """Return the types of a, a_row, a_col, b, b_panel, c, c_row, depth, add, count."""
    pointer = scalar.as_pointer()
    return [pointer, _i64, _i64, pointer, _i64, pointer, _i64, _i64, ir.IntType(1), _i64]


def tiles_of(scalar: ir.Type, size: Size = HERE) -> ir.Module:
    """Return the tiles of a float type as a module of one function, void(*_operands, vectors),
    whose count is that of the rows: it runs as many tiles of MR rows as fit, and one for the
    remaining rows."""
    MR, NV = size.MR, size.NV
    module = ir.Module(_name(scalar))
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), _operands(scalar) + [_i64]),
                           _name(scalar))
    a, a_row, a_col, *b, c, c_row, depth, add, rows, vectors = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))

    def call(number, tiles, a, c, count):
        """Call the tile of that number, if there is one."""
        after = function.append_basic_block("after")
        cases = builder.switch(number, after)
        for key, tile in tiles.items():
            block = function.append_basic_block(tile.name)
            cases.add_case(_i64(key), block)
            builder.position_at_end(block)
            builder.call(tile, [a, a_row, a_col, *b, c, c_row, depth, add, count])
            builder.branch(after)
        builder.position_at_end(after)

    whole, left = builder.udiv(rows, _i64(MR)), builder.urem(rows, _i64(MR))
    # These are nearly all of a product, so each layout of A has tiles of its own.
    by_columns = builder.zext(builder.icmp_unsigned("!=", a_col, _i64(1)), _i64)
    kind = builder.add(builder.mul(vectors, _i64(2)), by_columns)
    any_whole = builder.icmp_unsigned(">", whole, _i64(0))
    call(builder.select(any_whole, kind, _i64(0)),
         {2 * v + p: _tile(module, scalar, size, MR, v, p)
          for v in range(1, NV + 1) for p in (0, 1)}, a, c, whole)
    sizes = [(height, v) for v in range(1, NV + 1) for height in range(1, MR)]
    sizes += [(1, v) for v in range(2 * NV, WIDE + 1, NV)]
    call(builder.add(builder.mul(vectors, _i64(MR)), left),
         {v * MR + height: _tile(module, scalar, size, height, v) for height, v in sizes},
         *(builder.gep(x, [builder.mul(builder.mul(whole, _i64(MR)), row)])
           for x, row in ((a, a_row), (c, c_row))), _i64(1))
    builder.ret_void()
    return module


def _tile(module, scalar, size, height, vectors, by_columns=None):
    """Define a module's void(*_operands) for `count` tiles of one height and width, each below the
    one before; with `by_columns` given, for an A of dense columns, or of dense rows."""
    NV, itemsize = size.NV, 4 if isinstance(scalar, ir.FloatType) else 8
    lanes = size.vector_bytes // itemsize
    name = f"{_name(scalar)}_{height}x{vectors}" + ("" if by_columns is None else f"_{by_columns}")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), _operands(scalar)), name)
    function.linkage = "internal"
    a, a_row, a_col, b, b_panel, c, c_row, depth, add, left = function.args
    vector = ir.VectorType(scalar, lanes)
    fma = cgutils.get_or_insert_function(
        module, ir.FunctionType(vector, [vector] * 3), f"llvm.fmuladd.v{lanes}f{8 * itemsize}")
    entry, tile, resume, start = (function.append_basic_block(block)
                                  for block in ("entry", "tile", "resume", "start"))

    if by_columns:
        a_row = _i64(1)
    elif by_columns is not None:
        a_col = _i64(1)

    builder = ir.IRBuilder(entry)
    places = [builder.add(builder.mul(c_row, _i64(i)), _i64(v * lanes))
              for i in range(height) for v in range(vectors)]
    b_at = [builder.gep(b, [builder.mul(b_panel, _i64(n))]) for n in range(-(-vectors // NV))]
    builder.branch(tile)

    # for _ in range(count): a tile of C, whose sums start at zero or at what it holds
    builder.position_at_end(tile)
    a, c, left = tile_at = [_phi(builder, {entry: value}) for value in (a, c, left)]
    builder.cbranch(add, resume, start)
    builder.position_at_end(resume)
    held = [_load(builder, c, place, vector) for place in places]
    builder.branch(start)
    builder.position_at_end(start)
    zero = ir.Constant(vector, [ir.Constant(scalar, 0.0)] * lanes)
    sums = [_phi(builder, {tile: zero, resume: value}) for value in held]
    a_at = [builder.gep(a, [builder.mul(a_row, _i64(i))]) for i in range(height)]

    for at_once in (1,) if by_columns is None else (STEPS, 1):
        depth, a_at, b_at, sums = _steps(builder, fma, NV, at_once, a_col, depth, a_at, b_at, sums)

    for total, place in zip(sums, places):
        builder.store(total, _vector_at(builder, c, place, vector)).align = itemsize
    following = (*(builder.gep(x, [builder.mul(row, _i64(height))])
                   for x, row in ((a, a_row), (c, c_row))), builder.sub(left, _i64(1)))
    for phi, value in zip(tile_at, following):
        phi.add_incoming(value, builder.block)
    end = function.append_basic_block("end")
    builder.cbranch(builder.icmp_signed(">", following[-1], _i64(0)), tile, end)
    builder.position_at_end(end)
    builder.ret_void()
    return function


def _steps(builder, fma, NV, at_once, a_col, depth, a_at, b_at, sums):
    """Take steps of the inner dimension, `at_once` between two tests of how many are left: in each,
    sums[i, :] += a[i, 0] * b[0, :].  Return the depth that is left, the pointers and the sums.

    Pointers move and offsets are constant; an index beside the pointers would not fit in registers.
    """
    vector, vectors = sums[0].type, len(sums) // len(a_at)
    before = builder.block
    test, body, after = (builder.append_basic_block(f"{block}_{at_once}")
                         for block in ("test", "body", "after"))
    builder.branch(test)
    builder.position_at_end(test)
    state = [[_phi(builder, {before: value}) for value in values]
             for values in ([depth], a_at, b_at, sums)]
    (depth,), a_at, b_at, sums = state
    builder.cbranch(builder.icmp_signed(">=", depth, _i64(at_once)), body, after)
    builder.position_at_end(body)
    totals = list(sums)
    for k in range(at_once):
        b_row = [_load(builder, b_at[v // NV], _i64((k * NV + v % NV) * vector.count), vector)
                 for v in range(vectors)]
        for i, at in enumerate(a_at):       # one number of A after the other, or LLVM spills sums
            a_i = builder.load(builder.gep(at, [builder.mul(a_col, _i64(k))]))
            a_i = spread_value(builder, a_i, vector)
            totals[i * vectors:(i + 1) * vectors] = [
                builder.call(fma, [a_i, b, total])
                for b, total in zip(b_row, totals[i * vectors:(i + 1) * vectors])]
    a_step, b_step = builder.mul(a_col, _i64(at_once)), _i64(at_once * NV * vector.count)
    following = ([builder.sub(depth, _i64(at_once))], [builder.gep(at, [a_step]) for at in a_at],
                 [builder.gep(at, [b_step]) for at in b_at], totals)
    for phi, value in zip(sum(state, []), sum(following, [])):
        phi.add_incoming(value, body)
    builder.branch(test)
    builder.position_at_end(after)
    return depth, a_at, b_at, sums


def _vector_at(builder, base, offset, vector):
    return builder.bitcast(builder.gep(base, [offset]), vector.as_pointer())


def _load(builder, base, offset, vector):
    value = builder.load(_vector_at(builder, base, offset, vector))
    value.align = 4 if isinstance(vector.element, ir.FloatType) else 8
    return value


def _phi(builder, values):
    """Return the value that belongs to the block from which the program has come."""
    phi = builder.phi(next(iter(values.values())).type)
    for block, value in values.items():
        phi.add_incoming(value, block)
    return phi


@intrinsic
def transpose_square(typingctx, source, source_at, source_row, target, target_at, target_row):
    """Copy a square, as many floats wide as a vector, from one array into another, transposed.

    `*_at` is where it starts, `*_row` the distance of its rows; the floats of a row are adjacent.
    """
    signature = types.void(source, types.intp, types.intp, target, types.intp, types.intp)

    def codegen(context, builder, signature, values):
        itemsize = signature.args[0].dtype.bitwidth // 8
        lanes = VECTOR_BYTES // itemsize
        vector = ir.VectorType(context.get_data_type(signature.args[0].dtype), lanes)

        def places(i, at, row):
            start = address(context, builder, signature, values, i, at)
            offsets = [builder.mul(row, ir.Constant(row.type, n)) for n in range(lanes)]
            return [builder.bitcast(builder.gep(start, [offset]), vector.as_pointer())
                    for offset in offsets]

        rows = [builder.load(place, align=itemsize) for place in places(0, *values[1:3])]
        # To transpose is to swap the numbers of a float's row and column: here, bit by bit.
        for bit in (1 << n for n in range(lanes.bit_length() - 1)):
            taken = [[j & ~bit | i & bit | (lanes if j & bit else 0) for j in range(lanes)]
                     for i in range(lanes)]     # from `lanes` on, they count the second row
            rows = [builder.shuffle_vector(
                        rows[i & ~bit], rows[i | bit],
                        ir.Constant(ir.VectorType(ir.IntType(32), lanes), taken[i]))
                    for i in range(lanes)]
        for row, place in zip(rows, places(3, *values[4:6])):
            builder.store(row, place, align=itemsize)
        return context.get_dummy_value()

    return signature, codegen
