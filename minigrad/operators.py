"""The operators and methods of a Tensor: what it does as an array.

Those that can be differentiated call the op of that name.  `habits` adds what is refused.
"""
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np

OPS: dict[str, Callable] = {}       # name -> op; the gradient check reads it


class Size(int):
    """The number of elements, as in NumPy, where it is no method."""

    def __call__(self, *axes: int) -> NoReturn:
        raise TypeError("x.size is a number, as in NumPy: take x.shape, or x.shape[axis]")


class Operators:
    """The base of Tensor: `_data` is its array, `node` its place in the graph."""
    __slots__ = ()
    __array_priority__ = 1000.0         # so that ndarray + Tensor calls Tensor.__radd__

    def __add__(self, other):
        return OPS["add"](self, other)

    def __radd__(self, other):
        return OPS["add"](other, self)

    def __sub__(self, other):
        return OPS["subtract"](self, other)

    def __rsub__(self, other):
        return OPS["subtract"](other, self)

    def __mul__(self, other):
        return OPS["multiply"](self, other)

    def __rmul__(self, other):
        return OPS["multiply"](other, self)

    def __truediv__(self, other):
        return OPS["divide"](self, other)

    def __rtruediv__(self, other):
        return OPS["divide"](other, self)

    def __pow__(self, other):
        return OPS["power"](self, other)

    def __rpow__(self, other):
        return OPS["power"](other, self)

    def __matmul__(self, other):
        return OPS["matmul"](self, other)

    def __rmatmul__(self, other):
        return OPS["matmul"](other, self)

    def __neg__(self):
        return OPS["negative"](self)

    def __getitem__(self, index):
        return OPS["take"](self, index)

    def __iter__(self) -> Iterator:
        if self.ndim == 0:
            raise TypeError("a Tensor of a single number has no rows; the number is x.item()")
        return (self[i] for i in range(len(self)))

    def __len__(self) -> int:
        return len(self._data)

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(f"a Tensor of {self.size} numbers is neither true nor false: write "
                             "x.data.any() or x.data.all(), or x is None")
        return bool(self._data)

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def item(self) -> float:
        """Return the single number that the tensor holds."""
        if self._data.size != 1:
            raise ValueError(f"this Tensor has {self._data.size} numbers, and one is asked for: "
                             "take x[index], x.sum() or x.data")
        return self._data.item()

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of elements along each axis."""
        return self._data.shape

    @shape.setter
    def shape(self, value):
        raise AttributeError("a Tensor keeps its shape: write y = x.reshape(3, 2)")

    @property
    def dtype(self) -> np.dtype:
        """The type of the elements."""
        return self._data.dtype

    @dtype.setter
    def dtype(self, value):
        raise AttributeError("a Tensor keeps its type: write mg.Tensor(x.data.astype(np.float32))")

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self._data.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return Size(self._data.size)

    @property
    def T(self):
        """The axes in reversed order."""
        return OPS["transpose"](self)

    @T.setter
    def T(self, value):
        raise AttributeError("x.T is not set: write x.data[...] = values")

    def transpose(self, *axes):
        """The axes in another order, given one by one or as a tuple; reversed by default."""
        if axes == (0, 1):
            raise ValueError("x.transpose(0, 1) leaves both axes where they are, as NumPy's does: "
                             "write x.swapaxes(0, 1) to exchange them")
        return OPS["transpose"](self, _together(axes) if axes else None)

    def swapaxes(self, axis1: int, axis2: int):
        """x with two axes exchanged."""
        return OPS["swapaxes"](self, axis1, axis2)

    def reshape(self, *shape):
        """The same elements in another shape, given size by size or as a tuple."""
        return OPS["reshape"](self, _together(shape))

    # An op that is given others, such as dim, says which it takes.

    def sum(self, axis=None, keepdims: bool = False, **others: Any):
        """Sum over some axes, over all by default."""
        return OPS["sum"](self, axis, keepdims, **others)

    def mean(self, axis=None, keepdims: bool = False, **others: Any):
        """Mean over some axes, over all by default."""
        return OPS["mean"](self, axis, keepdims, **others)

    def max(self, axis=None, keepdims: bool = False, **others: Any):
        """Maximum over some axes, over all by default."""
        return OPS["max"](self, axis, keepdims, **others)

    def min(self, axis=None, keepdims: bool = False, **others: Any):
        """Minimum over some axes, over all by default."""
        return OPS["min"](self, axis, keepdims, **others)

    def var(self, axis=None, keepdims: bool = False, **others: Any):
        """Variance over some axes, over all by default; correction=1 divides by n - 1."""
        return OPS["var"](self, axis, keepdims, **others)

    def std(self, axis=None, keepdims: bool = False, **others: Any):
        """Standard deviation over some axes, over all by default; correction=1: by n - 1."""
        return OPS["std"](self, axis, keepdims, **others)

    def cumsum(self, axis=None, **others: Any):
        """Sums of the elements up to each along an axis; by default of all, flat."""
        return OPS["cumsum"](self, axis, **others)

    def clip(self, min=None, max=None, **others: Any):
        """x between two bounds, of which one may be None."""
        return OPS["clip"](self, min, max, **others)

    def squeeze(self, axis=None, **others: Any):
        """x without some axes of size 1, without all of them by default."""
        return OPS["squeeze"](self, axis, **others)

    def ravel(self):
        """The same elements along a single axis."""
        return OPS["ravel"](self)

    def flatten(self, *axes: int):
        """The same elements along a single axis, as in NumPy."""
        if axes:
            raise TypeError("x.flatten() takes no axis, as NumPy's: write x.reshape(len(x), -1) to "
                            "keep the first")
        return OPS["ravel"](self)

    def abs(self):
        """The size of x, without its sign."""
        return OPS["abs"](self)

    __abs__ = abs

    def softmax(self, axis: int = -1, **others: Any):
        """e^x / sum(e^x) along an axis."""
        return OPS["softmax"](self, axis, **others)

    def exp(self):
        """e to the power of x."""
        return OPS["exp"](self)

    def log(self):
        """Natural logarithm."""
        return OPS["log"](self)

    def sqrt(self):
        """Square root."""
        return OPS["sqrt"](self)

    def tanh(self):
        """Hyperbolic tangent."""
        return OPS["tanh"](self)


def _together(sizes):
    """Return sizes or axes as one argument: x.reshape(2, 3) as x.reshape((2, 3))."""
    return sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
