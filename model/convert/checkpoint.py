"""Our own checkpoints, read and written one array at a time."""
from functools import partial

import numpy as np

from data.files import AnyPath
from model.checkpoint import arrays_of, load_arrays, save_arrays
from model.convert.model_file import (AsStored, FormatError, Held, Lazy, ModelFile, explain,
                                      shapes_of)


def read(path: AnyPath) -> ModelFile:
    """Read a checkpoint.  Refuse one that is damaged, or holds what no other format has."""
    found, arrays = load_arrays(path)
    read = explain(f"{path} has changed while it was read", "convert it again", Exception)(
        arrays.__getitem__)
    config = found.model.config
    weights = Lazy({name: partial(read, f"model/{name}") for name in shapes_of(config)})
    if (dtype := next(iter(weights.values())).dtype) != np.float32:
        arrays.close()
        raise FormatError(f"{path} has weights of {dtype}, and models are exchanged in float32; "
                          "save it from a Transformer(..., dtype=np.float32)")
    return ModelFile("checkpoint", config, weights, found.tokenizer, file=arrays)


def write(path: AnyPath, model: ModelFile) -> Held:
    """Write a checkpoint without a record of training, which other files do not have."""
    weights = AsStored(model.weights.data)
    save_arrays(path, arrays_of(model.config, weights, model.tokenizer, {}, {}))
    return Held()
