"""The loss of a model whose output's weights are frozen: no more than a few rows of logits at once.

With a vocabulary of 49,152, the logits of 256 tokens take 50 MB, and their gradient as much.  As
the weights get no gradient, backward needs only that of x, and can make the logits of these rows
again.
"""
import numpy as np

from minigrad import formulas
from minigrad.core import Array, op
from minigrad.formulas import rows
from minigrad.packed import Packed, product, product_vjp

AT_ONCE = 128       # rows
IGNORED = -100      # a target that is not counted; there is none


@op(register=False)
def frozen_cross_entropy(x: Array, weight: Array, targets: Array):
    """cross_entropy(linear(x, weight), targets) of a frozen weight, (..., C), (V, C), (...) -> ().
    Back:  dx = g (softmax(logits) - 1 at the target) weight / n, for n targets.
    """
    flat = rows(x)                                                          # (n, C)
    targets = targets.reshape(-1)
    n = len(flat)
    losses = np.empty(n, x.dtype)
    for some in pieces(n):
        losses[some], _, _ = formulas.cross_entropy(logits(flat[some], weight), targets[some],
                                                    IGNORED)

    def dx(g):
        gradient = np.empty_like(flat)
        for some in pieces(n):
            _, slopes, _ = formulas.cross_entropy(logits(flat[some], weight), targets[some],
                                                  IGNORED)
            slopes *= float(g) / n
            if isinstance(weight, Packed):
                gradient[some] = product_vjp(slopes, weight)
            else:
                gradient[some] = formulas.matmul(slopes, weight)
        return gradient.reshape(x.shape)
    return losses.sum() / n, (dx, None, None)


def pieces(n: int) -> list[slice]:
    """Return the rows that are taken together, of n."""
    return [slice(begin, min(n, begin + AT_ONCE)) for begin in range(0, n, AT_ONCE)]


def logits(x: np.ndarray, weight: np.ndarray | Packed) -> np.ndarray:
    """Return the logits of some rows, (M, C), (V, C) -> (M, V)."""
    if isinstance(weight, Packed):
        return np.ascontiguousarray(product(x, weight))
    return formulas.linear(x, weight, None)
