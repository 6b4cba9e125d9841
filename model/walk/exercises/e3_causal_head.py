"""Exercise 3: one head of causal attention.

Each of T words is a row of x, with C numbers.  Three matrices make three rows
of D numbers of each word:

    query   x w_query    what this word looks for
    key     x w_key      what this word offers to be found by
    value   x w_value    what it hands over when it is found

The score of word t for word s is the dot product of query t and key s, divided
by the square root of D, so that it does not grow with D.  A word may look at
itself and at earlier words; the scores of later ones become -inf, and softmax
makes 0 of that.  The output of a word is the mean of the values, weighted by
its row of weights:

    softmax(query key^T / sqrt(D) + mask) value

For example, word 1 can only look at itself: its weights are (1, 0, 0, ...), and
its output is its own value.

From here on you write with Tensors, and the engine makes the gradients.  The
operators + - * / @ and indexing work as in NumPy; functions are the engine's,
as mg.softmax(x).  NumPy is good for what has no gradient, such as a mask.

Hints.  key.swapaxes(-1, -2) exchanges the last two axes.  np.triu(a, k=1) keeps
what is right of the diagonal.  mg.where(condition, x, y) takes x where the
condition holds and y elsewhere; -math.inf is a number that it takes.
"""
import math

import numpy as np

import minigrad as mg


def causal_head(x, w_query, w_key, w_value):
    """Return what each word makes of itself and the words before it.

    x : (..., T, C)      w_query, w_key, w_value : (C, D)
    returns : (..., T, D)
    """
    query, key, value = x @ w_query, x @ w_key, x @ w_value             # (..., T, D)
    T, D = query.shape[-2:]
    future = np.triu(np.ones((T, T), bool), k=1)
    scores = query @ key.swapaxes(-1, -2) / math.sqrt(D)                # (..., T, T)
    weights = mg.softmax(mg.where(future, -math.inf, scores))
    return weights @ value


def cases(rng):
    normal = rng.standard_normal
    few = np.array([[1.0, 0.0], [0.0, 1.0]])
    query, key, value = normal((3, 3, 5))
    yield few, few, 2 * few, np.array([[1.0, 2.0], [3.0, 4.0]])
    yield normal((3, 3, 3)), *normal((3, 3, 3))
    yield normal((4, 3)), query, key, value
    yield normal((2, 3, 3)), query, key, value
    yield normal((1, 3)), query, key, value
    # Large scores; of a word for itself far below 0, where it counts like a mask of -1e4
    yield 1000 * normal((5, 3)), query, -query, value
