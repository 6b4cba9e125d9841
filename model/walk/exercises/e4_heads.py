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
    query, key, value = mg.split(w_qkv, 3, axis=1)                      # (C, C) each
    mixed = []
    for h in range(heads):
        own = slice(h * D, (h + 1) * D)
        mixed.append(causal_head(x, query[:, own], key[:, own], value[:, own]))
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
             w_out.astype(np.float32), 3),
            # Large scores, of a word for itself far below 0
            (1000 * rng.standard_normal((5, 6)), np.tile(w_qkv[:, :6], (1, 3)) * np.repeat(
                [1, -1, 1], 6), w_out, 2)]


def attend(x, matrices, *shape):
    """Return attention of x @ matrix for three matrices, reshaped to (..., *shape)."""
    parts = ((x @ w).reshape(*x.shape[:-2], *shape) for w in matrices)
    return mg.scaled_dot_product_attention(*parts, is_causal=True)


def head_with(sentence):
    """Return causal_head with a mistake of exercise 3."""
    from model.walk.practice import exercises
    head = next(exercise for exercise in exercises() if exercise.answer is causal_head)
    return head.with_mistakes(sentence)


OWN, JOINED = "slice(h * D, (h + 1) * D)", "mg.concatenate(mixed, axis=-1)"
HEAD = "causal_head(x, query[:, own], key[:, own], value[:, own])"
BY_RESHAPE = "attend(x, (query, key, value), heads, x.shape[-2], D)[..., h, :, :]"
MISTAKES = {
    "The heads are interleaved; head h has h D to (h + 1) D.": {OWN: "slice(h, None, heads)"},
    "Head h begins at column h H; it should be h D.": {OWN: "slice(h * heads, h * heads + D)"},
    "All heads use the columns of head 0.": {OWN: "slice(0, D)"},
    "All heads use the columns of the last head.": {OWN: "slice(-D, None)"},
    "All heads have the queries of head 0; each has its own.": {"query[:, own]": "query[:, :D]"},
    "All heads have the keys of head 0; each has its own.": {"key[:, own]": "key[:, :D]"},
    "All heads have the values of head 0; each has its own.": {"value[:, own]": "value[:, :D]"},
    "There is one head of all columns; split them.": {OWN: "slice(None)", JOINED: "mixed[0]"},
    "Queries and keys are exchanged: w_qkv has first the queries, then the keys, then the values.":
        {"query, key, value =": "key, query, value ="},
    "Keys and values are exchanged: w_qkv has first the queries, then the keys, then the values.":
        {"query, key, value =": "query, value, key ="},
    "w_qkv is taken from the end: first come the queries, then the keys, then the values.":
        {"query, key, value =": "value, key, query ="},
    "w_qkv is read head by head; it has the queries of all heads first, then all keys, all values.":
        {HEAD: "causal_head(x, *mg.split(w_qkv[:, 3 * h * D:3 * (h + 1) * D], 3, axis=1))"},
    "The matrices are transposed, as PyTorch's layers have them; here it is x @ w.":
        {"mg.split(w_qkv, 3, axis=1)": "(w.T for w in mg.split(w_qkv, 3, axis=1))"},
    "heads and D are exchanged.": {"    D = ": "    heads = x.shape[-1] // heads\n    D = "},
    "The output matrix is missing.": {" @ w_out": ""},
    "The output matrix is transposed.": {"@ w_out": "@ w_out.T"},
    "The input is added to the output; only a block does that.": {"@ w_out": "@ w_out + x"},
    "The heads are in the wrong order: head 0 comes first.": {"(mixed,": "(mixed[::-1],"},
    "The heads are summed; join them.": {f"{JOINED} @ w_out": "sum(mixed) @ w_out[:D]"},
    "The heads are joined channel by channel; they belong side by side, one after another.":
        {JOINED: "mg.stack(mixed, axis=-1).reshape(x.shape)"},
    "The heads are joined by a reshape of (..., H, T, D) alone; swap to (..., T, H, D) before it.":
        {JOINED: "mg.stack(mixed, axis=-3).reshape(x.shape)"},
    "The heads are split by a reshape alone; swap (..., T, H, D) after it.": {HEAD: BY_RESHAPE},
    "Heads attend to each other within a word: swap words and heads, to (..., H, T, D), before.":
        {JOINED: "attend(x, (query, key, value), x.shape[-2], heads, D).reshape(x.shape)"},
    "The scores are divided by sqrt(D) twice: once here and once in causal_head.":
        {HEAD: "causal_head(x, query[:, own] * D ** -0.5, key[:, own], value[:, own])"},
    "The gradient ends where heads are joined: use mg.concatenate.": {JOINED: f"{JOINED}.detach()"},
}
# Those of a head can be made here too, but for what has a sentence above, or only raises errors.
LEFT_OUT = ("by D;", "key s.", "Axes 0", "no gradient", "PyTorch's", "not transposed", "weights;")
MISTAKES |= {sentence: {"append(causal_head(": f"append(head_with({sentence!r})("}
             for sentence in causal_head.__globals__["MISTAKES"]
             if not any(words in sentence for words in LEFT_OUT)}
