"""Our own checkpoints, read and written one array at a time."""
from functools import partial

import numpy as np

from data.files import AnyPath
from data.tokenizer import Tokenizer
from minigrad.packed import kind_of
from model.checkpoint import checkpoint_arrays, load_arrays, save_arrays
from model.convert.model_file import (AsStored, FormatError, Held, Lazy, ModelFile, explain,
                                      shapes_of)
from model.convert.tokens import TokenTokenizer, with_metadata

# Keys of a GGUF file: the name of its model; what is true of that model alone, and not of one that
# was made of it.  (Authors and licence stay.)
NAME = "general.name"
OF_ORIGINAL = [f"general.{key}" for key in ("finetune", "version", "description", "uuid", "doi",
                                            "url", "repo_url")]
FURTHER = ", trained further by minigrad"


def read(path: AnyPath) -> ModelFile:
    """Read a checkpoint; of an adapter, the model with it.  Refuse one that is damaged, or holds
    what no other format has."""
    found, arrays = load_arrays(path)
    if found.model.config.kind:
        from model.convert import adapter
        found = found._replace(tokenizer=renamed(found.tokenizer))
        return adapter.read(path, found, arrays)
    read = explain(f"{path} has changed while it was read", "convert it again", Exception)(
        arrays.__getitem__)
    config = found.model.config
    weights = Lazy({name: partial(read, f"model/{name}") for name in shapes_of(config)})
    if (dtype := next(iter(weights.values())).dtype) != np.float32:
        arrays.close()
        raise FormatError(f"{path} has weights of {dtype}, and models are exchanged in float32; "
                          "save it from a Transformer(..., dtype=np.float32)")
    tokenizer = found.tokenizer
    if found.training.get("state", {}).get("iteration"):
        tokenizer = renamed(tokenizer)
    return ModelFile("checkpoint", config, weights, tokenizer, file=arrays)


def renamed(tokenizer: Tokenizer) -> Tokenizer:
    """Return the tokenizer of a model that was trained further.  Metadata that it has from a GGUF
    file no longer give the model the name of the one before, nor what identifies that."""
    keys = dict(getattr(tokenizer, "metadata", {}).get("keys", {}))
    if not keys:
        return tokenizer
    for key in OF_ORIGINAL:
        keys.pop(key, None)
    name, types = keys.get(NAME, (None, []))
    if isinstance(name, str):
        keys[NAME] = [name.removesuffix(FURTHER) + FURTHER, types]
    text = with_metadata(tokenizer.library_json, tokenizer.metadata | {"keys": keys})
    _, *others = tokenizer.arrays()
    return TokenTokenizer.restored(tokenizer.vocab_size, np.frombuffer(text.encode(), np.uint8),
                                   *others)


def write(path: AnyPath, model: ModelFile) -> Held:
    """Write a checkpoint without a record of training, which other files do not have.  One of
    packed weights is deflated: it is the larger part of what an adapter needs."""
    weights = AsStored(model.weights.data)
    is_packed = kind_of(weights["token_embedding.weight"]) is not None
    arrays = checkpoint_arrays(
        model.config,
        weights,
        model.tokenizer,
        {},
        {})
    save_arrays(path, arrays, deflated=is_packed)
    return Held()
