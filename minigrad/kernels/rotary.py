"""Rotary positions (Su et al. 2021, "RoFormer", section 3.4.2): channels turned in pairs, and back
by the opposite angle; and, in the same pass, heads divided by their root mean square (Henry et al.
2020, "Query-Key Normalization for Transformers", section 3), which turning does not change.
"""
import numpy as np

from minigrad import formulas
from minigrad.kernels.compiler.compiling import (dense, kernel, rows, serial, stands_in_for,
                                                 threads_for)
from minigrad.kernels.compiler.lanes import LANES, fma, load, store
from minigrad.kernels.compiler.parallel import on_threads, share
from minigrad.kernels.compiler.simd import part
from minigrad.kernels.compiler.sums import dot


@stands_in_for(formulas.rotate)
def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    y = np.empty(x.shape, x.dtype)
    rotate_kernel(rows(x), dense(cos), dense(sin), rows(y), threads_for(x.size // 16))
    return y


@kernel("C2 C2 C2 C2 threads")
def rotate_kernel(x, cos, sin, y, threads):
    on_threads(threads, rotate_rows, x, cos, sin, y)


@serial
def rotate_rows(thread, threads, x, cos, sin, y):
    turned = 2 * cos.shape[1]
    for row in share(len(x), thread, threads):
        t = row % len(cos)
        rotate_row(x[row], cos[t], sin[t], y[row])
        copy_row(x[row, turned:], y[row, turned:])


@serial
def rotate_row(x, cos, sin, y):
    """Turn as many pairs as there are angles; y may be x."""
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
    dx = np.empty(g.shape, g.dtype)
    norm_heads_vjp_kernel(rows(g), rows(y), rstd, dense(cos), dense(-sin), rows(dx), D,
                          threads_for(g.size // 8))
    return dx


@kernel("C2 C2 C2 C2 C2 int double threads")
def norm_heads_kernel(x, cos, sin, y, rstd, D, eps, threads):
    on_threads(threads, norm_heads_of_rows, x, cos, sin, y, rstd, D, eps)


@serial
def norm_heads_of_rows(thread, threads, x, cos, sin, y, rstd, D, eps):
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


@kernel("C2 C2 C2 C2 C2 C2 int threads")
def norm_heads_vjp_kernel(g, y, rstd, cos, back, dx, D, threads):
    on_threads(threads, norm_heads_of_rows_vjp, g, y, rstd, cos, back, dx, D)


@serial
def norm_heads_of_rows_vjp(thread, threads, g, y, rstd, cos, back, dx, D):
    (R, heads), turned = rstd.shape, 2 * cos.shape[1]
    # The gradient before it is turned back: to turn in place would be a loop without vectors.
    still = np.empty(heads * D, dx.dtype)
    for row in share(R, thread, threads):
        t = row % len(cos)
        for h in range(heads):
            at = row * g.shape[1] + h * D
            norm_head_vjp(part(g, at, D), part(y, at, D), rstd[row, h], part(still, h * D, D))
        rotate_row(still, cos[t], back[t], dx[row])
        copy_row(still[turned:], dx[row, turned:])
        copy_row(g[row, heads * D:], dx[row, heads * D:])


@serial
def norm_head_vjp(g, y, rstd, dx):
    y, dx = part(y, 0, g.size), part(dx, 0, g.size)
    along = dot(g, y) / g.dtype.type(g.size)
    for d in range(0, g.size, LANES):
        store(dx, d, fma(load(y, d, 0), -along, load(g, d, 0)) * rstd)
