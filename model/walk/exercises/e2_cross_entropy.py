"""Exercise 2: cross-entropy and its gradient.

A model gives each character a score, a logit; softmax makes probabilities of
them.  The loss asks one thing: how probable was the character that came?

    loss = -(log p_1 + log p_2 + ... + log p_B) / B

where p_b is the probability that row b gives to its target, and log is the
natural logarithm.  With two characters and the logits (0, 0), each has the
probability 1/2, and the loss is log 2 = 0.6931, whichever of them comes.

Write the function below with NumPy.  It returns the loss, a single number, and
one function for each argument; the targets are whole numbers and have no
gradient, so theirs is None:

    return loss, (dlogits, None)

dlogits(g) gets a single number g, because the loss is one, and returns an array
of the shape of the logits.  It is one of the nicest formulas there are:

    (probabilities - one_hot) g / B

where one_hot is 1 at each row's target and 0 elsewhere.

Hints.  array[np.arange(B), targets] takes one entry of each row.  The logarithm
of a softmax needs no division:  log p = x - log(sum(exp(x))).  Subtract the
largest logit of the row from x first, as in exercise 1: a model that is very
sure has logits far apart, and log(0) is -inf.
"""
import numpy as np

from model.walk.practice import op


@op
def cross_entropy(logits, targets):
    """Return the mean of -log softmax(logits)[target], and the functions that go back.

    logits : (B, V)      targets : (B,), whole numbers from 0 to V - 1
    returns : loss (), and (dlogits, None) with dlogits(g), g () -> (B, V)
    """
    B = len(logits)
    rows = np.arange(B)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))

    def dlogits(g):
        one_hot = np.zeros_like(log_p)
        one_hot[rows, targets] = 1
        return (np.exp(log_p) - one_hot) * g / B
    return -log_p[rows, targets].mean(), (dlogits, None)


def cases(rng):
    yield np.array([[0.0, 0.0], [1.0, 3.0]]), np.array([1, 0])
    yield rng.standard_normal((3, 3)), np.array([2, 0, 0])
    yield rng.standard_normal((4, 3)), np.array([2, 2, 0, 1])
    yield rng.standard_normal((2, 5)), np.array([4, 1])
    yield rng.standard_normal((1, 3)), np.array([1])
    yield np.array([[1000.0, 0.0, 990.0], [-800.0, 0.0, 2.0]]), np.array([1, 0])
    yield np.array([[-2000.0, -2001.0], [2000.0, 1999.0]]), np.array([1, 1])
    yield np.array([[100.0, 0.0], [0.0, 1.0]], np.float32), np.array([1, 0])
