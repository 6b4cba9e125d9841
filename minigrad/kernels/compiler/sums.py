"""Sums over a row, and its maximum, in the order that `lanes.py` fixes.

There are two partial sums for each lane, of even and of odd sixteens, which are added first: while
one waits for its last addition, the other takes its next.  In plain NumPy:

    row_sum(x) = x.sum();  squares(x, mean) = ((x - mean)**2).sum();  dot(x, y) = x @ y
"""
import numpy as np

from minigrad.kernels.compiler.lanes import LANES, fma, larger, largest_lane, load, spread, total
from minigrad.kernels.compiler.linking import serial
from minigrad.kernels.compiler.simd import part


@serial
def row_sum(x):
    even = odd = spread(x.dtype.type(0))
    for i in range(0, x.size, 2 * LANES):
        even += load(x, i, 0)
        odd += load(x, i + LANES, 0)
    return total(even + odd)


@serial
def squares(x, mean):
    even = odd = spread(x.dtype.type(0))
    for i in range(0, x.size, 2 * LANES):
        a, b = load(x, i, mean) - mean, load(x, i + LANES, mean) - mean
        even, odd = fma(a, a, even), fma(b, b, odd)
    return total(even + odd)


@serial
def dot(x, y):
    y = part(y, 0, x.size)
    even = odd = spread(x.dtype.type(0))
    for i in range(0, x.size, 2 * LANES):
        even = fma(load(x, i, 0), load(y, i, 0), even)
        odd = fma(load(x, i + LANES, 0), load(y, i + LANES, 0), odd)
    return total(even + odd)


@serial
def largest(x):
    """Return the maximum of a row; if it has a nan, the result is undefined."""
    even = odd = spread(x.dtype.type(-np.inf))
    for i in range(0, x.size, 2 * LANES):
        even = larger(load(x, i, -np.inf), even)
        odd = larger(load(x, i + LANES, -np.inf), odd)
    return largest_lane(larger(even, odd))
