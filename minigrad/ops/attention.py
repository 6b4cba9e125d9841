"""The ops of attention: one for queries, keys and values, and one for packed heads.

Axes: B batch, T queries (time), S keys, H heads, D channels of a query or key, E of a value.
"""
import math

import numpy as np

from minigrad import kernels
from minigrad.core import Array, Rule, op
from minigrad.ops.network import draw_seed, one_type


@op
def scaled_dot_product_attention(query: Array, key: Array, value: Array, attn_mask: Array = None,
                                 dropout_p: float = 0.0, is_causal: bool = False,
                                 scale: float | None = None,
                                 rng: np.random.Generator | None = None) -> Rule:
    """softmax(query key^T scale + mask) value: (..., T, D), (..., S, D), (..., S, E) -> (..., T, E)

    The scale is 1 / sqrt(D) by default.  `attn_mask`, broadcast to (..., T, S), says where a query
    may look (bool), or is added to the scores (float, no gradient); `is_causal` lets query t look
    at keys up to t.  A query that may look nowhere gets 0.  Weights are dropped if and only if an
    rng is given.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1.
    """
    q, k, v = one_type(query, key, value)
    lead = q.shape[:-2]
    T, D, S = *q.shape[-2:], k.shape[-2]
    if k.shape != (*lead, S, D) or v.shape[:-1] != (*lead, S):
        raise ValueError("query (..., T, D), key (..., S, D) and value (..., S, E) need the same "
                         "leading axes, the same D and the same S; they are "
                         f"{list(q.shape)}, {list(k.shape)} and {list(v.shape)}")
    mask = attn_mask
    if mask is not None:
        mask = np.where(mask, 0, -np.inf) if mask.dtype == bool else mask
        mask = _four_axes(np.broadcast_to(mask.astype(q.dtype), (*lead, T, S)))
    settings = is_causal, D ** -0.5 if scale is None else scale, *_dropped(dropout_p, rng)
    heads = [_four_axes(x) for x in (q, k, v)]
    out, log_sum = kernels.attention(*heads, mask, *settings)

    def vjp(g):
        dq, dk, dv = kernels.attention_vjp(_four_axes(g), *heads, mask, out, log_sum, *settings)
        return dq.reshape(q.shape), dk.reshape(k.shape), dv.reshape(v.shape)
    return out.reshape(*lead, T, v.shape[-1]), vjp


@op
def self_attention(qkv: Array, num_heads: int, dropout_p: float = 0.0, is_causal: bool = False,
                   rng: np.random.Generator | None = None) -> Rule:
    """scaled_dot_product_attention of H heads from their packed projections and back to channels:
    (..., T, 3 H D) -> (..., T, H D).

    The last axis of `qkv` holds the queries of all heads, then the keys, then the values, and their
    gradients are written to one array that lies likewise.

    Source: Vaswani et al. 2017, section 3.2.2.
    """
    *lead, T, width = qkv.shape
    if width % (3 * num_heads):
        raise ValueError(f"{width} channels do not split evenly into the queries, keys and values "
                         f"of {num_heads} heads")
    qkv, = one_type(qkv)
    D = width // (3 * num_heads)

    def heads(x, parts):        # (..., T, parts H D) -> parts of (B, H, T, D), all views
        x = x.reshape(math.prod(lead), T, parts, num_heads, D)
        return [x[:, :, i].swapaxes(1, 2) for i in range(parts)]
    settings = is_causal, D ** -0.5, *_dropped(dropout_p, rng)
    out, log_sum = kernels.attention(*heads(qkv, 3), None, *settings)

    def vjp(g):
        dqkv = np.empty(qkv.shape, qkv.dtype)
        kernels.attention_vjp(*heads(g, 1), *heads(qkv, 3), None, out, log_sum, *settings,
                              into=heads(dqkv, 3))
        return dqkv,
    return out.swapaxes(1, 2).reshape(*lead, T, num_heads * D), vjp


def _dropped(p, rng):
    """The probability to drop an attention weight and the seed of which; 0 without an rng."""
    if not 0 <= p < 1:
        raise ValueError(f"the probability to drop a weight is at least 0 and below 1; this is {p}")
    return (0.0, 0) if rng is None or p == 0 else (p, draw_seed(rng))


def _four_axes(x):
    """(..., T, D) as (B, H, T, D)."""
    return x if x.ndim == 4 else x.reshape(math.prod(x.shape[:-3]), *(1, 1, *x.shape)[-3:])
