"""What is exact to what, where: values and gradients beside float64, by formulas and by kernels.

A tolerance counts roundings: so many units in the last place (ulps) of `size`, the largest of the
numbers that are added up to the result; for float64, whose reference rounds as well, twice as many.
Numbers below the smallest normal one have fewer digits: they are right to `floor` of those.
"""
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

import minigrad as mg
from minigrad import formulas
from tests.kit import both_types, leaf, normal

# Powers of ten that float32 holds, in steps that are no powers of two; and all of both signs.
TENS = np.float32(10.0) ** np.arange(-30, 31, 2.5, dtype=np.float32)
WIDE = np.concatenate([-TENS, [0.0], TENS]).astype(np.float32)
NEAR = np.linspace(-12, 12, 1001, dtype=np.float32)
FAR = np.linspace(-80, 80, 1001, dtype=np.float32)

erfc = np.vectorize(math.erfc, otypes=[float])


pytestmark = pytest.mark.usefixtures("by_every_way")


def assert_within(ulps, actual, exact, size=None, floor=1):
    """The actual numbers are so many ulps of `size`, by default of themselves, from the exact
    ones, and finite where those are."""
    kind, dtype = np.finfo(actual.dtype), actual.dtype
    size = np.abs(exact) if size is None else np.maximum(size, np.abs(exact))
    allowed = ulps * (1 + (dtype == np.float64)) * (kind.eps * size + kind.tiny * floor)
    off = np.abs(actual.astype(np.float64) - exact)
    worst = np.argmax(off / allowed)
    assert (off <= allowed).all(), (
        f"{actual.flat[worst]} for {np.broadcast_to(exact, off.shape).flat[worst]}: "
        f"{ulps * (off / allowed).flat[worst]:.3g} ulps, and {ulps} allowed")


def value_and_gradients(f, dtype, *inputs, g=None):
    """f of leaves with these values, and their gradients."""
    leaves = [leaf(x, dtype) for x in inputs]
    with np.errstate(all="ignore"):         # NumPy warns of overflows, which the numbers show
        out = f(*leaves)
        out.backward(np.ones(out.shape, dtype) if g is None else g.astype(dtype))
    return [out.data, *[x.grad for x in leaves]]


# One number at a time

def sigmoid(x):
    return np.where(x < 0, np.exp(np.minimum(x, 0)), 1) / (1 + np.exp(-abs(x)))


def density(x):
    return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def cdf(x):
    return erfc(-x * math.sqrt(0.5)) / 2


def tanh_argument(x):
    return 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)


def tanh_slope(x):
    """Of the GELU by tanh: the two numbers that are added up to its derivative."""
    near = np.clip(x, -1e3, 1e3)
    s, back = sigmoid(tanh_argument(near)), sigmoid(-tanh_argument(near))
    return s, near * s * back * 2 * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * near ** 2)


def silu(x):
    return x * mg.sigmoid(x)


def swiglu(x):
    """Its silu."""
    return mg.swiglu(x, np.ones(x.shape, x.dtype))


def gelu_by_tanh(x):
    return mg.gelu(x, "tanh")


class Row(NamedTuple):
    """A function of a number and its derivative, in float64, and how exact both are."""
    f: Callable
    at: np.ndarray
    value: Callable
    ulps: int
    slope: Callable
    slope_ulps: int
    size: Callable = np.zeros_like          # of what is added up to the value, if it is larger
    slope_size: Callable = np.zeros_like    # the same of the slope


