"""More characters for each of B sequences: a transformer's steps with cached keys and values.

A call reads T characters in a step: one where a text goes on, or a window that is read anew.  Then
it may draw further ones, a character a step, without returning to Python.

How it runs: weights, keys and values are stored in panels, so that a step reads each of them once,
from one end to the other; all sequences share what is read.  A layer has five stages.  In each of
them, threads share the panels of a product, or the heads; they are started once for all stages,
which may take less time than to start them.  Every sum is taken in the same order as
in the training kernels, so that the logits are equal to the last bit.
"""
import numpy as np

from minigrad.kernels.activations import plain_activation, squared_relu, value_and_slope
from minigrad.kernels.build.compiling import FEW, instead_of, kernel, serial, threads_for
from minigrad.kernels.build.lanes import LANES
from minigrad.kernels.build.parallel import in_stages, on_threads, share
from minigrad.kernels.build.sums import largest
from minigrad.kernels.build.tiles import MR, NV, WIDE, micro_kernel, put, unpack
from minigrad.kernels.embedding import plain_ngram_rows, rows_at
from minigrad.kernels.matmul import SET
from minigrad.kernels.norm import normalise, plain_norm
from minigrad.kernels.rotary import (copy_row, norm_head, plain_norm_heads, plain_rotate,
                                     rotate_row)
from minigrad.kernels.sampling import draw_one, limits, plain_draw
from minigrad.kernels.softmax import plain_softmax, softmax_row

QKV, ATTEND, OUT, UP, DOWN, HEAD = range(6)     # stages of a step: five in each layer, the last,
STAGES = HEAD                                   # and before them the embedding


def plain_decode(cos, sin, slopes, gains, shifts, biases, qkv, out, up, down, head, tokens, ngrams,
                 positions, keys, values, ids, u, T, t, longest, eps, centred, qk_norm, relu2,
                 temperature=0.0, top_k=None, top_p=None):
    for step in range(max(1, u.shape[1])):
        x = tokens[ids[:, t:t + T]]                                     # (B, T, C)
        if longest > 1:
            rows = plain_ngram_rows(ids[:, :t + T], longest, len(ngrams))[:, t:]
            x = x + ngrams[rows].sum(axis=2)
        if len(positions):
            x = x + positions[t:t + T]
        logits = _plain_logits(cos, sin, slopes, gains, shifts, biases, qkv, out, up, down, head,
                               keys, values, x, len(tokens), t, eps, centred, qk_norm, relu2)
        t, T = t + T, 1
        if u.shape[1]:
            ids[:, t] = plain_draw(logits, u[:, step], temperature, top_k, top_p)[0]
    return logits


