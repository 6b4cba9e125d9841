"""Differentiable ops of neural networks; `formulas.py` has most formulas, and names the sources.

Each op checks its arguments, and returns its value and its vjps.  A vjp keeps the arrays alive that
it names.

Shapes: C channels, V classes; `...` any leading axes.  Of attention: B batch, T queries (time), S
keys, H heads of queries, G of keys and values, D channels of a query or key, E of a value.
"""
import math
import re
from functools import lru_cache, wraps
from operator import index
from typing import NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from minigrad import formulas
from minigrad.core import OPS, Array, Tensor, brief, float_type, one_type, op, quiet
from minigrad.formulas import ACTIVATIONS, AttentionSettings, DropoutSettings, rows
from minigrad.gradients import Added
from minigrad.packed import Packed, product, product_vjp
from minigrad.random import RowsFrom

NORM_EPS = 1e-5         # added to a variance
ROTARY_BASE = 10_000.0  # of the wavelengths of rotary and sinusoidal positions


@op
def sigmoid(x: Array):
    """1 / (1 + e^-x)."""
    x, = one_type(x)
    y = formulas.sigmoid(x)
    return y, (lambda g: g * y * (1 - y),)


@op
def silu(x: Array):
    """x sigmoid(x)  (Hendrycks & Gimpel 2016, section 2)."""
    x, = one_type(x)
    s = formulas.sigmoid(x)
    return x * s, (lambda g: g * s * (1 + x * (1 - s)),)


@op
def relu(x: Array):
    """x where it is positive, else 0; nan stays nan, and gets all of the gradient."""
    y = np.maximum(x, 0)
    passed = y != 0
    return y, (lambda g: g * passed,)


@op
def leaky_relu(x: Array, negative_slope: float = 0.01):
    """x where it is positive, else negative_slope x; the slope at 0 is the negative one."""
    x, = one_type(x)
    slopes = np.where(x > 0, 1, negative_slope).astype(x.dtype)
    return x * slopes, (lambda g: g * slopes,)


@op
def softplus(x: Array):
    """log(1 + e^x), a smooth relu; sharper by a factor: softplus(beta * x) / beta."""
    x, = one_type(x)
    return np.logaddexp(0, x), (lambda g: g * formulas.sigmoid(x),)


