"""Ops of neural networks, by the formulas of `formulas.py`, which names their sources: each returns
the value and its vjps.

Shapes: C channels, V classes; `...` any leading axes.  Of attention: B batch, T queries (time), S
keys, H heads of queries, G of keys and values, D channels of a query or key, E of a value.
"""
import math
from functools import lru_cache
from operator import index

import numpy as np

from minigrad import formulas
from minigrad.core import Added, Array, Rule, one_type, op
from minigrad.formulas import ACTIVATIONS, Drop, How

NORM_EPS = 1e-5         # added to a variance
ROTARY_BASE = 10_000.0  # of the wavelengths of rotary and sinusoidal positions


@op
def matmul(x: Array, y: Array) -> Rule:
    """Product of the last two axes, (..., M, K), (..., K, P) -> (..., M, P); vectors as NumPy's.
    Back:  dx = g y^T, dy = x^T g.
    """
    if x.ndim == 0 or y.ndim == 0:
        raise ValueError("matmul takes arrays of at least one axis; to scale by a number, use *")
    a, b = x, y
    added = ()                              # axes that a vector gets
    if x.ndim == 1:
        a = x.reshape(1, -1)
        added += -2,
    if y.ndim == 1:
        b = y.reshape(-1, 1)
        added += -1,
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"the inner sizes differ: {list(x.shape)} has {a.shape[-1]} columns, "
                         f"{list(y.shape)} has {b.shape[-2]} rows")
    if "f" in (a.dtype.kind, b.dtype.kind):
        a, b = one_type(a, b)

    def dx(g):
        g = np.expand_dims(g, added)
        return _product(g, b.swapaxes(-1, -2))

    def dy(g):
        g = np.expand_dims(g, added)
        if b.ndim > 2:
            return _product(a.swapaxes(-1, -2), g)
        db = formulas.matmul(_folded(a).T, _folded(g))      # summed over all matrices of a
        return db.reshape(y.shape)
    value = _product(a, b)
    return np.squeeze(value, added), (dx, dy)


def _product(x, y):
    if x.dtype.kind != "f":
        return x @ y
    M, K = x.shape[-2:]
    P = y.shape[-1]
    if y.ndim == 2:                         # one matrix for the whole batch
        return _unfolded(formulas.matmul(_folded(x), y), x)
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    N = math.prod(batch)
    x = np.broadcast_to(x, (*batch, M, K))
    y = np.broadcast_to(y, (*batch, K, P))
    value = formulas.matmul(x.reshape(N, M, K), y.reshape(N, K, P))
    return value.reshape(*batch, M, P)


@op
def linear(x: Array, weight: Array, bias: Array = None) -> Rule:
    """x @ weight.T + bias, (..., C), (P, C), (P,) -> (..., P); the weight lies as in PyTorch.
    Back:  dx = g weight, dweight = g^T x, dbias = sum of g's rows.
    """
    check_axes("weight", weight, "P, C", 2, 2)
    if x.shape[-1:] != weight.shape[1:]:
        raise ValueError(f"weight is (outputs, inputs) = {list(weight.shape)}, so x needs "
                         f"{weight.shape[-1]} channels in its last axis, and has shape "
                         f"{list(x.shape)}")
    x, weight, bias = one_type(x, weight, bias)
    check_row("bias", bias, len(weight), "outputs")
    rows = _folded(x)
    y = formulas.linear(rows, weight, bias)

    def vjp(g):
        dx, dweight, dbias = formulas.linear_vjp(_folded(g), rows, weight, bias)
        return dx.reshape(x.shape), dweight, dbias
    return _unfolded(y, x), vjp


