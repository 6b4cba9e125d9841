"""Compare the gradient of any function of arrays with central differences, in float64.

For random u, v:  <u, f(x + h v) - f(x - h v)> / 2h  must equal  <vjp(u), v>.  Two evaluations of f
check the whole Jacobian at once, because a wrong entry anywhere changes the number.  The full
Jacobian, entry by entry, is for small f.
"""
from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad.core import Tensor, no_grad

PROBED = 1000       # entries of a wrong argument checked one by one, to name the worst


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
    atol, rtol : the allowed difference is rtol of the larger of the two numbers, plus atol of what
        the argument's gradient gives for a step of its size.  A difference as small as the rounding
        itself is never an error.
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
    arrays = [_as_float64(a) for a in arrays]
    checked = [i for i, a in enumerate(arrays)
               if isinstance(a, np.ndarray) and a.dtype == np.float64]
    if not checked:
        raise ValueError("gradcheck needs at least one array of floats to differentiate by")
    value = _evaluate(f, arrays)
    if not np.array_equal(value, _evaluate(f, arrays), equal_nan=True):
        raise GradcheckError("f gave two different values for the same arguments; freeze its "
                             "randomness, for instance with a fresh np.random.default_rng(0) "
                             "at each call")
    rng = np.random.default_rng(seed)
    check = _check_full if full else _check_directions
    for i in checked:
        check(f, arrays, i, value, eps, atol, rtol, directions, rng)
    return True


def _check_directions(f, arrays, i, value, eps, atol, rtol, directions, rng):
    size = _size(arrays[i])
    for _ in range(directions):
        u, v = rng.standard_normal(value.shape), rng.standard_normal(arrays[i].shape) * size
        g = _gradient(f, arrays, i, u)
        analytic, numeric = (g * v).sum(), _difference(f, arrays, i, u, v, eps)
        typical = np.sqrt(np.square(g * size).sum())        # the usual size of <g, v> for such a v
        if _agree(analytic, numeric, typical, _rounding(u, value, eps), atol, rtol):
            continue
        index, analytic, numeric = _worst(f, arrays, i, u, g, size, eps, rng)
        raise GradcheckError(f"argument {i}, index {index}: the vjp gives {analytic:.9g}, central "
                             f"differences {numeric:.9g} (for a random direction of the output)")


def _check_full(f, arrays, i, value, eps, atol, rtol, directions, rng):
    size = _size(arrays[i])
    rows = []
    for out in np.ndindex(value.shape):
        u = np.zeros(value.shape)
        u[out] = 1
        rows.append((out, u, _gradient(f, arrays, i, u)))
    largest = max((np.abs(g * size).max(initial=0) for _, _, g in rows), default=0)
    for index in np.ndindex(arrays[i].shape):
        v = np.zeros(arrays[i].shape)
        v[index] = size
        difference = (_moved(f, arrays, i, eps * v)
                      - _moved(f, arrays, i, -eps * v)) / (2 * eps)
        for out, u, g in rows:
            analytic, numeric = g[index] * size, difference[out]
            if not _agree(analytic, numeric, largest, _rounding(u, value, eps), atol, rtol):
                raise GradcheckError(f"argument {i}, index {index}, output {out}: the vjp gives "
                                     f"{analytic / size:.9g}, central differences "
                                     f"{numeric / size:.9g}")


def _agree(analytic, numeric, typical, rounding, atol, rtol):
    allowed = rtol * max(abs(analytic), abs(numeric)) + atol * typical + rounding
    return abs(analytic - numeric) <= allowed               # False for nan


def _rounding(u, value, eps):
    """Return the part of a central difference that rounding alone may cause."""
    return 64 * np.finfo(float).eps * np.abs(u * value).sum() / eps


def _worst(f, arrays, i, u, g, size, eps, rng):
    """Find where in an argument the two gradients of <u, f> differ most: index and both numbers."""
    places = np.arange(g.size)
    if g.size > PROBED:
        places = rng.choice(g.size, PROBED, replace=False)
    found = []
    for place in places:
        v = np.zeros(g.size)
        v[place] = size
        numeric = _difference(f, arrays, i, u, v.reshape(g.shape), eps) / size
        found.append((abs(g.flat[place] - numeric), place, g.flat[place], numeric))
    _, place, analytic, numeric = max(found, key=lambda entry: np.nan_to_num(entry[0], nan=np.inf))
    return tuple(int(n) for n in np.unravel_index(place, g.shape)), analytic, numeric


def _difference(f, arrays, i, u, v, eps):
    return (u * (_moved(f, arrays, i, eps * v) - _moved(f, arrays, i, -eps * v))).sum() / (2 * eps)


def _moved(f, arrays, i, step):
    return _evaluate(f, arrays[:i] + [arrays[i] + step] + arrays[i + 1:])


def _evaluate(f, arrays):
    with no_grad():
        out = f(*(Tensor(a) if isinstance(a, np.ndarray) else a for a in arrays))
    if not isinstance(out, Tensor) or out.dtype != np.float64:
        raise GradcheckError(f"f needs to compute in float64 and return a Tensor; it gave {out!r}"
                             + (f" of {out.dtype}" if isinstance(out, Tensor) else ""))
    return out.data


def _gradient(f, arrays, i, u):
    x = Tensor(arrays[i], requires_grad=True)
    out = f(*(x if j == i else Tensor(a) if isinstance(a, np.ndarray) else a
              for j, a in enumerate(arrays)))
    if out.requires_grad:
        out.backward(u)
    return np.zeros(x.shape) if x.grad is None else x.grad


def _as_float64(a):
    if isinstance(a, Tensor):
        a = a.data
    return a.astype(np.float64) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a


def _size(x):
    """Return the root mean square, or 1 where there is nothing to measure by."""
    return float(np.sqrt(np.square(x).mean())) or 1.0 if x.size else 1.0