@op
def gelu(x: Array, approximate: str = "none"):
    """x Phi(x), with Phi the normal distribution's cdf  (Hendrycks & Gimpel 2016, section 2).

    approximate="tanh" takes x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), as GPT-2 does.
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f'approximate is "none" or "tanh", not {brief(approximate)}')
    x, = one_type(x)
    by_tanh = approximate == "tanh"
    return formulas.gelu(x, by_tanh), (lambda g: formulas.gelu_vjp(g, x, by_tanh),)


@op
def linear(x: Array, weight: Array, bias: Array = None):
    """x @ weight.T + bias, (..., C), (P, C), (P,) -> (..., P); the weight lies as in PyTorch.
    Back:  dx = g weight, dweight = g^T x, dbias = sum of g's rows.

    A weight that is frozen may be packed, and stays so.
    """
    axes = "x (..., inputs), weight (outputs, inputs), bias (outputs)"
    if isinstance(weight, Packed):
        _check_shapes(
            axes,
            x,
            weight,
            bias)
        x, bias = one_type(x, bias)
        y = product(x, weight)
        if bias is not None:
            y += bias
        return y, (lambda g: product_vjp(g, weight), None, formulas.column_sum)
    x, weight, bias = _fitting(
        axes,
        x,
        weight,
        bias)

    return formulas.linear(x, weight, bias), (
        lambda g: formulas.matmul(g, weight),
        lambda g: formulas.matmul(rows(g).T, rows(x)),
        lambda g: formulas.column_sum(g))


@op
def mlp(
        x: Array,
        up: Array,
        up_bias: Array,
        down: Array,
        down_bias: Array,
        activation: str = "gelu"):
    """linear(f(h), down, down_bias) of h = linear(x, up, up_bias), with f the GELU or as
    `activation` says: (..., C), (F, C), (F,), (P, F), (P,) -> (..., P).  A bias may be None.

    "gelu" is the exact GELU, "gelu_tanh" the one by tanh, as in `gelu`; "relu2" is max(h, 0)^2.

    It is one op so that only one of h and f(h) is kept.  The GELU keeps h, and backward computes
    f(h) again with the derivative.  The squared ReLU keeps f(h), whose derivative is 2 sqrt(f(h)).
    """
    arguments = _fitting(
        "x (..., C), up (F, C), up_bias (F), down (P, F), down_bias (P)",
        x,
        up,
        up_bias,
        down,
        down_bias)
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation is one of {', '.join(ACTIVATIONS)}, not {brief(activation)}; "
                         "a gated MLP is linear(swiglu(gate, h), down, down_bias)")
    y, kept = formulas.mlp(*arguments, activation)
    x, up, _, down, _ = arguments
    # Of a bias, `mlp_vjp` asks only whether it is None: its numbers may change before backward.
    has_up = None if up_bias is None else True
    has_down = None if down_bias is None else True

    def vjp(g):
        return formulas.mlp_vjp(
            g,
            x,
            up,
            has_up,
            down,
            has_down,
            kept,
            activation)
    return y, vjp


@op
def swiglu(gate: Array, x: Array):
    """silu(gate) * x, what a gated MLP has for an activation: two arrays of one shape.

    Its vjp shares work with the value, and is faster than those of `silu` and `multiply`.
    """
    gate, x = _fitting("gate (...), x (...)", np.asarray(gate), np.asarray(x))

    def vjp(g):
        return formulas.swiglu_vjp(g, gate, x)
    return formulas.swiglu(gate, x), vjp


@op
def embedding(ids: Array, weight: Array):
    """Rows of a table, (...) integers below V, (V, C) -> (..., C)."""
    _check_shapes("weight (V, C)", weight)
    ids = _numbers_below(len(weight), ids, "id")
    bags = ids[..., None]                   # of one row each
    return weight.take(ids, axis=0), (None, _added_to_table(bags, DropoutSettings()))


@op
def embedding_bag(
        ids: Array,
        weight: Array,
        p: float = 0.0,
        rng: np.random.Generator | None = None):
    """Sums of n rows of a table, (..., n) integers below V, (V, C) -> (..., C), as PyTorch's op of
    mode "sum".  With an rng, rows are dropped with probability p, others scaled by 1 / (1 - p).

    Whole rows are dropped, with the mask that `dropout` has for an array of the shape of the ids.
    """
    _check_shapes("ids (..., n), weight (V, C)", ids, weight)
    drop = _dropout_settings(p, rng, ids.shape)
    weight, = one_type(weight)
    ids = _numbers_below(len(weight), ids, "id")
    return formulas.sum_rows(weight, ids, drop), (None, _added_to_table(ids, drop))


def _added_to_table(bags, drop):
    """Return the vjp to a table of the sums of rows, (..., n): each row gets g of its sums."""
    def dtable(g):
        def add(total, ids=bags):
            formulas.add_rows(
                total,
                ids,
                g,
                drop)
        return Added(add, bags)
    return dtable


@op
def softmax(x: Array, axis: int = -1):
    """e^x / sum(e^x) along an axis; -inf gives 0.  Back:  dx = y (g - <g, y>)."""
    x, = one_type(x)
    if x.ndim == 0:                             # a row of one number
        normalize_axis_index(axis, 1)
        y = np.exp(x - x)
        return y, (lambda g: y * (g - g * y),)
    y = formulas.softmax(x.swapaxes(axis, -1))

    def dx(g):
        return formulas.softmax_vjp(g.swapaxes(axis, -1), y).swapaxes(axis, -1)
    return y.swapaxes(axis, -1), (dx,)


@op
def log_softmax(x: Array, axis: int = -1):
    """x - log(sum(e^x)) along an axis; nan where all of x there is -inf.
    Back:  dx = g - softmax(x) sum(g)."""
    x, = one_type(x)
    if x.size == 0:
        return x, (lambda g: g,)
    y = _log_softmax(x, axis)

    def dx(g):
        return g - np.exp(y) * g.sum(axis=axis, keepdims=True)
    return y, (dx,)


def _log_softmax(x, axis):
    """Return x - log(sum(e^x)) along an axis."""
    with quiet():                           # -inf - -inf is nan
        shifted = x - x.max(axis=axis, keepdims=True)
    total = np.exp(shifted).sum(axis=axis, keepdims=True)
    return shifted - np.log(total)


@op
def cross_entropy(
        logits: Array,
        targets: Array,
        ignore_index: int = -100,
        reduction: str = "mean",
        weight: Array = None,
        label_smoothing: float = 0.0):
    """Mean of -log softmax(logits)[target] in nats, (..., V), (...) integers -> ().
    Back:  dlogits = g (softmax(logits) - 1 at the target) / n, for n targets.

    Targets equal to `ignore_index` are not counted.  The classes are the last axis.

    The other settings are as in PyTorch.  `reduction` is "mean", "sum", or "none", which gives the
    loss of each target, (...), 0 where it is ignored.  `weight`, (V,), says how much each class
    counts, also in the mean, which is the sum divided by the weights of all targets.
    `label_smoothing` is the share of each target that all classes get in equal parts  (Szegedy et
    al. 2016, "Rethinking the Inception Architecture", section 7).
    """
    _check_shapes("logits (..., V), targets (...)", logits, targets)
    logits, = one_type(logits)
    shape = logits.shape
    targets = _numbers_below(
        shape[-1],
        targets,
        "target",
        ignore_index)
    targets = targets.reshape(-1)
    logits = logits.reshape(targets.size, shape[-1])
    if weight is None and label_smoothing == 0:
        losses, slopes, total = formulas.cross_entropy(logits, targets, ignore_index)
    else:
        losses, slopes, total = _weighted_cross_entropy(
            logits,
            targets,
            ignore_index,
            weight,
            label_smoothing)
    return _reduce_targets(
        losses,
        slopes,
        total,
        reduction,
        shape)


def _weighted_cross_entropy(logits, targets, ignored, weight, smoothing):
    """Return the losses, (R,), and their gradients, (R, V), of `cross_entropy` with weights of
    classes or smoothed targets; and the sum of the targets' weights."""
    if not 0 <= smoothing <= 1:
        raise ValueError("label_smoothing is a share of at least 0 and at most 1; this is "
                         f"{brief(smoothing)}")
    R, V = logits.shape
    counts, classes, weight = _target_weights(
        logits,
        targets,
        ignored,
        weight)
    if not smoothing:
        losses, slopes, _ = formulas.cross_entropy(logits, targets, ignored)
        return losses * counts, slopes * counts[:, None], counts.sum()
    counted = (targets != ignored)[:, None]                     # (R, 1)
    log_p = _log_softmax(np.where(counted, logits, 0), -1)      # (R, V)
    shares = np.where(counted, smoothing / V * weight, 0)       # (R, V): of each class in a loss
    shares[np.arange(R), classes] += (1 - smoothing) * counts
    losses = -(shares * log_p).sum(axis=-1)
    slopes = np.exp(log_p) * formulas.row_sum(shares) - shares
    return losses, slopes, counts.sum()


