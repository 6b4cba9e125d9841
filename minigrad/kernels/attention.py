"""Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1), a head at a time.

A mask is added to the scores.  There may be more heads of queries than of keys and values, G =
H / groups to each (Ainslie et al. 2023, "GQA", section 2.2); their gradients to k and v add up.

How it runs: threads share the groups, which are single heads if G is 1.  A head is processed in
blocks of QUERIES queries.  A block's scores are (S, QUERIES), a column for each query, and stay in
the first-level cache.  So the rows of all queries are scaled, exponentiated and added up at once,
in whole vectors, however many keys each query may attend to; and products read the scores, or their
transpose, where they lie.  Of a causal block, LANES queries stop at the last of them: what follows
is neither computed nor read.  Nothing of size (T, S) is kept:
backward computes P again from each row's maximum and sum (Dao et al. 2022, "FlashAttention",
section 3.1), and the dropout mask from its seed.  The logarithm of the sum, in one number with the
maximum, would lose its digits where all scores of a row are large.
"""
from typing import NamedTuple

import numpy as np

from minigrad import formulas
from minigrad.formulas import split_heads, view_of_heads
from minigrad.kernels.compiler.compiling import (A4, C2, C3, C4, R4, dense, kernel, stands_in_for,
                                                 threads_for, writable)
from minigrad.kernels.compiler.lanes import (LANES, dot, larger, load, part, replace_first, row_of,
                                             spread, store)
from minigrad.kernels.compiler.linking import allocating, inlined, serial
from minigrad.kernels.compiler.parallel import share
from minigrad.kernels.compiler.tiles import MR, NV, TILE_BYTES, VECTOR_BYTES, micro_kernel
from minigrad.kernels.compiler.vector_math import exp
from minigrad.kernels.elementwise import Mask, keeps, mask_of
from minigrad.kernels.matmul import (ADD, SET, ceil_div, copy_row, on_a_line, pack_columns,
                                     run_in_place)

