"""Compare the gradient of any function of arrays with central differences, in float64.

For random u, v:  <u, f(x + h v) - f(x - h v)> / 2h  must equal  <vjp(u), v>.  Two evaluations of f
check the whole Jacobian at once, because a wrong entry anywhere changes the number.  For small f,
the Jacobian can be checked in full, entry by entry.
"""
from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad.core import Tensor, no_grad

PROBED = 1000       # at most so many entries of a wrong argument are checked, to name the worst


class GradcheckError(AssertionError):
    """Central differences contradict a gradient."""


def gradcheck(f: Callable, *arrays: Any, eps: float = 1e-6, atol: float = 1e-5,
              rtol: float = 1e-3, directions: int = 2, full: bool = False, seed: int = 0) -> bool:
    """Compare the gradients of `f(*tensors) -> Tensor` with central differences.

    Parameters
    ----------
    arrays : floats are cast to float64 and checked; anything else is passed to f as it is.
    eps : step, in units of each argument's own size (root mean square; 1 where that is 0), so that
        weights of 0.02 are checked as strictly as numbers near 1.
    atol, rtol : the allowed difference is rtol times the larger of the two numbers, plus atol times
        what the argument's gradient gives for a step of its size.  A difference as small as the
        rounding itself is never an error.
    directions : how many random pairs u, v to try for each argument.
    full : compare every entry of every Jacobian instead, with an evaluation for each entry.

    Returns
    -------
    True, always: a disagreement raises GradcheckError, naming argument, index and both numbers.

    Raises
    ------
    GradcheckError : a gradient is wrong, or f cannot be checked, because it gives two values for
        the same arguments (pass it a fresh random generator at each call) or does not compute in
        float64.
    """
    inputs = [Tensor(a) if isinstance(a, (Tensor, np.ndarray)) else a for a in arrays]
    checked = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.dtype.kind == "f"]
    for i in checked:
        inputs[i] = Tensor(inputs[i].data.astype(np.float64))
    if not checked:
        raise ValueError("gradcheck needs at least one array of floats to differentiate by")
    value, again = (_evaluate(f, *inputs) for _ in range(2))
    if not np.array_equal(value, again, equal_nan=True):
        raise GradcheckError("f gave two different values for the same arguments; freeze its "
                             "randomness, for instance with a fresh np.random.default_rng(0) "
                             "at each call")
    rng = np.random.default_rng(seed)
    for i in checked:
        def f_of_one(x):
            return f(*inputs[:i], x, *inputs[i + 1:])
        fault = (_fault_in_full(f_of_one, inputs[i].data, value, eps, atol, rtol) if full else
                 _fault_along(f_of_one, inputs[i].data, value, eps, atol, rtol, directions, rng))
        if fault:
            raise GradcheckError(f"argument {i}, {fault}")
    return True


def _fault_along(f, x, value, eps, atol, rtol, directions, rng):
    """Compare the gradients along random directions; return what is wrong, or None."""
    size = _size(x)
    for _ in range(directions):
        u, v = rng.standard_normal(value.shape), rng.standard_normal(x.shape) * size
        g = _gradient(f, x, u)
        numeric = (u * _difference(f, x, v, eps)).sum()
        typical = np.sqrt(np.square(g * size).sum())        # the usual size of <g, v> for such a v
        rounding = _rounding(u * value, eps).sum()
        if not _agree((g * v).sum(), numeric, typical, rounding, atol, rtol):
            index, numeric = _worst(f, x, u, g, size, eps, rng)
            return (f"index {index}: the vjp gives {g[index]:.9g}, central differences "
                    f"{numeric:.9g} (for a random direction of the output)")


def _worst(f, x, u, g, size, eps, rng):
    """Find where in an argument g differs most from the central difference of <u, f>: the index,
    and the central difference there."""
    places, numeric = rng.choice(g.size, min(g.size, PROBED), replace=False), []
    for place in places:
        v = np.zeros(x.shape)
        v.flat[place] = size
        numeric.append((u * _difference(f, x, v, eps)).sum() / size)
    worst = np.nan_to_num(abs(g.flat[places] - numeric), nan=np.inf).argmax()
    return _index(places[worst], x.shape), numeric[worst]


def _fault_in_full(f, x, value, eps, atol, rtol):
    """Compare every entry of the Jacobian; return what is wrong, or None."""
    size, M, N = _size(x), value.size, x.size
    us, vs = np.eye(M).reshape(M, *value.shape), size * np.eye(N).reshape(N, *x.shape)
    analytic = np.reshape([_gradient(f, x, u) for u in us], (M, N))
    numeric = np.reshape([_difference(f, x, v, eps) / size for v in vs], (N, M)).T
    rounding = _rounding(value.reshape(M, 1), eps) / size
    agree = _agree(analytic, numeric, np.abs(analytic).max(initial=0), rounding, atol, rtol)
    for m, n in np.argwhere(~agree)[:1]:
        return (f"index {_index(n, x.shape)}, output {_index(m, value.shape)}: the vjp gives "
                f"{analytic[m, n]:.9g}, central differences {numeric[m, n]:.9g}")


def _agree(analytic, numeric, typical, rounding, atol, rtol):
    allowed = rtol * np.maximum(abs(analytic), abs(numeric)) + atol * typical + rounding
    return abs(analytic - numeric) <= allowed               # False for nan


def _rounding(terms, eps):
    """Return the part of a central difference of each term that rounding alone may cause."""
    return 64 * np.finfo(float).eps * np.abs(terms) / eps


def _index(place, shape):
    return tuple(int(n) for n in np.unravel_index(place, shape))


def _difference(f, x, v, eps):
    ahead, behind = (_evaluate(f, Tensor(x + step * v)) for step in (eps, -eps))
    return (ahead - behind) / (2 * eps)


def _evaluate(f, *inputs):
    with no_grad():
        out = f(*inputs)
    if not isinstance(out, Tensor) or out.dtype != np.float64:
        raise GradcheckError(f"f needs to compute in float64 and return a Tensor; it gave {out!r} "
                             f"of {getattr(out, 'dtype', type(out).__name__)}")
    return out.data


def _gradient(f, x, u):
    x = Tensor(x, requires_grad=True)
    out = f(x)
    if out.requires_grad:
        out.backward(u)
    return np.zeros(x.shape) if x.grad is None else x.grad


def _size(x):
    """Return the root mean square, or 1 where there is nothing to measure by."""
    return float(np.sqrt(np.square(x).mean())) or 1.0 if x.size else 1.0
