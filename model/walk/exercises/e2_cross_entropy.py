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
LOG_P, OF_TARGETS = f"shifted - np.log({SUM})", "log_p[rows, targets]"
LOSS, BACK = f"-{OF_TARGETS}.mean()", "(np.exp(log_p) - one_hot)"
MISTAKES = {
    "The gradient lacks the factor 1/B: the loss is a mean over the rows.": {"* g / B": "* g"},
    "The gradient lacks the one-hot part: 1 is subtracted at the target.": {" - one_hot)": ")"},
    "1 is subtracted everywhere, not at the target.": {"one_hot[rows, targets] =": "one_hot[:] ="},
    "The gradient has the one-hot part alone; the probabilities are missing.": {BACK: "-one_hot"},
    "The gradient has the wrong sign: it is probabilities minus one-hot.": {BACK: f"-{BACK}"},
    "The gradient is divided by V; divide by B, the number of rows.":
        {"* g / B": "* g / log_p.shape[-1]"},
    "The gradient is divided by B V; the mean is over the B rows.": {"* g / B": "* g / log_p.size"},
    "The gradient is divided by B twice.": {"* g / B": "* g / B / B"},
    "The gradient has exp without the sum.": {"log_p) - one": "shifted) - one"},
    "The gradient forgets g, with which it is multiplied.": {"* g / B": "/ B"},
    "The gradient uses log p where the probability p belongs.": {BACK: "(log_p - one_hot)"},
    "The gradient uses the logits where the probabilities belong.": {BACK: "(logits - one_hot)"},
    "The gradient is that by p, -1/p; go on to the logits.": {BACK: "-one_hot / np.exp(log_p)"},
    "The gradient reaches the target's logit only; softmax has all.": {BACK: f"{BACK} * one_hot"},
    "one_hot[:, targets] sets whole columns: index by np.arange(B) too.":
        {"one_hot[rows": "one_hot[:"},
    "The largest logit is subtracted in one place only.": {"log_p = shifted": "log_p = logits"},
    "The mean is over all B times V entries of log p times one-hot.  Sum them, and divide by B.":
        {LOSS: "-(log_p * np.eye(log_p.shape[-1])[targets]).mean()"},
    "The losses of the rows are summed; the loss is their mean.": {"].mean()": "].sum()"},
    "The loss is divided by V; divide by B, the rows.": {"].mean()": "].sum() / log_p.shape[-1]"},
    "The loss lacks its minus sign: log p is negative.": {"return -": "return "},
    "The logarithm has the base 2; take the natural one, np.log.": {LOSS: f"{LOSS} / np.log(2)"},
    "The logarithm of the sum has the base 2; take the natural one, np.log.": {"np.log": "np.log2"},
    "The mean is of the probabilities: log is missing.": {LOSS: f"-np.exp({OF_TARGETS}).mean()"},
    "This is the logarithm of the mean probability; take the mean of the logarithms.":
        {LOSS: f"-np.log(np.exp({OF_TARGETS}).mean())"},
    "This is the perplexity, exp(loss); return the loss.": {LOSS: f"np.exp({LOSS})"},
    "The most probable characters count, not the targets.": {LOSS: "-log_p.max(axis=-1).mean()"},
    "The targets are shifted by one: row b has that of b + 1.":
        {OF_TARGETS: "log_p[rows, np.roll(targets, -1)]"},
    "The targets are shifted by one: row b has that of b - 1.":
        {OF_TARGETS: "log_p[rows, np.roll(targets, 1)]"},
    "The targets are shifted by one, and a row is left out.":
        {OF_TARGETS: "log_p[rows[:-1], targets[1:]]"},
    "1 is subtracted from the targets; they begin at 0.": {OF_TARGETS: "log_p[rows, targets - 1]"},
    "log_p[:, targets] takes all pairs: index by np.arange(B) too.":
        {OF_TARGETS: "log_p[:, targets]"},
    "The mean is over all of log p, and not over the targets' alone.": {OF_TARGETS: "log_p"},
    "The logit is taken without softmax.": {OF_TARGETS: "logits[rows, targets]"},
    "Softmax runs down the columns; it belongs along each row.": {SUM: SUM.replace("-1", "0")},
    "The summed axis is lost: keep it with keepdims.": {SUM: "np.exp(shifted).sum(axis=-1)"},
    "exp overflows for large logits.  Subtract the largest logit of the row first.":
        {"logits - logits.max(axis=-1, keepdims=True)": "1.0 * logits"},
    "The logarithm is taken of the finished probability.  Where that is rounded to 0, the loss is "
    "infinite.  Use  log p = x - log(sum(exp(x))).": {LOG_P: f"np.log(np.exp(shifted) / {SUM})"},
}
for small in ("1e-15", "1e-12", "1e-10", "1e-9", "1e-8", "1e-7", "1e-6"):
    MISTAKES[f"{small} is added to the probabilities, or they are kept above it, against log(0).  "
             "That limits the loss of a model that is sure and wrong.  Use  log p = x - "
             "log(sum(exp(x)))."] = {LOG_P: f"np.log(np.maximum(np.exp(shifted) / {SUM}, {small}))"}
