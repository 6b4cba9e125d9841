"""Activations and dropout, element by element.

What an MLP puts between its products: the Gaussian error linear unit (Hendrycks & Gimpel 2016,
section 2), exact and by tanh; the squared ReLU (So et al. 2021, "Primer", section 3.2); and SwiGLU,
the SiLU of one product times another (Shazeer 2020, "GLU Variants Improve Transformer", section 2).

The mask of dropout (Srivastava et al. 2014, section 4) is computed where needed, never stored.  It
is a counter-based generator (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), so
element i of it is the same on every platform and for every number of threads.  Its mixing step,
once with each half of the seed, is lowbias32 (Wellons 2018, "Prospecting for Hash Functions").
"""
from typing import NamedTuple

import numpy as np

from minigrad import formulas
from minigrad.formulas import CUBIC, DENSITY_0, FLAT, SLOPE, DropoutSettings
from minigrad.kernels.compiler import compiling
from minigrad.kernels.compiler.compiling import (C1, FLOATS, flat, kernel, stands_in_for,
                                                 threads_for)
from minigrad.kernels.compiler.lanes import LANES, fma, larger, load, part, smaller, spread, total
from minigrad.kernels.compiler.linking import inlined, serial
from minigrad.kernels.compiler.parallel import portion, share
from minigrad.kernels.compiler.vector_math import exp, normal_cdf

NUMBER_OF = {"gelu": 0, "relu2": 1, "gelu_tanh": 2}     # of each activation, in kernels
GELU, RELU2, GELU_TANH = NUMBER_OF.values()
FEW_SUMS = 1024         # of which operands and results stay in the first-level cache
ADDED = 4               # numbers that are read, added and written in the time of an elementary step


