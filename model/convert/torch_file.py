"""A file of torch.save, read without torch: its pickle as plain data, its tensors as arrays.

A pickle is a program that can have any function of any module called.  Here `find_class` knows the
few names in KNOWN, and gives it our own class for each, so nothing is imported and nothing but
these is called.

The file is a zip: `<name>/data.pkl` is the pickle, `<name>/data/<key>` the numbers of a storage.  A
tensor is a view of a storage: an offset, a shape and strides.

Source: torch/serialization.py and torch/_utils.py of PyTorch 2.13.
"""
import collections
import io
import os
import pickle
import zipfile
from typing import NamedTuple

import numpy as np

from model.command import shown
from model.convert.model_file import FormatError, explain, float32_of_bfloat16

LARGEST = 1 << 21       # bytes of a pickle
BFLOAT16 = "bfloat16"
DTYPES = {"Float": "f4", "Double": "f8", "Half": "f2", "BFloat16": BFLOAT16, "Byte": "u1",
          "Char": "i1", "Short": "i2", "Int": "i4", "Long": "i8", "Bool": "?"}


class Storage(NamedTuple):
    """A row of numbers."""
    key: str
    dtype: str


class Tensor(NamedTuple):
    """A view of a storage, in units of one number."""
    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Other:
    """Stands for an object that no model needs."""

    def __init__(self, *arguments: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass


KNOWN = {"collections.OrderedDict": collections.OrderedDict,
         "torch._utils._rebuild_tensor_v2": lambda *parts: Tensor(*parts[:4]),
         **{f"torch.{name}Storage": dtype for name, dtype in DTYPES.items()},
         **dict.fromkeys(("torch.Size", "torch.device", "_codecs.encode", "numpy.dtype",
                          "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar"), Other)}


# The reader that is written in Python.  In the one in C, five bytes can make the memo grow to 2^32
# places.
class _Unpickler(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> object:
        if (full := f"{module}.{name}") not in KNOWN:
            raise FormatError(f"it wants {shown(full)}, which is not among the few names that "
                              "tensors need")
        return KNOWN[full]

    def persistent_load(self, key: tuple) -> Storage:
        _, dtype, name, _device, _count = key
        return Storage(name, dtype)


def unpickle(content: bytes) -> object:
    """Return what is in a pickle: plain data, and Tensors.  Refuse one that names anything but what
    is in KNOWN, or that is damaged or too large."""
    if len(content) > LARGEST:
        raise FormatError(f"its pickle has more than {LARGEST:,} bytes, the most that is read")
    try:
        return _Unpickler(io.BytesIO(content)).load()
    except Exception as error:      # of many kinds
        raise FormatError(f"its pickle is damaged or hostile: {shown(error)}") from error


class TorchFile:
    """A file of torch.save; `content` is what its pickle holds.  A file that is damaged, of another
    kind, or claims more than it holds is refused."""

    def __init__(self, path: str | os.PathLike) -> None:
        with explain("it is cut short, or not a zip of PyTorch 1.6 or later", errors=Exception):
            self.zip = zipfile.ZipFile(path)
            if sum(member.file_size for member in self.zip.infolist()) > os.path.getsize(path):
                raise ValueError("its members claim more bytes than the file has")
            (pickled,) = [name for name in self.zip.namelist() if name.endswith("/data.pkl")]
        self.folder = pickled.removesuffix("data.pkl")
        self.content = unpickle(self._bytes("data.pkl"))
        stated = f"{self.folder}byteorder" in self.zip.namelist()       # older files do not
        self.order = ">" if stated and self._bytes("byteorder") == b"big" else "<"

    def array(self, tensor: Tensor) -> np.ndarray:
        """Return the numbers as float32.  Refuse bytes that do not have their checksum, and a view
        beyond them."""
        (key, kind), offset, shape, strides = tensor
        dtype = np.dtype("u2" if kind == BFLOAT16 else kind).newbyteorder(self.order)
        size, stored = dtype.itemsize, self._bytes(f"data/{key}")
        view = np.ndarray(shape, dtype, stored, offset * size, [size * n for n in strides])
        if view.nbytes > len(stored):       # strides of 0 repeat numbers
            raise FormatError(f"its tensor of shape {list(shape)} has more numbers than are stored")
        if kind == BFLOAT16:
            view = float32_of_bfloat16(view)
        return np.ascontiguousarray(view, np.float32).reshape(shape)

    def _bytes(self, name):
        """Return a member of the zip, after its checksum has been compared."""
        with explain(f"its member {shown(name)} is damaged", errors=Exception):
            return self.zip.read(self.folder + name)
