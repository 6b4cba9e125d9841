"""Differentiable ops on each element: arguments broadcast, and types promote, as in NumPy.

Each op returns its value and its vjps.  A vjp keeps the arrays alive that it names.
"""
import numpy as np

from minigrad import formulas
from minigrad.core import Array, op, quiet


@op
def add(x: Array, y: Array):
    """x + y."""
    return formulas.add(x, y), (lambda g: g, lambda g: g)


@op
def subtract(x: Array, y: Array):
    """x - y."""
    return x - y, (lambda g: g, lambda g: -g)


@op
def multiply(x: Array, y: Array):
    """x * y."""
    return x * y, (lambda g: g * y, lambda g: g * x)


@op
def divide(x: Array, y: Array):
    """x / y."""
    # x / (y * y) would leave the range of floats where both quotients are ordinary numbers.
    return x / y, (lambda g: g / y, lambda g: -(g / y) * (x / y))


@op
def power(x: Array, y: Array):
    """x ** y.  Where x is 0 and y is not negative, the derivative by y is taken as 0."""
    value = x ** y

    def dx(g):
        one_less = y * 1 - (y != 0)             # where y is 0, any power will do: y multiplies it
        with quiet():                           # the slope of x ** 0.5 at 0 is inf
            return g * (y * x ** one_less)      # g * y may overflow, and the power vanish

    def dy(g):
        return g * (value * np.log(np.where((x == 0) & (y >= 0), 1, x)))
    return value, (dx, dy)


@op
def negative(x: Array):
    """-x."""
    return -x, (lambda g: -g,)


@op
def abs_(x: Array):
    """The size of x, without its sign.  The slope is 0 where x is 0 or nan, as in PyTorch."""
    above = x > 0
    below = x < 0
    size = np.abs(x).astype(x.dtype, copy=False)        # complex numbers are refused as they are
    return size, (lambda g: np.where(above, g, np.where(below, -g, 0)),)


@op
def square(x: Array):
    """x * x."""
    return np.square(x), (lambda g: 2 * (g * x),)


@op
def exp(x: Array):
    """e to the power of x."""
    y = np.exp(x)
    return y, (lambda g: g * y,)


@op
def expm1(x: Array):
    """e^x - 1, with all digits also where x is near 0."""
    return np.expm1(x), (lambda g: g * np.exp(x),)


@op
def log(x: Array):
    """Natural logarithm."""
    return np.log(x), (lambda g: g / x,)


@op
def log1p(x: Array):
    """log(1 + x), with all digits also where x is near 0."""
    return np.log1p(x), (lambda g: g / (1 + x),)


@op
def sqrt(x: Array):
    """Square root.  Back:  dx = g / (2 * y)."""
    y = np.sqrt(x)

    def dx(g):
        with quiet():                           # the slope at 0 is inf
            return g / (2 * y)
    return y, (dx,)


@op
def sin(x: Array):
    """Sine of an angle in radians."""
    return np.sin(x), (lambda g: g * np.cos(x),)


@op
def cos(x: Array):
    """Cosine of an angle in radians."""
    return np.cos(x), (lambda g: -g * np.sin(x),)


@op
def tanh(x: Array):
    """Hyperbolic tangent."""
    y = np.tanh(x)
    return y, (lambda g: g * (1 - y * y),)


@op
def maximum(x: Array, y: Array):
    """The elementwise maximum; where both are equal, each gets half of the gradient.  Beside a nan
    both get all of it, as in PyTorch."""
    return np.maximum(x, y), (_unless_less(x, y), _unless_less(y, x))


@op
def minimum(x: Array, y: Array):
    """The elementwise minimum; where both are equal, each gets half of the gradient.  Beside a nan
    both get all of it, as in PyTorch."""
    return np.minimum(x, y), (_unless_less(y, x), _unless_less(x, y))


def _unless_less(a, b):
    """Return a vjp that gives nothing where a < b, and half where they are equal."""
    return lambda g: np.where(a == b, g / 2, np.where(a < b, 0, g))


@op
def clip(x: Array, min: Array = None, max: Array = None):
    """x, but min where it is smaller and max where it is larger; a bound may be None.

    As in PyTorch, x gets the gradient where it lies between the bounds or equals one, and a bound
    where it takes the place of x.  Where min is above max, the value is max; where x is nan, nan,
    and no gradient goes on.
    """
    low = -np.inf if min is None else min
    high = np.inf if max is None else max
    inside = np.greater_equal(x, low) & np.less_equal(x, high)
    above = np.greater(x, high) | np.greater(low, high)
    below = np.less(x, low) & np.less(low, high)
    return np.clip(x, min, max), (
        lambda g: np.where(inside, g, 0),
        lambda g: np.where(below, g, 0),
        lambda g: np.where(above, g, 0))


@op
def where(condition: Array, x: Array, y: Array):
    """x where the condition holds, else y.

    Both branches are computed in full.  The branch that is not taken gets a gradient of 0; an
    infinite derivative inside it makes that nan, since 0 * inf is nan.  With c = x.data > 0, the
    gradient of where(c, sqrt(x), 0) is nan where x <= 0.  Make the argument safe inside, too:
    where(c, sqrt(where(c, x, 1)), 0).
    """
    condition = np.array(condition)     # a copy, which nobody can change before backward
    return np.where(condition, x, y), (
        None, lambda g: np.where(condition, g, 0), lambda g: np.where(condition, 0, g))
