"""Sampling with a KV cache: more characters for each of B sequences; and drawing one of them.

A call reads T characters in a step: one where a text goes on, or a window that is read anew.  Then
it may draw further ones, a character a step, without returning to Python.

How it runs: weights, keys and values are stored in panels, so that a step reads each of them once,
from one end to the other; all sequences share what is read.  A matrix (K, P) in panels is (panels,
K, NR): panel i holds the columns from i NR on, and zeros fill the last one.  Matrices of weights
may be packed, each in its own way (see `packed`).  A layer has five stages.  In each of them,
threads share the panels of a product, or the heads; they are started once for all stages, since
starting them may take longer than a stage.  Every sum is taken in the same order as in the training
kernels, so that the logits are equal to the last bit.

Drawing is in float64, whatever the logits are.  A temperature of 0 takes the likeliest.
"""
import heapq
import math
from typing import NamedTuple

import numpy as np

from minigrad import random
from minigrad.formulas import SWIGLU
from minigrad.kernels.compiler.compiling import (C2, C3, C6, D1, D2, FEW, I1, I2, dense, kernel,
                                                 stands_in_for, threads_for)
from minigrad.kernels.compiler.lanes import LANES, array_at, largest, part
from minigrad.kernels.compiler.linking import allocating, serial
from minigrad.kernels.compiler.parallel import in_stages, on_threads, share
from minigrad.kernels.compiler.tiles import MR, NV, TILE_BYTES, WIDE, micro_kernel
from minigrad.kernels.elementwise import activate, gate_row
from minigrad.kernels.embedding import add_row, rows_at
from minigrad.kernels.matmul import KC, copy_row
from minigrad.kernels.packed import (ADDRESS, DEPTH, MULTIPLY, PANELS, SIZE, UNPACK, WORDS,
                                     call_packed)
from minigrad.kernels.rows import norm_head, normalise, rotate_row, softmax_row

QKV, ATTEND, OUT, UP, DOWN, HEAD = range(6)     # stages of a step: five in each layer, the last,
STAGES = HEAD                                   # and before them the embedding
GATE = ATTEND       # whose place in the table of matrices is free


class Weights(NamedTuple):
    """Of L layers, with F channels inside an MLP.

    `matrices` is a table of the matrices (inputs, outputs) in panels; `packed` names its columns.
    Its rows: for each layer QKV, GATE (of no panels, if there is none), OUT, UP and DOWN; and last
    the output's matrix and the token table, which may be the same panels.
    """
    gains: C2       # of the norms, (2 L + 1, C): two for each layer, and the last
    shifts: C2      # of the norms
    biases: C2      # of qkv, the gate (if there is one), out, up and down, side by side, (L, ...)
    matrices: I2
    ngrams: C2      # embeddings, (rows, C)


class Cache(NamedTuple):
    """What belongs to the S positions for which there is room."""
    cos: C2         # of the rotary angles, (S, D / 2); (S, 0) without rotation
    sin: C2
    positions: C2   # embeddings, (S, C); (0, C) for none
    keys: C6        # (L, B, groups, D, S) in panels; those of what is read are stored
    values: C6      # (L, B, groups, S, D) in panels
    ids: I2         # the characters, (B, S + 1); those that are drawn are stored


class Options(NamedTuple):
    """Of a model."""
    V: int
    longest: int    # characters of the longest n-gram; 1 if there are none
    eps: float      # added to the mean square by the norms
    qk_eps: float   # the same by the norms of queries and keys; 0 if there are none
    centred: bool   # whether the norms subtract the mean, as the layer norm does
    activation: int     # one of the numbers that `formulas` names


class Draw(NamedTuple):
    """How a character is drawn for each column of u, (B, n), as `random.draw` does it."""
    u: D2
    temperature: float
    kept: int
    top_p: float


class Scratch(NamedTuple):
    """Memory of a step; each thread has its own of `normed`, `scores`, `mix` and `unpacked`."""
    x: C2
    mixed: C2
    wide: C2
    logits: C2
    normed: C3
    scores: C3
    mix: C3
    unpacked: C2
    rows: I2
    p: D2


