"""A file of torch.save, read without torch: its pickle as plain data, its tensors as arrays.

A pickle is a program that can have any function of any module called.  Here `find_class` gives it a
few names, as a `Name` whose call makes a `Call`: a note of the name and the arguments.  Nothing
that a pickle names is imported or called.

The file is a zip: `<name>/data.pkl` is the pickle, `<name>/data/<key>` the numbers of a storage.  A
tensor is a view of a storage: an offset, a shape and strides.  The pickle states them, and they are
compared with the size of the storage before any number is read.

Source: torch/serialization.py and torch/_utils.py of PyTorch 2.13.
"""
import collections
import io
import math
import os
import pickle
import zipfile
from collections.abc import Container
from typing import NamedTuple

import numpy as np

from model.command import shown
from model.convert.model_file import FormatError, explain, float32_of_bfloat16

LARGEST = 1 << 21       # bytes of a pickle
BFLOAT16 = "bfloat16"
FLOATS = {"torch.FloatStorage": "f4", "torch.DoubleStorage": "f8", "torch.HalfStorage": "f2",
          "torch.BFloat16Storage": BFLOAT16}
REBUILD = "torch._utils._rebuild_tensor_v2"
NAMES = {*FLOATS, REBUILD, "torch.Size", "torch.device", "_codecs.encode", "numpy.dtype",
         *(f"torch.{kind}Storage" for kind in ("Byte", "Char", "Short", "Int", "Long", "Bool")),
         *(f"numpy.{core}.multiarray.scalar" for core in ("core", "_core"))}


class Call(NamedTuple):
    """What a pickle would have called; the name "persistent" is that of a persistent id."""
    name: str
    arguments: tuple


class Name(NamedTuple):
    """What a pickle may name."""
    full: str

    def __call__(self, *arguments: object) -> Call:
        return Call(self.full, arguments)


# The reader that is written in Python.  In the one in C, five bytes can make the memo grow to 2^32
# places.
class _Unpickler(pickle._Unpickler):
    # BUILD sets attributes of an object; plain data need none.
    dispatch = pickle._Unpickler.dispatch | {pickle.BUILD[0]: lambda self: self.stack.pop()}

    def __init__(self, content: bytes, names: Container[str]) -> None:
        super().__init__(io.BytesIO(content))
        self.names = names

    def find_class(self, module: str, name: str) -> object:
        full = f"{module}.{name}"
        if full == "collections.OrderedDict":
            return collections.OrderedDict
        if full not in self.names:
            raise FormatError(f"it wants {shown(full)}, which is not among the few names that "
                              "tensors need")
        return Name(full)

    def persistent_load(self, key: object) -> Call:
        return Call("persistent", key)


def unpickle(content: bytes, names: Container[str] = ()) -> object:
    """Return what is in a pickle: plain data, and a Call for each call and persistent id.  Refuse
    one that names anything but `names` and OrderedDict, or that is damaged or too large."""
    if len(content) > LARGEST:
        raise FormatError(f"its pickle has more than {LARGEST:,} bytes, the most that is read")
    with explain("its pickle is damaged or hostile", errors=Exception):   # errors of many kinds
        try:
            return _Unpickler(content, names).load()
        except MemoryError:         # room is made before so few bytes are read
            raise ValueError("it claims more bytes than it has") from None


class View(NamedTuple):
    """A tensor of floating-point numbers: where they are, in units of one."""
    key: str                    # of the storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class TorchFile:
    """A file of torch.save; `content` is what its pickle holds.  A file that is damaged, of another
    kind, or claims more than it holds is refused."""

    def __init__(self, path: str | os.PathLike) -> None:
        size = os.path.getsize(path)
        with explain("it is cut short, or not a zip of PyTorch 1.6 or later", errors=Exception):
            self.zip = zipfile.ZipFile(path)
        members = self.zip.infolist()
        self.sizes = {member.filename: member.file_size for member in members}
        pickles = [name for name in self.sizes if name.endswith("/data.pkl")]
        if len(pickles) != 1 or len(self.sizes) < len(members):
            raise FormatError("its zip does not hold one data.pkl, or holds a name twice")
        if sum(self.sizes.values()) > size:
            raise FormatError("the members of its zip claim more bytes than the file has")
        self.folder = pickles[0].removesuffix("data.pkl")
        self.content = unpickle(self._bytes("data.pkl"), NAMES)
        order = f"{self.folder}byteorder"       # which older files lack
        self.order = ">" if order in self.sizes and self._bytes("byteorder") == b"big" else "<"

    def view(self, tensor: object) -> View:
        """Return where the numbers of a tensor in `content` are.  Refuse what is not a tensor of
        floating-point numbers, or not within its storage."""
        match tensor:
            case Call(name, (Call("persistent", ("storage", Name(kind), str(key), _, int(count))),
                             int(offset), tuple(shape), tuple(strides), *_)) if name == REBUILD:
                pass
            case _:
                raise FormatError("it is not a tensor with a storage")
        if kind not in FLOATS:
            raise FormatError(f"its numbers are of {kind}, and not floating-point ones")
        if len(shape) != len(strides) or not all(
                type(n) is int and n >= 0 for n in (count, offset, *shape, *strides)):
            raise FormatError("its offset, shape and strides are not whole numbers of at least 0")
        bytes_there = self.sizes.get(f"{self.folder}data/{key}", 0)
        if bytes_there != count * self._dtype(FLOATS[kind]).itemsize:
            raise FormatError(f"its storage claims {count:,} numbers and has {bytes_there:,} bytes")
        last = offset + sum((n - 1) * step for n, step in zip(shape, strides))
        if not 1 <= math.prod(shape) <= count or last >= count:
            raise FormatError("it is empty, or reaches beyond its storage")
        strides = tuple(step if n > 1 else 0 for n, step in zip(shape, strides))
        return View(key, FLOATS[kind], offset, shape, strides)

    def array(self, view: View) -> np.ndarray:
        """Return the numbers as float32.  Refuse bytes that do not have their checksum."""
        numbers = np.frombuffer(self._bytes(f"data/{view.key}"), self._dtype(view.dtype))
        if view.dtype == BFLOAT16:
            numbers = float32_of_bfloat16(numbers)
        viewed = np.lib.stride_tricks.as_strided(
            numbers[view.offset:], view.shape, [step * numbers.itemsize for step in view.strides])
        return np.ascontiguousarray(viewed, np.float32).reshape(view.shape)

    def _dtype(self, name):
        return np.dtype("u2" if name == BFLOAT16 else name).newbyteorder(self.order)

    def _bytes(self, name):
        """Return a member of the zip, after its checksum has been compared."""
        with explain(f"its member {name} is damaged", errors=Exception):
            return self.zip.read(self.folder + name)
