"""Positions without learnt parameters: sinusoids, and a bias by distance.

(Rotary positions are an op, `mg.rotary`, since they act on queries and keys within attention.)
Shapes: T positions, C channels, H heads.
"""
from functools import lru_cache

import numpy as np

from minigrad.ops.attention import ROTARY_BASE


@lru_cache(maxsize=8)
def sinusoids(T: int, C: int) -> np.ndarray:
    """Return (T, C) float64: sines in even channels, cosines in odd ones, with wavelengths from 2
    pi to 10,000 times that.  The array is cached; do not change it.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.5.
    """
    table = np.empty((T, C))
    angles = np.arange(T)[:, None] / ROTARY_BASE ** (np.arange(0, C, 2) / C)
    table[:, ::2], table[:, 1::2] = np.sin(angles), np.cos(angles)[:, :C // 2]
    return table


def alibi_slopes(H: int, dtype: type = np.float32) -> np.ndarray:
    """Return (H,), how fast each head's attention falls with distance: 2^(-8 h / H), h from 1 to H.

    Source: Press et al. 2022, "Train Short, Test Long: Attention with Linear Biases", section 3.
    """
    return (2.0 ** (-8 * np.arange(1, H + 1) / H)).astype(dtype)


def alibi_bias(slopes: np.ndarray, T: int) -> np.ndarray:
    """Return (H, T, T), the bias added to the score of query t and key s: -slope |t - s|."""
    t = np.arange(T, dtype=slopes.dtype)
    return -slopes[:, None, None] * abs(t[:, None] - t)
