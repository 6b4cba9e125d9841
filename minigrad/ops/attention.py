"""The ops of attention: for separate queries, keys and values, for packed heads, rotary positions,
and normalised queries and keys.  For sources, see `formulas.py`.

Axes: B batch, T queries (time), S keys, H heads, D channels of a query or key, E of a value.
"""
import math
from functools import lru_cache
from operator import index

import numpy as np

from minigrad import formulas
from minigrad.core import Array, Rule, one_type, op
from minigrad.formulas import How
from minigrad.ops.network import NORM_EPS, check_axes, dropout_settings

ROTARY_BASE = 10_000.0  # of the wavelengths of rotary and sinusoidal positions


@op
def scaled_dot_product_attention(query: Array, key: Array, value: Array, attn_mask: Array = None,
                                 dropout_p: float = 0.0, is_causal: bool = False,
                                 scale: float | None = None, enable_gqa: bool = False,
                                 rng: np.random.Generator | None = None) -> Rule:
    """softmax(query key^T scale + mask) value: (..., T, D), (..., S, D), (..., S, E) -> (..., T, E)

    The scale is 1 / sqrt(D) by default.  `attn_mask`, broadcast to (..., T, S), is true where a
    query may attend (bool), or is added to the scores (float, no gradient).  With `is_causal`,
    query t attends to keys up to t.  A query that may attend to no key gets 0.  Weights are dropped
    if and only if an rng is given.  With `enable_gqa`, key and value may have fewer heads (the
    axis before the last two): each of theirs serves several consecutive heads of the query.
    """
    q, k, v = one_type(query, key, value)
    lead, kv_lead = q.shape[:-2], k.shape[:-2]
    grouped = (enable_gqa and lead[:-1] == kv_lead[:-1] and lead and kv_lead and kv_lead[-1]
               and lead[-1] % kv_lead[-1] == 0)
    if (min(q.ndim, k.ndim, v.ndim) < 2 or k.shape[-1] != q.shape[-1]
            or v.shape[:-1] != k.shape[:-1] or not (kv_lead == lead or grouped)):
        raise ValueError("query (..., T, D), key (..., S, D) and value (..., S, E) need the same "
                         "leading axes (with enable_gqa, key and value a share of the heads), the "
                         f"same D and the same S; they are {list(q.shape)}, {list(k.shape)} and "
                         f"{list(v.shape)}")
    T, D, S = *q.shape[-2:], k.shape[-2]
    mask = attn_mask
    if mask is not None:
        if mask.dtype.kind not in "bf":
            raise TypeError("attn_mask is true where a query may attend (bool), or is added to the "
                            f"scores (float); this is {mask.dtype}")
        mask = np.where(mask, 0, -np.inf) if mask.dtype == bool else mask
        mask = _four_axes(np.broadcast_to(mask.astype(q.dtype), (*lead, T, S)))
    scale = max(D, 1) ** -0.5 if scale is None else scale
    drop = dropout_settings(dropout_p, rng, (*lead, T, S), below_1=True)
    how = How(mask, is_causal, scale, drop)
    heads = [_four_axes(x) for x in (q, k, v)]
    out, moments = formulas.attention(*heads, how)

    def vjp(g):
        gradients = formulas.attention_vjp(_four_axes(g), *heads, out, moments, how)
        return [dx.reshape(x.shape) for dx, x in zip(gradients, (q, k, v))]
    return out.reshape(*lead, T, v.shape[-1]), vjp


