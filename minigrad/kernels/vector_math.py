"""Elementary functions that LLVM can turn into vectors: branch-free polynomials for float32.

float64, which is there to check gradients, takes libm's functions one number at a time.
"""
import math

import numpy as np
from numba import types
from numba.extending import overload

from minigrad.kernels.simd import half_power_of_two, larger, smaller

ONE, HALF, TWO = np.float32(1), np.float32(0.5), np.float32(2)
LOG2_E = np.float32(1 / math.log(2))
# Their sum is ln 2, and the first has 9 bits.
LN2_HIGH, LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
# e^x is 0 below the first, ln 2^-125, and inf above the second.
EXP_LOW, EXP_HIGH = np.float32(-86.64339), np.float32(88.72283)
ROUND = np.float32(1.5 * 2**23)     # above it, floats of moderate size have no fraction
ZERO, INF = np.float32(0), np.float32(math.inf)
# Minimax polynomial of (e^r - 1 - r) / r^2 on [-ln 2 / 2, ln 2 / 2]; Cephes, expf.c.
E0, E1, E2, E3, E4, E5 = (np.float32(c) for c in (
    5.0000001201e-1, 1.6666665459e-1, 4.1665795894e-2, 8.3334519073e-3, 1.3981999507e-3,
    1.9875691500e-4))
# erfc(z) = t exp(-z^2 + P(t)) with t = 1 / (1 + z / 2), off by 1.2e-7 of itself; Numerical Recipes,
# section 6.2.
P0, P1, P2, P3, P4, P5, P6, P7, P8, P9 = (np.float32(c) for c in (
    -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398,
    1.48851587, -0.82215223, 0.17087277))

THIRD, NEAR_ZERO = np.float32(1 / 3), np.float32(0.02)      # tanh z = z - z^3 / 3 for small z


def exp(x):
    """e to the x; nan stays nan, -inf gives 0."""
    return math.exp(x)


def erfc(x):
    """1 - erf(x)."""
    return math.erfc(x)


def tanh(x):
    """Hyperbolic tangent."""
    return math.tanh(x)


def _exp_float32(x):
    clear = smaller(larger(x, EXP_LOW), EXP_HIGH)
    n = clear * LOG2_E + ROUND - ROUND      # to the nearest whole number
    r = clear - n * LN2_HIGH - n * LN2_LOW
    p = ((((E5 * r + E4) * r + E3) * r + E2) * r + E1) * r + E0
    # 2^n in two factors, since 2^128 has no float of its own
    y = (p * r * r + r + ONE) * half_power_of_two(n) * TWO
    y = ZERO if x < EXP_LOW else y
    y = INF if x > EXP_HIGH else y
    return y if x == x else x


def _erfc_float32(x):
    z = abs(x)
    t = ONE / (ONE + HALF * z)
    p = P0 + t * (P1 + t * (P2 + t * (P3 + t * (P4 + t * (
        P5 + t * (P6 + t * (P7 + t * (P8 + t * P9))))))))
    y = t * exp(p - z * z)
    return y if x >= ZERO else TWO - y


def _tanh_float32(x):
    z = abs(x)
    q = exp(-TWO * z)
    far = (ONE - q) / (ONE + q)
    near = z - z * z * z * THIRD    # where the quotient would cancel
    y = near if z < NEAR_ZERO else far
    return y if x >= ZERO else -y


# Without "reassoc", which would merge the two halves of ln 2.
EXACT = {"fastmath": {"contract", "nsz"}, "error_model": "numpy"}


@overload(exp, jit_options=EXACT)
def _exp(x):
    return _exp_float32 if x == types.float32 else lambda x: math.exp(x)


@overload(erfc, jit_options=EXACT)
def _erfc(x):
    return _erfc_float32 if x == types.float32 else lambda x: math.erfc(x)


@overload(tanh, jit_options=EXACT)
def _tanh(x):
    return _tanh_float32 if x == types.float32 else lambda x: math.tanh(x)
