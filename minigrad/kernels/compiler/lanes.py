"""Rows processed sixteen numbers at a time, so that the order of every sum is fixed.

A sum of floats depends on the order of its additions.  A compiler that may choose that order
chooses another one for wider vectors, and sometimes when it compiles the same loop a second time.
Here the number at place i of a row goes to partial sum i % LANES, and at the end the partial sums
are added in halves: eight to eight, four to four, two to two, one to one.  Sixteen floats are one
vector of AVX-512, two of AVX2 or four of NEON, and give the same bits on each.

    sums = spread(x.dtype.type(0))
    for i in range(0, x.size, LANES):
        sums += load(x, i, 0)
    return total(sums)

If a loop reads several rows, make them parts of one length first: then it needs one test of the
end.
"""
import operator

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.cgutils import alloca_once, get_or_insert_function, unpack_tuple
from numba.core.datamodel import models, register_default
from numba.extending import intrinsic, overload
from numba.np import arrayobj

from minigrad.kernels.compiler.linking import inlined, serial

LANES = 16
LEAST = 1e-30       # of a sum of squares in float32, to which squares that are 0 would add nothing
_i32 = ir.IntType(32)
_counts = ir.VectorType(_i32, LANES)


def address(context, builder, signature, values, i, at):
    """For an intrinsic: return the address of element `at` of its argument i, an array."""
    data = context.make_array(signature.args[i])(context, builder, values[i]).data
    return builder.gep(data, [at])


def spread_value(builder, value, vector):
    """Return LLVM's vector with the same number in every lane."""
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, _i32(0))
    return shuffled(builder, first, first, [0] * vector.count)


def shuffled(builder, x, y, places):
    """Return LLVM's vector of some numbers of two others, in which those of y are counted on."""
    return builder.shuffle_vector(
        x, y, ir.Constant(ir.VectorType(_i32, len(places)), list(places)))


@intrinsic
def part(typingctx, array, start, size):
    """Return `size` numbers of a dense array, from place `start` on in memory order."""
    known = types.Array(array.dtype, 1, "C")

    def codegen(context, builder, signature, values):
        place = address(context, builder, signature, values, 0, values[1])
        return _dense(context, builder, known, place, values[2])

    return known(array, types.intp, types.intp), codegen


@inlined
def row_of(x, r):
    """Return row r of a dense matrix."""
    return part(x, r * x.shape[1], x.shape[1])


@intrinsic
def array_at(typingctx, addresses, row, column, start, size, like):
    """Return `size` elements, from number `start` on, of a dense array whose address is
    addresses[row, column], with the element type of `like`.

    The address is loaded as a pointer: LLVM loses track of pointers that are made of integers.
    """
    array = types.Array(like.dtype, 1, "C")

    def codegen(context, builder, signature, values):
        table, row, column, start, size, _ = values
        table = context.make_array(addresses)(context, builder, table)
        columns = builder.extract_value(table.shape, 1)
        place = builder.gep(table.data, [builder.add(builder.mul(row, columns), column)])
        pointer = context.get_data_type(array.dtype).as_pointer()
        data = builder.load(builder.bitcast(place, pointer.as_pointer()))
        return _dense(context, builder, array, builder.gep(data, [start]), size)

    return array(addresses, types.intp, types.intp, types.intp, types.intp, like), codegen


