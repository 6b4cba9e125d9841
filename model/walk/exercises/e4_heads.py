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
    normal = rng.standard_normal
    few = np.array([[1.0, 0.0], [0.0, 1.0]])
    few_qkv = np.array([[1.0, 0, 2, 0, 1, 2], [0, 1, 0, 1, 3, 4]])
    w_qkv = normal((6, 18)) / 2
    w_out = normal((6, 6)) / 2
    query = w_qkv[:, :6]
    yield few, few_qkv, np.array([[1.0, 2.0], [0.0, 1.0]]), 2
    yield normal((4, 6)), w_qkv, w_out, 2
    yield normal((2, 3, 6)), w_qkv, w_out, 3
    yield normal((3, 6)), w_qkv, w_out, 1
    # Large scores, of a word for itself far below 0
    yield 1000 * normal((5, 6)), np.concatenate([query, -query, query], axis=1), w_out, 2


def attend(x, matrices, *shape):
    """Return attention of x @ matrix for three matrices, reshaped to (..., *shape)."""
    parts = ((x @ w).reshape(*x.shape[:-2], *shape) for w in matrices)
    return mg.scaled_dot_product_attention(*parts, is_causal=True)


def head_with(sentence):
    """Return causal_head with a mistake of exercise 3."""
    from model.walk.practice import exercises
    head = next(exercise for exercise in exercises() if exercise.answer is causal_head)
    return head.with_mistakes(sentence)


LEFT_OUT = ("by D;", "key s.", "Axes 0", "no gradient", "PyTorch's", "not transposed", "weights;")


def more_mistakes():
    """Return the mistakes of a head that can be made here too: not those for which e4_heads.txt has
    a sentence, or which only raise errors."""
    from model.walk.practice import read_mistakes
    return {sentence: {"append(causal_head(": f"append(head_with({sentence!r})("}
            for sentence in read_mistakes("e3_causal_head")
            if not any(words in sentence for words in LEFT_OUT)}
