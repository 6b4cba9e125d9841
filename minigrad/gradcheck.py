"""Compare the gradient of any function of arrays with central differences, in float64.

For random u, v:  <u, f(x + h v) - f(x - h v)> / 2h  must equal  <vjp(u), v>.  Two evaluations of f
check the whole Jacobian at once, because a wrong entry anywhere changes the number.  For small f,
the Jacobian can be checked in full, entry by entry.  An entry that seems wrong is tried again with
smaller steps h, before the vjp is blamed.
"""
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from minigrad.core import Tensor, brief, no_grad

PROBED = 1000       # at most so many entries of a wrong argument are checked, to name the worst
HIDDEN = 0.1        # of a gradient: if rounding may change more, it cannot be checked


class GradcheckError(AssertionError):
    """Central differences contradict a gradient, or cannot check it."""


def gradcheck(f: Callable, *arrays: Any, eps: float = 1e-6, atol: float = 1e-5,
              rtol: float = 1e-3, directions: int = 2, full: bool = False, seed: int = 0) -> bool:
    """Compare the gradients of `f(*tensors) -> Tensor` with central differences.

    Parameters
    ----------
    arrays : floats are cast to float64 and checked; anything else is passed to f as it is.  Where
        there is no array among them, numbers and lists of floats are made arrays.  An infinite
        element stays where it is: its gradient need only be finite.
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
        the same arguments (pass it a fresh random generator at each call), does not compute in
        float64, or is so large that its rounding hides the gradient (pass it a larger eps).
    """
    kinds = (Tensor, np.ndarray)
    if not any(isinstance(a, kinds) for a in arrays):
        kinds = (float, list)
    inputs = [Tensor(a) if isinstance(a, kinds) else a for a in arrays]
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
            raise GradcheckError(f"argument {i}{fault}")
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
        finite = self.x[np.isfinite(self.x)]
        total = np.square(finite).sum()
        return np.sqrt(total / finite.size) if total else 1.0

    def along(self, directions):
        """Compare the gradients along random directions; return what is wrong, or None."""
        for _ in range(directions):
            u = self.rng.standard_normal(self.value.shape)
            v = self.rng.standard_normal(self.x.shape) * self.size
            u = np.where(np.isinf(self.value), 0, u)        # what is infinite stays so
            v = np.where(np.isinf(self.x), 0, v)
            g = self.gradient(u)
            numeric = (u * self.difference(v)).sum()
            typical = np.sqrt(np.square(g * self.size).sum())   # usual size of <g, v> for such a v
            rounding = self.rounding(u).sum()
            agree = self.agree((g * v).sum(), numeric, typical, rounding)
            fault = None if agree else self.worst(u, g)
            fault = fault or self.hidden(u, v, typical, rounding)
            if g.size and fault:
                return fault

    def hidden(self, u, v, typical, rounding):
        """Say so if the rounding of f hides a gradient of this size."""
        little = rounding / 16                  # 4 units in the last place of f
        if typical <= self.eps * little:        # 0, but for its own rounding: is it?
            larger = 0.1 / self.eps             # a step that rounding disturbs so much less
            typical = abs((u * self.difference(larger * v)).sum()) / larger
            if typical <= little / larger:
                return None
        if typical < rounding / HIDDEN:
            return (" cannot be checked: beside values of f as large as these, rounding hides a "
                    f"gradient as small as this; take a larger step, such as "
                    f"eps={1000 * self.eps:g}, or leave a large constant out of f")

    def worst(self, u, g):
        """Say where in x g differs most from the central difference of <u, f>; None if it does not,
        as smaller steps show."""
        places = self.rng.choice(g.size, min(g.size, PROBED), replace=False)
        entries = [self.entry(u, place, g.flat[place]) for place in places]
        wrong = [not agrees for _, agrees, _ in entries]
        if g.size <= PROBED and not any(wrong):
            return None
        numeric = [n for n, _, _ in entries]
        distances = np.nan_to_num(abs(g.flat[places] - numeric), nan=np.inf)
        worst = np.argmax(distances * wrong if any(wrong) else distances)
        index = _index(places[worst], g.shape)
        return (f", index {index}: the vjp gives {g[index]:.9g}, central differences "
                f"{numeric[worst]:.9g} (for a random direction of the output){entries[worst][2]}")

    def entry(self, u, place, analytic):
        """Return the central difference of <u, f> by one element of x, whether the vjp agrees with
        it, and, if it does not, what else may be the cause."""
        if np.isinf(self.x.flat[place]):
            return 0.0, np.isfinite(analytic), ""
        v = np.zeros(self.x.shape)
        size = self.size
        smallest = min(1e-9 * size, abs(self.x.flat[place]) or size)
        distances = []
        while True:
            v.flat[place] = size
            difference = self.difference(v)
            numeric = (u * difference).sum() / size
            # In a smaller step, outputs that stay the same are not rounded.
            rounded = np.where(difference == 0, 0, u) if distances else u
            rounding = self.rounding(rounded).sum() / size
            allowed = rounding if analytic == 0 or not distances else 0
            if self.agree(analytic, numeric, abs(analytic), allowed):
                return numeric, True, ""
            distances.append(abs(analytic - numeric))
            if size <= smallest or 1000 * rounding > HIDDEN * np.fmax(abs(analytic), abs(numeric)):
                break
            size /= 1000
        if analytic == 0 and distances[-1] <= 1e-6 * distances[0]:      # they go to 0, too
            return numeric, True, ""
        above = (u * self.difference(v, behind=0)).sum() / size
        below = (u * self.difference(v, ahead=0)).sum() / size
        if not np.isfinite(above + below):
            return numeric, False, "; f is not finite beside x there: check it at another x"
        if abs(above - below) > HIDDEN * max(abs(above), abs(below)) + 2 * rounding:
            return numeric, False, (f"; perhaps f has a kink there, as its slope is {above:.3g} "
                                    f"above and {below:.3g} below: check it at another x")
        return numeric, False, ""

    def in_full(self):
        """Compare every entry of the Jacobian; return what is wrong, or None."""
        M = self.value.size
        N = self.x.size
        us = np.eye(M).reshape(M, *self.value.shape)
        vs = np.eye(N).reshape(N, *self.x.shape) * self.size
        analytic = np.reshape([self.gradient(u) for u in us], (M, N))
        numeric = np.reshape([self.difference(v) for v in vs], (N, M)).T / self.size
        rounding = self.rounding(1).reshape(M, 1) / self.size
        typical = np.abs(analytic).max(axis=0, initial=0)
        agree = self.agree(analytic, numeric, typical, rounding)
        agree |= np.isinf(self.value).reshape(M, 1)
        for m, n in np.argwhere(~agree):
            found, agrees, why = self.entry(us[m], n, analytic[m, n])
            if not agrees:
                return (f", index {_index(n, self.x.shape)}, output "
                        f"{_index(m, self.value.shape)}: the vjp gives {analytic[m, n]:.9g}, "
                        f"central differences {found:.9g}{why}")
        return self.along(1)

    def agree(self, analytic, numeric, typical, rounding):
        larger = np.maximum(abs(analytic), abs(numeric))
        allowed = self.rtol * larger + self.atol * typical + rounding
        return abs(analytic - numeric) <= allowed               # False for nan

    def rounding(self, u):
        """Return the part of a central difference of each term of u f that rounding alone may
        cause."""
        terms = u * np.where(np.isinf(self.value), 0, self.value)
        return 64 * np.finfo(float).eps * np.abs(terms) / self.eps

    def difference(self, v, ahead=1, behind=1):
        """Return (f(x + eps v) - f(x - eps v)) / 2 eps; with a 0, the difference of one side."""
        with np.errstate(all="ignore"):         # f may have an end there, as log has at 0
            above = _evaluate(self.f, Tensor(self.x + ahead * self.eps * v))
            below = _evaluate(self.f, Tensor(self.x - behind * self.eps * v))
            rise = np.where(above == below, 0, above - below)       # also where both are infinite
        return rise / ((ahead + behind) * self.eps)

    def gradient(self, u):
        x = Tensor(self.x, requires_grad=True)
        out = self.f(x)
        if out.requires_grad:
            out.backward(u)
        return np.zeros(x.shape) if x.grad is None else x.grad


def _evaluate(f, *inputs):
    with no_grad():
        out = f(*inputs)
    if isinstance(out, (list, tuple)):
        raise GradcheckError(f"f gives {len(out)} values: check one at a time, as in "
                             "mg.gradcheck(lambda x: f(x)[0], x)")
    if not isinstance(out, Tensor) or out.dtype != np.float64:
        raise GradcheckError("f needs to compute in float64 and return a Tensor; it gave "
                             f"{brief(out)}")
    return out.data


def _index(place, shape):
    return tuple(int(n) for n in np.unravel_index(place, shape))
