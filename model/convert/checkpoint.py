"""Our own checkpoints, read and written one array at a time."""
import os
from collections import ChainMap
from functools import partial

import numpy as np

from minigrad.packed import unpacked
from model.checkpoint import arrays_of, load_arrays, save_arrays
from model.convert.model_file import FormatError, Lazy, ModelFile, explain, shapes_of


def read(path: str | os.PathLike) -> ModelFile:
    """Read a checkpoint.  Refuse one that is damaged, or holds what no other format has."""
    found, arrays = load_arrays(path)
    read = explain(f"{path} has changed while it was read", "convert it again", Exception)(
        arrays.__getitem__)
    config = found.model.config
    packed = Lazy({name: partial(read, f"model/{name}") for name in shapes_of(config)})
    weights = Lazy({name: lambda name=name: unpacked(packed[name]) for name in packed})
    if (dtype := next(iter(weights.values())).dtype) != np.float32:
        arrays.close()
        raise FormatError(f"{path} has weights of {dtype}, and models are exchanged in float32; "
                          "save it from a Transformer(..., dtype=np.float32)")
    return ModelFile("checkpoint", config, weights, found.tokenizer, file=arrays, packed=packed)


def write(path: str | os.PathLike, model: ModelFile) -> None:
    """Write a checkpoint without a record of training, which other files do not have."""
    weights = ChainMap(model.packed, model.weights)
    save_arrays(path, arrays_of(model.config, weights, model.tokenizer, {}, {}))