# The ulps: one for each operation, and two for an exponential.  x^2 / 2 in an exponent is rounded
# to an ulp of itself, which is so many ulps of the exponential.
ONE_BY_ONE = [
    Row(mg.exp, FAR,
        np.exp, 2,
        np.exp, 3),
    Row(mg.log, TENS,
        np.log, 2,
        lambda x: 1 / x, 1),
    Row(mg.sqrt, TENS,
        np.sqrt, 1,
        lambda x: 0.5 / np.sqrt(x), 2),
    Row(mg.expm1, np.concatenate([FAR, WIDE[abs(WIDE) < 80]]),
        np.expm1, 2,
        np.exp, 3),
    Row(mg.log1p, np.concatenate([TENS, -TENS[TENS < 0.5]]),
        np.log1p, 2,
        lambda x: 1 / (1 + x), 3),
    Row(mg.softplus, np.concatenate([FAR, WIDE]),
        lambda x: np.logaddexp(0, x), 4,
        sigmoid, 5),
    Row(mg.square, TENS[abs(np.log10(TENS)) < 18],
        np.square, 1,
        lambda x: 2 * x, 1),
    Row(mg.sin, NEAR,
        np.sin, 2,
        np.cos, 3,
        slope_size=np.ones_like),
    Row(mg.cos, NEAR,
        np.cos, 2,
        lambda x: -np.sin(x), 2,
        size=np.ones_like),
    Row(mg.tanh, WIDE,
        np.tanh, 3,
        lambda x: 1 / np.cosh(np.clip(x, -300, 300)) ** 2, 6,
        slope_size=np.ones_like),
    Row(mg.sigmoid, np.concatenate([FAR, WIDE]),
        sigmoid, 5,
        lambda x: sigmoid(x) * sigmoid(-x), 8,
        slope_size=sigmoid),
    *(Row(f, np.concatenate([FAR, WIDE]),
          lambda x: x * sigmoid(x), 6,
          lambda x: sigmoid(x) * (1 + x * sigmoid(-x)), 9,
          slope_size=lambda x: sigmoid(x) * (1 + abs(x)))
      for f in (silu, mg.silu, swiglu)),
    Row(mg.gelu, np.concatenate([NEAR, WIDE]),
        lambda x: x * cdf(x), 8,
        lambda x: cdf(x) + x * density(x), 8,
        size=lambda x: abs(x) * cdf(x) * (1 + np.minimum(x, 0) ** 2),
        slope_size=lambda x: (cdf(x) + abs(x) * density(x)) * (1 + np.minimum(x * x, 1e4))),
    Row(gelu_by_tanh, np.concatenate([NEAR, WIDE]),
        lambda x: x * sigmoid(tanh_argument(x)), 8,
        lambda x: sum(tanh_slope(x)), 10,
        size=lambda x: (abs(x) * sigmoid(tanh_argument(x))
                        * (1 + abs(np.clip(tanh_argument(x), -1e3, 0)))),
        slope_size=lambda x: (sum(map(abs, tanh_slope(x)))
                              * (1 + abs(np.clip(tanh_argument(x), -1e3, 1e3))))),
]


@both_types
@pytest.mark.parametrize("row", ONE_BY_ONE, ids=lambda row: row.f.__name__)
def test_a_function_of_a_number_is_exact_to_ulps(row, dtype):
    exact = row.at.astype(np.float64)
    floor = np.maximum(1, abs(exact))
    value, slope = value_and_gradients(row.f, dtype, row.at)
    with np.errstate(all="ignore"):
        assert_within(row.ulps, value, row.value(exact), row.size(exact), floor)
        assert_within(row.slope_ulps, slope, row.slope(exact), row.slope_size(exact), floor)


