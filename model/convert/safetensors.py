"""safetensors files: numbers by name, behind a header of JSON.

The library `safetensors` reads the header and checks it: every size is that of its shape, and the
tensors fill the file without gaps and overlaps.  It has no bfloat16 for NumPy, and maps whole files
into memory.  So the numbers are read here, a tensor at a time, at the places that the library has
found right.
"""
import json
import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import NamedTuple

import numpy as np

from data.tokenizer import CharTokenizer
from model.convert.tokens import MissingLibrary, TokenTokenizer
from model.command import shown
from model.convert.found import (FormatError, Found, Lazy, check_shapes, missing_library,
                                 numbers_at, of_bfloat16, shapes_of)
from model.files import replacing
from model.transformer import TransformerConfig, parameter_shapes

MOST = 1 << 16      # tensors in a file; checking and taking up ten times as many takes seconds
DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}        # the last: the upper half of an F32


class Stored(NamedTuple):
    """A tensor in a file."""
    path: str | os.PathLike
    dtype: str
    shape: tuple[int, ...]
    begin: int          # its first byte in the file

    def read(self) -> np.ndarray:
        """Return the numbers as float32."""
        a = numbers_at(self.path, DTYPES[self.dtype], math.prod(self.shape), self.begin)
        if self.dtype == "BF16":
            a = of_bfloat16(a)
        return a.astype(np.float32, copy=False).reshape(self.shape)


def opened(path: str | os.PathLike, left_out: tuple[str, ...] = ()
           ) -> tuple[dict[str, Stored], dict[str, str]]:
    """Return the tensors of a file by name, and its metadata, after checking its header.

    Parameters
    ----------
    left_out : how the names of tensors end that are not wanted, whatever they hold.

    Raises
    ------
    FormatError : the library is missing, or the file is none of its kind.
    """
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise missing_library("safetensors") from error
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = file.read(min(length, os.path.getsize(path)))
    if header.count(b'"data_offsets"') > MOST:
        raise FormatError(f"{path} has more than the {MOST:,} tensors that are read; convert a "
                          "model of fewer")
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
    except SafetensorError as error:
        raise FormatError(f"{path} is no safetensors file, or a damaged one: {shown(error)}; "
                          "take the file as it was written") from error
    try:
        header = json.loads(header, object_pairs_hook=_each_once)
    except FormatError as error:        # the library takes the last of two
        raise FormatError(f"{path} {error}; take the file as it was written") from None
    header.pop("__metadata__", None)
    stored = {}
    for name, entry in header.items():
        if name.endswith(left_out):
            continue
        if entry["dtype"] not in DTYPES:
            raise FormatError(f"{path} has {shown(name)} of {entry['dtype']}, and weights are "
                              f"read in {', '.join(DTYPES)}; convert a model that is not quantised")
        begin = 8 + length + entry["data_offsets"][0]
        stored[name] = Stored(path, entry["dtype"], tuple(entry["shape"]), begin)
    return stored, metadata


def _each_once(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        (twice, _), = Counter(name for name, _ in pairs).most_common(1)
        raise FormatError(f"has the name {shown(twice)} twice in its header")
    return found


def write_tensors(path: str | os.PathLike, shapes: Mapping[str, tuple[int, ...]],
                  arrays: Mapping[str, np.ndarray], metadata: dict[str, str]) -> None:
    """Write float32 arrays of these shapes, which may be made one at a time."""
    header, end = {"__metadata__": metadata}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    header = json.dumps(header).encode()
    header += b" " * (-len(header) % 8)         # so that numbers begin at a multiple of their size
    with replacing(path) as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for name in shapes:
            file.write(np.ascontiguousarray(arrays[name], "<f4").data)


def read(path: str | os.PathLike) -> Found:
    """Read a file that `write` wrote.

    Raises
    ------
    FormatError : it is damaged, or of another program, or the library is missing.
    """
    stored, metadata = opened(path)
    if "config" not in metadata:
        raise FormatError(f"{path} has tensors and no configuration beside them; give the folder "
                          "that it is in, with its config.json")
    try:
        config = TransformerConfig(**json.loads(metadata["config"]))
        tokenizer = _tokenizer(metadata, config)
    except MissingLibrary:
        raise
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"{path} has metadata that python -m model.convert does not write: "
                          f"{shown(error)}; write it again from its source") from error
    check_shapes(path, shapes_of(config, len(stored)), {n: s.shape for n, s in stored.items()})
    weights = Lazy({name: stored[name].read for name, _ in parameter_shapes(config)})
    return Found("safetensors file", config, weights, tokenizer)


def write(path: str | os.PathLike, found: Found) -> None:
    """Write a model under our names, with configuration and vocabulary in the metadata."""
    write_tensors(path, dict(parameter_shapes(found.config)), found.weights,
                  {"config": json.dumps(asdict(found.config)), **_vocabulary(found.tokenizer)})


def _vocabulary(tokenizer):
    if isinstance(tokenizer, CharTokenizer):
        return {"vocabulary": json.dumps(tokenizer.vocabulary)}
    return {"tokenizer": tokenizer.json, "end": json.dumps(tokenizer.end)}


def _tokenizer(metadata, config):
    if "tokenizer" in metadata:
        return TokenTokenizer(metadata["tokenizer"], json.loads(metadata["end"]),
                              config.vocab_size)
    return CharTokenizer.of(json.loads(metadata["vocabulary"]), config.vocab_size)
