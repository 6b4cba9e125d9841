"""Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1), a head at a time.

A mask is added to the scores.  There may be more heads of queries than of keys and values, G =
H / groups to each (Ainslie et al. 2023, "GQA", section 2.2); their gradients to k and v add up.

How it runs: threads share the groups, which are single heads if G is 1.  A head is processed in
blocks of QUERIES queries.  A block's scores are (S, QUERIES), a column for each query, and stay in
the first-level cache.  So the rows of all queries are scaled, exponentiated and added up at once,
in whole vectors, however many keys each query may attend to; and products read the scores, or their
transpose, where they lie.  A causal block stops at its last query.  Nothing of size (T, S) is kept:
backward computes P again from each row's maximum and sum (Dao et al. 2022, "FlashAttention",
section 3.1), and the dropout mask from its seed.  The logarithm of the sum, in one number with the
maximum, would lose its digits where all scores of a row are large.
"""
from typing import NamedTuple

import numpy as np

from minigrad import formulas
from minigrad.formulas import How
from minigrad.kernels.compiler.compiling import (A4, C4, R4, dense, kernel, stands_in_for,
                                                 threads_for, writable)
from minigrad.kernels.compiler.lanes import LANES, dot, larger, load, part, spread, store
from minigrad.kernels.compiler.linking import allocating, serial
from minigrad.kernels.compiler.parallel import on_threads, share
from minigrad.kernels.compiler.tiles import TILE_BYTES, VECTOR_BYTES
from minigrad.kernels.compiler.vector_math import exp
from minigrad.kernels.elementwise import Mask, keeps, mask_of
from minigrad.kernels.matmul import ADD, SET, copy_row, multiply, pack_columns

QUERIES = max(LANES, 2 * VECTOR_BYTES // 4)     # of a block: whole LANES, and two vectors of floats


class Heads(NamedTuple):
    """Queries, keys and values, or their gradients: (B, H, T, D), (B, groups, S, D), (B, groups,
    S, E)."""
    q: A4
    k: A4
    v: A4


class Rules(NamedTuple):
    """How scores are made of products, and which are hidden."""
    mask: R4
    has_mask: bool
    causal: bool
    scale: float


@stands_in_for(formulas.attention)
def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, how: How
              ) -> tuple[np.ndarray, np.ndarray]:
    B, H, T, D = q.shape
    out = _like(q, v.shape[3])
    moments = np.zeros((B, H, T, 2), q.dtype)
    if k.shape[2] == 0:                         # no key to look at
        out[...] = 0
        return out, moments
    attention_kernel(writable(q), _dense_rows(k), writable(v), out, moments,
                     *_rules(q, how), *mask_of(*how.drop), _threads(q, k))
    return out, moments


@stands_in_for(formulas.attention_vjp)
def attention_vjp(g, q, k, v, out, moments, how, into=None):
    dq, dk, dv = into or [_like(x, x.shape[3]) for x in (q, k, v)]
    if k.shape[2] == 0:
        dq[...] = 0
        return dq, dk, dv
    attention_vjp_kernel(_dense_rows(g), writable(q), _dense_rows(k), _dense_rows(v), out, moments,
                         dq, dk, dv, *_rules(q, how), *mask_of(*how.drop), _threads(q, k))
    return dq, dk, dv


def _dense_rows(x):
    """Return x if it is writable and its rows are dense, else a copy."""
    return writable(x) if x.strides[3] == x.itemsize else dense(x)


def _rules(q, how):
    """Return the fields of `Rules`."""
    has_mask = how.mask is not None
    mask = how.mask if has_mask else np.zeros((1, 1, 1, 1), q.dtype)
    return mask, has_mask, how.causal, how.scale


def _like(x, width):
    """Return an empty (B, H, T, width), in memory (B, T, H, width): merging heads copies
    nothing."""
    B, H, T, _ = x.shape
    return np.empty((B, T, H, width), x.dtype).swapaxes(1, 2)