def _target_weights(logits, targets, ignored, weight):
    """Return how much each target counts, (R,), its class, 0 where it is ignored; and the weights
    of the classes, (V,), in the type of the logits."""
    counted = targets != ignored
    classes = np.where(counted, targets, 0)
    if weight is None:
        weight = np.ones(logits.shape[-1])
    _check_shapes("logits (..., V), weight (V)", logits, weight)
    if not (np.isfinite(weight) & (weight >= 0)).all():
        raise ValueError("the weights of classes are finite numbers of at least 0, and these are "
                         "not all")
    weight = weight.astype(logits.dtype)
    return weight[classes] * counted, classes, weight


def _reduce_targets(losses, slopes, total, reduction, shape):
    """Return the losses, (R,), as they are reduced, and the vjps of logits of this shape and of
    targets.  The mean is the sum divided by a total, which must not be 0."""
    if reduction == "mean" and total == 0:
        raise ValueError(f"there is no target to average over, among {losses.size}: each is equal "
                         "to ignore_index, or has a class of weight 0")
    if reduction == "none":
        def dlogits(g):
            dx = slopes * g.reshape(-1, 1)
            return dx.reshape(shape)
        return losses.reshape(shape[:-1]), (dlogits, None)
    value, total = _reduce(losses, reduction, total)

    def dlogits(g):
        dx = slopes * (float(g) / total)
        return dx.reshape(shape)
    return value, (dlogits, None)


