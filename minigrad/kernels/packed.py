"""Packed weights in the kernels that sample: they become float32 in registers.

A matrix of blocks is read in panels of 32-bit words, (panels, words, NR), as one of floats is in
panels of floats.  Each column of a panel has the words of one output, in the order of its file.  So
a vector of words has the same inputs of neighbouring outputs, and sums have the order of `tiles`.

    Q4_0, Q4_1      32 numbers: a word with the scale d (and, above it, m); then 4 words, whose byte
                    i, counted on, has number i in its low half, and number i + 16 in its high half
    Q8_0            32 numbers: a word with d; then 8 words of 4 numbers
    Q5_0            32 numbers: a word with d; then 5 words of 6 numbers.  The last two are above d
    Q4_K            64 numbers: a word with d and m; one of scales, each a byte, two of d and two of
                    m; then 8 words, whose halves of bytes are as those of Q4_1
    Q5_K            64 numbers: the same two words; then 11 words of 6 numbers
    Q6_K            64 numbers: a word with d; one of four scales; then 13 words of 5 numbers
    F16, BF16       2 numbers: a word, with the first one in its low half

A number is rounded as `minigrad.packed.unpacked` rounds it: d q is exact in float32, as both
factors are short, so that d q + m is rounded once, whether in one instruction or in two.  So is d
times its scale in bytes.

Two functions are compiled for each kind when it is first needed.  A single row of A is multiplied
with numbers as they are unpacked.  For several rows, a piece of a panel is unpacked for the tiles.
"""
import functools

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from minigrad.kernels.compiler.cache import cache_folder
from minigrad.kernels.compiler.lanes import address, emit_fma, spread_value
from minigrad.kernels.compiler.tiles import HERE, Size, engine_of
from minigrad.packed import KINDS, Kind, Packed

# Of a row of a table of matrices: where its panels are, how many, and their depth K; the addresses
# of two functions, 0 for floats; of a block (for floats, of a number) the numbers and the words;
# where its biases begin; and, as rows of a matrix may be of several kinds, the panel before which
# those of this kind end, and the row of the table for those that follow.
ADDRESS, PANELS, DEPTH, MULTIPLY, UNPACK, SIZE, WORDS, BIAS, END, NEXT = range(10)
FLOATS = 0, 0, 1, 1     # from MULTIPLY to WORDS, for a matrix that is not packed
NAMES = "minigrad_multiply", "minigrad_unpack"
FRACTION, EXPONENT_OF_ONE = 23, 127     # of a float32: bits of its fraction, below its exponent
PLACE = 12              # the bit to which numbers are moved, see _rows_for_sums

_i32, _i64, _float = ir.IntType(32), ir.IntType(64), ir.FloatType()
_engines = []


