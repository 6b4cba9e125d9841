"""Attention without parameters, and three more ways to write it with them.  Each of these computes
the same as a form in `model/attention.py`, as the tests prove, and each shows something that the
other does not.

Shapes are those of `model/attention.py`: T queries, S keys and values, C channels, D channels of a
query or key, E of a value.
"""
import math

import numpy as np

import minigrad as mg
from minigrad import Tensor
from minigrad.module import Module
from model.attention import causal_mask
from model.layers import Linear, Rng
from model.variants.heads import SelfAttention


class WeightlessAttention(Module):
    """Attention without parameters: queries, keys and values are the input itself,
    softmax(X X^T scale) X, (..., T, C) -> (..., T, C).

    The scale is 1 / sqrt(C) by default.

    Source: Raschka 2024, "Build a Large Language Model (From Scratch)", section 3.3, where it is 1.
    """

    def __init__(self, scale: float | None = None) -> None:
        self.scale = scale

    def __call__(self, x: Tensor) -> Tensor:
        return mg.scaled_dot_product_attention(x, x, x, scale=self.scale)


class IterativeAttention(SelfAttention):
    """One head that reads one key and value at a time: (..., T, d_in) -> (..., T, d_out).

        sum_s exp(q_t . k_s / sqrt(D)) v_s / sum_s exp(q_t . k_s / sqrt(D))

    For the keys read so far, each query keeps the largest score, the sum of the exponentials, and
    the sum of the values weighted by them, both relative to the largest.  So nothing of size (T, S)
    is stored, and keys may arrive one by one, as they do from a sampler's cache.

    Source: Milakov & Gimelshein 2018, "Online normalizer calculation for softmax", algorithm 3;
    Rabe & Staats 2021, "Self-attention Does Not Need O(n^2) Memory", sections 2 and 3.
    """

    def __init__(self, d_in: int, d_out: int, causal: bool = True, qkv_bias: bool = False,
                 rng: Rng = None, dtype: type = np.float32) -> None:
        super().__init__(d_in, d_out, qkv_bias, rng=rng, dtype=dtype)
        self.causal = causal

    def __call__(self, x: Tensor) -> Tensor:
        return self.mix(self.query(x), self.key(x), self.value(x))

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """(..., T, D), (..., S, D), (..., S, E) -> (..., T, E)."""
        T, D = query.shape[-2:]
        top = -math.inf
        total = 0.0
        mixed = 0.0
        for s in range(key.shape[-2]):
            k = key[..., s:s + 1, :]                                # (..., 1, D)
            v = value[..., s:s + 1, :]                              # (..., 1, E)
            score = query @ k.swapaxes(-1, -2) / math.sqrt(D)       # (..., T, 1)
            if self.causal:
                score = mg.where(np.arange(T)[:, None] < s, -math.inf, score)
            # The result does not depend on what is subtracted, so no gradient goes through it.
            highest = np.maximum(top, score.data)
            shrunk = np.exp(top - highest)
            weight = mg.exp(score - highest)
            total = total * shrunk + weight                         # (..., T, 1)
            mixed = mixed * shrunk + weight * v                     # (..., T, E)
            top = highest
        return mixed / total


class ColumnAttention(SelfAttention):
    """`CausalAttention` with a position in each column instead of each row:
    V softmax(K^T Q / sqrt(D) + mask), (..., d_in, T) -> (..., d_out, T).

    Q, K and V are W X, with the weights at the left.  Column t of the softmax has the weights of
    query t and sums to 1; the future lies below the diagonal.

    Source: 3Blue1Brown 2024, "Attention in transformers" (Deep Learning, chapter 6).
    """

    def __call__(self, x: Tensor, rng: Rng = None) -> Tensor:
        query = _to_columns(x, self.query)
        key = _to_columns(x, self.key)
        value = _to_columns(x, self.value)
        D, T = query.shape[-2:]
        scores = key.swapaxes(-1, -2) @ query / math.sqrt(D)        # (..., T keys, T queries)
        weights = mg.softmax(scores + causal_mask(T, dtype=x.dtype).T, axis=-2)
        return value @ mg.dropout(weights, self.dropout, rng)


def _to_columns(x, linear):
    """(..., C, T) -> (..., D, T)."""
    columns = linear.weight @ x
    if linear.bias is None:
        return columns
    return columns + linear.bias.reshape(-1, 1)


class LowRankValueAttention(Module):
    """Heads that each change every embedding through a value matrix of low rank, and are summed:
    sum_h softmax(Q_h K_h^T / sqrt(D) + mask) X (V_up V_down)_h^T, (..., T, C) -> (..., T, C).

    A full value matrix would have C^2 weights in every head; value-down, (D, C), and value-up,
    (C, D), have 2 C D.  All value-up matrices side by side are the output projection of
    `MultiHeadAttention`; the value-down matrices compute its values.

    Source: 3Blue1Brown 2024, "Attention in transformers" (Deep Learning, chapter 6).
    """

    def __init__(self, d_in: int, d_head: int, num_heads: int, rng: Rng = None,
                 dtype: type = np.float32) -> None:
        rng = np.random.default_rng(0) if rng is None else rng

        def linear_layers(inputs, outputs):
            return [Linear(inputs, outputs, False, rng, inputs ** -0.5, dtype)
                    for _ in range(num_heads)]
        self.query = linear_layers(d_in, d_head)
        self.key = linear_layers(d_in, d_head)
        self.value_down = linear_layers(d_in, d_head)
        self.value_up = linear_layers(d_head, d_in)

    def __call__(self, x: Tensor) -> Tensor:
        mixed = 0
        for query, key, down, up in zip(self.query, self.key, self.value_down, self.value_up):
            value = up(down(x))
            mixed += mg.scaled_dot_product_attention(query(x), key(x), value, is_causal=True)
        return mixed