def _reduce(losses, reduction, total):
    """Return losses reduced as a setting says, and by what their gradients are divided; a mean is
    the sum divided by a total."""
    if reduction == "mean":
        return np.add.reduce(losses, axis=None) / total, total
    if reduction == "sum":
        return np.add.reduce(losses, axis=None), 1
    if reduction == "none":
        return losses, 1
    raise ValueError(f'reduction is "mean", "sum" or "none", not {brief(reduction)}')


@op
def nll_loss(
        log_probs: Array,
        targets: Array,
        ignore_index: int = -100,
        reduction: str = "mean",
        weight: Array = None):
    """Mean of -log_probs[target], (..., V), (...) integers -> (), as of a log_softmax; settings as
    those of `cross_entropy`.  The classes are the last axis.
    Back:  dlog_probs = -g / n at each of n targets, else 0."""
    _check_shapes("log_probs (..., V), targets (...)", log_probs, targets)
    log_probs, = one_type(log_probs)
    shape = log_probs.shape
    targets = _numbers_below(
        shape[-1],
        targets,
        "target",
        ignore_index)
    targets = targets.reshape(-1)
    log_probs = rows(log_probs)
    counts, classes, _ = _target_weights(
        log_probs,
        targets,
        ignore_index,
        weight)
    places = np.arange(targets.size), classes
    losses = np.where(targets == ignore_index, 0, -log_probs[places]) * counts
    slopes = np.zeros_like(log_probs)
    slopes[places] = -counts
    return _reduce_targets(
        losses,
        slopes,
        counts.sum(),
        reduction,
        shape)


@op
def mse_loss(x: Array, target: Array, reduction: str = "mean"):
    """Mean of (x - target)^2, the squared error, of two arrays of one shape; `reduction` may be
    "sum" or "none", too.  Back:  dx = 2 g (x - target) / n, dtarget = -dx."""
    x, target = _fitting("x (...), target (...)", np.asarray(x), np.asarray(target))
    errors = x - target
    value, total = _reduce(np.square(errors), reduction, errors.size)

    def dx(g):
        return 2 * errors * (g / total)
    return value, (dx, lambda g: -dx(g))


@op
def binary_cross_entropy_with_logits(logits: Array, targets: Array, reduction: str = "mean"):
    """Mean of -y log(p) - (1 - y) log(1 - p) in nats, with p = sigmoid(logits) and targets y from 0
    to 1, of two arrays of one shape; `reduction` may be "sum" or "none", too.
    Back:  dlogits = g (p - y) / n, dtargets = -g logits / n."""
    x, y = _fitting("logits (...), targets (...)", np.asarray(logits), np.asarray(targets))
    losses = y * np.logaddexp(0, -x) + (1 - y) * np.logaddexp(0, x)
    value, total = _reduce(losses, reduction, losses.size)

    def dlogits(g):                         # not p - y, which rounds where p is nearly 1
        slopes = (1 - y) * formulas.sigmoid(x) - y * formulas.sigmoid(-x)
        return slopes * (g / total)
    return value, (dlogits, lambda g: -x * (g / total))


