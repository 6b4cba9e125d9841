"""Elementary functions that LLVM can vectorise: branch-free polynomials for float32.

They state explicitly where a product and a sum are fused, so that they give the same bits wherever
they are compiled.  float64, used to check gradients, calls libm's functions one number at a time.
"""
import math

import numpy as np
from numba import types
from numba.extending import overload

from minigrad.kernels.compiler.lanes import (Lanes, exp_of_each, fma, larger, polynomial,
                                             power_of_two, smaller)


def _float32(*numbers):
    return tuple(map(np.float32, numbers))


ZERO, HALF, ONE = _float32(0, 0.5, 1)
LOG2_E = np.float32(1 / math.log(2))
# Their sum is ln 2; the first has 9 bits.
LN2_HIGH, LN2_LOW = _float32(0.693359375, -2.12194440e-4)
ROUND = np.float32(1.5 * 2**23)     # above it, floats of moderate size have no fraction
# e^x is 0 at the first, where 2^n leaves float32's normal numbers, and inf at the second.
EXP_LOW, EXP_HIGH = _float32(-127 * math.log(2), 128 * math.log(2))
SQRT_HALF_BITS = np.int32(0x3F3504F3)
# Minimax polynomial of (e^r - 1 - r) / r^2 on [-ln 2 / 2, ln 2 / 2]; Cephes, expf.c.
EXP = _float32(5.0000001201e-1, 1.6666665459e-1, 4.1665795894e-2, 8.3334519073e-3, 1.3981999507e-3,
               1.9875691500e-4)
# Polynomial of (log(1 + r) - r + r^2 / 2) / r^3 for 1 + r in [sqrt(1/2), sqrt(2)); Cephes, logf.c.
LOG = _float32(3.3333331174e-1, -2.4999993993e-1, 2.0000714765e-1, -1.6668057665e-1,
               1.4249322787e-1, -1.2420140846e-1, 1.1676998740e-1, -1.1514610310e-1,
               7.0376836292e-2)
# Phi(-z) = exp(-z^2 / 2) t P(t) with t = 1 / (1 + TAIL_SLOPE z), off by 1.5e-7 of itself; fitted by
# tests/reference/fit_normal_tail.py.
TAIL_SLOPE = np.float32(0.3)
TAIL = _float32(1.196293036e-01, 1.207539608e-01, 9.991349562e-02, 1.285616266e-01,
                -5.368364407e-02, 2.063535024e-01, -1.572031017e-01, 3.567478400e-02)


def exp(x):
    """Return e^x of a number or of Lanes; nan stays nan.  In float32, it is 0 below -87.7 and inf
    above 88.4."""
    return math.exp(x)


def log(x):
    """Return the natural logarithm of a number that is at least 1, or nan."""
    return math.log(x)


def normal_cdf(x, density):
    """Return Phi(x), the normal distribution up to x; `density` is exp(-x * x / 2)."""
    return math.erfc(-x * math.sqrt(0.5)) / 2


def _exp_float32(x):
    x = smaller(EXP_HIGH, larger(EXP_LOW, x))       # nan stays nan
    shifted = fma(x, LOG2_E, ROUND)
    n = shifted - ROUND                         # the nearest whole number
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, x))
    return fma(polynomial(r, EXP), r * r, r + ONE) * power_of_two(shifted)


def _log_float32(x):
    if not x < np.inf:
        return x
    # x = (1 + r) 2^n; the first has the bits of x but for its exponent.
    above = np.float32(x).view(np.int32) - SQRT_HALF_BITS
    n = np.float32(above >> 23)
    r = np.int32((above & 0x7FFFFF) + SQRT_HALF_BITS).view(np.float32) - ONE
    square = r * r
    low = fma(n, LN2_LOW, fma(polynomial(r, LOG), square * r, -HALF * square))
    return fma(n, LN2_HIGH, r + low)


def _normal_cdf_float32(x, density):
    t = ONE / fma(TAIL_SLOPE, abs(x), ONE)
    tail = density * t * polynomial(t, TAIL)
    return tail if x < ZERO else ONE - tail


def _overload(function, of_float32, of_lanes=None):
    """Have kernels call `of_float32` for float32, and for Lanes of it; `of_lanes` for other Lanes;
    and the function itself for float64."""
    @overload(function, jit_options={"error_model": "numpy"}, strict=False)
    def choose(x, *more):
        if getattr(x, "dtype", x) == types.float32:
            return of_float32
        return of_lanes if isinstance(x, Lanes) else function


_overload(exp, _exp_float32, lambda x: exp_of_each(x))
_overload(log, _log_float32)
_overload(normal_cdf, _normal_cdf_float32)
