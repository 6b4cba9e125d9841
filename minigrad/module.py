"""Module: a tree of parameters and buffers, found and named by walking attributes in the order they
are set."""
import gc
import math
from collections import UserList, deque
from collections.abc import Iterable, Iterator, Mapping, MappingView
from functools import partial
from itertools import groupby
from operator import itemgetter
from textwrap import indent
from types import GeneratorType, SimpleNamespace
from typing import Any, NoReturn

import numpy as np

from minigrad import changes, habits
from minigrad.core import Tensor


IN_ORDER = list, tuple, deque, UserList, MappingView    # containers whose parts have numbers


class Buffer(Tensor):
    """Numbers that a Module saves and does not train, such as a running mean:

        self.mean = Buffer(np.zeros(4))
        self.mean.data = 0.9 * self.mean.data + 0.1 * x.data.mean(axis=0)

    It is a constant Tensor, which ops take as any other.
    """
    __slots__ = ()

    def __init__(self, data: Any) -> None:
        super().__init__(data)


class Module:
    """A container of parameters and buffers: Tensors, other Modules, and lists, tuples and dicts of
    them, as attributes.  Printed, it shows them with their shapes.  `state_dict` has all of them.
    A plain array is neither, and is not saved: wrap it, as in self.mean = Buffer(array).
    """

    def __repr__(self) -> str:
        return _drawn("", self, {id(p): path for path, p in self._named_tensors()})

    def __iter__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} is no list: take model.parameters(), or go "
                        "through a list of layers that it holds")

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Yield every parameter once, with its path, such as `blocks.0.attention.qkv.weight`.

        Raises a ValueError if two have one path, and a TypeError if some are where they have none,
        as in a set or a generator.
        """
        for path, part in self._named_tensors():
            if not isinstance(part, Buffer):
                yield path, part

    def named_buffers(self) -> Iterator[tuple[str, Buffer]]:
        """Yield every Buffer once, with its path; errors are those of `named_parameters`."""
        for path, part in self._named_tensors():
            if isinstance(part, Buffer):
                yield path, part

    def _named_tensors(self):
        """Yield every parameter and buffer once, with its path."""
        paths = set()
        for path, part in _walk("", self, seen=set()):
            if isinstance(part, Tensor):
                if path in paths:
                    raise ValueError(f"two parameters are called {path}; rename a key of a dict")
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
        """Return a copy of the data of every parameter and buffer, by path."""
        return {path: p.data.copy() for path, p in self._named_tensors()}

    def load_state_dict(self, state: Mapping[str, np.ndarray], assign: bool = False) -> None:
        """Set the data of every parameter and buffer; the names and shapes must match exactly, and
        numbers must be within the type that is there.

        With `assign`, parameters become new leaves of the arrays themselves, of their float type,
        which are copied only if they are not dense or not writable; so do buffers, as constants.  A
        parameter that is frozen stays so.
        """
        tensors = dict(self._named_tensors())
        check_state({path: p.shape for path, p in tensors.items()}, state)
        if assign:
            fresh = [Tensor(np.require(state[path], requirements="CAW"), p.requires_grad)
                     for path, p in tensors.items()]        # all fit, or nothing is changed
            for p, other in zip(tensors.values(), fresh):
                Tensor.__init__(p, other, p.requires_grad)
            return
        arrays = {path: _in_type(path, state[path], p.dtype) for path, p in tensors.items()}
        for path, p in tensors.items():
            changes.note(p.data, "leaf", "by load_state_dict")
            p.data[...] = arrays[path]


habits.refuse(Module, habits.OF_MODULE)


def check_state(shapes: dict[str, tuple[int, ...]], state: dict[str, np.ndarray]) -> None:
    """Refuse a state whose names or shapes are not these, or that holds no numbers."""
    differing = {"missing": shapes.keys() - state.keys(),
                 "unknown": state.keys() - shapes.keys()}
    wrong = [f"{what} {', '.join(sorted(names))}" for what, names in differing.items() if names]
    if wrong:
        raise ValueError(f"the names are not those of this model: {'; '.join(wrong)}")
    for path, shape in shapes.items():
        if hasattr(state[path], "filled"):
            raise TypeError(f"{path} was given a masked array, which would lose its mask: give its "
                            "numbers, as with array.filled(0)")
        array = np.asarray(state[path])
        if array.shape != shape:
            raise ValueError(f"{path} has shape {list(shape)} in this model, and was given "
                             f"{list(array.shape)}")
        if array.dtype.kind not in "fiub":
            raise ValueError(f"{path} was given {array.dtype}, which are no numbers")


def _in_type(path, array, dtype):
    """Return the array in a parameter's or buffer's type; refuse numbers that would change much
    there, or become infinite."""
    array = np.asarray(array)
    if np.can_cast(array.dtype, dtype):
        return array
    if dtype.kind != "f":
        with np.errstate(invalid="ignore"):
            cast = array.astype(dtype)
        if (cast != array).any():
            raise ValueError(f"{path} was given numbers that {dtype}, its type in this model, does "
                             "not hold")
        return array
    with np.errstate(over="ignore"):
        cast = array.astype(dtype)
    if (np.isinf(cast) & np.isfinite(array)).any():
        raise ValueError(f"{path} was given numbers beyond {np.finfo(dtype).max:.2g}, the largest "
                         f"of {dtype}, its type in this model")
    return cast


def _walk(path, value, above=(), seen=None):
    """Yield every parameter, buffer and Module in a value with its path.  `above` has the ids of
    what holds it, to which a part that leads back there does not lead again.  With a set, `seen`,
    each comes once, by its first path."""
    if isinstance(value, (Tensor, Module)):
        if seen is not None:
            if id(value) in seen:
                return
            seen.add(id(value))
        yield path, value
    above = *above, id(value)
    for below, part in _entries(path, value):
        if id(part) not in above:
            yield from _walk(
                below,
                part,
                above,
                seen)


def _entries(path: str, value: Any) -> Iterable[tuple[str, Any]]:
    """Return what may hold parameters directly below a value, with its path."""
    entries = []
    if isinstance(value, (Module, SimpleNamespace)):
        entries += [*_slots(value), *vars(value).items()]
    else:
        _refuse_hidden(path, value)
    if isinstance(value, Mapping):              # it may be a Module, too
        entries += value.items()
    elif isinstance(value, IN_ORDER):
        entries += enumerate(value)
    elif isinstance(value, np.ndarray) and value.dtype == object:
        entries += enumerate(np.atleast_1d(value))
    return [(f"{path}.{name}" if path else str(name), part) for name, part in entries]


def _slots(value):
    """Yield the attributes that a class keeps in __slots__, as those of a dataclass may be."""
    for kind in reversed(type(value).__mro__):
        slots = vars(kind).get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            if name.startswith("__"):               # as Python calls it outside of the class
                name = f"_{kind.__name__.lstrip('_')}{name}"
            if hasattr(value, name):
                yield name, getattr(value, name)


def _refuse_hidden(path, value):
    """Raise a TypeError for parameters, or what may give some, where they have no path."""
    parts = why = None
    if isinstance(value, (set, frozenset)):
        parts, why = value, "a set, which has no order"
    elif isinstance(value, partial):
        parts, why = (value.func, *value.args, value.keywords), "a function that keeps parameters"
    elif isinstance(value, Iterator):
        why = f"a {type(value).__name__}, which gives its parts only once"
        if not isinstance(value, (GeneratorType, map, filter, zip)):    # these make their parts
            parts = gc.get_referents(value)
    if why and (parts is None or any(True for part in parts for _ in _walk(path, part))):
        raise TypeError(f"{path} is {why}: hold parameters and modules in a list, a tuple or a "
                        "dict")


def _drawn(path, part, first, above=()):
    """Return a parameter's shape, or a line for a Module and below it those of its parts, from the
    first path of each parameter; neighbours in a list that are alike are shown once.  `above` has
    the ids of the Modules that hold it."""
    if isinstance(part, Tensor):
        shared = "" if first[id(part)] == path else f", shared with {first[id(part)]}"
        kind = "" if part.requires_grad else ", frozen"
        if isinstance(part, Buffer):
            kind = ", buffer"
        return f"{list(part.shape)}{kind}{shared}"
    count = sum(math.prod(p.shape) for p in part.parameters())
    lines = [f"{type(part).__name__}, {count:,} parameters"]
    above = *above, id(part)
    for attribute, value in _entries(path, part):
        shown = [(below, _drawn(below, child, first, above))
                 for below, child in _top(attribute, value, above)]
        for text, alike in groupby(shown, key=itemgetter(1)):
            names = [below.removeprefix(f"{path}.") for below, _ in alike]
            several = f" to {names[-1]}, {len(names)} alike" if len(names) > 1 else ""
            lines.append(indent(f"{names[0]}{several}: {text}", "  "))
    return "\n".join(lines)


def _top(path, value, above):
    """Yield the parameters and Modules in a value that are in no other Module there."""
    if id(value) in above:
        return
    if isinstance(value, (Tensor, Module)):
        yield path, value
    else:
        for below, part in _entries(path, value):
            yield from _top(below, part, (*above, id(value)))
