"""Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1), a head at a time.

A mask of 0 and -inf is added to the scores, and a linear bias for each head, of which a slope of 0
leaves nothing (Press et al. 2022, "Train Short, Test Long", section 3).  There may be more heads of
queries than of keys and values, G = H / groups to each (Ainslie et al. 2023, "GQA", section 2.2);
their gradients to k and v add up.

How it runs: threads share the groups, which are single heads if G is 1.  A head is processed in
blocks of ROWS queries, whose scores (ROWS, S) stay in the second-level cache.  A causal block stops
at its last query, and the loops over a row at the last key that it may attend to, rounded up to
LANES.  Nothing of size (T, S) is kept: backward computes P again from the logarithm of each row's
sum (Dao et al. 2022, "FlashAttention", section 3.1), and the dropout mask from its seed.
"""
import numpy as np

from minigrad.kernels.build.compiling import (dense, instead_of, kernel, serial, threads_for,
                                              writable)
from minigrad.kernels.build.lanes import LANES
from minigrad.kernels.build.parallel import on_threads, share
from minigrad.kernels.build.simd import dense_row, part
from minigrad.kernels.build.sums import dot, largest
from minigrad.kernels.build.tiles import TILE_BYTES
from minigrad.kernels.build.vector_math import exp
from minigrad.kernels.dropout import keeps, plain_dropout, seed_and_bound
from minigrad.kernels.matmul import ADD, SET, multiply, pack_columns
from minigrad.kernels.softmax import softmax_row

ROWS = 24       # queries of a block; a multiple of every MR


def plain_attention(q, k, v, mask, slopes, causal, scale, p, seed):
    P, log_sum = _weights(q, k, mask, slopes, causal, scale)
    return plain_dropout(P, p, seed) @ _for_each_head(v, q), log_sum


def _for_each_head(x, q):
    """Repeat keys or values (B, groups, S, D) for each head of the queries, (B, H, S, D)."""
    return np.repeat(x, q.shape[1] // x.shape[1], axis=1)


def _weights(q, k, mask, slopes, causal, scale):
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


@instead_of(plain_attention)
def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None,
              slopes: np.ndarray | None, causal: bool, scale: float, p: float, seed: int
              ) -> tuple[np.ndarray, np.ndarray]:
    """(B, H, T, D), (B, groups, S, D), (B, groups, S, E) -> (B, H, T, E), and log_sum, (B, H, T).

    `log_sum` is log(sum(exp(scores))) of each row.  `mask` is added to the scores and has their
    shape (B, H, T, S); strides of 0 are allowed.  `slopes` is (H,).  A query without keys gets 0.
    """
    B, H, T, D = q.shape
    out = _like(q, v.shape[3])
    log_sum = np.full((B, H, T), -np.inf, q.dtype)
    if k.shape[2] == 0:                         # no key to look at
        out[...] = 0
        return out, log_sum
    attention_kernel(writable(q), writable(k), writable(v), *_biases(q, mask, slopes), out, log_sum,
                     mask is not None, causal, scale, 1 / (1 - p), *seed_and_bound(p, seed),
                     _threads(q, k))
    return out, log_sum


