"""What an MLP puts between its products: the Gaussian error linear unit (Hendrycks & Gimpel 2016,
section 2), exact and by tanh; the squared ReLU (So et al. 2021, "Primer", section 3.2); and SwiGLU,
the SiLU of one product times another (Shazeer 2020, "GLU Variants Improve Transformer", section 2).
"""
import math

import numpy as np

from minigrad.kernels.build.compiling import (dense, inlined, instead_of, kernel, serial,
                                              threads_for)
from minigrad.kernels.build.lanes import fma
from minigrad.kernels.build.parallel import on_threads, portion
from minigrad.kernels.build.vector_math import exp, normal_cdf, tanh

ACTIVATIONS = "gelu", "relu2", "gelu_tanh", "swiglu"
GELU, RELU2, GELU_TANH, SWIGLU = range(len(ACTIVATIONS))     # as kernels know them
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
    x, out = portion(x, thread, threads), portion(out, thread, threads)
    activate(x, GELU_TANH if by_tanh else GELU, out)


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
            out[i] = g[i] * value_and_slope_by_tanh(x[i], real)[1]
    else:
        for i in range(x.size):
            out[i] = g[i] * value_and_slope(x[i], real)[1]


@serial
def value_and_slope(x, real):
    """Return the exact GELU of a number and its derivative there, which share an exponential."""
    density = exp(real(-0.5) * x * x)
    Phi = normal_cdf(x, density)
    return x * Phi, fma(x * real(DENSITY_0), density, Phi)


@serial
def value_and_slope_by_tanh(x, real):
    """Return the same of the GELU by tanh."""
    half, square = real(0.5), x * x
    t = tanh(real(SLOPE) * x * fma(real(CUBIC), square, real(1)))
    steep = real(SLOPE) * fma(real(3 * CUBIC), square, real(1))
    return half * x * (real(1) + t), half * fma(x * fma(-t, t, real(1)), steep, real(1) + t)


def plain_activation(x, activation):
    """Apply an activation of a single argument."""
    if activation == RELU2:
        return np.square(np.maximum(x, 0))
    return plain_gelu(x, activation == GELU_TANH)


def plain_slope(kept, activation):
    """Return the derivative of an activation from what backward keeps: the squared ReLU's value, or
    the GELU's argument."""
    if activation == RELU2:
        return 2 * np.sqrt(kept)
    return plain_gelu_vjp(np.ones_like(kept), kept, activation == GELU_TANH)


@inlined
def activate(x, activation, out):
    """Write the activation of each number of a row to `out`, which may be x."""
    real = x.dtype.type
    if activation == RELU2:
        for i in range(x.size):
            out[i] = squared_relu(x[i], real)
    elif activation == GELU_TANH:
        for i in range(x.size):
            out[i] = value_and_slope_by_tanh(x[i], real)[0]
    else:
        for i in range(x.size):
            out[i] = value_and_slope(x[i], real)[0]


@inlined
def multiply_by_slope(c, kept, activation, activated):
    """Multiply each number of a row by the activation's derivative; for the GELU, write its value
    to `activated`."""
    real = c.dtype.type
    if activation == RELU2:
        for i in range(c.size):
            c[i] *= real(2) * np.sqrt(kept[i])
    elif activation == GELU_TANH:
        for i in range(c.size):
            activated[i], slope = value_and_slope_by_tanh(kept[i], real)
            c[i] *= slope
    else:
        for i in range(c.size):
            activated[i], slope = value_and_slope(kept[i], real)
            c[i] *= slope


@serial
def squared_relu(x, real):
    """Return the squared ReLU of a number; nan stays nan."""
    positive = real(0) if x < real(0) else x
    return positive * positive


def plain_swiglu(gate, up):
    return gate * (1 + np.tanh(gate / 2)) / 2 * up


@instead_of(plain_swiglu)
def swiglu(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    """Return silu(gate) * up, with silu(x) = x / (1 + e^-x), of arrays of one shape."""
    out = np.empty(gate.shape, gate.dtype)
    swiglu_kernel(dense(gate).reshape(-1), dense(up).reshape(-1), out.reshape(-1),
                  threads_for(gate.size))
    return out


def plain_swiglu_vjp(g, gate, up):
    s = (1 + np.tanh(gate / 2)) / 2
    return g * up * s * (1 + gate * (1 - s)), g * gate * s, gate * s * up


@instead_of(plain_swiglu_vjp)
def swiglu_vjp(g: np.ndarray, gate: np.ndarray, up: np.ndarray
               ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the gradients to gate and up, and the value of `swiglu`."""
    dgate, dup, out = (np.empty(gate.shape, gate.dtype) for _ in range(3))
    swiglu_vjp_kernel(dense(g).reshape(-1), dense(gate).reshape(-1), dense(up).reshape(-1),
                      dgate.reshape(-1), dup.reshape(-1), out.reshape(-1), threads_for(gate.size))
    return dgate, dup, out


@kernel("C1 C1 C1 threads")
def swiglu_kernel(gate, up, out, threads):
    on_threads(threads, swiglu_of, gate, up, out)


@serial
def swiglu_of(thread, threads, gate, up, out):
    gate, up, out = (portion(gate, thread, threads), portion(up, thread, threads),
                     portion(out, thread, threads))
    for i in range(gate.size):
        out[i] = gate[i] * sigmoid(gate[i], gate.dtype.type) * up[i]


@kernel("C1 C1 C1 C1 C1 C1 threads")
def swiglu_vjp_kernel(g, gate, up, dgate, dup, out, threads):
    on_threads(threads, swiglu_vjp_of, g, gate, up, dgate, dup, out)


@serial
def swiglu_vjp_of(thread, threads, g, gate, up, dgate, dup, out):
    g, gate, up = (portion(g, thread, threads), portion(gate, thread, threads),
                   portion(up, thread, threads))
    dgate, dup, out = (portion(dgate, thread, threads), portion(dup, thread, threads),
                       portion(out, thread, threads))
    real = gate.dtype.type
    for i in range(gate.size):
        s = sigmoid(gate[i], real)
        silu = gate[i] * s
        dgate[i] = g[i] * up[i] * fma(silu, real(1) - s, s)
        dup[i] = g[i] * silu
        out[i] = silu * up[i]


@serial
def sigmoid(x, real):
    """Return 1 / (1 + e^-x)."""
    return real(1) / (real(1) + exp(-x))
