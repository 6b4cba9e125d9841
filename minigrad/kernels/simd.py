"""What Numba has no word for: explicit vectors in registers, and the bits of a float.

The matmul's inner loop needs its accumulators to stay in registers, which LLVM's vectoriser does
not manage from plain loops.  So it is written in LLVM's own vector types, through
`numba.extending.intrinsic`; LLVM lowers the same types to AVX-512, AVX2, SSE and NEON, and only the
tile's size depends on the host.
"""
import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

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


@intrinsic
def micro_kernel(typingctx, a, a_at, a_row, a_col, b, b_at, c, c_at, c_row, depth, add):
    """C[MR, NR] = A[MR, depth] @ B[depth, NR], or += where `add`; NR is TILE_BYTES of floats.

    `a`, `b`, `c` are arrays of one float type, `*_at` where in them to start, `*_row` and `*_col`
    strides, all counted in elements.  B's rows stand one behind the other, NR apart; C's columns
    are adjacent.
    """
    signature = types.void(a, types.intp, types.intp, types.intp, b, types.intp,
                           c, types.intp, types.intp, types.intp, types.boolean)

    def codegen(context, builder, signature, values):
        a, a_at, a_row, a_col, b, b_at, c, c_at, c_row, depth, add = values

        def address(i, at):
            data = context.make_array(signature.args[i])(context, builder, values[i]).data
            return builder.gep(data, [at])

        scalar = context.get_data_type(signature.args[0].dtype)
        builder.call(_multiply_function(builder.module, scalar),
                     [address(0, a_at), a_row, a_col, address(4, b_at), address(6, c_at), c_row,
                      depth, add])
        return context.get_dummy_value()

    return signature, codegen


def _multiply_function(module, scalar):
    """A module's void(a, a_row, a_col, b, c, c_row, depth, add), written once for all calls."""
    lanes = VECTOR_BYTES // (4 if isinstance(scalar, ir.FloatType) else 8)
    itemsize = VECTOR_BYTES // lanes
    name = f"minigrad_micro_kernel_{scalar}"
    if name in module.globals:
        return module.globals[name]
    pointer, i64 = scalar.as_pointer(), ir.IntType(64)
    function = ir.Function(module, ir.FunctionType(
        ir.VoidType(), [pointer, i64, i64, pointer, pointer, i64, i64, ir.IntType(1)]), name)
    function.linkage = "linkonce_odr"
    function.attributes.add("noinline")         # a copy at each call would only be compiled again
    a, a_row, a_col, b, c, c_row, depth, add = function.args
    vector = ir.VectorType(scalar, lanes)
    fma = cgutils.get_or_insert_function(
        module, ir.FunctionType(vector, [vector] * 3), f"llvm.fmuladd.v{lanes}f{8 * itemsize}")
    entry, resume, loop, store = (function.append_basic_block(block)
                                  for block in ("entry", "resume", "loop", "store"))

    def count(n):
        return ir.Constant(i64, n)

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

    # The sums start at zero, or at what C holds.
    builder = ir.IRBuilder(entry)
    a_rows = [builder.mul(a_row, count(i)) for i in range(MR)]
    places = [builder.add(builder.mul(c_row, count(i)), count(v * lanes))
              for i in range(MR) for v in range(NV)]
    builder.cbranch(add, resume, loop)
    builder.position_at_end(resume)
    held = [load(c, place) for place in places]
    builder.branch(loop)

    # for p in range(depth):  sums[i, :] += a[i, p] * b[p, :]
    builder.position_at_end(loop)
    p = builder.phi(i64)
    p.add_incoming(count(0), entry)
    p.add_incoming(count(0), resume)
    sums = [builder.phi(vector) for _ in places]
    for phi, value in zip(sums, held):
        phi.add_incoming(ir.Constant(vector, [ir.Constant(scalar, 0.0)] * lanes), entry)
        phi.add_incoming(value, resume)
    b_row = [load(b, builder.add(builder.mul(p, count(NV * lanes)), count(v * lanes)))
             for v in range(NV)]
    column = builder.mul(p, a_col)
    totals = []
    for i in range(MR):
        a_ip = spread(builder.load(builder.gep(a, [builder.add(a_rows[i], column)])))
        totals += [builder.call(fma, [a_ip, b_row[v], sums[i * NV + v]]) for v in range(NV)]
    following = builder.add(p, count(1))
    p.add_incoming(following, loop)
    for phi, value in zip(sums, totals):
        phi.add_incoming(value, loop)
    builder.cbranch(builder.icmp_signed("<", following, depth), loop, store)

    builder.position_at_end(store)
    for total, place in zip(totals, places):
        builder.store(total, vector_at(c, place)).align = itemsize
    builder.ret_void()
    return function


@intrinsic
def half_power_of_two(typingctx, n):
    """2^(n - 1) of a whole float32 n in [-125, 128], by writing its exponent's bits."""
    def codegen(context, builder, signature, values):
        whole = builder.fptosi(values[0], ir.IntType(32))
        bits = builder.shl(builder.add(whole, ir.Constant(ir.IntType(32), 126)),
                           ir.Constant(ir.IntType(32), 23))
        return builder.bitcast(bits, ir.FloatType())
    return types.float32(types.float32), codegen


def _pick(name):
    @intrinsic
    def pick(typingctx, x, y):
        def codegen(context, builder, signature, values):
            number = values[0].type
            function = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(number, [number] * 2),
                f"llvm.{name}.f{32 if isinstance(number, ir.FloatType) else 64}")
            return builder.call(function, values)
        return x(x, x), codegen
    return pick


# The larger and the smaller of two floats, which of a float and nan is the float.  Python's max and
# min, as Numba compiles them, look for nan, and no loop around them becomes vectors.
larger, smaller = _pick("maxnum"), _pick("minnum")
