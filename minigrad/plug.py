"""The plug for kernels: where a compiled function may stand in for a formula in plain NumPy."""
import warnings
from collections.abc import Callable
from functools import wraps

FORMULAS = []       # all functions that have a plug


class CannotCompile(RuntimeError):
    """Numba could not compile a kernel on this machine."""


def formula(f: Callable) -> Callable:
    """Let a kernel stand in for a function: return one that calls its attribute `kernel`, or, while
    that is None, f itself, its attribute `plain`.

    A kernel takes the same arguments, and gives the same results.  One that Numba cannot compile is
    unplugged, with a warning.
    """
    @wraps(f)
    def call(*args, **settings):
        if call.kernel is None:
            return f(*args, **settings)
        try:
            return call.kernel(*args, **settings)
        except CannotCompile as error:
            call.kernel = None
            warnings.warn(f"{f.__name__} is left to NumPy, which gives the same and takes longer, "
                          f"because Numba could not compile {error}", RuntimeWarning, stacklevel=2)
            return f(*args, **settings)

    call.plain = f
    call.kernel = None
    FORMULAS.append(call)
    return call
