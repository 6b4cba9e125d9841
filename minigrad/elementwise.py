"""Differentiable ops on each element: arguments broadcast, and types promote, as in NumPy.

Each op returns its value and its vjps.  A vjp keeps the arrays alive that it names.
"""
import numpy as np

from minigrad.core import Array, op


@op
def add(x: Array, y: Array):
    """x + y."""
    return x + y, (lambda g: g, lambda g: g)


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
        return g * (y * x ** one_less)          # g * y may overflow, and the power vanish

    def dy(g):
        return g * (value * np.log(np.where((x == 0) & (y >= 0), 1, x)))
    return value, (dx, dy)


@op
def negative(x: Array):
    """-x."""
    return -x, (lambda g: -g,)


@op
def exp(x: Array):
    """e to the power of x."""
    y = np.exp(x)
    return y, (lambda g: g * y,)


@op
def log(x: Array):
    """Natural logarithm."""
    return np.log(x), (lambda g: g / x,)


@op
def sqrt(x: Array):
    """Square root."""
    y = np.sqrt(x)
    return y, (lambda g: g / (2 * y),)


@op
def tanh(x: Array):
    """Hyperbolic tangent."""
    y = np.tanh(x)
    return y, (lambda g: g * (1 - y * y),)


@op
def maximum(x: Array, y: Array):
    """The elementwise maximum; where both are equal, each gets half of the gradient.  Beside a nan
    both get all of it, as in PyTorch."""
    def share(a, b):
        return lambda g: np.where(a == b, g / 2, np.where(a < b, 0, g))
    return np.maximum(x, y), (share(x, y), share(y, x))


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
