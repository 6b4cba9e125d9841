"""Every differentiable op, and the operators and methods that they give to Tensor."""
# flake8: noqa: F401  (the names are offered as the registry lists them)
from minigrad.core import OPS, Tensor
from minigrad.ops.elementwise import (add, divide, exp, gelu, log, maximum, multiply, negative,
                                      power, relu, sigmoid, silu, sqrt, subtract, tanh, where)
from minigrad.ops.network import (cross_entropy, dropout, embedding, embedding_bag, layer_norm,
                                  linear, log_softmax, matmul, mlp, qk_norm, rms_norm, rotary,
                                  scaled_dot_product_attention, self_attention, softmax)
from minigrad.ops.shape import (broadcast_to, concatenate, max, mean, reshape, split, stack, sum,
                                swapaxes, take, transpose)

__all__ = list(OPS)

Tensor.__add__, Tensor.__radd__ = add, lambda self, other: add(other, self)
Tensor.__sub__, Tensor.__rsub__ = subtract, lambda self, other: subtract(other, self)
Tensor.__mul__, Tensor.__rmul__ = multiply, lambda self, other: multiply(other, self)
Tensor.__truediv__, Tensor.__rtruediv__ = divide, lambda self, other: divide(other, self)
Tensor.__pow__, Tensor.__rpow__ = power, lambda self, other: power(other, self)
Tensor.__matmul__, Tensor.__rmatmul__ = matmul, lambda self, other: matmul(other, self)
Tensor.__neg__ = negative
Tensor.__getitem__ = take
Tensor.sum, Tensor.mean, Tensor.max, Tensor.swapaxes = sum, mean, max, swapaxes
Tensor.exp, Tensor.log, Tensor.sqrt, Tensor.tanh, Tensor.softmax = exp, log, sqrt, tanh, softmax
Tensor.T = property(transpose)


def _sizes(sizes):
    """Accept x.reshape(2, 3) as well as x.reshape((2, 3)), as NumPy's methods do."""
    return sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes


Tensor.reshape = lambda self, *shape: reshape(self, _sizes(shape))
Tensor.transpose = lambda self, *axes: transpose(self, _sizes(axes) if axes else None)
