"""More characters for each of B sequences: a transformer's steps with cached keys and values.

A call reads T characters in a step: one where a text goes on, or a window that is read anew.  Then
it may draw further ones, a character a step, without returning to Python.

How it runs: weights, keys and values are stored in panels, so that a step reads each of them once,
from one end to the other; all sequences share what is read.  A layer has five stages.  In each of
them, threads share the panels of a product, or the heads; they are started once for all stages,
since starting them may take longer than a stage.  Every sum is taken in the same order as in the
training kernels, so that the logits are equal to the last bit.
"""
import numpy as np

from minigrad.formulas import SWIGLU
from minigrad.kernels.activations import activate, sigmoid
from minigrad.kernels.compiler.compiling import FEW, kernel, serial, threads_for
from minigrad.kernels.compiler.lanes import LANES
from minigrad.kernels.compiler.parallel import in_stages, on_threads, share
from minigrad.kernels.compiler.sums import largest
from minigrad.kernels.compiler.tiles import MR, NV, WIDE, micro_kernel
from minigrad.kernels.embedding import rows_at
from minigrad.kernels.matmul import KC
from minigrad.kernels.norm import normalise
from minigrad.kernels.rotary import copy_row, norm_head, rotate_row
from minigrad.kernels.sampling import draw_one, limits
from minigrad.kernels.softmax import softmax_row

QKV, ATTEND, OUT, UP, DOWN, HEAD = range(6)     # stages of a step: five in each layer, the last,
STAGES = HEAD                                   # and before them the embedding


