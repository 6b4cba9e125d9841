"""Every formula of a transformer and its gradient in plain NumPy, in the order of their use.

`f_vjp` is the vector-Jacobian product (VJP) of f: from g, the gradient of the loss with respect to
the value of f, to the gradients of f's arguments.  A faster function may stand in for each
`@formula`, as `softmax.kernel` does for `softmax`.  Shapes: B batch, T queries (time), S keys, H
heads of queries, G of keys and values, D channels of a query or key, E of a value, C channels, V
classes, R rows; `...` any leading axes.
"""
import math
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from minigrad.plug import formula

Array = np.ndarray

ACTIVATIONS = "gelu", "relu2", "gelu_tanh"      # of `mlp`
DENSITY_0 = 1 / math.sqrt(2 * math.pi)          # of the normal distribution, at 0
SLOPE = math.sqrt(2 / math.pi)                  # of the GELU by tanh
CUBIC = 0.044715
FLAT = 100.0        # beyond it, the GELU and its derivative are those of the ReLU
FNV_BASIS = np.uint64(0xcbf29ce484222325)
FNV_PRIME = np.uint64(0x100000001b3)
MUON = 3.4445, -4.7750, 2.0315                                  # of Newton-Schulz
TINY = 1e-7

erfc = np.vectorize(math.erfc, otypes=[float])


def row_sum(x: Array) -> Array:
    """Sums over the last axis, (..., C) -> (..., 1)."""
    return x.sum(axis=-1, keepdims=True)


def row_mean(x: Array, dtype: type | None = None) -> Array:
    """Means over the last axis, (..., C) -> (..., 1), added up in a type, by default that of x."""
    return x.mean(axis=-1, keepdims=True, dtype=dtype)


def rows(x: Array) -> Array:
    """Fold all axes but the last into one, (..., C) -> (R, C)."""
    if x.ndim == 2:
        return x
    *lead, C = x.shape
    return x.reshape(math.prod(lead), C)


def column_sum(x: Array) -> Array:
    """Sums over all axes but the last, (..., C) -> (C,)."""
    return rows(x).sum(axis=0)


def ngram_rows(ids: Array, n: int, count: int) -> Array:
    """Give each n-gram, from pairs on, a row below `count`, (..., T) -> (..., T, n - 1), by Fowler,
    Noll & Vo's hash FNV-1a of 64 bits, folded.  It begins with the last character.  Characters
    before the sequence count as 0, and id i as i + 1."""
    *lead, T = ids.shape
    before = np.zeros((*lead, n - 1), np.uint64)
    numbers = ids.astype(np.uint64) + 1
    padded = np.concatenate([before, numbers], axis=-1)         # (..., n - 1 + T)
    state = FNV_BASIS
    states = []
    for start in reversed(range(n)):        # at the last character, then at those before it
        state = (state ^ padded[..., start:start + T]) * FNV_PRIME
        states.append(state)                                    # of n - start characters
    hashed = np.stack(states[1:], axis=-1)
    folded = hashed ^ hashed >> 32
    return (folded % count).astype(np.int64)


class DropoutSettings(NamedTuple):
    """Which elements `dropout` zeroes, and which rows `sum_rows`."""
    p: float = 0.0      # the probability
    seed: int = 0       # of 64 bits
    first: int = 0      # the number of the first element, if these are a part of a whole

    @property
    def scale(self) -> float:
        """What is kept is multiplied by this."""
        return 0.0 if self.p == 1 else 1 / (1 - self.p)


@formula
def add(x: Array, y: Array, out: Array | None = None) -> Array:
    """Return x + y, which is written to `out` if that is given."""
    return np.add(x, y, out)


@formula
def dropout(x: Array, drop: DropoutSettings) -> Array:
    """Zero elements with probability p, and scale the others by 1 / (1 - p); back, do the same to g
    (Srivastava et al. 2014, section 4)."""
    kept = kept_elements(x.shape, drop)
    return np.where(kept, x * drop.scale, 0)


def dropout_factors(P: Array, drop: DropoutSettings) -> Array | int:
    """What dropout multiplies weights P by, 1 where none is dropped."""
    return 1 if drop.p == 0 else dropout(np.ones_like(P), drop)