@functools.cache
def functions_of(kind: str) -> tuple[int, ...]:
    """Return a kind's columns from MULTIPLY to WORDS."""
    engine = engine_of(f"packed.{kind}", cache_folder(), lambda: module_of(kind))
    _engines.append(engine)             # it holds the machine code
    row = KINDS[kind]
    return (*map(engine.get_function_address, NAMES), row.in_words, row.words.itemsize // 4)


def rows_of_table(weight: Packed, NR: int, bias: int, following: int) -> list[list[int]]:
    """Return the rows of a table for a matrix, one of each of its parts, whose panels live as long
    as it does.  All but the first stand in the table from row `following` on.  ADDRESS is where the
    panels would begin if those of the parts before had the same size."""
    rows = []
    begin = 0
    for n, part in enumerate(weight.parts):
        panels = part.in_panels(NR)
        end = begin + len(panels)
        address = panels.ctypes.data - begin * panels[0].nbytes
        functions = functions_of(part.kind)
        rows.append([address, 0, part.shape[1], *functions, bias, end, following + n])
        begin = end
    rows[0][PANELS] = begin
    return rows


@intrinsic
def call_packed(typingctx, table, matrix, which, a, b, c, depth):
    """Call a function of a packed matrix, whose address is table[matrix, which].

    MULTIPLY: c[:NR] = a[:depth] @ b[:depth, :NR];  UNPACK: c[:depth, :NR] = b.  Of a, b and c,
    arrays of float32, the first element is used; b is packed; depth is a multiple of its blocks.
    The address is loaded as a pointer: LLVM loses track of pointers that are made of integers.
    """
    def codegen(context, builder, signature, values):
        array = context.make_array(table)(context, builder, values[0])
        columns = builder.extract_value(array.shape, 1)
        cell = builder.add(builder.mul(values[1], columns), values[2])
        operands = [address(context, builder, signature, values, i, _i64(0)) for i in (3, 4, 5)]
        operands.append(values[6])
        kind = ir.FunctionType(ir.VoidType(), [x.type for x in operands])
        cell = builder.gep(array.data, [cell])
        function = builder.load(builder.bitcast(cell, kind.as_pointer().as_pointer()))
        builder.call(function, operands)
        return context.get_dummy_value()

    return types.void(table, types.intp, types.intp, a, b, c, types.intp), codegen


def module_of(kind: str, size: Size = HERE) -> ir.Module:
    """Return a module of a kind's two functions, void(a, b, c, depth)."""
    module = ir.Module(kind)
    lanes = size.vector_bytes // 4
    vector = ir.VectorType(_float, lanes)
    words = ir.VectorType(_i32, lanes)
    arguments = [_float.as_pointer(), words.as_pointer(), vector.as_pointer(), _i64]
    zero = ir.Constant(vector, [0.0] * lanes)
    for name, zeros in zip(NAMES, ([zero] * size.NV, [])):
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), name)
        _define(function, KINDS[kind], size.NV, zeros)
    return module


