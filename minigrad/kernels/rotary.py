"""Rotary positions (Su et al. 2021, "RoFormer", section 3.4.2): channels turned in pairs.

In plain NumPy, for x (T, W) of which the first channels are turned, and angles (T, pairs):
    a, b = x[:, :2 * pairs:2], x[:, 1:2 * pairs:2]
    y = x.copy();  y[:, :2 * pairs:2] = a * cos - b * sin;  y[:, 1:2 * pairs:2] = b * cos + a * sin
and back by the opposite angle.
"""
import numpy as np
from numba import prange

from minigrad.kernels.compiling import dense, kernel, rows, serial, threads_for
from minigrad.kernels.softmax import copy_row


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Turn the first channels and copy the others: (..., T, W), (T, pairs), (T, pairs) ->
    (..., T, W)."""
    y = np.empty(x.shape, x.dtype)
    rotate_kernel(rows(x), dense(cos), dense(sin), rows(y), threads_for(x.size // 16))
    return y


@kernel("C2 C2 C2 C2 threads")
def rotate_kernel(x, cos, sin, y, threads):
    turned = 2 * cos.shape[1]
    for row in prange(len(x)):
        t = row % len(cos)
        rotate_row(x[row], cos[t], sin[t], y[row])
        copy_row(x[row, turned:], y[row, turned:])


@serial
def rotate_row(x, cos, sin, y):
    """Turn as many pairs as there are angles; y may be x."""
    for i in range(cos.size):
        a, b = x[2 * i], x[2 * i + 1]
        y[2 * i] = a * cos[i] - b * sin[i]
        y[2 * i + 1] = b * cos[i] + a * sin[i]