def _threads(q, k):
    return threads_for(q.size * k.shape[2] // 8)


@kernel
def attention_kernel(heads: Heads, out: A4, moments: C4, rules: Rules, drop: Mask, threads: int):
    D, (S, E) = heads.q.shape[3], heads.v.shape[2:]
    scratch = (panels(threads, S, E, out), panels(threads, D, QUERIES, out),
               columns(threads, S, out), columns(threads, 2, out), columns(threads, LANES, out),
               columns(threads, LANES, out))
    on_threads(threads, attend, heads, out, moments, rules, drop, scratch)


@serial
def attend(thread, threads, heads, out, moments, rules, drop, scratch):
    q, k, v = heads
    H, T, groups, S, real = q.shape[1], q.shape[2], k.shape[1], k.shape[2], out.dtype.type
    v_rows, q_columns, scores, room, sums, factors = scratch
    v_rows, q_columns, scores = v_rows[thread], q_columns[thread], scores[thread]
    tops, inverses, sums, factors = room[thread, 0], room[thread, 1], sums[thread], factors[thread]
    # A block of few queries leaves vectors as they are: zeros, or what other queries left.  Lanes
    # that are no query's cost no time then, and reach no result, as each query has its own.
    q_columns[:] = 0
    factors[:] = 1
    for group in share(k.shape[0] * groups, thread, threads):
        b, h_k, G = group // groups, group % groups, H // groups
        k_head = k[b, h_k]
        pack_columns(v[b, h_k], v_rows)
        for h in range(h_k * G, h_k * G + G):
            for top in range(0, T, QUERIES):
                n = min(QUERIES, T - top)
                seen = min(S, top + n) if rules.causal else S       # keys that some query needs
                left = score_block(q[b, h, top:top + n], k_head, q_columns, scores, seen, rules, b,
                                   h, top)
                exp_block(scores, seen, left, tops, sums)
                for j in range(QUERIES):
                    inverses[j] = real(1) / sums[0, j] if sums[0, j] != 0 else real(0)
                for j in range(n):
                    moments[b, h, top + j, 0] = tops[j]
                    moments[b, h, top + j, 1] = inverses[j]
                for s in range(seen):
                    if drop.bound > 0 and s % LANES == 0:
                        drop_weights(factors, drop, ((b * H + h) * T + top) * S + s, S)
                    for j in range(0, QUERIES, LANES):
                        at, factor = s * QUERIES + j, get(factors, s % LANES * QUERIES + j)
                        put(scores, at, get(scores, at) * get(inverses, j) * factor)
                multiply(scores[:seen, :n].T, v_rows, out[b, h, top:], SET)


@kernel
def attention_vjp_kernel(g: A4, heads: Heads, out: A4, moments: C4, gradients: Heads, rules: Rules,
                         drop: Mask, threads: int):
    D, (S, E) = heads.q.shape[3], heads.v.shape[2:]
    sums = np.empty((threads, S, D), out.dtype), np.empty((threads, S, E), out.dtype)
    scratch = (panels(threads, S, D, out), panels(threads, D, QUERIES, out),
               panels(threads, E, QUERIES, out), panels(threads, QUERIES, D, out),
               panels(threads, QUERIES, E, out), columns(threads, S, out),
               columns(threads, S, out), columns(threads, 3, out), columns(threads, LANES, out))
    on_threads(threads, attend_vjp, g, heads, out, moments, gradients, rules, drop, sums, scratch)


@serial
def attend_vjp(thread, threads, g, heads, out, moments, gradients, rules, drop, sums, scratch):
    k, dk, dv = heads.k, gradients.k, gradients.v
    (B, groups, S, D), H, E = k.shape, g.shape[1], g.shape[3]
    dk_sum, dv_sum = sums[0][thread], sums[1][thread]
    k_rows, q_columns, g_columns, q_rows, g_rows, weights, back, room, factors = scratch
    room_of_block = (k_rows[thread], q_columns[thread], g_columns[thread], q_rows[thread],
                     g_rows[thread], weights[thread], back[thread], room[thread], factors[thread],
                     dk_sum, dv_sum)
    q_columns[thread] = 0       # as in `attend`
    g_columns[thread] = 0
    factors[thread] = 1
    for group in share(B * groups, thread, threads):
        b, h_k, G = group // groups, group % groups, H // groups
        pack_columns(k[b, h_k], k_rows[thread])
        dk_sum[:] = 0
        dv_sum[:] = 0
        for h in range(h_k * G, h_k * G + G):
            for top in range(0, g.shape[2], QUERIES):
                attend_block_vjp(b, h, top, g, heads, out, moments, gradients.q, rules, drop,
                                 room_of_block)
        for s in range(S):
            copy_row(part(dk_sum, s * D, D), part(dk[b, h_k, s], 0, D))
            copy_row(part(dv_sum, s * E, E), part(dv[b, h_k, s], 0, E))


@serial
def attend_block_vjp(b, h, top, g, heads, out, moments, dq, rules, drop, room_of_block):
    """Write dq of a block of queries, and add to dk_sum and dv_sum.  `weights` holds P, then
    dropout(P); `back` dP, then dS * scale."""
    (k_rows, q_columns, g_columns, q_rows, g_rows, weights, back, room, factors, dk_sum,
     dv_sum) = room_of_block
    (_, H, T, E), S, real = g.shape, heads.k.shape[2], out.dtype.type
    h_k, n = h // (H // heads.k.shape[1]), min(QUERIES, T - top)
    k_head, v_head, scale = heads.k[b, h_k], heads.v[b, h_k], real(rules.scale)
    tops, inverses, alongs = room[0], room[1], room[2]
    seen = min(S, top + n) if rules.causal else S
    q_block, g_block = heads.q[b, h, top:top + n], g[b, h, top:top + n]
    left = score_block(q_block, k_head, q_columns, weights, seen, rules, b, h, top)
    pack_columns(g_block.T, g_columns)
    multiply(v_head[:seen], g_columns, back, SET)
    for j in range(n):
        tops[j] = moments[b, h, top + j, 0]
        inverses[j] = moments[b, h, top + j, 1]
        alongs[j] = dot(part(g_block[j], 0, E), part(out[b, h, top + j], 0, E))
    for s in range(seen):
        if drop.bound > 0 and s % LANES == 0:
            drop_weights(factors, drop, ((b * H + h) * T + top) * S + s, S)
        for j in range(0, QUERIES, LANES):
            at, factor = s * QUERIES + j, get(factors, s % LANES * QUERIES + j)
            P = exp(get(weights, at) * left - get(tops, j)) * get(inverses, j)
            put(weights, at, P * factor)
            dP = get(back, at) * factor
            put(back, at, P * (dP - get(alongs, j)) * scale)
    pack_columns(q_block, q_rows)
    pack_columns(g_block, g_rows)
    multiply(weights[:seen, :n], g_rows, dv_sum, ADD)
    multiply(back[:seen, :n], q_rows, dk_sum, ADD)
    multiply(back[:seen, :n].T, k_rows, dq[b, h, top:], SET)


@allocating
def panels(threads, depth, columns, like):
    """Return room for the panels that `pack_columns` makes of a (depth, columns) matrix."""
    NR = TILE_BYTES // like.itemsize
    return np.empty((threads, (columns + NR - 1) // NR, depth, NR), like.dtype)


@allocating
def columns(threads, S, like):
    """Return room for S numbers of each query of a block."""
    return np.empty((threads, S, QUERIES), like.dtype)


@serial
def score_block(q, k, q_columns, scores, seen, rules, b, h, top):
    """Write the products k . q of `seen` keys to scores, add the mask, and set those of keys after
    the query to -inf; return the scale by which to multiply them still."""
    real, has_mask = scores.dtype.type, rules.has_mask
    scale = real(rules.scale)
    mask = rules.mask[b, h] if has_mask else rules.mask[0, 0]
    pack_columns(q.T, q_columns)
    multiply(k[:seen], q_columns, scores, SET)
    if has_mask or not scale > 0:
        for s in range(seen):
            for j in range(len(q)):
                score = scores[s, j] * scale
                scores[s, j] = score + mask[top + j, s] if has_mask else score
        scale = real(1)
    for s in range(top if rules.causal else seen, seen):
        for j in range(s - top):
            scores[s, j] = -np.inf
    return scale


@serial
def exp_block(scores, seen, scale, tops, sums):
    """Replace each of `seen` rows of scores by exp(scale * scores - tops), with the maxima of the
    columns for tops; write the columns' sums to sums[0], added up as in `softmax_row`."""
    sums[:] = 0
    for j in range(0, QUERIES, LANES):
        top = spread(np.finfo(scores.dtype).min)
        for s in range(seen):
            top = larger(get(scores, s * QUERIES + j) * scale, top)
        put(tops, j, top)
        for s in range(seen):
            e = exp(get(scores, s * QUERIES + j) * scale - top)
            put(scores, s * QUERIES + j, e)
            at = s % LANES * QUERIES + j
            put(sums, at, get(sums, at) + e)
    half = LANES
    while half > 1:
        half //= 2
        for i in range(half):
            for j in range(QUERIES):
                sums[i, j] += sums[half + i, j]


@serial
def drop_weights(factors, drop, first, S):
    """Write what dropout multiplies the weights of LANES keys by, (LANES, QUERIES); `first` is the
    number of the first weight."""
    factors, real = part(factors, 0, LANES * QUERIES), factors.dtype.type
    for i in range(factors.size):
        number = first + i % QUERIES * S + i // QUERIES
        factors[i] = real(drop.scale) if keeps(drop, number) else real(0)


@serial
def get(x, at):
    """Return the LANES numbers of a dense array from place `at` on."""
    return load(part(x, at, LANES), 0, 0)


@serial
def put(x, at, lanes):
    store(part(x, at, LANES), 0, lanes)