def _plain_logits(cos, sin, slopes, gains, shifts, biases, qkv, out, up, down, head, keys, values,
                  x, vocab_size, t, eps, centred, qk_norm, relu2):
    (B, T, C), (L, _, groups, _, D, NR), H = x.shape, keys.shape, slopes.size
    W, S = (H + 2 * groups) * D, t + T
    distance = np.arange(t, S)[:, None] - np.arange(S)                  # (T, S)
    bias_to_key = np.where(distance < 0, np.inf, slopes.reshape(groups, -1, 1, 1) * distance)

    def normed(x, i):
        return plain_norm(x, gains[i], shifts[i], eps, centred)[0]

    for i in range(L):
        bias = np.split(biases[i], [W, W + C, W + 5 * C])
        packed = normed(x, 2 * i) @ unpack(qkv[i], W) + bias[0]         # (B, T, W)
        angles = (np.tile(angle[t:S], H + groups) for angle in (cos, sin))
        packed = (plain_norm_heads(packed, *angles, H + groups, D, eps)[0] if qk_norm
                  else plain_rotate(packed, *angles))
        q, k, v = np.split(packed.reshape(B, T, -1, D).swapaxes(1, 2), [H, H + groups], axis=1)
        for s in range(t, S):
            keys[i, :, :, s // NR, :, s % NR] = k[:, :, s - t]
        put(v, values[i, :, :, :, t:])
        past = unpack(keys[i], S), unpack(values[i], D)[:, :, :S]
        q = q.reshape(B, groups, -1, T, D)                              # G heads to each group
        P = plain_softmax(q @ past[0][:, :, None] * D ** -0.5 - bias_to_key.astype(q.dtype))
        mixed = (P @ past[1][:, :, None]).reshape(B, H, T, D).swapaxes(1, 2).reshape(B, T, C)
        x = x + (mixed @ unpack(out[i], C) + bias[1])
        hidden = plain_activation(normed(x, 2 * i + 1) @ unpack(up[i], 4 * C) + bias[2], relu2)
        x = x + (hidden @ unpack(down[i], C) + bias[3])
    return normed(x[:, -1], 2 * L) @ unpack(head, vocab_size)


@instead_of(plain_decode)
def decode(cos: np.ndarray, sin: np.ndarray, slopes: np.ndarray, gains: np.ndarray,
           shifts: np.ndarray, biases: np.ndarray, qkv: np.ndarray, out: np.ndarray,
           up: np.ndarray, down: np.ndarray, head: np.ndarray, tokens: np.ndarray,
           ngrams: np.ndarray, positions: np.ndarray, keys: np.ndarray, values: np.ndarray,
           ids: np.ndarray, u: np.ndarray, T: int, t: int, longest: int, eps: float, centred: bool,
           qk_norm: bool, relu2: bool, temperature: float = 0.0, top_k: int | None = None,
           top_p: float | None = None) -> np.ndarray:
    """Read T characters, the first at position t, and return the logits (B, V) after the last; or
    draw as many characters as there are columns of u, and return the logits of the last of them.

    Parameters
    ----------
    cos, sin : of the rotary angles, (block, D / 2); (block, 0) without rotation.
    slopes : of each head's linear bias, (H,); 0 where there is none.
    gains, shifts : of the norms, (2 L + 1, C): two for each layer, and the last.
    biases : (L, W + 6 C), of qkv, out, up and down; W = (H + 2 groups) D.
    qkv, out, up, down : weights (L, inputs, outputs), in panels.
    head : (C, V), in panels.
    tokens, ngrams, positions : embeddings, (V, C), (rows, C) and (block, C); (0, C) for no
        positions.
    keys, values : (L, B, groups, D, block) and (L, B, groups, block, D), in panels; those of what
        is read are stored.
    ids : the characters by position, (B, block + 1); those that are drawn are stored.
    u, temperature, top_k, top_p : as `draw` takes them, but for u, (B, n).
    longest : characters of the longest n-gram; 1 if there are none.
    centred : whether the norms subtract the mean, as the layer norm does.
    qk_norm : whether queries and keys are divided by their root mean square.
    relu2 : whether the MLP uses the squared ReLU instead of the GELU.
    """
    logits = np.empty((len(ids), len(tokens)), tokens.dtype)
    steps = (qkv.size + out.size + up.size + down.size) * T * len(ids) // 16
    decode_kernel(cos, sin, slopes, gains, shifts, biases, qkv, out, up, down, head, tokens, ngrams,
                  positions, keys, values, ids, u, logits, T, t, longest, eps,
                  keys.shape[4] ** -0.5, centred, qk_norm, relu2, temperature,
                  *limits(len(tokens), top_k, top_p), min(threads_for(steps), 1 + steps // FEW))
    return logits


@kernel("C2 C2 C1 C2 C2 C2 C4 C4 C4 C4 C3 C2 C2 C2 C6 C6 I2 D2 C2 int int int double double bool "
        "bool bool double int double threads")
def decode_kernel(cos, sin, slopes, gains, shifts, biases, qkv, out, up, down, head, tokens, ngrams,
                  positions, keys, values, ids, u, logits, T, t, longest, eps, scale, centred,
                  qk_norm, relu2, temperature, ranked, top_p, threads):
    (B, V), C, NR = logits.shape, tokens.shape[1], head.shape[2]
    N = B * T
    widest = max(qkv.shape[1], up.shape[1], len(head)) * NR
    x, mixed = np.empty((N, C), cos.dtype), np.empty((N, C), cos.dtype)
    normed = np.empty((threads, N, C), cos.dtype)
    wide, narrow = np.empty((N, widest), cos.dtype), np.empty((N, out.shape[1] * NR), cos.dtype)
    scores = np.empty((threads, T, whole_lanes(keys.shape[3] * NR)), cos.dtype)
    mix = np.empty((threads, T, values.shape[3] * NR), cos.dtype)
    rows, heap = np.empty((B, longest - 1), np.int64), np.empty((B, V), np.int64)
    p = np.empty((B, V))
    of_a_step = 1 + STAGES * len(qkv) + 1
    stages = max(1, u.shape[1]) * of_a_step + (u.shape[1] > 0)      # and the last to draw
    begun, done = np.zeros((stages, threads), np.int64), np.zeros(stages, np.int64)
    on_threads(threads, run_stages, begun, done, of_a_step, x, mixed, wide, narrow, normed, scores,
               mix, rows, heap, p, cos, sin, slopes, gains, shifts, biases, qkv, out, up, down,
               head, tokens, ngrams, positions, keys, values, ids, u, logits, T, t, eps, scale,
               centred, qk_norm, relu2, temperature, ranked, top_p)


@serial
def run_stage(part, parts, stage, of_a_step, x, mixed, wide, narrow, normed, scores, mix, rows,
              heap, p, cos, sin, slopes, gains, shifts, biases, qkv, out, up, down, head, tokens,
              ngrams, positions, keys, values, ids, u, logits, T, t, eps, scale, centred, qk_norm,
              relu2, temperature, ranked, top_p):
    """Run a part of a stage: of the embedding, of a layer's five, or of the head."""
    B, C, groups = len(logits), x.shape[1], keys.shape[2]
    W = C + 2 * groups * keys.shape[4]
    step, stage = stage // of_a_step, stage % of_a_step
    if step > 0:                        # what was drawn is read, a character a step
        t, T = t + T + step - 1, 1
    if stage == 0:
        for b in share(B, part, parts):
            if step > 0:
                ids[b, t] = draw_one(logits[b], u[b, step - 1], p[b], heap[b], temperature, ranked,
                                     top_p)
            for i in range(T if step == 0 or step < u.shape[1] else 0):
                embed(ids[b], t + i, tokens, ngrams, positions, rows[b], x[b * T + i])
        return
    layer, stage = (stage - 1) // STAGES, (stage - 1) % STAGES
    x, mixed, wide, narrow = x[:B * T], mixed[:B * T], wide[:B * T], narrow[:B * T]
    normed, scores, mix = normed[part], scores[part, :T], mix[part, :T]
    if layer == len(qkv):
        stage, a, packed, c, first_bias, width = HEAD, normed, head, wide, 0, logits.shape[1]
    elif stage == QKV:
        a, packed, c, first_bias, width = normed, qkv[layer], wide, 0, W
    elif stage == ATTEND:
        for i in share(B * groups, part, parts):
            attend(i // groups, i % groups, wide, cos, sin, slopes, keys[layer], values[layer], t,
                   scale, scores, mix, mixed, qk_norm, eps)
        return
    elif stage == OUT:
        a, packed, c, first_bias, width = mixed, out[layer], narrow, W, C
    elif stage == UP:
        a, packed, c, first_bias, width = normed, up[layer], wide, W + C, 4 * C
    else:
        a, packed, c, first_bias, width = wide, down[layer], narrow, W + 5 * C, C
    if stage in (HEAD, QKV, UP):
        norm = 2 * layer + (stage == UP)
        every = T if stage == HEAD else 1       # the last of each sequence
        a = normed[:len(x) // every]
        for r in range(len(a)):
            normalise(x[(r + 1) * every - 1], gains[norm], shifts[norm], eps, centred, normed[r])
    first, last = product(a, packed, packed.shape[1], c, part, parts)
    last = min(last, width)
    for r in range(len(a)):
        row = c[r, first:last]
        if stage == HEAD:
            copy_row(row, logits[r, first:last])
        else:
            add_row(biases[layer, first_bias + first:first_bias + last], row)
            if stage == UP:
                activate_row(row, relu2)
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
    add_row(tokens[ids[s]], x)
    if positions.size:
        add_row(positions[s], x)


@serial
def add_row(added, row):
    for j in range(row.size):
        row[j] += added[j]


@serial
def activate_row(row, relu2):
    if relu2:
        for j in range(row.size):
            row[j] = squared_relu(row[j], row.dtype.type)
    else:
        for j in range(row.size):
            row[j] = value_and_slope(row[j], row.dtype.type)[0]


@serial
def product(a, packed, depth, c, thread, threads):
    """Write a thread's columns of a @ b, for b in panels, to c; return the first and the end.

    a and c have dense rows; c has room for whole panels; a and b may be deeper than depth.
    """
    NR = packed.shape[2]
    panel_size = packed.shape[1] * NR
    a_row, c_row = a.strides[0] // a.itemsize, c.strides[0] // c.itemsize
    first, last = thread * len(packed) // threads, (thread + 1) * len(packed) // threads
    at_once = WIDE // NV if len(a) == 1 else 1
    for panel in range(first, last, at_once):
        micro_kernel(a, 0, a_row, 1, MR * a_row, packed, panel * panel_size, panel_size,
                     c, panel * NR, c_row, depth, SET, len(a), NV * min(at_once, last - panel))
    return first * NR, last * NR


@serial
def attend(b, group, qkv, cos, sin, slopes, keys, values, t, scale, scores, mix, mixed, qk_norm,
           eps):
    """Store a group's keys and values from position t on, and write its queries' output to
    `mixed`."""
    groups, _, D, NR = keys.shape[1:]
    C, G, T = mixed.shape[1], slopes.size // groups, len(scores)
    key, value = C + group * D, C + (groups + group) * D        # where they begin
    for i in range(T):
        row, s = qkv[b * T + i], t + i
        turn_and_norm(row[key:key + D], cos[s], sin[s], qk_norm, eps)
        for d in range(D):
            keys[b, group, s // NR, d, s % NR] = row[key + d]
            values[b, group, d // NR, s, d % NR] = row[value + d]
    for h in range(group * G, (group + 1) * G):
        queries = qkv[b * T:(b + 1) * T, h * D:]
        for i in range(T):
            turn_and_norm(queries[i, :D], cos[t + i], sin[t + i], qk_norm, eps)
        product(queries, keys[b, group, :(t + T - 1) // NR + 1], D, scores, 0, 1)
        for i in range(T):
            visible = t + i + 1
            row = scores[i, :whole_lanes(visible)]
            finish_scores(row, row.dtype.type(scale), slopes[h], t + i, row, False, visible)
            softmax_or_zero(row)
            scores[i, row.size:t + T] = 0
        product(scores, values[b, group], t + T, mix, 0, 1)
        for i in range(T):
            copy_row(mix[i, :D], mixed[b * T + i, h * D:])


@serial
def turn_and_norm(head, cos, sin, qk_norm, eps):
    if cos.size:
        rotate_row(head, cos, sin, head)
    if qk_norm:
        norm_head(head, eps)


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
