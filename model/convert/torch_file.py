"""A file of torch.save, read without torch: its pickle as plain data, its tensors as arrays.

Such a file is a zip: `<name>/data.pkl` is the pickle, `<name>/data/<key>` the numbers of each
storage.  A tensor is a view of a storage, with an offset, a shape and strides, all of them stated
by the pickle.  Each is compared with what the file holds before any number is read.

Source: torch/serialization.py and torch/_utils.py of PyTorch 2.13.
"""
import math
import os
import pathlib
import zipfile
from typing import NamedTuple

import numpy as np

from model.convert.found import FormatError, of_bfloat16
from model.convert.unpickling import LARGEST, Call, Name, Persistent, unpickled

BFLOAT16 = "bfloat16"       # the upper half of a float32
FLOATS = {"torch.FloatStorage": "f4", "torch.DoubleStorage": "f8", "torch.HalfStorage": "f2",
          "torch.BFloat16Storage": BFLOAT16}
REBUILD, PARAMETER = "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter"
NAMES = {*FLOATS, REBUILD, PARAMETER, "torch.Size", "torch.device", "_codecs.encode", "numpy.dtype",
         *(f"torch.{kind}Storage" for kind in ("Byte", "Char", "Short", "Int", "Long", "Bool")),
         *(f"numpy.{core}.multiarray.scalar" for core in ("core", "_core"))}


class View(NamedTuple):
    """A tensor of floating-point numbers: where they are, in units of one."""
    key: str                    # of the storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class TorchFile:
    """A file of torch.save; `content` is what its pickle holds.

    Raises
    ------
    FormatError : the file is none, or damaged, or claims more than it holds, or its pickle names
        what tensors do not need.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        size = pathlib.Path(path).stat().st_size
        try:
            self.zip = zipfile.ZipFile(path)
        except MemoryError:
            raise
        except Exception as error:      # of many kinds, depending on the damage
            raise FormatError("it is not the zip that torch.save writes, or is cut short (if it is "
                              "of PyTorch before 1.6, load and save it anew there)") from error
        members = self.zip.infolist()
        self.members = {member.filename: member for member in members}
        pickles = [name for name in self.members if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise FormatError(f"it holds {len(pickles)} members data.pkl, and torch.save writes 1")
        if len(self.members) < len(members):
            raise FormatError("two members of its zip have one name")
        if any(m.compress_type != zipfile.ZIP_STORED or m.compress_size != m.file_size
               for m in members):
            raise FormatError("its zip is compressed, and that of torch.save is not")
        if sum(member.file_size for member in members) > size:
            raise FormatError("the members of its zip claim more bytes than the file has")
        self.room = pickles[0].removesuffix("data.pkl")
        if self.members[pickles[0]].file_size > LARGEST:
            raise FormatError(f"its pickle has more than the {LARGEST:,} bytes that are read")
        self.content = unpickled(self._bytes("data.pkl"), NAMES)
        order = f"{self.room}byteorder"     # which older files lack
        self.order = ">" if order in self.members and self._bytes("byteorder") == b"big" else "<"

    def view(self, tensor: object) -> View:
        """Return where the numbers of a tensor in `content` are.

        Raises
        ------
        FormatError : it is no tensor of floating-point numbers, or not within its storage.
        """
        if type(tensor) is Call and tensor.name == PARAMETER and tensor.arguments:
            tensor = tensor.arguments[0]
        match tensor:
            case Call(name=name, arguments=(
                    Persistent(key=("storage", Name(full=kind), str(key), _, int(count))),
                    int(offset), tuple(shape), tuple(strides), *_)) if name == REBUILD:
                pass
            case _:
                raise FormatError("it is no tensor with a storage")
        if kind not in FLOATS:
            raise FormatError(f"its numbers are of {kind}, and not floating-point ones")
        if not all(type(n) is int and n >= 0 for n in (count, offset, *shape, *strides)):
            raise FormatError("its offset, shape and strides are not whole numbers from 0 on")
        if len(shape) != len(strides) or len(shape) > 2:
            raise FormatError("it has another number of axes than a weight")
        member = self.members.get(f"{self.room}data/{key}")
        if member is None or member.file_size != count * self._dtype(FLOATS[kind]).itemsize:
            raise FormatError(f"its storage claims {count:,} numbers and has "
                              f"{member.file_size if member else 0:,} bytes")
        last = offset + sum((n - 1) * step for n, step in zip(shape, strides))
        if not 1 <= math.prod(shape) <= count or last >= count:
            raise FormatError("it is empty, or reaches beyond its storage")
        strides = tuple(step if n > 1 else 0 for n, step in zip(shape, strides))
        return View(key, FLOATS[kind], offset, shape, strides)

    def array(self, view: View) -> np.ndarray:
        """Return the numbers as float32.

        Raises
        ------
        FormatError : their bytes are not those that were written.
        """
        dtype = self._dtype(view.dtype)
        numbers = np.frombuffer(self._bytes(f"data/{view.key}"), dtype)
        if view.dtype == BFLOAT16:
            numbers = of_bfloat16(numbers)
        viewed = np.lib.stride_tricks.as_strided(
            numbers[view.offset:], view.shape, [step * numbers.itemsize for step in view.strides])
        return np.ascontiguousarray(viewed, np.float32).reshape(view.shape)

    def _dtype(self, name):
        return np.dtype("u2" if name == BFLOAT16 else name).newbyteorder(self.order)

    def _bytes(self, name):
        """Return a member of the zip, after its checksum has been compared."""
        try:
            return self.zip.read(self.members[self.room + name])
        except MemoryError:
            raise
        except Exception as error:      # of many kinds, depending on the damage
            raise FormatError(f"its member {name} is damaged") from error