QUERIES = max(LANES, 2 * VECTOR_BYTES // 4)     # of a block: whole LANES, and two vectors of floats
TOP, INVERSE, ALONG = range(3)      # of each query: its maximum, 1 / sum, and g . out


class Heads(NamedTuple):
    """Queries, keys and values, or their gradients."""
    q: A4       # (B, H, T, D)
    k: A4       # (B, G, S, D)
    v: A4       # (B, G, S, E)


class Values(NamedTuple):
    """What attention returns."""
    out: A4         # (B, H, T, E)
    top: C4         # each query's highest score, (B, H, T, 1)
    inverse: C4     # and 1 / sum


class Room(NamedTuple):
    """A thread's memory for a block of queries."""
    keys: C2            # (S, D), dense: rows of packed heads would share few places of the cache
    v_rows: C3          # panels
    q_columns: C3
    scores: C2          # (S, QUERIES)
    moments: C2         # TOP and INVERSE, (2, QUERIES)
    sums: C2            # partial ones, (LANES, QUERIES)
    factors: C2         # of dropout, (LANES, QUERIES)


class RoomBack(NamedTuple):
    """The same, for the gradients."""
    keys: C2            # (S, D)
    values: C2          # (S, E)
    k_rows: C3          # panels
    q_columns: C3
    q_rows: C3
    g_columns: C3
    g_rows: C3
    weights: C2         # P, then dropout(P), (S, QUERIES)
    back: C2            # dP, then dS * scale, (S, QUERIES)
    moments: C2         # TOP, INVERSE and ALONG, (3, QUERIES)
    factors: C2         # of dropout, (LANES, QUERIES)
    dk: C2              # sums over the queries, (S, D), with room for whole vectors
    dv: C2              # (S, E)


class Place(NamedTuple):
    """Where a block of queries is: in sequence b, in head h, which has the keys and values of head
    `group`, from query `first` on."""
    b: int
    group: int
    h: int
    first: int


class Rules(NamedTuple):
    """How scores are made of products, and which are hidden."""
    mask: R4            # empty if there is none
    causal: bool
    scale: float


@stands_in_for(formulas.attention)
def attention(q, k, v, settings):
    B, H, T, _ = q.shape
    # In memory (B, T, H, E), so that merging heads copies nothing.
    out = np.empty((B, T, H, v.shape[3]), q.dtype).swapaxes(1, 2)
    top = np.empty((B, H, T, 1), q.dtype)
    inverse = np.empty((B, H, T, 1), q.dtype)
    attention_kernel(
        writable(q),
        _dense_rows(k),
        writable(v),
        out,
        top,
        inverse,
        *_settings(q, k, settings))
    return out, top, inverse


@stands_in_for(formulas.attention_vjp)
def attention_vjp(g, q, k, v, out, top, inverse, settings):
    gradients = tuple([np.empty(x.shape, x.dtype) for x in (q, k, v)])
    write_gradients(
        gradients,
        g,
        q,
        k,
        v,
        out,
        top,
        inverse,
        settings)
    return gradients


@stands_in_for(formulas.self_attention_vjp)
def self_attention_vjp(g, qkv, H, G, out, top, inverse, settings):
    dqkv = np.empty(qkv.shape, qkv.dtype)
    D = qkv.shape[-1] // (H + 2 * G)
    write_gradients(
        split_heads(dqkv, H, G),
        view_of_heads(g, H, D).swapaxes(1, 2),
        *split_heads(qkv, H, G),
        view_of_heads(out, H, D).swapaxes(1, 2),
        top,
        inverse,
        settings)
    return dqkv


def write_gradients(gradients, g, q, k, v, out, top, inverse, settings):
    """Write the gradients of q, k and v to three arrays, of which the last axis is dense."""
    attention_vjp_kernel(
        _dense_rows(g),
        writable(q),
        _dense_rows(k),
        _dense_rows(v),
        _dense_rows(out),
        dense(top),
        dense(inverse),
        *gradients,
        *_settings(q, k, settings))


def _dense_rows(x):
    """Return x if it is writable and its rows are dense, else a copy."""
    return writable(x) if x.strides[3] == x.itemsize else dense(x)


def _settings(q, k, settings):
    """Return the fields of `Rules` and of a `Mask`, and the number of threads."""
    mask = np.empty((0, 0, 0, 0), q.dtype) if settings.mask is None else settings.mask
    threads = threads_for(q.size * k.shape[2] // 8)
    return mask, settings.causal, settings.scale, *mask_of(settings.drop), threads


@kernel
@allocating
def attention_kernel(thread, threads, heads: Heads, values: Values, rules: Rules, drop: Mask):
    _, H, T, D = heads.q.shape
    B, G, S, E = heads.v.shape
    out = values.out
    # A block of few queries leaves vectors as they are: zeros, or what other queries left.  Lanes
    # that are no query's cost no time then, and reach no result, as each query has its own.
    room = Room(
        np.empty((S, D), out.dtype),
        panels(S, E, out),
        panels(D, QUERIES, out),
        block(S, out),
        block(2, out),
        block(LANES, out),
        block(LANES, out))
    for i in share(B * G, thread, threads):
        b = i // G
        group = i % G
        copy_rows(heads.k[b, group], room.keys)
        pack_columns(heads.v[b, group], room.v_rows)
        for h in share(H, group, G):
            for first in range(0, T, QUERIES):
                attend_block(
                    Place(b, group, h, first),
                    heads,
                    values,
                    rules,
                    drop,
                    room)


@serial
def attend_block(place, heads, values, rules, drop, room):
    """Write the values of a block of queries."""
    b, group, h, first = place
    q = heads.q[b, h, first:first + QUERIES]                    # (n, D)
    real = values.out.dtype.type
    n = len(q)
    scores = room.scores
    seen, scale = score_block(
        q,
        room.keys,
        room.q_columns,
        scores,
        rules,
        place)
    for j in range(0, n, LANES):
        visible = visible_keys(j, seen, rules, place)
        exp_lanes(
            scores,
            visible,
            scale,
            room.moments,
            room.sums,
            j)
        for i in range(j, j + LANES):
            total = room.sums[0, i]
            room.moments[INVERSE, i] = real(1) / total if total != 0 else real(0)
        inverse = get(room.moments, INVERSE, j)
        store(part(values.top[b, h, first:], 0, n), j, get(room.moments, TOP, j))
        store(part(values.inverse[b, h, first:], 0, n), j, inverse)
        for s in range(visible):
            P = get(scores, s, j) * inverse
            if drop.bound > 0:
                if s % LANES == 0:
                    drop_weights(
                        room.factors,
                        drop,
                        heads,
                        place,
                        s,
                        j)
                P = P * get(room.factors, s % LANES, j)
            put(scores, s, j, P)
        rows = min(n, j + LANES)
        multiply_transposed(
            scores[:visible, j:rows],
            room.v_rows,
            values.out[b, h, first + j:first + rows])


@kernel
@allocating
def attention_vjp_kernel(thread, threads, g: A4, heads: Heads, values: Values, gradients: Heads,
                         rules: Rules, drop: Mask):
    _, H, T, E = g.shape
    B, G, S, D = heads.k.shape
    out = values.out
    room = RoomBack(
        np.empty((S, D), out.dtype),
        np.empty((S, E), out.dtype),
        panels(S, D, out),
        panels(D, QUERIES, out),
        panels(QUERIES, D, out),
        panels(E, QUERIES, out),
        panels(QUERIES, E, out),
        block(S, out),
        block(S, out),
        block(3, out),
        block(LANES, out),
        whole_vectors(S, D, out),
        whole_vectors(S, E, out))
    for i in share(B * G, thread, threads):
        b = i // G
        group = i % G
        copy_rows(heads.k[b, group], room.keys)
        copy_rows(heads.v[b, group], room.values)
        pack_columns(room.keys, room.k_rows)
        room.dk[:] = 0
        room.dv[:] = 0
        for h in share(H, group, G):
            for first in range(0, T, QUERIES):
                attend_block_vjp(
                    Place(b, group, h, first),
                    g,
                    heads,
                    values,
                    gradients.q,
                    rules,
                    drop,
                    room)
        for s in range(S):
            copy_row(part(row_of(room.dk, s), 0, D), part(gradients.k[b, group, s], 0, D))
            copy_row(part(row_of(room.dv, s), 0, E), part(gradients.v[b, group, s], 0, E))


@serial
def attend_block_vjp(place, g, heads, values, dq, rules, drop, room):
    """Write dq of a block of queries, and add to the sums of dk and dv."""
    b, group, h, first = place
    q = heads.q[b, h, first:first + QUERIES]                    # (n, D)
    g_block = g[b, h, first:first + QUERIES]                    # (n, E)
    n, E = g_block.shape
    scale = g.dtype.type(rules.scale)
    weights = room.weights
    back = room.back
    seen, score_scale = score_block(
        q,
        room.keys,
        room.q_columns,
        weights,
        rules,
        place)
    pack_columns(g_block.T, room.g_columns)
    multiply_visible(
        room.values,
        room.g_columns,
        back,
        seen,
        rules,
        place)
    for j in range(n):
        out = values.out[b, h, first + j]                       # (E,)
        room.moments[TOP, j] = values.top[b, h, first + j, 0]
        room.moments[INVERSE, j] = values.inverse[b, h, first + j, 0]
        room.moments[ALONG, j] = dot(part(g_block[j], 0, E), part(out, 0, E))
    pack_columns(q, room.q_rows)
    pack_columns(g_block, room.g_rows)
    for j in range(0, n, LANES):
        visible = visible_keys(j, seen, rules, place)
        differentiate_lanes(
            visible,
            score_scale,
            scale,
            heads,
            drop,
            room,
            place,
            j)
        rows = min(n, j + LANES)
        multiply_transposed(
            back[:visible, j:rows],
            room.k_rows,
            dq[b, h, first + j:first + rows])
    add_gradients(
        n,
        seen,
        rules,
        room,
        place)


@serial
def add_gradients(n, seen, rules, room, place):
    """Add a block's n queries' part to the sums of dk and dv."""
    begin = 0
    for j in range(0, n, LANES):        # keys from `begin` on are hidden from the queries before j
        visible = visible_keys(j, seen, rules, place)
        multiply_panels(
            room.weights[begin:visible, j:n],
            room.g_rows,
            j,
            0,
            room.dv[begin:],
            ADD)
        multiply_panels(
            room.back[begin:visible, j:n],
            room.q_rows,
            j,
            0,
            room.dk[begin:],
            ADD)
        begin = visible


@serial
def differentiate_lanes(visible, score_scale, scale, heads, drop, room, place, j):
    """Replace, for LANES queries from j on, the scores of `visible` keys in room.weights by
    dropout(P), and dP in room.back by dS * scale."""
    top = get(room.moments, TOP, j)
    inverse = get(room.moments, INVERSE, j)
    along = get(room.moments, ALONG, j)
    for s in range(visible):
        P = exp(get(room.weights, s, j) * score_scale - top) * inverse
        dropped = P
        dP = get(room.back, s, j)
        if drop.bound > 0:
            if s % LANES == 0:
                drop_weights(
                    room.factors,
                    drop,
                    heads,
                    place,
                    s,
                    j)
            factor = get(room.factors, s % LANES, j)
            dropped = P * factor
            dP = dP * factor
        put(room.weights, s, j, dropped)
        dS = P * (dP - along)
        put(room.back, s, j, dS * scale)


@allocating
def panels(depth, columns, like):
    """Return zeros for the panels that `pack_columns` makes of a (depth, columns) matrix."""
    NR = TILE_BYTES // like.itemsize
    count = ceil_div(columns, NR)
    made = on_a_line(count * depth * NR, like)
    made[:] = 0
    return made.reshape(count, depth, NR)


@allocating
def block(S, like):
    """Return room for S numbers of each query of a block."""
    return on_a_line(S * QUERIES, like).reshape(S, QUERIES)


@allocating
def whole_vectors(S, columns, like):
    """Return room for S rows, of whole vectors that hold so many columns."""
    lanes = VECTOR_BYTES // like.itemsize
    width = ceil_div(columns, lanes) * lanes
    return on_a_line(S * width, like).reshape(S, width)


@serial
def copy_rows(x, rows):
    """Copy x (S, D), whose rows are dense, to rows that follow each other."""
    D = x.shape[1]
    for s in range(len(x)):
        copy_row(part(x[s], 0, D), row_of(rows, s))


@serial
def visible_keys(j, seen, rules, place):
    """Return how many of `seen` keys the LANES queries from j on may attend to."""
    if rules.causal:
        return min(seen, place.first + j + LANES)
    return seen


@serial
def multiply_visible(a, packed, c, seen, rules, place):
    """Write the products of each of `seen` keys' rows a with a block's queries or gradients in
    `packed` to c, but for LANES queries from which a key is hidden."""
    begin = 0
    for j in range(0, QUERIES, LANES):
        visible = visible_keys(j, seen, rules, place)
        multiply_panels(
            a[begin:visible],
            packed,
            0,
            j,
            c[begin:],
            SET)
        begin = visible


@serial
def multiply_transposed(a, packed, c):
    """Compute c = a.T @ b, with b as packed by `pack_columns`.  For other widths than of whole
    vectors, this makes arrays, and counts references to them, which takes longer."""
    lanes = packed.shape[2] // NV
    if c.shape[1] % lanes == 0:
        multiply_panels(
            a.T,
            packed,
            0,
            0,
            c,
            SET)
    else:
        run_in_place(a.T, packed, c, SET)


@serial
def multiply_panels(a, packed, row, column, c, add):
    """Compute c = a @ b, or c += a @ b, as `multiply` does, from a row and a column of b's panels
    on; the rows of c are whole vectors."""
    M, depth = a.shape
    panels, room, NR = packed.shape
    lanes = NR // NV
    a_row = a.strides[0] // a.itemsize
    a_column = a.strides[1] // a.itemsize
    for panel in range(column // NR, panels):
        left = max(column, panel * NR)
        right = min(c.shape[1], panel * NR + NR)
        micro_kernel(
            part(a, 0, 0),
            a_row,
            a_column,
            MR * a_row,
            part(packed, (panel * room + row) * NR + left - panel * NR, 0),
            0,
            part(c, left, 0),
            c.strides[0] // c.itemsize,
            depth,
            add,
            M,
            (right - left) // lanes)


@serial
def score_block(q, keys, q_columns, scores, rules, place):
    """Write the products of the keys that these queries need to scores, add the mask, and set
    those of keys after the query to -inf; return how many keys, and the scale by which to multiply
    still."""
    b, _, h, first = place
    real = scores.dtype.type
    scale = real(rules.scale)
    seen = len(keys)
    if rules.causal:
        seen = min(seen, first + len(q))
    pack_columns(q.T, q_columns)
    multiply_visible(
        keys,
        q_columns,
        scores,
        seen,
        rules,
        place)
    if rules.mask.size > 0 or not scale > 0:
        for s in range(seen):
            for j in range(len(q)):
                scores[s, j] *= scale
                if rules.mask.size > 0:
                    scores[s, j] += rules.mask[b, h, first + j, s]
        scale = real(1)
    if rules.causal:
        for s in range(first, seen):
            hidden = s - first
            j = hidden // LANES * LANES
            put(scores, s, j, replace_first(get(scores, s, j), hidden - j, real(-np.inf)))
    return seen, scale


@serial
def exp_lanes(scores, visible, scale, moments, sums, j):
    """Replace, for LANES queries from j on, the scores of `visible` keys by exp(scale * scores -
    TOP), with the queries' maxima for TOP; write their sums to sums[0], added up as in
    `softmax_row`."""
    real = scores.dtype.type
    # While one maximum waits for its last comparison, the other takes its next.
    even = odd = spread(real(-np.inf))
    for s in range(0, visible - 1, 2):
        even = larger(get(scores, s, j), even)
        odd = larger(get(scores, s + 1, j), odd)
    if visible % 2 == 1:
        even = larger(get(scores, visible - 1, j), even)
    top = larger(larger(even, odd) * scale, spread(np.finfo(scores.dtype).min))
    put(moments, TOP, j, top)
    for i in range(LANES):
        put(sums, i, j, spread(real(0)))
    for s in range(visible):
        e = exp(get(scores, s, j) * scale - top)
        put(scores, s, j, e)
        put(sums, s % LANES, j, get(sums, s % LANES, j) + e)
    half = LANES
    while half > 1:
        half //= 2
        for i in range(half):
            put(sums, i, j, get(sums, i, j) + get(sums, half + i, j))


@serial
def drop_weights(factors, drop, heads, place, s, j):
    """Write what dropout multiplies the weights of LANES keys and LANES queries by, from key s and
    query j on."""
    b, _, h, first = place
    real = factors.dtype.type
    _, H, T, _ = heads.q.shape
    S = heads.k.shape[2]
    start = ((b * H + h) * T + first + j) * S + s       # among the weights of all
    for i in range(LANES):
        for query in range(LANES):
            kept = keeps(drop, start + query * S + i)
            factors[i, j + query] = real(drop.scale) if kept else real(0)


@inlined
def get(x, s, j):
    """Return the numbers of LANES queries, from j on, in row s of a block."""
    return load(part(x, s * QUERIES + j, LANES), 0, 0)      # which tests for no row's end


@inlined
def put(x, s, j, lanes):
    store(part(x, s * QUERIES + j, LANES), 0, lanes)
