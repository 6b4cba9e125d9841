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


def head_without_mask(x, w_query, w_key, w_value):
    """Return the weights of a head that sees the future too, and its values."""
    query, key, value = x @ w_query, x @ w_key, x @ w_value
    return mg.softmax(query @ key.swapaxes(-1, -2) * key.shape[-1] ** -0.5), value


def head_by_reshape(x, w_query, w_key, w_value, heads, h):
    """Return head h of (..., T, C) reshaped to (..., H, T, D), with no axes swapped."""
    shape = *x.shape[:-2], heads, x.shape[-2], x.shape[-1] // heads
    return mg.scaled_dot_product_attention(
        *((x @ w).reshape(shape)[..., h, :, :] for w in (w_query, w_key, w_value)), is_causal=True)


def attention_among_heads(x, *matrices, heads):
    """Return the attention of (..., T, H, D), in which heads stand where words belong."""
    shape = *x.shape[:-1], heads, x.shape[-1] // heads
    return mg.scaled_dot_product_attention(*((x @ w).reshape(shape) for w in matrices),
                                           is_causal=True).reshape(x.shape)


OWN = "slice(h * D, (h + 1) * D)"
HEAD = "causal_head(x, queries[:, own], keys[:, own], values[:, own])"
WITHOUT_MASK = "head_without_mask(x, queries[:, own], keys[:, own], values[:, own])"
BY_RESHAPE = "head_by_reshape(x, queries, keys, values, heads, h)"
JOINED = "mg.concatenate(mixed, axis=-1)"
MISTAKES = {
    "The heads are interleaved: head h takes every H-th column.  Its columns lie side by side, "
    "from h D to (h + 1) D.":
        {OWN: "slice(h, None, heads)"},
    "All heads use the columns of head 0.":
        {OWN: "slice(0, D)"},
    "All heads use the columns of the last head.":
        {OWN: "slice(-D, None)"},
    "There is one head as wide as all of them; split the columns among the heads.":
        {OWN: "slice(None)", JOINED: "mixed[0]"},
    "Queries and keys are exchanged: w_qkv has first the queries, then the keys, then the values.":
        {"queries, keys, values =": "keys, queries, values ="},
    "Keys and values are exchanged: w_qkv has first the queries, then the keys, then the values.":
        {"queries, keys, values =": "queries, values, keys ="},
    "The parts of w_qkv are taken from behind: first come the queries, then the keys, then the "
    "values.":
        {"queries, keys, values =": "values, keys, queries ="},
    "w_qkv is read head by head, (query, key, value) of head 0 first; here it has all queries "
    "first, then all keys, then all values.":
        {HEAD: "causal_head(x, *mg.split(w_qkv[:, 3 * h * D:3 * (h + 1) * D], 3, axis=1))"},
    "The output matrix is missing.":
        {" @ w_out": ""},
    "The output matrix is transposed.":
        {"@ w_out": "@ w_out.T"},
    "The input is added to the output; that is for the block, not for attention itself.":
        {"@ w_out": "@ w_out + x"},
    "The heads are joined in the wrong order: head 0 comes first.":
        {"(mixed, axis=-1)": "(mixed[::-1], axis=-1)"},
    "The heads are joined channel by channel, not side by side: the axis of the heads stands "
    "behind that of their channels.":
        {JOINED: "mg.stack(mixed, axis=-1).reshape(x.shape)"},
    "The heads are split rightly, but joined by a reshape of (..., H, T, D) alone.  Swap heads and "
    "words back first, to (..., T, H, D).":
        {JOINED: "mg.stack(mixed, axis=-3).reshape(x.shape)"},
    "The heads are split by a reshape to (..., H, T, D) alone, which hands each head some of the "
    "words.  Reshape to (..., T, H, D), then swap the axes.":
        {HEAD: BY_RESHAPE},
    "Words and heads are mixed up going in and coming out: (..., T, C) becomes (..., H, T, D) by a "
    "reshape alone, and back likewise.  Reshape to (..., T, H, D), then swap; then swap back.":
        {HEAD: BY_RESHAPE, JOINED: "mg.stack(mixed, axis=-3).reshape(x.shape)"},
    "A transpose is made twice: the last two axes of the heads are exchanged once more before "
    "they are joined.":
        {JOINED: "mg.stack(mixed, axis=-3).swapaxes(-1, -2).reshape(x.shape)"},
    "The heads attend to each other within one word: the axes of words and heads are not swapped "
    "before attention, so (..., T, H, D) stands where (..., H, T, D) belongs.":
        {JOINED: "attention_among_heads(x, queries, keys, values, heads=heads)"},
    "The scores are divided by sqrt(C); each head is D = C / H wide, so divide by sqrt(D).":
        {HEAD: "causal_head(x, queries[:, own] * heads ** -0.5, keys[:, own], values[:, own])"},
    "The scores are divided by sqrt(D) twice: once here and once in causal_head.":
        {HEAD: "causal_head(x, queries[:, own] * D ** -0.5, keys[:, own], values[:, own])"},
    "The scores are not divided by sqrt(D).":
        {HEAD: "causal_head(x, queries[:, own] * D ** 0.5, keys[:, own], values[:, own])"},
    "There is no mask: every word sees the words after it.":
        {f"mixed.append({HEAD})": f"weights, value = {WITHOUT_MASK}\n"
                                  "        mixed.append(weights @ value)"},
    "The mask comes after the softmax: the weights of later words become 0, and the others sum to "
    "less than 1.  Mask the scores, before the softmax.":
        {f"mixed.append({HEAD})":
         f"weights, value = {WITHOUT_MASK}\n"
         "        past = np.tri(x.shape[-2], dtype=bool)\n"
         "        mixed.append(mg.where(past, weights, 0.0) @ value)"},
    "The value is right, but the gradient ends where the heads are joined: this was done with "
    "arrays (.data, or NumPy), which the engine does not follow.  Join by mg.concatenate.":
        {JOINED: f"mg.Tensor({JOINED}.data)"},
}
