"""Fit the polynomial by which minigrad/kernels/compiler/vector_math.py computes the normal CDF.

    python -m tests.reference.fit_normal_tail

With t = 1 / (1 + SLOPE z), Phi(-z) exp(z^2 / 2) / t is smooth in t.  Its polynomial is fitted for
the smallest relative error: least squares over Chebyshev points, repeated with weights from the
errors of the last fit (Lawson 1961).
"""
import math

import numpy as np
from numpy.polynomial import Polynomial, chebyshev

from minigrad.kernels.compiler.vector_math import TAIL_SLOPE as SLOPE

DEGREE, FARTHEST, POINTS, ROUNDS = 7, 14.0, 400, 400      # in float32, exp(-z^2 / 2) is 0 beyond


def scaled_tail(z):
    """Return Phi(-z) exp(z^2 / 2)."""
    return math.erfc(z / math.sqrt(2)) / 2 * math.exp(z * z / 2)


def fit():
    """Return the coefficients of t^0, t^1, ..., and the largest relative error."""
    low, high = 1 / (1 + float(SLOPE) * FARTHEST), 1.0
    u = np.cos(np.pi * (np.arange(POINTS) + 0.5) / POINTS)
    t = (low + high) / 2 + (high - low) / 2 * u
    exact = np.array([scaled_tail(z) for z in (1 / t - 1) / float(SLOPE)])
    terms = chebyshev.chebvander(u, DEGREE) * (t / exact)[:, None]
    weights = np.ones(POINTS)
    for _ in range(ROUNDS):
        root = np.sqrt(weights)
        coefficients = np.linalg.lstsq(terms * root[:, None], root)[0]
        errors = abs(terms @ coefficients - 1)
        weights *= np.sqrt(errors / errors.max()) + 1e-3
        weights /= weights.max()
    in_u = Polynomial(chebyshev.cheb2poly(coefficients))
    return in_u(Polynomial([-(low + high), 2]) / (high - low)).coef, errors.max()


if __name__ == "__main__":
    coefficients, error = fit()
    print(", ".join(f"{c:.9e}" for c in coefficients))
    print(f"off by {error:.1e} of itself")
