"""Packed weights in the kernels that sample: they become float32 in registers.

A matrix of blocks is read in panels of 32-bit words, (panels, words, NR), as one of floats is in
panels of floats.  Each column of a panel has the words of one output, in the order of its file.  So
a vector of words has the same inputs of neighbouring outputs, and sums have the order of `tiles`.

    Q4_0, Q4_1      32 numbers: a word with the scale d (and, above it, m); then 4 words, whose byte
                    i, counted on, has number i in its low half, and number i + 16 in its high half
    Q8_0            32 numbers: a word with d; then 8 words of 4 numbers
    F16, BF16       2 numbers: a word, with the first one in its low half

A number is rounded as `minigrad.packed.unpacked` rounds it: d q is exact in float32, as both
factors are short, so that d q + m is rounded once, whether in one instruction or in two.

Two functions are compiled for each kind when it is first needed.  A single row of A is multiplied
with numbers as they are unpacked.  For several rows, a piece of a panel is unpacked for the tiles.
"""
import functools

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic

from minigrad.kernels.compiler.cache import cache_folder
from minigrad.kernels.compiler.lanes import address, spread_value
from minigrad.kernels.compiler.tiles import HERE, Size, engine_of
from minigrad.packed import IN_WORDS, NUMBERS

# Of a row of a table of matrices: where its panels are, how many, and their depth K; the addresses
# of two functions, 0 for floats; of a block (for floats, of a number) the numbers and the words.
ADDRESS, PANELS, DEPTH, MULTIPLY, UNPACK, SIZE, WORDS = range(7)
FLOATS = 0, 0, 1, 1     # the last four for a matrix that is not packed

_i32, _i64, _float = ir.IntType(32), ir.IntType(64), ir.FloatType()
_engines = []


