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
    rows, B = np.arange(len(logits)), len(logits)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))

    def dlogits(g):
        one_hot = np.zeros_like(log_p)
        one_hot[rows, targets] = 1
        return (np.exp(log_p) - one_hot) * g / B
    return -log_p[rows, targets].mean(), (dlogits, None)


def cases(rng):
    return [(np.array([[0.0, 0.0], [1.0, 3.0]]), np.array([1, 0])),
            (rng.standard_normal((3, 3)), np.array([2, 0, 0])),
            (rng.standard_normal((4, 3)), np.array([2, 2, 0, 1])),
            (rng.standard_normal((2, 5)), np.array([4, 1])),
            (rng.standard_normal((1, 3)), np.array([1])),
            (np.array([[1000.0, 0.0, 990.0], [-800.0, 0.0, 2.0]]), np.array([1, 0])),
            (np.array([[-2000.0, -2001.0], [2000.0, 1999.0]]), np.array([1, 1])),
            (np.array([[100.0, 0.0], [0.0, 1.0]], np.float32), np.array([1, 0]))]


SUM = "np.exp(shifted).sum(axis=-1, keepdims=True)"
MISTAKES = {
    "The gradient lacks the factor 1/B: the loss is a mean over the rows.": {"* g / B": "* g"},
    "The gradient lacks the one-hot part: at the target, 1 is subtracted from the probability.":
        {"(np.exp(log_p) - one_hot)": "np.exp(log_p)"},
    "Only the probabilities are divided by B in the gradient, and not the one-hot part.":
        {"(np.exp(log_p) - one_hot) * g / B": "np.exp(log_p) * g / B - one_hot * g"},
    "The gradient has the wrong sign: it is probabilities minus one-hot.":
        {"(np.exp(log_p) - one_hot)": "(one_hot - np.exp(log_p))"},
    "The gradient is divided by V, the number of characters, and not by B, the number of rows.":
        {"* g / B": "* g / log_p.shape[-1]"},
    "The gradient is divided by all entries, B times V; the mean is over the B rows.":
        {"* g / B": "* g / log_p.size"},
    "The gradient forgets g, with which it is multiplied.": {"* g / B": "/ B"},
    "The gradient uses logarithms of probabilities where the probabilities belong.":
        {"np.exp(log_p) - one_hot": "log_p - one_hot"},
    "The gradient uses the logits where the probabilities belong: apply softmax to them.":
        {"np.exp(log_p) - one_hot": "logits - one_hot"},
    "The gradient reaches the target's logit only.  All logits are in the sum of softmax.":
        {"(np.exp(log_p) - one_hot)": "(np.exp(log_p) - one_hot) * one_hot"},
    "one_hot[:, targets] sets columns in every row.  Index by np.arange(B) and targets together.":
        {"one_hot[rows, targets] = 1": "one_hot[:, targets] = 1"},
    "The largest logit is subtracted in one place only, so log p is too large by it.":
        {"log_p = shifted": "log_p = logits"},
    "The mean is over all B times V entries of log p times one-hot.  Sum them, and divide by B.":
        {"return -log_p[rows, targets].mean()":
         "return -(log_p * np.eye(log_p.shape[-1])[targets]).mean()"},
    "The losses of the rows are summed; the loss is their mean.": {".mean(), (": ".sum(), ("},
    "The loss lacks its minus sign: log p is negative.": {"return -log_p": "return log_p"},
    "The logarithm has the base 2, so the loss is in bits; take the natural logarithm, np.log.":
        {"return -log_p[rows, targets]": "return -log_p[rows, targets] / np.log(2)"},
    "This is the mean of the targets' probabilities, without a logarithm.":
        {"return -log_p[rows, targets].mean()": "return np.exp(log_p)[rows, targets].mean()"},
    "log_p[:, targets] takes every target from every row.  Index by np.arange(B) and targets.":
        {"return -log_p[rows, targets]": "return -log_p[:, targets]"},
    "The mean is over all entries of log p, and not over the targets' alone.":
        {"return -log_p[rows, targets].mean()": "return -log_p.mean()"},
    "The target's logit is taken without softmax: the sum of the exponentials is missing.":
        {"return -log_p[rows, targets]": "return -logits[rows, targets]"},
    "Softmax runs down the columns, over the batch; it belongs along each row, the last axis.":
        {"np.exp(shifted).sum(axis=-1": "np.exp(shifted).sum(axis=0"},
    "The sum of the exponentials has lost its axis, and meets the columns: keep it with keepdims.":
        {SUM: "np.exp(shifted).sum(axis=-1)"},
    "exp overflows for large logits.  Subtract the largest logit of the row first.":
        {"logits - logits.max(axis=-1, keepdims=True)": "1.0 * logits"},
    "The logarithm is taken of the finished probability.  Where that is rounded to 0, the loss is "
    "infinite.  Use  log p = x - log(sum(exp(x))).":
        {f"shifted - np.log({SUM})": f"np.log(np.exp(shifted) / {SUM})"},
    "A small number is added before the logarithm, against log(0).  It also limits the loss of a "
    "model that is sure and wrong.  Use  log p = x - log(sum(exp(x))).":
        {f"shifted - np.log({SUM})": f"np.log(np.exp(shifted) / {SUM} + 1e-9)"},
}