@op
def layer_norm(
        x: Array,
        weight: Array = None,
        bias: Array = None,
        eps: float = NORM_EPS):
    """Bring the last axis to mean 0, variance 1; scale, shift: (..., C), (C,), (C,) -> (..., C)."""
    return _norm(
        x,
        weight,
        bias,
        eps,
        centred=True)


@op
def rms_norm(x: Array, weight: Array = None, eps: float = NORM_EPS):
    """Divide the last axis by its root mean square, then scale: (..., C), (C,) -> (..., C)."""
    return _norm(
        x,
        weight,
        None,
        eps,
        centred=False)


def _norm(x, weight, bias, eps, centred):
    x, weight, bias = _fitting(
        "x (..., C), weight (C), bias (C)",
        x,
        weight,
        bias)
    C = x.shape[-1]
    if weight is None:
        weight = np.ones(C, x.dtype)
    if bias is None:
        bias = np.zeros(C, x.dtype)
    y, mean, rstd = formulas.norm(
        x,
        weight,
        bias,
        eps,
        centred)

    def vjp(g):
        gradients = formulas.norm_vjp(
            g,
            x,
            weight,
            mean,
            rstd,
            centred)
        return gradients if centred else gradients[:2]          # an RMS norm has no bias
    return y, vjp


@op
def dropout_(x: Array, p: float = 0.5, rng: np.random.Generator | None = None):
    """With an rng, zero each element with probability p and scale the rest by 1 / (1 - p); else x.

    The rng gives one seed.  The mask depends on that alone, and is the same on every platform.
    If p is 0, a Tensor is returned itself, without an op.
    """
    settings = _dropout_settings(p, rng, x.shape)
    if not settings.p:
        return x, (lambda g: g,)
    x, = one_type(x)

    def drop(x):
        return formulas.dropout(x, settings)
    return drop(x), (drop,)


@wraps(dropout_)
def dropout(x, p=0.5, rng=None, **others):
    if isinstance(x, Tensor) and isinstance(p, (int, float)) and p == 0 and not others:
        return x
    return dropout_(x, p, rng, **others)


OPS["dropout"] = dropout


@op
def scaled_dot_product_attention(
        query: Array,
        key: Array,
        value: Array,
        attn_mask: Array = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        rng: np.random.Generator | None = None):
    """softmax(query key^T scale + mask) value: (..., T, D), (..., S, D), (..., S, E) -> (..., T, E)

    The scale is 1 / sqrt(D) by default.  `attn_mask`, broadcast to (..., T, S), is true where a
    query may attend (bool), or is added to the scores (float, no gradient).  With `is_causal`,
    query t attends to keys up to t.  A query that may attend to no key gets 0.  Weights are dropped
    if and only if an rng is given.
    """
    inputs = _fitting(
        "query (..., T, D), key (..., S, D), value (..., S, E)",
        query,
        key,
        value)
    q, k, v = [_by_head(x) for x in inputs]
    *lead, T, D = query.shape
    shape = *lead, T, key.shape[-2]         # of the weights
    mask = None
    if attn_mask is not None:
        mask = _by_head(np.broadcast_to(_added(attn_mask, q.dtype), shape))
    if scale is None:
        scale = (D or 1) ** -0.5
    drop = _dropout_settings(dropout_p, rng, shape)
    settings = AttentionSettings(
        mask,
        is_causal,
        float(scale),
        drop)
    out, top, inverse = formulas.attention(
        q,
        k,
        v,
        settings)

    def vjp(g):
        gradients = formulas.attention_vjp(
            _by_head(g),
            q,
            k,
            v,
            out,
            top,
            inverse,
            settings)
        return [dx.reshape(x.shape) for dx, x in zip(gradients, inputs)]
    return out.reshape(*lead, T, value.shape[-1]), vjp


