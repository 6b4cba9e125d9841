"""The Gaussian error linear unit (Hendrycks & Gimpel 2016, section 2), exact and by tanh, and the
squared ReLU (So et al. 2021, "Primer", section 3.2).
"""
import math

import numpy as np

from minigrad.kernels.build.compiling import dense, instead_of, kernel, serial, threads_for
from minigrad.kernels.build.lanes import fma
from minigrad.kernels.build.parallel import on_threads, portion
from minigrad.kernels.build.vector_math import exp, normal_cdf, tanh

DENSITY_0 = 1 / math.sqrt(2 * math.pi)
SLOPE, CUBIC = math.sqrt(2 / math.pi), 0.044715

_erf = np.vectorize(math.erf, otypes=[float])


def plain_gelu(x, by_tanh):
    if by_tanh:
        return x / 2 * (1 + np.tanh(SLOPE * (x + CUBIC * x**3)))
    return x / 2 * (1 + _erf(x * math.sqrt(0.5)).astype(x.dtype))


@instead_of(plain_gelu)
def gelu(x: np.ndarray, by_tanh: bool) -> np.ndarray:
    """Return x Phi(x) of every element."""
    out = np.empty(x.shape, x.dtype)
    gelu_kernel(dense(x).reshape(-1), out.reshape(-1), by_tanh, threads_for(x.size))
    return out


def plain_gelu_vjp(g, x, by_tanh):
    if by_tanh:
        t = np.tanh(SLOPE * (x + CUBIC * x**3))
        return g * (1 + t + x * (1 - t * t) * SLOPE * (1 + 3 * CUBIC * x * x)) / 2
    Phi = (1 + _erf(x * math.sqrt(0.5)).astype(x.dtype)) / 2
    return g * (Phi + x * np.exp(-x * x / 2) * DENSITY_0)


@instead_of(plain_gelu_vjp)
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


def plain_activation(x, relu2):
    """Apply the squared ReLU or the GELU."""
    return np.square(np.maximum(x, 0)) if relu2 else plain_gelu(x, False)


@serial
def squared_relu(x, real):
    """Return the squared ReLU of a number; nan stays nan."""
    positive = real(0) if x < real(0) else x
    return positive * positive


@serial
def slope_where(y, real):
    """Return the derivative of the squared ReLU where its value is y."""
    return real(2) * np.sqrt(y)
