"""Exercise 4: many heads side by side.

One head has one way of looking.  H heads look in H ways at once, each with
queries, keys and values of its own, D = C / H numbers wide.  All their matrices
lie in one, w_qkv, (C, 3 C):

    its first C columns make the queries, the next C the keys, the last C the
    values; of each C columns, the first D belong to head 0, the next D to
    head 1, and so on.

Each head attends for itself, as in exercise 3.  The outputs of the heads are
joined side by side, head 0 first, and one more matrix mixes them:

    (head_0, head_1, ..., head_H-1) w_out

For example, with C = 4 and H = 2, columns 0 and 1 of w_qkv make the queries of
head 0, columns 2 and 3 those of head 1, and columns 4 and 5 the keys of head 0.

There are two ways.  One is a loop over the heads that hands each its columns
and calls causal_head of exercise 3; yours, if it is in this folder and right,
else ours.  The other makes all queries in one product, (..., T, C), reshapes
them to (..., T, H, D) and swaps two axes, (..., H, T, D).  Then on the way back
the axes must be swapped again before the reshape.

Hints.  mg.split(w, 3, axis=1) cuts a matrix into three.  w[:, 2:4] takes
columns.  mg.concatenate(list, axis=-1) joins.
"""
import numpy as np

import minigrad as mg
from model.walk.exercises.e3_causal_head import causal_head


def multi_head(x, w_qkv, w_out, heads):
    """Return causal attention by several heads, mixed by the output matrix.

    x : (..., T, C)      w_qkv : (C, 3 C)      w_out : (C, C)      heads : H
    returns : (..., T, C)
    """
    D = x.shape[-1] // heads
    queries, keys, values = mg.split(w_qkv, 3, axis=1)                  # (C, C) each
    mixed = []
    for h in range(heads):
        own = slice(h * D, (h + 1) * D)
        mixed.append(causal_head(x, queries[:, own], keys[:, own], values[:, own]))
    return mg.concatenate(mixed, axis=-1) @ w_out


def cases(rng):
    few = np.array([[1.0, 0.0], [0.0, 1.0]])
    w_qkv, w_out = rng.standard_normal((6, 18)) / 2, rng.standard_normal((6, 6)) / 2
    return [(few, np.array([[1.0, 0, 2, 0, 1, 2], [0, 1, 0, 1, 3, 4]]),
             np.array([[1.0, 2.0], [0.0, 1.0]]), 2),
            (rng.standard_normal((4, 6)), w_qkv, w_out, 2),
            (rng.standard_normal((2, 3, 6)), w_qkv, w_out, 3),
            (rng.standard_normal((3, 6)), w_qkv, w_out, 1),
            (rng.standard_normal((2, 5, 6)).astype(np.float32), w_qkv.astype(np.float32),
             w_out.astype(np.float32), 3)]


def attend(x, matrices, *shape, is_causal=True):
    """Return attention of x @ matrix for three matrices, reshaped to (..., *shape)."""
    parts = ((x @ w).reshape(*x.shape[:-2], *shape) for w in matrices)
    return mg.scaled_dot_product_attention(*parts, is_causal=is_causal)


OWN = "slice(h * D, (h + 1) * D)"
HEAD = "causal_head(x, queries[:, own], keys[:, own], values[:, own])"
BY_RESHAPE = "attend(x, (queries, keys, values), heads, x.shape[-2], D)[..., h, :, :]"
JOINED = "mg.concatenate(mixed, axis=-1)"
MISTAKES = {
    "The heads are interleaved: head h takes every H-th column; its columns are h D to (h + 1) D.":
        {OWN: "slice(h, None, heads)"},
    "All heads use the columns of head 0.": {OWN: "slice(0, D)"},
    "All heads use the columns of the last head.": {OWN: "slice(-D, None)"},
    "There is one head as wide as all of them; split the columns among the heads.":
        {OWN: "slice(None)", JOINED: "mixed[0]"},
    "Queries and keys are exchanged: w_qkv has first the queries, then the keys, then the values.":
        {"queries, keys, values =": "keys, queries, values ="},
    "Keys and values are exchanged: w_qkv has first the queries, then the keys, then the values.":
        {"queries, keys, values =": "queries, values, keys ="},
    "w_qkv is taken from the end: first come the queries, then the keys, then the values.":
        {"queries, keys, values =": "values, keys, queries ="},
    "w_qkv is read head by head; it has the queries of all heads first, then all keys, all values.":
        {HEAD: "causal_head(x, *mg.split(w_qkv[:, 3 * h * D:3 * (h + 1) * D], 3, axis=1))"},
    "The output matrix is missing.": {" @ w_out": ""},
    "The output matrix is transposed.": {"@ w_out": "@ w_out.T"},
    "The input is added to the output; only a block does that.": {"@ w_out": "@ w_out + x"},
    "The heads are in the wrong order: head 0 comes first.": {"(mixed,": "(mixed[::-1],"},
    "The heads are joined channel by channel; they belong side by side, one after another.":
        {JOINED: "mg.stack(mixed, axis=-1).reshape(x.shape)"},
    "The heads are joined by a reshape of (..., H, T, D) alone; swap to (..., T, H, D) before it.":
        {JOINED: "mg.stack(mixed, axis=-3).reshape(x.shape)"},
    "The heads are split by a reshape to (..., H, T, D); reshape to (..., T, H, D), then swap.":
        {HEAD: BY_RESHAPE},
    "Words and heads are mixed up on the way in and out: (..., T, C) becomes (..., H, T, D) by a "
    "reshape alone, and back likewise.  Reshape to (..., T, H, D), then swap; then swap back.":
        {HEAD: BY_RESHAPE, JOINED: "mg.stack(mixed, axis=-3).reshape(x.shape)"},
    "The last two axes of the heads are exchanged once more before they are joined.":
        {JOINED: "mg.stack(mixed, axis=-3).swapaxes(-1, -2).reshape(x.shape)"},
    "Heads attend to each other within a word: swap words and heads, to (..., H, T, D), before.":
        {JOINED: "attend(x, (queries, keys, values), x.shape[-2], heads, D).reshape(x.shape)"},
    "The scores are divided by sqrt(C); each head is D = C / H wide, so divide by sqrt(D).":
        {HEAD: "causal_head(x, queries[:, own] * heads ** -0.5, keys[:, own], values[:, own])"},
    "The scores are divided by sqrt(D) twice: once here and once in causal_head.":
        {HEAD: "causal_head(x, queries[:, own] * D ** -0.5, keys[:, own], values[:, own])"},
    "The scores are not divided by sqrt(D).":
        {HEAD: "causal_head(x, queries[:, own] * D ** 0.5, keys[:, own], values[:, own])"},
    "There is no mask: every word sees the words after it.":
        {HEAD: "attend(x, [w[:, own] for w in (queries, keys, values)], x.shape[-2], D, "
               "is_causal=False)"},
    "Later words get weight 0 after the softmax, so rows sum to less than 1; mask the scores.":
        {HEAD: "mg.where(np.tri(x.shape[-2], dtype=bool), mg.softmax(x @ queries[:, own] @ "
               "(x @ keys[:, own]).swapaxes(-1, -2) * D ** -0.5), 0.0) @ x @ values[:, own]"},
    "The value is right, but the gradient ends where heads are joined: use mg.concatenate there.":
        {JOINED: f"mg.Tensor({JOINED}.data)"},
}
