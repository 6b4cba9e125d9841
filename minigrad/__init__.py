"""minigrad: reverse-mode differentiation over NumPy arrays, small enough to read.

    import minigrad as mg

    x = mg.Tensor(np.ones(3), requires_grad=True)
    (x * x).sum().backward()
    x.grad                      # array([2., 2., 2.])
"""
import importlib
import importlib.util
import os
import textwrap
import warnings

from minigrad import compiled, habits, nn, plug
from minigrad.core import OPS, Tensor, no_grad, op
from minigrad.gradients import Added
from minigrad.gradcheck import GradcheckError, gradcheck
from minigrad.ops import *      # noqa: F401, F403
from minigrad.ops import __all__ as _op_names
from minigrad.optim import SGD, AdamW, Muon, Optimizers, clip_grad_norm_
from minigrad.random import manual_seed

__version__ = "0.1.0"
LAZY = {"Profile": "minigrad.watch.profiling", "Recorder": "minigrad.watch.graph"}
__all__ = ["OPS", "SGD", "AdamW", "Added", "GradcheckError", "Muon", "Optimizers", "Tensor",
           "clip_grad_norm_", "gradcheck", "manual_seed", "nn", "no_grad", "op", *LAZY, *_op_names]


def __getattr__(name: str):
    """Import a name of LAZY when it is first asked for."""
    if name not in LAZY:
        raise habits.missing("minigrad", name, habits.OF_NAMESPACE)
    return getattr(importlib.import_module(LAZY[name]), name)


def use_kernels() -> bool:
    """Have compiled kernels stand in for the formulas, if Numba is there and may compile; return
    whether they do.  This is the only place that knows of them."""
    if importlib.util.find_spec("numba") is None:
        return False
    if problem := compiled.problem(os.environ):
        raise ValueError(problem)
    try:
        return importlib.import_module("minigrad.kernels").PLUGGED_IN
    except Exception as error:      # Numba, what it needs, or what kernels take from it
        for formula in plug.FORMULAS:
            formula.kernel = None
        warnings.warn(textwrap.shorten(
            "minigrad computes in plain NumPy, which takes longer, because Numba cannot be used: "
            f"{type(error).__name__}: {error}", 400), RuntimeWarning, stacklevel=2)
        return False


COMPILED = use_kernels()
