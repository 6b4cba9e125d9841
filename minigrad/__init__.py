"""minigrad: reverse-mode differentiation over NumPy arrays, small enough to read.

    import minigrad as mg

    x = mg.Tensor(np.ones(3), requires_grad=True)
    (x * x).sum().backward()
    x.grad                      # array([2., 2., 2.])
"""
from minigrad import environment     # noqa: F401  before Numba is loaded
from minigrad.core import OPS, Added, Tensor, Together, no_grad, op
from minigrad.gradcheck import GradcheckError, gradcheck
from minigrad.watch.graph import Recorder
from minigrad.ops import *      # noqa: F401, F403
from minigrad.ops import __all__ as _op_names
from minigrad.muon import Muon
from minigrad.optim import SGD, AdamW, Optimizers, clip_grad_norm_
from minigrad.watch.profiling import Profile

__version__ = "0.1.0"
__all__ = ["OPS", "SGD", "AdamW", "Added", "GradcheckError", "Muon", "Optimizers", "Profile",
           "Recorder", "Tensor", "Together", "clip_grad_norm_", "gradcheck", "no_grad", "op",
           *_op_names]
