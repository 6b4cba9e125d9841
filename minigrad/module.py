"""Module: a tree of parameters, found and named by walking attributes in the order they are set."""
from collections.abc import Iterator, Mapping

import numpy as np

from minigrad.core import Tensor


class Module:
    """A container of parameters: Tensors, other Modules and lists of them, as attributes."""
from minigrad import habits

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Yield every parameter once, with its path, such as `blocks.0.attention.qkv.weight`."""
        seen = set()
        for path, part in _walk("", self):
            if isinstance(part, Tensor) and id(part) not in seen:
                seen.add(id(part))
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

        With `assign`, parameters take the arrays themselves, which are copied only if they are not
        dense or not writable.
        """
        parameters = dict(self.named_parameters())
        check_state({path: p.shape for path, p in parameters.items()}, state)
        for path, p in parameters.items():
            if assign:
                p.data = np.require(state[path], requirements="CAW")
            else:
                p.data[...] = state[path]


def check_state(shapes: dict[str, tuple[int, ...]], state: dict[str, np.ndarray]) -> None:
    """Refuse a state whose names or shapes are not these, or that holds no numbers."""
    missing, unknown = shapes.keys() - state.keys(), state.keys() - shapes.keys()
    if missing or unknown:
        raise ValueError("the names are not those of this model: "
                         + "; ".join(f"{what} {', '.join(sorted(names))}" for what, names in
                                     (("missing", missing), ("unknown", unknown)) if names))
    for path, shape in shapes.items():
        given = np.asarray(state[path])
        if given.shape != shape:
            raise ValueError(f"{path} has shape {list(shape)} in this model, and was given "
                             f"{list(given.shape)}")
        if given.dtype.kind not in "fiu":
            raise ValueError(f"{path} was given {given.dtype}, which are no numbers")


habits.refuse(Module, habits.OF_MODULE)


def _walk(path, value):
    if isinstance(value, (Tensor, Module)):
        yield path, value
    if isinstance(value, Module):
        for name, part in vars(value).items():
            yield from _walk(f"{path}.{name}" if path else name, part)
    elif isinstance(value, (list, tuple)):
        for i, part in enumerate(value):
            yield from _walk(f"{path}.{i}", part)
