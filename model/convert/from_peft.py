"""An adapter that PEFT trained, read from its folder as an adapter of a checkpoint here.

A layer of ours may stand for several modules there, as for queries, keys and values.  If each has a
first matrix of its own, these are put one below the other, and the pair has three times the rank.

Source: LoraConfig of PEFT 0.21.
"""
import dataclasses
import json
import pathlib
from typing import NamedTuple

import numpy as np

from data.tokenizer import Tokenizer
from minigrad.packed import hold
from minigrad.words import shown
from model.checkpoint import load_checkpoint, checkpoint_path
from model.convert import families
from model.convert.adapter import PEFT_CONFIG, PEFT_NAME, PEFT_TENSORS
from model.convert.model_file import FormatError, Stored, explain, some, text_of
from model.convert.safetensors import open_tensors
from model.lora.adapted import LAYERS, AdaptedConfig, AdaptedTransformer
from model.lora.base import read_seal

# Keys of its configuration, and the values of them that can be computed here
FIXED = {"peft_type": ("LORA",), "bias": ("none", None), "use_dora": (False, None),
         "use_rslora": (False, None), "rank_pattern": ({}, None), "alpha_pattern": ({}, None),
         "modules_to_save": ([], None), "lora_bias": (False, None)}


class Part(NamedTuple):
    """A pair of theirs, A (r, inputs) and B (rows, r), and which rows of our layer it has."""
    rows: slice
    first: np.ndarray
    second: np.ndarray


def read(folder: pathlib.Path, base: str) -> tuple[AdaptedTransformer, Tokenizer]:
    """Read an adapter; return it, and the tokenizer of its base, which `base` names.

    Raises
    ------
    FormatError : the adapter has what is not computed here, or is that of another base.
    """
    rank, alpha = settings(folder)
    path = checkpoint_path(base).absolute()
    checkpoint = load_checkpoint(path)
    config = checkpoint.model.config
    if config.kind:
        raise FormatError(f"--base {base} is an adapter itself; give its base, {config.base}")
    parts = parts_of(folder, checkpoint.model, rank)
    several = max(len({part.first.tobytes() for part in pairs}) for pairs in parts.values())
    times = max(map(len, parts.values())) if several > 1 else 1
    layers = [name for name, module in LAYERS.items()
              if any(path.endswith(f"{module}.") for path in parts)]
    with explain(f"{folder} is no adapter of {path}", "name its base with --base"):
        model = AdaptedTransformer(AdaptedConfig(
            **dataclasses.asdict(config),
            lora=times * rank,
            lora_alpha=float(times * alpha),
            lora_layers=",".join(layers),
            base=str(path),
            base_seal=read_seal(path)))
        for name, p in model.named_parameters():
            module, is_first = name[:-len("lora_a")], name.endswith("lora_a")
            a = np.zeros(p.shape, np.float32)
            for i, part in enumerate(parts.get(module, ())):
                place = slice(i * rank, (i + 1) * rank) if times > 1 else slice(0, rank)
                if is_first:
                    a[place] = part.first
                else:
                    a[part.rows, place] = part.second
            hold(p, a)
        model.take_base(checkpoint.model)
    return model, checkpoint.tokenizer


def settings(folder: pathlib.Path) -> tuple[int, float]:
    """Return the rank and alpha of a folder.  Refuse what is not computed here."""
    path = folder / PEFT_CONFIG
    with explain(f"{path} is not one of PEFT", errors=(ValueError, KeyError, TypeError)):
        config = json.loads(text_of(path))
        rank, alpha = int(config["r"]), float(config["lora_alpha"])
    for key, values in FIXED.items():
        if config.get(key) not in values:
            raise FormatError(f"{path} has {key} = {shown(config[key])}, and only {values[0]!r} "
                              "can be computed here; train it without")
    return rank, alpha


def parts_of(folder: pathlib.Path, base: AdaptedTransformer, rank: int) -> dict[str, list[Part]]:
    """Return the pairs of a folder by the paths of our layers, such as `blocks.0.mlp.up.`.  Refuse
    those that are of no layer of the base, or of another shape."""
    family = families.family_of(base.config)
    layout = families.layout(families.complete(base.config, family), family)
    tensors, _ = open_tensors(folder / PEFT_TENSORS)
    parts = {}
    for name, shape in ((name, p.shape) for name, p in base.named_parameters()):
        module = name.removesuffix("weight")
        if not module.endswith(tuple(f"{layer}." for layer in LAYERS.values())):
            continue
        for piece in layout[name]:
            theirs = piece.name.removesuffix(".weight")
            first, second = (tensors.pop(PEFT_NAME.format(theirs, letter), None)
                             for letter in "AB")
            if first is None or second is None:
                continue
            rows = piece.rows.stop - piece.rows.start
            check_pair(folder, theirs, (first, second), ((rank, shape[1]), (rows, rank)))
            b = second.read()
            if piece.pairs:
                b = families.swapped(b, 2, piece.pairs)
            parts.setdefault(module, []).append(Part(piece.rows, first.read(), b))
    if tensors or not parts:
        names = some(tensors.keys()) if tensors else "no pair"
        raise FormatError(f"{folder} has {names}, for which its base has no place; name the base "
                          "of this adapter with --base")
    return parts


def check_pair(folder: pathlib.Path, module: str, pair: tuple[Stored, ...],
               shapes: tuple[tuple[int, int], ...]) -> None:
    """Refuse a pair of other shapes."""
    for tensor, shape in zip(pair, shapes):
        if tensor.shape != shape:
            raise FormatError(f"{folder} is an adapter of another base: its {module} has the shape "
                              f"{list(tensor.shape)}, and the base asks for {list(shape)}; name "
                              "the base of this adapter with --base")
