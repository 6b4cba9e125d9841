"""The layers around attention: Linear, Embedding, NGramEmbedding, LayerNorm, RMSNorm, Dropout, MLP;
and sinusoids, positions without learnt parameters.

Each layer draws its weights from the generator that it is given, as GPT-2 does: normal, with a
standard deviation of 0.02  (Radford et al. 2019, section 2.3; the figure is from its code).
Shapes: B batch, T time, C channels, H heads.
"""
from functools import lru_cache

import numpy as np
from numpy.random import Generator

import minigrad as mg
from minigrad import Tensor, formulas
from minigrad.module import Module
from minigrad.ops import NORM_EPS, ROTARY_BASE
from minigrad.words import shown

STD = 0.02
Rng = Generator | None      # a call without one drops nothing; weights are not drawn without one


def normal(rng: Generator, shape: tuple[int, ...], std: float, dtype: type | None) -> Tensor:
    """Return a parameter drawn from a normal distribution of mean 0; without a dtype, of `full`.
    The draw is in float64, so that the float32 model is the rounded float64 one.

    Raises a TypeError if `rng` is no generator.
    """
    if dtype is None:
        return full(shape, 0, dtype)
    if not isinstance(rng, Generator):
        raise TypeError("weights are drawn from a generator: give rng=np.random.default_rng(0), "
                        f"not {shown(rng)}")
    return full(shape, std * rng.standard_normal(shape), dtype)


def full(shape: tuple[int, ...], value: float | np.ndarray, dtype: type | None) -> Tensor:
    """Return a parameter filled with a value; without a dtype, in a view that takes no memory, for
    `load_state_dict` to assign an array."""
    values = np.broadcast_to(np.asarray(value, dtype or np.float32), shape)
    return Tensor(values if dtype is None else values.copy(), requires_grad=True)


class Linear(Module):
    """x @ weight.T + bias: (..., inputs) -> (..., outputs); the weight has PyTorch's layout,
    (outputs, inputs)."""
    bias = None

    def __init__(self, inputs: int, outputs: int, bias: bool = True,
                 rng: Rng = None,
                 std: float = STD,
                 dtype: type = np.float32) -> None:
        self.weight = normal(rng, (outputs, inputs), std, dtype)
        if bias:
            self.bias = full((outputs,), 0, dtype)

    def __call__(self, x: Tensor) -> Tensor:
        return mg.linear(x, self.weight, self.bias)


class Embedding(Module):
    """A row of the weight for each id: (...) -> (..., channels)."""

    def __init__(self, count: int, channels: int,
                 rng: Rng = None,
                 dtype: type = np.float32) -> None:
        self.weight = normal(rng, (count, channels), STD, dtype)

    def __call__(self, ids: np.ndarray) -> Tensor:
        return mg.embedding(ids, self.weight)


class NGramEmbedding(Embedding):
    """The sum of a row for each n-gram that ends at a character, from pairs to n characters:
    (..., T) integers -> (..., T, channels).

    There are more n-grams than rows: a hash gives each n-gram its row, and some share one.  Most
    n-grams are rare, and a row learnt from one example is wrong for another text.  Dropout drops
    whole n-grams, so that the model does not rely on them  (Gal & Ghahramani 2016, "A Theoretically
    Grounded Application of Dropout in Recurrent Neural Networks", section 4.2).

    Source: Pagnoni et al. 2024, "Byte Latent Transformer", section 3.2.1; Huang et al. 2025,
    "Over-Tokenized Transformer", section 3.
    """

    def __init__(self, n: int, rows: int, channels: int,
                 rng: Rng = None,
                 dtype: type = np.float32,
                 dropout: float = 0.0) -> None:
        super().__init__(rows, channels, rng, dtype)
        self.n = n
        self.dropout = dropout

    def __call__(self, ids: np.ndarray, rng: Rng = None) -> Tensor:
        rows = formulas.ngram_rows(ids, self.n, len(self.weight.data))      # (..., T, n - 1)
        return mg.embedding_bag(rows, self.weight, self.dropout, rng)


class LayerNorm(Module):
    """Normalise the channels to mean 0, variance 1, then scale and shift: (..., C) -> (..., C)."""
    bias = None

    def __init__(self, channels: int, bias: bool = True,
                 dtype: type = np.float32,
                 eps: float = NORM_EPS) -> None:
        self.weight = full((channels,), 1, dtype)
        if bias:
            self.bias = full((channels,), 0, dtype)
        self.eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        return mg.layer_norm(x, self.weight, self.bias, self.eps)


class RMSNorm(Module):
    """Divide by the root mean square over the channels: (..., C) -> (..., C).

    It needs no gain, because the weights that read its output can learn that factor.  With a number
    of channels it learns a gain all the same, as Llama does.
    """
    weight = bias = None

    def __init__(self, channels: int | None = None,
                 dtype: type = np.float32,
                 eps: float = NORM_EPS) -> None:
        if channels is not None:
            self.weight = full((channels,), 1, dtype)
        self.eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        return mg.rms_norm(x, self.weight, self.eps)


class Dropout(Module):
    """Zero a share of the elements if and only if a random generator is given."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, x: Tensor, rng: Rng = None) -> Tensor:
        return mg.dropout(x, self.p, rng)


class MLP(Module):
    """Linear to `inner` channels, by default four times as many; GELU; linear back, at each
    position: (..., C) -> (..., C).

    Source: Vaswani et al. 2017, section 3.3, with GPT-2's GELU (the exact one, as in nanoGPT), or
    with another activation that `mg.mlp` knows, or with "swiglu", which has a third linear layer,
    the gate  (Shazeer 2020, "GLU Variants Improve Transformer", section 2).
    """
    gate = None

    def __init__(self, channels: int, bias: bool = True,
                 rng: Rng = None,
                 std_out: float = STD,
                 dtype: type = np.float32,
                 activation: str = "gelu",
                 inner: int | None = None) -> None:
        inner = 4 * channels if inner is None else inner
        self.activation = activation
        if activation == "swiglu":
            self.gate = Linear(channels, inner, bias, rng, dtype=dtype)
        self.up = Linear(channels, inner, bias, rng, dtype=dtype)
        self.down = Linear(inner, channels, bias, rng, std_out, dtype)

    def __call__(self, x: Tensor) -> Tensor:
        if self.gate is not None:
            return self.down(mg.swiglu(self.gate(x), self.up(x)))
        # down(gelu(up(x))), in one op that keeps less for backward
        up, down = self.up, self.down
        return mg.mlp(x, up.weight, up.bias, down.weight, down.bias, self.activation)


@lru_cache(maxsize=8)
def sinusoids(T: int, C: int) -> np.ndarray:
    """Return (T, C) float64: sines in even channels, cosines in odd ones, with wavelengths from 2
    pi to 10,000 times that.  The array is cached; do not change it.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.5.
    """
    wavelengths = ROTARY_BASE ** (np.arange(0, C, 2) / C)       # over 2 pi
    angles = np.arange(T)[:, None] / wavelengths                # (T, C / 2)
    table = np.empty((T, C))
    table[:, ::2] = np.sin(angles)
    table[:, 1::2] = np.cos(angles)[:, :C // 2]
    return table
