"""A model as one file: an .npz of weights, vocabulary, configuration, and what resuming needs.

    version                     of this list
    config                      JSON: the TransformerConfig; or "kind", one of KINDS, and
                                the configuration of that kind
    vocabulary                  the code point of each id, (V,); or, where ids are tokens:
    tokenizer                   tokenizer.json, in UTF-8 bytes
    end                         the id of the token that ends a text; -1 for none
    model/<parameter>           weights, all float32 or all float64
    optimizer/<kind>/<parameter>    the optimiser's state, in a checkpoint to resume from, such as
                                AdamW's m and v; each array has its parameter's shape and dtype
    training                    JSON: settings, iteration, generators, ...; whatever train.py keeps

model/archive.py seals the file and reads it with care.  `_contents` is the one rule for
what a checkpoint may hold: what is loaded has passed it, and so has what `save_checkpoint` writes.

A checkpoint as the beginning of a new run: found by its name, and fitted to another text.
"""
import contextlib
import difflib
import functools
import itertools
import json
import os
import pathlib
import pkgutil
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from data import remedy
from data.tokenizer import CharTokenizer, MissingLibrary, Tokenizer, kind_of
from minigrad.module import Module, check_state
from minigrad.optim import Optimizer
from model import archive
from model.archive import ArchiveError
from model.command import first_of, in_a_line, number_of, shown
from model.files import replacing
from model.processes import Ranks
from model.transformer import Transformer, TransformerConfig

VERSION = 2
NAMES = ("version", "config", "training")
# The configurations of each kind of model, by the kind that its config names.
KINDS = {None: "model.transformer:TransformerConfig",
         "encoder-decoder": "model.reverse.encoder_decoder:EncoderDecoderConfig"}
NUMBER = (float, int)
RECORD = {          # the types of the entries of `training` that other programs than its own read
    "settings": {"data": (str, [str]), "optimizer": str, "learning_rate": NUMBER,
                 "warmup_iters": int, "grad_clip": NUMBER, "task": str},
    "text": str, "state": {"iteration": int, "best": NUMBER}, "nan": dict,
    "right": int, "judged": int}
REMEDY = "take another, such as last.npz or ckpt.npz beside it, or train anew"
# Of a run, in its folder
BEST, LAST, PREVIOUS, DAMAGED = "ckpt.npz", "last.npz", "previous.npz", "last.damaged.npz"


class CheckpointError(ValueError):
    """A file is not a whole checkpoint, or what was to be saved could not be loaded again; the
    message says what is wrong and what to do."""


class Checkpoint(NamedTuple):
    """The contents that `load_checkpoint` returns."""
    model: Module
    tokenizer: Tokenizer
    training: dict[str, Any]                    # empty if none was saved
    optimizer: dict[str, np.ndarray]            # "<kind>/<parameter>"; empty likewise


class Contents(NamedTuple):
    """The same without the model: what it is made of, each array read when it is asked for."""
    config: object              # of one of KINDS
    weights: Mapping[str, np.ndarray]
    tokenizer: Tokenizer
    training: dict[str, Any]
    optimizer: Mapping[str, np.ndarray]


def texts_of(training: dict[str, Any]) -> tuple[str, ...]:
    """Return the texts on which a run was trained; none if its record does not name them."""
    texts = training.get("settings", {}).get("data", ())
    return (texts,) if isinstance(texts, str) else tuple(texts)


def save_checkpoint(path: str | os.PathLike, model: Module,
                    tokenizer: Tokenizer,
                    training: dict[str, Any] | None = None, optimizer: Optimizer | None = None,
                    before: str | os.PathLike | None = None, finite: bool = True) -> None:
    """Write a checkpoint; whatever happens, `path` is the old file or the new one, whole.

    With `before`, the old file is kept under that name (see `replacing`).  `finite` is that of
    `load_checkpoint`.

    Raises
    ------
    CheckpointError : the new file could not be loaded; nothing is written.
    """
    contents = contents_of(model, tokenizer, training, optimizer)
    check(contents, finite)
    save_contents(path, contents, before)


def contents_of(model: Module, tokenizer: Tokenizer,
                training: dict[str, Any] | None = None, optimizer: Optimizer | None = None
                ) -> Contents:
    """Return what a checkpoint of these holds.

    Raises
    ------
    CheckpointError : the optimiser steps what is no parameter of the model.
    """
    weights = {name: p.data for name, p in model.named_parameters()}
    state = {} if optimizer is None else dict(_named_state(optimizer, model))
    return Contents(model.config, weights, tokenizer, training or {}, state)


