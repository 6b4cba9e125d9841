"""How a run of an adapter begins: with a base that is frozen, and pairs that are drawn."""
import dataclasses
import os
import pathlib

import data
from minigrad.words import number_of, scaled
from model.answers import command_line
from model.checkpoint import Checkpoint, checkpoint_path
from model.config import TransformerConfig
from model.count.sizes import trained
from model.lora.adapted import LAYERS, AdaptedConfig, AdaptedTransformer, adapter_problems
from model.lora.base import read_seal, share
from model.settings import Settings
from model.transformer import Transformer

ALPHA = 2       # alpha / rank, if no alpha is given


def start_problems(s: Settings, text: data.Text, initial: Checkpoint | None) -> list[str]:
    """Return a line for each setting of a run that does not go with an adapter, or is for one that
    is not there."""
    if not s.lora:
        idle = [name for name in ("lora_alpha", "lora_layers") if getattr(s, name) is not None]
        return [f"--{name} is for an adapter; give --lora with its rank, such as --lora 8, or "
                "leave it out" for name in idle]
    if s.init_from == "scratch":
        return ["--lora trains an adapter of a model that is there; name its checkpoint or the "
                "folder of its run with --init_from"]
    lines = []
    if s.optimizer != "adamw":
        lines.append("--lora trains by AdamW; leave out --optimizer")
    if s.ahead:
        lines.append("--lora predicts no more than the next character; leave out --ahead")
    if initial is None:         # the run is resumed
        return lines
    folder = os.path.dirname(os.path.abspath(checkpoint_path(s.init_from)))
    if os.path.realpath(s.out_dir) == os.path.realpath(folder):
        lines.append(f"--out_dir {s.out_dir} is the folder of the base, which the adapter needs "
                     "again; give another folder")
    known = initial.tokenizer.vocab_size
    if text.tokenizer.vocab_size > known:
        new = text.tokenizer.vocabulary[known:]
        lines.append(f"the text has {number_of(len(new), 'character')} that the model in "
                     f"{s.init_from} does not know, as {new[0]!r}, and an adapter cannot learn "
                     "what is not in its frozen table; take them out, or train without --lora")
    lines += [f"--{line}" for line in adapter_problems(adapted_config(initial.model.config, s))]
    return lines


def adapter_refusal(name: str, model: AdaptedTransformer) -> str:
    """Return why a new run cannot begin with a model that has an adapter, and what to do."""
    merge = command_line("model.convert", name, "merged.npz", "--merge")
    return (f"--init_from {name} is an adapter of {model.config.base}, and a new run begins with a "
            f"whole model; make one with {merge}, or continue the adapter with --init_from resume "
            f"--out_dir {name}")


def adapted_config(config: TransformerConfig, s: Settings) -> AdaptedConfig:
    """Return the configuration of an adapter of the model that a run begins with."""
    path = checkpoint_path(s.init_from).absolute()
    has_gate = config.activation == "swiglu"
    layers = [name for name in LAYERS if name != "gate" or has_gate]
    return AdaptedConfig(
        **dataclasses.asdict(config),
        lora=s.lora,
        lora_alpha=ALPHA * s.lora if s.lora_alpha is None else s.lora_alpha,
        lora_layers=",".join(layers) if s.lora_layers is None else s.lora_layers,
        base=str(path),
        base_seal=read_seal(path))


def make_adapted(config: AdaptedConfig, seed: int, base: Transformer) -> AdaptedTransformer:
    """Return a new adapter beside a base."""
    model = AdaptedTransformer(config, seed)
    model.take_base(share(base, config.base_seal))
    return model


def numbers_in_training(config: AdaptedConfig) -> int:
    """Return how many float32 numbers the base takes, and the pairs, their gradients and AdamW's
    state."""
    return os.path.getsize(config.base) // 4 + 4 * trained(config)


def describe_adapter(model: AdaptedTransformer) -> str:
    """Return lines on a base and its adapter."""
    c = model.config
    base = pathlib.Path(c.base)
    return (f"adapter     {trained(c):,} numbers: rank {c.lora}, alpha {c.lora_alpha:g}, of "
            f"{c.lora_layers.replace(',', ', ')} in each block\n"
            f"base        {base}, {scaled(base.stat().st_size, 'B')}, which stays as it is")
