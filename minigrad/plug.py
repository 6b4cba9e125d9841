"""Where others plug in: a kernel in place of a formula, and watchers, which are told of every op
and its gradient, and of other parts of a step."""
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from time import perf_counter
from typing import Any, NamedTuple

FORMULAS = []       # all functions for which a kernel may stand in
watchers = ContextVar("watchers", default=())       # of this thread or task


class CannotCompile(RuntimeError):
    """A kernel could not be compiled on this machine."""


def formula(f: Callable) -> Callable:
    """Let a kernel stand in for a function: return one that calls its attribute `kernel`, or, while
    that is None, f itself, its attribute `plain`.  A kernel takes the same arguments, and gives the
    same results.  One that cannot be compiled is unplugged, with a warning."""
    @wraps(f)
    def call(*args, **settings):
        kernel = call.kernel
        if kernel is None:
            return f(*args, **settings)
        try:
            return kernel(*args, **settings)
        except CannotCompile as error:
            call.kernel = None
            warnings.warn(
                f"{f.__name__} is left to NumPy, which gives the same and takes longer, because "
                f"Numba could not compile {error}", RuntimeWarning, stacklevel=2)
            return f(*args, **settings)

    call.plain = f
    call.kernel = None
    FORMULAS.append(call)
    return call


class Event(NamedTuple):
    """An op that has run forward, or has passed its gradient on; or another part of a step.

    A watcher may keep these arrays: nothing writes into them later.  An output may be `Added`.
    """
    op: str
    direction: str          # "forward", "backward", or "part" for what is no op
    seconds: float
    node: Any               # backward: the Node whose gradient it was
    inputs: list            # forward: positional arguments; backward: d(loss)/d(value)
    outputs: list           # forward: Tensors; backward: (parent, its part of the gradient)


def tell(op: str, direction: str, started: float, node: Any = None, inputs: tuple | list = (),
         outputs: tuple | list = ()) -> None:
    """Tell the watchers of what has begun at `started`, by `perf_counter`."""
    seconds = perf_counter() - started
    event = Event(op, direction, seconds, node, list(inputs), list(outputs))
    for watcher, in watchers.get():
        watcher(event)


@contextmanager
def watch_ops(watcher: Callable[[Event], None]) -> Iterator[None]:
    """Call `watcher(event)` after every op and its gradient, in this thread or task.  Watchers that
    are already active are still called."""
    only = [watcher]                    # told from another watching by the same watcher
    watchers.set((*watchers.get(), only))
    try:
        yield
    finally:
        watchers.set(tuple(other for other in watchers.get() if other is not only))
