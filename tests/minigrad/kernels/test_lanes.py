"""Sixteen numbers at a time: the order of a sum, and what happens where a row ends."""
import numba
import numpy as np
import pytest

from minigrad.kernels.compiler import processor
from minigrad.kernels.compiler.lanes import (LANES, dot, fma, largest, load, part, replace_first,
                                             spread, store, total)
from minigrad.kernels.compiler.vector_math import exp
from tests.kit import both_types, compiled_only

pytestmark = compiled_only
LENGTHS = [1, 5, 15, 16, 17, 31, 32, 33, 100, 1000]


@numba.njit
def summed(x):
    sums = spread(x.dtype.type(0))
    for i in range(0, x.size, LANES):
        sums += load(x, i, 0)
    return total(sums)


@numba.njit
def maximum(x):
    return largest(x)


@numba.njit
def exponentials(x, one_by_one, y):
    for i in range(0, x.size, LANES):
        store(y, i, exp(load(x, i, 0)))
    for i in range(x.size):
        one_by_one[i] = exp(x[i])


@numba.njit
def fused(x, y, z, out):
    store(out, 0, fma(load(x, 0, 0), load(y, 0, 0), load(z, 0, 0)))
    for i in range(LANES, x.size):
        out[i] = fma(x[i], y[i], z[i])


@numba.njit
def of_a_part(x, y, start, size):
    return dot(part(x, start, size), part(y, start, size))


@numba.njit
def replaced(x, count, value):
    store(x, 0, replace_first(load(x, 0, 0), count, value))


def in_the_order_written_down(x):
    """Partial sum i % LANES takes number i; then halves are added."""
    partial = np.zeros(LANES, x.dtype)
    for i in range(0, x.size, LANES):
        partial[:x.size - i] += x[i:i + LANES]
    while partial.size > 1:
        partial = partial[:partial.size // 2] + partial[partial.size // 2:]
    return partial[0]


@both_types
def test_a_sum_is_taken_in_the_order_that_is_written_down(dtype):
    rng = np.random.default_rng(0)
    for n in LENGTHS:
        x = rng.standard_normal(n).astype(dtype)
        assert summed(x) == in_the_order_written_down(x)
    x = rng.standard_normal(1000).astype(dtype)
    assert summed(x) != in_the_order_written_down(x[::-1])      # so the order is seen


@both_types
def test_beyond_the_end_of_a_row_nothing_is_read_or_written(dtype):
    for n in LENGTHS:
        x = np.full(n + 2 * LANES, np.nan, dtype)
        y = x.copy()
        x[:n] = np.arange(n) - n
        assert summed(x[:n]) == x[:n].sum() and maximum(x[:n]) == -1
        assert np.isclose(of_a_part(x, x, 0, n), np.square(x[:n]).sum())
        exponentials(x[:n], np.empty(n, dtype), y[:n])
        assert np.isfinite(y[:n]).all() and np.isnan(y[n:]).all()


@both_types
def test_an_exponential_is_the_same_in_a_lane_as_alone(dtype):
    x = np.concatenate([np.linspace(-100, 100, 999), [np.nan, np.inf, -np.inf]]).astype(dtype)
    y, one_by_one = np.empty((2, x.size), dtype)
    exponentials(x, one_by_one, y)
    assert y.tobytes() == one_by_one.tobytes()


@pytest.mark.skipif(not processor.fuses(), reason="this processor rounds a product and a sum apart")
@both_types
def test_a_product_and_a_sum_are_rounded_once(dtype):
    tiny = np.finfo(dtype).eps
    x = np.full(20, 1 + tiny, dtype)
    z = np.full(20, -(1 + 2 * tiny), dtype)
    out = np.empty(20, dtype)
    fused(x, x, z, out)
    assert (out == tiny * tiny).all()


def test_a_part_of_an_array_is_where_it_lies_in_memory():
    x = np.arange(60, dtype=np.float32).reshape(3, 20)
    assert of_a_part(x, x, 25, 10) == np.square(x.ravel()[25:35]).sum()


@both_types
def test_the_first_lanes_are_replaced_and_no_other_whatever_they_hold(dtype):
    for count in range(LANES + 1):
        x = np.arange(LANES, dtype=dtype)
        x[::3] = np.nan
        expected = np.concatenate([np.full(count, -np.inf), x[count:]])
        replaced(x, count, -np.inf)
        assert np.array_equal(x, expected, equal_nan=True)
