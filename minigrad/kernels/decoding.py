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
from minigrad.kernels.compiler.compiling import (C1, C2, C3, C6, D2, FEW, I1, I2, dense,
                                                 kernel, stands_in_for, threads_for)
from minigrad.kernels.compiler.lanes import LANES, array_at, largest, part
from minigrad.kernels.compiler.linking import allocating, serial
from minigrad.kernels.compiler.parallel import in_stages, on_threads, share
from minigrad.kernels.compiler.tiles import MR, NV, TILE_BYTES, WIDE, micro_kernel
from minigrad.kernels.elementwise import activate, gate_row
from minigrad.kernels.embedding import add_row, rows_at
from minigrad.kernels.matmul import KC, ceil_div, copy_row
from minigrad.kernels.packed import (ADDRESS, BIAS, DEPTH, END, MULTIPLY, NEXT, PANELS, SIZE,
                                     UNPACK, WORDS, call_packed)
from minigrad.kernels.rows import norm_head, normalise, rotate_row, softmax_row

QKV, ATTEND, OUT, UP, DOWN, HEAD = range(6)     # stages of a step: five in each layer, the last,
STAGES = HEAD                                   # and before them the embedding
GATE = ATTEND       # whose place in the table of matrices is free


class Weights(NamedTuple):
    """Of L layers, with F channels inside an MLP.

    `matrices` is a table of the matrices (inputs, outputs) in panels; `packed` names its columns.
    Its rows: for each layer QKV, GATE (of no panels, if there is none), OUT, UP and DOWN; the
    output's matrix; further parts of all these; and last the token table, which may be the same
    panels as the output's matrix.
    """
    gains: C2       # of the norms, (2 L + 1, C): two for each layer, and the last
    shifts: C2      # of the norms
    biases: C1      # of one matrix after another, for whole panels
    matrices: I2
    ngrams: C2      # embeddings, (rows, C)
    heads: C3       # gains of the norms of queries and keys, (L, 2, D); (L, 2, 0) if they have none


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
    activation: int     # by `elementwise.NUMBER_OF`


class Draw(NamedTuple):
    """How a character is drawn for each column of u, (B, n), as `random.draw` does it."""
    u: D2
    temperature: float
    kept: int
    top_p: float


class Scratch(NamedTuple):
    """Memory of a step for N rows, of T characters of B sequences.  Each thread has its own of
    `normed`, `scores`, `mix` and `unpacked`.  Rows that a product writes have room for whole
    panels."""
    x: C2           # (N, C)
    mixed: C2       # (N, C) or (N, H D), whichever is wider
    wide: C2        # (N, the most columns)
    logits: C2      # (B, V)
    normed: C3      # (threads, N, C)
    scores: C3      # (threads, T, S)
    mix: C3         # (threads, T, D)
    unpacked: C2    # (threads, KC NR)
    rows: I2        # of n-grams, (B, n - 1)
    p: D2           # (B, V)


class Work(NamedTuple):
    """What every stage is given."""
    weights: Weights
    cache: Cache
    options: Options
    draw: Draw
    scratch: Scratch
    T: int          # characters of the first step
    t: int          # the position of its first


