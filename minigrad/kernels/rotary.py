"""Rotary positions (Su et al. 2021, "RoFormer", section 3.4.2): channels turned in pairs, and back
by the opposite angle; and, in the same pass, heads divided by their root mean square (Henry et al.
2020, "Query-Key Normalization for Transformers", section 3), which turning does not change.
"""
import numpy as np

from minigrad import formulas
from minigrad.kernels.compiler.compiling import (C2, dense, kernel, rows, stands_in_for,
                                                 threads_for)
from minigrad.kernels.compiler.lanes import LANES, fma, load, store
from minigrad.kernels.compiler.linking import serial
from minigrad.kernels.compiler.parallel import share
from minigrad.kernels.compiler.simd import part
from minigrad.kernels.compiler.sums import dot


@stands_in_for(formulas.rotate)
def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    return norm_heads(x, cos, sin, 0, 1, 0.0)[0]


@serial
def rotate_row(x, cos, sin, y):
    """Rotate as many pairs as there are angles; y may be x."""
    for i in range(cos.size):
        a, b = x[2 * i], x[2 * i + 1]
        y[2 * i] = fma(a, cos[i], -(b * sin[i]))
        y[2 * i + 1] = fma(b, cos[i], a * sin[i])


@serial
def copy_row(source, target):
    for c in range(source.size):
        target[c] = source[c]


@stands_in_for(formulas.norm_heads)
def norm_heads(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, heads: int, D: int, eps: float
               ) -> tuple[np.ndarray, np.ndarray]:
    y, flat = np.empty(x.shape, x.dtype), rows(x)
    rstd = np.empty((len(flat), heads), x.dtype)
    norm_heads_kernel(flat, dense(cos), dense(sin), rows(y), rstd, D, eps, threads_for(x.size // 8))
    return y, rstd


@stands_in_for(formulas.norm_heads_vjp)
def norm_heads_vjp(g: np.ndarray, y: np.ndarray, rstd: np.ndarray, cos: np.ndarray, sin: np.ndarray,
                   D: int) -> np.ndarray:
    dx, threads = np.empty(g.shape, g.dtype), threads_for(g.size // 8)
    unrotated = np.empty((threads, rstd.shape[1] * D), g.dtype)
    norm_heads_vjp_kernel(rows(g), rows(y), rstd, dense(cos), dense(-sin), rows(dx), unrotated,
                          threads)
    return dx


@kernel
def norm_heads_kernel(thread, threads, x: C2, cos: C2, sin: C2, y: C2, rstd: C2, D: int,
                      eps: float):
    heads, turned = rstd.shape[1], 2 * cos.shape[1]
    for row in share(len(x), thread, threads):
        t = row % len(cos)
        rotate_row(x[row], cos[t], sin[t], y[row])
        copy_row(x[row, turned:], y[row, turned:])
        for h in range(heads):
            rstd[row, h] = norm_head(part(y, row * y.shape[1] + h * D, D), eps)


@serial
def norm_head(x, eps):
    """Divide a head by its root mean square; return 1 / rms."""
    real = x.dtype.type
    rstd = real(1) / np.sqrt(dot(x, x) / real(x.size) + real(eps))
    for d in range(0, x.size, LANES):
        store(x, d, load(x, d, 0) * rstd)
    return rstd


@kernel
def norm_heads_vjp_kernel(thread, threads, g: C2, y: C2, rstd: C2, cos: C2, back: C2, dx: C2,
                          unrotated: C2):
    """`unrotated` is a gradient before it is rotated back, which in place would be a loop without
    vectors."""
    (R, heads), turned, unrotated = rstd.shape, 2 * cos.shape[1], unrotated[thread]
    D = unrotated.size // max(1, heads)
    for row in share(R, thread, threads):
        t = row % len(cos)
        for h in range(heads):
            at = row * g.shape[1] + h * D
            norm_head_vjp(part(g, at, D), part(y, at, D), rstd[row, h], part(unrotated, h * D, D))
        rotate_row(unrotated, cos[t], back[t], dx[row])
        copy_row(unrotated[turned:], dx[row, turned:])
        copy_row(g[row, heads * D:], dx[row, heads * D:])


@serial
def norm_head_vjp(g, y, rstd, dx):
    y, dx = part(y, 0, g.size), part(dx, 0, g.size)
    along = dot(g, y) / g.dtype.type(g.size)
    for d in range(0, g.size, LANES):
        store(dx, d, fma(load(y, d, 0), -along, load(g, d, 0)) * rstd)
