"""Packed weights: matrices of numbers of 4, 8 or 16 bits, in the blocks of llama.cpp.

A block holds n numbers of a row, one after another: as two halves, which are float16 or the upper
halves of float32; or as whole numbers q with a scale d, and perhaps a smallest number m.  Half a
byte q stands for d q + m, or for d (q - 8) where there is no m, and a signed byte q for d q.  The
low halves of the bytes are the block's first numbers, the high halves the others.

A matrix (P, K) is an array (P, K / n) of blocks of one type.

Source: ggml-common.h and ggml-quants.c of llama.cpp.
"""
from collections.abc import Iterator

import numpy as np

from minigrad import formulas
from minigrad.core import Tensor
from minigrad.plug import formula

BLOCKS = {          # llama.cpp's names, and what is in a block
    "Q4_0": np.dtype([("d", "<f2"), ("q", "u1", 16)]),
    "Q4_1": np.dtype([("d", "<f2"), ("m", "<f2"), ("q", "u1", 16)]),
    "Q8_0": np.dtype([("d", "<f2"), ("q", "i1", 32)]),
    "F16": np.dtype([("half", "<f2", 2)]),
    "BF16": np.dtype([("upper", "<u2", 2)])}
# The numbers in a block, n
NUMBERS = {kind: 32 if "q" in block.names else 2 for kind, block in BLOCKS.items()}
# Blocks of whole words of 32 bits: where there is but one scale, it has a word.
IN_WORDS = BLOCKS | {
    kind: np.dtype({"names": block.names, "formats": [block["d"], block["q"]], "offsets": [0, 4]})
    for kind, block in BLOCKS.items() if block.names == ("d", "q")}
PIECE = 1 << 18     # numbers that are unpacked at a time


def kind_of(a: np.ndarray) -> str | None:
    """Return the kind of blocks in an array of two axes; None of any other array."""
    return next((kind for kind in BLOCKS if a.ndim == 2 and a.dtype == BLOCKS[kind]), None)


def shape_of(a: np.ndarray) -> tuple[int, ...]:
    """Return the shape of an array, (P, K) if it is of blocks."""
    kind = kind_of(a)
    if kind is None:
        return a.shape
    P, count = a.shape
    return P, count * NUMBERS[kind]


def unpacked(a: np.ndarray) -> np.ndarray:
    """Return an array of numbers as it is, and those in blocks as float32, (P, K / n) -> (P, K)."""
    kind = kind_of(a)
    if kind is None:
        return a
    if kind == "F16":
        found = a["half"].astype(np.float32)
    elif kind == "BF16":
        found = float32_of_bfloat16(a["upper"])
    else:
        q = a["q"]
        if kind != "Q8_0":
            q = np.concatenate([q & 15, q >> 4], axis=-1)
        if kind == "Q4_0":
            q = q.astype(np.int8) - 8
        found = a["d"][..., None].astype(np.float32) * q
        if kind == "Q4_1":
            found += a["m"][..., None]
    return found.reshape(len(a), -1)


def float32_of_bfloat16(halves: np.ndarray) -> np.ndarray:
    """Return bfloat16 numbers, given as uint16, as float32: each is the upper half of one."""
    return np.left_shift(halves, 16, dtype=np.uint32).view(np.float32)


def is_finite(a: np.ndarray) -> bool:
    """Whether no float in an array is nan or inf, nor a number in its blocks."""
    if kind_of(a) == "BF16":
        a = unpacked(a)
    names = a.dtype.names
    parts = [a[name] for name in names] if names else [a]
    floats = [part for part in parts if part.dtype.kind == "f"]
    return all(np.isfinite(part).all() for part in floats)


class Packed:
    """A matrix (P, K) in blocks, or for the kernels in panels of their words."""
    dtype = np.dtype(np.float32)        # of its numbers

    def __init__(self, blocks: np.ndarray) -> None:
        self.kind = kind_of(blocks)
        self.shape = shape_of(blocks)
        self._blocks = blocks
        self._panels = None

    @property
    def nbytes(self) -> int:
        """The bytes of memory that it takes."""
        return (self._blocks if self._panels is None else self._panels).nbytes

    def in_panels(self, NR: int) -> np.ndarray:
        """Return the words of all rows in panels of NR rows, (panels, words, NR) uint32, of which
        zeros fill the last one.  They take the place of the blocks."""
        if self._panels is None:
            block = IN_WORDS[self.kind]
            P, count = self._blocks.shape
            words = count * block.itemsize // 4
            self._panels = np.zeros((-(-P // NR), words, NR), np.uint32)
            for i, panel in enumerate(self._panels):
                part = self._blocks[i * NR:(i + 1) * NR].astype(block).view(np.uint32)
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
        if self._blocks is None:
            NR = self._panels.shape[2]
            words = np.ascontiguousarray(self._panels[flat // NR, :, flat % NR])
            blocks = words.view(IN_WORDS[self.kind]).astype(BLOCKS[self.kind])
        else:
            blocks = self._blocks[flat]
        return unpacked(blocks).reshape(*np.shape(rows), K)

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
