"""A GGUF file: its metadata, and its tensors as arrays.

The header states every length in it, so each is compared with what the file has before it is read.
The library gguf knows how tensors are quantised.  (Its own reader trusts the lengths, and makes an
array of every number of the metadata.)

Source: gguf/gguf_reader.py and gguf/constants.py of that library.
"""
import math
import os
import pathlib
import struct
from typing import NamedTuple

import numpy as np

from model.command import shown
from model.convert.found import FormatError, missing_library, numbers_at

MAGIC, VERSIONS = b"GGUF", (2, 3)
LARGEST = 1 << 26       # bytes of a header; that of a vocabulary of 128,000 tokens has a tenth
MOST_AXES = 4
NUMBERS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8",
           11: "<i8", 12: "<f8"}
TEXT, ARRAY = 8, 9


class Stored(NamedTuple):
    """A tensor in the file."""
    kind: int                   # gguf.GGMLQuantizationType
    shape: tuple[int, ...]
    start: int                  # byte in the file
    size: int                   # bytes


class GGUFFile:
    """A GGUF file.

    Attributes
    ----------
    metadata : key -> a number, a text, an array of numbers or a list of texts.
    tensors : name -> Stored.

    Raises
    ------
    FormatError : it is none, or damaged, or claims more than it has, or the library is missing.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        try:
            import gguf
        except ImportError as error:
            raise missing_library("gguf", "gguf") from error
        self.library, self.path = gguf, pathlib.Path(path)
        with open(path, "rb") as file:
            header = _Header(file.read(LARGEST))
        self.length = self.path.stat().st_size
        if header.bytes(4) != MAGIC:
            raise FormatError("it does not begin as a GGUF file")
        version, tensors, pairs = header.numbers("<IQQ")
        if version not in VERSIONS:
            raise FormatError(f"it is of version {version} of GGUF (or of another byte order), and "
                              f"{VERSIONS[0]} and {VERSIONS[1]} are read")
        self.metadata, self.tensors, stated = {}, {}, {}
        for _ in range(pairs):
            _add(self.metadata, header.text(), header.value(*header.numbers("<I")))
        for _ in range(tensors):
            _add(stated, header.text(), header.tensor())
        alignment = self.metadata.get("general.alignment", 32)
        if type(alignment) is not int or alignment < 1:
            raise FormatError("its general.alignment is no whole number from 1 on")
        start = header.at + -header.at % alignment
        for name, (kind, shape, offset) in stated.items():
            self.tensors[name] = self._stored(name, kind, shape, start + offset)

    def _stored(self, name, kind, shape, start):
        try:
            kind = self.library.GGMLQuantizationType(kind)
            block, size = self.library.GGML_QUANT_SIZES[kind]
        except (ValueError, KeyError):
            raise FormatError(f"{shown(name)} is quantised in the way {kind}, which the library "
                              "gguf that is installed does not know") from None
        if not shape or shape[-1] % block:
            raise FormatError(f"{shown(name)} does not consist of whole rows of blocks of {block}")
        size = math.prod(shape) // block * size
        if not 1 <= size <= self.length - start:
            raise FormatError(f"{shown(name)} claims {size:,} bytes from byte {start:,} on, and "
                              f"the file has {self.length:,}, so it is cut short or damaged")
        return Stored(kind, shape, start, size)

    def array(self, name: str) -> np.ndarray:
        """Return a tensor as float32."""
        stored = self.tensors[name]
        numbers = numbers_at(self.path, np.uint8, stored.size, stored.start)
        numbers = self._dequantized(numbers.reshape(*stored.shape[:-1], -1), stored.kind)
        return numbers.reshape(stored.shape)

    def check(self) -> None:
        """Refuse tensors that share their bytes, or that the library cannot dequantise."""
        if sum(stored.size for stored in self.tensors.values()) > self.length:
            raise FormatError("its tensors share their bytes, so it is damaged")
        for kind, name in {stored.kind: name for name, stored in self.tensors.items()}.items():
            row = np.zeros((1, self.library.GGML_QUANT_SIZES[kind][1]), np.uint8)
            try:
                self._dequantized(row, kind)
            except NotImplementedError as error:
                raise FormatError(f"{shown(name)} is quantised as {kind.name}, which the library "
                                  "gguf cannot dequantise") from error

    def _dequantized(self, rows, kind):
        with np.errstate(all="ignore"):     # of scales that are inf
            return self.library.dequantize(rows, kind)


class _Header:
    """What is read from the beginning of the file, and how far."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def bytes(self, size: int) -> bytes:
        found = self.content[self.at:self.at + size]
        if len(found) < size:
            raise FormatError(f"its header claims more than the file has, or than the {LARGEST:,} "
                              "bytes that are read of it, so it is cut short or damaged")
        self.at += size
        return found

    def numbers(self, format: str) -> tuple[int, ...]:
        return struct.unpack(format, self.bytes(struct.calcsize(format)))

    def text(self) -> str:
        (size,) = self.numbers("<Q")
        try:
            return self.bytes(size).decode("utf-8")
        except UnicodeDecodeError as error:
            raise FormatError("a text of its header is no UTF-8, so it is damaged") from error

    def value(self, kind: int) -> object:
        """Return a value of the metadata."""
        if kind == TEXT:
            return self.text()
        if kind in NUMBERS:
            return self.array(kind, 1)[0].item()
        if kind == ARRAY:
            kind, count = self.numbers("<IQ")
            if kind == TEXT:
                return [self.text() for _ in range(count)]
            if kind in NUMBERS:
                return self.array(kind, count)
        raise FormatError(f"its header holds a value of the kind {kind}, which is not read")

    def array(self, kind: int, count: int) -> np.ndarray:
        dtype = np.dtype(NUMBERS[kind])
        return np.frombuffer(self.bytes(count * dtype.itemsize), dtype)

    def tensor(self) -> tuple[int, tuple[int, ...], int]:
        """Return a tensor's kind, its shape with rows first, and its offset in the data."""
        (axes,) = self.numbers("<I")
        if axes > MOST_AXES:
            raise FormatError(f"one of its tensors has {axes:,} axes, so it is damaged")
        *shape, kind, offset = self.numbers(f"<{axes}QIQ")
        return kind, tuple(reversed(shape)), offset


def _add(found, name, value):
    if name in found:
        raise FormatError(f"it holds {shown(name)} twice")
    found[name] = value
