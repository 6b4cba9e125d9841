"""Values that change between forward and backward: noted where minigrad changes them, and looked
for by `backward` in the arrays that a vjp keeps.

A vjp reads its arrays when `backward` calls it.  If an optimiser has stepped in between, they hold
other values than the op has read, and the gradient would be that of neither loss.  Views of one
array count as one, as in PyTorch.
"""
import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from types import FunctionType, ModuleType
from typing import Any
from weakref import ref

import numpy as np

clock = count()         # numbers nodes and changes, in the order in which they come
latest = -1             # the number of the last change
_changes = {}           # of each array that was changed, by its id, the last change
STRANGERS = type, ModuleType      # lead to the whole program, not to what one op keeps


@dataclass(slots=True)
class Change:
    """What has changed, and how."""
    array: ref          # when the array is freed, the change is forgotten
    time: int = -1
    what: str = ""      # "leaf", or the op that made it
    dtype: np.dtype | None = None
    shape: tuple[int, ...] = ()
    how: str = ""


def note(array: np.ndarray, what: str, how: str) -> None:
    """Note that the values of an array are changed now."""
    note_all([array], what, how)


def note_all(arrays: Iterable[np.ndarray], what: str, how: str) -> None:
    """Note that the values of these arrays are changed now."""
    global latest
    latest = now = next(clock)
    for array in arrays:
        whole = array if array.base is None else _whole(array)
        key = id(whole)
        change = _changes.get(key)
        if change is None:
            change = Change(ref(whole, partial(_changes.pop, key)))
        change.time = now
        change.what = what
        change.dtype = array.dtype
        change.shape = array.shape
        change.how = how
        _changes[key] = change      # only now, as other threads may look


def refuse(node: Any, vjps: Any) -> None:
    """Raise a RuntimeError if an array that vjps keep has changed since the time when an op made
    them, and their node."""
    for array in _kept(vjps, (*STRANGERS, type(node))):
        change = _changes.get(id(_whole(array)))
        if change and change.time > node.birth:
            raise RuntimeError(
                f"{change.dtype}{list(change.shape)} ({change.what}) was changed {change.how} "
                f"after {node.op} had read it, so that the gradient would be wrong: call "
                "backward() before the change, or compute the loss again after it")


def _whole(array):
    """Return the array of which this is a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _kept(vjps, strangers) -> Iterator[np.ndarray]:
    """Yield the arrays that functions keep, in closures, defaults, objects and containers."""
    seen = set()
    waiting = [vjps]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, strangers):
            continue
        seen.add(id(thing))
        if isinstance(thing, np.ndarray):
            yield thing
        if isinstance(thing, FunctionType):     # not its globals
            waiting += [thing.__closure__, thing.__defaults__, thing.__kwdefaults__, vars(thing)]
        else:
            waiting += gc.get_referents(thing)