def check(contents: Contents, finite: bool = True) -> None:
    """Refuse contents that could not be loaded again, by the rule of loading.

    Raises
    ------
    CheckpointError : the message says what of them is wrong.
    """
    try:
        _contents(_arrays(contents), finite)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CheckpointError("no checkpoint is written, as it could not be loaded again: "
                              f"{shown(error)}; change that, then save") from error


def save_contents(path: str | os.PathLike, contents: Contents,
                  before: str | os.PathLike | None = None) -> None:
    """Write a checkpoint of arrays that may be made one at a time.  They are not checked: whoever
    calls this did that, or loads the file."""
    arrays = _arrays(contents)
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, before) as file:
        archive.write(file, arrays)


def load_checkpoint(path: str | os.PathLike, finite: bool = True,
                    kinds: type | tuple[type, ...] = Transformer) -> Checkpoint:
    """Read a file that `save_checkpoint` wrote, and verify every bit.

    Parameters
    ----------
    finite : whether weights and optimiser must be free of nan and inf.
    kinds : the classes of which the model may be, Transformer and EncoderDecoder.

    Raises
    ------
    CheckpointError : there is no such file, or it is damaged, or no checkpoint, or holds a model of
        another kind.
    """
    path = pathlib.Path(path)
    with _answering(path):
        with open(path, "rb") as file:
            found = _contents(archive.read(file), finite)
        model = found.config.model()
        if not isinstance(model, kinds):
            raise CheckpointError(f"{path} holds an encoder-decoder, from python -m model.reverse, "
                                  "and not a transformer, from train.py; see it at work with "
                                  f"python -m model.look --out_dir {shlex.quote(str(path.parent))}")
        model.load_state_dict(found.weights, assign=True)
        return Checkpoint(model, found.tokenizer, found.training, dict(found.optimizer))


def load_contents(path: str | os.PathLike) -> Contents:
    """Read a checkpoint as `load_checkpoint` does, of any model, holding one array at a time."""
    path = pathlib.Path(path)
    with _answering(path):
        return _contents(archive.opened(path), finite=True)


@contextlib.contextmanager
def _answering(path):
    """Answer whatever is wrong with a file by a CheckpointError."""
    try:
        if not path.exists():
            raise CheckpointError(f"there is no checkpoint {path}; train one with python train.py, "
                                  "name its folder with --out_dir, or make one of another "
                                  "program's model with python -m model.convert")
        if not path.is_file():
            raise CheckpointError(f"{path} is no file, but a folder or a device; give the folder "
                                  "of a run, or its file")
        yield
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}; "
                              + remedy(error, "give another")) from error
    except MemoryError as error:
        raise CheckpointError(f"there is not enough memory for {path}; end other programs, or take "
                              "a smaller model") from error
    except MissingLibrary as error:
        raise CheckpointError(f"{path} cannot be used: {error}") from error
    except archive.ArchiveError as error:
        raise CheckpointError(f"{path} is damaged or no checkpoint: {error}; {REMEDY}") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(f"{path} is no checkpoint of this program: {shown(error)}; "
                              f"{REMEDY}") from error


def _arrays(contents):
    """Return the arrays of a checkpoint with these contents."""
    tokenizer, config = contents.tokenizer, asdict(contents.config)
    if contents.config.kind:
        config = {"kind": contents.config.kind} | config
    others = {"version": np.array(VERSION), "config": _text(config),
              **dict(zip(tokenizer.ARRAYS, tokenizer.arrays())),
              "training": _text(contents.training)}
    return archive.Lazy(_makers("model/", contents.weights)
                        | _makers("optimizer/", contents.optimizer) | _makers("", others))


def _contents(arrays, finite):
    """Return the contents of a checkpoint with these arrays: refuse what none may hold."""
    tokenizers = kind_of(arrays)
    names = NAMES + tokenizers.ARRAYS
    like = {}       # arrays of the same shapes and dtypes without memory: a lazy one is made once
    for name in arrays:
        if name not in names and not name.startswith(("model/", "optimizer/")):
            raise ValueError(f"unknown {name}")
        a = arrays[name]
        if finite and a.dtype.kind == "f" and not np.isfinite(a).all():
            raise ValueError(f"{name} holds nan or inf; its training may have diverged")
        like[name] = np.broadcast_to(np.empty((), a.dtype), a.shape)
    if missing := set(names) - arrays.keys():
        raise ValueError(f"missing {', '.join(sorted(missing))}")
    if not np.array_equal(arrays["version"], VERSION):
        raise ValueError(f"it is of another version than {VERSION}, which this program reads")
    config = _json("config", arrays)
    kind = config.pop("kind", None)
    if kind not in KINDS:
        raise ValueError(f"its model is of an unknown kind, {shown(kind)}")
    config = pkgutil.resolve_name(KINDS[kind])(**config)
    _check_arrays(config, _below("model/", like), _below("optimizer/", like))
    tokenizer = tokenizers.restored(config.vocab_size,
                                    *(arrays[name] for name in tokenizers.ARRAYS))
    training = _json("training", arrays)
    if not _is_of_kind(training, RECORD):
        raise ValueError("its record of the run is not of the kind that train.py writes")
    return Contents(config, _below("model/", arrays), tokenizer, training,
                    _below("optimizer/", arrays))