def _dense(context, builder, array_type, pointer, size):
    array = context.make_array(array_type)(context, builder)
    itemsize = context.get_constant(types.intp, array_type.dtype.bitwidth // 8)
    arrayobj.populate_array(array, data=pointer, shape=[size], strides=[itemsize],
                            itemsize=itemsize, meminfo=None)
    return array._getvalue()


class Lanes(types.Type):
    """Sixteen floats of one type."""

    def __init__(self, dtype):
        self.dtype = dtype
        super().__init__(f"Lanes({dtype})")


@register_default(Lanes)
class _Model(models.PrimitiveModel):
    def __init__(self, manager, lanes):
        scalar = ir.FloatType() if lanes.dtype == types.float32 else ir.DoubleType()
        super().__init__(manager, lanes, ir.VectorType(scalar, LANES))


@intrinsic
def load(typingctx, row, at, beyond):
    """Return the numbers of a dense row from place `at` on; `beyond` stands after its end."""
    def codegen(context, builder, signature, values):
        vector, align, place, left, fits = _rest(context, builder, row, *values[:2])
        taken = alloca_once(builder, vector)
        with builder.if_else(fits) as (whole, part):
            with whole:
                builder.store(builder.load(place, align=align), taken)
            with part:
                fill = context.cast(builder, values[2], beyond, row.dtype)
                found = call_llvm(builder, f"masked.load.{suffix(vector)}.p0", vector, place,
                                  _i32(align), _first(builder, left),
                                  spread_value(builder, fill, vector))
                builder.store(found, taken)
        return builder.load(taken)
    return Lanes(row.dtype)(row, types.intp, beyond), codegen


@intrinsic
def store(typingctx, row, at, lanes):
    """Write to a dense row from place `at` on, up to its end."""
    def codegen(context, builder, signature, values):
        vector, align, place, left, fits = _rest(context, builder, row, *values[:2])
        with builder.if_else(fits) as (whole, part):
            with whole:
                builder.store(values[2], place, align=align)
            with part:
                call_llvm(builder, f"masked.store.{suffix(vector)}.p0", ir.VoidType(), values[2],
                          place, _i32(align), _first(builder, left))
        return context.get_dummy_value()
    return types.void(row, types.intp, lanes), codegen


def _rest(context, builder, row, value, at):
    """Return LLVM's type of lanes, the bytes of a number, a pointer to place `at` of a row, how
    many numbers follow, and whether these fill the lanes."""
    vector = ir.VectorType(context.get_data_type(row.dtype), LANES)
    array = context.make_array(row)(context, builder, value)
    place = builder.bitcast(builder.gep(array.data, [at]), vector.as_pointer())
    size = builder.extract_value(array.shape, 0)
    last = builder.sub(size, ir.Constant(size.type, LANES))     # the same throughout a loop
    fits = builder.icmp_signed("<=", at, last)
    return vector, row.dtype.bitwidth // 8, place, builder.sub(size, at), fits


def _first(builder, left):
    """Return a mask of the first `left` lanes."""
    return builder.icmp_signed("<", ir.Constant(_counts, list(range(LANES))),
                               spread_value(builder, builder.trunc(left, _i32), _counts))


def call_llvm(builder, name, result, *operands):
    """Call one of LLVM's own functions; return its result, of that type."""
    function = get_or_insert_function(
        builder.module, ir.FunctionType(result, [x.type for x in operands]), f"llvm.{name}")
    return builder.call(function, operands)


def suffix(kind):
    """Return how such a function's name ends, for a float or a vector."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{suffix(kind.element)}"
    return "f32" if isinstance(kind, ir.FloatType) else "f64"


def _on_each(emit, *operands):
    """Return an intrinsic that works on floats of one type, on Lanes, or on both; floats beside
    Lanes are spread."""
    result = next((operand for operand in operands if isinstance(operand, Lanes)), operands[0])
    scalar = getattr(result, "dtype", result)

    def codegen(context, builder, signature, values):
        kind = context.get_value_type(result)
        spread = []
        for value, operand in zip(values, operands):
            if not isinstance(operand, Lanes):
                value = context.cast(builder, value, operand, scalar)
                if kind != value.type:
                    value = spread_value(builder, value, kind)
            spread.append(value)
        return emit(builder, *spread)
    return result(*operands), codegen


def _of_two(emit):
    """Return an intrinsic of two floats or Lanes."""
    @intrinsic
    def combined(typingctx, x, y):
        return _on_each(emit, x, y)
    return combined


def _means(symbol, emit):
    """Make an operator on Lanes do the same to each lane."""
    on_lanes = _of_two(emit)

    @overload(symbol)
    def of_lanes(x, y):
        if isinstance(x, Lanes) or isinstance(y, Lanes):
            return lambda x, y: on_lanes(x, y)


_means(operator.add, ir.IRBuilder.fadd)
_means(operator.iadd, ir.IRBuilder.fadd)
_means(operator.sub, ir.IRBuilder.fsub)
_means(operator.mul, ir.IRBuilder.fmul)


def _by_llvm(name):
    """Return what emits a call of one of LLVM's functions of floats or vectors."""
    def emit(builder, *values):
        kind = values[0].type
        return call_llvm(builder, f"{name}.{suffix(kind)}", kind, *values)
    return emit


emit_fma = _by_llvm("fmuladd")


@intrinsic
def fma(typingctx, x, y, z):
    """x * y + z, rounded once where the processor can."""
    return _on_each(emit_fma, x, y, z)


@intrinsic
def polynomial(typingctx, x, coefficients):
    """c[0] + c[1] x + c[2] x^2 + ..., from its end on, each step by `fma`."""
    def emit(builder, x, *coefficients):
        *others, value = coefficients
        for c in reversed(others):
            value = emit_fma(builder, value, x, c)
        return value
    signature, of_each = _on_each(emit, x, *coefficients)

    def codegen(context, builder, signature, values):
        return of_each(context, builder, signature,
                       [values[0], *unpack_tuple(builder, values[1])])
    return signature.return_type(x, coefficients), codegen


@intrinsic
def exp_of_each(typingctx, x):
    """e^x by libm, number by number."""
    return _on_each(_by_llvm("exp"), x)


def _select(comparison):
    def emit(builder, x, y):
        return builder.select(builder.fcmp_ordered(comparison, x, y), x, y)
    return emit


larger = _of_two(_select(">"))      # x if it is larger than y, else y
smaller = _of_two(_select("<"))     # x if it is smaller than y, else y


@intrinsic
def power_of_two(typingctx, shifted):
    """2^n for a float32 n + 1.5 * 2^23 with whole n in [-127, 128]: 0 for -127, inf for 128."""
    def emit(builder, shifted):
        # The low bits of such a float are n; they become the bits of an exponent.
        def constant(n):
            if isinstance(shifted.type, ir.VectorType):
                return ir.Constant(_counts, [n] * LANES)
            return _i32(n)
        bits = builder.bitcast(shifted, constant(0).type)
        exponent = builder.add(builder.shl(bits, constant(23)), constant(127 << 23))
        return builder.bitcast(exponent, shifted.type)
    return _on_each(emit, shifted)


@intrinsic
def replace_first(typingctx, lanes, count, value):
    """The same lanes, but a value in the first `count` of them."""
    def codegen(context, builder, signature, values):
        fill = context.cast(builder, values[2], value, lanes.dtype)
        spread = spread_value(builder, fill, values[0].type)
        return builder.select(_first(builder, values[1]), spread, values[0])
    return lanes(lanes, types.intp, value), codegen


@intrinsic
def spread(typingctx, x):
    """The same number in every lane."""
    def codegen(context, builder, signature, values):
        return spread_value(builder, values[0], context.get_value_type(signature.return_type))
    return Lanes(x)(x), codegen


def _folded(combine):
    def fold(typingctx, lanes):
        def codegen(context, builder, signature, values):
            x, = values
            count = LANES
            while count > 1:
                count //= 2
                low = shuffled(builder, x, x, range(count))
                high = shuffled(builder, x, x, range(count, 2 * count))
                x = combine(builder, low, high)
            return builder.extract_element(x, _i32(0))
        return lanes.dtype(lanes), codegen
    return intrinsic(fold)


total = _folded(ir.IRBuilder.fadd)
largest_lane = _folded(_select(">"))


# Sums over a row, and its maximum.  There are two partial sums for each lane, of even and of odd
# sixteens, which are added first: while one waits for its last addition, the other takes its next.

@serial
def row_sum(x, less):
    """Return the sum of x - less."""
    even = odd = spread(x.dtype.type(0))
    for i in range(0, x.size, 2 * LANES):
        even += load(x, i, less) - less
        odd += load(x, i + LANES, less) - less
    return total(even + odd)


@serial
def squares(x, mean):
    """Return the sum of (x - mean)^2 in float64.  Squares that float32 cannot hold are added up one
    by one."""
    even = odd = spread(x.dtype.type(0))
    for i in range(0, x.size, 2 * LANES):
        a = load(x, i, mean) - mean
        b = load(x, i + LANES, mean) - mean
        even = fma(a, a, even)
        odd = fma(b, b, odd)
    found = np.float64(total(even + odd))
    if LEAST < found < np.inf:
        return found
    found = 0.0
    for i in range(x.size):
        found += np.float64(x[i] - mean) ** 2
    return found


@serial
def dot(x, y):
    """Return x @ y; y may be longer."""
    y = part(y, 0, x.size)
    even = odd = spread(x.dtype.type(0))
    for i in range(0, x.size, 2 * LANES):
        even = fma(load(x, i, 0), load(y, i, 0), even)
        odd = fma(load(x, i + LANES, 0), load(y, i + LANES, 0), odd)
    return total(even + odd)


@serial
def largest(x):
    """Return the maximum of a row; if it has a nan, the result is undefined."""
    even = odd = spread(x.dtype.type(-np.inf))
    for i in range(0, x.size, 2 * LANES):
        even = larger(load(x, i, -np.inf), even)
        odd = larger(load(x, i + LANES, -np.inf), odd)
    return largest_lane(larger(even, odd))
