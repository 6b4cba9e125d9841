"""Tiles of a matrix product, their sums in registers: the innermost loop of `matmul`.

In plain NumPy:  c[:height, :n] = a[:height, :depth] @ b[:depth, :n],  or  c += ...

LLVM's vectoriser does not manage from plain loops to keep the sums in registers.  So the loop is
written in LLVM's own vector types; LLVM lowers the same types to AVX-512, AVX2, SSE and NEON, and
only the tile's size depends on the host.
"""
from functools import cache

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from minigrad.kernels.simd import address

_FEATURES = llvm.get_host_cpu_features()
if _FEATURES.get("avx512f"):
    VECTOR_BYTES, MR, NV = 64, 12, 2    # 24 of 32 registers accumulate
elif _FEATURES.get("avx") and _FEATURES.get("fma"):
    VECTOR_BYTES, MR, NV = 32, 6, 2     # 12 of 16
elif _FEATURES.get("neon"):
    VECTOR_BYTES, MR, NV = 16, 8, 2     # 16 of 32
else:
    VECTOR_BYTES, MR, NV = 16, 6, 2     # 12 of 16
TILE_BYTES = VECTOR_BYTES * NV          # a tile of C is MR rows of this many bytes
STEPS = 4           # of the inner dimension, between two tests whether it ends
WIDE = 4 * NV       # vectors of a single row, whose sums would else have to wait for one another


@intrinsic
def micro_kernel(typingctx, a, a_at, a_row, a_col, b, b_at, b_panel, c, c_at, c_row, depth, add,
                 height, vectors):
    """C[height, n] = A[height, depth] @ B[depth, n], or += where `add`; n is `vectors` full of
    floats, `height` at most MR, `vectors` at most NV; where `height` is 1, WIDE, a multiple of NV.

    `a`, `b`, `c` are arrays of one float type, `*_at` where in them to start, `*_row` and `*_col`
    strides, all counted in elements.  A's rows are dense (a_col is 1), or its columns, MR apart
    (a_row is 1, a_col MR, and `vectors` at most NV).  B's rows stand one behind the other, NR
    apart, and the next NV vectors of each in the next panel, which is `b_panel` further on; C's
    columns are adjacent.
    """
    signature = types.void(a, types.intp, types.intp, types.intp, b, types.intp, types.intp,
                           c, types.intp, types.intp, types.intp, types.boolean, types.intp,
                           types.intp)

    def codegen(context, builder, signature, values):
        (a, a_at, a_row, a_col, b, b_at, b_panel, c, c_at, c_row, depth, add, height,
         vectors) = values
        scalar = context.get_data_type(signature.args[0].dtype)
        tile = cgutils.get_or_insert_function(builder.module, _tile_type(scalar), _name(scalar))
        builder.call(tile, [address(context, builder, signature, values, 0, a_at), a_row, a_col,
                            address(context, builder, signature, values, 4, b_at), b_panel,
                            address(context, builder, signature, values, 7, c_at), c_row,
                            depth, add, height, vectors])
        return context.get_dummy_value()

    return signature, codegen


@cache
def define_tiles(dtype: np.dtype) -> None:
    """Compile the tiles of a float type, which kernels only refer to by name: so that each is
    compiled once and not with every kernel again.  To be called before such a kernel is loaded."""
    scalar = ir.FloatType() if dtype == np.float32 else ir.DoubleType()
    module = ir.Module(_name(scalar))
    _any_tile(module, scalar)
    host = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=_FEATURES.flatten(), opt=3)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)), host)
    engine.finalize_object()
    _engines.append(engine)             # it holds the machine code
    llvm.add_symbol(_name(scalar), engine.get_function_address(_name(scalar)))


_engines = []


def _name(scalar):
    return f"minigrad_tile_{scalar}"


def _tile_type(scalar):
    pointer, i64 = scalar.as_pointer(), ir.IntType(64)
    return ir.FunctionType(ir.VoidType(), [pointer, i64, i64, pointer, i64, pointer, i64, i64,
                                           ir.IntType(1), i64, i64])


