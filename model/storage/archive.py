"""Arrays in one file: an .npz with a seal, read with care.

A file may be damaged, or claim more than it holds: an array of 10^12 numbers, a member that unpacks
to a thousand times its size, the same bytes as many members.  So a whole file is known by its seal,
and whatever it says of sizes is held against its own before memory is taken.  Read is only what is
written here, by np.savez; nothing is unpickled or evaluated.

The seal is the comment that ends a zip: 64 characters, the sha256 of every byte before them.
np.load(path, allow_pickle=False) reads the file too.
"""
import hashlib
import math
import os
import re
import sys
import zipfile
from typing import BinaryIO

import numpy as np

SEAL = 64                           # bytes
SEALED = SEAL.to_bytes(2, "little")     # before it: how long the comment of the zip is
MAGIC = b"\x93NUMPY\1\0"            # of an array's format, version 1.0
HEADER = re.compile(rb"\{'descr': '([<>|][fiuU]\d{1,9})', 'fortran_order': (True|False), "
                    rb"'shape': \(((?:\d{1,18}(?:, \d{1,18})*,?)?)\), \} *\n")
AT_ONCE = 1 << 20                   # bytes


class ArchiveError(ValueError):
    """A file that is not what `write` made: why not."""


def write(file: BinaryIO, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays and seal into an empty file, which is open for reading too."""
    np.savez(file, **arrays)
    file.seek(-len(SEALED), os.SEEK_END)
    file.write(SEALED)
    seal = sha256(file, file.tell())
    file.seek(0, os.SEEK_END)
    file.write(seal)


def read(file: BinaryIO) -> tuple[dict[str, np.ndarray], bool]:
    """The arrays in a file, and whether a seal vouches for them; without one, the parts that make
    up a zip still agree with each other.

    Raises
    ------
    ArchiveError : it is damaged, or of another kind, or claims more than it holds.
    """
    try:
        size = file.seek(0, os.SEEK_END)
        sealed = has_seal(file, size)
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if any(m.compress_type != zipfile.ZIP_STORED or m.compress_size != m.file_size
                   for m in members):
                raise ArchiveError("it is compressed")
            if sum(m.file_size for m in members) > size:
                raise ArchiveError("its arrays claim more bytes than it has")
            names = [m.filename.removesuffix(".npy") for m in members]
            if len(set(names)) < len(names):
                raise ArchiveError("two of its arrays have one name")
            return {name: array(archive.read(m)) for name, m in zip(names, members)}, sealed
    except (ArchiveError, MemoryError):
        raise
    except Exception as error:      # of many kinds, as the damage is
        raise ArchiveError("it is cut short, or no .npz") from error


def has_seal(file: BinaryIO, size: int) -> bool:
    """Whether a file of so many bytes ends with its seal; one with another's is refused."""
    file.seek(max(0, size - SEAL - len(SEALED)))
    end = file.read()
    if not end.startswith(SEALED) or len(end) < SEAL + len(SEALED):
        return False
    if sha256(file, size - SEAL) != end[len(SEALED):]:
        raise ArchiveError("some of its bytes are not those that were written")
    return True


def sha256(file: BinaryIO, size: int) -> bytes:
    """Of the first so many bytes of a file, in hexadecimal."""
    found = hashlib.sha256()
    file.seek(0)
    while chunk := file.read(min(size, AT_ONCE)):
        found.update(chunk)
        size -= len(chunk)
    return found.hexdigest().encode()


def array(content: bytes) -> np.ndarray:
    """What np.save wrote: numbers or text, as many as the header says, and not a byte more."""
    start = 10 + int.from_bytes(content[8:10], "little")
    header = HEADER.fullmatch(content[10:start])
    if not content.startswith(MAGIC) or not header:
        raise ArchiveError("one of its arrays is of a kind that is not read, such as a pickle")
    kind, fortran, sizes = (group.decode() for group in header.groups())
    dtype, shape = np.dtype(kind), [int(n) for n in sizes.split(",") if n.strip()]
    if math.prod(shape) * dtype.itemsize != len(content) - start:
        raise ArchiveError("one of its arrays claims another size than it has")
    if dtype.kind == "U":       # of which NumPy may fail to make a string
        points = np.frombuffer(content, kind[0] + "u4", offset=start)
        if points.max(initial=0) > sys.maxunicode:
            raise ArchiveError("one of its texts holds what is no character")
    numbers = np.frombuffer(content, dtype, offset=start)
    numbers = numbers.reshape(shape, order="F" if fortran == "True" else "C")
    return numbers.astype(dtype.newbyteorder("="), copy=False)