@pytest.mark.parametrize("x, f, value, slope", [
    (0, mg.sqrt, 0, np.inf),
    (0, mg.log, -np.inf, np.inf),
    (-np.inf, mg.exp, 0, 0),
    (np.inf, mg.sigmoid, 1, 0),
    (-np.inf, mg.sigmoid, 0, 0),
    (-np.inf, mg.tanh, -1, 0),
    (np.inf, mg.gelu, np.inf, 1),
    (np.inf, gelu_by_tanh, np.inf, 1),
    (np.inf, mg.relu, np.inf, 1),
    (-np.inf, mg.relu, 0, 0),
    (0, mg.leaky_relu, 0, 0.01),
    (-np.inf, mg.leaky_relu, -np.inf, 0.01),
    (1000, mg.softplus, 1000, 1),
    (-1000, mg.softplus, 0, 0),
    (-np.inf, mg.softplus, 0, 0),
    (0, mg.abs, 0, 0),
    (-np.inf, mg.abs, np.inf, -1),
    (1e-30, mg.expm1, 1e-30, 1),
    (-40, mg.expm1, -1, math.exp(-40)),
    (1e-30, mg.log1p, 1e-30, 1),
    (-1, mg.log1p, -np.inf, np.inf),
    (0, lambda x: x ** 0.5, 0, np.inf),
    (7, mg.std, 0, 0),
    (7, mg.var, 0, 0),
    (7, mg.softmax, 1, 0),
    (7, mg.log_softmax, 0, 0),
    (-50, lambda x: mg.log(mg.sigmoid(x)), -50, 1),
    (-80, lambda x: mg.log(mg.sigmoid(x)), -80, 1)])
@both_types
def test_a_function_at_its_edge_has_the_limits_value_and_slope(x, f, value, slope, dtype):
    ours, dx = value_and_gradients(f, dtype, np.array(x, dtype))
    for found, limit in ((ours, value), (dx, slope)):
        assert found == limit or math.isclose(found, limit, rel_tol=16 * np.finfo(dtype).eps)


@both_types
@pytest.mark.parametrize("f", [mg.gelu, gelu_by_tanh])
def test_gelu_is_flat_at_minus_infinity(f, dtype):
    _, slope = value_and_gradients(f, dtype, np.array([-np.inf, -3e38], dtype))
    assert (slope == 0).all()


@both_types
@pytest.mark.parametrize("f", [mg.maximum, mg.minimum])
@pytest.mark.parametrize("x, y", [(np.nan, 0), (1, np.nan), (np.nan, np.nan)])
def test_maximum_and_minimum_pass_the_gradient_on_to_both_beside_a_nan(x, y, f, dtype):
    value, dx, dy = value_and_gradients(f, dtype, np.array([x, 2]), np.array([y, 2]))
    assert np.isnan(value[0]) and value[1] == 2
    assert dx.tolist() == dy.tolist() == [1, 0.5]


@both_types
def test_abs_and_clip_keep_nan_and_pass_no_gradient_on_to_it(dtype):
    x = np.array([np.nan, -2])
    value, dx = value_and_gradients(mg.abs, dtype, x)
    assert np.isnan(value[0]) and value[1] == 2
    assert dx.tolist() == [0, -1]
    value, *slopes = value_and_gradients(mg.clip, dtype, x, np.array(-1), np.array(1))
    assert np.isnan(value[0]) and value[1] == -1
    assert [slope.tolist() for slope in slopes] == [[0, 0], 1, 0]
    value, *slopes = value_and_gradients(mg.clip, dtype, np.ones(1), np.array([np.nan]), np.ones(1))
    assert np.isnan(value) and [slope.tolist() for slope in slopes] == [[0], [0], [0]]
    value, dx = value_and_gradients(mg.leaky_relu, dtype, x)
    assert np.isnan(value[0])
    assert np.allclose(dx, 0.01)


@both_types
def test_clip_gives_the_gradient_to_x_at_a_bound_and_to_max_where_the_bounds_are_exchanged(dtype):
    x, low, high = np.array([-1, 1, 0, -3, 4]), np.array([-1] * 4 + [2]), np.array([1] * 5)
    value, *slopes = value_and_gradients(mg.clip, dtype, x, low, high)
    assert value.tolist() == [-1, 1, 0, -1, 1]
    assert [slope.tolist() for slope in slopes] == [[1, 1, 1, 0, 0], [0, 0, 0, 1, 0],
                                                    [0, 0, 0, 0, 1]]


@both_types
@pytest.mark.parametrize("f", [mg.log_softmax, mg.sqrt, lambda x: x ** 0.5])
def test_an_op_does_not_warn_where_its_limit_is_nan_or_infinite(f, dtype):
    x = leaf([-np.inf, -np.inf] if f is mg.log_softmax else [0, 0], dtype)
    y = f(x)
    y.sum().backward()
    assert not np.isfinite(x.grad).any()
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        f(leaf(x.data)).sum().backward()