@op
def mlp(x: Array, up: Array, down: Array, up_bias: Array = None, down_bias: Array = None,
        activation: str = "gelu", gate: Array = None, gate_bias: Array = None) -> Rule:
    """linear(f(h), down, down_bias) of h = linear(x, up, up_bias), with f the GELU or as
    `activation` says: (..., C), (F, C), (P, F), (F,), (P,) -> (..., P).

    "gelu" is the exact GELU, "gelu_tanh" the one by tanh, as in `gelu`; "relu2" is max(h, 0)^2;
    "swiglu" is silu(linear(x, gate, gate_bias)) * h, and alone takes a gate (F, C), (F,).

    It is one op so that only one of h and f(h) is kept.  The GELU keeps h, and backward computes
    f(h) again with the derivative.  The squared ReLU keeps f(h), whose derivative is 2 sqrt(f(h)).
    SwiGLU keeps what it multiplies.
    """
    _check_mlp(x, up, down, activation, gate, gate_bias)
    x, up, down, up_bias, down_bias, gate, gate_bias = one_type(
        x, up, down, up_bias, down_bias, gate, gate_bias)
    check_row("bias", up_bias, len(up), "outputs")
    check_row("bias", gate_bias, len(up), "outputs")
    check_row("bias", down_bias, len(down), "outputs")
    rows = _folded(x)
    weights = up, up_bias, down, down_bias
    kind = ACTIVATIONS.index(activation)
    if gate is None:
        y, kept = formulas.mlp(rows, *weights, kind)
    else:
        y, kept = formulas.gated_mlp(rows, gate, gate_bias, *weights)

    def vjp(g):
        dgate = dgate_bias = None
        if gate is None:
            dx, *dweights = formulas.mlp_vjp(_folded(g), rows, *weights, kept, kind)
        else:
            dx, dgate, dgate_bias, *dweights = formulas.gated_mlp_vjp(
                _folded(g), rows, gate, gate_bias, *weights, kept)
        dup, dup_bias, ddown, ddown_bias = dweights
        dx = dx.reshape(x.shape)
        return dx, dup, ddown, dup_bias, ddown_bias, None, dgate, dgate_bias
    return _unfolded(y, x), vjp


def _check_mlp(x, up, down, activation, gate, gate_bias):
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation is one of {', '.join(ACTIVATIONS)}, not {activation!r}")
    gated = activation == "swiglu"
    if gated != (gate is not None) or gate_bias is not None and not gated:
        raise ValueError("the activation swiglu takes a gate, and it alone; this is "
                         f"{activation} with{'out' if gate is None else ''} a gate")
    matrices = up.ndim == 2 and down.ndim == 2
    if not matrices or x.shape[-1:] != up.shape[1:] or len(up) != down.shape[1]:
        raise ValueError("x (..., C), up (F, C) and down (P, F) need the same C and the same F; "
                         f"they are {list(x.shape)}, {list(up.shape)} and {list(down.shape)}")
    if gate is not None and gate.shape != up.shape:
        raise ValueError(f"gate needs the shape of up, {list(up.shape)}, and has "
                         f"{list(gate.shape)}")


@op
def embedding(ids: Array, weight: Array) -> Rule:
    """Rows of a table, (...) integers below V, (V, C) -> (..., C)."""
    check_axes("weight", weight, "V, C", 2, 2)
    ids = _numbers_below(len(weight), ids, "id")
    bags = ids.reshape(-1, 1)
    return weight.take(ids, axis=0), (None, _added_to_table(bags, Drop()))


@op
def embedding_bag(ids: Array, weight: Array, p: float = 0.0,
                  rng: np.random.Generator | None = None) -> Rule:
    """Sums of n rows of a table, (..., n) integers below V, (V, C) -> (..., C), as PyTorch's op of
    mode "sum".  With an rng, rows are dropped with probability p, others scaled by 1 / (1 - p).

    Whole rows are dropped, with the mask that `dropout` has for an array of the shape of the ids.
    """
    check_axes("weight", weight, "V, C", 2, 2)
    if ids.ndim == 0:
        raise ValueError("the last axis of the ids says which rows are summed, and these have none")
    drop = dropout_settings(p, rng, ids.shape)
    weight, = one_type(weight)
    ids = _numbers_below(len(weight), ids, "id")
    if drop.p == 1:                         # no row is left to sum
        drop = Drop()
        ids = ids[..., :0]
    bags = _folded(ids)
    value = formulas.sum_rows(weight, bags, *drop)
    return _unfolded(value, ids), (None, _added_to_table(bags, drop))


def _added_to_table(bags, drop):
    """Return the vjp to a table of the sums of rows, (R, n): each row gets g of its sums."""
    def dtable(g):
        def add(total, ids=bags):
            formulas.add_rows(total, ids, _folded(g), *drop)
        return Added(add, bags)
    return dtable


@op
def softmax(x: Array, axis: int = -1) -> Rule:
    """e^x / sum(e^x) along an axis; -inf gives 0.  Back:  dx = y (g - <g, y>)."""
    x, = one_type(x)
    y = formulas.softmax(x.swapaxes(axis, -1))

    def dx(g):
        return formulas.softmax_vjp(g.swapaxes(axis, -1), y).swapaxes(axis, -1)
    return y.swapaxes(axis, -1), (dx,)


