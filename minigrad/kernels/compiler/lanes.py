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

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.core.datamodel import models, register_default
from numba.extending import intrinsic, overload

from minigrad.kernels.compiler.simd import address, spread_value

LANES = 16


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


_i32 = ir.IntType(32)
_counts = ir.VectorType(_i32, LANES)


@intrinsic
def load(typingctx, row, at, beyond):
    """Return the numbers of a dense row from place `at` on; `beyond` stands after its end."""
    def codegen(context, builder, signature, values):
        align = row.dtype.bitwidth // 8
        vector, place, left = _rest(context, builder, signature, values)
        with builder.if_else(_fits(builder, left)) as (whole, part):
            with whole:
                loaded = builder.load(place, align=align)
                after_whole = builder.block
            with part:
                mask = _first(builder, left)
                fill = context.cast(builder, values[2], signature.args[2], row.dtype)
                masked_load = get_or_insert_function(builder.module, ir.FunctionType(
                    vector, [place.type, _i32, mask.type, vector]),
                    f"llvm.masked.load.{_suffix(vector)}.p0")
                masked = builder.call(masked_load, [place, _i32(align), mask,
                                                    spread_value(builder, fill, vector)])
                after_part = builder.block
        taken = builder.phi(vector)
        taken.add_incoming(loaded, after_whole)
        taken.add_incoming(masked, after_part)
        return taken
    return Lanes(row.dtype)(row, types.intp, beyond), codegen


@intrinsic
def store(typingctx, row, at, lanes):
    """Write to a dense row from place `at` on, up to its end."""
    def codegen(context, builder, signature, values):
        align = row.dtype.bitwidth // 8
        vector, place, left = _rest(context, builder, signature, values)
        with builder.if_else(_fits(builder, left)) as (whole, part):
            with whole:
                builder.store(values[2], place, align=align)
            with part:
                mask = _first(builder, left)
                masked_store = get_or_insert_function(builder.module, ir.FunctionType(
                    ir.VoidType(), [vector, place.type, _i32, mask.type]),
                    f"llvm.masked.store.{_suffix(vector)}.p0")
                builder.call(masked_store, [values[2], place, _i32(align), mask])
        return context.get_dummy_value()
    return types.void(row, types.intp, lanes), codegen


def _rest(context, builder, signature, values):
    """Return LLVM's type of lanes, a pointer to place `at` of a row, and how many numbers
    follow."""
    vector = ir.VectorType(context.get_data_type(signature.args[0].dtype), LANES)
    start = address(context, builder, signature, values, 0, values[1])
    size = context.make_array(signature.args[0])(context, builder, values[0]).shape
    left = builder.sub(builder.extract_value(size, 0), values[1])
    return vector, builder.bitcast(start, vector.as_pointer()), left


def _fits(builder, left):
    return builder.icmp_signed(">=", left, ir.Constant(left.type, LANES))


def _first(builder, left):
    """Return a mask of the first `left` lanes."""
    return builder.icmp_signed("<", ir.Constant(_counts, list(range(LANES))),
                               spread_value(builder, builder.trunc(left, _i32), _counts))


def _suffix(kind):
    """Return the end of an LLVM intrinsic's name, for a float or for lanes."""
    count, scalar = (f"v{LANES}", kind.element) if isinstance(kind, ir.VectorType) else ("", kind)
    return count + ("f32" if isinstance(scalar, ir.FloatType) else "f64")


def _on_each(emit, *operands):
    """Return an intrinsic that works on floats of one type, on Lanes, or on both; floats beside
    Lanes are spread."""
    result = next((operand for operand in operands if isinstance(operand, Lanes)), operands[0])
    scalar = getattr(result, "dtype", result)

    def codegen(context, builder, signature, values):
        kind, spread = context.get_value_type(result), []
        for value, operand in zip(values, operands):
            if not isinstance(operand, Lanes):
                value = context.cast(builder, value, operand, scalar)
                if kind != value.type:
                    value = spread_value(builder, value, kind)
            spread.append(value)
        return emit(builder, *spread)
    return result(*operands), codegen


def _means(symbol, emit):
    """Make an operator on Lanes do the same to each lane."""
    @intrinsic
    def on_lanes(typingctx, x, y):
        return _on_each(emit, x, y)

    @overload(symbol)
    def of_lanes(x, y):
        if isinstance(x, Lanes) or isinstance(y, Lanes):
            return lambda x, y: on_lanes(x, y)


_means(operator.add, ir.IRBuilder.fadd)
_means(operator.iadd, ir.IRBuilder.fadd)
_means(operator.sub, ir.IRBuilder.fsub)
_means(operator.mul, ir.IRBuilder.fmul)


@intrinsic
def fma(typingctx, x, y, z):
    """x * y + z, rounded once where the processor can."""
    def emit(builder, *values):
        kind = values[0].type
        fmuladd = get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * 3),
                                         f"llvm.fmuladd.{_suffix(kind)}")
        return builder.call(fmuladd, values)
    return _on_each(emit, x, y, z)


@intrinsic
def larger(typingctx, x, y):
    """x if it is larger than y, else y."""
    return _on_each(lambda builder, x, y: builder.select(
        builder.fcmp_ordered(">", x, y), x, y), x, y)


@intrinsic
def clamp(typingctx, x, low, high):
    """x, but at least `low` and at most `high`; nan stays nan."""
    def emit(builder, x, low, high):
        x = builder.select(builder.fcmp_ordered("<", x, low), low, x)
        return builder.select(builder.fcmp_ordered(">", x, high), high, x)
    return _on_each(emit, x, low, high)


@intrinsic
def power_of_two(typingctx, shifted):
    """2^n for a float32 n + 1.5 * 2^23 with whole n in [-127, 128]: 0 for -127, inf for 128."""
    def emit(builder, shifted):
        # The low bits of such a float are n; they become the bits of an exponent.
        lanes = isinstance(shifted.type, ir.VectorType)
        kind = _counts if lanes else _i32

        def constant(n):
            return ir.Constant(kind, [n] * LANES if lanes else n)
        bits = builder.shl(builder.bitcast(shifted, kind), constant(23))
        return builder.bitcast(builder.add(bits, constant(127 << 23)), shifted.type)
    return _on_each(emit, shifted)


@intrinsic
def lane(typingctx, lanes, i):
    """The number in lane i."""
    def codegen(context, builder, signature, values):
        return builder.extract_element(*values)
    return lanes.dtype(lanes, types.intp), codegen


@intrinsic
def with_lane(typingctx, lanes, i, x):
    """The lanes, with x in lane i."""
    def codegen(context, builder, signature, values):
        lanes, i, x = values
        return builder.insert_element(lanes, x, i)
    return lanes(lanes, types.intp, lanes.dtype), codegen


@intrinsic
def spread(typingctx, x):
    """The same number in every lane."""
    def codegen(context, builder, signature, values):
        return spread_value(builder, values[0], context.get_value_type(signature.return_type))
    return Lanes(x)(x), codegen


def _folded(combine):
    def fold(typingctx, lanes):
        def codegen(context, builder, signature, values):
            x, count = values[0], LANES
            while count > 1:
                count //= 2
                halves = (builder.shuffle_vector(x, x, ir.Constant(
                    ir.VectorType(_i32, count), list(range(start, start + count))))
                    for start in (0, count))
                x = combine(builder, *halves)
            return builder.extract_element(x, _i32(0))
        return lanes.dtype(lanes), codegen
    return intrinsic(fold)


total = _folded(ir.IRBuilder.fadd)
largest_lane = _folded(lambda builder, x, y: builder.select(
    builder.fcmp_ordered(">", x, y), x, y))
