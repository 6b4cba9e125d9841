"""What an optimiser does to a parameter, in one pass.

In plain NumPy, AdamW (Loshchilov & Hutter 2019, algorithm 2):
    m += (1 - beta1) * (g - m);  v += (1 - beta2) * (g * g - v);
    p -= lr * (weight_decay * p + (m / correction1) / (np.sqrt(v / correction2) + eps))
"""
import numpy as np
from numba import prange

from minigrad.kernels.compiling import dense, kernel, threads_for

CHUNKS = 64     # each summed by itself, so that a norm does not depend on the threads


def adamw(p: np.ndarray, g: np.ndarray, m: np.ndarray, v: np.ndarray, lr: float, beta1: float,
          beta2: float, eps: float, weight_decay: float, correction1: float, correction2: float
          ) -> None:
    """Step p, m and v in place; all of one shape, p, m and v dense."""
    adamw_kernel(p.reshape(-1), dense(g).reshape(-1), m.reshape(-1), v.reshape(-1), lr, beta1,
                 beta2, eps, weight_decay, correction1, correction2, threads_for(p.size))


def sum_of_squares(x: np.ndarray) -> float:
    """The sum of the squares of all elements, in double precision."""
    sums = np.zeros(CHUNKS)
    sum_of_squares_kernel(dense(x).reshape(-1), sums, threads_for(x.size))
    return float(sums.sum())


@kernel("C1 C1 C1 C1 double double double double double double double threads")
def adamw_kernel(p, g, m, v, lr, beta1, beta2, eps, weight_decay, correction1, correction2,
                 threads):
    real = p.dtype.type
    keep1, keep2, decay = real(1 - beta1), real(1 - beta2), real(1 - lr * weight_decay)
    step, scale, tiny = real(lr / correction1), real(1 / correction2), real(eps)
    for i in prange(p.size):
        m[i] += keep1 * (g[i] - m[i])
        v[i] += keep2 * (g[i] * g[i] - v[i])
        p[i] = p[i] * decay - step * m[i] / (np.sqrt(v[i] * scale) + tiny)


@kernel("C1 D1 threads")
def sum_of_squares_kernel(x, sums, threads):
    for chunk in prange(CHUNKS):
        total = x.dtype.type(0)
        for i in range(chunk * x.size // CHUNKS, (chunk + 1) * x.size // CHUNKS):
            total += x[i] * x[i]
        sums[chunk] = total
