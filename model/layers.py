"""The layers of a transformer around attention that minigrad/nn.py lacks: NGramEmbedding, MLP; and
sinusoids, positions without learnt parameters.

Weights are drawn as in GPT-2: normal, with a standard deviation of 0.02  (Radford et al. 2019,
section 2.3; the figure is from its code).
Shapes: B batch, T time, C channels, H heads.
"""
from functools import lru_cache

import numpy as np

import minigrad as mg
from minigrad import Tensor, formulas
from minigrad.nn import (       # noqa: F401  all layers can be imported from here
    Dropout, Embedding, LayerNorm, Linear, Module, RMSNorm, Rng, check_channels, full, normal)
from minigrad.ops import ROTARY_BASE

STD = 0.02


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

    def __init__(
            self,
            n: int,
            rows: int,
            channels: int,
            rng: Rng = None,
            dtype: type = np.float32,
            dropout: float = 0.0) -> None:
        super().__init__(
            rows,
            channels,
            rng,
            dtype,
            STD)
        self.n = n
        self.dropout = dropout

    def __call__(self, ids: np.ndarray, rng: Rng = None) -> Tensor:
        rows = formulas.ngram_rows(ids, self.n, len(self.weight.data))      # (..., T, n - 1)
        return mg.embedding_bag(
            rows,
            self.weight,
            self.dropout,
            rng)


class MLP(Module):
    """Linear to `inner` channels, by default four times as many; GELU; linear back, at each
    position: (..., C) -> (..., C).

    Source: Vaswani et al. 2017, section 3.3, with GPT-2's GELU (the exact one, as in nanoGPT), or
    with another activation that `mg.mlp` knows, or with "swiglu", which has a third linear layer,
    the gate  (Shazeer 2020, "GLU Variants Improve Transformer", section 2).
    """
    gate = None

    def __init__(
            self,
            channels: int,
            bias: bool = True,
            rng: Rng = None,
            std_out: float = STD,
            dtype: type = np.float32,
            activation: str = "gelu",
            inner: int | None = None) -> None:
        inner = 4 * channels if inner is None else inner
        self.activation = activation
        if activation == "swiglu":
            self.gate = Linear(
                channels,
                inner,
                bias,
                rng,
                STD,
                dtype)
        self.up = Linear(
            channels,
            inner,
            bias,
            rng,
            STD,
            dtype)
        self.down = Linear(
            inner,
            channels,
            bias,
            rng,
            std_out,
            dtype)

    def __call__(self, x: Tensor) -> Tensor:
        if self.gate is not None:
            return self.down(mg.swiglu(self.gate(x), self.up(x)))
        # down(gelu(up(x))), in one op that keeps less for backward
        up, down = self.up, self.down
        try:
            return mg.mlp(
                x,
                up.weight,
                up.bias,
                down.weight,
                down.bias,
                self.activation)
        except ValueError:
            check_channels(self, x, up.weight.shape[1])
            raise


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