def _any_tile(module, scalar):
    """Define void(a, a_row, a_col, b, b_panel, c, c_row, depth, add, height, vectors), which goes
    on to the function for a tile of that size."""
    function = ir.Function(module, _tile_type(scalar), _name(scalar))
    *operands, height, vectors = function.args
    a_col, i64 = operands[2], height.type
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    packed = builder.zext(builder.icmp_unsigned("!=", a_col, ir.Constant(i64, 1)), i64)
    number = height                     # of packed, vectors and height, as digits
    for digit, base in ((vectors, MR + 1), (packed, (WIDE + 1) * (MR + 1))):
        number = builder.add(number, builder.mul(digit, ir.Constant(i64, base)))
    nothing = function.append_basic_block("nothing")
    ir.IRBuilder(nothing).ret_void()
    cases = builder.switch(number, nothing)

    def go_on_to(rows, v, packed, tile):
        block = function.append_basic_block(tile.name)
        for digit in packed:
            cases.add_case(ir.Constant(i64, (digit * (WIDE + 1) + v) * (MR + 1) + rows), block)
        builder.position_at_end(block)
        builder.call(tile, operands, tail=True)
        builder.ret_void()

    for v in range(1, NV + 1):
        for rows in range(1, MR):
            go_on_to(rows, v, (0, 1), _tile(module, scalar, rows, v))
        for packed in (0, 1):           # nearly all of a product: known strides are worth it here
            go_on_to(MR, v, (packed,), _tile(module, scalar, MR, v, packed))
    for v in range(2 * NV, WIDE + 1, NV):
        go_on_to(1, v, (0,), _tile(module, scalar, 1, v))


