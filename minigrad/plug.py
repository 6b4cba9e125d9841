"""Where a kernel stands in for a formula."""
from collections.abc import Callable
from functools import wraps

FORMULAS = []       # all functions for which a kernel may stand in


def formula(f: Callable) -> Callable:
    """Let a kernel stand in for a function: return one that calls its attribute `kernel`, or, while
    that is None, f itself, its attribute `plain`.  A kernel takes the same arguments, and gives the
    same results."""
    @wraps(f)
    def call(*args, **settings):
        return (call.kernel or f)(*args, **settings)

    call.plain = f
    call.kernel = None
    FORMULAS.append(call)
    return call
