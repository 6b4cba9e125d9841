"""Attention, from the plain formula to the layer that the transformer trains with.

Shapes: B batch, T queries (time), S keys and values, H heads of queries, G of keys and values, D
channels of a head, E of a value where it has others; W = (H + 2 G) D channels of queries, keys and
values, packed; C channels of the model.
`attention` is the paper's formula.  `MultiHeadAttention`, the transformer's layer, calls
`mg.self_attention` on packed heads.  The single heads, which the encoder-decoder and the walk use,
call `mg.scaled_dot_product_attention`.  With Numba both run minigrad/kernels/attention.py, which
computes the formula in blocks; the tests compare all three.  `model/variants/` has the single heads
and other ways to write attention.
"""
import math
from dataclasses import dataclass

import numpy as np

import minigrad as mg
from minigrad import Tensor
from minigrad.nn import Linear, Module, RMSNorm, Rng
from minigrad.ops import NORM_EPS, RotaryScaling, check_heads
from model.config import head_problems
from model.layers import STD


def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: np.ndarray | None = None,
        dropout: float = 0.0,
        rng: Rng = None) -> tuple[Tensor, Tensor]:
    """softmax(Q K^T / sqrt(D) + mask) V, (..., T, E), and the weights before dropout, (..., T, S).

    A float mask is added; a bool mask is true where a query may attend.  A query that may attend to
    no key gets nan, as in the formula, where `mg.scaled_dot_product_attention` gives 0.

    Source: Vaswani et al. 2017, "Attention Is All You Need", equation 1.
    """
    D = key.shape[-1]
    scores = query @ key.swapaxes(-1, -2) / math.sqrt(D)        # (..., T, S)
    if mask is not None and mask.dtype == bool:
        scores = mg.where(mask, scores, -math.inf)
    elif mask is not None:
        scores = scores + mask
    weights = mg.softmax(scores)
    dropped = mg.dropout(weights, dropout, rng)
    return dropped @ value, weights


def causal_mask(T: int, dtype: type = np.float32) -> np.ndarray:
    """Return a (T, T) mask: 0 where query t may attend to key s <= t, -inf where s > t.

    It is for the plain formula and the KV cache.  Training does not call it: there,
    `formulas.attention_scores`, or the kernel of attention, hides the keys.
    """
    hidden = np.full((T, T), -math.inf, dtype)
    return np.triu(hidden, k=1)


@dataclass(frozen=True)
class AttentionOptions:
    """What a layer of attention may do otherwise than the paper.

    Parameters
    ----------
    num_kv_heads : the number of heads of keys and values, num_heads by default.  Each serves
        num_heads / num_kv_heads heads of queries.  1 is multi-query attention.
    rotary_base : of the wavelengths by which queries and keys are rotated; None for no rotation.
        See `mg.rotary`.
    qk_norm : divide queries and keys by their root mean square, head by head.  See `mg.qk_norm`.
    rotary_scaling : how rotations are slowed for longer texts, or None.
    head_dim : the channels of a head, d_out / num_heads by default.
    qk_gain : with qk_norm, multiply each channel of a head by a learnt factor, one of queries and
        one of keys, before they are rotated  (Yang et al. 2025, "Qwen3 Technical Report",
        section 2).
    norm_eps : added to the mean square by qk_norm.
    out_bias : whether the output projection has a bias; None for what `bias` says.
    std_out : the standard deviation of the initial weights of the output projection.

    Source: Shazeer 2019, "Fast Transformer Decoding", section 3 (multi-query); Ainslie et al. 2023,
    "GQA", section 2.2 (grouped-query).
    """
    num_kv_heads: int | None = None
    rotary_base: float | None = None
    qk_norm: bool = False
    std_out: float = STD
    rotary_scaling: RotaryScaling | None = None
    out_bias: bool | None = None
    head_dim: int | None = None
    qk_gain: bool = False
    norm_eps: float = NORM_EPS