def decode(cos: np.ndarray, sin: np.ndarray, slopes: np.ndarray, gains: np.ndarray,
           shifts: np.ndarray, biases: np.ndarray, qkv: np.ndarray, out: np.ndarray,
           up: np.ndarray, down: np.ndarray, head: np.ndarray, tokens: np.ndarray,
           ngrams: np.ndarray, positions: np.ndarray, keys: np.ndarray, values: np.ndarray,
           ids: np.ndarray, u: np.ndarray, V: int, T: int, t: int, longest: int, eps: float,
           qk_eps: float, centred: bool, activation: int, temperature: float = 0.0,
           top_k: int | None = None, top_p: float | None = None) -> np.ndarray:
    """Read T characters, the first at position t, and return the logits (B, V) after the last; or
    draw as many characters as there are columns of u, and return the logits of the last of them.

    Parameters
    ----------
    cos, sin : of the rotary angles, (block, D / 2); (block, 0) without rotation.
    slopes : of each head's linear bias, (H,); 0 where there is none.
    gains, shifts : of the norms, (2 L + 1, C): two for each layer, and the last.
    biases : of qkv, out, up and down, (L, W + C + U + C); W = (H + 2 groups) D, U = F or, for
        SWIGLU, 2 F.
    qkv, out, up, down : weights (L, inputs, outputs), in panels; for SWIGLU, `up` has the panels of
        the gate (C, F), and then those of what it multiplies (C, F).
    head, tokens : (C, V) each, in panels; they may be one array.
    ngrams, positions : embeddings, (rows, C) and (block, C); (0, C) for no positions.
    keys, values : (L, B, groups, D, S) and (L, B, groups, S, D), in panels, of S characters or
        more; those of what is read are stored.
    ids : the characters by position, (B, block + 1); those that are drawn are stored.
    u, temperature, top_k, top_p : as `draw` takes them, but for u, (B, n).
    longest : characters of the longest n-gram; 1 if there are none.
    eps, qk_eps : added to the mean square by the norms, and by that of queries and keys; the latter
        is 0 if these have none.
    centred : whether the norms subtract the mean, as the layer norm does.
    activation : one of the numbers that `activations` names.
    """
    logits = np.empty((len(ids), len(head) * head.shape[2]), head.dtype)    # whole panels
    # Twice FEW for each thread, as all of them wait for each other after each stage of each layer.
    steps = (qkv.size + out.size + up.size + down.size) * T * len(ids) // 16
    decode_kernel(cos, sin, slopes, gains, shifts, biases, qkv, out, up, down, head, tokens, ngrams,
                  positions, keys, values, ids, u, logits, V, T, t, longest, eps, qk_eps,
                  keys.shape[4] ** -0.5, centred, activation, temperature,
                  *limits(V, top_k, top_p), min(threads_for(steps), 1 + steps // (2 * FEW)))
    return logits[:, :V]


@kernel("C2 C2 C1 C2 C2 C2 C4 C4 C4 C4 C3 C3 C2 C2 C6 C6 I2 D2 C2 int int int int double double "
        "double bool int double int double threads")
def decode_kernel(cos, sin, slopes, gains, shifts, biases, qkv, out, up, down, head, tokens, ngrams,
                  positions, keys, values, ids, u, logits, V, T, t, longest, eps, qk_eps, scale,
                  centred, activation, temperature, kept, top_p, threads):
    B, C, NR = len(logits), gains.shape[1], head.shape[2]
    N = B * T
    x, mixed = np.empty((N, C), cos.dtype), np.empty((N, out.shape[1] * NR), cos.dtype)
    normed = np.empty((threads, N, C), cos.dtype)
    wide = np.empty((N, max(qkv.shape[1], up.shape[1]) * NR), cos.dtype)
    scores = np.empty((threads, T, whole_lanes(keys.shape[3] * NR)), cos.dtype)
    mix = np.empty((threads, T, values.shape[3] * NR), cos.dtype)
    rows, heap = np.empty((B, longest - 1), np.int64), np.empty((B, V), np.int64)
    p = np.empty((B, V))
    of_a_step = 1 + STAGES * len(qkv) + 1
    stages = max(1, u.shape[1]) * of_a_step + (u.shape[1] > 0)      # and the last to draw
    begun, done = np.zeros((stages, threads), np.int64), np.zeros(stages, np.int64)
    on_threads(threads, run_stages, begun, done, of_a_step, x, mixed, wide, normed, scores, mix,
               rows, heap, p, cos, sin, slopes, gains, shifts, biases, qkv, out, up, down, head,
               tokens, ngrams, positions, keys, values, ids, u, logits, T, t, eps, qk_eps, scale,
               centred, activation, temperature, kept, top_p)


@serial
def run_stage(part, parts, stage, of_a_step, x, mixed, wide, normed, scores, mix, rows, heap, p,
              cos, sin, slopes, gains, shifts, biases, qkv, out, up, down, head, tokens, ngrams,
              positions, keys, values, ids, u, logits, T, t, eps, qk_eps, scale, centred,
              activation, temperature, kept, top_p):
    """Run a part of a stage: of the embedding, of a layer's five, or of the head."""
    (B, V), C, F = p.shape, x.shape[1], down.shape[2]
    W = C + 2 * keys.shape[2] * keys.shape[4]
    step, stage = stage // of_a_step, stage % of_a_step
    if step > 0:                        # what was drawn is read, a character a step
        t, T = t + T + step - 1, 1
    if stage == 0:
        for b in share(B, part, parts):
            if step > 0:
                ids[b, t] = draw_one(logits[b, :V], u[b, step - 1], p[b], heap[b], temperature,
                                     kept, top_p)
            for i in range(T if step == 0 or step < u.shape[1] else 0):
                embed(ids[b], t + i, tokens, ngrams, positions, rows[b], x[b * T + i])
        return
    layer, stage = (stage - 1) // STAGES, (stage - 1) % STAGES
    x, mixed, wide = x[:B * T], mixed[:B * T], wide[:B * T]
    normed, scores, mix = normed[part], scores[part, :T], mix[part, :T]
    if stage == ATTEND:
        for i in share(B * keys.shape[2], part, parts):
            attend(i // keys.shape[2], i % keys.shape[2], wide, cos, sin, slopes, keys[layer],
                   values[layer], t, scale, scores, mix, mixed, qk_eps)
        return
    if layer == len(qkv):
        stage, a, packed, c, width, first_bias = HEAD, normed, head, logits, V, 0
    elif stage == QKV:
        a, packed, c, width, first_bias = normed, qkv[layer], wide, W, 0
    elif stage == OUT:
        a, packed, c, width, first_bias = mixed, out[layer], wide, C, W
    elif stage == UP:
        a, packed, c, width, first_bias = normed, up[layer], wide, F, W + C
    else:
        a, packed, c, width, first_bias = wide, down[layer], mixed, C, biases.shape[1] - C
    if stage in (HEAD, QKV, UP):
        norm = 2 * layer + (stage == UP)
        every = T if stage == HEAD else 1       # the last of each sequence
        a = normed[:len(x) // every]
        for r in range(len(a)):
            normalise(x[(r + 1) * every - 1], gains[norm], shifts[norm], eps, centred, normed[r])
    gated = stage == UP and activation == SWIGLU
    panels = len(packed) // 2 if gated else len(packed)
    first, last = product(a, packed[:panels], packed.shape[1], c, 0, part, parts)
    beyond = panels * packed.shape[2]           # columns of c before those that the gate multiplies
    if gated:
        product(a, packed[panels:], packed.shape[1], c, beyond, part, parts)
    last = min(last, width)
    for r in range(len(a) if stage != HEAD else 0):
        row, bias = c[r, first:last], biases[layer, first_bias + first:first_bias + last]
        add_row(bias, row)
        if gated:
            multiplied = c[r, beyond + first:beyond + last]
            add_row(biases[layer, first_bias + F + first:first_bias + F + last], multiplied)
            for j in range(row.size):
                row[j] = row[j] * sigmoid(row[j], row.dtype.type) * multiplied[j]
        elif stage == UP:
            activate(row, activation, row)
        elif stage != QKV:
            add_row(row, x[r, first:last])


run_stages = in_stages(run_stage)


@serial
def embed(ids, s, tokens, ngrams, positions, rows, x):
    """Write the input of the first block for the character at position s, summed as the model's
    `embed` sums it."""
    x[:] = 0
    rows_at(ids, s, len(ngrams), rows)
    for i in range(rows.size):
        add_row(ngrams[rows[i]], x)
    panel, column = ids[s] // tokens.shape[2], ids[s] % tokens.shape[2]
    for c in range(x.size):
        x[c] += tokens[panel, c, column]
    if positions.size:
        add_row(positions[s], x)


@serial
def add_row(added, row):
    for j in range(row.size):
        row[j] += added[j]


@serial
def product(a, packed, depth, c, c_at, thread, threads):
    """Write a thread's columns of a @ b, for b in panels, to c from column c_at on; return the
    first and the end.

    a and c have dense rows; c has room for whole panels; a and b may be deeper than depth.  The
    depth of many rows is cut as in `matmul`, so that a panel stays in the first-level cache.
    """
    NR = packed.shape[2]
    panel_size = packed.shape[1] * NR
    a_row, c_row = a.strides[0] // a.itemsize, c.strides[0] // c.itemsize
    first, last = thread * len(packed) // threads, (thread + 1) * len(packed) // threads
    at_once = WIDE // NV if len(a) == 1 else 1
    cut = KC if len(a) > MR else depth
    for begin in range(0, depth, cut):
        for panel in range(first, last, at_once):
            micro_kernel(a, begin, a_row, 1, MR * a_row, packed, panel * panel_size + begin * NR,
                         panel_size, c, c_at + panel * NR, c_row, min(cut, depth - begin),
                         begin > 0, len(a), NV * min(at_once, last - panel))
    return first * NR, last * NR


@serial
def attend(b, group, qkv, cos, sin, slopes, keys, values, t, scale, scores, mix, mixed, qk_eps):
    """Store a group's keys and values from position t on, and write its queries' output to
    `mixed`."""
    groups, _, D, NR = keys.shape[1:]
    H, G, T = slopes.size, slopes.size // groups, len(scores)
    key, value = (H + group) * D, (H + groups + group) * D      # where they begin
    for i in range(T):
        row, s = qkv[b * T + i], t + i
        turn_and_norm(row[key:key + D], cos[s], sin[s], qk_eps)
        for d in range(D):
            keys[b, group, s // NR, d, s % NR] = row[key + d]
            values[b, group, d // NR, s, d % NR] = row[value + d]
    for h in range(group * G, (group + 1) * G):
        queries = qkv[b * T:(b + 1) * T, h * D:]
        for i in range(T):
            turn_and_norm(queries[i, :D], cos[t + i], sin[t + i], qk_eps)
        product(queries, keys[b, group, :(t + T - 1) // NR + 1], D, scores, 0, 0, 1)
        for i in range(T):
            visible = t + i + 1
            row = scores[i, :whole_lanes(visible)]
            finish_scores(row, row.dtype.type(scale), slopes[h], visible)
            softmax_or_zero(row)
            scores[i, row.size:t + T] = 0
        product(scores, values[b, group], t + T, mix, 0, 0, 1)
        for i in range(T):
            copy_row(mix[i, :D], mixed[b * T + i, h * D:])


@serial
def turn_and_norm(head, cos, sin, eps):
    if cos.size:
        rotate_row(head, cos, sin, head)
    if eps > 0:
        norm_head(head, eps)


@serial
def whole_lanes(n):
    """Round n up to a multiple of LANES, so that no loop has a remainder."""
    return (n + LANES - 1) // LANES * LANES


@serial
def finish_scores(row, scale, slope, visible):
    """Scale the products q . k of a query, add the linear bias, and set all keys from `visible` on
    to -inf."""
    for s in range(row.size):
        row[s] *= scale
    for s in range(visible if slope != 0 else 0):
        row[s] -= slope * row.dtype.type(visible - 1 - s)
    for s in range(visible, row.size):
        row[s] = -np.inf


@serial
def softmax_or_zero(row):
    """Softmax in place, all 0 where every score is -inf."""
    top = largest(row)
    if top == -np.inf:
        row[:] = 0
    else:
        softmax_row(row, top, row)
