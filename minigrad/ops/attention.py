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
    _check_shapes(q, k, v, enable_gqa)
    *lead, T, D = q.shape
    S, E = v.shape[-2:]
    mask = None
    if attn_mask is not None:
        mask = np.broadcast_to(_added(attn_mask, q.dtype), (*lead, T, S))
        mask = _four_axes(mask)
    if scale is None:
        scale = max(D, 1) ** -0.5
    drop = dropout_settings(dropout_p, rng, (*lead, T, S), below_1=True)
    how = How(mask, is_causal, scale, drop)
    heads = _four_axes(q), _four_axes(k), _four_axes(v)
    out, moments = formulas.attention(*heads, how)

    def vjp(g):
        dq, dk, dv = formulas.attention_vjp(_four_axes(g), *heads, out, moments, how)
        return dq.reshape(q.shape), dk.reshape(k.shape), dv.reshape(v.shape)
    return out.reshape(*lead, T, E), vjp


def _check_shapes(q, k, v, enable_gqa):
    if min(q.ndim, k.ndim, v.ndim) >= 2:
        same_axes = k.shape[:-2] == q.shape[:-2] or enable_gqa and _shares(q, k)
        if same_axes and k.shape[-1] == q.shape[-1] and v.shape[:-1] == k.shape[:-1]:
            return
    raise ValueError("query (..., T, D), key (..., S, D) and value (..., S, E) need the same "
                     "leading axes (with enable_gqa, key and value a share of the heads), the "
                     f"same D and the same S; they are {list(q.shape)}, {list(k.shape)} and "
                     f"{list(v.shape)}")


def _shares(q, k):
    """Whether q has several heads, the axis before the last two, for each head of k."""
    if min(q.ndim, k.ndim) < 3 or q.shape[:-3] != k.shape[:-3]:
        return False
    H, G = q.shape[-3], k.shape[-3]
    return G > 0 and H % G == 0


def _added(mask, dtype):
    """Return a mask as it is added to scores: 0 where a bool is true, else -inf."""
    if mask.dtype.kind not in "bf":
        raise TypeError("attn_mask is true where a query may attend (bool), or is added to the "
                        f"scores (float); this is {mask.dtype}")
    if mask.dtype == bool:
        mask = np.where(mask, 0, -np.inf)
    return mask.astype(dtype)


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
    H = num_heads
    G = num_heads if num_kv_heads is None else num_kv_heads
    if H < 1 or G < 1 or H % G:
        raise ValueError(f"{H} heads of queries do not split evenly among {G} of keys and values")
    all_heads = H + 2 * G
    D = width // all_heads
    if D < 1 or all_heads * D != width:
        raise ValueError(f"{width} channels do not split evenly into the queries of {H} heads and "
                         f"the keys and values of {G}")
    qkv, = one_type(qkv)
    drop = dropout_settings(dropout_p, rng, (*lead, H, T, T), below_1=True)
    how = How(causal=is_causal, scale=D ** -0.5, drop=drop)

    def heads(x, n):                                            # (..., T, n D) -> (B, n, T, D)
        return x.reshape(math.prod(lead), T, n, D).swapaxes(1, 2)

    def parts(x):                                               # views of queries, keys, values
        return np.split(heads(x, all_heads), [H, H + G], axis=1)
    packed = parts(qkv)
    out, moments = formulas.attention(*packed, how)

    def vjp(g):
        dqkv = np.empty(qkv.shape, qkv.dtype)
        formulas.attention_vjp(heads(g, H), *packed, out, moments, how, into=parts(dqkv))
        return dqkv,
    value = out.swapaxes(1, 2)                                  # (B, T, H, D)
    return value.reshape(*lead, T, H * D), vjp


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

    def dx(g):
        return formulas.rotate(g, cos, -sin)
    return formulas.rotate(x, cos, sin), (dx,)


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
    if base is None:
        cos = sin = np.empty((T, 0), x.dtype)       # no pair is rotated
    else:
        cos, sin = rotary_angles(T, D, x.dtype, num_heads, base)
    y, rstd = formulas.norm_heads(x, cos, sin, num_heads, D, eps)

    def dx(g):
        return formulas.norm_heads_vjp(g, y, rstd, cos, sin, D)
    return y, (dx,)


def _channels_of_a_head(W, num_heads, d_key, base):
    """Return D, after checking that the heads fit into W channels and that D is even to rotate."""
    right_heads = num_heads >= 1 and (d_key is None or d_key >= 1)
    if not right_heads or base is not None and not base > 0:
        raise ValueError("num_heads and d_key are at least 1 and base is above 0; they are "
                         f"{num_heads}, {d_key} and {base}")
    D = W // num_heads if d_key is None else d_key
    used = index(num_heads * D)
    if D < 1 or used > W or d_key is None and used != W:
        raise ValueError(f"{W} channels do not hold {num_heads} heads of {D}")
    if base is not None and D % 2:
        raise ValueError(f"a head's channels are turned in pairs, and {D} is odd")
    return D


@lru_cache(maxsize=8)
def rotary_angles(T: int, D: int, dtype: type, num_heads: int = 1, base: float = ROTARY_BASE
                  ) -> tuple[np.ndarray, np.ndarray]:
    """Return cosine and sine of the angles of `rotary`, (T, num_heads D / 2) each.  The arrays are
    cached; do not change them."""
    frequencies = base ** (-2 * np.arange(D // 2) / D)
    angles = np.arange(T)[:, None] * frequencies                # (T, D / 2)
    angles = np.tile(angles, num_heads)
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


def _four_axes(x):
    """Reshape (..., T, D) to (B, H, T, D)."""
    if x.ndim == 4:
        return x
    *lead, T, D = x.shape
    H = lead[-1] if lead else 1
    B = math.prod(lead[:-1])
    return x.reshape(B, H, T, D)
