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
            (np.array([[-2000.0, -2001.0, 0.0], [3000.0, 0.0, 0.0], [-2000, -2001, -2002]]),),
            (np.array([[1000.0, 999.0, 910.0], [1.0, 2.0, 3.0]], np.float32),)]


SUM, TOP = "e.sum(axis=-1, keepdims=True)", "x.max(axis=-1, keepdims=True)"
TERM = "(g * y).sum(axis=-1, keepdims=True)"
BACK = f"y * (g - {TERM})"
MISTAKES = {
    "The gradient lacks its second term: other scores move a share too.": {f"- {TERM}": ""},
    "The gradient has only the terms with i = j; add those with i != j.": {BACK: "y * g * (1 - y)"},
    "The second term of the gradient is a sum, not a mean; y weights it.": {"y).sum(": "y).mean("},
    "The second term of the gradient sums g without its weights y.": {"(g * y).sum": "g.sum"},
    "The second term of the gradient sums y without g.": {"(g * y).sum": "y.sum"},
    "The second term of the gradient sums over all rows; take each alone.": {TERM: "(g * y).sum()"},
    "The second term of the gradient sums columns; sum rows.": {"y).sum(axis=-1": "y).sum(axis=0"},
    "The second term of the gradient has lost its axis: keepdims.": {TERM: "(g * y).sum(axis=-1)"},
    "The second term of the gradient is not multiplied by y.": {BACK: f"y * g - {TERM}"},
    "The second term of the gradient is y; it should be the sum of g y.": {TERM: "y"},
    "The gradient has the wrong sign.": {BACK: f"-{BACK}"},
    "The gradient is not multiplied by y at the end.": {"y * (g - ": "(g - "},
    "The gradient uses the scores x where the shares y belong.": {BACK: BACK.replace("y", "x")},
    "This is the gradient of log-softmax.": {BACK: "g - y * g.sum(axis=-1, keepdims=True)"},
    "The gradient is g as it came: the derivative of softmax is missing.": {BACK: "g"},
    "The gradient forgets g: multiply by it (the chain rule).": {BACK: "y * (1 - y) + 0 * g"},
    "All shares together have the sum 1; each row should: sum the last axis.": {SUM: "e.sum()"},
    "Each column has the sum 1, and each row should.": {"e.sum(axis=-1": "e.sum(axis=0"},
    "The summed axis is lost, so columns get sums of rows: keepdims.": {SUM: "e.sum(axis=-1)"},
    "The exponentials are not divided by their sum.": {f" / {SUM}": ""},
    "The exponentials are divided by their mean; take their sum.": {"e.sum": "e.mean"},
    "exp overflows for large scores: exp(710) is infinite, in float32 exp(89) already, and inf / "
    "inf is nan.  Subtract the largest score of the row first.": {f" - {TOP}": ""},
    "The largest score of all rows is subtracted; take each row's own.": {TOP: "x.max()"},
    "The largest scores have lost their axis: keep it with keepdims.": {TOP: "x.max(axis=-1)"},
    "The mean of a row is subtracted, so exp can overflow; take the largest.": {"x.max": "x.mean"},
    "The smallest score of a row is subtracted; take the largest.": {"x.max": "x.min"},
    "The scores are divided by their sum: exp is missing.": {f"np.exp(x - {TOP})": "1.0 * x"},
    "The scores are clipped, so those beyond it become equal; subtract the largest instead.":
        {"    e =": "    x = np.clip(x, -50, 50)\n    e ="},
    "This is softmax of |x|: keep the signs.": {"    e =": "    x = np.abs(x)\n    e ="},
    "This is softmax of -x: the lowest score gets most.": {"    e =": "    x = -x\n    e ="},
    "The powers have the base 2; softmax has powers of e, np.exp.": {"np.exp(": "np.exp2("},
    "This is the logarithm of softmax: take its exp.": {"return y,": "return np.log(y),"},
    "This is log-softmax: take its exp.": {"return y,": f"return x - {TOP} - np.log({SUM}),"},
}