def kept_elements(shape: tuple[int, ...], drop: DropoutSettings) -> Array:
    """Which elements dropout keeps, of an array of this shape.  The bits of element i are a hash of
    i and of each half of the seed: on every platform the same.

    Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section 2; the hash,
    lowbias32: Wellons 2018, "Prospecting for Hash Functions".
    """
    if drop.p == 0:
        return np.ones(shape, bool)
    numbers = np.arange(drop.first, drop.first + math.prod(shape))
    bits = numbers.astype(np.uint32)
    for half in (drop.seed & 0xFFFFFFFF, drop.seed >> 32):
        bits = bits ^ half
        bits = (bits ^ bits >> 16) * 0x7FEB352D
        bits = (bits ^ bits >> 15) * 0x846CA68B
        bits = bits ^ bits >> 16
    kept = bits >= int(drop.p * 2**32)
    return kept.reshape(shape)


@formula
def sum_rows(table: Array, ids: Array, drop: DropoutSettings) -> Array:
    """Sums of n rows, (V, C), (..., n) -> (..., C), where rows are dropped as `dropout` drops
    elements of the ids' shape."""
    summands = table[ids]                                       # (..., n, C)
    if drop.p > 0:
        summands[~kept_elements(ids.shape, drop)] = 0
    return summands.sum(axis=-2, dtype=table.dtype) * drop.scale


@formula
def add_rows(
        total: Array,
        ids: Array,
        g: Array,
        drop: DropoutSettings) -> None:
    """The VJP of `sum_rows`: add g[r], (..., C), to total[ids[r, i]], (V, C), also where ids
    repeat."""
    if drop.p == 0:
        np.add.at(total, ids, g[..., None, :])
        return
    kept = kept_elements(ids.shape, drop)
    r = np.nonzero(kept)[:-1]
    np.add.at(total, ids[kept], g[r] * drop.scale)


@formula
def norm(
        x: Array,
        weight: Array,
        bias: Array,
        eps: float,
        centred: bool) -> tuple[Array, Array, Array]:
    """(x - mean) / std * weight + bias, (..., C), (C,), (C,) -> (..., C); and of each row its mean
    and 1 / std, (..., 1)  (Ba, Kiros & Hinton 2016, "Layer Normalization", section 3).  An RMS norm
    is not centred: its mean is 0  (Zhang & Sennrich 2019, section 4)."""
    mean = np.zeros_like(x[..., :1])                            # (..., 1)
    if centred:                         # in float64, as float32 holds no sum beyond 3.4e38
        mean += row_mean(x, np.float64)
        mean += row_mean(x - mean, np.float64)      # what is left: a constant row gives 0
    rstd = inverse_rms(x - mean, eps)                           # (..., 1)
    unit = (x - mean) * rstd
    return unit * weight + bias, mean, rstd


def inverse_rms(x: Array, eps: float) -> Array:
    """1 / sqrt(mean(x^2) + eps) over the last axis, (..., C) -> (..., 1).  Squares are added up in
    float64, as float32 holds none of a number beyond 1.8e19."""
    squares = np.square(x, dtype=np.float64)
    rms = np.sqrt(row_mean(squares) + eps)
    return (1 / rms).astype(x.dtype)


@formula
def norm_vjp(
        g: Array,
        x: Array,
        weight: Array,
        mean: Array,
        rstd: Array,
        centred: bool) -> tuple[Array, Array, Array]:
    """Return the gradients of x, weight and bias; mean and rstd, 1 / std, are those of `norm`."""
    unit = (x - mean) * rstd
    d = g * weight                                              # of unit
    dx = rstd * (d - unit * row_mean(d * unit))
    if centred:
        dx -= rstd * row_mean(d)
    return dx, column_sum(g * unit), column_sum(g)


@formula
def matmul(a: Array, b: Array) -> Array:
    """a b, (..., M, K), (..., K, P) -> (..., M, P)."""
    return a @ b


@formula
def linear(x: Array, weight: Array, bias: Array | None) -> Array:
    """x weight^T + bias, (..., C), (P, C), (P,) or None -> (..., P)."""
    y = matmul(x, weight.T)
    if bias is not None:
        y += bias
    return y


