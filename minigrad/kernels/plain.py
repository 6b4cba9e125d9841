"""Every kernel in plain NumPy: its definition, and the version that runs if Numba does not compile.

Names and arguments are those of the compiled kernels.  The tests compare the two.
"""
import math

import numpy as np

from minigrad.kernels.build.panels import unpack

FNV_BASIS, FNV_PRIME = np.uint64(0xcbf29ce484222325), np.uint64(0x100000001b3)
FOLD = np.uint64(32)


def matmul(a, b, out=None, bias=None, residual=None, slope_at=None, activated=None, relu2=False):
    c = a @ b
    if out is not None:
        out += c
        c = out
    for added in (bias, residual):
        if added is not None:
            c += added
    if slope_at is not None:
        c *= 2 * np.sqrt(slope_at) if relu2 else gelu_vjp(np.ones_like(c), slope_at, False)
    elif relu2:
        c[...] = activation(c, relu2)
    if activated is not None:
        activated[...] = gelu(c if slope_at is None else slope_at, False)
    return c


def activation(x, relu2):
    """Apply the squared ReLU or the GELU."""
    return np.square(np.maximum(x, 0)) if relu2 else gelu(x, False)


def softmax(x):
    if x.size == 0:
        return np.empty_like(x)
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax_vjp(g, y):
    return y * (g - (g * y).sum(axis=-1, keepdims=True))


_erf = np.vectorize(math.erf, otypes=[float])


def gelu(x, by_tanh):
    if by_tanh:
        return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return x / 2 * (1 + _erf(x * math.sqrt(0.5)).astype(x.dtype))


def gelu_vjp(g, x, by_tanh):
    if by_tanh:
        t = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
        return g * (1 + t + x * (1 - t * t) * math.sqrt(2 / math.pi)
                    * (1 + 3 * 0.044715 * x * x)) / 2
    Phi = (1 + _erf(x * math.sqrt(0.5)).astype(x.dtype)) / 2
    return g * (Phi + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi))


def norm(x, weight, bias, eps, centred):
    flat = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    mean = flat.mean(axis=1) if centred else np.zeros(len(flat), x.dtype)
    rstd = 1 / np.sqrt(np.square(flat - mean[:, None]).mean(axis=1) + eps)
    unit = (flat - mean[:, None]) * rstd[:, None]
    return (unit * weight + bias).reshape(x.shape), np.stack([mean, rstd], axis=1).astype(x.dtype)


def norm_vjp(g, x, weight, moments, centred):
    flat, g_flat = x.reshape(-1, x.shape[-1]), g.reshape(-1, x.shape[-1])
    mean, rstd = moments[:, :1], moments[:, 1:]
    unit, d = (flat - mean) * rstd, g_flat * weight
    dx = rstd * (d - unit * (d * unit).mean(axis=1, keepdims=True))
    if centred:
        dx -= rstd * d.mean(axis=1, keepdims=True)
    return dx.reshape(x.shape), (g_flat * unit).sum(axis=0), g_flat.sum(axis=0)


def keep(n, p, seed):
    """Return which of n elements dropout keeps, (n,)."""
    if p == 0:
        return np.ones(n, bool)
    bits = np.arange(n).astype(np.uint32)
    for half in (seed & 0xFFFFFFFF, seed >> 32):
        bits = bits ^ np.uint32(half)
        bits = (bits ^ bits >> np.uint32(16)) * np.uint32(0x7FEB352D)
        bits = (bits ^ bits >> np.uint32(15)) * np.uint32(0x846CA68B)
        bits = bits ^ bits >> np.uint32(16)
    return bits >= np.uint32(min(p * 2**32, 2**32 - 1))


def dropout(x, p, seed, residual=None):
    y = np.where(keep(x.size, p, seed).reshape(x.shape), x * (1 / (1 - p)), 0).astype(x.dtype)
    return y if residual is None else residual + y


def attention(q, k, v, mask, slopes, causal, scale, p, seed):
    P, log_sum = _attention_weights(q, k, mask, slopes, causal, scale)
    return dropout(P, p, seed) @ _for_each_head(v, q), log_sum


