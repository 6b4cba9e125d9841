"""Read the events of ops: their arrays, the gradients that they send, the object that ran them."""
import contextlib
import inspect
import itertools
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

import numpy as np

from minigrad.core import OPS, Array, Node, Tensor
from minigrad.gradients import Added
from minigrad.plug import Event, watch_ops

# Stands for each parameter of an op that is not listed, whose names and types are not known.
UNKNOWN = inspect.Parameter("argument", inspect.Parameter.POSITIONAL_ONLY)


class Watcher:
    """Watches the ops that run inside `with`.  A subclass has the methods `_note_forward` and
    `_note_backward`, which take an event; or `_note`, which takes events of other parts, too."""

    def __enter__(self):
        self._block = contextlib.ExitStack()
        self._block.enter_context(watch_ops(self._note))
        return self

    def __exit__(self, *error) -> None:
        self._block.__exit__(*error)

    def _note(self, event):
        if event.direction != "part":
            getattr(self, f"_note_{event.direction}")(event)


def arguments(event: Event) -> Iterator[tuple[str, Any]]:
    """Yield the name and value of each argument of an op that is an array, a part of a list of
    arrays, or a number in place of an array; not its settings."""
    parameters = (inspect.signature(OPS[event.op]).parameters.values() if event.op in OPS else
                  itertools.repeat(UNKNOWN))
    for argument, given in zip(parameters, event.inputs):
        parts = given if isinstance(given, (list, tuple)) else [given]
        if (any(isinstance(part, (Tensor, np.ndarray)) for part in parts)
                or isinstance(given, (int, float, np.number))
                and argument.annotation in (Array, argument.empty)):
            yield from ((argument.name, part) for part in parts)


def array_of(x: Any) -> np.ndarray:
    """Return the data of an argument."""
    return x.data if isinstance(x, Tensor) else np.asarray(x)


def gradients(event: Event) -> Iterator[tuple[Node, np.ndarray]]:
    """Yield each node to which an op sends a part of its gradient, and that part."""
    for node, part in event.outputs:
        if isinstance(part, Added):
            add = part.add
            part = np.zeros(node.shape, node.dtype)
            add(part)
        yield node, part


def passes_on(event: Event) -> bool:
    """Whether an op returned its input as it is, as dropout does if nothing is dropped."""
    value = event.outputs[0].data
    return any(isinstance(x, Tensor) and x.data is value for x in event.inputs)


def owner(names: dict[int, Any], frames: Iterable[FrameType]) -> Any:
    """Return the name of the innermost object whose method led to an op, from names by the ids of
    objects; None if no object has a name."""
    owners = (id(frame.f_locals.get("self")) for frame in frames)
    return next((names[key] for key in owners if key in names), None)
