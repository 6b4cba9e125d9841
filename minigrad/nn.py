"""Layers: Linear, Embedding, LayerNorm, RMSNorm, Dropout, Sequential; Module, which holds them, and
Buffer.

Weights are drawn from the generator that a layer is given, else from that of the process, which
`mg.manual_seed(0)` begins anew.  Their distribution is PyTorch's, unless a standard deviation is
given: the transformer draws its own as GPT-2 does.  A shape that does not fit names the layer.
"""
import math
from collections.abc import Callable
from inspect import signature
from typing import NoReturn

import numpy as np
from numpy.random import Generator

from minigrad import habits, ops, random
from minigrad.core import Array, Tensor
from minigrad.module import Buffer, Module
from minigrad.ops import NORM_EPS
from minigrad.words import shown

__all__ = ["Buffer", "Dropout", "Embedding", "LayerNorm", "Linear", "Module", "RMSNorm",
           "Sequential"]
# A call without one drops nothing; a layer that is made without one draws from the process's
Rng = Generator | None


def __getattr__(name: str) -> NoReturn:
    raise habits.missing("minigrad.nn", name, habits.OF_NAMESPACE)


def normal(
        rng: Rng,
        shape: tuple[int, ...],
        std: float,
        dtype: type | None) -> Tensor:
    """Return a parameter drawn from a normal distribution of mean 0; without a dtype, nothing is
    drawn, and `full` makes it.  The draw is in float64, so that the float32 model is the rounded
    float64 one.

    Raises a TypeError if `rng` is no generator.
    """
    if dtype is None:
        return full(shape, 0, dtype)
    return full(shape, std * _generator(rng).standard_normal(shape), dtype)


def uniform(
        rng: Rng,
        shape: tuple[int, ...],
        bound: float,
        dtype: type | None) -> Tensor:
    """Return a parameter drawn evenly between -bound and bound; without a dtype, as `normal`.

    Raises a TypeError if `rng` is no generator.
    """
    if dtype is None:
        return full(shape, 0, dtype)
    return full(shape, _generator(rng).uniform(-bound, bound, shape), dtype)


def full(shape: tuple[int, ...], value: float | np.ndarray, dtype: type | None) -> Tensor:
    """Return a parameter filled with a value; without a dtype, in a view that takes no memory, for
    `load_state_dict` to assign an array."""
    values = np.broadcast_to(np.asarray(value, dtype or np.float32), shape)
    return Tensor(values if dtype is None else values.copy(), requires_grad=True)


def _generator(rng):
    """Return the generator that weights are drawn from: this one, or that of the process."""
    if rng is None:
        return random.of_process()
    if not isinstance(rng, Generator):
        raise TypeError("weights are drawn from a generator: give rng=np.random.default_rng(0), "
                        f"not {shown(rng)}; without one, mg.manual_seed(0) sets that of the "
                        "process")
    return rng


def check_channels(layer: Module, x: Array, *sizes: int) -> None:
    """Raise a ValueError that names a layer of these sizes, unless x has the first of them for its
    last axis.  A layer asks only when its op has failed."""
    shape = np.shape(x.data if isinstance(x, Tensor) else x)
    if shape[-1:] != sizes[:1]:
        name = f"{type(layer).__name__}({', '.join(map(str, sizes))})"
        raise ValueError(f"{name} takes (..., {sizes[0]}), and got {shape}") from None


class Linear(Module):
    """x @ weight.T + bias: (..., inputs) -> (..., outputs); the weight has PyTorch's layout,
    (outputs, inputs).

    Parameters
    ----------
    std : the standard deviation of the weights, which are then normal, and the bias 0.  Without it,
        both are drawn evenly between -1 / sqrt(inputs) and 1 / sqrt(inputs), as in PyTorch.
    """
    bias = None

    def __init__(
            self,
            inputs: int,
            outputs: int,
            bias: bool = True,
            rng: Rng = None,
            std: float | None = None,
            dtype: type = np.float32) -> None:
        if std is None:
            bound = 1 / math.sqrt(max(1, inputs))
            self.weight = uniform(
                rng,
                (outputs, inputs),
                bound,
                dtype)
        else:
            self.weight = normal(
                rng,
                (outputs, inputs),
                std,
                dtype)
        if bias and std is None:
            self.bias = uniform(
                rng,
                (outputs,),
                bound,
                dtype)
        elif bias:
            self.bias = full((outputs,), 0, dtype)

    def __call__(self, x: Tensor) -> Tensor:
        try:
            return ops.linear(x, self.weight, self.bias)
        except ValueError:
            outputs, inputs = self.weight.shape
            check_channels(
                self,
                x,
                inputs,
                outputs)
            raise


class Embedding(Module):
    """A row of the weight for each id: (...) -> (..., channels).  The weights are normal, with a
    standard deviation of 1, as in PyTorch, or of `std`."""

    def __init__(
            self,
            count: int,
            channels: int,
            rng: Rng = None,
            dtype: type = np.float32,
            std: float = 1.0) -> None:
        self.weight = normal(
            rng,
            (count, channels),
            std,
            dtype)

    def __call__(self, ids: np.ndarray) -> Tensor:
        return ops.embedding(ids, self.weight)


class LayerNorm(Module):
    """Normalise the channels to mean 0, variance 1, then scale and shift: (..., C) -> (..., C)."""
    bias = None

    def __init__(
            self,
            channels: int,
            bias: bool = True,
            dtype: type = np.float32,
            eps: float = NORM_EPS) -> None:
        self.weight = full((channels,), 1, dtype)
        if bias:
            self.bias = full((channels,), 0, dtype)
        self.eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        try:
            return ops.layer_norm(
                x,
                self.weight,
                self.bias,
                self.eps)
        except ValueError:
            check_channels(self, x, *self.weight.shape)
            raise


class RMSNorm(Module):
    """Divide by the root mean square over the channels: (..., C) -> (..., C).

    It needs no gain, because the weights that read its output can learn that factor.  With a number
    of channels it learns a gain all the same, as Llama does.
    """
    weight = bias = None

    def __init__(
            self,
            channels: int | None = None,
            dtype: type = np.float32,
            eps: float = NORM_EPS) -> None:
        if channels is not None:
            self.weight = full((channels,), 1, dtype)
        self.eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        try:
            return ops.rms_norm(x, self.weight, self.eps)
        except ValueError:
            if self.weight is not None:
                check_channels(self, x, *self.weight.shape)
            raise


class Dropout(Module):
    """Zero a share of the elements if and only if a random generator is given."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, x: Tensor, rng: Rng = None) -> Tensor:
        return ops.dropout(x, self.p, rng)


class Sequential(Module):
    """Layers and functions, one after the other, as in Sequential(Linear(3, 4), mg.relu,
    Linear(4, 1)).  A generator is handed to those that take one as `rng`, such as Dropout.  Names
    of parameters are PyTorch's: 0.weight, 0.bias, 2.weight, 2.bias."""

    def __init__(self, *layers: Callable) -> None:
        vars(self).update((str(i), layer) for i, layer in enumerate(layers))

    @property
    def layers(self) -> list[Callable]:
        """The layers and functions, in their order."""
        return [part for name, part in vars(self).items() if name.isdecimal()]

    def __getitem__(self, i: int) -> Callable:
        return self.layers[i]

    def __call__(self, x: Tensor, rng: Rng = None) -> Tensor:
        for layer in self.layers:
            if rng is not None and "rng" in signature(layer).parameters:
                x = layer(x, rng=rng)
            else:
                x = layer(x)
        return x
