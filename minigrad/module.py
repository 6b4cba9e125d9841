"""Module: a tree of parameters, found and named by walking attributes in the order they are set."""
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from textwrap import indent
from typing import Any

import numpy as np

from minigrad import habits
from minigrad.core import Tensor


class Module:
    """A container of parameters: Tensors, other Modules, and lists, tuples and dicts of them, as
    attributes.  Printed, it shows them with their shapes.
    """

    def __repr__(self) -> str:
        return _drawn("", self, {id(p): path for path, p in self.named_parameters()})

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Yield every parameter once, with its path, such as `blocks.0.attention.qkv.weight`.

        Raises a ValueError if two have one path.
        """
        seen = set()
        paths = set()
        for path, part in _walk("", self):
            if isinstance(part, Tensor) and id(part) not in seen:
                if path in paths:
                    raise ValueError(f"two parameters are called {path}; rename a key of a dict")
                seen.add(id(part))
                paths.add(path)
                yield path, part

    def named_modules(self) -> Iterator[tuple[str, "Module"]]:
        """Yield this and every Module below it, with its path, such as `blocks.0.attention`."""
        for path, part in _walk("", self):
            if isinstance(part, Module):
                yield path, part

    def parameters(self) -> list[Tensor]:
        """Return every parameter once."""
        return [p for _, p in self.named_parameters()]

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return a copy of every parameter's data, by path."""
        return {path: p.data.copy() for path, p in self.named_parameters()}

    def load_state_dict(self, state: Mapping[str, np.ndarray], assign: bool = False) -> None:
        """Set the data of every parameter; the names and shapes must match exactly.

        With `assign`, parameters become new leaves of the arrays themselves, of their float type,
        which are copied only if they are not dense or not writable.
        """
        parameters = dict(self.named_parameters())
        check_state({path: p.shape for path, p in parameters.items()}, state)
        for path, p in parameters.items():
            if assign:
                p.__init__(np.require(state[path], requirements="CAW"), requires_grad=True)
            else:
                p.data[...] = state[path]


habits.refuse(Module, habits.OF_MODULE)


def check_state(shapes: dict[str, tuple[int, ...]], state: dict[str, np.ndarray]) -> None:
    """Refuse a state whose names or shapes are not these, or that holds no numbers."""
    found = {"missing": shapes.keys() - state.keys(), "unknown": state.keys() - shapes.keys()}
    wrong = [f"{what} {', '.join(sorted(names))}" for what, names in found.items() if names]
    if wrong:
        raise ValueError(f"the names are not those of this model: {'; '.join(wrong)}")
    for path, shape in shapes.items():
        given = np.asarray(state[path])
        if given.shape != shape:
            raise ValueError(f"{path} has shape {list(shape)} in this model, and was given "
                             f"{list(given.shape)}")
        if given.dtype.kind not in "fiu":
            raise ValueError(f"{path} was given {given.dtype}, which are no numbers")


def _walk(path, value):
    if isinstance(value, (Tensor, Module)):
        yield path, value
    for below, part in _entries(path, value):
        yield from _walk(below, part)


def _entries(path: str, value: Any) -> Iterable[tuple[str, Any]]:
    """Return what may hold parameters directly below a value, with its path."""
    if isinstance(value, Module):
        entries = vars(value).items()
    elif isinstance(value, Mapping):
        entries = value.items()
    elif isinstance(value, (list, tuple)):
        entries = enumerate(value)
    else:
        parts = value if isinstance(value, (set, frozenset)) else ()
        if any(isinstance(part, (Tensor, Module)) for part in parts):
            raise TypeError(f"{path} is a set, which has no order: hold parameters and modules in "
                            "a list, a tuple or a dict")
        return ()
    return [(f"{path}.{name}" if path else str(name), part) for name, part in entries]


def _drawn(path, part, first):
    """Return a parameter's shape, or a line for a Module and below it those of its parts, from the
    first path of each parameter; neighbours in a list that are alike are shown once."""
    if isinstance(part, Tensor):
        shared = "" if first[id(part)] == path else f", shared with {first[id(part)]}"
        return f"{list(part.shape)}{shared}"
    count = sum(math.prod(p.shape) for p in part.parameters())
    lines = [f"{type(part).__name__}, {count:,} parameters"]
    for attribute, value in _entries(path, part):
        shown = [(below, _drawn(below, child, first)) for below, child in _top(attribute, value)]
        for text, alike in groupby(shown, key=itemgetter(1)):
            names = [below.removeprefix(f"{path}.") for below, _ in alike]
            several = f" to {names[-1]}, {len(names)} alike" if len(names) > 1 else ""
            lines.append(indent(f"{names[0]}{several}: {text}", "  "))
    return "\n".join(lines)


def _top(path, value):
    """Yield the parameters and Modules in a value that are in no other Module there."""
    if isinstance(value, (Tensor, Module)):
        yield path, value
    else:
        for below, part in _entries(path, value):
            yield from _top(below, part)