@op
def self_attention(qkv: Array, num_heads: int, num_kv_heads: int | None = None,
                   dropout_p: float = 0.0, is_causal: bool = False,
                   rng: np.random.Generator | None = None) -> Rule:
    """scaled_dot_product_attention of H heads from their packed projections and back to channels:
    (..., T, (H + 2 G) D) -> (..., T, H D), with G = num_kv_heads, by default H.

    The last axis of `qkv` holds the queries of all heads, then the keys, then the values.  Their
    gradients are written to one array of the same layout.

    Source: Vaswani et al. 2017, section 3.2.2; Ainslie et al. 2023, "GQA", section 2.2.
    """
    check_axes("qkv", qkv, "..., T, C", 2)
    *lead, T, width = qkv.shape
    H, G = num_heads, num_heads if num_kv_heads is None else num_kv_heads
    if H < 1 or G < 1 or H % G:
        raise ValueError(f"{H} heads of queries do not split evenly among {G} of keys and values")
    D = width // (H + 2 * G)
    if D < 1 or (H + 2 * G) * D != width:
        raise ValueError(f"{width} channels do not split evenly into the queries of {H} heads and "
                         f"the keys and values of {G}")
    qkv, = one_type(qkv)
    drop = dropout_settings(dropout_p, rng, (*lead, H, T, T), below_1=True)
    how = How(None, is_causal, D ** -0.5, drop)

    def heads(x):               # (..., T, n D) -> (B, n, T, D), a view
        return x.reshape(math.prod(lead), T, x.shape[-1] // D, D).swapaxes(1, 2)

    def parts(x):
        return np.split(heads(x), [H, H + G], axis=1)       # queries, keys, values
    packed = parts(qkv)
    out, moments = formulas.attention(*packed, how)

    def vjp(g):
        dqkv = np.empty(qkv.shape, qkv.dtype)
        formulas.attention_vjp(heads(g), *packed, out, moments, how, into=parts(dqkv))
        return dqkv,
    return out.swapaxes(1, 2).reshape(*lead, T, H * D), vjp


@op
def rotary(x: Array, num_heads: int, d_key: int | None = None,
           base: float = ROTARY_BASE) -> Rule:
    """Rotate each head's channels in pairs, (2 i, 2 i + 1) at position t by the angle
    t base^(-2 i / D), so that q . k depends on their distance: (..., T, W) -> (..., T, W).

    The first num_heads D channels are rotated, D = d_key (by default all, W / num_heads).  Later
    channels, such as packed values, are passed on.  Back:  rotate by the opposite angle.
    """
    check_axes("x", x, "..., T, W", 2)
    x, = one_type(x)
    D = _channels_of_a_head(x.shape[-1], num_heads, d_key, base)
    cos, sin = rotary_angles(x.shape[-2], D, x.dtype, num_heads, base)
    return formulas.rotate(x, cos, sin), (lambda g: formulas.rotate(g, cos, -sin),)


@op
def qk_norm(x: Array, num_heads: int, d_key: int | None = None, base: float | None = None,
            eps: float = NORM_EPS) -> Rule:
    """Divide each head's channels by their root mean square, and with a `base` then rotate them as
    `rotary` does: (..., T, W) -> (..., T, W).  Back:  dx = (g - y mean(g y)) / rms, rotated back.

    The first num_heads D channels are heads, D = d_key (by default all, W / num_heads).  Later
    channels, such as packed values, are passed on.  Scores of queries and keys then lie between
    -sqrt(D) and sqrt(D).

    Source: Henry et al. 2020, "Query-Key Normalization for Transformers", section 3; Dehghani et
    al. 2023, "Scaling Vision Transformers to 22 Billion Parameters", section 2; the norm is that of
    Zhang & Sennrich 2019, section 4.
    """
    check_axes("x", x, "..., T, W", 2)
    x, = one_type(x)
    T = x.shape[-2]
    D = _channels_of_a_head(x.shape[-1], num_heads, d_key, base)
    cos, sin = ([np.empty((T, 0), x.dtype)] * 2 if base is None else
                rotary_angles(T, D, x.dtype, num_heads, base))
    y, rstd = formulas.norm_heads(x, cos, sin, num_heads, D, eps)
    return y, (lambda g: formulas.norm_heads_vjp(g, y, rstd, cos, sin, D),)


def _channels_of_a_head(W, num_heads, d_key, base):
    """Return D, after checking that the heads fit into W channels and that D is even to rotate."""
    if num_heads < 1 or d_key is not None and d_key < 1 or base is not None and not base > 0:
        raise ValueError("num_heads and d_key are at least 1 and base is above 0; they are "
                         f"{num_heads}, {d_key} and {base}")
    D = W // num_heads if d_key is None else d_key
    if D < 1 or index(num_heads * D) > W or d_key is None and num_heads * D != W:
        raise ValueError(f"{W} channels do not hold {num_heads} heads of {D}")
    if base is not None and D % 2:
        raise ValueError(f"a head's channels are turned in pairs, and {D} is odd")
    return D


@lru_cache(maxsize=8)
def rotary_angles(T: int, D: int, dtype: type, num_heads: int = 1, base: float = ROTARY_BASE
                  ) -> tuple[np.ndarray, np.ndarray]:
    """Return cosine and sine of the angles of `rotary`, (T, num_heads D / 2) each.  The arrays are
    cached; do not change them."""
    angles = np.arange(T)[:, None] * base ** (-2 * np.arange(D // 2) / D)
    angles = np.tile(angles, num_heads)
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


def _four_axes(x):
    """Reshape (..., T, D) to (B, H, T, D)."""
    return x if x.ndim == 4 else x.reshape(math.prod(x.shape[:-3]), *(1, 1, *x.shape)[-3:])
