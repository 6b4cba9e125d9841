"""Packed weights: matrices of numbers of 4 to 16 bits, in the blocks of llama.cpp.

A block holds n numbers of a row, one after another: as two halves, which are float16 or the upper
halves of float32; or as whole numbers q with a scale d, and perhaps a smallest number m.  Half a
byte q stands for d q + m, or for d (q - 8) where there is no m, and a signed byte q for d q.  The
low halves of the bytes are the block's first numbers, the high halves the others.  In Q5_0, a fifth
bit of each number is in `high`, and q stands for d (q - 16).

The kinds K have 256 numbers in a block, and whole numbers as scales of 32 or of 16 of them.  With
such a scale s, and t for the smallest, q stands for d s q - m t, or for d s (q - 32) in Q6_K.

A matrix (P, K) is an array (P, K / n) of blocks of one type.  Where its rows are of several kinds,
it is a record of such arrays, (1,), one below the other.

Source: ggml-common.h and ggml-quants.c of llama.cpp.
"""
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from minigrad import formulas
from minigrad.core import Tensor
from minigrad.plug import formula


class Kind(NamedTuple):
    """How a kind of blocks holds its numbers.

    Attributes
    ----------
    numbers : how many a block has, n.
    bits : of a number.
    block : the fields of a block in a file.
    words : those of a block for the kernels, of whole words of 32 bits, where d has a word if there
        is no m.  Of the kinds K, it is a quarter, with its own scales in bytes, those of m behind
        those of d.  Numbers of 5 and 6 bits lie in words, as many as fit; where they are signed,
        as q - 16 or q - 32.  The last two of Q5_0 are above d.
    repack : writes blocks (P, K / n) into words (P, K / n, parts of a block); None if both have the
        same fields.
    signed : whether numbers in words are.
    less : what is taken from those that are not.
    scaled : how many numbers have a scale in bytes together; 0 if d is the only one.
    """
    numbers: int
    bits: int
    block: np.dtype
    words: np.dtype
    repack: Callable[[np.ndarray, np.ndarray], None] | None = None
    signed: bool = False
    less: int = 0
    scaled: int = 0

    @property
    def in_words(self) -> int:
        """How many numbers a block of words has."""
        return min(self.numbers, 64)


def _to_q5_0(words, a):
    high = a["high"][..., None] >> np.arange(32, dtype=np.uint32) & 1
    q = _halves(a["q"]) | high << 4
    q = (q - 16 & 31).astype(np.uint32)
    words["q"][:, :, 0] = _fields(q[..., :30], 5)
    words["last"][:, :, 0] = q[..., 30] | q[..., 31] << 5


def _to_q4_k(words, a):
    words["scales"] = _scales(a["scales"])
    words["q"] = a["q"].reshape(*a.shape, 4, 32)


def _to_q5_k(words, a):
    """Bit n of `high` (..., 32) is of the numbers of the n-th half quarter."""
    words["scales"] = _scales(a["scales"])
    high = a["high"][..., None, :] >> _shifts(*range(8)) & 1                # (..., 8, 32)
    q = _halves(a["q"].reshape(*a.shape, 4, 32)) | high.reshape(*a.shape, 4, 64) << 4
    words["q"] = _fields(q.astype(np.uint32), 5)


def _to_q6_k(words, a):
    words["scales"] = a["scales"].reshape(*a.shape, 4, 4)
    low = _halves(a["q"].reshape(*a.shape, 2, 64))                          # (..., 2, 128)
    high = a["high"].reshape(*a.shape, 2, 1, 32) >> _shifts(0, 2, 4, 6) & 3
    q = low.reshape(*a.shape, 4, 64) | high.reshape(*a.shape, 4, 64) << 4
    words["q"] = _fields((q.astype(np.uint32) - 32) & 63, 6)


