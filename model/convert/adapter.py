"""Adapters of other programs: llama.cpp's, in a GGUF file, and PEFT's, in a folder; and an adapter
merged into its base, which any format holds.

A pair of ours is that of a layer; where their class has several in its place, as for queries, keys
and values, each of these has the same first matrix, and its rows of the second.

Source: convert_lora_to_gguf.py of llama.cpp for keys and names; LoraConfig of PEFT 0.21.
"""
import contextlib
import json
import math
import os
import pathlib
from functools import partial
from typing import NamedTuple

import numpy as np

import data
from data.files import AnyPath, read_arrays
from minigrad.packed import hold, unpacked
from model.checkpoint import Checkpoint, load_checkpoint, recorded_texts
from model.config import TransformerConfig
from model.convert import families, gguf
from model.convert.model_file import (FormatError, Held, Lazy, ModelFile, Stored, require,
                                      same_bits, shapes_of)
from model.convert.safetensors import open_tensors, write_tensors
from model.lora.adapted import PAIR
from model.lora.base import find_base
from model.options import option_names
from model.scoring import evaluate
from model.transformer import Transformer

PEFT_NAME = "base_model.model.{}.lora_{}.weight"
PEFT_CONFIG = "adapter_config.json"
PEFT_TENSORS = "adapter_model.safetensors"


class Adapter(NamedTuple):
    """The pairs of a checkpoint, by our names, and where it is."""
    path: pathlib.Path
    checkpoint: Checkpoint
    pairs: dict[str, np.ndarray]

    @property
    def config(self) -> TransformerConfig:
        """The configuration of base and adapter."""
        return self.checkpoint.model.config


def read(path: pathlib.Path, checkpoint: Checkpoint, arrays: dict[str, np.ndarray]) -> ModelFile:
    """Return the model of an adapter merged into its base, of whose arrays each is read when it is
    asked for; and the adapter itself.

    Raises
    ------
    FormatError : the base is not there, or another one.
    """
    config = checkpoint.model.config
    with contextlib.ExitStack() as opened:
        opened.enter_context(contextlib.closing(arrays))
        try:
            base = find_base(config, path)
        except ValueError as error:
            raise FormatError(str(error)) from error
        pairs = {name: arrays[f"model/{name}"] for name, _ in checkpoint.model.named_parameters()}
        adapter = Adapter(path, checkpoint, pairs)
        own = {name: getattr(config, name) for name in option_names(TransformerConfig)}
        whole = TransformerConfig(**own)
        stored = opened.enter_context(read_arrays(base))
        weights = Lazy({name: partial(_merged, stored, adapter, name, shape)
                        for name, shape in shapes_of(whole).items()})
        return ModelFile(
            "model with an adapter",
            whole,
            weights,
            checkpoint.tokenizer,
            file=opened.pop_all(),
            adapter=adapter)


def _merged(stored, adapter, name, shape):
    """Return W + (alpha / r) B A of a weight W, whose learned positions may be cut."""
    a = unpacked(stored[f"model/{name}"])[:shape[0]].astype(np.float32, copy=False)
    module = name.removesuffix("weight")
    first, second = (adapter.pairs.get(f"{module}{one}") for one in PAIR)
    if first is None or not name.endswith("weight"):
        return a
    scale = np.float32(adapter.config.lora_alpha / adapter.config.lora)
    return a + scale * (second @ first)


def losses(adapter: Adapter, back: ModelFile) -> str:
    """Return a line with the loss on the validation part of the text of the adapter's run: that of
    base and adapter, and that of the merged model as it was written."""
    training = adapter.checkpoint.training
    names = recorded_texts(training)
    if not names:
        return f"loss        not measured, as {adapter.path} does not say on which text"
    settings = training["settings"]
    try:
        texts = data.read_texts(names)
        text = data.Text(texts.characters, texts.name, adapter.checkpoint.tokenizer)
        number = settings["eval_iters"] * settings["batch_size"]
        windows = text.windows(adapter.config.block_size, number)
    except (data.TextError, KeyError, ValueError) as error:
        return f"loss        not measured, as the text of the run cannot be read: {error}"
    merged = Transformer(back.config, dtype=None)
    for name, p in merged.named_parameters():
        hold(p, back.weights[name])
    before, after = (evaluate(model, *windows, settings["batch_size"])
                     for model in (load_checkpoint(adapter.path).model, merged))
    return (f"loss        {before:.4f} nats a {text.tokenizer.unit} of base and adapter, and "
            f"{after:.4f} of what was written, on the validation part of {texts.name}")


