"""A checkpoint: a model in one sealed file, with what is needed to resume its run.

    version                     of this list
    config                      JSON: the TransformerConfig; or that of another kind of model, and
                                its "kind"
    vocabulary                  the code point of each id, (V,); or, where ids are tokens:
    tokenizer                   tokenizer.json, in UTF-8 bytes
    end                         the id of the token that ends a text; -1 for none; several as a row
    model/<parameter>           weights, all float32 or all float64; of an imported model, matrices
                                may be packed instead of float32 (minigrad/packed.py); of an adapter
                                its pairs alone, as its base is another checkpoint (model/lora/)
    optimizer/<kind>/<parameter>    the optimiser's state, such as AdamW's m and v, to resume from;
                                each array has its parameter's shape
    optimizer/missed/<parameter>    steps of AdamW while it had not this parameter, (); if any
    training                    JSON: settings, iteration, random generators, ... of the run

The file of an adapter is deflated, and so is an imported one with packed matrices (data/files.py).

`_checked` is the one rule for what a checkpoint may hold: it is applied before a file is written
and after it is read.
"""
import contextlib
import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from data.files import AnyPath, read_arrays, replacing, write_arrays
from data.tokenizer import CharTokenizer, MissingLibrary, Tokenizer
from minigrad.machine import check_fits
from minigrad.module import Module, check_state
from minigrad.optim import Optimizer
from minigrad.packed import hold, is_finite, kind_of, shape_of
from minigrad.words import shown
from model.answers import command_line
from model.transformer import Transformer, TransformerConfig

Arrays = Mapping[str, np.ndarray]
Record = dict[str, Any]         # of a run, as JSON can hold it
VERSION = 2
# The checkpoints in the folder of a run
BEST = "ckpt.npz"
LAST = "last.npz"
PREVIOUS = "previous.npz"
DAMAGED = "last.damaged.npz"
AHEAD = "ahead."        # what the names of parameters begin with that only training needs
ADAPTER = "lora"        # the kind of a model that has an adapter
# What model.convert reads: by the end of a file's name, and by a file in a folder
OTHER_ENDINGS = {".gguf": "GGUF file", ".safetensors": "safetensors file", ".pt": "PyTorch file",
                 ".pth": "PyTorch file"}
OTHER_FILES = {"config.json": "folder of Hugging Face", "ckpt.pt": "folder of nanoGPT"}


class CheckpointError(ValueError):
    """A file is not a whole checkpoint, or what was to be saved could not be loaded again.  The
    message says what is wrong and what to do."""


class OfAnotherProgram(CheckpointError):
    """A file or folder holds a model as another program writes it; the message says how it becomes
    a checkpoint."""


class OtherKind(ValueError):
    """A file holds a model of the kind that the message names, which is not accepted."""


class Checkpoint(NamedTuple):
    """What `load_checkpoint` returns."""
    model: Module
    tokenizer: Tokenizer
    training: Record            # empty if none was saved
    optimizer: Arrays           # "<kind>/<parameter>"; empty if none was saved


def recorded_texts(training: Record) -> tuple[str, ...]:
    """Return the texts on which a run was trained; none if its record does not name them."""
    texts = training.get("settings", {}).get("data", ())
    return (texts,) if isinstance(texts, str) else tuple(map(str, texts))


def checkpoint_path(name: str) -> pathlib.Path:
    """Return the path of the checkpoint that a word names: a file, or the best model in the folder
    of a run."""
    path = pathlib.Path(os.path.expanduser(name))
    if os.path.isdir(path) or not (os.path.exists(path) or path.suffix):
        return path / BEST
    return path


def is_there(path: AnyPath, follow: bool = True) -> bool:
    """Return whether there is a file or folder; or, unless links are followed, a link.  Raise an
    OSError if that cannot be known, as in a folder that may not be read."""
    try:
        os.stat(path, follow_symlinks=follow)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def save_checkpoint(
        path: AnyPath,
        model: Module,
        tokenizer: Tokenizer,
        training: Record | None = None,
        optimizer: Optimizer | None = None,
        before: AnyPath | None = None,
        finite: bool = True) -> None:
    """Write a checkpoint.  Whatever happens, `path` is the old file or the new one, whole.

    With `before`, the old file is kept under that name (see `replacing`).  `finite` is that of
    `load_checkpoint`.  What looks further ahead in training is saved only with the optimiser.

    Raises
    ------
    CheckpointError : the new file could not be loaded; nothing is written.
    """
    arrays = checked_arrays(
        model,
        tokenizer,
        training,
        optimizer,
        finite)
    save_arrays(
        path,
        arrays.items(),
        before,
        deflated=model.config.kind == ADAPTER)