def decode(weights: Weights, cache: Cache, options: Options, T: int, t: int, u: np.ndarray,
           temperature: float = 0.0, top_k: int | None = None, top_p: float | None = None
           ) -> np.ndarray:
    """Read T characters, the first at position t, and return the logits (B, V) after the last; or
    draw as many characters as there are columns of u, (B, n), and return the logits of the last of
    them.  The settings of drawing are those of `random.draw`."""
    B, dtype, u = len(cache.ids), weights.gains.dtype, dense(u)
    NR = TILE_BYTES // dtype.itemsize
    *layers, head, _ = weights.matrices[:, PANELS] * NR
    logits = np.empty((B, head), dtype)         # whole panels
    # Twice FEW for each thread, as all of them wait for each other after each stage of each layer.
    steps = int(layers @ weights.matrices[:-2, DEPTH]) * T * B // 16
    decode_kernel(*weights, *cache, *options, u, temperature, *limits(options.V, top_k, top_p),
                  logits, T, t, min(threads_for(steps, 1), 1 + steps // (2 * FEW)))
    return logits[:, :options.V]


@kernel
def decode_kernel(weights: Weights, cache: Cache, options: Options, draw: Draw, logits: C2, T: int,
                  t: int, threads: int):
    B, (L, _), C, real = len(logits), weights.biases.shape, weights.gains.shape[1], logits.dtype
    NR, panels = cache.keys.shape[5], weights.matrices[:, PANELS]
    N, n, S, D = B * T, draw.u.shape[1], cache.keys.shape[3] * NR, cache.keys.shape[4]
    scratch = Scratch(
        np.empty((N, C), real), np.empty((N, panels[OUT] * NR), real),
        np.empty((N, max(panels[QKV], panels[GATE] + panels[UP]) * NR), real), logits,
        np.empty((threads, N, C), real), np.empty((threads, T, whole_lanes(S)), real),
        np.empty((threads, T, cache.values.shape[3] * NR), real),
        np.empty((threads, KC * NR), real),
        np.empty((B, options.longest - 1), np.int64), np.empty((B, options.V)))
    stages = max(1, n) * (STAGES * L + 2) + (n > 0)             # and the last to draw
    begun, done = np.zeros((stages, threads), np.int64), np.zeros(stages, np.int64)
    on_threads(threads, run_stage, begun, done,
               (weights, cache, options, draw, scratch, T, t, D ** -0.5))


@in_stages
@serial
def run_stage(part, parts, stage, work):
    """Run a part of a stage: of the embedding, of a layer's five, or of the head."""
    weights, cache, options, draw, scratch, T, t, scale = work
    L = len(weights.biases)
    of_a_step = STAGES * L + 2
    step, stage = stage // of_a_step, stage % of_a_step
    if step > 0:                        # what was drawn is read, a character a step
        t, T = t + T + step - 1, 1
    if stage == 0:
        draw_and_embed(part, parts, step, t, T, weights, cache, draw, scratch)
        return
    layer, stage = (stage - 1) // STAGES, (stage - 1) % STAGES
    B, groups = len(cache.ids), cache.keys.shape[2]
    if stage == ATTEND:
        for i in share(B * groups, part, parts):
            attend(i // groups, i % groups, layer, T, t, scale, weights, cache, options, scratch,
                   part)
    elif layer == L:
        normalise_rows(B, T, 2 * layer, part, weights, options, scratch)
        multiply(scratch.normed[part, :B], weights, layer * STAGES, scratch.logits, 0,
                 scratch.unpacked[part], part, parts)
    else:
        multiply_stage(part, parts, stage, layer, B * T, weights, options, scratch)


@serial
def draw_and_embed(part, parts, step, t, T, weights, cache, draw, scratch):
    V = scratch.p.shape[1]
    for b in share(len(cache.ids), part, parts):
        if step > 0:
            cache.ids[b, t] = draw_one(scratch.logits[b, :V], draw.u[b, step - 1], scratch.p[b],
                                       draw.temperature, draw.kept, draw.top_p)
        for i in range(T if step == 0 or step < draw.u.shape[1] else 0):
            embed(cache.ids[b], t + i, weights, cache, scratch.rows[b], scratch.unpacked[part],
                  scratch.x[b * T + i])


@serial
def multiply_stage(part, parts, stage, layer, N, weights, options, scratch):
    """Run a part of one of a layer's four products, and of what follows it."""
    x, mixed, wide, normed = (scratch.x[:N], scratch.mixed[:N], scratch.wide[:N],
                              scratch.normed[part, :N])
    biases, first_row, unpacked = weights.biases[layer], layer * STAGES, scratch.unpacked[part]
    C, F, gated = x.shape[1], weights.matrices[DOWN, DEPTH], options.activation == SWIGLU
    G = F if gated else 0
    W = biases.size - G - C - F - C
    if stage == QKV:
        normalise_rows(N, 1, 2 * layer, part, weights, options, scratch)
        project(normed, weights, first_row + QKV, wide, 0, biases[:W], unpacked, part, parts)
    elif stage == OUT or stage == DOWN:
        a, c, at = (mixed, wide, W + G) if stage == OUT else (wide, mixed, biases.size - C)
        first, last = project(a, weights, first_row + stage, c, 0, biases[at:at + C], unpacked,
                              part, parts)
        for r in range(N):
            add_row(c[r, first:last], x[r, first:last])
    else:
        normalise_rows(N, 1, 2 * layer + 1, part, weights, options, scratch)
        at, beyond = W + G + C, weights.matrices[GATE, PANELS] * (TILE_BYTES // x.itemsize)
        first, last = project(normed, weights, first_row + UP, wide, beyond, biases[at:at + F],
                              unpacked, part, parts)
        if gated:       # its columns of `wide` come before those of what it multiplies
            project(normed, weights, first_row + GATE, wide, 0, biases[W:W + F], unpacked, part,
                    parts)
        for r in range(N):
            row = wide[r, first:last]
            if gated:
                gate_row(row, wide[r, beyond + first:beyond + last], row)
            else:
                activate(row, options.activation, row)


@serial
def normalise_rows(count, every, norm, part, weights, options, scratch):
    """Write the norm of each row of x, or of the last of `every` rows, to a thread's memory."""
    for r in range(count):
        normalise(scratch.x[(r + 1) * every - 1], weights.gains[norm], weights.shifts[norm],
                  options.eps, options.centred, scratch.normed[part, r])


@serial
def project(a, weights, matrix, c, c_at, bias, unpacked, part, parts):
    """Write a thread's columns of a @ b + bias, for b a matrix of weights, to c from column c_at
    on; return the first and the end of those that a bias has."""
    first, last = multiply(a, weights, matrix, c, c_at, unpacked, part, parts)
    last = min(last, bias.size)
    for r in range(len(a)):
        add_row(bias[first:last], c[r, c_at + first:c_at + last])
    return first, last


@serial
def embed(ids, s, weights, cache, rows, unpacked, x):
    """Write the input of the first block for the character at position s, summed as the model's
    `embed` sums it."""
    positions, NR = cache.positions, TILE_BYTES // x.itemsize
    x[:] = 0
    rows_at(ids, s, len(weights.ngrams), rows)
    for i in range(rows.size):
        add_row(weights.ngrams[rows[i]], x)
    table = len(weights.matrices) - 1
    unpack = weights.matrices[table, UNPACK]
    for begin in range(0, x.size, KC):
        b, count = rows_of(weights, table, ids[s] // NR, begin), min(KC, x.size - begin)
        if unpack:
            call_packed(unpack, b, b, unpacked, count)
            b = unpacked
        for c in range(count):
            x[begin + c] += b[c * NR + ids[s] % NR]
    if positions.size:
        add_row(positions[s], x)


@serial
def multiply(a, weights, matrix, c, c_at, unpacked, thread, threads):
    """Write a thread's columns of a @ b, for b a matrix of weights, to c from column c_at on;
    return the first and the end."""
    NR, row = TILE_BYTES // c.itemsize, weights.matrices[matrix]
    first, last = thread * row[PANELS] // threads, (thread + 1) * row[PANELS] // threads
    depth = row[DEPTH]
    cut = depth if len(a) == 1 else KC
    if not row[UNPACK]:
        product(a, rows_of(weights, matrix, 0, 0), depth * NR, depth, c, c_at, first, last)
        return first * NR, last * NR
    for panel in range(first, last):
        columns = part(c, c_at + panel * NR, 0)
        for begin in range(0, depth, cut):
            b, count = rows_of(weights, matrix, panel, begin), min(cut, depth - begin)
            if len(a) == 1:
                call_packed(row[MULTIPLY], a, b, columns, count)
            else:
                call_packed(row[UNPACK], a, b, unpacked, count)
                micro_kernel(part(a, begin, 0), a.strides[0] // a.itemsize, 1, unpacked, 0, columns,
                             c.strides[0] // c.itemsize, count, begin > 0, len(a), NV)
    return first * NR, last * NR


@serial
def rows_of(weights, matrix, panel, begin):
    """Return the rows of a panel of a matrix of weights from row `begin` on, as floats: what is
    packed looks like fewer of them."""
    row, NR = weights.matrices[matrix], TILE_BYTES // weights.gains.itemsize
    place = (panel * row[DEPTH] + begin) // row[SIZE] * row[WORDS]
    return array_at(weights.matrices, matrix, ADDRESS, place * NR, row[DEPTH] * NR, weights.gains)


@serial
def product(a, b, panel_size, depth, c, c_at, first, last):
    """Write some panels' columns of a @ b to c from column c_at on.

    b is in panels of so many floats; a and c have dense rows; c has room for whole panels; a and b
    may be deeper than depth.  The depth of many rows is cut as in `matmul`, so that a panel stays
    in the first-level cache.
    """
    NR = TILE_BYTES // c.itemsize
    a_row, c_row = a.strides[0] // a.itemsize, c.strides[0] // c.itemsize
    at_once = WIDE // NV if len(a) == 1 else 1
    cut = KC if len(a) > MR else depth
    for begin in range(0, depth, cut):
        for panel in range(first, last, at_once):
            micro_kernel(part(a, begin, 0), a_row, 1,
                         part(b, panel * panel_size + begin * NR, 0), panel_size,
                         part(c, c_at + panel * NR, 0), c_row, min(cut, depth - begin), begin > 0,
                         len(a), NV * min(at_once, last - panel))


@serial
def attend(b, group, layer, T, t, scale, weights, cache, options, scratch, part):
    """Store a group's keys and values from position t on, and write its queries' output to
    `mixed`."""
    qkv, mixed = scratch.wide, scratch.mixed
    keys, values = cache.keys[layer, b, group], cache.values[layer, b, group]
    scores, mix = scratch.scores[part, :T], scratch.mix[part, :T]
    (_, D, NR), groups = keys.shape, cache.keys.shape[2]
    H = weights.matrices[OUT, DEPTH] // D
    key, value = (H + group) * D, (H + groups + group) * D      # where they begin
    for i in range(T):
        row, s = qkv[b * T + i], t + i
        turn_and_norm(row[key:key + D], s, cache, options)
        for d in range(D):
            keys[s // NR, d, s % NR] = row[key + d]
            values[d // NR, s, d % NR] = row[value + d]
    for h in range(group * (H // groups), (group + 1) * (H // groups)):
        queries = qkv[b * T:(b + 1) * T, h * D:]
        for i in range(T):
            turn_and_norm(queries[i, :D], t + i, cache, options)
        product(queries, keys, D * NR, D, scores, 0, 0, (t + T - 1) // NR + 1)
        for i in range(T):
            row = scores[i, :whole_lanes(t + i + 1)]
            weights_of(row, row.dtype.type(scale), t + i + 1)
            scores[i, row.size:t + T] = 0
        product(scores, values, values.shape[1] * NR, t + T, mix, 0, 0, len(values))
        for i in range(T):
            copy_row(mix[i, :D], mixed[b * T + i, h * D:])


@serial
def turn_and_norm(head, s, cache, options):
    if cache.cos.size:
        rotate_row(head, cache.cos[s], cache.sin[s], head)
    if options.qk_eps > 0:
        norm_head(head, options.qk_eps)


@serial
def whole_lanes(n):
    """Round n up to a multiple of LANES, so that no loop has a remainder."""
    return (n + LANES - 1) // LANES * LANES


@serial
def weights_of(row, scale, visible):
    """Make weights of the products q . k of a query, of which the last visible one is with its own
    key: scaled, then their softmax; all 0 where every score is -inf."""
    for s in range(row.size):
        row[s] *= scale
    for s in range(visible, row.size):
        row[s] = -np.inf
    top = largest(row)
    if top == -np.inf:
        row[:] = 0
    else:
        softmax_row(row, top, row)


def pack(b: np.ndarray) -> np.ndarray:
    """Pack (..., K, P) -> (..., panels, K, NR), a copy."""
    packed = empty_panels(*b.shape, dtype=b.dtype)
    NR = packed.shape[-1]
    for i in range(packed.shape[-3]):
        part = b[..., i * NR:(i + 1) * NR]
        packed[..., i, :, :part.shape[-1]] = part
    return packed


def empty_panels(*shape: int, dtype: type) -> np.ndarray:
    """Return panels of zeros with room for a matrix (..., K, P)."""
    *lead, K, P = shape
    NR = TILE_BYTES // np.dtype(dtype).itemsize
    return np.zeros((*lead, math.ceil(P / NR), K, NR), dtype)


@stands_in_for(random.draw)
def draw(logits: np.ndarray, u: np.ndarray, temperature: float, top_k: int | None,
         top_p: float | None) -> tuple[np.ndarray, np.ndarray]:
    if u.shape != logits.shape[:1]:
        raise ValueError(f"{len(logits)} rows of logits need as many numbers u, "
                         f"not {list(u.shape)}")
    drawn, p, u = np.empty(len(logits), np.int64), np.empty(logits.shape), dense(u)
    draw_kernel(dense(logits), u, drawn, p, temperature, *limits(logits.shape[1], top_k, top_p))
    return drawn, p


def limits(V: int, top_k: int | None, top_p: float | None) -> tuple[int, float]:
    """Return how many of the likeliest ids are kept, and top_p."""
    return min(V, top_k or V), 1.0 if top_p is None else top_p


@kernel
def draw_kernel(logits: C2, u: D1, drawn: I1, p: D2, temperature: float, kept: int, top_p: float):
    for b in range(len(logits)):
        drawn[b] = draw_one(logits[b], u[b], p[b], temperature, kept, top_p)


@allocating
def draw_one(logits, u, p, temperature, kept, top_p):
    """Return the id drawn, and write the probabilities to p."""
    top, V = 0, logits.size
    p[:] = 0
    for i in range(V):
        if not logits[i] < np.inf:      # nan too
            return -1
        if logits[i] > logits[top]:
            top = i
    if logits[top] == -np.inf:
        return -1
    if temperature == 0:
        p[top] = 1
        return top
    # The likeliest comes first, and of equal ones the lower id.
    heap = [(-logits[i], i) for i in range(V if kept < V or top_p < 1 else 0)]
    heapq.heapify(heap)
    ranked = [heapq.heappop(heap)[1] for _ in range(kept if kept < V else 0)]
    total = 0.0
    for n in range(kept):
        i = ranked[n] if kept < V else n
        p[i] = math.exp((np.float64(logits[i]) - np.float64(logits[top])) / temperature)
        total += p[i]
    if top_p < 1:
        n, reached = 0, 0.0
        while n < kept and reached < top_p * total:
            if n == len(ranked):
                ranked.append(heapq.heappop(heap)[1])
            reached += p[ranked[n]]
            n += 1
        for i in ranked[n:]:
            p[i] = 0
        for _, i in heap:
            p[i] = 0
        total = reached
    drawn, reached = top, 0.0           # the last id, if rounding leaves the total below u
    for i in range(V):
        p[i] /= total
        if p[i] > 0 and reached <= u:
            drawn = i
        reached += p[i]
    return drawn
