"""Arrays in one file: an .npz with a seal, read with care.

A file may be damaged, or claim more than it holds: an array of 10^12 numbers, a member that unpacks
to a thousand times its size, the same bytes as many members.  So the seal proves that a file is
whole, and every size that it states is compared with its own size before memory is allocated.  The
reader accepts only what this module writes, by np.savez; nothing is unpickled or evaluated.

The seal is the comment that ends a zip: 64 characters, the sha256 of every byte before them.
np.load(path, allow_pickle=False) reads the file too.
"""
import contextlib
import functools
import hashlib
import math
import os
import re
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO

import numpy as np

SEAL = 64                           # bytes
SEALED = SEAL.to_bytes(2, "little")     # the length of the zip's comment, stored before it
MAGIC = b"\x93NUMPY\1\0"            # of an array's format, version 1.0
HEADER = re.compile(rb"\{'descr': '([<>|][fiuU]\d{1,9})', 'fortran_order': (True|False), "
                    rb"'shape': \(((?:\d{1,18}(?:, \d{1,18})*,?)?)\), \} *\n")
AT_ONCE = 1 << 20                   # bytes


class ArchiveError(ValueError):
    """A file was not made by `write`, or is damaged; the message says why."""


class Lazy(Mapping):
    """Arrays by name, each made anew whenever it is asked for, so that memory holds few at a time.

    Parameters
    ----------
    makers : for each name, a function without arguments that returns the array.
    """

    def __init__(self, makers: Mapping[str, Callable[[], np.ndarray]]) -> None:
        self.makers = makers

    def __getitem__(self, name: str) -> np.ndarray:
        return self.makers[name]()

    def __contains__(self, name: object) -> bool:       # Mapping's own would make the array
        return name in self.makers

    def __iter__(self) -> Iterator[str]:
        return iter(self.makers)

    def __len__(self) -> int:
        return len(self.makers)


class Made:
    """An array that NumPy makes when it needs it."""

    def __init__(self, make: Callable[[], np.ndarray]) -> None:
        self.make = make

    def __array__(self, dtype: type | None = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.make(), dtype)


def write(file: BinaryIO, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays and seal into an empty file, which is also open for reading."""
    np.savez(file, **{name: Made(functools.partial(arrays.__getitem__, name)) for name in arrays})
    file.seek(-len(SEALED), os.SEEK_END)
    file.write(SEALED)
    seal = sha256(file, file.tell())
    file.seek(0, os.SEEK_END)
    file.write(seal)


def read(file: BinaryIO) -> dict[str, np.ndarray]:
    """Return the arrays in a file.

    Raises
    ------
    ArchiveError : it is damaged, or of another kind, or claims more than it holds.
    """
    with _refusing():
        return {name: _array(file, m) for name, m in _members(file).items()}


def opened(path: str | os.PathLike) -> Lazy:
    """Return the arrays in a file, each read when it is asked for; the seal is checked now.

    Raises
    ------
    ArchiveError : as by `read`, now or when an array is read; or the file has been replaced by
        then, for example by a run that goes on.
    """
    with open(path, "rb") as file, _refusing():
        return Lazy({name: functools.partial(_read_one, path, _identity(file), m)
                     for name, m in _members(file).items()})


def _read_one(path, identity, member):
    with open(path, "rb") as file, _refusing():
        if _identity(file) != identity:
            raise ArchiveError(f"{path} has changed while it was read; read it again")
        return _array(file, member)


def _identity(file):
    """Return what differs if the file of a name is replaced or written."""
    status = os.fstat(file.fileno())
    return status.st_ino, status.st_size, status.st_mtime_ns


def _members(file):
    """Return the entries of the zip in a sealed file, by the names of their arrays."""
    size = check_seal(file)
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
    if any(m.compress_type != zipfile.ZIP_STORED or m.compress_size != m.file_size
           for m in members):
        raise ArchiveError("it is compressed")
    if sum(m.file_size for m in members) > size:
        raise ArchiveError("its arrays claim more bytes than it has")
    named = {m.filename.removesuffix(".npy"): m for m in members}
    if len(named) < len(members):
        raise ArchiveError("two of its arrays have one name")
    return named


def _array(file, member):
    """Return one array, whose bytes the seal holds, so that the zip's own sums are not asked."""
    file.seek(member.header_offset)
    lengths = np.frombuffer(file.read(30)[26:], "<u2")      # of its name and what follows
    file.seek(int(lengths.sum()), os.SEEK_CUR)
    content = np.empty(member.file_size, np.uint8)
    if file.readinto(content) < content.size:
        raise ArchiveError("one of its arrays claims another size than it has")
    return array(content)


@contextlib.contextmanager
def _refusing():
    try:
        yield
    except (ArchiveError, MemoryError):
        raise
    except Exception as error:      # of many kinds, depending on the damage
        raise ArchiveError("it is no .npz") from error


def check_seal(file: BinaryIO) -> int:
    """Refuse a file that does not end with its seal; return its size in bytes."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - SEAL - len(SEALED)))
    end = file.read()
    if not end.startswith(SEALED) or len(end) < SEAL + len(SEALED):
        raise ArchiveError("it does not end with a seal, so it is cut short, or not of this "
                           "program, or of one of its first versions")
    if sha256(file, size - SEAL) != end[len(SEALED):]:
        raise ArchiveError("some of its bytes are not those that were written")
    return size


def sha256(file: BinaryIO, size: int) -> bytes:
    """Return the sha256 of the first `size` bytes of a file, in hexadecimal."""
    found = hashlib.sha256()
    file.seek(0)
    while chunk := file.read(min(size, AT_ONCE)):
        found.update(chunk)
        size -= len(chunk)
    return found.hexdigest().encode()


def array(content: np.ndarray) -> np.ndarray:
    """Return the array that np.save wrote as these bytes, which it shares: numbers or text, as many
    as the header states."""
    start = 10 + int.from_bytes(content[8:10], "little")
    header = HEADER.fullmatch(content[10:start])
    if bytes(content[:len(MAGIC)]) != MAGIC or not header:
        raise ArchiveError("one of its arrays is of a kind that is not read, such as a pickle")
    kind, fortran, sizes = (group.decode() for group in header.groups())
    dtype, shape = np.dtype(kind), [int(n) for n in sizes.split(",") if n.strip()]
    if math.prod(shape) * dtype.itemsize != len(content) - start:
        raise ArchiveError("one of its arrays claims another size than it has")
    if dtype.kind == "U":       # NumPy may fail to make a string of it
        points = np.frombuffer(content, kind[0] + "u4", offset=start)
        if points.max(initial=0) > sys.maxunicode:
            raise ArchiveError("one of its texts holds what is no character")
    numbers = np.frombuffer(content, dtype, offset=start)
    numbers = numbers.reshape(shape, order="F" if fortran == "True" else "C")
    return numbers.astype(dtype.newbyteorder("="), copy=False)
