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
    gain, bias = rng.standard_normal(4), rng.standard_normal(4)
    return [(np.array([[1.0, 3.0], [2.0, -2.0]]), np.array([1.0, 2.0]), np.array([0.0, 1.0])),
            (rng.standard_normal((4, 4)), gain, bias),
            (3 + 2 * rng.standard_normal((2, 3, 4)), gain, bias),
            (rng.standard_normal(4), gain, bias),
            (0.004 * rng.standard_normal((3, 4)), gain, bias),
            (rng.standard_normal((3, 4)), gain, bias, 0.1),
            (np.full((2, 4), 5.0), gain, bias),
            (rng.standard_normal((3, 4)).astype(np.float32), gain.astype(np.float32),
             bias.astype(np.float32)),
            (1000 * rng.standard_normal((3, 4)), gain, bias)]


VARIANCE = "x.var(axis=-1, keepdims=True)"
STD, Y = f"np.sqrt({VARIANCE} + eps)", "z * gain + bias"
OF_SQUARES = {VARIANCE: "(x ** 2).mean(axis=-1, keepdims=True)"}
MISTAKES = {
    "The variance is divided by C - 1 (ddof=1, as in PyTorch's var); layer norm divides by C.":
        {VARIANCE: "x.var(axis=-1, keepdims=True, ddof=1)"},
    "The variance is a sum of squares; it should be their mean.": {VARIANCE: f"x.size * {VARIANCE} "
                                                                   "/ mean.size"},
    "The variance is of all rows; each has its own.": {VARIANCE: "((x - mean) ** 2).mean()"},
    "The variance is the mean of x^2; it should be that of (x - mean)^2.": OF_SQUARES,
    "This is the RMS norm: the mean should be subtracted.": OF_SQUARES | {"(x - mean) /": "x /"},
    "The rows are divided by their mean absolute deviation; take the root of the variance.":
        {VARIANCE: "np.abs(x - mean).mean(axis=-1, keepdims=True) ** 2"},
    "The root is taken twice: x.std is the root of the variance.": {".var": ".std"},
    "eps is missing: a row of equal numbers becomes 0 / 0.": {" + eps": ""},
    "eps is added after the root; add it to the variance.": {" + eps)": ") + eps"},
    "The root is kept above eps; add eps to the variance.": {STD: f"np.maximum({STD[:-7]}), eps)"},
    "eps is not the argument but always 1e-5.": {"+ eps": "+ 1e-5"},
    "The rows are divided by the variance; it should be its square root.": {"np.sqrt(": "("},
    "The rows are not divided by sqrt(variance + eps), only centred.": {"mean) / std": "mean)"},
    "The mean is not subtracted; layer norm centres each row.": {"(x - mean) /": "x /"},
    "Mean and variance are taken down the columns (that is batch norm); each row has its own.":
        {"mean = x.mean(axis=-1": "mean = x.mean(axis=0", "x.var(axis=-1": "x.var(axis=0"},
    "Mean and variance are taken over all rows at once; each row has its own.":
        {"mean = x.mean(axis=-1, keepdims=True)": "mean = x.mean()", VARIANCE: "x.var()"},
    "Mean and variance have lost their axis, and meet the columns: keep it with keepdims.":
        {"x.mean(axis=-1, keepdims=True)": "x.mean(axis=-1)", VARIANCE: "x.var(axis=-1)"},
    "The gain is missing in y.": {Y: "z + bias"},
    "y has 1 + gain in place of gain.": {Y: f"z + {Y}"},
    "The bias is missing in y.": {Y: "z * gain"},
    "The bias is added before the gain multiplies.": {Y: "(z + bias) * gain"},
    "Gain and bias are exchanged.": {Y: "z * bias + gain"},
    "The gradient of x has a constant mean: the term mean(dz) is missing.": {" - of_mean": ""},
    "The gradient of x has a constant variance: add z mean(dz z).": {" - of_variance": ""},
    "The gradient of x has sums where means belong: the factor 1/C is missing.":
        {"dz.mean(": "dz.sum(", "(dz * z).mean(": "(dz * z).sum("},
    "The gradient of x is not divided by sqrt(variance + eps).": {"variance) / std": "variance)"},
    "The gradient of x is divided by the variance; take its root.": {"e) / std": "e) / std ** 2"},
    "The gradient of x forgets the gain: g is multiplied by it first.": {"dz = g * gain": "dz = g"},
    "The gradient of x is multiplied by the gain after its means are taken; multiply g first.":
        {"dz = g * gain": "dz = g", "variance) / std": "variance) / std * gain"},
    "The gradient of x uses x - mean for z.": {"z * (dz * z)": "(x - mean) * (dz * (x - mean))"},
    "The term of the variance in the gradient of x lacks its factor z.": {"z * (dz": "(dz"},
    "The term of the variance in the gradient of x has the wrong sign.": {"- of_var": "+ of_var"},
    "The gradient of x takes its means over the rows; they belong along each row.":
        {"dz.mean(axis=-1": "dz.mean(axis=0", "(dz * z).mean(axis=-1": "(dz * z).mean(axis=0"},
    "The gradient of the gain uses x; it should be z, the normed row.": {"(g * z)": "(g * x)"},
    "The gradient of the gain uses y; it should be z.": {"(g * z)": f"(g * ({Y}))"},
    "The gradient of the gain is multiplied by the gain.": {"(g * z)": "(g * z * gain)"},
    "The gradient of the gain is a mean over the rows; it should be a sum.": {"z).sum": "z).mean"},
    "The gradient of the gain is that of the bias: the factor z is missing.": {"(g * z)": "g"},
    "The gradient of the bias is the mean over the rows; it is their sum.": {"g.sum": "g.mean"},
    "The gradient of the bias is multiplied by gain.": {"return g.s": "return (g * gain).s"},
    "The gradient of the bias forgets g.": {"return g.s": "return np.ones_like(g).s"},
    "The gradients of gain and bias are exchanged.":
        {"s, (dx, dgain, dbias": "s, (dx, dbias, dgain"},
}
for name, summed in (("gain", "(g * z).sum("), ("bias", "return g.sum(")):
    MISTAKES |= {f"The gradient of the {name} is {what}; sum over the rows, channel by channel.":
                 {f"{summed}axis=rows)": f"{summed}{axis})"}
                 for what, axis in (("one number", ""), ("summed along each row", "axis=-1"))}
