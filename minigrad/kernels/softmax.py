"""Softmax over rows, and the cross-entropy of rows of logits against one class each."""
import numpy as np

from minigrad import formulas
from minigrad.kernels.compiler.compiling import (C1, C2, I1, IDS1, kernel, rows, stands_in_for,
                                                 threads_for)
from minigrad.kernels.compiler.lanes import LANES, load, spread, store, total
from minigrad.kernels.compiler.linking import inlined, serial
from minigrad.kernels.compiler.parallel import on_threads, share
from minigrad.kernels.compiler.simd import part
from minigrad.kernels.compiler.sums import dot, largest
from minigrad.kernels.compiler.vector_math import exp, log


@stands_in_for(formulas.softmax)
def softmax(x: np.ndarray) -> np.ndarray:
    out = np.empty(x.shape, x.dtype)
    if x.size:
        softmax_kernel(rows(x), rows(out), threads_for(x.size))
    return out


@kernel
def softmax_kernel(thread, threads, x: C2, out: C2):
    R, C = x.shape
    for r in share(R, thread, threads):
        row = part(x, r * C, C)
        softmax_row(row, largest(row), part(out, r * C, C))


@inlined
def softmax_row(x, top, y):
    """Write the softmax of a row, whose maximum is `top`, to y, which may be x; return
    log(sum(exp(x)))."""
    y = part(y, 0, x.size)
    sums = spread(x.dtype.type(0))
    for i in range(0, x.size, LANES):
        e = exp(load(x, i, -np.inf) - top)
        store(y, i, e)
        sums += e
    sum_ = total(sums)
    scale = x.dtype.type(1) / sum_
    for i in range(x.size):     # a masked store is slow, and so is loading what it wrote
        y[i] *= scale
    return top + log(sum_)


@stands_in_for(formulas.softmax_vjp)
def softmax_vjp(g: np.ndarray, y: np.ndarray) -> np.ndarray:
    out = np.empty(y.shape, y.dtype)
    if y.size:
        softmax_vjp_kernel(rows(g), rows(y), rows(out), threads_for(y.size // 4))
    return out


@kernel
def softmax_vjp_kernel(thread, threads, g: C2, y: C2, out: C2):
    R, C = y.shape
    for r in share(R, thread, threads):
        softmax_row_vjp(part(g, r * C, C), part(y, r * C, C), part(out, r * C, C))


@serial
def softmax_row_vjp(g, y, out):
    g, out, along = part(g, 0, y.size), part(out, 0, y.size), dot(g, y)
    for i in range(0, y.size, LANES):
        store(out, i, load(y, i, 0) * (load(g, i, 0) - along))


@stands_in_for(formulas.cross_entropy)
def cross_entropy(logits: np.ndarray, targets: np.ndarray, ignored: int
                  ) -> tuple[np.ndarray, np.ndarray, int]:
    losses, slopes = np.empty(len(targets), logits.dtype), np.empty(logits.shape, logits.dtype)
    counted = np.zeros(1, np.int64)
    if targets.size:
        cross_entropy_kernel(rows(logits), targets, losses, slopes, ignored, counted,
                             threads_for(logits.size))
    return losses, slopes, int(counted[0])


@kernel
def cross_entropy_kernel(logits: C2, targets: IDS1, losses: C1, slopes: C2, ignored: int,
                         counted: I1, threads: int):
    for target in targets:
        if target != ignored:
            if not 0 <= target < logits.shape[1]:
                raise IndexError("a target is no class")
            counted[0] += 1
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