def decode(weights: Weights, cache: Cache, options: Options, T: int, t: int, u: np.ndarray,
           *settings: float | None) -> np.ndarray:
    """Read T characters, the first at position t, and return the logits (B, V) after the last; or
    draw as many characters as there are columns of u, (B, n), and return the logits of the last of
    them.  The settings are those of `random.draw`, and may be left out if nothing is drawn."""
    B = len(cache.ids)
    dtype = weights.gains.dtype
    L = len(cache.keys)
    columns = weights.matrices[:, PANELS] * (TILE_BYTES // dtype.itemsize)
    layers = weights.matrices[:L * STAGES]
    logits = np.empty((B, columns[len(layers)]), dtype)
    # Twice FEW for each thread, as all of them wait for each other after each stage of each layer.
    steps = int(columns[:len(layers)] @ layers[:, DEPTH]) * T * B // 16
    threads = min(threads_for(steps, 1), 1 + steps // (2 * FEW))
    decode_kernel(*weights, *cache, *options, *draw_of(options.V, u, *settings), logits, T, t,
                  threads)
    return logits[:, :options.V]


@kernel
@allocating
def decode_kernel(weights: Weights, cache: Cache, options: Options, draw: Draw, logits: C2, T: int,
                  t: int, threads: int):
    B = len(logits)
    N = B * T
    L = len(cache.keys)
    C = weights.gains.shape[1]
    NR = cache.keys.shape[5]
    S = cache.keys.shape[3] * NR
    real = logits.dtype
    panels = weights.matrices[:, PANELS]
    widest = max(panels[QKV], panels[OUT], panels[GATE] + panels[UP])
    channels = max(panels[OUT] * NR, weights.matrices[OUT, DEPTH])      # H D may be more than C
    scratch = Scratch(
        np.empty((N, C), real),
        np.empty((N, channels), real),
        np.empty((N, widest * NR), real),
        logits,
        np.empty((threads, N, C), real),
        np.empty((threads, T, whole_lanes(S)), real),
        np.empty((threads, T, cache.values.shape[3] * NR), real),
        np.empty((threads, KC * NR), real),
        np.empty((B, options.longest - 1), np.int64),
        np.empty((B, options.V)))
    n = draw.u.shape[1]
    stages = max(1, n) * (STAGES * L + 2) + (n > 0)             # and the last to draw
    begun = np.zeros((stages, threads), np.int64)
    done = np.zeros(stages, np.int64)
    on_threads(threads, run_stage, begun, done,
               Work(weights, cache, options, draw, scratch, T, t))


@in_stages
@serial
def run_stage(part, parts, stage, work):
    """Run a part of a stage: of the embedding, of a layer's five, or of the head."""
    L = len(work.cache.keys)
    B = len(work.cache.ids)
    step = stage // (STAGES * L + 2)
    stage = stage % (STAGES * L + 2)
    T = work.T
    t = work.t
    if step > 0:                        # what was drawn is read, a character a step
        t = t + T + step - 1
        T = 1
    if stage == 0:
        for b in share(B, part, parts):
            draw_and_embed(b, step, T, t, part, work)
        return
    layer = (stage - 1) // STAGES
    stage = (stage - 1) % STAGES
    if stage == ATTEND:
        groups = work.cache.keys.shape[2]
        for i in share(B * groups, part, parts):
            attend(i // groups, i % groups, layer, T, t, part, work)
    elif layer < L:
        multiply_stage(stage, layer, B * T, part, parts, work)
    else:
        scratch = work.scratch
        normalise_rows(B, T, 2 * L, work.weights, work.options, scratch.x, scratch.normed[part])
        multiply(scratch.normed[part, :B], work.weights, L * STAGES, scratch.logits, 0,
                 scratch.unpacked[part], part, parts)


@serial
def draw_and_embed(b, step, T, t, part, work):
    """Draw a character of a sequence after the first step; embed what is to be read."""
    ids = work.cache.ids[b]
    draw = work.draw
    scratch = work.scratch
    if step > 0:
        p = scratch.p[b]
        ids[t] = draw_one(scratch.logits[b, :p.size], b, step - 1, draw, p)
        if step == draw.u.shape[1]:
            return
    for i in range(T):
        embed(ids, t + i, work.weights, work.cache, scratch.rows[b], scratch.unpacked[part],
              scratch.x[b * T + i])


@serial
def multiply_stage(stage, layer, N, part, parts, work):
    """Run a part of one of a layer's four products, and of what follows it."""
    weights = work.weights
    options = work.options
    scratch = work.scratch
    x = scratch.x[:N]                                           # (N, C)
    normed = scratch.normed[part, :N]
    mixed = scratch.mixed[:N]
    wide = scratch.wide[:N]
    unpacked = scratch.unpacked[part]
    matrix = layer * STAGES + stage
    if stage == QKV:
        normalise_rows(N, 1, 2 * layer, weights, options, x, normed)
        project(normed, weights, matrix, wide, 0, unpacked, part, parts)
    elif stage == UP:
        normalise_rows(N, 1, 2 * layer + 1, weights, options, x, normed)
        widen(normed, weights, matrix, wide, unpacked, part, parts, options.activation)
    else:
        a = mixed
        c = wide
        if stage == DOWN:
            a = wide
            c = mixed
        left, right = project(a, weights, matrix, c, 0, unpacked, part, parts)
        for r in range(N):              # x may have fewer columns
            add_row(c[r, left:right], x[r, left:right])


@serial
def widen(x, weights, matrix, wide, unpacked, part, parts, activation):
    """Write the hidden channels of an MLP, whose matrix UP is given."""
    gate = matrix - UP + GATE
    panels = weights.matrices[gate, PANELS]
    beyond = panels * (TILE_BYTES // x.itemsize)        # columns of `wide` that the gate has
    if panels > 0:
        project(x, weights, gate, wide, 0, unpacked, part, parts)
    left, right = project(x, weights, matrix, wide, beyond, unpacked, part, parts)
    for r in range(len(x)):
        row = wide[r, left:right]
        if panels > 0:
            gate_row(row, wide[r, beyond + left:beyond + right], row)
        else:
            activate(row, activation, row)


@serial
def normalise_rows(count, every, norm, weights, options, x, normed):
    """Write the norm of each row of x, or of the last of `every` rows."""
    for r in range(count):
        normalise(x[(r + 1) * every - 1], weights.gains[norm], weights.shifts[norm], options.eps,
                  options.centred, normed[r])


@serial
def project(a, weights, matrix, c, c_at, unpacked, thread, threads):
    """Write a thread's columns of a @ b + bias, for b a matrix of weights, to c from column c_at
    on; return the first and the end."""
    left, right = multiply(a, weights, matrix, c, c_at, unpacked, thread, threads)
    bias = part(weights.biases, weights.matrices[matrix, BIAS] + left, right - left)
    for r in range(len(a)):
        add_row(bias, c[r, c_at + left:c_at + right])
    return left, right


@serial
def embed(ids, s, weights, cache, rows, unpacked, x):
    """Write the input of the first block for the character at position s, summed as the model's
    `embed` sums it."""
    x[:] = 0
    rows_at(ids, s, len(weights.ngrams), rows)
    for i in range(rows.size):
        add_row(weights.ngrams[rows[i]], x)
    NR = TILE_BYTES // x.itemsize
    panel = ids[s] // NR
    column = ids[s] % NR
    tokens = part_with(weights, len(weights.matrices) - 1, panel)
    for begin in range(0, x.size, KC):
        count = min(KC, x.size - begin)
        b = rows_of(weights, tokens, panel, begin)
        if weights.matrices[tokens, UNPACK]:
            call_packed(weights.matrices, tokens, UNPACK, b, b, unpacked, count)
            b = unpacked
        for c in range(count):
            x[begin + c] += b[c * NR + column]
    if cache.positions.size:
        add_row(cache.positions[s], x)


@serial
def multiply(a, weights, matrix, c, c_at, unpacked, thread, threads):
    """Write a thread's columns of a @ b, for b a matrix of weights, to c from column c_at on;
    return the first and the end."""
    row = weights.matrices[matrix]
    depth = row[DEPTH]
    NR = TILE_BYTES // c.itemsize
    panels = share(row[PANELS], thread, threads)
    if not row[UNPACK]:
        product(a, rows_of(weights, matrix, 0, 0), depth * NR, depth, c, c_at, panels)
        return panels.start * NR, panels.stop * NR
    cut = depth if len(a) == 1 else KC
    for panel in panels:
        columns = part(c, c_at + panel * NR, 0)
        matrix = part_with(weights, matrix, panel)
        for begin in range(0, depth, cut):
            count = min(cut, depth - begin)
            b = rows_of(weights, matrix, panel, begin)
            if len(a) == 1:
                call_packed(weights.matrices, matrix, MULTIPLY, a, b, columns, count)
            else:
                call_packed(weights.matrices, matrix, UNPACK, a, b, unpacked, count)
                micro_kernel(part(a, begin, 0), row_size(a), 1, MR * row_size(a), unpacked, 0,
                             columns, row_size(c), count, begin > 0, len(a), NV)
    return panels.start * NR, panels.stop * NR


@serial
def part_with(weights, matrix, panel):
    """Return the row of the table for the part of a matrix that has a panel."""
    while panel >= weights.matrices[matrix, END]:
        matrix = weights.matrices[matrix, NEXT]
    return matrix


@serial
def row_size(x):
    """Return how far the rows of an array are apart, in numbers."""
    return x.strides[0] // x.itemsize


@serial
def rows_of(weights, matrix, panel, begin):
    """Return the rows of a panel of a matrix of weights from row `begin` on, as floats: what is
    packed looks like fewer of them."""
    row = weights.matrices[matrix]
    NR = TILE_BYTES // weights.gains.itemsize
    block = (panel * row[DEPTH] + begin) // row[SIZE]
    return array_at(weights.matrices, matrix, ADDRESS, block * row[WORDS] * NR, row[DEPTH] * NR,
                    weights.gains)


@serial
def product(a, b, panel_size, depth, c, c_at, panels):
    """Write some panels' columns of a @ b to c from column c_at on.

    b is in panels of so many floats; a and c have dense rows; c has room for whole panels; a and b
    may be deeper than depth.  The depth of many rows is cut as in `matmul`, so that a panel stays
    in the first-level cache.
    """
    NR = TILE_BYTES // c.itemsize
    at_once = WIDE // NV if len(a) == 1 else 1
    cut = KC if len(a) > MR else depth
    for begin in range(0, depth, cut):
        end = min(begin + cut, depth)
        for panel in range(panels.start, panels.stop, at_once):
            vectors = NV * min(at_once, panels.stop - panel)
            micro_kernel(part(a, begin, 0), row_size(a), 1, MR * row_size(a),
                         part(b, panel * panel_size + begin * NR, 0), panel_size,
                         part(c, c_at + panel * NR, 0), row_size(c), end - begin, begin > 0, len(a),
                         vectors)


@serial
def attend(b, group, layer, T, t, thread, work):
    """Store a group's keys and values from position t on, and write its queries' output to
    `mixed`."""
    cache = work.cache
    scratch = work.scratch
    keys = cache.keys[layer, b, group]                          # (panels, D, NR)
    values = cache.values[layer, b, group]                      # (panels, S, NR)
    _, D, NR = keys.shape
    G = cache.keys.shape[2]
    H = work.weights.matrices[OUT, DEPTH] // D
    qkv = scratch.wide[b * T:(b + 1) * T]
    mixed = scratch.mixed[b * T:(b + 1) * T]
    scores = scratch.scores[thread, :T]
    mix = scratch.mix[thread, :T]
    scale = scores.dtype.type(D ** -0.5)
    gains = work.weights.heads[layer]
    for i in range(T):
        s = t + i
        key = head_of(qkv, i, H + group, D)
        value = head_of(qkv, i, H + G + group, D)
        turn_and_norm(key, gains[1], s, cache, work.options)
        for d in range(D):
            keys[s // NR, d, s % NR] = key[d]
            values[d // NR, s, d % NR] = value[d]
    for h in share(H, group, G):
        for i in range(T):
            turn_and_norm(head_of(qkv, i, h, D), gains[0], t + i, cache, work.options)
        product(qkv[:, h * D:], keys, D * NR, D, scores, 0, range((t + T - 1) // NR + 1))
        for i in range(T):
            visible = t + i + 1
            row = scores[i, :whole_lanes(visible)]
            weights_of(row, visible, scale)
            scores[i, row.size:t + T] = 0
        product(scores, values, values.shape[1] * NR, t + T, mix, 0, range(len(values)))
        for i in range(T):
            copy_row(mix[i, :D], mixed[i, h * D:])


@serial
def head_of(x, i, h, D):
    """Return head h of row i."""
    return part(x, i * x.shape[1] + h * D, D)


@serial
def turn_and_norm(head, gains, s, cache, options):
    """Rotate a head and norm it.  With gains, which are of channels, the norm comes first."""
    if gains.size:
        norm_head(head, options.qk_eps)
        for d in range(head.size):
            head[d] *= gains[d]
    if cache.cos.size:
        rotate_row(head, cache.cos[s], cache.sin[s], head)
    if options.qk_eps > 0 and not gains.size:
        norm_head(head, options.qk_eps)


@serial
def whole_lanes(n):
    """Round n up to a multiple of LANES, so that no loop has a remainder."""
    return ceil_div(n, LANES) * LANES


@serial
def weights_of(row, visible, scale):
    """Make weights of the products q . k of a query, of which the last visible one is with its own
    key: scaled, then their softmax; all 0 where every score is -inf."""
    for s in range(row.size):
        row[s] *= scale
    row[visible:] = -np.inf
    top = largest(row)
    if top == -np.inf:
        row[:] = 0
    else:
        softmax_row(row, top, row)


def pack(b: np.ndarray) -> np.ndarray:
    """Pack (K, P) -> (panels, K, NR), a copy."""
    packed = empty_panels(*b.shape, dtype=b.dtype)
    NR = packed.shape[2]
    for i, panel in enumerate(packed):
        columns = b[:, i * NR:(i + 1) * NR]
        panel[:, :columns.shape[1]] = columns
    return packed


def empty_panels(*shape: int, dtype: type) -> np.ndarray:
    """Return panels of zeros with room for a matrix (..., K, P)."""
    *lead, K, P = shape
    NR = TILE_BYTES // np.dtype(dtype).itemsize
    return np.zeros((*lead, math.ceil(P / NR), K, NR), dtype)


@stands_in_for(random.draw)
def draw(logits, u, temperature, top_k, top_p):
    B, V = logits.shape
    if u.shape != (B,):
        raise ValueError(f"{B} rows of logits need as many numbers u, not {list(u.shape)}")
    drawn = np.empty(B, np.int64)
    p = np.empty((B, V))
    draw_kernel(dense(logits), *draw_of(V, u[:, None], temperature, top_k, top_p), drawn, p)
    return drawn, p


def draw_of(V: int, u: np.ndarray, temperature: float = 0.0, top_k: int | None = None,
            top_p: float | None = None) -> Draw:
    """Return how to draw, by the settings of `random.draw`."""
    return Draw(dense(u), temperature, min(V, top_k or V), 1.0 if top_p is None else top_p)


@kernel
def draw_kernel(logits: C2, draw: Draw, drawn: I1, p: D2):
    for b in range(len(logits)):
        drawn[b] = draw_one(logits[b], b, 0, draw, p[b])


@allocating
def draw_one(logits, b, step, draw, p):
    """Return the id drawn for a column of u, and write the probabilities to p."""
    V = logits.size
    u = draw.u[b, step]
    kept = draw.kept
    p[:] = 0
    top = likeliest(logits)
    if top < 0:
        return top
    if draw.temperature == 0:
        p[top] = 1
        return top
    by_rank = kept < V
    # The likeliest comes first, and of equal ones the lower id.
    heap = [(-logits[i], i) for i in range(V if by_rank or draw.top_p < 1 else 0)]
    heapq.heapify(heap)
    ranked = [heapq.heappop(heap)[1] for _ in range(kept if by_rank else 0)]
    total = 0.0
    for n in range(kept):
        i = ranked[n] if by_rank else n
        p[i] = math.exp((np.float64(logits[i]) - np.float64(logits[top])) / draw.temperature)
        total += p[i]
    if draw.top_p < 1:
        total = cut_tail(p, ranked, heap, kept, draw.top_p * total)
    drawn = top
    reached = 0.0
    for i in range(V):                  # the last id, if rounding leaves the total below u
        p[i] /= total
        if p[i] > 0 and reached <= u:
            drawn = i
        reached += p[i]
    return drawn


@serial
def likeliest(logits):
    """Return the first id of the largest; -1 if there is a nan or inf, or none above -inf."""
    top = 0
    for i in range(logits.size):
        if not logits[i] < np.inf:      # nan too
            return -1
        if logits[i] > logits[top]:
            top = i
    return top if logits[top] > -np.inf else -1


@allocating
def cut_tail(p, ranked, heap, kept, wanted):
    """Keep the likeliest ids that together have the sum wanted; return what they have."""
    count = 0
    reached = 0.0
    while count < kept and reached < wanted:
        if count == len(ranked):
            ranked.append(heapq.heappop(heap)[1])
        reached += p[ranked[count]]
        count += 1
    for i in ranked[count:]:
        p[i] = 0
    for _, i in heap:
        p[i] = 0
    return reached
