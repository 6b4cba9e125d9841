"""minigrad: reverse-mode differentiation over NumPy arrays, small enough to read.

    import minigrad as mg

    x = mg.Tensor(np.ones(3), requires_grad=True)
    (x * x).sum().backward()
    x.grad                      # array([2., 2., 2.])
"""
import importlib
import importlib.util

from minigrad import habits
from minigrad.core import OPS, Added, Tensor, Together, no_grad, op
from minigrad.gradcheck import GradcheckError, gradcheck
from minigrad.ops import *      # noqa: F401, F403
from minigrad.ops import __all__ as _op_names
from minigrad.optim import SGD, AdamW, Muon, Optimizers, clip_grad_norm_

__version__ = "0.1.0"
LAZY = {"Profile": "minigrad.watch.profiling", "Recorder": "minigrad.watch.graph"}
__all__ = ["OPS", "SGD", "AdamW", "Added", "GradcheckError", "Muon", "Optimizers", "Tensor",
           "Together", "clip_grad_norm_", "gradcheck", "no_grad", "op", *LAZY, *_op_names]


def __getattr__(name: str):
    """Import a name of LAZY when it is first asked for."""
    if name not in LAZY:
        raise habits.missing("minigrad", name, habits.OF_NAMESPACE)
    return getattr(importlib.import_module(LAZY[name]), name)


def use_kernels() -> bool:
    """Have compiled kernels stand in for the formulas, if Numba is there and may compile; return
    whether they do.  This is the only place that knows of them."""
    return (importlib.util.find_spec("numba") is not None
            and importlib.import_module("minigrad.kernels").stand_in())


COMPILED = use_kernels()