def attention_vjp(g, q, k, v, mask, slopes, out, log_sum, causal, scale, p, seed, into=None):
    P, _ = _attention_weights(q, k, mask, slopes, causal, scale)
    dP = dropout(g @ _for_each_head(v, q).swapaxes(-1, -2), p, seed)
    dS = P * (dP - (g * out).sum(axis=-1, keepdims=True)) * scale
    gradients = [dS @ _for_each_head(k, q)]
    for dx in (dS.swapaxes(-1, -2) @ q, dropout(P, p, seed).swapaxes(-1, -2) @ g):
        gradients.append(dx.reshape(*k.shape[:2], q.shape[1] // k.shape[1], *dx.shape[2:])
                         .sum(axis=2))
    if into is None:
        return gradients
    for room, gradient in zip(into, gradients):
        room[...] = gradient
    return into


def _for_each_head(x, q):
    """Repeat keys or values (B, groups, S, D) for each head of the queries, (B, H, S, D)."""
    return np.repeat(x, q.shape[1] // x.shape[1], axis=1)


def _attention_weights(q, k, mask, slopes, causal, scale):
    scores = q @ _for_each_head(k, q).swapaxes(-1, -2) * scale          # (B, H, T, S)
    if slopes is not None:
        T, S = scores.shape[-2:]
        distances = abs(np.arange(T)[:, None] - np.arange(S)).astype(q.dtype)
        scores = scores - slopes[:, None, None] * distances
    if mask is not None:
        scores = scores + mask
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf).astype(q.dtype)
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    e = np.exp(scores - np.where(top > -np.inf, top, 0))
    total = e.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        log_sum = np.where(top > -np.inf, top + np.log(total), -np.inf)[..., 0]
    return e / np.where(total > 0, total, 1), log_sum.astype(q.dtype)


def rotate(x, cos, sin):
    y, turned = x.copy(), 2 * cos.shape[-1]
    a, b = x[..., :turned:2], x[..., 1:turned:2]
    y[..., :turned:2], y[..., 1:turned:2] = a * cos - b * sin, b * cos + a * sin
    return y


def norm_heads(x, cos, sin, heads, D, eps):
    y, of_heads = rotate(x, cos, sin), x[..., :heads * D].reshape(*x.shape[:-1], heads, D)
    rstd = 1 / np.sqrt(np.square(of_heads).mean(axis=-1) + eps)
    y[..., :heads * D] *= np.repeat(rstd, D, axis=-1)
    return y, rstd.reshape(-1, heads)


def norm_heads_vjp(g, y, rstd, cos, sin, D):
    dx, heads = g.copy(), rstd.shape[1]
    g, y = (a[..., :heads * D].reshape(*a.shape[:-1], heads, D) for a in (g, y))
    d = (g - y * (g * y).mean(axis=-1, keepdims=True)) * rstd.reshape(*g.shape[:-1], 1)
    dx[..., :heads * D] = d.reshape(*g.shape[:-2], heads * D)
    return rotate(dx, cos, -sin)


def cross_entropy(logits, targets, ignored):
    shifted = logits - logits.max(axis=1, keepdims=True)
    counted = targets != ignored
    chosen = np.arange(len(targets)), np.where(counted, targets, 0)
    losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[chosen]
    slopes = softmax(logits)
    slopes[chosen] -= 1
    return (losses * counted).astype(logits.dtype), slopes * counted[:, None]


def sum_rows(table, ids, p=0.0, seed=0):
    kept = keep(ids.size, p, seed).reshape(*ids.shape, 1)
    return np.where(kept, table[ids], 0).sum(axis=1, dtype=table.dtype) * (1 / (1 - p))


def add_rows(total, ids, g, p=0.0, seed=0):
    of, at = np.nonzero(keep(ids.size, p, seed).reshape(ids.shape))
    np.add.at(total, ids[of, at], g[of] * (1 / (1 - p)))


def ngram_rows(ids, n, count):
    T = ids.shape[-1]
    begun = np.zeros((*ids.shape[:-1], n - 1 + T), np.uint64)
    begun[..., n - 1:] = ids.astype(np.uint64) + np.uint64(1)
    found, state = [], FNV_BASIS
    for back in range(n):
        state = (state ^ begun[..., n - 1 - back:n - 1 - back + T]) * FNV_PRIME
        found.append(state)                                     # of back + 1 characters
    states = np.stack(found[1:], axis=-1)
    return ((states ^ states >> FOLD) % np.uint64(count)).astype(np.int64)


def adamw(ps, gs, ms, vs, settings):
    for p, g, m, v, row in zip(ps, gs, ms, vs, settings.tolist()):
        lr, beta1, beta2, eps, weight_decay, correction1, correction2 = row
        m += (1 - beta1) * (g - m)
        v += (1 - beta2) * (g * g - v)
        p -= lr * (weight_decay * p + m / correction1 / (np.sqrt(v / correction2) + eps))


def muon(ps, gs, ms, settings, steps):
    for p, g, m, (momentum, decay, lr) in zip(ps, gs, ms, settings.tolist()):
        m *= momentum
        m += g
        z = g + momentum * m
        z /= np.sqrt(np.square(z).sum()) + 1e-7
        for _ in range(steps):
            gram = z @ z.T
            z = 3.4445 * z + (-4.7750 * gram + 2.0315 * gram @ gram) @ z
        p *= decay
        p -= lr * z


def sum_of_squares(xs):
    return float(sum(np.square(x, dtype=np.float64).sum() for x in xs))


def decode(cos, sin, slopes, gains, shifts, biases, qkv, out, up, down, head, keys, values, x,
           vocab_size, t, eps, centred, qk_norm, relu2):
    C, (L, B, groups, _, D, NR), H = x.shape[1], keys.shape, slopes.size
    W = (H + 2 * groups) * D

    def normed(x, i):
        return norm(x, gains[i], shifts[i], eps, centred)[0]

    for i in range(L):
        bias = np.split(biases[i], [W, W + C, W + 5 * C])
        packed = normed(x, 2 * i) @ unpack(qkv[i], W) + bias[0]         # (B, W)
        angles = np.tile(cos[t], (1, H + groups)), np.tile(sin[t], (1, H + groups))
        packed = (norm_heads(packed, *angles, H + groups, D, eps)[0] if qk_norm
                  else rotate(packed, *angles))
        q, k, v = np.split(packed.reshape(B, -1, D), [H, H + groups], axis=1)
        keys[i, :, :, t // NR, :, t % NR] = k
        for d in range(D):
            values[i, :, :, d // NR, t, d % NR] = v[:, :, d]
        past = unpack(keys[i], t + 1), unpack(values[i], D)[:, :, :t + 1]
        q = q.reshape(B, groups, -1, D)                                 # G heads to each group
        bias_to_key = slopes.reshape(groups, -1, 1) * np.arange(t, -1, -1)
        P = softmax(q @ past[0] * D ** -0.5 - bias_to_key.astype(q.dtype))
        x = x + ((P @ past[1]).reshape(B, C) @ unpack(out[i], C) + bias[1])
        hidden = activation(normed(x, 2 * i + 1) @ unpack(up[i], 4 * C) + bias[2], relu2)
        x = x + (hidden @ unpack(down[i], C) + bias[3])
    return normed(x, 2 * L) @ unpack(head, vocab_size)


def draw(logits, u, temperature, top_k, top_p):
    drawn, probabilities = np.full(len(logits), -1), np.zeros(logits.shape)
    for b, row in enumerate(logits.astype(np.float64)):
        ranked = np.argsort(-row, kind="stable")[:1 if temperature == 0 else top_k]
        if not (row < np.inf).all() or row[ranked[0]] == -np.inf:
            continue
        p = np.exp((row[ranked] - row[ranked[0]]) / (temperature or 1.0))
        if top_p is not None and top_p < 1:
            reached = np.cumsum(p)
            fewest = int(np.searchsorted(reached, top_p * reached[-1])) + 1
            ranked, p = ranked[:fewest], p[:fewest]
        probabilities[b, ranked] = p / p.sum()
        likely = np.flatnonzero(probabilities[b])
        reached = np.cumsum(probabilities[b, likely])
        drawn[b] = likely[min(np.searchsorted(reached, u[b], side="right"), likely.size - 1)]
    return drawn, probabilities