def _define(function, kind, NV, zeros):
    """Write the loop over the blocks of a panel, with sums in registers, which begin at zeros; or
    without sums, if it unpacks.  Pointers count in vectors, but for a's."""
    a, b, c, depth = function.args
    vector = c.type.pointee
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    body = function.append_basic_block("body")
    end = function.append_basic_block("end")
    builder.branch(body)
    builder.position_at_end(body)
    first = [depth, a, b, c, *zeros]
    state = [builder.phi(value.type) for value in first]
    left, a_at, b_at, c_at, *sums = state
    has_d_alone = "d" in kind.words.names and "m" not in kind.words.names and not kind.scaled
    rows = _rows_for_sums if zeros and has_d_alone else _rows
    for k, row in enumerate(rows(builder, kind, b_at, NV, vector)):
        if zeros:
            a_k = builder.load(builder.gep(a_at, [_i64(k)]))
            a_k = spread_value(builder, a_k, vector)
            sums = [emit_fma(builder, a_k, *pair) for pair in zip(row, sums)]
        else:
            _store(builder, row, builder.gep(c_at, [_i64(k * NV)]))
    numbers = kind.in_words
    left = builder.sub(left, _i64(numbers))
    steps = [numbers, kind.words.itemsize // 4 * NV, 0 if zeros else numbers * NV]
    moved = [builder.gep(at, [_i64(step)]) for at, step in zip((a_at, b_at, c_at), steps)]
    for phi, value, following in zip(state, first, [left, *moved, *sums]):
        phi.add_incoming(value, function.entry_basic_block)
        phi.add_incoming(following, body)
    more = builder.icmp_signed(">", left, _i64(0))
    builder.cbranch(more, body, end)
    builder.position_at_end(end)
    _store(builder, sums, c)
    builder.ret_void()


def _rows(builder, kind, b, NV, vector):
    """Yield the numbers of a block, one after another: each as NV vectors, of neighbouring
    outputs."""
    def word(place):
        return builder.load(builder.gep(b, [_i64(place)]), align=4)

    def words(row):
        return [word(row * NV + v) for v in range(NV)]

    def halves(upper):
        return [_float_of_half(builder, word, upper, vector) for word in words(0)]

    def byte(n, signed):
        """Return a byte of the second words, as floats."""
        scales = [_bits(builder, word, 8 * n, 8, signed) for word in words(1)]
        return [builder.sitofp(scale, vector) for scale in scales]

    names = kind.words.names
    if "half" in names:
        yield halves(0)
        yield halves(1)
        return
    if "upper" in names:
        for upper in range(2):
            yield [builder.bitcast(_upper(builder, word, upper), vector) for word in words(0)]
        return
    scale = d = halves(0)
    smallest = m = halves(1) if "m" in names else []
    for k in range(kind.in_words):
        if kind.scaled and k % kind.scaled == 0:
            n = k // kind.scaled
            scale = [builder.fmul(*pair) for pair in zip(d, byte(n, kind.signed))]
            if m:
                below_zero = [builder.fmul(*pair) for pair in zip(m, byte(2 + n, signed=False))]
                smallest = [builder.fneg(value) for value in below_zero]
        row, bit = place_of(kind, k)
        q = [_whole(builder, word, bit, kind, vector) for word in words(row)]
        if m:
            yield [emit_fma(builder, *three) for three in zip(q, scale, smallest)]
        else:
            yield [builder.fmul(*pair) for pair in zip(q, scale)]


def _rows_for_sums(builder, kind, b, NV, vector):
    """Yield the numbers of a block that has d alone, as `_rows` does, but in fewer instructions.

    From bit PLACE on, q is in the fraction of a float of the exponent of 2^e, and counts in ones
    there, with e = 11.  Then  d q = d (2^e + q) - d 2^e,  where both products are exact.  Only a
    zero may have another sign, which no sum notices that begins at 0.  Of signed numbers, the upper
    bit is turned, so they are q + top.
    """
    def load(place):
        return [builder.load(builder.gep(b, [_i64(place * NV + v)]), align=4) for v in range(NV)]

    d = [_float_of_half(builder, word, 0, vector) for word in load(0)]
    top = 1 << kind.bits - 1 if kind.signed else 0
    exponent = EXPONENT_OF_ONE + FRACTION - PLACE
    factor = -(2.0 ** (FRACTION - PLACE) + top + kind.less)
    factors = ir.Constant(vector, [factor] * vector.count)
    d_times = [builder.fmul(value, factors) for value in d]
    for k in range(kind.in_words):
        row, bit = place_of(kind, k)
        numbers = []
        for word, scale, less in zip(load(row), d, d_times):
            if bit < PLACE:
                word = builder.shl(word, _all(word, PLACE - bit))
            elif bit > PLACE:
                word = builder.lshr(word, _all(word, bit - PLACE))
            q = builder.and_(word, _all(word, (1 << kind.bits) - 1 << PLACE))
            q = builder.xor(q, _all(word, exponent << FRACTION | top << PLACE))
            numbers.append(emit_fma(builder, builder.bitcast(q, vector), scale, less))
        yield numbers


def place_of(kind: Kind, k: int) -> tuple[int, int]:
    """Return the word of a block, and the first bit there, of its k-th number."""
    first = 2 if kind.scaled else 1
    if kind.bits == 4:
        upper, byte = divmod(k, kind.in_words // 2)
        return first + byte // 4, 8 * (byte % 4) + 4 * upper
    fit = 32 // kind.bits
    row = first + k // fit
    if row == kind.words.itemsize // 4:         # beyond the others: above d
        return 0, 16 + kind.bits * (k % fit)
    return row, 32 % kind.bits + kind.bits * (k % fit)


def _whole(builder, word, bit, kind, vector):
    """Return the numbers of a kind that begin at a bit of each word, as floats."""
    q = _bits(builder, word, bit, kind.bits, kind.signed)
    if kind.less:
        q = builder.sub(q, _all(word, kind.less))
    return builder.sitofp(q, vector)


def _bits(builder, word, bit, bits, signed):
    """Return some bits of each word as whole numbers."""
    if signed:
        q = word if bit + bits == 32 else builder.shl(word, _all(word, 32 - bits - bit))
        return builder.ashr(q, _all(word, 32 - bits))
    q = builder.lshr(word, _all(word, bit))
    return builder.and_(q, _all(word, (1 << bits) - 1))


def _upper(builder, word, upper):
    """Return words whose upper half is one of each word's halves, and whose rest is 0."""
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
        builder.store(value, builder.gep(place, [_i64(v)]), align=4)
