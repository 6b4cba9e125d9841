"""ALiBi: attention whose scores fall with distance, written on the plain formula.

This is an example of a form that the transformer does not know as an option.  docs/attention.md
goes through it.  Shapes: T time, H heads, D channels of a head.
"""
import numpy as np

from minigrad import Tensor
from model.attention import MultiHeadAttention, attention, causal_mask
from model.layers import Rng


class AlibiAttention(MultiHeadAttention):
    """`MultiHeadAttention` with a bias by distance in place of positions:
    softmax(Q K^T / sqrt(D) - slope |t - s|) V, (..., T, d_in) -> (..., T, d_out).

    Source: Press et al. 2022, "Train Short, Test Long: Attention with Linear Biases", section 3.
    """

    def __call__(self, x: Tensor, rng: Rng = None) -> Tensor:
        query, key, value = self.split(self.project(x))                 # (..., H, T, D) each
        mixed, _ = attention(query, key, value, self.mask(x), self.dropout, rng)
        mixed = mixed.swapaxes(-2, -3)                                  # (..., T, H, D)
        side_by_side = mixed.reshape(*x.shape[:-1], -1)
        return self.out(side_by_side)                                   # (..., T, d_out)

    def mask(self, x: Tensor) -> np.ndarray:
        """Return what is added to the scores of each head: the bias, and -inf in the future."""
        T = x.shape[-2]
        slopes = alibi_slopes(self.heads, x.dtype)
        return alibi_bias(slopes, T) + causal_mask(T, dtype=x.dtype)


def alibi_slopes(H: int, dtype: type = np.float32) -> np.ndarray:
    """Return (H,), how fast each head's attention falls with distance: 2^(-8 h / H), h from 1 to H.
    """
    h = np.arange(1, H + 1)
    slopes = 2.0 ** (-8 * h / H)
    return slopes.astype(dtype)


def alibi_bias(slopes: np.ndarray, T: int) -> np.ndarray:
    """Return (H, T, T), the bias added to the score of query t and key s: -slope |t - s|."""
    t = np.arange(T, dtype=slopes.dtype)
    distance = abs(t[:, None] - t)
    return -slopes[:, None, None] * distance
