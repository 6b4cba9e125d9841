"""Our own checkpoints, read and written one array at a time."""
import os

import numpy as np

from model.checkpoint import Contents, load_contents, save_contents
from model.convert.model_file import FormatError, ModelFile
from model.transformer import TransformerConfig


def read(path: str | os.PathLike) -> ModelFile:
    """Read a checkpoint.  Refuse one that is damaged, or holds what no other format has."""
    found = load_contents(path)
    if not isinstance(found.config, TransformerConfig):
        raise FormatError(f"{path} holds an encoder-decoder, from python -m model.reverse, which "
                          "cannot be converted; give a model of train.py")
    if (dtype := next(iter(found.weights.values())).dtype) != np.float32:
        raise FormatError(f"{path} has weights of {dtype}, and models are exchanged in float32; "
                          "save it from a Transformer(..., dtype=np.float32)")
    return ModelFile("checkpoint", found.config, found.weights, found.tokenizer)


def write(path: str | os.PathLike, model: ModelFile) -> None:
    """Write a checkpoint without a record of training, which other files do not have."""
    save_contents(path, Contents(model.config, model.weights, model.tokenizer, {}, {}))
