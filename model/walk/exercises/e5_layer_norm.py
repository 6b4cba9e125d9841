"""Exercise 5: layer norm and its gradients.

Numbers that pass through many layers grow or shrink.  Layer norm brings each
row back to mean 0 and variance 1, and then lets training choose another size
(gain) and another middle (bias) for each channel:

    z = (x - mean) / sqrt(variance + eps)
    y = gain * z + bias

The variance is the mean of (x - mean)^2.  eps is a small number that keeps a
row of equal numbers from being 0 / 0.  For example, the row (1, 3) has mean 2
and variance 1, and becomes (-1, 1).

Write the function below with NumPy.  It returns y and one function for each of
its arrays:

    return y, (dx, dgain, dbias)

The bias is added to every row, so its gradient is the sum of g over the rows;
that of the gain is the sum of g z.  The gradient of x has three terms, since x
also moves its row's mean and variance.  With dz = g * gain, along each row:

    dx = (dz - mean(dz) - z mean(dz z)) / sqrt(variance + eps)

Hints.  x.var(axis=-1, keepdims=True) is the variance of each row.  Rows may lie
in several axes, (..., C); g.reshape(-1, g.shape[-1]) has them all in one.
"""
import numpy as np

from model.walk.practice import op


@op
def layer_norm(x, gain, bias, eps=1e-5):
    """Return each row with mean 0 and variance 1, times gain, plus bias, and what goes back.

    x : (..., C)      gain, bias : (C,)
    returns : y (..., C), and (dx, dgain, dbias), each a function of g (..., C)
    """
    mean = x.mean(axis=-1, keepdims=True)
    std = np.sqrt(x.var(axis=-1, keepdims=True) + eps)
    z = (x - mean) / std
    rows = tuple(range(x.ndim - 1))

    def dx(g):
        dz = g * gain
        of_mean = dz.mean(axis=-1, keepdims=True)
        of_variance = z * (dz * z).mean(axis=-1, keepdims=True)
        return (dz - of_mean - of_variance) / std

    def dgain(g):
        return (g * z).sum(axis=rows)

    def dbias(g):
        return g.sum(axis=rows)
    return z * gain + bias, (dx, dgain, dbias)


def cases(rng):
    normal = rng.standard_normal
    gain, bias = normal((2, 4))
    yield np.array([[1.0, 3.0], [2.0, -2.0]]), np.array([1.0, 2.0]), np.array([0.0, 1.0])
    yield normal((4, 4)), gain, bias
    yield 3 + 2 * normal((2, 3, 4)), gain, bias
    yield normal(4), gain, bias
    yield 0.004 * normal((3, 4)), gain, bias
    yield normal((3, 4)), gain, bias, 0.1
    yield np.full((2, 4), 5.0), gain, bias
    yield 1000 * normal((3, 4)), gain, bias
