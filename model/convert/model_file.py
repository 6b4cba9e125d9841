"""What every reader of a model returns, `ModelFile`, and what the readers share."""
import contextlib
import importlib
import math
import pathlib
import types
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from data.files import AnyPath
from data.tokenizer import MissingLibrary, Tokenizer
from minigrad.packed import unpacked
from minigrad.words import first_of, shown
from model.answers import install_command
from model.config import TransformerConfig
from model.count.sizes import parameter_shapes

MOST_TEXT = 1 << 27     # bytes; the tokenizer.json of a vocabulary of 256,000 tokens has a quarter
AGAIN = "the file may be cut or damaged: fetch it again, or save it anew"
OWN = "give the weights of a model with its own configuration"


class FormatError(ValueError):
    """A file is damaged, or holds what cannot be converted.  The message is one line: what was
    expected, what came, what to do."""


class AsStored(UserDict):
    """Arrays by name, made of functions that return them.  Each function is called when its array
    is asked for, so that few arrays are in memory at a time."""

    def __getitem__(self, name: str) -> np.ndarray:
        return self.data[name]()


class Lazy(AsStored):
    """The same, of numbers: what is packed in blocks is unpacked."""

    def __getitem__(self, name: str) -> np.ndarray:
        return unpacked(super().__getitem__(name))


class Stored(NamedTuple):
    """A tensor in a file, or for one."""
    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]      # float32, or blocks that `minigrad.packed` knows


class ModelFile(NamedTuple):
    """A model that was read from a file or a folder.

    Its weights are `Lazy`, as those of a large model fill a good part of the memory: whoever
    converts or compares them holds one array at a time.
    """
    kind: str       # "checkpoint", "safetensors file", "Hugging Face folder", "GGUF file", ...
    config: TransformerConfig
    weights: Mapping[str, np.ndarray]           # our names -> float32, in the model's shapes
    tokenizer: Tokenizer
    notes: list[str] = []                       # more lines for the user
    file: contextlib.AbstractContextManager = contextlib.nullcontext()      # closed after use
    name: str = ""                              # for a file that says its own, and has none yet
    adapter: Any = None     # an adapter.Adapter, if the weights are merged with one


def check_finite(name: str, a: np.ndarray) -> None:
    """Refuse numbers of a model that no program can compute with."""
    if not np.isfinite(a).all():
        raise FormatError(f"{name} holds nan or inf; its training may have diverged, so take a "
                          "checkpoint from before")


def same_bits(name: str, a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays of float32 have the same bits: -0.0 and 0.0 have not."""
    of_a, of_b = (np.ascontiguousarray(x).view(np.uint32) for x in (a, b))
    return np.array_equal(of_a, of_b)


class Held(NamedTuple):
    """How a file holds the numbers of a model that was written into it."""
    # Whether the numbers of a parameter (its name, before, read back) are what the file can say.
    agree: Callable[[str, np.ndarray, np.ndarray], bool] = same_bits
    rounded: str = ""                           # the kinds that are rounded to, for the user
    notes: list[str] = []                       # lines for the user


@contextlib.contextmanager
def explain(what: str, remedy: str = "", errors: type | tuple[type, ...] = ValueError
            ) -> Iterator[None]:
    """Turn an error into a FormatError of one line: `what`, the error, and the remedy.  Without a
    remedy, a FormatError says itself what to do, and any other error gets AGAIN."""
    try:
        yield
    except (MissingLibrary, MemoryError):       # the file may be sound
        raise
    except errors as error:
        reason = error
        if not isinstance(error, FormatError):      # ours are short
            reason = shown(error) or type(error).__name__
            remedy = remedy or AGAIN
        raise FormatError(f"{what}: {reason}" + (remedy and f"; {remedy}")) from error


def text_of(path: AnyPath) -> str:
    """Return the text of a file such as config.json.  Refuse what is not a file, or too large, or
    not in UTF-8."""
    path = pathlib.Path(path)
    size = path.stat().st_size
    if not path.is_file():      # a device such as /dev/zero has no end
        raise FormatError(f"{path} is a folder or a device; give a file")
    if size > MOST_TEXT:
        raise FormatError(f"{path} has more than {MOST_TEXT:,} bytes, the most that is read; "
                          "give a smaller one")
    with explain(f"{path} is not a text in UTF-8"):
        return path.read_text(encoding="utf-8-sig")  # Windows may put a byte order mark first


def shapes_of(config: TransformerConfig, tensors: float = math.inf) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of a model's parameters, in its order, without memory for them.
    Refuse a configuration that so many tensors of a file cannot bear out."""
    with explain("its configuration is not that of its weights"):
        config.check_claim(tensors)
        return parameter_shapes(config)


def check_shapes(expected: Mapping[str, tuple[int, ...]], found: Mapping[str, Stored]) -> None:
    """Refuse a file that lacks a tensor, or has one too many, or one of another shape."""
    missing, others = expected.keys() - found.keys(), found.keys() - expected.keys()
    if missing:
        lacking, one = f"it lacks {some(missing)}", f".{min(missing)}"
        for name in others:
            if name.endswith(one):
                prefix = shown(name.removesuffix(one))
                raise FormatError(f"{lacking}; its names begin with {prefix}., as of a model in "
                                  "another one; save the inner model")
        raise FormatError(lacking + (f"; it has {shown(min(others))} instead; {OWN}" if others
                                     else "; fetch the whole model again"))
    if others:
        raise FormatError(f"it has {some(others)}, for which its configuration has no place; {OWN}")
    for name, shape in expected.items():
        if found[name].shape != shape:
            raise FormatError(f"it has {name} of the shape {shown([*found[name].shape])}, and its "
                              f"configuration asks for {list(shape)}; {OWN}")


def read_numbers(path: AnyPath, dtype: str, count: int, start: int) -> np.ndarray:
    """Return numbers of a file from a byte on.  It had as many when it was opened."""
    numbers = np.fromfile(path, dtype, count, offset=start)
    if numbers.size < count:
        raise FormatError(f"{path} has become shorter while it was read; convert it again")
    return numbers


def some(names: set[str]) -> str:
    """Return a few names, in order, and the number of the others."""
    return first_of([shown(name) for name in sorted(names)], 3)


def require(library: str, extra: str, what: object) -> types.ModuleType:
    """Import a library that `what` needs.  Where it is missing, name the extra that installs it."""
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise MissingLibrary(f"{what}, which needs the library {library}; install it with "
                             f"{install_command(extra)}") from error
