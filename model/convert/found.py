"""What every reader of a format returns, `Found`: a configuration, weights, a tokenizer.  And what
the readers share.

The weights of a real model fill a good part of the memory.  So a reader returns them as `Lazy`, and
whoever converts or compares them holds one array at a time.
"""
import itertools
import os
import pathlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from data.tokenizer import CharTokenizer
from model.convert.tokens import TokenTokenizer
from model.command import first_of, shown
from model.files import Lazy      # noqa: F401  readers take it from here
from model.transformer import TransformerConfig, parameter_shapes

MOST_TEXT = 1 << 27     # bytes; the tokenizer.json of a vocabulary of 256,000 tokens has a quarter


class FormatError(ValueError):
    """A file is not what it should be, or holds what cannot be expressed.  The message is one line:
    what was expected, what came, what to do."""


class Found(NamedTuple):
    """A model in a file."""
    kind: str       # "checkpoint", "safetensors file", "Hugging Face folder", "GGUF file", ...
    config: TransformerConfig
    weights: Mapping[str, np.ndarray]           # our names -> float32, in the model's shapes
    tokenizer: CharTokenizer | TokenTokenizer
    said: list[str] = []                        # more lines for the user


def text_of(path: str | os.PathLike) -> str:
    """Return the text of a file such as config.json or tokenizer.json.

    Raises
    ------
    FormatError : it is no file, or too large, or not in UTF-8.
    OSError : it cannot be read.
    """
    path = pathlib.Path(path)
    if path.exists() and not path.is_file():        # a device such as /dev/zero has no end
        raise FormatError(f"{path} is a folder or a device; give a file")
    if path.stat().st_size > MOST_TEXT:
        raise FormatError(f"{path} has more than the {MOST_TEXT:,} bytes of text that are read; "
                          "give another file")
    try:
        return path.read_text(encoding="utf-8-sig")  # Windows may put a byte order mark first
    except UnicodeDecodeError as error:
        raise FormatError(f"{path} is no text in UTF-8; give another file") from error


def check_shapes(path: object, expected: Mapping[str, tuple[int, ...]],
                 found: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a file that lacks a tensor, or has one too many, or one of another shape."""
    if lost := expected.keys() - found.keys():
        raise FormatError(f"{path} lacks {some(lost)}; take the file as it was written")
    if others := found.keys() - expected.keys():
        raise FormatError(f"{path} has {some(others)}, for which a model of its configuration has "
                          "no place; take another, or this one as it was written")
    for name, shape in expected.items():
        if tuple(found[name]) != tuple(shape):
            raise FormatError(f"{path} has {name} of the shape {shown([*found[name]])}, and its "
                              f"configuration asks for {list(shape)}; take the file as it was "
                              "written")


def shapes_of(config: TransformerConfig, count: int) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of a model's parameters, for a file of `count` tensors; no more
    than one above these, as a file can claim 10^12 layers."""
    return dict(itertools.islice(parameter_shapes(config), count + 1))


def numbers_at(path: str | os.PathLike, dtype: str, count: int, begin: int) -> np.ndarray:
    """Return numbers of a file, from a byte on at which it had as many when it was opened."""
    found = np.fromfile(path, dtype, count, offset=begin)
    if found.size < count:
        raise FormatError(f"{path} has become shorter while it was read; convert it again once it "
                          "is complete")
    return found


def of_bfloat16(halves: np.ndarray) -> np.ndarray:
    """Return bfloat16 numbers, given as unsigned integers, as float32, of which each is the upper
    half."""
    whole = halves.astype(np.uint32)
    whole <<= 16
    return whole.view(np.float32)


def some(names: set[str]) -> str:
    """Return a few names, in order, and the number of the others."""
    return first_of([shown(name) for name in sorted(names)], 3)


def missing_library(name: str, extra: str = "convert") -> FormatError:
    """Return the error for a library that is not installed, with what to install."""
    return FormatError(f"the library {name} reads such files, and is not installed; install it "
                       f"with python -m pip install -e '.[{extra}]'")
