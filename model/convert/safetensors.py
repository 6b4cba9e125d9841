"""safetensors files: numbers by name, behind a header of JSON.

The library `safetensors` checks the header: every size is that of its shape, and the tensors fill
the file without gaps and overlaps.  But it has no bfloat16 for NumPy, and maps whole files into
memory.  So the numbers are read here, one tensor at a time, at the places that it has checked.
"""
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial

import numpy as np

from data.files import AnyPath, replacing
from data.tokenizer import CharTokenizer
from minigrad.packed import float32_of_bfloat16
from minigrad.words import shown
from model.convert.model_file import (FormatError, Held, Lazy, ModelFile, Stored, check_shapes,
                                      explain, read_numbers, require, shapes_of)
from model.convert.tokens import TokenTokenizer, stated_ends
from model.config import TransformerConfig

DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}        # BF16 is the upper half of an F32


def open_tensors(path: AnyPath, ignored: tuple[str, ...] = ()
                 ) -> tuple[dict[str, Stored], dict[str, str]]:
    """Return the tensors of a file by name, without those whose names end with `ignored`, and its
    metadata.  Refuse a file that is damaged or of another kind."""
    library = require("safetensors", "convert", f"{path} is a safetensors file")
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = file.read(min(length, os.path.getsize(path)))
    with explain(f"{path} is damaged or not a safetensors file",
                 errors=(library.SafetensorError, FormatError)):
        with library.safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
        header = json.loads(header, object_pairs_hook=_unique)      # the library takes the last
    header.pop("__metadata__", None)
    stored = {}
    for name, entry in header.items():
        if name.endswith(ignored):
            continue
        if entry["dtype"] not in DTYPES:
            raise FormatError(f"{path} has {shown(name)} of {entry['dtype']}, and only "
                              f"{', '.join(DTYPES)} can be read; save them in one of these")
        shape = tuple(entry["shape"])
        start = 8 + length + entry["data_offsets"][0]
        stored[name] = Stored(shape, partial(_numbers, path, entry["dtype"], shape, start))
    return stored, metadata


def _numbers(path, dtype, shape, start):
    """Return the numbers that begin at a byte as float32."""
    a = read_numbers(path, DTYPES[dtype], math.prod(shape), start)
    if dtype == "BF16":
        a = float32_of_bfloat16(a)
    return a.astype(np.float32, copy=False).reshape(shape)


def _unique(pairs):
    """Return pairs as a dict.  Refuse a name that is in them twice."""
    found = {}
    for name, value in pairs:
        if name in found:
            raise FormatError(f"the name {shown(name)} is twice in its header; fetch it again")
        found[name] = value
    return found


def write_tensors(path: AnyPath, tensors: Mapping[str, Stored], metadata: dict[str, str]) -> None:
    """Write float32 tensors, each made when it is written."""
    header = {"__metadata__": metadata}
    end = 0
    for name, tensor in tensors.items():
        start = end
        end += 4 * math.prod(tensor.shape)
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [start, end]}
    header = json.dumps(header).encode()
    header += b" " * (-len(header) % 8)         # so that numbers start at a multiple of their size
    with replacing(path) as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor.read(), "<f4").data)


def read(path: AnyPath) -> ModelFile:
    """Read a file that `write` wrote.  Refuse one that is damaged, or of another program."""
    stored, metadata = open_tensors(path)
    if "config" not in metadata:
        raise FormatError(f"{path} has tensors and no configuration beside them; give the folder "
                          "that it is in, with its config.json")
    with explain(f"{path} has metadata that python -m model.convert does not write",
                 errors=(AttributeError, KeyError, TypeError, ValueError, RecursionError)):
        config = TransformerConfig(**json.loads(metadata["config"]))
        if "tokenizer" in metadata:
            tokenizer = TokenTokenizer(metadata["tokenizer"], json.loads(metadata["end"]),
                                       config.vocab_size)
        else:
            tokenizer = CharTokenizer.of(json.loads(metadata["vocabulary"]), config.vocab_size)
    with explain(str(path)):
        shapes = shapes_of(config, len(stored))
        check_shapes(shapes, stored)
    return ModelFile("safetensors file", config, Lazy({name: stored[name].read for name in shapes}),
                     tokenizer)


def write(path: AnyPath, model: ModelFile) -> Held:
    """Write a model under our names, with configuration and vocabulary in the metadata."""
    tokenizer, metadata = model.tokenizer, {"config": json.dumps(asdict(model.config))}
    if isinstance(tokenizer, CharTokenizer):
        metadata["vocabulary"] = json.dumps(tokenizer.vocabulary)
    else:
        metadata |= {"tokenizer": tokenizer.json, "end": json.dumps(stated_ends(tokenizer))}
    tensors = {name: Stored(shape, partial(model.weights.__getitem__, name))
               for name, shape in shapes_of(model.config).items()}
    write_tensors(path, tensors, metadata)
    return Held()