def their_pairs(adapter: Adapter, family: families.Family
                ) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the pairs as a class has them, by the names of its modules."""
    layout = families.layout(families.complete(adapter.config, family), family)
    pairs = {}
    for name, first in adapter.pairs.items():
        if not name.endswith("lora_a"):
            continue
        module = name.removesuffix("lora_a")
        for piece in layout[f"{module}weight"]:
            second = adapter.pairs[f"{module}lora_b"][piece.rows]
            if piece.pairs:
                second = families.swapped(second, piece.pairs, 2)
            pairs[piece.name.removesuffix(".weight")] = first, np.ascontiguousarray(second)
    return pairs


class Gguf:
    """The adapter of a checkpoint as llama.cpp loads it over the untouched base."""

    @staticmethod
    def write(path: AnyPath, model: ModelFile) -> Held:
        """Write a GGUF file, and read it back."""
        library = require("gguf", "gguf", "GGUF files are written by it")
        family = families.family_of(model.config, gguf.FAMILIES)
        tensors = {}
        for module, pair in their_pairs(model.adapter, family).items():
            for one, a in zip(PAIR, pair):
                tensors[f"{module}.weight.{one}"] = a
        writer = library.GGUFWriter(path, family.name)
        try:
            writer.add_type("adapter")
            writer.add_string("adapter.type", "lora")
            writer.add_float32("adapter.lora.alpha", model.adapter.config.lora_alpha)
            for name, a in tensors.items():
                writer.add_tensor(name, a)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
        finally:
            writer.close()
        back = {each.name: each.data for each in library.GGUFReader(path).tensors}
        return _compared(tensors, back)


class Peft:
    """The same as PEFT loads it over the model of Hugging Face's class: a folder."""

    @staticmethod
    def write(path: pathlib.Path, model: ModelFile) -> Held:
        """Write its two files, and read them back."""
        config = model.adapter.config
        family = families.family_of(model.config)
        pairs = their_pairs(model.adapter, family)
        tensors = {PEFT_NAME.format(module, letter): a
                   for module, pair in pairs.items() for letter, a in zip("AB", pair)}
        modules = {".".join(module.split(".")[-2:]) for module in pairs}
        settings = dict(
            peft_type="LORA",
            task_type="CAUSAL_LM",
            base_model_name_or_path=os.path.splitext(config.base)[0],
            r=config.lora,
            lora_alpha=config.lora_alpha,
            lora_dropout=0.0,
            target_modules=sorted(modules),
            fan_in_fan_out=family.conv1d,
            bias="none",
            inference_mode=True)
        (path / PEFT_CONFIG).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        write_tensors(path / PEFT_TENSORS, {name: Stored(a.shape, lambda a=a: a)
                                            for name, a in tensors.items()}, {"format": "pt"})
        stored, _ = open_tensors(path / PEFT_TENSORS)
        return _compared(tensors, {name: tensor.read() for name, tensor in stored.items()})


def _compared(tensors, back):
    """Refuse what was not read back as it was written."""
    if tensors.keys() != back.keys():
        raise FormatError("what was written came back with other names; this is a mistake of this "
                          "program, and nothing is kept")
    for name, a in tensors.items():
        if not same_bits(name, a, back[name].reshape(a.shape)):
            raise FormatError(f"what was written came back with other numbers in {name}, so "
                              "nothing is kept; check the disk")
    return Held()


def numbers(adapter: Adapter) -> int:
    """Return how many numbers the pairs have."""
    return sum(math.prod(a.shape) for a in adapter.pairs.values())


def format_of(ending: str) -> type:
    """Return what writes an adapter into a file whose name ends so, or into a folder."""
    if ending == ".gguf":
        return Gguf
    if ending in (".npz", ".safetensors"):
        raise FormatError(f"an adapter goes into a .gguf file or a folder for PEFT; for a {ending} "
                          "file of the whole model, give --merge")
    return Peft