def checked_arrays(
        model: Module,
        tokenizer: Tokenizer,
        training: Record | None = None,
        optimizer: Optimizer | None = None,
        finite: bool = True) -> Arrays:
    """Return the arrays of a checkpoint.

    Raises
    ------
    CheckpointError : it could not be loaded.
    """
    weights = {name: p.data for name, p in model.named_parameters()
               if optimizer or not name.startswith(AHEAD)}
    state = {}
    if optimizer:
        state = _optimizer_state(optimizer, model) | _missed_steps(optimizer, model)
    try:
        arrays = dict(checkpoint_arrays(
            model.config,
            weights,
            tokenizer,
            training or {},
            state))
        _checked(arrays, finite, (type(model),), ahead=True)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CheckpointError("no checkpoint is written, as it could not be loaded again: "
                              f"{shown(error)}; change that, then save") from error
    return arrays


def checkpoint_arrays(
        config: TransformerConfig,
        weights: Arrays,
        tokenizer: Tokenizer,
        training: Record,
        optimizer: Arrays) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays of a checkpoint with their names; of the weights, one is asked for at a
    time."""
    for name in weights:
        yield f"model/{name}", weights[name]
    for name in optimizer:
        yield f"optimizer/{name}", optimizer[name]
    yield "version", np.array(VERSION)
    yield "config", _text(({"kind": config.kind} if config.kind else {}) | asdict(config))
    yield from zip(tokenizer.ARRAYS, tokenizer.arrays())
    yield "training", _text(training)


def save_arrays(
        path: AnyPath,
        arrays: Iterable[tuple[str, np.ndarray]],
        before: AnyPath | None = None,
        deflated: bool = False) -> None:
    """Write a checkpoint of these arrays without checking it, one at a time."""
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, before) as file:
        write_arrays(file, arrays, deflated)


def load_checkpoint(
        path: AnyPath,
        finite: bool = True,
        kinds: tuple[type, ...] = (Transformer,),
        ahead: bool = False) -> Checkpoint:
    """Read a file that `save_checkpoint` wrote, and verify every bit.

    Parameters
    ----------
    finite : whether weights and optimiser must be free of nan and inf.
    kinds : the accepted kinds of models.
    ahead : whether the model gets what only training needs, `Transformer.ahead`.

    Raises
    ------
    CheckpointError : there is no such file, or it is damaged, or no checkpoint, or holds a model of
        another kind.
    ValueError : it is larger than the memory of this machine.
    """
    path = pathlib.Path(path)
    if os.path.isfile(path):
        check_fits(os.path.getsize(path), f"the weights in {path}", "use a machine with more")
    with _clear_errors(path), read_arrays(path) as file:
        arrays = dict(file)
        checkpoint = _checked(
            arrays,
            finite,
            kinds,
            ahead)
    for name, parameter in checkpoint.model.named_parameters():
        hold(parameter, arrays[f"model/{name}"])
    if checkpoint.model.config.kind == ADAPTER:
        from model.lora.base import take_base
        try:
            take_base(checkpoint.model, path, load_checkpoint)
        except ValueError as error:
            raise CheckpointError(str(error)) from error
    return checkpoint._replace(optimizer=_below("optimizer/", arrays))


def load_arrays(
        path: AnyPath,
        finite: bool = True,
        kinds: tuple[type, ...] = (Transformer,)) -> tuple[Checkpoint, Arrays]:
    """Read a checkpoint as `load_checkpoint` does.  Return it with a model of shapes alone and
    without optimiser, and all arrays of the file, of which each is read when it is asked for.
    Whoever closes the arrays closes the file."""
    path = pathlib.Path(path)
    with _clear_errors(path), contextlib.ExitStack() as opened:
        arrays = opened.enter_context(read_arrays(path))
        checkpoint = _checked(arrays, finite, kinds)
        opened.pop_all()        # all is well: the file stays open
    return checkpoint, arrays


@contextlib.contextmanager
def _clear_errors(path):
    """Refuse what is no file; say of every error of a checkpoint what is wrong, and what to do."""
    try:
        check_program(path)
        if os.path.isfile(path.parent):
            raise CheckpointError(f"{path.parent} is a file, and the folder of a run was expected; "
                                  f"give {path.parent.parent}")
        if not is_there(path):
            raise CheckpointError(f"there is no checkpoint {path}; train one with "
                                  f"{command_line('train')}, name its folder with --out_dir, or "
                                  "make one of another program's model with python -m "
                                  "model.convert")
        if not path.is_file():
            raise CheckpointError(f"{path} is no file, but a folder or a device; the model in "
                                  f"the folder of a run is its {BEST}")
        yield
    except (CheckpointError, MemoryError):
        raise
    except OtherKind as kind:
        look = command_line("model.look", "--out_dir", path.parent)
        raise CheckpointError(f"{path} holds an {kind}, and not a model of train.py; see it at "
                              f"work with {look}") from None
    except (OSError, MissingLibrary) as error:
        why = getattr(error, "strerror", None) or error
        if isinstance(error, PermissionError):
            why += "; first get the right to read it"
        raise CheckpointError(f"cannot read {path}: {why}") from error
    except Exception as error:          # of many kinds, depending on the damage
        other = path.with_name(LAST if path.name == BEST else BEST)
        take = f"take {other.name} beside it, or " if os.path.isfile(other) else ""
        raise CheckpointError(f"{path} is damaged or no checkpoint: {shown(error)}; {take}train "
                              "anew; python -m model.convert reads models of other programs"
                              ) from error


def check_program(path: pathlib.Path) -> None:
    """Refuse a path at which there is no checkpoint, but a model of another program: in that file,
    or in the folder where the checkpoint was looked for."""
    source = path if is_there(path) else path.parent
    kind = ""
    if source.is_file():
        kind = OTHER_ENDINGS.get(source.suffix.lower(), "")
        with open(source, "rb") as file:
            if file.read(4) == b"GGUF":
                kind = "GGUF file"
    elif source == path.parent:
        kinds = (kind for name, kind in OTHER_FILES.items() if is_there(source / name))
        kind = next(kinds, "")
    if kind:
        new = pathlib.Path(f"out_{source.absolute().stem}")
        convert = command_line("model.convert", source, new)
        raise OfAnotherProgram(f"{source} is a {kind}: {convert} makes a checkpoint of it; then "
                               f"give {new}")


def _checked(arrays, finite, kinds, ahead=False):
    """Return the checkpoint with these arrays, but its model with shapes alone, and no optimiser.
    Refuse what none may hold."""
    like = {}       # arrays of the same shapes and dtypes without memory: each is read once
    for name in arrays:
        a = arrays[name]
        if finite and not is_finite(a):
            raise ValueError(f"{name} holds nan or inf; its training may have diverged")
        like[name] = np.broadcast_to(np.empty((), np.float32 if kind_of(a) else a.dtype),
                                     shape_of(a))
    tokenizers = tokenizer_class(arrays)
    if missing := {"version", "config", "training", *tokenizers.ARRAYS} - like.keys():
        raise ValueError(f"missing {', '.join(sorted(missing))}")
    if not np.array_equal(arrays["version"], VERSION):
        raise ValueError(f"it is of another version than {VERSION}, which this program reads")
    config = _object("config", arrays)
    kind = config.pop("kind", None)
    known = {model.Config.kind: model for model in kinds}
    if kind == ADAPTER and Transformer in kinds:        # it is one, but for its parameters
        from model.lora.adapted import AdaptedTransformer
        known[kind] = AdaptedTransformer
    if kind not in known:
        raise OtherKind(shown(kind))
    config = known[kind].Config(**config)
    weights = _below("model/", like)
    config.check_claim(len(weights))
    model = known[kind](config, dtype=None)
    further = [name for name in weights if name.startswith(AHEAD)]
    if ahead and further:
        model.look_ahead(len(further))
    else:
        weights = {name: weights[name] for name in weights if name not in further}
    check_state({name: p.shape for name, p in model.named_parameters()}, weights)
    dtypes = {a.dtype for a in weights.values()}
    if dtypes not in ({np.dtype(np.float32)}, {np.dtype(np.float64)}):
        raise ValueError(f"its weights are {', '.join(sorted(map(str, dtypes)))}, and not all "
                         "float32 or all float64")
    tokenizer = tokenizers.restored(config.vocab_size,
                                    *(arrays[name] for name in tokenizers.ARRAYS))
    training = _object("training", arrays)
    if not all(isinstance(training.get(name, {}), dict) for name in ("settings", "state", "nan")):
        raise ValueError("its record of the run is not of the kind that train.py writes")
    recorded_texts(training)      # raises an error for what is no list, such as a number
    return Checkpoint(
        model,
        tokenizer,
        training,
        {})


def tokenizer_class(names: Iterable[str]) -> type[Tokenizer]:
    """Return the kind of tokenizer of a checkpoint with arrays of these names."""
    if "tokenizer" in names:
        from model.convert.tokens import TokenTokenizer
        return TokenTokenizer
    return CharTokenizer


def _text(value):
    """Return an array of the JSON text of a value; NumPy's numbers become Python's."""
    return np.array(json.dumps(value, default=np.generic.item))


def _object(name, arrays):
    """Return the JSON object in an array of text."""
    value = json.loads(str(arrays[name]))
    if not isinstance(value, dict):
        raise ValueError(f"its {name} is no JSON object")
    return value


def _below(prefix, arrays):
    """Return the arrays whose names begin with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}


