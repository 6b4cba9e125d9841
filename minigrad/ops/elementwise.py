"""Elementwise ops: each returns the value and one vjp for each argument.

Arguments broadcast and types promote as in NumPy.  A vjp keeps the arrays alive that it names.
"""
import numpy as np

from minigrad import formulas
from minigrad.core import Array, Operand, one_type, op


@op
def add(x: Operand, y: Operand):
    """x + y."""
    return x + y, (lambda g: g, lambda g: g)


@op
def subtract(x: Operand, y: Operand):
    """x - y."""
    return x - y, (lambda g: g, lambda g: -g)


@op
def multiply(x: Operand, y: Operand):
    """x * y."""
    return x * y, (lambda g: g * y, lambda g: g * x)


@op
def divide(x: Operand, y: Operand):
    """x / y."""
    # x / (y * y) would leave the range of floats where both quotients are ordinary numbers.
    return x / y, (lambda g: g / y, lambda g: -(g / y) * (x / y))


@op
def power(x: Operand, y: Operand):
    """x ** y.  Where x is 0 and y is not negative, the derivative by y is taken as 0."""
    value = x ** y

    def dx(g):
        one_less = y * 1 - (y != 0)             # where y is 0, any power will do: y multiplies it
        return g * y * x ** one_less

    def dy(g):
        return g * value * np.log(np.where(x == 0, 1, x))
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
def sigmoid(x: Array):
    """1 / (1 + e^-x)."""
    y = formulas.sigmoid(x)
    return y, (lambda g: g * y * (1 - y),)


@op
def silu(x: Array):
    """x sigmoid(x)  (Hendrycks & Gimpel 2016, section 2)."""
    s = formulas.sigmoid(x)
    return x * s, (lambda g: g * s * (1 + x * (1 - s)),)


@op
def relu(x: Array):
    """x where it is positive, else 0."""
    positive = x > 0
    return np.maximum(x, 0), (lambda g: g * positive,)


@op
def gelu(x: Array, approximate: str = "none"):
    """x Phi(x), with Phi the normal distribution's cdf  (Hendrycks & Gimpel 2016, section 2).

    approximate="tanh" takes x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), as GPT-2 does.
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f'approximate is "none" or "tanh", not {approximate!r}')
    x, = one_type(x)
    by_tanh = approximate == "tanh"
    return formulas.gelu(x, by_tanh), (lambda g: formulas.gelu_vjp(g, x, by_tanh),)


@op
def maximum(x: Operand, y: Operand):
    """The elementwise maximum; where both are equal, each gets half of the gradient."""
    def share(a, b):
        return lambda g: g * (a > b) + g / 2 * (a == b)
    return np.maximum(x, y), (share(x, y), share(y, x))


@op
def where(condition: Array, x: Operand, y: Operand):
    """x where the condition holds, else y.

    Both branches are computed in full.  The branch that is not taken gets a gradient of 0; an
    infinite derivative inside it makes that nan, since 0 * inf is nan.  With c = x.data > 0, the
    gradient of where(c, sqrt(x), 0) is nan where x <= 0.  Make the argument safe inside, too:
    where(c, sqrt(where(c, x, 1)), 0).
    """
    return np.where(condition, x, y), (
        None, lambda g: np.where(condition, g, 0), lambda g: np.where(condition, 0, g))
