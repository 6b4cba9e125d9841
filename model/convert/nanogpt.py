"""A checkpoint of nanoGPT: ckpt.pt, and the meta.pkl of a text that was encoded by characters.

Source: model.py and train.py of https://github.com/karpathy/nanoGPT.
"""
import math
import os
import pathlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from data.tokenizer import CharTokenizer
from model.convert.tokens import MissingLibrary, TokenTokenizer
from model.command import number_of, shown
from model.convert.families import GPT2, as_ours, stored_as, stored_shapes
from model.convert.found import FormatError, Found, Lazy, check_shapes, shapes_of, text_of
from model.convert.torch_file import TorchFile, View
from model.convert.unpickling import LARGEST, unpickled
from model.transformer import TransformerConfig

SETTINGS = {"n_layer", "n_head", "n_embd", "block_size", "bias", "vocab_size", "dropout"}
COMPILED = "_orig_mod."         # before each name, where torch.compile made the model
TOKENS, HEAD, MASK = "transformer.wte.weight", "lm_head.weight", ".attn.bias"
END = "<|endoftext|>"           # of GPT-2's tokenizer


def read(path: str | os.PathLike, tokenizer: str | os.PathLike | None = None) -> Found:
    """Read a checkpoint of nanoGPT; nothing in it is executed.

    Parameters
    ----------
    tokenizer : the tokenizer.json of a model that was trained on tokens.  That of one trained on
        characters is found: meta.pkl beside the checkpoint, or in data/<dataset>/ of a folder
        above.

    Raises
    ------
    FormatError : the file is damaged, or holds another model, or its pickle names what tensors do
        not need; or there is no tokenizer.
    """
    path = pathlib.Path(path)
    file = _naming(path, TorchFile, path)
    config, views = _naming(path, _model, file, path.stat().st_size)
    stored = stored_as(config, GPT2.names, shapes_of(config, len(views)))
    check_shapes(path, stored_shapes(stored), {name: view.shape for name, view in views.items()})
    tokens, said = _tokenizer(path, file.content, config.vocab_size, tokenizer)
    iterations = file.content.get("iter_num")
    if type(iterations) is int and 0 <= iterations < 1 << 63:
        said.insert(0, f"written after {number_of(iterations, 'iteration')}")
    arrays = {name: partial(_naming, path, file.array, view) for name, view in views.items()}
    return Found("nanoGPT checkpoint", config, as_ours(Lazy(arrays), stored), tokens, said)


def _naming(path: pathlib.Path, what: Callable, *arguments: object) -> object:
    """Call a function; name the file in the error that it raises."""
    try:
        return what(*arguments)
    except FormatError as error:
        raise FormatError(f"{path} is no checkpoint of nanoGPT that can be read: {error}; take "
                          "another, or train and save it anew there") from error


def _model(file: TorchFile, size: int) -> tuple[TransformerConfig, dict[str, View]]:
    """Return the configuration, and where each weight is, by nanoGPT's names."""
    content = file.content
    if type(content) is not dict:
        raise FormatError("its pickle holds no dict")
    for key in ("model", "model_args"):
        if type(content.get(key)) is not dict:
            raise FormatError(f"it has no {key}, a dict that nanoGPT's train.py writes")
    theirs = {str(name).removeprefix(COMPILED): tensor for name, tensor in content["model"].items()}
    # Of attention without a fused kernel; not a weight.
    theirs = {name: tensor for name, tensor in theirs.items() if not name.endswith(MASK)}
    views = {name: _view(file, name, tensor) for name, tensor in theirs.items()}
    config = _config(content["model_args"])
    if HEAD in views and views[HEAD] != views.get(TOKENS):
        config = replace(config, tied=False)
    else:
        views.pop(HEAD, None)       # one tensor, saved by two names
    # Each number has 2 bytes at least, if no two weights share it.
    if 2 * sum(math.prod(view.shape) for view in views.values()) > size:
        raise FormatError("its weights share their numbers")
    return config, views


def _config(arguments: dict) -> TransformerConfig:
    """Return the configuration for nanoGPT's model_args."""
    if missing := SETTINGS - arguments.keys():
        raise FormatError(f"its model_args lack {min(missing)}")
    if others := arguments.keys() - SETTINGS:
        raise FormatError(f"its model_args have {shown(str(min(others, key=str)))}, which "
                          "nanoGPT's GPTConfig has not")
    if wrong := [name for name, value in arguments.items()
                 if type(value) not in (bool, int, float)]:
        raise FormatError(f"{wrong[0]} of its model_args is no number")
    try:
        return TransformerConfig(**arguments)
    except ValueError as error:
        raise FormatError(f"its model_args say that {shown(error)}") from error


def _view(file: TorchFile, name: str, tensor: object) -> View:
    try:
        return file.view(tensor)
    except FormatError as error:
        raise FormatError(f"{shown(name)} of its model cannot be read: {error}") from error


def _tokenizer(path, content, V, given):
    """Return the tokenizer of V characters or tokens, and a list of lines about it."""
    if given is None:
        meta = _meta_pkl(path, content)
        return _characters(meta, V), [f"its characters are those of {meta}"]
    text = text_of(given)
    try:
        tokens = TokenTokenizer(text, vocab_size=V)
        end = tokens.encode(END).tolist()
        tokens.end = end[0] if len(end) == 1 else None
    except MissingLibrary:
        raise
    except ValueError as error:
        raise FormatError(f"{given} is not the tokenizer.json of {path}: {shown(error)}; give "
                          "the one that its text was encoded with") from error
    return tokens, [f"its tokens are those of {given}"]


def _meta_pkl(path, content):
    """Return the path of meta.pkl: beside the checkpoint, or where nanoGPT keeps its data."""
    config = content.get("config")
    dataset = config.get("dataset") if type(config) is dict else None
    folders = [path.parent]
    if type(dataset) is str and dataset not in ("", ".", "..") and dataset.isprintable() \
            and pathlib.PurePath(dataset).name == dataset:
        folders += [parent / "data" / dataset for parent in path.absolute().parents]
    for folder in folders:
        if (folder / "meta.pkl").is_file():
            return folder / "meta.pkl"
    where = f" (data/{shown(dataset)}/meta.pkl of nanoGPT)" if len(folders) > 1 else ""
    raise FormatError("a checkpoint of nanoGPT does not hold its tokenizer: put its meta.pkl"
                      f"{where} beside {path} if the model knows characters, or give the "
                      "tokenizer.json by --tokenizer if it knows tokens, such as those of GPT-2")


def _characters(meta, V):
    """Return the tokenizer of a meta.pkl, of V characters."""
    try:
        if meta.stat().st_size > LARGEST:
            raise FormatError(f"it has more than the {LARGEST:,} bytes that are read")
        found = unpickled(meta.read_bytes(), ())
        characters = found.get("itos") if type(found) is dict else None
        if type(characters) is not dict or not all(type(c) is str and len(c) == 1
                                                   for c in characters.values()):
            raise FormatError("it has no itos, a dict of the character of each id")
        if characters.keys() != set(range(V)):
            raise FormatError(f"it has {len(characters)} characters, and the model {V}")
        return CharTokenizer.of("".join(characters[i] for i in range(V)))
    except ValueError as error:
        raise FormatError(f"{meta} is not the meta.pkl of this checkpoint: {shown(error)}; put "
                          "the right one beside it") from error