def linear_vjp(
        g: Array,
        x: Array,
        weight: Array,
        bias: Array | None) -> tuple[Array, Array, Array | None]:
    """Return the gradients of x, weight and bias, None where there is no bias."""
    dx = matmul(g, weight)                                      # (..., C)
    dweight = matmul(rows(g).T, rows(x))                        # (P, C)
    dbias = None if bias is None else column_sum(g)             # (P,)
    return dx, dweight, dbias


@formula
def rotate(x: Array, cos: Array, sin: Array) -> Array:
    """Rotate the first channels in pairs, (..., T, C), (T, pairs), (T, pairs) -> (..., T, C); back,
    by the opposite angles  (Su et al. 2021, "RoFormer", section 3.4.2)."""
    end = 2 * cos.shape[-1]             # channels after it are passed on
    a = x[..., :end:2]                                          # (..., T, pairs)
    b = x[..., 1:end:2]
    y = x.copy()
    y[..., :end:2] = a * cos - b * sin
    y[..., 1:end:2] = b * cos + a * sin
    return y


@formula
def norm_heads(
        x: Array,
        cos: Array,
        sin: Array,
        heads: int,
        D: int,
        eps: float) -> tuple[Array, Array]:
    """Rotate the first heads of D channels, and divide each by its root mean square, (..., T, C),
    (T, pairs), (T, pairs) -> (..., T, C); also return 1 / rms, (..., T, heads, 1)  (Henry et al.
    2020, "Query-Key Normalization", section 3)."""
    y = rotate(x, cos, sin)
    y_heads = view_of_heads(y, heads, D)
    rstd = inverse_rms(y_heads, eps)
    y_heads *= rstd
    return y, rstd


@formula
def norm_heads_vjp(
        g: Array,
        y: Array,
        rstd: Array,
        cos: Array,
        sin: Array,
        D: int) -> Array:
    """Return the gradient of x, from the values y and rstd of `norm_heads`."""
    dx = g.copy()
    dx_heads = view_of_heads(dx, rstd.shape[-2], D)
    y_heads = view_of_heads(y, rstd.shape[-2], D)
    dx_heads -= y_heads * row_mean(dx_heads * y_heads)
    dx_heads *= rstd
    return rotate(dx, cos, -sin)


def view_of_heads(x: Array, heads: int, D: int) -> Array:
    """The first channels by heads, (..., C) -> (..., heads, D); a view, to be written into."""
    return x[..., :heads * D].reshape(*x.shape[:-1], heads, D)


class AttentionSettings(NamedTuple):
    """How attention makes scores and weights."""
    mask: Array | None = None           # (B, H, T, S), added to the scores
    causal: bool = False                # hide the keys after t from query t
    scale: float = 1.0                  # 1 / sqrt(D), as a rule
    drop: DropoutSettings = DropoutSettings()       # of weights


@formula
def attention(
        q: Array,
        k: Array,
        v: Array,
        settings: AttentionSettings) -> tuple[Array, Array, Array]:
    """dropout(softmax(q k^T scale + mask)) v, (B, H, T, D), (B, G, S, D), (B, G, S, E) -> (B, H, T,
    E); and of each query, (B, H, T, 1), the maximum of its scores, and 1 / sum(e^(score -
    maximum)), by which the softmax can be made again.  A query without keys gets 0, and has 0 for
    1 / sum  (Vaswani et al. 2017, section 3.2.1; fewer heads of keys and values: Ainslie et al.
    2023, "GQA", section 2.2)."""
    scores = attention_scores(q, k, settings)                   # (B, H, T, S)
    lowest = np.finfo(q.dtype).min      # so that no maximum is -inf
    top = scores.max(axis=-1, keepdims=True, initial=lowest)    # (B, H, T, 1)
    e = np.exp(scores - top)
    total = row_sum(e)
    inverse = 1 / np.where(total == 0, np.inf, total)
    P = e * inverse
    dropped = P * dropout_factors(P, settings.drop)
    return dropped @ for_each_head(v, q), top, inverse


