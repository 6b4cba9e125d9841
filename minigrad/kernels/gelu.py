"""The Gaussian error linear unit (Hendrycks & Gimpel 2016, section 2), exact and by tanh.

In plain NumPy, exact:
    y = x * Phi(x),  Phi(x) = erfc(-x / sqrt(2)) / 2,
    dy/dx = Phi(x) + x * exp(-x * x / 2) / sqrt(2 pi);
and by tanh:
    y = x / 2 * (1 + t),  t = tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)).
"""
import math

import numpy as np

from minigrad.kernels.build.compiling import dense, kernel, serial, threads_for
from minigrad.kernels.build.lanes import fma
from minigrad.kernels.build.parallel import on_threads, portion
from minigrad.kernels.build.vector_math import exp, normal_cdf, tanh

DENSITY_0 = 1 / math.sqrt(2 * math.pi)
SLOPE, CUBIC = math.sqrt(2 / math.pi), 0.044715


def gelu(x: np.ndarray, by_tanh: bool) -> np.ndarray:
    """Return x Phi(x) of every element."""
    out = np.empty(x.shape, x.dtype)
    gelu_kernel(dense(x).reshape(-1), out.reshape(-1), by_tanh, threads_for(x.size))
    return out


def gelu_vjp(g: np.ndarray, x: np.ndarray, by_tanh: bool) -> np.ndarray:
    """Return g times the derivative of `gelu` at x."""
    out = np.empty(x.shape, x.dtype)
    gelu_vjp_kernel(dense(g).reshape(-1), dense(x).reshape(-1), out.reshape(-1), by_tanh,
                    threads_for(x.size))
    return out


@kernel("C1 C1 bool threads")
def gelu_kernel(x, out, by_tanh, threads):
    on_threads(threads, gelu_of, x, out, by_tanh)


@serial
def gelu_of(thread, threads, x, out, by_tanh):
    x, out, real = portion(x, thread, threads), portion(out, thread, threads), x.dtype.type
    if by_tanh:
        for i in range(x.size):
            t = tanh(real(SLOPE) * x[i] * fma(real(CUBIC), x[i] * x[i], real(1)))
            out[i] = real(0.5) * x[i] * (real(1) + t)
    else:
        for i in range(x.size):
            out[i] = value_and_slope(x[i], real)[0]


@kernel("C1 C1 C1 bool threads")
def gelu_vjp_kernel(g, x, out, by_tanh, threads):
    on_threads(threads, gelu_vjp_of, g, x, out, by_tanh)


@serial
def gelu_vjp_of(thread, threads, g, x, out, by_tanh):
    g, x, out = (portion(g, thread, threads), portion(x, thread, threads),
                 portion(out, thread, threads))
    real = x.dtype.type
    if by_tanh:
        for i in range(x.size):
            square = x[i] * x[i]
            t = tanh(real(SLOPE) * x[i] * fma(real(CUBIC), square, real(1)))
            steep = real(SLOPE) * fma(real(3 * CUBIC), square, real(1))
            out[i] = g[i] * real(0.5) * fma(x[i] * fma(-t, t, real(1)), steep, real(1) + t)
    else:
        for i in range(x.size):
            out[i] = g[i] * value_and_slope(x[i], real)[1]


@serial
def value_and_slope(x, real):
    """Return the exact GELU of a number and its derivative there, which share an exponential."""
    density = exp(real(-0.5) * x * x)
    Phi = normal_cdf(x, density)
    return x * Phi, fma(x * real(DENSITY_0), density, Phi)
