"""The base of an adapter: found by its path, known again by its seal, and in memory once."""
import os
import pathlib
from collections.abc import Callable
from typing import Any

from data.files import SEAL
from minigrad.words import shown
from model.answers import command_line
from model.lora.adapted import AdaptedConfig, AdaptedTransformer
from model.transformer import Transformer

_loaded = {}        # the base that was read last, by its seal


def read_seal(path: pathlib.Path) -> str:
    """Return the seal of a checkpoint: the sha256 of its bytes."""
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - SEAL))
        return file.read().decode("ascii", "replace")


def share(base: Transformer, seal: str) -> Transformer:
    """Keep a base in memory for those who need it again; return it."""
    _loaded.clear()
    _loaded[seal] = base
    return base


def find_base(config: AdaptedConfig, adapter: pathlib.Path) -> pathlib.Path:
    """Return where the base of the checkpoint `adapter` is, which has this configuration.

    Raises
    ------
    ValueError : the base is not where it was, or is another one now.
    """
    path = pathlib.Path(config.base)
    of = f"{adapter} is an adapter of {path}"
    if not path.exists():
        raise ValueError(f"{of}, which is not there; put it back, or a link to it")
    try:
        seal = read_seal(path)
    except OSError as error:
        raise ValueError(f"{of}, which cannot be read: {error.strerror or error}; get the right to "
                         "read it, or put the file back") from error
    if seal != config.base_seal:
        raise ValueError(f"{of} as it was when its seal was {shown(config.base_seal)[:12]}; the "
                         f"seal of the file there is {shown(seal)[:12] or 'missing'}, so it is "
                         "another base now; put the former back, or train anew into another "
                         "--out_dir")
    return path


def take_base(model: AdaptedTransformer, adapter: pathlib.Path,
              load: Callable[[pathlib.Path], Any]) -> None:
    """Give a model that was read from the checkpoint `adapter` the weights of its base, which
    `load` reads.

    Raises
    ------
    ValueError : the base is not where it was, or is another one now, or damaged.
    """
    seal = model.config.base_seal
    path = find_base(model.config, adapter)
    base = _loaded.get(seal) or share(load(path).model, seal)
    try:
        model.take_base(base)
    except ValueError as error:
        raise ValueError(f"{adapter} is an adapter of {path}, and does not fit it: {error}; train "
                         f"anew with {command_line('train', '--init_from', path, '--lora')}"
                         ) from error