class MultiHeadAttention(Module):
    """num_heads heads side by side, then an output projection: (..., T, d_in) -> (..., T, d_out).
    A position attends to itself and to those before it.

    The query, key and value matrices of all heads are the rows of one weight, `qkv`, so that one
    product makes them all.  A head has D = d_out / num_heads channels, if no option says otherwise.
    Dropout applies to the attention weights, as in GPT-2.  Weights are drawn from `rng`, or else
    from the generator of the process (`mg.manual_seed`): normal, with a standard deviation of 0.02;
    biases are 0.

    Source: Vaswani et al. 2017, section 3.2.2.
    """
    query_norm = key_norm = None

    def __init__(
            self,
            d_in: int,
            d_out: int,
            num_heads: int,
            dropout: float = 0.0,
            bias: bool = False,
            rng: Rng = None,
            dtype: type = np.float32,
            options: AttentionOptions = AttentionOptions()) -> None:
        H = num_heads
        G = H if options.num_kv_heads is None else options.num_kv_heads
        check_heads(H, G)
        mistakes = head_problems(
            d_out,
            H,
            head_dim=options.head_dim,
            names=("d_out", "num_heads", "num_kv_heads", "", "head_dim"))
        if mistakes:
            raise ValueError(mistakes[0])
        self.heads = H
        self.kv_heads = G
        self.d_head = d_out // H if options.head_dim is None else options.head_dim
        self.options = options
        self.qkv = Linear(
            d_in,
            (H + 2 * G) * self.d_head,
            bias,
            rng=rng,
            std=STD,
            dtype=dtype)
        if options.qk_norm and options.qk_gain:
            self.query_norm = RMSNorm(self.d_head, dtype, options.norm_eps)
            self.key_norm = RMSNorm(self.d_head, dtype, options.norm_eps)
        self.out = Linear(
            H * self.d_head,
            d_out,
            bias if options.out_bias is None else options.out_bias,
            rng=rng,
            std=options.std_out,
            dtype=dtype)
        self.dropout = dropout

    def __call__(self, x: Tensor, rng: Rng = None) -> Tensor:
        qkv = self.project(x)                                               # (..., T, W)
        mixed = mg.self_attention(
            qkv,
            self.heads,
            self.kv_heads,
            self.dropout,
            is_causal=True,
            rng=rng)
        return self.out(mixed)                                              # (..., T, d_out)

    def project(self, x: Tensor, first: int = 0) -> Tensor:
        """Return the queries, keys and values of all heads, normalised and rotated as those of
        position `first` and the next ones: (..., T, d_in) -> (..., T, W)."""
        qkv = self.qkv(x)
        turned = self.heads + self.kv_heads         # heads of queries and keys
        base = self.options.rotary_base
        if self.query_norm is not None:
            qkv = self.norm_heads(qkv)
        elif self.options.qk_norm:
            return mg.qk_norm(
                qkv,
                turned,
                self.d_head,
                base,
                self.options.norm_eps,
                first=first,
                scaling=self.options.rotary_scaling)
        if base is not None:
            return mg.rotary(
                qkv,
                turned,
                self.d_head,
                base,
                first=first,
                scaling=self.options.rotary_scaling)
        return qkv

    def norm_heads(self, qkv: Tensor) -> Tensor:
        """Normalise each head of queries and keys, with their gains: (..., T, W) -> (..., T, W)."""
        H, G = self.heads, self.kv_heads
        by_head = qkv.reshape(*qkv.shape[:-1], -1, self.d_head)         # (..., T, H + 2 G, D)
        query, key, value = mg.split(by_head, [H, H + G], axis=-2)
        normed = mg.concatenate([self.query_norm(query), self.key_norm(key), value], axis=-2)
        return normed.reshape(*qkv.shape)

    def weights(self, x: Tensor) -> np.ndarray:
        """Return each head's attention weights, by the plain formula, without dropout:
        (..., T, d_in) -> (..., H, T, T)."""
        query, key, value = self.split(self.project(x))
        _, weights = attention(
            query,
            key,
            value,
            self.mask(x))
        return weights.data

    def mask(self, x: Tensor) -> np.ndarray:
        """Return what is added to the scores of each head, (T, T)."""
        return causal_mask(x.shape[-2], dtype=x.dtype)

    def split(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split the result of `project` into queries, keys and values by head, where keys and
        values are repeated for all heads that they serve: (..., T, W) -> (..., H, T, D) each."""
        H, G = self.heads, self.kv_heads
        by_head = qkv.reshape(*qkv.shape[:-1], -1, self.d_head)         # (..., T, H + 2 G, D)
        query, key, value = mg.split(by_head.swapaxes(-2, -3), [H, H + G], axis=-3)
        serving = np.arange(H) * G // H             # of each head of queries: its head of keys
        return query, mg.take(key, serving, axis=-3), mg.take(value, serving, axis=-3)