@both_types
@pytest.mark.parametrize("offset", [0.0, 1e3, -1e6])
def test_var_and_std_are_exact_far_from_0(offset, dtype):
    x, g = rows_at(offset), normal(7, seed=6)
    less = x.astype(np.float64) - offset
    less -= less.mean(axis=1, keepdims=True)
    variance = (less * less).mean(axis=1)
    value, dx = value_and_gradients(lambda x: x.var(axis=1), dtype, x, g=g)
    g = g.astype(dtype).astype(np.float64)[:, None]
    assert_within(2, value, variance)
    assert_within(2, dx, 2 * g * less / 33, abs(g))
    value, dx = value_and_gradients(lambda x: x.std(axis=1), dtype, x, g=g[:, 0])
    std = np.sqrt(variance)
    assert_within(2, value, std)
    assert_within(3, dx, g * less / 33 / std[:, None], abs(g))


def test_std_of_large_numbers_is_finite_although_no_float32_holds_their_squares():
    x = rows_at(0.0, 1e30)
    value, dx = value_and_gradients(mg.std, np.float32, x)
    assert_within(2, value, x.astype(np.float64).std())
    assert np.isfinite(dx).all() and dx.any()


def test_var_of_doubles_is_exact_where_their_mean_is_rounded():
    x = 1e15 + np.arange(1000.0)
    assert math.isclose(mg.var(x).item(), (1000 ** 2 - 1) / 12, rel_tol=1e-14)
    assert not math.isclose(x.var(), (1000 ** 2 - 1) / 12, rel_tol=1e-9)


@both_types
def test_a_maximum_of_0_or_of_many_numbers_does_not_hide_a_nan(dtype):
    x = np.array([[np.nan, 2, -1], [1, 0, -0.0]])
    value, dx = value_and_gradients(mg.relu, dtype, x)
    assert np.array_equal(value, [[np.nan, 2, 0], [1, 0, 0]], equal_nan=True)
    assert dx.tolist() == [[1, 1, 0], [1, 0, 0]]
    value, dx = value_and_gradients(lambda x: mg.max(x, axis=1), dtype, x)
    assert np.isnan(value[0]) and np.isnan(dx[0]).all()
    assert dx[1].tolist() == [1, 0, 0]
    value, dx = value_and_gradients(lambda x: mg.min(x, axis=1), dtype, x)
    assert np.isnan(value[0]) and np.isnan(dx[0]).all()
    assert dx[1].tolist() == [0, 0.5, 0.5]


# Two numbers at a time

def pairs_within(value, *slopes):
    """Pairs (g, x, y) of powers of ten of which a value and its slopes are ordinary numbers."""
    g, x, y = (a.ravel() for a in np.meshgrid(TENS[::3], WIDE[::3], np.concatenate(
        [-TENS[::4], TENS[::4]]), indexing="ij"))
    with np.errstate(all="ignore"):
        results = [f(*(a.astype(np.float64) for a in (g, x, y))) for f in (value, *slopes)]
    ordinary = [(abs(a) < 1e37) & ((abs(a) > 1e-36) | (a == 0)) for a in results]
    return [a[np.all(ordinary, axis=0)] for a in (g, x, y)]


@both_types
@pytest.mark.parametrize("f, g, x, y, by_x, by_y", [
    (mg.swiglu, 1e20, -1e25, 1, 0, 0),
    (mg.swiglu, 2, -3e38, 2, 0, 0),
    (mg.swiglu, 3e38, -2, 0.5, -1.36177e37, -7.15218e37),
    (mg.power, 3e38, 0.5, 300, 300 * 3e38 * 0.5 ** 299, math.log(0.5) * 3e38 * 0.5 ** 300),
    (mg.power, 2, 0, -1, -np.inf, -np.inf)])
