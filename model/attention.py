"""Attention, from the plain formula to the layer that the transformer trains with.

Shapes: B batch, T queries (time), S keys and values, H heads of queries, G of keys and values, D
channels of a query or key, E of a value; W = H D + G D + G E channels of all of them, packed;
C channels of the model.
`attention` is the paper's formula.  `MultiHeadAttention`, the transformer's layer, calls
`mg.self_attention` on packed heads.  The single heads, which the encoder-decoder and the walk use,
call `mg.scaled_dot_product_attention`.  With Numba both run minigrad/kernels/attention.py, which
computes the formula in blocks; the tests compare all three.  `model/variants/` has the single heads
and other ways to write attention.
"""
import math
from functools import cached_property

import numpy as np

import minigrad as mg
from minigrad import Tensor
from minigrad.module import Module
from minigrad.ops.attention import ROTARY_BASE
from model.layers import STD, Dropout, Linear, Rng, alibi_bias, alibi_slopes


def attention(query: Tensor, key: Tensor, value: Tensor, mask: np.ndarray | None = None,
              dropout: float = 0.0, rng: Rng = None) -> tuple[Tensor, Tensor]:
    """softmax(Q K^T / sqrt(D) + mask) V, (..., T, E), and the weights before dropout, (..., T, S).

    A float mask is added; a bool mask is true where a query may attend.  A query that may attend to
    no key gets nan, as in the formula, where `mg.scaled_dot_product_attention` gives 0.

    Source: Vaswani et al. 2017, "Attention Is All You Need", equation 1.
    """
    scores = query @ key.swapaxes(-1, -2) / math.sqrt(key.shape[-1])        # (..., T, S)
    if mask is not None:
        scores = mg.where(mask, scores, -math.inf) if mask.dtype == bool else scores + mask
    weights = mg.softmax(scores)
    return mg.dropout(weights, dropout, rng) @ value, weights


def causal_mask(T: int, S: int | None = None, dtype: type = np.float32) -> np.ndarray:
    """Return a (T, S) mask: 0 where query t may attend to key s <= t, -inf where s > t.

    It is for the plain formula.  Training makes no mask: the kernel compares indices.
    """
    return np.triu(np.full((T, T if S is None else S), -math.inf, dtype), k=1)