def _by_head(x):
    """Give x a batch and heads, (..., T, D) -> (B, H, T, D)."""
    if x.ndim == 4:
        return x
    *lead, T, D = x.shape
    return x.reshape(math.prod(lead[:-1]), math.prod(lead[-1:]), T, D)


def _added(mask, dtype):
    """Return a mask as it is added to scores: 0 where a bool is true, else -inf."""
    mask = np.asarray(mask)
    if mask.dtype.kind not in "bf":
        raise TypeError("attn_mask is true where a query may attend (bool), or is added to the "
                        f"scores (float); this is {mask.dtype}")
    if mask.dtype == bool:
        mask = np.where(mask, 0, -np.inf)
    return mask.astype(dtype)


@op
def self_attention(
        qkv: Array,
        num_heads: int,
        num_kv_heads: int | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        rng: np.random.Generator | None = None):
    """scaled_dot_product_attention of H heads from their packed projections and back to channels:
    (..., T, (H + 2 G) D) -> (..., T, H D), with G = num_kv_heads, by default H.

    The last axis of `qkv` holds the queries of all heads, then the keys, then the values.

    Source: Vaswani et al. 2017, section 3.2.2; Ainslie et al. 2023, "GQA", section 2.2.
    """
    qkv, = _fitting("qkv (..., T, C)", qkv)
    *lead, T, C = qkv.shape
    H = num_heads
    G = num_heads if num_kv_heads is None else num_kv_heads
    check_heads(H, G)
    D, rest = divmod(C, H + 2 * G)
    if D == 0 or rest:
        raise ValueError(f"{C} channels do not split evenly into the queries of {H} heads and the "
                         f"keys and values of {G}")
    drop = _dropout_settings(dropout_p, rng, (*lead, H, T, T))
    settings = AttentionSettings(causal=is_causal, scale=D ** -0.5, drop=drop)
    B = math.prod(lead)
    packed = qkv.reshape(B, T, C)
    out, top, inverse = formulas.self_attention(
        packed,
        H,
        G,
        settings)

    def vjp(g):
        dqkv = formulas.self_attention_vjp(
            g.reshape(out.shape),
            packed,
            H,
            G,
            out,
            top,
            inverse,
            settings)
        return dqkv.reshape(qkv.shape),
    return out.reshape(*lead, T, H * D), vjp


class RotaryScaling(NamedTuple):
    """How a model that was trained on short texts reads longer ones: channels that make less than
    one turn in `length` positions turn `factor` times as slowly, those of four turns and more as
    before, and those in between partly.

    Source: Grattafiori et al. 2024, "The Llama 3 Herd of Models", models 3.1 and later; the rule
    is that of their code.
    """
    factor: float
    length: int = 8192


@op
def rotary(
        x: Array,
        num_heads: int,
        d_key: int,
        base: float = ROTARY_BASE,
        first: int = 0,
        scaling: RotaryScaling | None = None):
    """Rotate each head's channels in pairs, (2 i, 2 i + 1) at position t by the angle
    t base^(-2 i / D), so that q . k depends on their distance: (..., T, W) -> (..., T, W).

    The first num_heads D channels are rotated, with D = d_key.  Later channels, such as packed
    values, are passed on.  `first` is the position of the first row.  With a `scaling`, slow pairs
    turn more slowly.  Back:  rotate by the opposite angle.
    """
    x, = one_type(x)
    cos, sin = _turns(
        x,
        num_heads,
        d_key,
        base,
        first,
        scaling)

    def dx(g):
        return formulas.rotate(g, cos, -sin)
    return formulas.rotate(x, cos, sin), (dx,)


