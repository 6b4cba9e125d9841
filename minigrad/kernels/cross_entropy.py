"""Cross-entropy of rows of logits against one class each, with its gradient in the same pass.

In plain NumPy:
    log_sum = np.log(np.exp(logits).sum(-1));
    loss = log_sum - logits[rows, targets];
    slope = softmax(logits) - one_hot(targets);  both 0 where the target is ignored.
"""
import numpy as np

from minigrad.kernels.build.compiling import kernel, rows, serial, threads_for
from minigrad.kernels.build.parallel import on_threads, share
from minigrad.kernels.build.simd import part
from minigrad.kernels.build.sums import largest
from minigrad.kernels.softmax import softmax_row


def cross_entropy(logits: np.ndarray, targets: np.ndarray, ignored: int
                  ) -> tuple[np.ndarray, np.ndarray]:
    """-log softmax(logits)[target] in nats, (R, C), (R,) -> (R,), and its gradient, (R, C)."""
    losses, slopes = np.empty(len(targets), logits.dtype), np.empty(logits.shape, logits.dtype)
    if targets.size:
        cross_entropy_kernel(rows(logits), targets, losses, slopes, ignored,
                             threads_for(logits.size))
    return losses, slopes


@kernel("C2 ids1 C1 C2 int threads")
def cross_entropy_kernel(logits, targets, losses, slopes, ignored, threads):
    on_threads(threads, cross_entropy_rows, logits, targets, losses, slopes, ignored)


@serial
def cross_entropy_rows(thread, threads, logits, targets, losses, slopes, ignored):
    R, C = logits.shape
    for r in share(R, thread, threads):
        if targets[r] == ignored:
            losses[r] = 0
            slopes[r] = 0
        else:
            row = part(logits, r * C, C)
            log_sum = softmax_row(row, largest(row), part(slopes, r * C, C))
            losses[r] = log_sum - logits[r, targets[r]]
            slopes[r, targets[r]] -= 1