def test_gradients_neither_overflow_nor_turn_nan_on_their_way_to_0(f, g, x, y, by_x, by_y, dtype):
    _, *found = value_and_gradients(f, dtype, np.array([x]), np.array([y]), g=np.array([g]))
    for ours, exact in zip(found, (by_x, by_y), strict=True):
        assert np.allclose(ours, exact, rtol=1e-5, atol=1e-37)


@both_types
@pytest.mark.parametrize("f, value, by_x, by_y, ulps", [
    (mg.multiply,
     lambda g, x, y: x * y,
     lambda g, x, y: g * y,
     lambda g, x, y: g * x, 1),
    (mg.divide,
     lambda g, x, y: x / y,
     lambda g, x, y: g / y,
     lambda g, x, y: -g * x / y / y, 3),
    (lambda x, y: x ** 2 + 0 * y,
     lambda g, x, y: x * x,
     lambda g, x, y: 2 * g * x,
     lambda g, x, y: 0 * g, 3)])
def test_gradients_are_right_wherever_value_and_gradients_are_ordinary(f, value, by_x, by_y, ulps,
                                                                       dtype):
    g, x, y = pairs_within(value, by_x, by_y)
    assert len(g) > 100
    found = value_and_gradients(f, dtype, x, y, g=g)
    exact = [a.astype(np.float64) for a in (g, x, y)]
    for ours, of in zip(found, (value, by_x, by_y), strict=True):
        assert_within(ulps, ours, of(*exact))


# Rows

def rows_at(offset, scale=1.0, R=7, C=33):
    """Rows of a length that fills no vector, of which the numbers lie around `offset`."""
    return (offset + scale * normal(R, C, seed=5)).astype(np.float32)


OFFSETS = [0.0, 300.0, -300.0, 1e6, -1e6, 1e30, -1e30]


@both_types
@pytest.mark.parametrize("offset", OFFSETS)
def test_softmax_and_its_logarithms_are_as_exact_far_from_0_as_near_it(offset, dtype):
    x, g, target = rows_at(offset, 4.0), normal(7, 33, seed=6), np.arange(7) * 4
    exact = x.astype(np.float64)
    less = exact - exact.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(less).sum(axis=1, keepdims=True))
    P, size = np.exp(less - log_sum), 1 + abs(less)     # e^x is off by as many ulps as x
    y, dx = value_and_gradients(mg.softmax, dtype, x, g=g)
    g = g.astype(dtype).astype(np.float64)
    assert_within(8, y, P, P * size)
    along = (g * P).sum(axis=1, keepdims=True)
    assert_within(12, dx, P * (g - along),
                  P * (abs(g) + (abs(g) * P * size).sum(axis=1, keepdims=True)) * size)
    y, dx = value_and_gradients(mg.log_softmax, dtype, x, g=g)
    assert_within(4, y, less - log_sum, size + log_sum)
    sums = g.sum(axis=1, keepdims=True)
    assert_within(16, dx, g - P * sums, abs(g) + P * size * abs(g).sum(axis=1, keepdims=True))
    at = np.arange(7), target
    loss, dx = value_and_gradients(lambda x: mg.cross_entropy(x, target), dtype, x)
    assert_within(6, loss, (log_sum[:, 0] - less[at]).mean(), (log_sum[:, 0] - less[at]).max())
    P[at] -= 1
    assert_within(8, dx, P / 7, abs(P) * size / 7 + (P < 0) / 7)


@both_types
@pytest.mark.parametrize("row", [
    [-np.inf, -np.inf, -np.inf],
    [np.nan, 1, 2],
    [np.inf, 1, 2],
    [-np.inf, 1, 2]])
def test_cross_entropy_does_not_look_at_a_row_that_is_not_counted(row, dtype):
    x = np.array([[0.0, 1, 2], row, [3, 1, 0]])
    loss, dx = value_and_gradients(lambda x: mg.cross_entropy(x, [1, -100, 0]), dtype, x)
    alone, expected = value_and_gradients(lambda x: mg.cross_entropy(x, [1, 0]), dtype, x[::2])
    assert loss == alone and np.isfinite(loss)
    assert (dx[1] == 0).all()
    assert np.array_equal(dx[::2], expected)


