"""Softmax over rows.  In plain NumPy:

    e = np.exp(x - x.max(-1, keepdims=True));  y = e / e.sum(-1, keepdims=True).
"""
import numpy as np
from numba import prange

from minigrad.kernels.compiling import kernel, rows, serial, threads_for
from minigrad.kernels.simd import larger
from minigrad.kernels.vector_math import exp


def softmax(x: np.ndarray) -> np.ndarray:
    """Softmax over the last axis, (..., C) -> (..., C)."""
    out = np.empty(x.shape, x.dtype)
    if x.size:
        softmax_kernel(rows(x), rows(out), threads_for(x.size))
    return out


def softmax_vjp(g: np.ndarray, y: np.ndarray) -> np.ndarray:
    """y * (g - sum(g * y)) over the last axis: the gradient of `softmax`, from its output y."""
    out = np.empty(y.shape, y.dtype)
    if y.size:
        softmax_vjp_kernel(rows(g), rows(y), rows(out), threads_for(y.size))
    return out


@kernel("C2 C2 threads")
def softmax_kernel(x, out, threads):
    for r in prange(x.shape[0]):
        copy_row(x[r], out[r])
        softmax_in_place(out[r], largest(out[r]))


@serial
def softmax_in_place(row, top):
    """Make a row, whose maximum is `top`, its softmax; return log(sum(exp(row))).  (A loop that may
    read what it has written through another array does not become vectors; so it is given one.)"""
    total = row.dtype.type(0)
    for c in range(row.size):
        row[c] = exp(row[c] - top)
        total += row[c]
    share = row.dtype.type(1) / total
    for c in range(row.size):
        row[c] *= share
    return top + np.log(total)


@serial
def copy_row(source, target):
    for c in range(source.size):
        target[c] = source[c]


@serial
def largest(x):
    """The maximum of a row; of one with nan, anything."""
    top = x[0]
    for c in range(x.size):
        top = larger(top, x[c])
    return top


@kernel("C2 C2 C2 threads")
def softmax_vjp_kernel(g, y, out, threads):
    for r in prange(y.shape[0]):
        dot = y.dtype.type(0)
        for c in range(y.shape[1]):
            dot += g[r, c] * y[r, c]
        for c in range(y.shape[1]):
            out[r, c] = y[r, c] * (g[r, c] - dot)