def _scales(a):
    """Return the scales of the quarters of a block, which have 6 bits each: (..., 12) bytes ->
    (..., 4, 4), of which two are for d, two for m.  Of the last four, the upper two bits are with
    the first four."""
    low, high, rest = np.moveaxis(a.reshape(*a.shape[:-1], 3, 4), -2, 0)
    of_d = np.concatenate([low & 63, rest & 15 | low >> 2 & 48], axis=-1)
    of_m = np.concatenate([high & 63, rest >> 4 | high >> 2 & 48], axis=-1)
    pairs = [scales.reshape(*a.shape[:-1], 4, 2) for scales in (of_d, of_m)]
    return np.concatenate(pairs, axis=-1)


def _fields_of(*fields):
    return np.dtype([*fields])


D = ("d", "<f2")
M = ("m", "<f2")
KINDS = {           # by llama.cpp's names
    "Q4_0": Kind(
        numbers=32,
        bits=4,
        block=_fields_of(D, ("q", "u1", 16)),
        words=np.dtype({"names": ["d", "q"], "formats": ["<f2", ("u1", 16)], "offsets": [0, 4]}),
        less=8),
    "Q4_1": Kind(
        numbers=32,
        bits=4,
        block=_fields_of(D, M, ("q", "u1", 16)),
        words=_fields_of(D, M, ("q", "u1", 16))),
    "Q5_0": Kind(
        numbers=32,
        bits=5,
        block=_fields_of(D, ("high", "<u4"), ("q", "u1", 16)),
        words=_fields_of(D, ("last", "<u2"), ("q", "<u4", 5)),
        repack=_to_q5_0,
        signed=True),
    "Q8_0": Kind(
        numbers=32,
        bits=8,
        block=_fields_of(D, ("q", "i1", 32)),
        words=np.dtype({"names": ["d", "q"], "formats": ["<f2", ("i1", 32)], "offsets": [0, 4]}),
        signed=True),
    "Q4_K": Kind(
        numbers=256,
        bits=4,
        block=_fields_of(D, M, ("scales", "u1", 12), ("q", "u1", 128)),
        words=_fields_of(D, M, ("scales", "u1", 4), ("q", "u1", 32)),
        repack=_to_q4_k,
        scaled=32),
    "Q5_K": Kind(
        numbers=256,
        bits=5,
        block=_fields_of(D, M, ("scales", "u1", 12), ("high", "u1", 32), ("q", "u1", 128)),
        words=_fields_of(D, M, ("scales", "u1", 4), ("q", "<u4", 11)),
        repack=_to_q5_k,
        scaled=32),
    "Q6_K": Kind(
        numbers=256,
        bits=6,
        block=_fields_of(("q", "u1", 128), ("high", "u1", 64), ("scales", "i1", 16), D),
        words=_fields_of(D, ("none", "<u2"), ("scales", "i1", 4), ("q", "<u4", 13)),
        repack=_to_q6_k,
        signed=True,
        scaled=16),
    "F16": Kind(
        numbers=2,
        bits=16,
        block=_fields_of(("half", "<f2", 2)),
        words=_fields_of(("half", "<f2", 2))),
    "BF16": Kind(
        numbers=2,
        bits=16,
        block=_fields_of(("upper", "<u2", 2)),
        words=_fields_of(("upper", "<u2", 2)))}
BLOCKS = {name: kind.block for name, kind in KINDS.items()}
NUMBERS = {name: kind.numbers for name, kind in KINDS.items()}
PART = 64           # rows of several kinds: each has a multiple of so many, as panels have
PIECE = 1 << 18     # numbers that are unpacked at a time


def kind_of(a: np.ndarray) -> str | None:
    """Return the kind of blocks in an array, or the kinds of its rows; None of any other array."""
    if parts := _parts(a):
        kinds = [kind_of(part) for part in parts]
        same_width = len({shape_of(part)[1:] for part in parts}) == 1
        return " and ".join(kinds) if None not in kinds and same_width else None
    return next((kind for kind in BLOCKS if a.ndim == 2 and a.dtype == BLOCKS[kind]), None)


