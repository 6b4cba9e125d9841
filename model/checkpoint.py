"""A model as one file: a plain .npz of weights, vocabulary, configuration, and what resuming needs.

    config                      JSON: the TransformerConfig
    vocabulary                  code points, (V,)
    model/<parameter>           weights
    optimizer/{m,v}/<parameter> AdamW's state, in a checkpoint to resume from
    training                    JSON: settings, iteration, generators, ...; whatever train.py keeps
    sha256                      over all of these, see `digest`

Nothing is pickled: np.load(path, allow_pickle=False) reads all of it.
"""
import hashlib
import json
import os
import pathlib
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from minigrad import AdamW
from model.files import replacing
from model.tokenizer import CharTokenizer
from model.transformer import Transformer, TransformerConfig

# Of a run, in its folder
BEST, LAST, PREVIOUS, DAMAGED = "ckpt.npz", "last.npz", "previous.npz", "last.damaged.npz"


class CheckpointError(ValueError):
    """A file that is no checkpoint, or not a whole one: what is wrong and what to do, in a line."""


class Checkpoint(NamedTuple):
    """What `load_checkpoint` found."""
    model: Transformer
    tokenizer: CharTokenizer
    training: dict[str, Any]                    # empty where none was saved
    optimizer: dict[str, np.ndarray]            # "m/<parameter>", "v/<parameter>"; empty likewise


def save_checkpoint(path: str | os.PathLike, model: Transformer, tokenizer: CharTokenizer,
                    training: dict[str, Any] | None = None, optimizer: AdamW | None = None,
                    before: str | os.PathLike | None = None) -> None:
    """Write a checkpoint; whatever happens, `path` is the old file or the new one, whole.

    With `before`, the old file is kept under that name (see `replacing`).
    """
    arrays = {f"model/{name}": p.data for name, p in model.named_parameters()}
    if optimizer is not None:
        for name, m, v in _named_state(optimizer, model):
            arrays[f"optimizer/m/{name}"], arrays[f"optimizer/v/{name}"] = m, v
    arrays["config"] = np.array(json.dumps(asdict(model.config), default=int))
    arrays["vocabulary"] = np.array([ord(c) for c in tokenizer.vocabulary], np.uint32)
    arrays["training"] = np.array(json.dumps(training or {}))
    arrays["sha256"] = np.array(digest(arrays))
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, before) as file:
        np.savez(file, **arrays)


def digest(arrays: dict[str, np.ndarray]) -> str:
    """sha256 over name, dtype, shape and bytes of each array, in the order of the names."""
    sha256 = hashlib.sha256()
    for name, a in sorted(arrays.items()):
        sha256.update(f"{name} {a.dtype.str} {a.shape}\n".encode())
        sha256.update(np.ascontiguousarray(a).data)
    return sha256.hexdigest()


def load_checkpoint(path: str | os.PathLike) -> Checkpoint:
    """Read what `save_checkpoint` wrote, if it is that to the last bit; only a file of an earlier
    version, which has no digest, is taken at its word.

    Raises
    ------
    CheckpointError : there is no such file, or it is damaged, or no checkpoint.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise CheckpointError(f"there is no checkpoint {path}; train one with python train.py, "
                              "or name its folder with --out_dir")
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as npz:
            arrays = {name: npz[name] for name in npz.files}
        if "sha256" in arrays and str(arrays.pop("sha256")) != digest(arrays):
            raise ValueError("the digest is that of other arrays")
    except Exception as error:      # of many kinds, as the damage is
        raise CheckpointError(f"{path} is damaged or no checkpoint; take another, such as last.npz "
                              "or ckpt.npz beside it, or train anew") from error
    try:
        config = TransformerConfig(**json.loads(str(arrays["config"])))
        tokenizer = CharTokenizer("".join(map(chr, arrays["vocabulary"])))
        if tokenizer.vocab_size != config.vocab_size:
            raise ValueError(f"a vocabulary of {tokenizer.vocab_size} for a model of "
                             f"{config.vocab_size}")
        weights = _below("model/", arrays)
        model = Transformer(config)
        model.load_state_dict(weights)
        training = json.loads(str(arrays["training"]))
    except KeyError as error:
        raise CheckpointError(f"{path} is no checkpoint of this program: no {error}") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(f"{path} is no checkpoint of this program: {error}") from error
    return Checkpoint(model, tokenizer, training, _below("optimizer/", arrays))


def load_last(folder: pathlib.Path) -> tuple[Checkpoint, str]:
    """What a run can go on from: last.npz or, if that is damaged or gone, the one before it; and a
    line that says so, empty if all is well.

    Raises
    ------
    CheckpointError : there is neither, or both are damaged.
    """
    last, previous = folder / LAST, folder / PREVIOUS
    try:
        return load_checkpoint(last), ""
    except CheckpointError:
        if not previous.exists():
            raise
    found = load_checkpoint(previous)
    return found, (f"{last} is {'damaged' if last.exists() else 'not there'}; going on from "
                   f"{previous}, the one before it")


def restore_optimizer(optimizer: AdamW, model: Transformer, state: dict[str, np.ndarray],
                      steps: int) -> None:
    """Give an optimiser of the model's parameters the state that a checkpoint kept.

    Raises
    ------
    CheckpointError : an array is missing or has not its parameter's shape.
    """
    for name, m, v in _named_state(optimizer, model):
        for key, array in ((f"m/{name}", m), (f"v/{name}", v)):
            if key not in state or state[key].shape != array.shape:
                raise CheckpointError(f"the optimiser's state has no {key} of the shape "
                                      f"{list(array.shape)}; the run cannot go on from it")
            array[...] = state[key]
    optimizer.steps = steps


def _named_state(optimizer, model):
    """(parameter's name, its m, its v) for all that an optimiser of the model's parameters has."""
    names = {id(p): name for name, p in model.named_parameters()}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    return [(names[id(p)], m, v) for p, m, v in zip(parameters, optimizer.m, optimizer.v)]


def _below(prefix, arrays):
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