def _tile(module, scalar, height, vectors, packed=None):
    """A module's void(a, a_row, a_col, b, b_panel, c, c_row, depth, add) for tiles of one size,
    and, where `packed` is given, of one layout of A."""
    lanes = VECTOR_BYTES // (4 if isinstance(scalar, ir.FloatType) else 8)
    itemsize = VECTOR_BYTES // lanes
    pointer, i64 = scalar.as_pointer(), ir.IntType(64)
    function = ir.Function(module, ir.FunctionType(
        ir.VoidType(), [pointer, i64, i64, pointer, i64, pointer, i64, i64, ir.IntType(1)]),
        f"{_name(scalar)}_{height}x{vectors}" + ("" if packed is None else f"_{packed}"))
    function.linkage = "internal"
    a, a_row, a_col, b, b_panel, c, c_row, depth, add = function.args
    vector = ir.VectorType(scalar, lanes)
    fma = cgutils.get_or_insert_function(
        module, ir.FunctionType(vector, [vector] * 3), f"llvm.fmuladd.v{lanes}f{8 * itemsize}")
    entry, resume, start = (function.append_basic_block(block)
                            for block in ("entry", "resume", "start"))

    def count(n):
        return ir.Constant(i64, n)

    if packed is not None:
        a_row, a_col = (count(1), count(MR)) if packed else (a_row, count(1))

    def vector_at(base, offset):
        return builder.bitcast(builder.gep(base, [offset]), vector.as_pointer())

    def load(base, offset):
        value = builder.load(vector_at(base, offset))
        value.align = itemsize
        return value

    def spread(value):
        """The same scalar in every lane."""
        undefined = ir.Constant(vector, ir.Undefined)
        first_lane = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
        return builder.shuffle_vector(builder.insert_element(undefined, value, count(0)),
                                      undefined, first_lane)

    def step(p, sums):
        """sums[i, :] += a[i, p] * b[p, :]"""
        b_row = [load(b, builder.add(builder.mul(p, count(NV * lanes)), column))
                 for column in columns]
        a_column = builder.mul(p, a_col)
        totals = []
        for i in range(height):
            a_ip = spread(builder.load(builder.gep(a, [builder.add(a_rows[i], a_column)])))
            totals += [builder.call(fma, [a_ip, b_row[v], sums[i * vectors + v]])
                       for v in range(vectors)]
        return totals

    # The sums start at zero, or at what C holds.
    builder = ir.IRBuilder(entry)
    a_rows = [builder.mul(a_row, count(i)) for i in range(height)]
    places = [builder.add(builder.mul(c_row, count(i)), count(v * lanes))
              for i in range(height) for v in range(vectors)]
    columns = [builder.add(builder.mul(b_panel, count(v // NV)), count(v % NV * lanes))
               for v in range(vectors)]
    builder.cbranch(add, resume, start)
    builder.position_at_end(resume)
    held = [load(c, place) for place in places]
    builder.branch(start)
    builder.position_at_end(start)
    zero = ir.Constant(vector, [ir.Constant(scalar, 0.0)] * lanes)
    p, sums = count(0), [_phi(builder, {entry: zero, resume: value}) for value in held]

    # for p in range(depth): step(p, sums), STEPS at a time as long as so many are left.
    for at_once in (1,) if packed is None else (STEPS, 1):
        before = builder.block
        test, body, after = (function.append_basic_block(f"{block}_{at_once}")
                             for block in ("test", "body", "after"))
        builder.branch(test)
        builder.position_at_end(test)
        p, *sums = [_phi(builder, {before: value}) for value in (p, *sums)]
        following = builder.add(p, count(at_once))
        builder.cbranch(builder.icmp_signed("<=", following, depth), body, after)
        builder.position_at_end(body)
        totals = sums
        for k in range(at_once):
            totals = step(builder.add(p, count(k)), totals)
        for phi, value in zip((p, *sums), (following, *totals)):
            phi.add_incoming(value, body)
        builder.branch(test)
        builder.position_at_end(after)

    for total, place in zip(sums, places):
        builder.store(total, vector_at(c, place)).align = itemsize
    builder.ret_void()
    return function


def _phi(builder, values):
    """The value that belongs to the block that the program has come from."""
    phi = builder.phi(next(iter(values.values())).type)
    for block, value in values.items():
        phi.add_incoming(value, block)
    return phi


def _copier(count):
    @intrinsic
    def copy(typingctx, source, source_at, target, target_at):
        signature = types.void(source, types.intp, target, types.intp)

        def codegen(context, builder, signature, values):
            itemsize = signature.args[0].dtype.bitwidth // 8
            scalar = context.get_data_type(signature.args[0].dtype)
            run = ir.VectorType(scalar, count(itemsize)).as_pointer()
            taken = builder.load(builder.bitcast(
                address(context, builder, signature, values, 0, values[1]), run))
            taken.align = itemsize
            builder.store(taken, builder.bitcast(
                address(context, builder, signature, values, 2, values[3]), run)).align = itemsize
            return context.get_dummy_value()

        return signature, codegen
    return copy


# Copy as many adjacent floats as a tile has columns, or rows, from a place in one array to another.
copy_tile_row, copy_tile_column = (_copier(lambda itemsize: TILE_BYTES // itemsize),
                                   _copier(lambda itemsize: MR))


@intrinsic
def prefetch(typingctx, source, at):
    """Ask for the place in an array, which may lie beyond its end, to be brought to the cache."""
    signature = types.void(source, types.intp)

    def codegen(context, builder, signature, values):
        byte, i32 = cgutils.voidptr_t, cgutils.int32_t
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, i32, i32, i32]))
        place = builder.bitcast(address(context, builder, signature, values, 0, values[1]), byte)
        builder.call(function, [place, *(i32(x) for x in (0, 3, 1))])   # to read, to every level
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def transpose_square(typingctx, source, source_at, source_row, target, target_at, target_row):
    """Copy a square, as many floats wide as a vector, from one array into another, transposed.

    `*_at` is where it starts, `*_row` how far apart its rows are; the floats of a row are adjacent.
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