def _parts(a):
    """Return the arrays of a record of them; none of any other array."""
    fields = a.dtype.fields or {}
    if a.shape != (1,) or any(dtype.ndim != 2 for dtype, _ in fields.values()):
        return []
    return [a[name][0] for name in fields]


def below(parts: Sequence[np.ndarray]) -> np.ndarray | None:
    """Put matrices in blocks one below the other; return None if rows are none of whole panels."""
    groups = []
    for part in parts:
        if kind_of(part) is None:
            return None
        if groups and groups[-1].dtype == part.dtype:
            part = np.concatenate([groups.pop(), part])
        groups.append(part)
    if len(groups) == 1:
        return groups[0]
    if any(len(part) % PART for part in groups):
        return None
    record = np.dtype([(f"rows{i}", part.dtype, part.shape) for i, part in enumerate(groups)])
    a = np.empty(1, record)
    for name, part in zip(record.names, groups):
        a[name][0] = part
    return a


def rows_of_blocks(a: np.ndarray, rows: slice) -> np.ndarray | None:
    """Return some neighbouring rows of an array of numbers or blocks; None if they are of several
    kinds."""
    begin = 0
    for part in _parts(a) or [a]:
        end = begin + len(part)
        if begin <= rows.start and rows.stop <= end:
            return part[rows.start - begin:rows.stop - begin]
        begin = end
    return None


def shape_of(a: np.ndarray) -> tuple[int, ...]:
    """Return the shape of an array, (P, K) if it is of blocks."""
    kind = kind_of(a)
    if kind is None:
        return a.shape
    if parts := _parts(a):
        return sum(map(len, parts)), shape_of(parts[0])[1]
    P, count = a.shape
    return P, count * NUMBERS[kind]


def unpacked(a: np.ndarray) -> np.ndarray:
    """Return an array of numbers as it is, and those in blocks as float32, (P, K / n) -> (P, K)."""
    kind = kind_of(a)
    if kind is None:
        return a
    if parts := _parts(a):
        return np.concatenate([*map(unpacked, parts)])
    return _numbers(kind, in_words(kind, a))


