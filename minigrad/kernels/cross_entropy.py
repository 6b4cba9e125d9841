"""Cross-entropy of rows of logits against one class each.  In plain NumPy:

    log_sum = np.log(np.exp(logits).sum(-1));
    loss = (log_sum - logits[rows, targets])[counted].mean();
    dlogits = g * (softmax(logits) - one_hot(targets)) / counted.sum(), 0 where not counted.
"""
import numpy as np
from numba import prange

from minigrad.kernels.compiling import kernel, rows, threads_for
from minigrad.kernels.softmax import largest, softmax_row
from minigrad.kernels.vector_math import exp


def cross_entropy(logits: np.ndarray, targets: np.ndarray, ignored: int) -> np.ndarray:
    """-log softmax(logits)[target] in nats, 0 where it is `ignored`: (R, C), (R,) -> (R,)."""
    losses = np.empty(len(targets), logits.dtype)
    if targets.size:
        losses_kernel(rows(logits), targets, losses, ignored, threads_for(logits.size))
    return losses


def cross_entropy_vjp(g: float, logits: np.ndarray, targets: np.ndarray, ignored: int
                      ) -> np.ndarray:
    """g times the gradient of the sum of `cross_entropy`, (R, C)."""
    out = np.empty(logits.shape, logits.dtype)
    if out.size:
        losses_vjp_kernel(rows(logits), targets, out, g, ignored, threads_for(logits.size))
    return out


@kernel("C2 ids1 C1 int threads")
def losses_kernel(logits, targets, losses, ignored, threads):
    R, C = logits.shape
    for r in prange(R):
        losses[r] = 0
        if targets[r] != ignored:
            top = largest(logits[r])
            total = logits.dtype.type(0)
            for c in range(C):
                total += exp(logits[r, c] - top)
            losses[r] = top - logits[r, targets[r]] + np.log(total)


@kernel("C2 ids1 C2 double int threads")
def losses_vjp_kernel(logits, targets, out, g, ignored, threads):
    real = out.dtype.type
    for r in prange(out.shape[0]):
        if targets[r] == ignored:
            out[r] = 0
        else:
            softmax_row(logits[r], out[r])
            out[r, targets[r]] -= real(1)
            for c in range(out.shape[1]):
                out[r, c] *= real(g)