@op
def qk_norm(
        x: Array,
        num_heads: int,
        d_key: int,
        base: float | None = None,
        eps: float = NORM_EPS,
        first: int = 0,
        scaling: RotaryScaling | None = None):
    """Divide each head's channels by their root mean square, and with a `base` then rotate them as
    `rotary` does: (..., T, W) -> (..., T, W).  Back:  dx = (g - y mean(g y)) / rms, rotated back.

    The first num_heads D channels are heads, with D = d_key.  Later channels, such as packed
    values, are passed on.  Scores of queries and keys then lie between -sqrt(D) and sqrt(D).

    Source: Henry et al. 2020, "Query-Key Normalization for Transformers", section 3; Dehghani et
    al. 2023, "Scaling Vision Transformers to 22 Billion Parameters", section 2; the norm is that of
    Zhang & Sennrich 2019, section 4.
    """
    x, = one_type(x)
    cos, sin = _turns(
        x,
        num_heads,
        d_key,
        base,
        first,
        scaling)
    y, rstd = formulas.norm_heads(
        x,
        cos,
        sin,
        num_heads,
        d_key,
        eps)

    def dx(g):
        return formulas.norm_heads_vjp(
            g,
            y,
            rstd,
            cos,
            sin,
            d_key)
    return y, (dx,)


def _turns(x, num_heads, D, base, first, scaling):
    """Return the angles' cosine and sine of heads in (..., T, W); no base, no angles.  Raise a
    ValueError if the heads do not fit into W channels."""
    _check_shapes("x (..., T, W)", x)
    T, W = x.shape[-2:]
    if min(num_heads, D) < 1 or index(num_heads * D) > W:
        raise ValueError(f"{W} channels do not hold {num_heads} heads of {D}")
    if base is None:
        return rotary_angles(T, 0, x.dtype)
    if D % 2 or not base > 0:
        raise ValueError("channels are turned in pairs, by a base above 0; a head has "
                         f"{D} channels, and the base is {base}")
    return rotary_angles(
        T,
        D,
        x.dtype,
        num_heads,
        base,
        first,
        scaling)