@stands_in_for(formulas.add)
def add(x, y, out=None):
    if not (type(x) is type(y) is np.ndarray and x.shape == y.shape and x.dtype == y.dtype):
        return np.add(x, y, out)
    if x.size < compiling.FEW or x.dtype not in FLOATS or not (x.flags.carray and y.flags.carray):
        return np.add(x, y, out)
    threads = threads_for(x.size // ADDED)
    if threads == 1:                # as fast by NumPy
        return np.add(x, y, out)
    if out is None:
        out = np.empty(x.shape, x.dtype)
    faults = np.zeros(2, x.dtype)
    add_kernel(x.reshape(-1), y.reshape(-1), out.reshape(-1), faults, threads)
    too_large, undefined = faults.tolist()
    if too_large or undefined:
        warn_of_sums(x.dtype, too_large, undefined)
    return out


@kernel
def add_kernel(thread, threads, x: C1, y: C1, out: C1, faults: C1):
    """Write the sums of x and y to `out`, which may be x.  `faults` become 1, whichever thread
    finds them: a sum of finite numbers that is not finite, and one that is nan where x and y are
    not."""
    x = portion(x, thread, threads)
    y = portion(y, thread, threads)
    out = portion(out, thread, threads)
    for start in range(0, x.size, FEW_SUMS):
        size = min(FEW_SUMS, x.size - start)
        add_few(part(x, start, size), part(y, start, size), part(out, start, size), faults)


@serial
def add_few(x, y, out, faults):
    """Do the same for numbers that stay in the first-level cache."""
    nothing = x.dtype.type(0)
    zeros = spread(nothing)
    for i in range(0, x.size, LANES):
        zeros = fma(load(x, i, nothing) + load(y, i, nothing), nothing, zeros)
    if total(zeros) != 0:           # nan, as a sum is not finite
        for i in range(x.size):
            result = x[i] + y[i]
            if abs(x[i]) < np.inf and abs(y[i]) < np.inf and abs(result) == np.inf:
                faults[0] = 1
            if x[i] == x[i] and y[i] == y[i] and result != result:
                faults[1] = 1
    for i in range(x.size):
        out[i] = x[i] + y[i]


def warn_of_sums(dtype: np.dtype, too_large: float, undefined: float) -> None:
    """Let NumPy warn, raise an error or call somebody, as it does where it adds the arrays."""
    if too_large:
        largest = np.full(1, np.finfo(dtype).max, dtype)
        np.add(largest, largest)
    if undefined:
        np.add(np.full(1, np.inf, dtype), np.full(1, -np.inf, dtype))


@stands_in_for(formulas.gelu)
def gelu(x, by_tanh):
    out = np.empty(x.shape, x.dtype)
    gelu_kernel(flat(x), flat(out), by_tanh, threads_for(x.size))
    return out


@stands_in_for(formulas.gelu_vjp)
def gelu_vjp(g, x, by_tanh):
    out = np.empty(x.shape, x.dtype)
    gelu_vjp_kernel(flat(g), flat(x), flat(out), by_tanh, threads_for(x.size))
    return out


@kernel
def gelu_kernel(thread, threads, x: C1, out: C1, by_tanh: bool):
    activate(portion(x, thread, threads), GELU_TANH if by_tanh else GELU,
             portion(out, thread, threads))


@kernel
def gelu_vjp_kernel(thread, threads, g: C1, x: C1, out: C1, by_tanh: bool):
    g = portion(g, thread, threads)
    x = portion(x, thread, threads)
    out = portion(out, thread, threads)
    for i in range(x.size):
        _, slope = value_and_slope(x[i], GELU_TANH if by_tanh else GELU)
        out[i] = g[i] * slope


@inlined
def activate(x, activation, out):
    """Write the activation of each number of a row to `out`, which may be x."""
    for i in range(x.size):
        out[i] = value_and_slope(x[i], activation)[0]


@inlined
def multiply_by_slope(c, kept, activation, activated):
    """Multiply each number of a row by the activation's derivative; for the GELU, write its value
    to `activated`."""
    if activation == RELU2:
        for i in range(c.size):
            c[i] *= c.dtype.type(2) * np.sqrt(kept[i])
    else:
        for i in range(c.size):
            activated[i], slope = value_and_slope(kept[i], activation)
            c[i] *= slope


@inlined
def value_and_slope(x, activation):
    """Return an activation of a number, and its derivative there; of the squared ReLU, whose
    derivative is made of its value, 0.  nan stays nan."""
    real = type(x)
    if activation == RELU2:
        positive = real(0) if x < real(0) else x
        return positive * positive, real(0)
    if activation == GELU_TANH:
        near = smaller(real(FLAT), larger(real(-FLAT), x))
        square = near * near
        s = sigmoid(real(2 * SLOPE) * near * fma(real(CUBIC), square, real(1)))
        steep = real(2 * SLOPE) * fma(real(3 * CUBIC), square, real(1))
        return x * s, fma(near * s * (real(1) - s), steep, s)
    density = exp(real(-0.5) * x * x)       # which both share
    Phi = normal_cdf(x, density)
    near = smaller(real(FLAT), larger(real(-FLAT), x))      # where x is infinite, density is 0
    return x * Phi, fma(near * real(DENSITY_0), density, Phi)


@stands_in_for(formulas.swiglu)
def swiglu(gate, up):
    out = np.empty(gate.shape, gate.dtype)
    swiglu_kernel(flat(gate), flat(up), flat(out), threads_for(gate.size))
    return out


@stands_in_for(formulas.swiglu_vjp)
def swiglu_vjp(g, gate, up):
    dgate = np.empty(gate.shape, gate.dtype)
    dup = np.empty(gate.shape, gate.dtype)
    swiglu_vjp_kernel(flat(g), flat(gate), flat(up), flat(dgate), flat(dup),
                      threads_for(gate.size))
    return dgate, dup


@kernel
def swiglu_kernel(thread, threads, gate: C1, up: C1, out: C1):
    gate_row(portion(gate, thread, threads), portion(up, thread, threads),
             portion(out, thread, threads))


@inlined
def gate_row(gate, up, out):
    """Write silu(gate) * up of each number of a row to `out`, which may be the gate."""
    for i in range(gate.size):
        out[i] = gate[i] * sigmoid(gate[i]) * up[i]


@kernel
def swiglu_vjp_kernel(thread, threads, g: C1, gate: C1, up: C1, dgate: C1, dup: C1):
    g = portion(g, thread, threads)
    gate = portion(gate, thread, threads)
    up = portion(up, thread, threads)
    dgate = portion(dgate, thread, threads)
    dup = portion(dup, thread, threads)
    real = gate.dtype.type
    for i in range(gate.size):
        s = sigmoid(gate[i])
        silu = gate[i] * s
        dgate[i] = g[i] * up[i] * fma(silu, real(1) - s, s)
        dup[i] = g[i] * silu


@serial
def sigmoid(x):
    """Return 1 / (1 + e^-x)."""
    real = type(x)
    return real(1) / (real(1) + exp(-x))


class Mask(NamedTuple):
    """What a mask is computed from."""
    low: int        # half of the seed
    high: int
    bound: int      # which the 32 bits of an element that is kept reach
    first: int      # the number of the first element
    scale: float    # of elements that are kept


def mask_of(drop: DropoutSettings) -> tuple[int, int, int, int, float]:
    """Return the fields of a `Mask`.  (Numba takes Python's numbers faster than NumPy's.)"""
    bound = min(int(drop.p * 2**32), 2**32 - 1)     # if p is 1, what reaches it is multiplied by 0
    return drop.seed & 0xFFFFFFFF, drop.seed >> 32, bound, drop.first, drop.scale


@stands_in_for(formulas.dropout)
def dropout(x, drop):
    out = np.empty(x.shape, x.dtype)
    dropout_kernel(flat(x), flat(out), *mask_of(drop), threads_for(x.size))
    return out


@kernel
def dropout_kernel(thread, threads, x: C1, out: C1, mask: Mask):
    first = share(x.size, thread, threads).start
    x = portion(x, thread, threads)
    out = portion(out, thread, threads)
    real = x.dtype.type
    for i in range(x.size):
        out[i] = x[i] * real(mask.scale) if keeps(mask, first + i) else real(0)


@serial
def keeps(mask, i):
    """Whether element i is kept."""
    bits = mix(np.uint32(np.uint32(mask.first + i) ^ np.uint32(mask.low)))
    return mix(np.uint32(bits ^ np.uint32(mask.high))) >= np.uint32(mask.bound)


@serial
def mix(x):
    x = np.uint32((x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D))
    x = np.uint32((x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B))
    return np.uint32(x ^ (x >> np.uint32(16)))