def _check_arrays(config, weights, state):
    """Refuse weights that are not those of this model, and a state that is not of its weights."""
    # No more than is there is looked at: a file can claim 10^12 layers.
    shapes = itertools.islice(config.shapes(len(weights)), len(weights) + 1)
    check_state(dict(shapes), weights)
    dtypes = {a.dtype for a in weights.values()}
    if dtypes not in ({np.dtype(np.float32)}, {np.dtype(np.float64)}):
        raise ValueError(f"its weights are {', '.join(sorted(map(str, dtypes)))}, and not all "
                         "float32 or all float64")
    for name, a in state.items():
        weight = weights.get(name.partition("/")[2])
        if weight is None:
            raise ValueError(f"unknown optimizer/{name}")
        if (a.shape, a.dtype) != (weight.shape, weight.dtype):
            raise ValueError(f"optimizer/{name} is {a.dtype}{list(a.shape)}, and its parameter "
                             f"{weight.dtype}{list(weight.shape)}")


def _text(value):
    """Return an array of the JSON text of a value; NumPy's numbers become Python's."""
    def plain(other):
        if isinstance(other, np.generic):
            return other.item()
        raise TypeError(f"JSON cannot hold a value of the type {type(other).__name__}")
    return np.array(json.dumps(value, default=plain))


def _json(name, arrays):
    """Return the JSON object in an array of text."""
    try:
        found = json.loads(str(arrays[name])) if arrays[name].dtype.kind == "U" else None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its {name} is no JSON that can be read: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"its {name} is no JSON object")
    return found


def _is_of_kind(value, kind):
    """Whether a value from JSON has a type, or one of a tuple; all entries of a list have its one
    type, and those of a dict theirs."""
    if isinstance(kind, tuple):
        return any(_is_of_kind(value, one) for one in kind)
    if isinstance(kind, list):
        return isinstance(value, list) and all(_is_of_kind(entry, *kind) for entry in value)
    if not isinstance(kind, dict):
        return type(value) is kind
    return isinstance(value, dict) and all(_is_of_kind(value[name], kind[name])
                                           for name in value.keys() & kind)


def load_last(folder: pathlib.Path) -> tuple[Checkpoint, str]:
    """Return the checkpoint to resume from: last.npz or, if that is damaged or gone, the one before
    it; and a line that says so, empty if all is well.

    Raises
    ------
    CheckpointError : there is neither, or both are damaged.
    """
    last, previous = folder / LAST, folder / PREVIOUS
    if not last.exists() and not previous.exists() and (folder / BEST).exists():
        load_checkpoint(folder / BEST)          # which says if it is of another kind
    try:
        return load_checkpoint(last), ""
    except CheckpointError as error:
        may_be_whole = isinstance(error.__cause__, (OSError, MemoryError, MissingLibrary))
        if may_be_whole or not previous.exists():
            raise
    try:
        found = load_checkpoint(previous)
    except CheckpointError as error:
        raise CheckpointError(f"neither {last} nor {previous} can be gone on from; the latter: "
                              f"{str(error).removesuffix(f'; {REMEDY}')}; train anew into "
                              "another --out_dir") from error
    return found, (f"{last} is {'damaged' if last.exists() else 'not there'}; going on from "
                   f"{previous}, the one before it")


def read_by_first(ranks: Ranks, read: Callable[[], Checkpoint]) -> Checkpoint:
    """Return on every rank the checkpoint that `read` returns on the first, which alone calls it.
    Ranks exchange numbers and not Tensors, which belong to a process."""
    if ranks.size == 1:
        return read()

    def parts():
        found = read()
        return found.model.config, found.model.state_dict(), *found[1:]
    config, weights, *others = ranks.made_by_first(parts)
    model = config.model()
    model.load_state_dict(weights, assign=True)
    return Checkpoint(model, *others)


