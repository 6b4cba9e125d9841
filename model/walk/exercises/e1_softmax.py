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
    few = np.array([[0.0, 1.0986], [2.0, 1.0]])
    return [(few,), (rng.standard_normal((3, 3)),), (rng.standard_normal((2, 3, 4)),),
            (rng.standard_normal(5),), (np.array([[1000.0, 1001.0, 990.0], [-5.0, 0.0, 5.0]]),),
            (np.array([[-2000.0, -2001.0, 0.0], [3000.0, 0.0, 0.0]]),),
            (np.array([[100.0, 99.0, 3.0], [1.0, 2.0, 3.0]], np.float32),)]


MISTAKES = {
    "The gradient lacks its second term: a share also shrinks when another score of its row grows.":
        {"(g - (g * y).sum(axis=-1, keepdims=True))": "g"},
    "The gradient has only the terms with i = j.  Each score also moves the row's other shares.":
        {"(g - (g * y).sum(axis=-1, keepdims=True))": "g * (1 - y)"},
    "The second term of the gradient is a sum, not a mean: the shares y are already its weights.":
        {"(g * y).sum(axis=-1": "(g * y).mean(axis=-1"},
    "The second term of the gradient sums g without its weights y.": {"(g * y).sum": "g.sum"},
    "The second term of the gradient sums over all rows.  Each row is a softmax of its own.":
        {"(g * y).sum(axis=-1, keepdims=True)": "(g * y).sum()"},
    "The second term of the gradient sums over the columns; sum over the last axis.":
        {"(g * y).sum(axis=-1": "(g * y).sum(axis=0"},
    "The second term of the gradient has lost the summed axis; keep it with keepdims.":
        {"(g * y).sum(axis=-1, keepdims=True)": "(g * y).sum(axis=-1)"},
    "The gradient has the wrong sign.": {"lambda g: y * (g": "lambda g: -y * (g"},
    "The gradient is not multiplied by y at the end.": {"lambda g: y * (g": "lambda g: (g"},
    "The gradient uses the scores x where the shares y belong.":
        {"lambda g: y * (g - (g * y)": "lambda g: x * (g - (g * x)"},
    "The gradient is g as it came: the derivative of softmax is missing.":
        {"y * (g - (g * y).sum(axis=-1, keepdims=True))": "g"},
    "The gradient forgets g, which tells how much the loss depends on each share (the chain rule).":
        {"y * (g - (g * y).sum(axis=-1, keepdims=True))": "y * (1 - y) + 0 * g"},
    "The shares of all rows together have the sum 1.  Each row needs its own: sum the last axis.":
        {"e.sum(axis=-1, keepdims=True)": "e.sum()"},
    "Each column has the sum 1, and each row should.": {"e.sum(axis=-1": "e.sum(axis=0"},
    "The summed axis is lost, so NumPy divides column j by the sum of row j: use keepdims.":
        {"e.sum(axis=-1, keepdims=True)": "e.sum(axis=-1)"},
    "exp overflows for large scores: exp(710) is infinite, in float32 exp(89) already, and inf / "
    "inf is nan.  Subtract the largest score of the row first.":
        {"x - x.max(axis=-1, keepdims=True)": "x"},
    "The largest score of all rows is subtracted; a row far below is 0 / 0.  Take each row's own.":
        {"x.max(axis=-1, keepdims=True)": "x.max()"},
    "The largest scores have lost their axis, so columns get them: keep it with keepdims.":
        {"x.max(axis=-1, keepdims=True)": "x.max(axis=-1)"},
    "The mean of a row is subtracted, so exp can still overflow.  Subtract the largest score.":
        {"x.max(axis=-1": "x.mean(axis=-1"},
    "The smallest score of a row is subtracted, so the others grow.  Subtract the largest.":
        {"x.max(axis=-1": "x.min(axis=-1"},
    "The scores are not raised to shares by exp, but divided by their sum as they are.":
        {"np.exp(x - x.max(axis=-1, keepdims=True))": "1.0 * x"},
    "This is the logarithm of softmax: take its exp.": {"return y,": "return np.log(y),"},
}