def in_words(kind: str, a: np.ndarray) -> np.ndarray:
    """Return blocks as the kernels have them: (P, K / n) -> (P, blocks of words)."""
    row = KINDS[kind]
    if row.repack is None:
        return a.astype(row.words, copy=False)
    words = np.zeros((*a.shape, row.numbers // row.in_words), row.words)
    for name in {"d", "m"} & {*a.dtype.names}:
        words[name] = a[name][..., None]
    row.repack(words, a)
    return words.reshape(len(a), -1)


def _shifts(*bits):
    return np.array(bits, np.uint8)[:, None]


def _halves(q):
    """Return the low halves of bytes, then the high ones: (..., n) -> (..., 2 n)."""
    return np.concatenate([q & 15, q >> 4], axis=-1)


def _fields(q, bits):
    """Put numbers of so many bits into words, as many as fit: (..., n) -> (..., words)."""
    fit = 32 // bits
    words = -(-q.shape[-1] // fit)
    padded = np.zeros((*q.shape[:-1], words * fit), np.uint32)
    padded[..., :q.shape[-1]] = q
    padded = padded.reshape(*q.shape[:-1], words, fit)
    return np.bitwise_or.reduce(padded << _places(bits), axis=-1)


def _from_fields(words, bits):
    """Return the numbers in words: (..., words) -> (..., n)."""
    numbers = words[..., None] >> _places(bits) & (1 << bits) - 1
    return numbers.reshape(*words.shape[:-1], -1)


def _places(bits):
    """Return the first bits of the numbers in a word, of which the last has the word's upper bits:
    it needs one shift less."""
    return np.arange(32 % bits, 32 - bits + 1, bits, dtype=np.uint32)


def _numbers(kind, a):
    """Return the numbers of blocks of words: (P, blocks of words) -> (P, K)."""
    names = a.dtype.names
    if "half" in names:
        return a["half"].astype(np.float32).reshape(len(a), -1)
    if "upper" in names:
        return float32_of_bfloat16(a["upper"]).reshape(len(a), -1)
    row = KINDS[kind]
    q = _whole_numbers(row, a)
    d = a["d"][..., None].astype(np.float32)
    if row.scaled:
        count = row.in_words // row.scaled
        d = (d * a["scales"][..., :count])[..., None]
        q = q.reshape(*a.shape, count, row.scaled)
    numbers = d * q
    if "m" in names:
        m = a["m"][..., None].astype(np.float32)
        if row.scaled:
            m = -(m * a["scales"][..., count:])[..., None]
        numbers += m
    return numbers.reshape(len(a), -1)


def _whole_numbers(row, a):
    """Return the whole numbers of blocks of words: (P, blocks) -> (P, blocks, numbers)."""
    q = a["q"]
    if row.bits == 4:
        q = _halves(q)
    elif row.bits < 8:
        q = _from_fields(q, row.bits)
        if "last" in a.dtype.names:
            q = np.concatenate([q, a["last"][..., None] >> _places(5)[:2] - 2 & 31], axis=-1)
        q = q[..., :row.in_words]
        if row.signed:
            top = 1 << row.bits - 1
            q = (q.astype(np.int8) ^ top) - top
    return q.astype(np.int8) - row.less


def float32_of_bfloat16(halves: np.ndarray) -> np.ndarray:
    """Return bfloat16 numbers, given as uint16, as float32: each is the upper half of one."""
    return np.left_shift(halves, 16, dtype=np.uint32).view(np.float32)


def is_finite(a: np.ndarray) -> bool:
    """Whether no float in an array is nan or inf, nor a number in its blocks."""
    if parts := _parts(a):
        return all(map(is_finite, parts))
    if "upper" in (a.dtype.names or ()):
        a = unpacked(a)
    names = a.dtype.names
    arrays = [a[name] for name in names] if names else [a]
    floats = [array for array in arrays if array.dtype.kind == "f"]
    return all(np.isfinite(array).all() for array in floats)


class Packed:
    """A matrix (P, K) in blocks, or for the kernels in panels of their words.  Where its rows are
    of several kinds, its `parts` are those of one kind, and else itself alone."""
    dtype = np.dtype(np.float32)        # of its numbers

    def __init__(self, blocks: np.ndarray) -> None:
        self.kind = kind_of(blocks)
        self.shape = shape_of(blocks)
        self._blocks = blocks
        self._panels = None
        self.parts = [self]
        if parts := _parts(blocks):
            self.parts = [*map(Packed, parts)]
            self._blocks = None

    @property
    def nbytes(self) -> int:
        """The bytes of memory that it takes."""
        arrays = [part._blocks if part._panels is None else part._panels for part in self.parts]
        return sum(array.nbytes for array in arrays)

    def in_panels(self, NR: int) -> np.ndarray:
        """Return the words of all rows, which are of one kind, in panels of NR rows, (panels,
        words, NR) uint32, of which zeros fill the last one.  They take the place of the blocks."""
        if self._panels is None:
            row = KINDS[self.kind]
            P, K = self.shape
            words = K // row.in_words * row.words.itemsize // 4
            self._panels = np.zeros((-(-P // NR), words, NR), np.uint32)
            for i, panel in enumerate(self._panels):
                part = in_words(self.kind, self._blocks[i * NR:(i + 1) * NR]).view(np.uint32)
                panel[:, :len(part)] = part.T
            self._blocks = None
        return self._panels

    def unpacked(self) -> np.ndarray:
        """Return the numbers as float32."""
        return self.take(np.arange(len(self)))

    def take(self, rows: np.ndarray, axis: int = 0) -> np.ndarray:
        """Return some rows as float32, (...) integers below P -> (..., K)."""
        P, K = self.shape
        flat = np.asarray(rows).reshape(-1) % P         # -1 is the last one, as in an array
        numbers = np.empty((flat.size, K), np.float32)
        begin = 0
        for part in self.parts:
            end = begin + len(part)
            here = (begin <= flat) & (flat < end)
            numbers[here] = part._take(flat[here] - begin)
            begin = end
        return numbers.reshape(*np.shape(rows), K)

    def _take(self, rows):
        """The same of rows of one kind, (N,) -> (N, K)."""
        if self._panels is None:
            return unpacked(self._blocks[rows])
        NR = self._panels.shape[2]
        words = np.ascontiguousarray(self._panels[rows // NR, :, rows % NR])
        return _numbers(self.kind, words.view(KINDS[self.kind].words))

    def __len__(self) -> int:
        return self.shape[0]

    def pieces(self, dtype: type) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield the numbers piece by piece: which rows, and these, unpacked."""
        P, K = self.shape
        height = max(1, PIECE // K)
        for begin in range(0, P, height):
            rows = slice(begin, min(P, begin + height))
            yield rows, self.take(np.arange(P)[rows]).astype(dtype, copy=False)


@formula
def product(x: np.ndarray, weight: Packed) -> np.ndarray:
    """x weight^T, (..., K), (P, K) -> (..., P), while the weight stays packed."""
    y = np.empty((*x.shape[:-1], len(weight)), x.dtype)
    for rows, piece in weight.pieces(x.dtype):
        y[..., rows] = formulas.matmul(x, piece.T)
    return y


@formula
def product_vjp(g: np.ndarray, weight: Packed) -> np.ndarray:
    """Return the gradient of x: g weight, (..., P), (P, K) -> (..., K)."""
    dx = np.zeros((*g.shape[:-1], weight.shape[1]), g.dtype)
    for rows, piece in weight.pieces(g.dtype):
        dx += formulas.matmul(g[..., rows], piece)
    return dx


class PackedTensor(Tensor):
    """A parameter that is packed until its data are asked for or set.  Then it is a Tensor of
    float32 like others."""
    __slots__ = ()

    packed = property(lambda self: Tensor._data.__get__(self))
    shape = property(lambda self: self.packed.shape)
    dtype = property(lambda self: np.dtype(np.float32))
    ndim = property(lambda self: 2)
    size = property(lambda self: self.shape[0] * self.shape[1])

    def __reduce__(self) -> tuple[type, tuple]:
        return _restored, (type(self), self.packed, self.node)

    @property
    def _data(self):
        self._data = self.packed.unpacked()
        return self._data

    @_data.setter
    def _data(self, array):
        self.__class__ = Tensor
        self._data = array


class FrozenPacked(PackedTensor):
    """A packed constant, which stays packed.  The ops `linear` and `embedding` are given its
    blocks; whoever asks for its data gets a copy, unpacked."""
    __slots__ = ()

    _data = property(lambda self: self.packed)
    data = property(lambda self: self.packed.unpacked())


def _restored(kind, packed, node):
    """Return a packed parameter that was pickled, as it is sent to other processes."""
    parameter = Tensor(0.0)
    Tensor._data.__set__(parameter, packed)
    parameter.node = node
    parameter.__class__ = kind
    return parameter


def freeze(parameter: Tensor) -> None:
    """Make a parameter a constant, which gets no gradient; one that is packed stays packed."""
    parameter.requires_grad = False
    if isinstance(parameter, PackedTensor):
        parameter.__class__ = FrozenPacked


def hold(parameter: Tensor, array: np.ndarray) -> None:
    """Give a parameter an array of its shape, of floats or of blocks, which is not copied if it can
    be written to."""
    if kind_of(array):
        parameter._data = Packed(array)
        parameter.__class__ = PackedTensor
    else:
        parameter.__init__(np.require(array, requirements="CAW"), requires_grad=True)
