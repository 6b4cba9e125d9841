"""Every differentiable op, and the operators and methods that they give to Tensor."""
# flake8: noqa: F403, F405  (OPS lists what there is)
from minigrad.core import OPS, Tensor
from minigrad.ops.elementwise import *
from minigrad.ops.network import *
from minigrad.ops.shape import *

__all__ = list(OPS)
OPERATORS = {"add": add, "sub": subtract, "mul": multiply, "truediv": divide, "pow": power,
             "matmul": matmul}
METHODS = sum, mean, max, swapaxes, exp, log, sqrt, tanh, softmax


def _reflected(f):
    """Return the operator for a Tensor on the right, as in 1 - x."""
    return lambda self, other: f(other, self)


for _name, _op in OPERATORS.items():
    setattr(Tensor, f"__{_name}__", _op)
    setattr(Tensor, f"__r{_name}__", _reflected(_op))
for _op in METHODS:
    setattr(Tensor, _op.__name__, _op)
Tensor.__neg__ = negative
Tensor.__getitem__ = take
Tensor.T = property(transpose)


def _sizes(sizes):
    """Accept x.reshape(2, 3) as well as x.reshape((2, 3)), as NumPy's methods do."""
    return sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes


def _transposed(self, *axes):
    if axes == (0, 1):
        raise ValueError("x.transpose(0, 1) leaves both axes where they are, as NumPy's does: write "
                         "x.swapaxes(0, 1) to exchange them")
    return transpose(self, _sizes(axes) if axes else None)


Tensor.reshape = lambda self, *shape: reshape(self, _sizes(shape))
Tensor.transpose = _transposed