def _missed_steps(optimizer, model):
    """Return the steps that parameters of the model have missed, by "missed/<parameter>"."""
    missed = {p: part.missed[p] for part in optimizer.parts     # by the part that steps it now
              for group in part.param_groups for p in group["params"]}
    return {f"missed/{name}": np.array(missed[p])
            for name, p in model.named_parameters() if missed.get(p)}


def _optimizer_state(optimizer, model):
    """Return the state of an optimiser of the model's parameters, by "<kind>/<parameter>"."""
    names = {id(p): name for name, p in model.named_parameters()}
    try:
        return {f"{kind}/{names[id(p)]}": array for kind, p, array in optimizer.state()}
    except KeyError:
        raise CheckpointError("the optimiser steps a parameter that the model has not; make it of "
                              "model.parameters()") from None


def restore_optimizer(optimizer: Optimizer, model: Transformer, state: Arrays, steps: int) -> None:
    """Restore the state of an optimiser of the model's parameters from a checkpoint.

    Raises
    ------
    CheckpointError : an array is missing or does not have its parameter's shape, or the optimiser
        steps a parameter that the model has not.
    """
    for key, array in _optimizer_state(optimizer, model).items():
        if key not in state or state[key].shape != array.shape:
            raise CheckpointError(f"the optimiser's state has no {key} of the shape "
                                  f"{list(array.shape)}, so the run cannot be resumed from it")
        array[...] = state[key]
    names = {p: name for name, p in model.named_parameters()}
    for part in optimizer.parts:
        part.steps = steps
        for p in part.missed.keys() & names.keys():
            part.missed[p] = int(state.get(f"missed/{names[p]}", 0))


def load_last(folder: pathlib.Path) -> tuple[Checkpoint, str]:
    """Return the checkpoint to resume from: last.npz or, if that is damaged or gone, the one before
    it; and a line that says so, empty if all is well.

    Raises
    ------
    CheckpointError : there is neither, or both are damaged.
    """
    last = folder / LAST
    previous = folder / PREVIOUS
    if not is_there(last) and not is_there(previous) and is_there(folder / BEST):
        load_checkpoint(folder / BEST)          # which says if it is of another kind
    try:
        return load_checkpoint(last, ahead=True), ""
    except CheckpointError as error:
        may_be_whole = isinstance(error.__cause__, (OSError, MissingLibrary))
        if may_be_whole or not is_there(previous):
            raise
    try:
        checkpoint = load_checkpoint(previous, ahead=True)
    except CheckpointError as error:
        raise CheckpointError(f"cannot resume from {last} or {previous}: {error}; to train "
                              "anew, give another --out_dir") from error
    problem = "damaged" if is_there(last) else "not there"
    return checkpoint, f"{last} is {problem}; resuming from {previous}, the one before it"