# (offset, scale, eps): rows of ordinary size, of tiny and huge ones, and far from 0.
NORMS = [
    (0.0, 1.0, 1e-5),
    (0.0, 1e30, 1e-5),
    (0.0, 1e19, 0.0),
    (0.0, 1e-30, 1e-5),
    (0.0, 1e-18, 0.0),
    (0.0, 1e-25, 0.0),
    (1e4, 1.0, 1e-5),
    (-1e6, 10.0, 1e-5),
    (1e30, 1e28, 0.0),
    (2e37, 1e36, 1e-5),
    (-3e38, 1e36, 0.0)]


@both_types
@pytest.mark.parametrize("offset, scale, eps", NORMS)
@pytest.mark.parametrize("centred", [True, False])
def test_a_norm_is_exact_for_rows_of_any_size(offset, scale, eps, centred, dtype):
    x, g = rows_at(offset, scale), normal(7, 33, seed=6)
    op = mg.layer_norm if centred else mg.rms_norm
    y, dx = value_and_gradients(lambda x: op(x, eps=eps), dtype, x, g=g)
    exact, g = x.astype(np.float64), g.astype(dtype).astype(np.float64)

    def mean(a):
        return a.mean(axis=1, keepdims=True)
    less = exact - mean(exact) * centred
    rstd = 1 / np.sqrt(mean(less ** 2) + eps)
    unit = less * rstd
    # The mean is rounded to a number of the row's type: half an ulp, which moves every unit.
    moved = 1 + abs(mean(exact)) * rstd * centred
    assert_within(8, y, unit, abs(unit) + moved * (centred or abs(unit)))
    along, ones = mean(g * unit), mean(g) * centred
    size = (abs(g) + abs(unit) * mean(abs(g * unit)) + mean(abs(g))) * moved
    assert_within(16, dx, rstd * (g - ones - unit * along), rstd * size)


@both_types
@pytest.mark.parametrize("C", [1, 33, 64, 700])
@pytest.mark.parametrize("value", [
    0.0,
    333.33,
    7000.1,
    333_333.3,
    1e-30,
    -1e30,
    1e38,
    -3e38])
def test_layer_norm_of_a_constant_row_is_exactly_its_bias(value, C, dtype):
    x, bias = np.full((3, C), value, dtype), np.arange(C).astype(dtype)
    y, dx = value_and_gradients(lambda x: mg.layer_norm(x, None, bias), dtype, x,
                                g=np.tile(np.arange(C), (3, 1)))
    assert (y == bias).all()
    assert_within(8, dx, (np.arange(C) - (C - 1) / 2) / math.sqrt(1e-5) * np.ones((3, 1)),
                  C / math.sqrt(1e-5))


@both_types
@pytest.mark.parametrize("scale, eps", [
    (1.0, 1e-5),
    (1e30, 1e-5),
    (1e-30, 1e-5),
    (1e-25, 0.0)])
def test_normed_heads_are_exact_at_any_size(scale, eps, dtype):
    x = rows_at(0, scale, 4, 24)
    y, = value_and_gradients(lambda x: mg.qk_norm(x, 2, 12, eps=eps), dtype, x)[:1]
    heads = x.astype(np.float64).reshape(4, 2, 12)
    exact = heads / np.sqrt((heads ** 2).mean(axis=2, keepdims=True) + eps)
    assert_within(6, y, exact.reshape(4, 24))


# Attention: scores of one size, far from 0 by keys or by a mask

@both_types
@pytest.mark.parametrize("keys, mask", [
    (0.0, None),
    (20.0, None),
    (-20.0, None),
    (0.0, -200.0),
    (0.0, -1e4),
    (0.0, -1e9),
    (0.0, 1e30),
    (0.0, np.finfo(np.float32).min / 2),
    (-20.0, -1e5)])