@functools.cache
def functions_of(kind: str) -> list[int]:
    """Return a kind's columns from MULTIPLY on."""
    engine = engine_of(f"packed.{kind}", cache_folder(), lambda: module_of(kind))
    _engines.append(engine)             # it holds the machine code
    return [*map(engine.get_function_address, _names(kind)), NUMBERS[kind],
            IN_WORDS[kind].itemsize // 4]


def _names(kind):
    return f"minigrad_multiply_{kind}", f"minigrad_unpack_{kind}"


@intrinsic
def call_packed(typingctx, table, matrix, which, a, b, c, depth):
    """Call a function of a packed matrix, whose address is table[matrix, which].

    MULTIPLY: c[:NR] = a[:depth] @ b[:depth, :NR];  UNPACK: c[:depth, :NR] = b.  Of a, b and c,
    arrays of float32, the first element is used; b is packed; depth is a multiple of its blocks.
    The address is loaded as a pointer: LLVM loses track of pointers that are made of integers.
    """
    signature = types.void(table, types.intp, types.intp, a, b, c, types.intp)

    def codegen(context, builder, signature, values):
        array = context.make_array(table)(context, builder, values[0])
        columns = builder.extract_value(array.shape, 1)
        place = builder.gep(array.data, [builder.add(builder.mul(values[1], columns), values[2])])
        operands = [address(context, builder, signature, values, i, _i64(0)) for i in (3, 4, 5)]
        operands.append(values[6])
        function = ir.FunctionType(ir.VoidType(), [x.type for x in operands]).as_pointer()
        builder.call(builder.load(builder.bitcast(place, function.as_pointer())), operands)
        return context.get_dummy_value()

    return signature, codegen


def module_of(kind: str, size: Size = HERE) -> ir.Module:
    """Return a module of a kind's two functions, void(a, b, c, depth)."""
    module = ir.Module(f"minigrad_packed_{kind}")
    pointer = _float.as_pointer()
    for name, multiplies in zip(_names(kind), (True, False)):
        function = ir.Function(
            module, ir.FunctionType(ir.VoidType(), [pointer] * 3 + [_i64]), name)
        _define(function, kind, size, multiplies)
    return module


def _define(function, kind, size, multiplies):
    """Write the loop over the blocks of a panel, with sums in registers if it multiplies."""
    a, b, c, depth = function.args
    lanes, numbers, words = size.vector_bytes // 4, NUMBERS[kind], IN_WORDS[kind].itemsize // 4
    NR, vector = size.NV * lanes, ir.VectorType(_float, lanes)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    test, body, end = map(function.append_basic_block, ("test", "body", "end"))
    zero = ir.Constant(vector, [0.0] * lanes)
    begun = [depth, a, b, c, *[zero] * (size.NV if multiplies else 0)]
    state = [ir.IRBuilder(test).phi(value.type) for value in begun]
    left, a_at, b_at, c_at, *sums = state
    builder.branch(test)
    builder.position_at_end(test)
    builder.cbranch(builder.icmp_signed(">", left, _i64(0)), body, end)

    builder.position_at_end(body)
    fma = get_or_insert_function(function.module, ir.FunctionType(vector, [vector] * 3),
                                 f"llvm.fmuladd.v{lanes}f32")
    for k, row in enumerate(_rows(builder, fma, kind, b_at, vector, size.NV)):
        if multiplies:
            a_k = spread_value(builder, builder.load(builder.gep(a_at, [_i64(k)])), vector)
            sums = [builder.call(fma, [a_k, *pair]) for pair in zip(row, sums)]
        else:
            _store(builder, row, builder.gep(c_at, [_i64(k * NR)]))
    steps = numbers, words * NR, 0 if multiplies else numbers * NR
    following = [builder.sub(left, _i64(numbers)),
                 *(builder.gep(at, [_i64(n)]) for at, n in zip((a_at, b_at, c_at), steps)), *sums]
    for phi, first, then in zip(state, begun, following):
        phi.add_incoming(first, function.entry_basic_block)
        phi.add_incoming(then, body)
    builder.branch(test)

    builder.position_at_end(end)
    _store(builder, state[4:], c)
    builder.ret_void()


def _rows(builder, fma, kind, b, vector, NV):
    """Yield the numbers of a block, one after another: each as NV vectors, of neighbouring
    outputs."""
    whole = ir.VectorType(_i32, vector.count)
    block = IN_WORDS[kind]

    def words(row):
        places = (builder.gep(b, [_i64((row * NV + v) * vector.count)]) for v in range(NV))
        return [builder.load(builder.bitcast(place, whole.as_pointer()), align=4)
                for place in places]

    scales = [[_float_of_half(builder, word, upper, vector) for word in words(0)]
              for upper in range(len(block.names) - 1)]
    for k in range(NUMBERS[kind]):
        if kind == "F16":
            yield [_float_of_half(builder, word, k, vector) for word in words(0)]
        elif kind == "BF16":
            yield [builder.bitcast(_upper(builder, word, k), vector) for word in words(0)]
        else:
            byte = k if kind == "Q8_0" else k % 16
            q = [_whole(builder, kind, word, 8 * (byte % 4) + 4 * (k != byte), vector)
                 for word in words(1 + byte // 4)]
            if kind == "Q4_1":
                yield [builder.call(fma, number) for number in zip(q, *scales)]
            else:
                yield [builder.fmul(*number) for number in zip(q, *scales)]


def _whole(builder, kind, word, bit, vector):
    """Return the whole numbers that begin at a bit of each word, as floats."""
    if kind == "Q8_0":
        q = builder.ashr(builder.shl(word, _all(word, 24 - bit)), _all(word, 24))
    else:
        q = builder.and_(builder.lshr(word, _all(word, bit)), _all(word, 15))
    if kind == "Q4_0":
        q = builder.sub(q, _all(word, 8))
    return builder.sitofp(q, vector)


def _upper(builder, word, upper):
    """Return a word whose upper half is one of a word's halves; the rest is 0."""
    if upper:
        return builder.and_(word, _all(word, 0xFFFF0000))
    return builder.shl(word, _all(word, 16))


def _float_of_half(builder, word, upper, vector):
    """Return the float16 in one half of each word, which is finite, as float32: its bits, three
    places further down, are those of 2^-112 times the number."""
    moved = builder.ashr(_upper(builder, word, upper), _all(word, 3))
    bits = builder.and_(moved, _all(word, 0x8FFFFFFF))
    return builder.fmul(builder.bitcast(bits, vector),
                        ir.Constant(vector, [2.0 ** 112] * vector.count))


def _all(word, n):
    return ir.Constant(word.type, [n] * word.type.count)


def _store(builder, vectors, place):
    for v, value in enumerate(vectors):
        at = builder.gep(place, [_i64(v * value.type.count)])
        builder.store(value, builder.bitcast(at, value.type.as_pointer()), align=4)