def plain_attention_vjp(g, q, k, v, mask, slopes, out, log_sum, causal, scale, p, seed, into=None):
    P, _ = _weights(q, k, mask, slopes, causal, scale)
    dP = plain_dropout(g @ _for_each_head(v, q).swapaxes(-1, -2), p, seed)
    dS = P * (dP - (g * out).sum(axis=-1, keepdims=True)) * scale
    gradients = [dS @ _for_each_head(k, q)]
    for dx in (dS.swapaxes(-1, -2) @ q, plain_dropout(P, p, seed).swapaxes(-1, -2) @ g):
        gradients.append(dx.reshape(*k.shape[:2], q.shape[1] // k.shape[1], *dx.shape[2:])
                         .sum(axis=2))
    if into is None:
        return gradients
    for room, gradient in zip(into, gradients):
        room[...] = gradient
    return into


@instead_of(plain_attention_vjp)
def attention_vjp(g, q, k, v, mask, slopes, out, log_sum, causal, scale, p, seed, into=None):
    """Return the gradients to q, k and v, written to the three arrays `into` if they are given."""
    dq, dk, dv = into or [_like(x, x.shape[3]) for x in (q, k, v)]
    if k.shape[2] == 0:
        dq[...] = 0
        return dq, dk, dv
    g = writable(g) if g.strides[3] == g.itemsize else dense(g)
    attention_vjp_kernel(g, writable(q), writable(k), writable(v), *_biases(q, mask, slopes), out,
                         log_sum, dq, dk, dv, mask is not None, causal, scale, 1 / (1 - p),
                         *seed_and_bound(p, seed), _threads(q, k))
    return dq, dk, dv


def _biases(q, mask, slopes):
    """Return the mask and the slopes, with stand-ins where there are none."""
    return (np.zeros((1, 1, 1, 1), q.dtype) if mask is None else mask,
            np.zeros(q.shape[1], q.dtype) if slopes is None else slopes)


def _like(x, width):
    """Return an empty (B, H, T, width), in memory (B, T, H, width): merging heads copies
    nothing."""
    B, H, T, _ = x.shape
    return np.empty((B, T, H, width), x.dtype).swapaxes(1, 2)


def _threads(q, k):
    return threads_for(q.size * k.shape[2] // 8)


@kernel("A4 A4 A4 R4 C1 A4 C3 bool bool double double key key key threads")
def attention_kernel(q, k, v, mask, slopes, out, log_sum, has_mask, causal, scale, kept,
                     low, high, bound, threads):
    on_threads(threads, attend_groups, q, k, v, mask, slopes, out, log_sum, has_mask, causal,
               scale, kept, low, high, bound)


@serial
def attend_groups(thread, threads, q, k, v, mask, slopes, out, log_sum, has_mask, causal, scale,
                  kept, low, high, bound):
    for group in share(k.shape[0] * k.shape[1], thread, threads):
        attend(group, q, k, v, mask, slopes, out, log_sum, has_mask, causal, scale, kept,
               low, high, bound)


@kernel("A4 A4 A4 A4 R4 C1 A4 C3 A4 A4 A4 bool bool double double key key key threads")
def attention_vjp_kernel(g, q, k, v, mask, slopes, out, log_sum, dq, dk, dv, has_mask, causal,
                         scale, kept, low, high, bound, threads):
    on_threads(threads, attend_groups_vjp, g, q, k, v, mask, slopes, out, log_sum, dq, dk, dv,
               has_mask, causal, scale, kept, low, high, bound)


@serial
def attend_groups_vjp(thread, threads, g, q, k, v, mask, slopes, out, log_sum, dq, dk, dv, has_mask,
                      causal, scale, kept, low, high, bound):
    for group in share(k.shape[0] * k.shape[1], thread, threads):
        attend_vjp(group, g, q, k, v, mask, slopes, out, log_sum, dq, dk, dv, has_mask, causal,
                   scale, kept, low, high, bound)


@serial
def attend(group, q, k, v, mask, slopes, out, log_sum, has_mask, causal, scale, kept,
           low, high, bound):
    H, T, D = q.shape[1:]
    S, E = v.shape[2:]
    b, h_k, G = group // k.shape[1], group % k.shape[1], H // k.shape[1]
    real = log_sum.dtype.type
    k_columns, v_rows = panels(D, S, log_sum), panels(S, E, log_sum)
    scores = score_rows(S, log_sum)
    pack_columns(k[b, h_k].T, k_columns)
    pack_columns(v[b, h_k], v_rows)
    for block in range(G * ((T + ROWS - 1) // ROWS)):       # the first of each head, the second ...
        h, top = h_k * G + block % G, block // G * ROWS
        n = min(ROWS, T - top)
        seen = min(S, top + n) if causal else S     # columns that some row of the block needs
        multiply(q[b, h, top:top + n], k_columns, scores[:n, :seen], SET)
        for i in range(n):
            t = top + i
            visible = min(S, t + 1) if causal else S
            row = part(scores, i * scores.shape[1], whole_lanes(visible))
            finish_scores(row, real(scale), slopes[h], t, mask[b, h, t] if has_mask else row,
                          has_mask, visible)
            log_sum[b, h, t] = softmax_or_zero(row)
            scores[i, row.size:seen] = 0
            if bound > 0:
                first = ((b * H + h) * T + t) * S       # the number of the row's first weight
                for s in range(row.size):
                    row[s] = row[s] * real(kept) if keeps(low, high, bound, first + s) else real(0)
        multiply(scores[:n, :seen], v_rows, out[b, h, top:top + n], SET)


@serial
def attend_vjp(group, g, q, k, v, mask, slopes, out, log_sum, dq, dk, dv, has_mask, causal, scale,
               kept, low, high, bound):
    H, T, D = q.shape[1:]
    S, E = v.shape[2:]
    b, h_k, G = group // k.shape[1], group % k.shape[1], H // k.shape[1]
    real = log_sum.dtype.type
    k_columns, k_rows = panels(D, S, log_sum), panels(S, D, log_sum)
    v_columns = panels(E, S, log_sum)
    q_rows, g_rows = panels(ROWS, D, log_sum), panels(ROWS, E, log_sum)
    weights = score_rows(S, log_sum)        # P, then dropout(P)
    back = score_rows(S, log_sum)           # dP, then dS * scale
    pack_columns(k[b, h_k].T, k_columns)
    pack_columns(k[b, h_k], k_rows)
    pack_columns(v[b, h_k].T, v_columns)
    dk[b, h_k, :, :] = 0
    dv[b, h_k, :, :] = 0
    for block in range(G * ((T + ROWS - 1) // ROWS)):
        h, top = h_k * G + block % G, block // G * ROWS
        n = min(ROWS, T - top)
        seen = min(S, top + n) if causal else S
        q_block, g_block = q[b, h, top:top + n], g[b, h, top:top + n]
        multiply(q_block, k_columns, weights[:n, :seen], SET)
        multiply(g_block, v_columns, back[:n, :seen], SET)
        for i in range(n):
            t = top + i
            visible = min(S, t + 1) if causal else S
            wide = whole_lanes(visible)
            start = i * weights.shape[1]
            P, dP = part(weights, start, wide), part(back, start, wide)
            finish_scores(P, real(scale), slopes[h], t, mask[b, h, t] if has_mask else P, has_mask,
                          visible)
            # For a query that may attend to no key, every exp(-inf - inf) below is 0.
            log_total = log_sum[b, h, t] if log_sum[b, h, t] != -np.inf else real(np.inf)
            along = dot(dense_row(g[b, h, t]), dense_row(out[b, h, t]))
            if bound > 0:
                first = ((b * H + h) * T + t) * S
                for s in range(wide):
                    share = real(kept) if keeps(low, high, bound, first + s) else real(0)
                    p = exp(P[s] - log_total)
                    P[s] = p * share
                    dP[s] = p * (dP[s] * share - along) * real(scale)
            else:
                for s in range(wide):
                    P[s] = exp(P[s] - log_total)
                    dP[s] = P[s] * (dP[s] - along) * real(scale)
            weights[i, wide:seen] = 0
            back[i, wide:seen] = 0
        pack_columns(q_block, q_rows)
        pack_columns(g_block, g_rows)
        multiply(weights[:n, :seen].T, g_rows, dv[b, h_k, :seen], ADD)
        multiply(back[:n, :seen], k_rows, dq[b, h, top:top + n], SET)
        multiply(back[:n, :seen].T, q_rows, dk[b, h_k, :seen], ADD)


@serial
def panels(depth, columns, like):
    """Return room for the panels that `pack_columns` makes of a (depth, columns) matrix."""
    NR = TILE_BYTES // like.itemsize
    return np.empty(((columns + NR - 1) // NR, depth, NR), like.dtype)


@serial
def score_rows(S, like):
    """Return room for a block of scores, with rows of whole LANES."""
    return np.zeros((ROWS, whole_lanes(S)), like.dtype)


@serial
def whole_lanes(n):
    """Round n up to a multiple of LANES, so that no loop has a remainder."""
    return (n + LANES - 1) // LANES * LANES


@serial
def finish_scores(row, scale, slope, t, mask, has_mask, visible):
    """Scale the products q . k of query t, add the linear bias and the mask, and set all keys from
    `visible` on to -inf."""
    for s in range(row.size):
        row[s] *= scale
    for s in range(visible if slope != 0 else 0):
        row[s] -= slope * abs(row.dtype.type(t - s))
    for s in range(visible if has_mask else 0):
        row[s] += mask[s]
    for s in range(visible, row.size):
        row[s] = -np.inf


@serial
def softmax_or_zero(row):
    """Softmax in place, all 0 where every score is -inf; return log(sum(exp(row)))."""
    top = largest(row)
    if top == -np.inf:
        row[:] = 0
        return top
    return softmax_row(row, top, row)