def test_attention_is_exact_where_all_scores_of_a_query_are_large(keys, mask, dtype):
    rng = np.random.default_rng(2)
    q, k, v, g = (rng.integers(-4, 5, (1, 2, n, 4)).astype(np.float32) / 4 for n in (5, 37, 37, 5))
    k, q = k + np.float32(keys), q + np.float32(0 if not keys else 20)
    added = None if mask is None else np.full((5, 37), mask, np.float32)
    found = value_and_gradients(
        lambda *heads: mg.scaled_dot_product_attention(*heads, added, scale=0.5), dtype, q, k, v,
        g=g)
    Q, K, V, G = (x.astype(np.float64) for x in (q, k, v, g))
    products = Q @ K.swapaxes(-1, -2) * 0.5
    # What the mask leaves of a score: it is added in the type, to which the reference adds it too.
    scores = products if mask is None else (products.astype(dtype) + added.astype(dtype)).astype(
        np.float64)
    P = np.exp(scores - scores.max(axis=-1, keepdims=True))
    P /= P.sum(axis=-1, keepdims=True)
    # Products are exact, or rounded to an ulp of the largest score.
    ulp = 1 + abs(products).max() * (1 + (dtype == np.float32))
    dP = G @ V.swapaxes(-1, -2)
    dS = P * (dP - (dP * P).sum(axis=-1, keepdims=True)) * 0.5
    size = P * (abs(dP) + (abs(dP) * P).sum(axis=-1, keepdims=True)) * 0.5
    back, size_back, P_back = (x.swapaxes(-1, -2) for x in (dS, size, P))
    stated = [(P @ V, P @ abs(V)),
              (dS @ K, size @ abs(K)),
              (back @ Q, size_back @ abs(Q)),
              (P_back @ G, P_back @ abs(G))]
    for ours, (exact, of) in zip(found, stated, strict=True):
        assert_within(16, ours, exact, of * ulp)


# Norms of all gradients

@both_types
@pytest.mark.parametrize("scale", [
    1e-30,
    1e-22,
    1.0,
    1e17,
    1e19,
    1e30,
    1e37])
def test_clip_grad_norm_takes_gradients_of_any_size(scale, dtype):
    g = (scale * normal(40_000, seed=3) / 4).astype(np.float32)
    p, q = leaf(np.zeros(g.size), dtype), leaf(np.zeros(3), dtype)
    p.grad, q.grad = g.astype(dtype), np.zeros(3, dtype)
    exact = math.sqrt((g.astype(np.float64) ** 2).sum())
    norm = mg.clip_grad_norm_([p, q], 0.5 * exact)
    # A sum over a piece of 16,384 squares has 512 additions in each of its 32 partial sums, of
    # which the errors mostly cancel; or all of them one after the other, in float64.
    ulps = 40 + 16_384 * np.finfo(np.float64).eps / np.finfo(dtype).eps
    assert math.isclose(norm, exact, rel_tol=ulps * np.finfo(dtype).eps)
    assert_within(ulps + 2, p.grad, g.astype(np.float64) / 2)
    assert math.isclose(formulas.sum_of_squares([p.grad]), exact ** 2 / 4,
                        rel_tol=(2 * ulps + 4) * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64])
@pytest.mark.parametrize("f", [mg.sigmoid, mg.silu, mg.gelu, gelu_by_tanh])
def test_a_function_of_whole_numbers_is_that_of_floats(f, dtype):
    whole = np.array([0, 1, 100, -128]).astype(dtype)       # -(-128) is no int8
    found = f(whole).data
    assert found.dtype == np.float64
    assert np.array_equal(found, f(whole.astype(np.float64)).data)


def test_a_mean_over_no_element_is_numpys_nan():
    with pytest.warns(RuntimeWarning, match="empty slice|invalid value"):
        value, dx = value_and_gradients(lambda x: mg.mean(x, axis=0), np.float64, np.ones((0, 3)))
    assert np.isnan(value).all() and value.shape == (3,)
    assert dx.shape == (0, 3)
