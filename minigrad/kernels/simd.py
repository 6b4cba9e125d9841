"""What Numba has no word for: the bits of a float, a maximum without nan, arrays at an address.

Through `numba.extending.intrinsic`, which writes LLVM's own instructions.
"""
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj


def address(context, builder, signature, values, i, at):
    """For an intrinsic: where element `at` of the array that is its argument i lies."""
    data = context.make_array(signature.args[i])(context, builder, values[i]).data
    return builder.gep(data, [at])


@intrinsic
def power_of_two(typingctx, shifted):
    """2^n for a float32 n + 1.5 * 2^23 with whole n in [-127, 128]: 0 for -127, inf for 128."""
    def codegen(context, builder, signature, values):
        # The low bits of such a float are n; they become those of an exponent.
        bits = builder.shl(builder.bitcast(values[0], ir.IntType(32)),
                           ir.Constant(ir.IntType(32), 23))
        bits = builder.add(bits, ir.Constant(ir.IntType(32), 127 << 23))
        return builder.bitcast(bits, ir.FloatType())
    return types.float32(types.float32), codegen


@intrinsic
def larger(typingctx, x, y):
    """The larger of two floats that are not nan; of nan, anything.

    A promise that LLVM must have to make vectors of a loop over a maximum.
    """
    def codegen(context, builder, signature, values):
        number = values[0].type
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(number, [number] * 2),
            f"llvm.maxnum.f{32 if isinstance(number, ir.FloatType) else 64}")
        return builder.call(function, values, fastmath=("nnan", "nsz"))
    return x(x, x), codegen


@intrinsic
def dense_row(typingctx, row):
    """A row that is dense, as an array known to be so, in order that loops over it become vectors;
    it lives no longer than `row`."""
    known = types.Array(row.dtype, 1, "C")

    def codegen(context, builder, signature, values):
        given = context.make_array(signature.args[0])(context, builder, values[0])
        size = builder.extract_value(given.shape, 0)
        return _dense(context, builder, known, given.data, size)

    return known(row), codegen


@intrinsic
def array_at(typingctx, address, size, like):
    """The array of `size` elements at an address, of the type of the elements of `like`."""
    array = types.Array(like.dtype, 1, "C")

    def codegen(context, builder, signature, values):
        pointer = builder.inttoptr(values[0], context.get_data_type(array.dtype).as_pointer())
        return _dense(context, builder, array, pointer, values[1])

    return array(types.intp, types.intp, like), codegen


def _dense(context, builder, array_type, pointer, size):
    array = context.make_array(array_type)(context, builder)
    itemsize = context.get_constant(types.intp, array_type.dtype.bitwidth // 8)
    arrayobj.populate_array(array, data=pointer, shape=[size], strides=[itemsize],
                            itemsize=itemsize, meminfo=None)
    return array._getvalue()
