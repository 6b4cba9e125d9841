"""Compare the gradient of any function of arrays with central differences, in float64.

For random u, v:  <u, f(x + h v) - f(x - h v)> / 2h  must equal  <vjp(u), v>.  Two evaluations of f
check the whole Jacobian at once, because a wrong entry anywhere changes the number.  For small f,
the Jacobian can be checked in full, entry by entry.
"""
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
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
    Of an argument or a value without elements there is nothing to compare: f is only called.

    Raises
    ------
    GradcheckError : a gradient is wrong, or f cannot be checked, because it gives two values for
        the same arguments (pass it a fresh random generator at each call) or does not compute in
        float64.
    """
    inputs = [Tensor(a) if isinstance(a, (Tensor, np.ndarray)) else a for a in arrays]
    checked = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.dtype.kind == "f"]
    if not checked:
        raise ValueError("gradcheck needs at least one array of floats to differentiate by")
    for i in checked:
        inputs[i] = Tensor(inputs[i].data.astype(np.float64))
    value = _evaluate(f, *inputs)
    if not np.array_equal(value, _evaluate(f, *inputs), equal_nan=True):
        raise GradcheckError("f gave two different values for the same arguments; freeze its "
                             "randomness, for instance with a fresh np.random.default_rng(0) "
                             "at each call")
    rng = np.random.default_rng(seed)
    for i in checked:
        def f_of_one(x):
            return f(*inputs[:i], x, *inputs[i + 1:])
        check = _Check(f_of_one, inputs[i].data, value, eps, atol, rtol, rng)
        fault = check.in_full() if full else check.along(directions)
        if fault:
            raise GradcheckError(f"argument {i}, {fault}")
    return True


@dataclass
class _Check:
    """The check of one argument of f, where it is x."""
    f: Callable
    x: np.ndarray
    value: np.ndarray           # f(x)
    eps: float
    atol: float
    rtol: float
    rng: np.random.Generator

    @cached_property
    def size(self):
        """The root mean square of x, or 1 where there is nothing to measure by."""
        total = np.square(self.x).sum()
        return np.sqrt(total / self.x.size) if total else 1.0

    def along(self, directions):
        """Compare the gradients along random directions; return what is wrong, or None."""
        for _ in range(directions):
            u = self.rng.standard_normal(self.value.shape)
            v = self.rng.standard_normal(self.x.shape) * self.size
            g = self.gradient(u)
            numeric = (u * self.difference(v)).sum()
            typical = np.sqrt(np.square(g * self.size).sum())   # usual size of <g, v> for such a v
            rounding = self.rounding(u * self.value).sum()
            if g.size and not self.agree((g * v).sum(), numeric, typical, rounding):
                index, numeric = self.worst(u, g)
                return (f"index {index}: the vjp gives {g[index]:.9g}, central differences "
                        f"{numeric:.9g} (for a random direction of the output)")

    def worst(self, u, g):
        """Find where in x g differs most from the central difference of <u, f>: the index, and the
        central difference there."""
        places = self.rng.choice(g.size, min(g.size, PROBED), replace=False)
        numeric = []
        for place in places:
            v = np.zeros(g.shape)
            v.flat[place] = self.size
            numeric.append((u * self.difference(v)).sum() / self.size)
        distances = np.nan_to_num(abs(g.flat[places] - numeric), nan=np.inf)
        worst = distances.argmax()
        return _index(places[worst], g.shape), numeric[worst]

    def in_full(self):
        """Compare every entry of the Jacobian; return what is wrong, or None."""
        M = self.value.size
        N = self.x.size
        us = np.eye(M).reshape(M, *self.value.shape)
        vs = np.eye(N).reshape(N, *self.x.shape) * self.size
        analytic = np.reshape([self.gradient(u) for u in us], (M, N))
        numeric = np.reshape([self.difference(v) for v in vs], (N, M)).T / self.size
        rounding = self.rounding(self.value.reshape(M, 1)) / self.size
        agree = self.agree(analytic, numeric, np.abs(analytic).max(initial=0), rounding)
        for m, n in np.argwhere(~agree)[:1]:
            return (f"index {_index(n, self.x.shape)}, output {_index(m, self.value.shape)}: the "
                    f"vjp gives {analytic[m, n]:.9g}, central differences {numeric[m, n]:.9g}")

    def agree(self, analytic, numeric, typical, rounding):
        larger = np.maximum(abs(analytic), abs(numeric))
        allowed = self.rtol * larger + self.atol * typical + rounding
        return abs(analytic - numeric) <= allowed               # False for nan

    def rounding(self, terms):
        """Return the part of a central difference of each term that rounding alone may cause."""
        return 64 * np.finfo(float).eps * np.abs(terms) / self.eps

    def difference(self, v):
        """Return (f(x + eps v) - f(x - eps v)) / 2 eps."""
        ahead = _evaluate(self.f, Tensor(self.x + self.eps * v))
        behind = _evaluate(self.f, Tensor(self.x - self.eps * v))
        return (ahead - behind) / (2 * self.eps)

    def gradient(self, u):
        x = Tensor(self.x, requires_grad=True)
        out = self.f(x)
        if out.requires_grad:
            out.backward(u)
        return np.zeros(x.shape) if x.grad is None else x.grad


def _evaluate(f, *inputs):
    with no_grad():
        out = f(*inputs)
    if not isinstance(out, Tensor) or out.dtype != np.float64:
        raise GradcheckError(f"f needs to compute in float64 and return a Tensor; it gave {out!r} "
                             f"of {getattr(out, 'dtype', type(out).__name__)}")
    return out.data


def _index(place, shape):
    return tuple(int(n) for n in np.unravel_index(place, shape))