@op
def log_softmax(x: Array, axis: int = -1) -> Rule:
    """x - log(sum(e^x)) along an axis.  Back:  dx = g - softmax(x) sum(g)."""
    x, = one_type(x)
    if x.size == 0:
        return x, (lambda g: g,)
    shifted = x - x.max(axis=axis, keepdims=True)
    total = np.exp(shifted).sum(axis=axis, keepdims=True)
    y = shifted - np.log(total)

    def dx(g):
        return g - np.exp(y) * g.sum(axis=axis, keepdims=True)
    return y, (dx,)


@op
def cross_entropy(logits: Array, targets: Array, ignore_index: int = -100) -> Rule:
    """Mean of -log softmax(logits)[target] in nats, (..., V), (...) integers -> ().
    Back:  dlogits = g (softmax(logits) - 1 at the target) / n, for n targets.

    Targets equal to `ignore_index` are not counted.  The classes are the last axis.
    """
    check_axes("logits", logits, "..., V", 1)
    if logits.shape[:-1] != targets.shape:
        raise ValueError("targets need the shape of the logits without the last axis, "
                         f"{list(logits.shape[:-1])}, and have {list(targets.shape)}")
    logits, = one_type(logits)
    shape = logits.shape
    flat = _numbers_below(shape[-1], targets, "target", ignore_index).reshape(-1)
    losses, slopes, counted = formulas.cross_entropy(_folded(logits), flat, ignore_index)
    if counted == 0:
        raise ValueError(f"there is no target to average over, among {targets.size} "
                         f"with ignore_index={ignore_index}")

    def dlogits(g):
        dx = slopes * (float(g) / counted)
        return dx.reshape(shape)
    return losses.sum() / counted, (dlogits, None)


@op
def layer_norm(x: Array, weight: Array = None, bias: Array = None, eps: float = NORM_EPS) -> Rule:
    """Bring the last axis to mean 0, variance 1; scale, shift: (..., C), (C,), (C,) -> (..., C)."""
    return _norm(x, weight, bias, eps, centred=True)


@op
def rms_norm(x: Array, weight: Array = None, eps: float = NORM_EPS) -> Rule:
    """Divide the last axis by its root mean square, then scale: (..., C), (C,) -> (..., C)."""
    return _norm(x, weight, None, eps, centred=False)


def _norm(x, weight, bias, eps, centred):
    check_axes("x", x, "..., C", 1)
    C = x.shape[-1]
    check_row("weight", weight, C, "channels")
    check_row("bias", bias, C, "channels")
    if weight is None:
        weight = np.ones(C, x.dtype)
    if bias is None:
        bias = np.zeros(C, x.dtype)
    x, weight, bias = one_type(x, weight, bias)
    y, moments = formulas.norm(x, weight, bias, eps, centred)

    def vjp(g):
        return formulas.norm_vjp(g, x, weight, moments, centred)
    return y, vjp


@op
def dropout(x: Array, p: float = 0.5, rng: np.random.Generator | None = None) -> Rule:
    """With an rng, zero each element with probability p and scale the rest by 1 / (1 - p); else x.

    The rng gives one seed.  The mask depends on that alone, and is the same on every platform.
    """
    settings = dropout_settings(p, rng, x.shape)
    if settings.p == 0:
        return x, (lambda g: g,)
    x, = one_type(x)

    def drop(x):
        if settings.p == 1:
            return np.zeros_like(x)
        return formulas.dropout(x, *settings)
    return drop(x), (drop,)


@op
def scaled_dot_product_attention(query: Array, key: Array, value: Array, attn_mask: Array = None,
                                 dropout_p: float = 0.0, is_causal: bool = False,
                                 scale: float | None = None,
                                 rng: np.random.Generator | None = None) -> Rule:
    """softmax(query key^T scale + mask) value: (..., T, D), (..., S, D), (..., S, E) -> (..., T, E)

    The scale is 1 / sqrt(D) by default.  `attn_mask`, broadcast to (..., T, S), is true where a
    query may attend (bool), or is added to the scores (float, no gradient).  With `is_causal`,
    query t attends to keys up to t.  A query that may attend to no key gets 0.  Weights are dropped
    if and only if an rng is given.
    """
    q, k, v = one_type(query, key, value)
    if (min(q.ndim, v.ndim) < 2 or k.shape[:-2] != q.shape[:-2] or k.shape[-1] != q.shape[-1]
            or v.shape[:-1] != k.shape[:-1]):
        raise ValueError("query (..., T, D), key (..., S, D) and value (..., S, E) need the same "
                         "leading axes, the same D and the same S; they are "
                         f"{list(q.shape)}, {list(k.shape)} and {list(v.shape)}")
    *lead, T, D = q.shape
    S, E = v.shape[-2:]
    mask = None
    if attn_mask is not None:
        mask = np.broadcast_to(_added(attn_mask, q.dtype), (*lead, T, S))
        mask = _by_head(mask)
    if scale is None:
        scale = max(D, 1) ** -0.5
    drop = dropout_settings(dropout_p, rng, (*lead, T, S), below_1=True)
    how = How(mask, is_causal, scale, drop)
    heads = _by_head(q), _by_head(k), _by_head(v)
    out, moments = formulas.attention(*heads, how)

    def vjp(g):
        dq, dk, dv = formulas.attention_vjp(_by_head(g), *heads, out, moments, how)
        return dq.reshape(q.shape), dk.reshape(k.shape), dv.reshape(v.shape)
    return out.reshape(*lead, T, E), vjp


