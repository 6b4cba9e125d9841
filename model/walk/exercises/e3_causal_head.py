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
    few = np.array([[1.0, 0.0], [0.0, 1.0]])
    matrices = [rng.standard_normal((3, 5)) for _ in range(3)]
    return [(few, few, 2 * few, np.array([[1.0, 2.0], [3.0, 4.0]])),
            (rng.standard_normal((3, 3, 3)), *rng.standard_normal((3, 3, 3))),
            (rng.standard_normal((4, 3)), *matrices), (rng.standard_normal((2, 3, 3)), *matrices),
            (rng.standard_normal((1, 3)), *matrices),
            (rng.standard_normal((2, 4, 3)).astype(np.float32),
             *(w.astype(np.float32) for w in matrices)),
            # Large scores; of a word for itself far below 0, where it counts like a mask of -1e4
            (1000 * rng.standard_normal((5, 3)), matrices[0], -matrices[0], matrices[2])]


HIDDEN = "mg.where(future, -math.inf, scores)"
WEIGHTS, MIXED = f"mg.softmax({HIDDEN})", "weights @ value"
MISTAKES = {
    "The scores are not divided by sqrt(D).": {" / math.sqrt(D)": ""},
    "The scores are divided by D; it should be its square root.": {"/ math.sqrt(D)": "/ D"},
    "The scores are divided by sqrt(C), the width of x; divide by sqrt(D), the width of a query.":
        {"math.sqrt(D)": "math.sqrt(x.shape[-1])"},
    "The scores are divided by sqrt(T), T words; take sqrt(D).": {"math.sqrt(D)": "math.sqrt(T)"},
    "The scores are multiplied by sqrt(D); divide by it.": {"/ math.sqrt(D)": "* math.sqrt(D)"},
    "The weights are divided by sqrt(D) after the softmax; divide the scores before it.":
        {" / math.sqrt(D)": "", MIXED: f"{MIXED} / math.sqrt(D)"},
    "The scores are clipped, so those beyond the limit become equal; mg.softmax takes any size.":
        {HIDDEN: HIDDEN.replace("scores", "mg.maximum(-50.0, -mg.maximum(-50.0, -scores))")},
    "There is no mask: every word sees the words after it.": {HIDDEN: "scores"},
    "The mask hides the past and shows the future: hide what is right of the diagonal.":
        {"np.triu(np.ones((T, T), bool), k=1)": "np.tril(np.ones((T, T), bool), k=-1)"},
    "The mask hides the diagonal too, so a word cannot look at itself.": {"k=1": "k=0"},
    "The mask begins one word too late: every word still sees the next one.": {"k=1": "k=2"},
    "The mask keeps each word from all others: only the diagonal is open.":
        {"np.triu(np.ones((T, T), bool), k=1)": "~np.eye(T, dtype=bool)"},
    "The choice is the wrong way round: later words keep their scores, and all others become -inf.":
        {HIDDEN: "mg.where(future, scores, -math.inf)"},
    "The mask is a product, and 0 times -inf is nan.  Use where, or np.triu of an array of -inf.":
        {HIDDEN: "scores + np.triu(np.ones((T, T)), k=1) * -math.inf"},
    "The scores of later words become 0, and exp(0) is 1; take -inf.": {"-math.inf": "0.0"},
    "The mask is a number such as -50, above some scores; take -math.inf.": {"-math.inf": "-50.0"},
    "The mask adds a number such as -50, and a large score outweighs it; take -math.inf.":
        {HIDDEN: "scores + np.where(future, -50.0, 0.0)"},
    "exp overflows for large scores.  Subtract the largest score of the row, or use mg.softmax.":
        {WEIGHTS: "mg.where(future, 0.0, mg.exp(scores))\n"
                  "    weights = weights / weights.sum(axis=-1, keepdims=True)"},
    "Later words get weight 0 after the softmax, so rows sum to less than 1; mask the scores.":
        {WEIGHTS: "mg.where(future, 0.0, mg.softmax(scores))"},
    "The mask is added after the softmax, so outputs are nan or infinite; mask the scores before.":
        {WEIGHTS: "mg.softmax(scores) + np.where(future, -math.inf, 0.0)"},
    "Softmax runs down the columns; it belongs along each row.": {HIDDEN: f"{HIDDEN}, axis=-2"},
    "Softmax runs over axis 0; it belongs along the last.": {HIDDEN: f"{HIDDEN}, axis=0"},
    "Softmax is applied twice.": {WEIGHTS: f"mg.softmax({WEIGHTS})"},
    "The softmax is missing: scores weight the values.": {WEIGHTS: "mg.where(future, 0.0, scores)"},
    "These are the logarithms of the weights; take mg.softmax.": {"mg.softmax": "mg.log_softmax"},
    "The exponentials are not divided by their sum.": {WEIGHTS: "mg.exp(scores - mg.max(scores, "
                                                       "-1, True)) * ~future"},
    "Queries and keys are exchanged: score (t, s) belongs to query t and key s.":
        {"query @ key.swapaxes": "key @ query.swapaxes"},
    "Queries and keys both come from w_query; keys have w_key.": {"x @ w_key": "x @ w_query"},
    "Queries and keys both come from w_key; queries have w_query.": {"x @ w_query": "x @ w_key"},
    "The keys are not transposed: exchange their axes.": {"key.swapaxes(-1, -2)": "key"},
    "key.T turns all axes around, a batch's too; exchange two.": {"swapaxes(-1, -2)": "T"},
    "Axes 0 and 1 are exchanged; with a batch, the last two are others.": {"(-1, -2)": "(0, 1)"},
    "The weights mix the keys; they should mix the values.": {MIXED: "weights @ key"},
    "The weights mix the queries; they should mix the values.": {MIXED: "weights @ query"},
    "The weights mix x itself; they should mix the values, x @ w_value.": {MIXED: "weights @ x"},
    "The weights are transposed; use weights @ value.": {MIXED: "weights.swapaxes(-1, -2) @ value"},
    "These are the weights; multiply them by the values.": {MIXED: "weights"},
    "The matrices are transposed, as PyTorch's layers have them; here it is x @ w.":
        {"x @ w_query, x @ w_key, x @ w_value": "x @ w_query.T, x @ w_key.T, x @ w_value.T"},
    "The gradient ends at the weights, which became arrays (.data).":
        {MIXED: "weights.detach() @ value"},
    "The gradient ends at the values, which became arrays (.data).":
        {MIXED: "weights @ value.detach()"},
    "There is no gradient: the output is made of arrays (.data).": {MIXED: f"({MIXED}).detach()"},
}
