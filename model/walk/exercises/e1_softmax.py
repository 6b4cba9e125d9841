"""Exercise 1: softmax and its gradient.

Attention begins with scores, one for each word: the larger, the more this word
matters.  Softmax turns a row of scores into shares: all above 0, their sum 1.

    y_i = exp(x_i) / (exp(x_1) + ... + exp(x_C))

For example, exp(0) = 1 and exp(1.0986) = 3, so the scores (0, 1.0986) become
the shares (1/4, 3/4).

Write the function below with NumPy, in the form in which the engine takes it.
It returns two things: the value y, and a tuple with one function for each
argument, here one:

    return y, (dx,)

A model is trained to make one number small, its loss.  For that, the engine
has to know how fast the loss changes with each number in it, its gradient.  It
asks each function in turn, the last one first.  dx gets the gradient g of the
loss by y, which has the shape of y, and returns the gradient of the loss by x,
which has the shape of x.  Every share depends on every score of its row:

    d(y_i) / d(x_j) = y_i (1 - y_j)  if i = j,  and  -y_i y_j  if not.

Multiply by g_i and sum over i.  What remains is short: y_j times a difference.
For y = (1/4, 3/4) and g = (1, 0), dx(g) is (3/16, -3/16).

Hints.  x has the shape (..., C): rows of C numbers, in one axis, in several or
in none.  `axis=-1` works along each row, and `keepdims=True` keeps the axis,
with size 1, so that rows can be divided.  exp(1000) is too large for a
computer.  Softmax stays the same if one number is subtracted from all scores of
a row; think which number makes all of them harmless.
"""
import numpy as np

from model.walk.practice import op


@op
def softmax(x):
    """Return softmax along the last axis, and the functions that go back.

    x : (..., C)
    returns : y (..., C), and (dx,) with dx(g), g (..., C) -> (..., C)
    """
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    y = e / e.sum(axis=-1, keepdims=True)
    return y, (lambda g: y * (g - (g * y).sum(axis=-1, keepdims=True)),)


def cases(rng):
    yield np.array([[0.0, 1.0986],
                    [2.0, 1.0]]),
    yield rng.standard_normal((3, 3)),
    yield rng.standard_normal((2, 3, 4)),
    yield rng.standard_normal(5),
    yield np.array([[1000.0, 1001.0, 990.0],
                    [-5.0, 0.0, 5.0]]),
    yield np.array([[-2000.0, -2001.0, 0.0],
                    [3000.0, 0.0, 0.0],
                    [-2000.0, -2001.0, -2002.0]]),
    yield np.array([[1000.0, 999.0, 910.0],
                    [1.0, 2.0, 3.0]], np.float32),