class MultiHeadAttention(Module):
    """num_heads heads side by side, then an output projection: (..., T, d_in) -> (..., T, d_out).

    The query, key and value matrices of all heads are the rows of one weight, `qkv`, so that one
    product makes them all.  Dropout applies to the attention weights and the output, as in GPT-2.

    Parameters
    ----------
    num_kv_heads : the number of heads of keys and values, num_heads by default.  Each serves
        num_heads / num_kv_heads heads of queries.  1 is multi-query attention.
    d_key, d_value : channels of a head's queries and keys, and of its values; d_out / num_heads by
        default.
    projection : if False, the output is the heads' values side by side.
    rotary, alibi : how scores depend on positions: queries and keys are rotated, or a bias by
        distance is added; see `mg.rotary` and `alibi_slopes`.
    qk_norm : divide queries and keys by their root mean square, head by head, before they are
        rotated; see `mg.qk_norm`.
    out_bias : whether the output projection has a bias; `bias` by default.
    rotary_base : of the wavelengths by which queries and keys are rotated.

    Source: Vaswani et al. 2017, section 3.2.2; Shazeer 2019, "Fast Transformer Decoding", section 3
    (multi-query); Ainslie et al. 2023, "GQA", section 2.2 (grouped-query).
    """

    def __init__(self, d_in: int, d_out: int, num_heads: int, dropout: float = 0.0,
                 bias: bool = False, causal: bool = True, rng: Rng = None,
                 std_out: float = STD, dtype: type = np.float32, num_kv_heads: int | None = None,
                 d_key: int | None = None, d_value: int | None = None, projection: bool = True,
                 rotary: bool = False, alibi: bool = False, qk_norm: bool = False,
                 out_bias: bool | None = None, rotary_base: float = ROTARY_BASE) -> None:
        if num_heads < 1:
            raise ValueError(f"attention has at least 1 head, and not {num_heads}")
        if None in (d_key, d_value) and d_out % num_heads:
            raise ValueError(f"{d_out} channels do not split evenly into {num_heads} heads")
        self.heads = num_heads
        self.kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if self.kv_heads < 1 or num_heads % self.kv_heads:
            raise ValueError(f"{num_heads} heads of queries do not split evenly among "
                             f"{num_kv_heads} of keys and values")
        self.d_key = d_out // num_heads if d_key is None else d_key
        d_value = d_out // num_heads if d_value is None else d_value
        if not projection and num_heads * d_value != d_out:
            raise ValueError(f"without a projection the output is {num_heads} heads of {d_value} "
                             f"channels side by side, {num_heads * d_value}, and d_out is {d_out}")
        if rotary and self.d_key % 2:
            raise ValueError("rotary positions turn channels in pairs, and a head has "
                             f"{self.d_key} of them, which is odd")
        rng = np.random.default_rng(0) if rng is None else rng
        width = (num_heads + self.kv_heads) * self.d_key + self.kv_heads * d_value
        self.causal, self.alibi, self.qk_norm = causal, alibi, qk_norm
        self.rotary, self.rotary_base = rotary, rotary_base
        self.qkv = Linear(d_in, width, bias, rng, dtype=dtype)
        out_bias = bias if out_bias is None else out_bias
        self.out = (Linear(num_heads * d_value, d_out, out_bias, rng, std_out, dtype) if projection
                    else None)
        self.dropout = Dropout(dropout)

    def __call__(self, x: Tensor, rng: Rng = None, residual: Tensor | None = None) -> Tensor:
        return self.mix(self.project(x), rng, residual)

    def project(self, x: Tensor) -> Tensor:
        """Return the queries, keys and values of all heads, normalised and rotated:
        (..., T, d_in) -> (..., T, W)."""
        if x.ndim < 2:
            raise ValueError(f"attention reads x (..., T, C), and this has shape {list(x.shape)}")
        qkv, heads = self.qkv(x), self.heads + self.kv_heads
        if self.qk_norm:
            return mg.qk_norm(qkv, heads, self.d_key, self.rotary_base if self.rotary else None)
        return mg.rotary(qkv, heads, self.d_key, self.rotary_base) if self.rotary else qkv

    def mix(self, qkv: Tensor, rng: Rng = None, residual: Tensor | None = None) -> Tensor:
        """Return the output for the result of `project`; a residual of its shape is added after the
        dropout."""
        mixed = mg.self_attention(qkv, self.heads, self.kv_heads, self.d_key, self.slopes,
                                  self.dropout.p, self.causal, rng)         # (..., T, H E)
        if self.out is None:
            return self.dropout(mixed, rng, residual)
        return self.dropout.after(self.out, mixed, rng, residual)

    @cached_property
    def slopes(self) -> np.ndarray | None:
        """The slopes of the bias by distance, (H,), if there is one."""
        return alibi_slopes(self.heads, self.qkv.weight.dtype) if self.alibi else None

    def split(self, qkv: np.ndarray) -> list[np.ndarray]:
        """Split the result of `project` into queries, keys and values by head:
        (..., T, W) -> (..., H, T, D), (..., G, T, D), (..., G, T, E)."""
        n_q, n_k = self.heads * self.d_key, self.kv_heads * self.d_key
        parts = np.split(qkv, [n_q, n_q + n_k], axis=-1)
        return [part.reshape(*part.shape[:-1], n, part.shape[-1] // n).swapaxes(-2, -3)
                for part, n in zip(parts, (self.heads, self.kv_heads, self.kv_heads))]

    def weights(self, qkv: np.ndarray) -> np.ndarray:
        """Return each head's attention weights, by the plain formula, for the result of `project`:
        (..., T, W) -> (..., H, T, T)."""
        if qkv.shape[-1] != self.qkv.weight.shape[0]:
            raise ValueError(f"weights takes project(x), and {qkv.shape[-1]} channels are not that")
        query, key, _ = self.split(Tensor(qkv).data)
        key = Tensor(np.repeat(key, self.heads // self.kv_heads, axis=-3))  # (..., H, T, D)
        T = qkv.shape[-2]
        mask = causal_mask(T, dtype=qkv.dtype) if self.causal else np.zeros((T, T), qkv.dtype)
        if self.slopes is not None:
            mask = mask + alibi_bias(self.slopes, T)
        return attention(Tensor(query), key, key, mask)[1].data