def attention_scores(q: Array, k: Array, settings: AttentionSettings) -> Array:
    """q k^T scale + mask, (B, H, T, D), (B, G, S, D) -> (B, H, T, S): -inf hides a key."""
    keys = for_each_head(k, q).swapaxes(-1, -2)                 # (B, H, D, S)
    scores = q @ keys * settings.scale                          # (B, H, T, S)
    if settings.mask is not None:
        scores += settings.mask
    if settings.causal:
        seen = np.tri(*scores.shape[-2:], dtype=bool)           # (T, S)
        scores[..., ~seen] = -np.inf
    return scores


def for_each_head(x: Array, q: Array) -> Array:
    """Repeat keys or values for each head of the queries, (B, G, S, D) -> (B, H, S, D)."""
    H, G = q.shape[1], x.shape[1]
    return np.repeat(x, H // G, axis=1)


@formula
def attention_vjp(
        g: Array,
        q: Array,
        k: Array,
        v: Array,
        out: Array,
        top: Array,
        inverse: Array,
        settings: AttentionSettings) -> tuple[Array, Array, Array]:
    """Return the gradients of q, k and v, from the values out, top and inverse of `attention`: the
    softmax, of T S numbers, is not kept, but made again  (Dao et al. 2022, "FlashAttention",
    section 3.1)."""
    values = for_each_head(v, q).swapaxes(-1, -2)               # (B, H, E, S)
    P = np.exp(attention_scores(q, k, settings) - top) * inverse        # (B, H, T, S)
    factors = dropout_factors(P, settings.drop)
    dropped = P * factors
    dP = g @ values * factors
    dS = P * (dP - row_sum(g * out)) * settings.scale           # <g, out> = <dP, P>
    dq = dS @ for_each_head(k, q)
    dk = sum_of_heads(dS.swapaxes(-1, -2) @ q, k)
    dv = sum_of_heads(dropped.swapaxes(-1, -2) @ g, v)
    return dq, dk, dv


def sum_of_heads(dx: Array, x: Array) -> Array:
    """Back from `for_each_head`, (B, H, S, D) -> (B, G, S, D)."""
    B, G, S, D = x.shape
    groups = dx.reshape(B, G, dx.shape[1] // G, S, D)
    return groups.sum(axis=2)


def self_attention(
        qkv: Array,
        H: int,
        G: int,
        settings: AttentionSettings) -> tuple[Array, Array, Array]:
    """`attention` of a sequence to itself, from queries, keys and values in one array, and back to
    channels: (B, T, (H + 2 G) D) -> (B, T, H D); and the maximum and 1 / sum, (B, H, T, 1)."""
    out, top, inverse = attention(*split_heads(qkv, H, G), settings)
    return join_heads(out), top, inverse


@formula
def self_attention_vjp(
        g: Array,
        qkv: Array,
        H: int,
        G: int,
        out: Array,
        top: Array,
        inverse: Array,
        settings: AttentionSettings) -> Array:
    """Return the gradient of qkv, from the values out, top and inverse of `self_attention`."""
    D = qkv.shape[-1] // (H + 2 * G)
    gradients = attention_vjp(
        view_of_heads(g, H, D).swapaxes(1, 2),
        *split_heads(qkv, H, G),
        view_of_heads(out, H, D).swapaxes(1, 2),
        top,
        inverse,
        settings)
    return join_heads(np.concatenate(gradients, axis=1))


def split_heads(x: Array, H: int, G: int) -> tuple[Array, Array, Array]:
    """Views of H heads of queries, G of keys and G of values, (B, T, (H + 2 G) D) -> (B, H, T, D),
    (B, G, T, D), (B, G, T, D)."""
    count = H + 2 * G
    heads = view_of_heads(x, count, x.shape[-1] // count).swapaxes(1, 2)
    return heads[:, :H], heads[:, H:H + G], heads[:, H + G:]


def join_heads(x: Array) -> Array:
    """Put heads beside each other as channels, (B, H, T, D) -> (B, T, H D)."""
    B, H, T, D = x.shape
    return x.swapaxes(1, 2).reshape(B, T, H * D)


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x), by a power of e that is never large."""
    e = np.exp(-abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


@formula
def gelu(x: Array, by_tanh: bool) -> Array:
    """x Phi(x), exactly, or by tanh as in GPT-2  (Hendrycks & Gimpel 2016, section 2)."""
    value, _ = gelu_and_slope(x, by_tanh)
    return value


@formula
def gelu_vjp(g: Array, x: Array, by_tanh: bool) -> Array:
    """Return the gradient of x."""
    _, slope = gelu_and_slope(x, by_tanh)
    return g * slope


def gelu_and_slope(x: Array, by_tanh: bool) -> tuple[Array, Array]:
    """x Phi(x), with Phi(x) the normal distribution up to x; and its slope, Phi(x) + x Phi'(x).  By
    tanh, Phi(x) is (1 + tanh z) / 2 = sigmoid(2 z)."""
    near = np.clip(x, -FLAT, FLAT)
    if by_tanh:
        cdf = sigmoid(2 * SLOPE * (near + CUBIC * near**3))
        steep = 1 + 3 * CUBIC * near * near                     # z' / SLOPE
        density = cdf * (1 - cdf) * 2 * SLOPE * steep
    else:
        z = -math.sqrt(0.5) * near.astype(np.float64)
        cdf = (erfc(z) / 2).astype(x.dtype)
        density = np.exp(-near * near / 2) * DENSITY_0
    return x * cdf, cdf + near * density


@formula
def swiglu(gate: Array, up: Array) -> Array:
    """silu(gate) * up, with silu(x) = x sigmoid(x)  (Shazeer 2020, section 2)."""
    return gate * sigmoid(gate) * up


@formula
def swiglu_vjp(g: Array, gate: Array, up: Array) -> tuple[Array, Array]:
    """Return the gradients of gate and up."""
    s = sigmoid(gate)
    silu = gate * s             # first, as g times a large gate would overflow
    slope = s + silu * (1 - s)
    return g * up * slope, g * silu


@formula
def mlp(
        x: Array,
        up: Array,
        up_bias: Array | None,
        down: Array,
        down_bias: Array | None,
        activation: str) -> tuple[Array, Array]:
    """f(x up^T + up_bias) down^T + down_bias, (..., C), (F, C), (F,), (P, F), (P,) -> (..., P); and
    what `mlp_vjp` keeps: f(h) of the squared ReLU, of the GELU its argument h, (..., F)  (Vaswani
    et al. 2017, section 3.3)."""
    h = linear(x, up, up_bias)                                  # (..., F)
    hidden = activated(h, activation)                           # (..., F)
    y = linear(hidden, down, down_bias)                         # (..., P)
    kept = hidden if activation == "relu2" else h
    return y, kept


@formula
def mlp_vjp(
        g: Array,
        x: Array,
        up: Array,
        up_bias: Array | None,
        down: Array,
        down_bias: Array | None,
        kept: Array,
        activation: str) -> tuple[Array, Array, Array | None, Array, Array | None]:
    """Return the gradients of x, up, up_bias, down and down_bias, None where there is no bias."""
    hidden, slope = value_and_slope(kept, activation)           # f(h), f'(h)
    dhidden, ddown, ddown_bias = linear_vjp(
        g,
        hidden,
        down,
        down_bias)
    dh = dhidden * slope
    dx, dup, dup_bias = linear_vjp(
        dh,
        x,
        up,
        up_bias)
    return dx, dup, dup_bias, ddown, ddown_bias


def activated(h: Array, activation: str) -> Array:
    """f(h): the squared ReLU, max(h, 0)^2  (So et al. 2021, "Primer", section 3.2), or a GELU."""
    if activation == "relu2":
        return np.square(np.maximum(h, 0))
    return gelu(h, activation == "gelu_tanh")


def value_and_slope(kept: Array, activation: str) -> tuple[Array, Array]:
    """Return f(h) and f'(h) from what `mlp` keeps; of the squared ReLU, f'(h) = 2 sqrt(f(h))."""
    if activation == "relu2":
        return kept, 2 * np.sqrt(kept)
    return gelu_and_slope(kept, activation == "gelu_tanh")


@formula
def softmax(x: Array) -> Array:
    """e^x / sum(e^x) over the last axis, (..., C) -> (..., C)."""
    top = x.max(axis=-1, keepdims=True, initial=-np.inf)
    e = np.exp(x - top)
    return e / row_sum(e)


@formula
def softmax_vjp(g: Array, y: Array) -> Array:
    """Return the gradient of x, from the softmax y of it."""
    return y * (g - row_sum(g * y))


@formula
def cross_entropy(logits: Array, targets: Array, ignored: int) -> tuple[Array, Array, int]:
    """-log softmax(logits)[target] in nats, (R, V), (R,) -> (R,), and its gradient, (R, V), both 0
    where the target is `ignored`; and how many are not."""
    counted = targets != ignored
    r = np.arange(len(targets))
    classes = np.where(counted, targets, 0)
    logits = np.where(counted[:, None], logits, 0)      # the others may be infinite, or nan
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(shifted).sum(axis=1))
    losses = log_sum - shifted[r, classes]
    slopes = softmax(logits)
    slopes[r, classes] -= 1
    slopes *= counted[:, None]
    return losses * counted, slopes, int(np.count_nonzero(counted))


@formula
def scale(xs: Collection[Array], factor: float) -> None:
    """Multiply all elements of all arrays by a factor, in place."""
    for x in xs:
        x *= factor


@formula
def sum_of_squares(xs: Collection[Any]) -> float:
    """Return the sum of the squares of all elements of all arrays, of which some may be `Rows`."""
    total = 0.0
    for x in xs:
        squares = np.square(np.asarray(x), dtype=np.float64)
        total += float(squares.sum())
    return total


def adamw(
        p: Array,
        g: Array,
        m: Array,
        v: Array,
        lr: float,
        beta1: float,
        beta2: float,
        eps: float,
        weight_decay: float,
        steps: int) -> None:
    """Update a parameter p and the running means m and v of g and g^2, in place; `steps` is the
    number of this step, from 1 on  (Loshchilov & Hutter 2019, "Decoupled Weight Decay
    Regularization", algorithm 2)."""
    m *= beta1
    m += (1 - beta1) * g
    v *= beta2
    v += (1 - beta2) * g * g
    rms = np.sqrt(v / (1 - beta2 ** steps))
    step = m / (1 - beta1 ** steps) / (rms + eps)
    p -= lr * (weight_decay * p + step)


@formula
def adamw_of_each(updates: Sequence[tuple]) -> None:
    """Update many parameters: for each (p, g, m, v, settings), where g may be `Rows`, and the
    settings are a dict with the others of `adamw`."""
    for p, g, m, v, settings in updates:
        adamw(
            p,
            np.asarray(g),
            m,
            v,
            **settings)


def muon(
        p: Array,
        g: Array,
        m: Array,
        lr: float,
        momentum: float,
        weight_decay: float,
        ns_steps: int,
        equal_rows: bool = False) -> None:
    """Update a matrix p and the momentum m, in place.  Newton-Schulz steps make z nearly orthogonal
    (Jordan et al. 2024, "Muon")."""
    a, b, c = MUON
    m *= momentum
    m += g
    z = g + momentum * m
    z /= math.sqrt(sum_of_squares([z])) + TINY
    for _ in range(ns_steps):
        gram = z @ z.T
        polynomial = b * gram + c * gram @ gram
        z = a * z + polynomial @ z
    if equal_rows:
        z = equalize_rows(z)
    p *= 1 - lr * weight_decay
    p -= lr * muon_length(p) * z


def equalize_rows(z: Array) -> Array:
    """Give all rows of a matrix the same length; the length of the whole stays  (Li et al. 2025,
    "NorMuon", algorithm 1, without its running mean)."""
    lengths = np.sqrt(row_sum(z * z))                           # (rows, 1)
    usual = np.sqrt(np.sum(lengths * lengths) / max(1, len(z)))
    return z * (usual / (lengths + TINY))


def muon_length(p: Array) -> float:
    """How long a step is of a matrix with more rows than columns."""
    rows, columns = p.shape
    return math.sqrt(max(1, rows / max(1, columns)))


@formula
def muon_of_each(updates: Sequence[tuple]) -> None:
    """Update many matrices: for each (p, g, m, settings), with the others of `muon` in a dict."""
    for p, g, m, settings in updates:
        muon(p, g, m, **settings)