@lru_cache(maxsize=8)
def rotary_angles(
        T: int,
        D: int,
        dtype: type,
        num_heads: int = 1,
        base: float = ROTARY_BASE,
        first: int = 0,
        scaling: RotaryScaling | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return cosine and sine of the angles of `rotary`, (T, num_heads D / 2) each.  The arrays are
    cached; do not change them."""
    frequencies = rotary_frequencies(D, base)
    if scaling is not None:
        frequencies = frequencies / slowing(frequencies, scaling)
    angles = (first + np.arange(T))[:, None] * frequencies      # (T, D / 2)
    angles = np.tile(angles, num_heads)
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


def rotary_frequencies(D: int, base: float) -> np.ndarray:
    """Return the angle by which each pair of channels turns from a position to the next,
    (D / 2,)."""
    return base ** (-2 * np.arange(D // 2) / D)


def slowing(frequencies: np.ndarray, scaling: RotaryScaling) -> np.ndarray:
    """Return how many times as slowly pairs of channels turn, (D / 2,), (D / 2,)."""
    turns = scaling.length * frequencies / (2 * math.pi)
    share_kept = np.clip((turns - 1) / (4 - 1), 0, 1)
    return 1 / (share_kept + (1 - share_kept) / scaling.factor)


def _fitting(table, *arrays):
    """Return the arrays in one float type, after `_check_shapes`.  What fits is remembered by its
    shapes and types."""
    try:
        kinds = tuple([None if x is None else (x.shape, x.dtype) for x in arrays])
    except AttributeError:              # a number in place of an array
        kinds = tuple([None if x is None else (np.shape(x), np.asarray(x).dtype) for x in arrays])
    dtype = _type_to_cast_to(table, kinds)
    if dtype is None:
        return arrays
    return [None if x is None else np.asarray(x, dtype) for x in arrays]


@lru_cache(maxsize=1024)
def _type_to_cast_to(table, kinds):
    """Return the float type that arrays of a table are cast to, from the shape and type of each;
    None if all have it.  Raise a ValueError if they do not fit."""
    present = [kind for kind in kinds if kind is not None]
    _compare_shapes(table, tuple([None if kind is None else kind[0] for kind in kinds]))
    dtypes = frozenset([dtype for _, dtype in present])
    dtype = float_type(dtypes)
    return None if dtypes == {dtype} else dtype


def _check_shapes(table, *arrays):
    """Raise a ValueError unless arrays have the axes of a table, as "x (..., C), weight (P, C)".

    A name has one size in all of them, and "..." are the same leading axes.  None always fits.
    """
    try:
        shapes = tuple([None if x is None else x.shape for x in arrays])
    except AttributeError:              # a number in place of an array
        shapes = tuple([None if x is None else np.shape(x) for x in arrays])
    _compare_shapes(table, shapes)


@lru_cache(maxsize=1024)
def _compare_shapes(table, shapes):
    """Raise a ValueError unless shapes, one of them None for each array that is absent, have the
    axes of a table."""
    sizes = {}
    for names, shape in zip(_axes_of(table), shapes):
        if shape is None:
            continue
        axes = shape
        if names[0] == "...":           # the leading axes count as one, whose size is a tuple
            lead = len(shape) - len(names) + 1
            axes = shape[:lead], *shape[lead:]
        fits = len(names) == len(axes)
        for name, n in zip(names, axes):
            fits = fits and sizes.setdefault(name, n) == n
        if not fits:
            seen = ", ".join("None" if shape is None else str(list(shape)) for shape in shapes)
            raise ValueError(f"expected {table}, each name of one size; shapes are {seen}")


@lru_cache
def _axes_of(table):
    """Return the names of the axes of each array in a table."""
    return [axes.split(", ") for axes in re.findall(r"\((.*?)\)", table)]


def _dropout_settings(p, rng, shape):
    """Return the probability to drop, 0 without an rng; the 64-bit seed of a mask of this shape,
    drawn from the rng if there is a mask; and the number of the mask's first element, which is not
    0 for a generator of `RowsFrom`."""
    if not 0 <= p <= 1:
        raise ValueError(f"the probability to drop is at least 0 and at most 1; this is {p}")
    if rng is None or not p:
        return DropoutSettings()
    if not isinstance(rng, np.random.Generator):
        raise TypeError("rng is a generator such as np.random.default_rng(0), "
                        f"not {type(rng).__name__}")
    seed = int(rng.integers(2**63))
    first_row = rng.first_row if isinstance(rng, RowsFrom) else 0
    return DropoutSettings(float(p), seed, first_row * math.prod(shape[1:]))


def check_heads(H: int, G: int) -> None:
    """Raise a ValueError unless H heads of queries can share G of keys and values."""
    if H < 1 or G < 1 or H % G:
        raise ValueError(f"{H} heads of queries do not split evenly among {G} of keys and values")


def _numbers_below(limit, ids, what, ignored=None):
    """Return a copy of ids as int64, dense, after checking that each is in [0, limit), or is
    `ignored`.  Nobody can change the copy before backward."""
    if type(ids) is not np.ndarray:
        ids = np.asarray(ids)
    if ids.dtype.kind not in "iu":
        raise TypeError(f"{what}s are integers, and these are {ids.dtype}")
    numbers = np.array(ids, dtype=np.int64, order="C")
    unsigned = numbers.view(np.uint64)      # in which a number below 0 is a large one
    if ignored is not None and type(ignored) is not int and np.ndim(ignored):
        raise TypeError("ignore_index is an integer; give weights of classes by their name, as in "
                        "weight=w")
    if not unsigned.size or unsigned.item(unsigned.argmax()) < limit:   # a reduction takes longer
        return numbers
    wrong = unsigned >= limit
    if ignored is not None:
        wrong &= ids != ignored
    if np.logical_or.reduce(wrong, axis=None):      # any of them
        place = tuple(np.argwhere(wrong)[0].tolist())
        raise IndexError(f"{what} {ids[place]} at {place} is not one of the {limit} "
                         f"from 0 to {limit - 1}")
    return numbers