def _by_head(x):
    """Give x a batch and heads, (..., T, D) -> (B, H, T, D)."""
    B = math.prod(x.shape[:-3])
    H = math.prod(x.shape[-3:-2])
    return x.reshape(B, H, *x.shape[-2:])


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
    check_heads(H, G)
    all_heads = H + 2 * G
    D, left = divmod(width, all_heads)
    if D < 1 or left:
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
    D = W // max(num_heads, 1) if d_key is None else d_key
    used = index(num_heads * D)
    if num_heads < 1 or D < 1 or used > W or d_key is None and used != W:
        raise ValueError(f"{W} channels do not hold {num_heads} heads of {D}")
    if base is not None and (D % 2 or not base > 0):
        raise ValueError("channels are turned in pairs, by a base above 0; a head has "
                         f"{D} channels, and the base is {base}")
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


def check_row(name: str, row: np.ndarray | None, n: int, what: str) -> None:
    """Raise a ValueError unless a row, if it is given, has n numbers, one for each of `what`."""
    if row is not None and row.shape != (n,):
        raise ValueError(f"{name} needs one number for each of {n} {what}, "
                         f"and has shape {list(row.shape)}")


def check_axes(name: str, x: np.ndarray, axes: str, least: int, most: int = 64) -> None:
    """Raise a ValueError unless an array has so many axes, which `axes` describes."""
    if not least <= x.ndim <= most:
        raise ValueError(f"{name} has axes ({axes}), and this has shape {list(x.shape)}")


def dropout_settings(p: float, rng: np.random.Generator | None, shape: tuple[int, ...],
                     below_1: bool = False) -> Drop:
    """Return the probability to drop, 0 without an rng; the 64-bit seed of a mask of this shape,
    drawn from the rng if there is a mask; and the number of the mask's first element, which is not
    0 where the rng has a `first_row`, as that of a rank has."""
    if not 0 <= p <= 1 or below_1 and p == 1:
        most = "below" if below_1 else "at most"
        raise ValueError(f"the probability to drop is at least 0 and {most} 1; this is {p}")
    if rng is None:
        return Drop()
    if p in (0, 1):
        return Drop(p)
    if not isinstance(rng, np.random.Generator):
        raise TypeError("rng is a generator such as np.random.default_rng(0), "
                        f"not {type(rng).__name__}")
    seed = int(rng.integers(2**63))
    first_row = getattr(rng, "first_row", 0)
    return Drop(p, seed, first_row * math.prod(shape[1:]))


def check_heads(H: int, G: int) -> None:
    """Raise a ValueError unless H heads of queries can share G of keys and values."""
    if H < 1 or G < 1 or H % G:
        raise ValueError(f"{H} heads of queries do not split evenly among {G} of keys and values")


def _folded(x):
    """Fold all axes but the last into one, (..., C) -> (R, C)."""
    *lead, C = x.shape
    return x.reshape(math.prod(lead), C)


def _unfolded(rows, x):
    """Give rows the leading axes of x, (R, P) -> (..., P)."""
    return rows.reshape(*x.shape[:-1], rows.shape[-1])


def _numbers_below(limit, ids, what, ignored=None):
    """Return ids as int64, dense, after checking that each is in [0, limit), or is `ignored`."""
    if ids.dtype.kind not in "iu":
        raise TypeError(f"{what}s are integers, and these are {ids.dtype}")
    wrong = (ids < 0) | (ids >= limit)
    if wrong.any():
        wrong &= ids != ignored
    for place in np.argwhere(wrong):
        place = tuple(place.tolist())
        raise IndexError(f"{what} {ids[place]} at {place} is not one of the {limit} "
                         f"from 0 to {limit - 1}")
    return np.asarray(ids, dtype=np.int64, order="C")