def restore_optimizer(optimizer: Optimizer, model: Transformer, state: dict[str, np.ndarray],
                      steps: int) -> None:
    """Restore the state of an optimiser of the model's parameters from a checkpoint.

    Raises
    ------
    CheckpointError : an array is missing or has not its parameter's shape, or the optimiser steps
        what is no parameter of the model.
    """
    for key, array in _named_state(optimizer, model):
        if key not in state or state[key].shape != array.shape:
            raise CheckpointError(f"the optimiser's state has no {key} of the shape "
                                  f"{list(array.shape)}; the run cannot go on from it")
        array[...] = state[key]
    optimizer.steps = steps


def _named_state(optimizer, model):
    """Return ("<kind>/<parameter>", array) for all state of an optimiser of the model."""
    names = {id(p): name for name, p in model.named_parameters()}
    found = []
    for kind, p, array in optimizer.state():
        if id(p) not in names:
            raise CheckpointError(f"the optimiser steps a parameter of the shape {list(p.shape)} "
                                  "that the model has not; make it of model.parameters()")
        found.append((f"{kind}/{names[id(p)]}", array))
    return found


def _below(prefix, arrays):
    return archive.Lazy({name.removeprefix(prefix): functools.partial(arrays.__getitem__, name)
                         for name in arrays if name.startswith(prefix)})


def _makers(prefix, arrays):
    return {prefix + name: functools.partial(arrays.__getitem__, name) for name in arrays}


CONVERT = ("to begin with another program's model, make a checkpoint of it with python -m "
           "model.convert")


def beginning(name: str) -> pathlib.Path:
    """Return the path of the checkpoint that --init_from names: a file, or the folder of a run,
    which stands for its best model."""
    path = pathlib.Path(os.path.expanduser(name))
    return path / BEST if os.path.isdir(path) else path


def load_beginning(name: str) -> Checkpoint:
    """Read the checkpoint that --init_from names, without the state of its optimiser: a new run
    begins with a new one, and this has up to twice the size of the model.

    Raises
    ------
    CheckpointError : there is none, or it is damaged, or of another kind.
    """
    path = beginning(name)
    if name and os.path.exists(path):
        try:
            return load_checkpoint(path)._replace(optimizer={})
        except CheckpointError as error:
            if path.suffix == ".npz" or not isinstance(error.__cause__, ArchiveError):
                raise
            raise CheckpointError(f"--init_from {name} is no checkpoint of this program; {CONVERT}"
                                  ) from error
    if name and path.name == BEST and os.path.isdir(path.parent):
        raise CheckpointError(f"--init_from {name}: the folder {path.parent} has no {BEST}; give "
                              f"that of a run; {CONVERT}")
    near = difflib.get_close_matches(name, ("scratch", "resume"), n=1)
    raise CheckpointError(f"--init_from {name} is neither scratch, resume, nor a checkpoint or the "
                          "folder of a run; " + (f"did you mean {near[0]}?" if near else
                                                 "give one that is there"))


def with_characters_of(text: str, tokenizer: Tokenizer) -> tuple[Tokenizer, dict[str, int]]:
    """Return a tokenizer that knows all characters of a text, those that it lacked at the end; and
    how often the text has each of these."""
    _, unknown = tokenizer.without_unknown(text)
    if unknown:
        tokenizer = CharTokenizer.of(tokenizer.vocabulary + "".join(sorted(unknown)))
    return tokenizer, unknown


def told(path: pathlib.Path, config: TransformerConfig, block_size: int, new: dict[str, int]
         ) -> str:
    """Return what a run begins with, in lines: the file, the characters that its model does not
    know, with how often they come, and what is left of its positions."""
    lines = [f"with the weights of {in_a_line(path)}"]
    if new:
        named = [f"{character!r} ({count:,})" for character, count in new.items()]
        lines.append(f"{number_of(len(new), 'character')} that it does not know, with new rows at "
                     f"the end of its table: {first_of(named)}")
    if config.position == "learned" and block_size < config.block_size:
        lines.append(f"of its {config.block_size} positions, the first {block_size}")
    return f"\n{'':12}".join(lines)


def take_weights(model: Transformer, known: Transformer) -> None:
    """Give a model the weights of another, which may know fewer characters and more positions.  The
    rows of the characters that it does not know stay as they are.  Arrays of one shape are then the
    same in both, so that no model is in memory twice."""
    weights = dict(known.named_parameters())
    for name, p in model.named_parameters():
        its = weights[name].data
        if its.shape == p.shape:
            p.data = its
        else:
            rows = its[:len(p.data)]
            p.data[:len(rows)] = rows
