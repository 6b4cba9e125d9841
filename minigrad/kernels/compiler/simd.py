"""Arrays that Numba cannot express: a part of another, known to be dense, or one at an address.

They use `numba.extending.intrinsic`, which writes LLVM instructions.  None of them owns its memory
or is reference-counted; none may outlive the array whose memory it uses.
"""
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np import arrayobj

_i32 = ir.IntType(32)


def address(context, builder, signature, values, i, at):
    """For an intrinsic: return the address of element `at` of its argument i, an array."""
    data = context.make_array(signature.args[i])(context, builder, values[i]).data
    return builder.gep(data, [at])


def spread_value(builder, value, vector):
    """Return LLVM's vector with the same number in every lane."""
    zeros = ir.Constant(ir.VectorType(_i32, vector.count), [0] * vector.count)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, _i32(0))
    return builder.shuffle_vector(first, first, zeros)


@intrinsic
def part(typingctx, array, start, size):
    """Return `size` numbers of a dense array, from place `start` on in memory order."""
    known = types.Array(array.dtype, 1, "C")

    def codegen(context, builder, signature, values):
        place = address(context, builder, signature, values, 0, values[1])
        return _dense(context, builder, known, place, values[2])

    return known(array, types.intp, types.intp), codegen


@intrinsic
def array_at(typingctx, address, size, like):
    """Return the array of `size` elements at an address, with the element type of `like`."""
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
