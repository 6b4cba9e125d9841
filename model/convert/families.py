"""GPT-2, Llama, Qwen2, Qwen3 and Arcee: how a format names their options and stores their weights.
The tables here are of Hugging Face's classes; those of `gguf` and `nanogpt` are made of them.

    GPT2LMHeadModel     learned positions, layer norm, biases everywhere; the linear weights of its
                        blocks are (inputs, outputs), by the class Conv1D, and ours are transposed
    LlamaForCausalLM    rotary positions (RoPE), RMS norm with gains, gated SiLU (SwiGLU)
    Qwen2ForCausalLM    the same with biases of queries, keys and values
    Qwen3ForCausalLM    Llama's, with a norm of each head of queries and keys, and its gains
    ArceeForCausalLM    Llama's with an MLP that has no gate

Llama 3.1 and later models slow their rotations (`RotaryScaling`).

A part that the class has and our model lacks is written as numbers that change nothing: biases of
0, gains of 1.

Rotary positions rotate pairs of channels.  Ours are neighbours, 2i and 2i + 1; theirs are i and
i + D/2 of a head of D channels.  So the rows of queries and keys are reordered, and their gains.

Source: the configuration_*.py and modeling_*.py of gpt2, llama, qwen2, qwen3 and arcee, and
modeling_rope_utils.py, in transformers 5.23.
"""
import math
import re
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import NamedTuple, NoReturn

import numpy as np

from minigrad.packed import below, rows_of_blocks, unpacked
from minigrad.words import any_of, shown
from model.config import FILES, ModelOptions, TransformerConfig, unknown_options
from model.convert.model_file import (FormatError, Lazy, Stored, check_shapes, explain,
                                      shapes_of)
from model.options import as_flags, option_names

FLAGS = option_names(ModelOptions)       # which a model can be trained with
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
ACTIVATIONS = {"gelu_tanh": "gelu_new", "gelu": "gelu", "relu2": "relu2"}       # ours: theirs


class Family(NamedTuple):
    """How a format says and stores the models of a class.  Our names lead to theirs."""
    name: str                       # its model_type
    architecture: str               # the name of the class
    options: dict[str, object]      # of TransformerConfig, in every model of the class
    keys: dict[str, str]            # options -> keys
    repeats: dict[str, str]         # more keys -> the options that they say again
    defaults: dict[str, object]     # of keys that may be missing
    fixed: dict[str, object]        # keys -> the only value that our models compute
    activations: dict[str, str]     # GGUF files know the first one
    names: dict[str, str]           # modules, of a block {}; three of separate q, k and v
    in_halves: bool = False         # whether the rotary pairs of a head are (i, i + D/2)
    conv1d: bool = False            # whether the linear weights of blocks are (inputs, outputs)


GPT2 = Family(
    "gpt2", "GPT2LMHeadModel",
    dict(position="learned", norm="layer", bias=True, attention_bias=None,
         attention_out_bias=None, mlp_bias=None),
    {"vocab_size": "vocab_size", "block_size": "n_positions", "n_embd": "n_embd",
     "n_layer": "n_layer", "n_head": "n_head", "n_inner": "n_inner",
     "norm_eps": "layer_norm_epsilon", "activation": "activation_function",
     "tied": "tie_word_embeddings"},
    {"n_ctx": "block_size"},        # an older name
    {"n_inner": None, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
     "tie_word_embeddings": True},
    {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False,
     "add_cross_attention": False},
    ACTIVATIONS,
    {"token_embedding": "transformer.wte", "position_embedding": "transformer.wpe",
     "norm1": "transformer.h.{}.ln_1", "attention.qkv": "transformer.h.{}.attn.c_attn",
     "attention.out": "transformer.h.{}.attn.c_proj", "norm2": "transformer.h.{}.ln_2",
     "mlp.up": "transformer.h.{}.mlp.c_fc", "mlp.down": "transformer.h.{}.mlp.c_proj",
     "norm": "transformer.ln_f", "lm_head": "lm_head"},
    conv1d=True)
LLAMA = Family(
    "llama", "LlamaForCausalLM",
    dict(position="rotary", norm="rms_gain", attention_out_bias=None),
    {"vocab_size": "vocab_size", "block_size": "max_position_embeddings", "n_embd": "hidden_size",
     "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
     "n_kv_head": "num_key_value_heads", "head_dim": "head_dim",
     "n_inner": "intermediate_size", "norm_eps": "rms_norm_eps", "rotary_base": "rope_theta",
     "activation": "hidden_act",
     "attention_bias": "attention_bias", "mlp_bias": "mlp_bias", "tied": "tie_word_embeddings"},
    {"rope_parameters": "rope_parameters"},
    {"num_key_value_heads": None, "head_dim": None, "rms_norm_eps": 1e-6, "attention_bias": False,
     "mlp_bias": False, "tie_word_embeddings": False, "rope_theta": TransformerConfig.rotary_base,
     "hidden_act": "silu"},
    {"pretraining_tp": 1, "rope_interleaved": False}, {"swiglu": "silu"},
    {"token_embedding": "model.embed_tokens", "norm1": "model.layers.{}.input_layernorm",
     "attention.qkv": "model.layers.{0}.self_attn.q_proj model.layers.{0}.self_attn.k_proj "
                      "model.layers.{0}.self_attn.v_proj",
     "attention.out": "model.layers.{}.self_attn.o_proj",
     "norm2": "model.layers.{}.post_attention_layernorm",
     "mlp.gate": "model.layers.{}.mlp.gate_proj", "mlp.up": "model.layers.{}.mlp.up_proj",
     "mlp.down": "model.layers.{}.mlp.down_proj", "norm": "model.norm", "lm_head": "lm_head"},
    in_halves=True)
ARCEE = LLAMA._replace(
    name="arcee", architecture="ArceeForCausalLM", activations=ACTIVATIONS,
    defaults=LLAMA.defaults | {"rms_norm_eps": 1e-5, "hidden_act": "relu2"})
IN_QWEN2 = dict(attention_bias=True, attention_out_bias=False, mlp_bias=False)
QWEN2 = LLAMA._replace(
    name="qwen2", architecture="Qwen2ForCausalLM", options=LLAMA.options | IN_QWEN2,
    keys={option: key for option, key in LLAMA.keys.items() if option not in IN_QWEN2},
    defaults={key: value for key, value in LLAMA.defaults.items() if key not in IN_QWEN2},
    fixed={"use_sliding_window": False})
NO_BIASES = dict(attention_bias=False, attention_out_bias=False, mlp_bias=False)
QWEN3 = LLAMA._replace(
    name="qwen3", architecture="Qwen3ForCausalLM",
    options=LLAMA.options | NO_BIASES | dict(qk_norm=True, qk_gain=True),
    keys=QWEN2.keys,
    defaults=QWEN2.defaults | {"head_dim": 128},
    fixed={"use_sliding_window": False, "attention_bias": False},
    names=LLAMA.names | {"attention.query_norm": "model.layers.{}.self_attn.q_norm",
                         "attention.key_norm": "model.layers.{}.self_attn.k_norm"})
FAMILIES = {family.name: family for family in (GPT2, LLAMA, QWEN2, QWEN3, ARCEE)}


def family_of(config: TransformerConfig, known: Mapping[str, Family] = FAMILIES) -> Family:
    """Return the class of a format that computes what the model computes.  If there is none, refuse
    the model, and name each part that the class lacks with the flags to train without it."""
    if unknown := unknown_options(config, FILES):
        raise FormatError(f"no other program is known to have {any_of(unknown)}; convert the model "
                          "to a .safetensors file, which has all its parts")
    family = known["gpt2"]
    if config.position == "rotary" or config.norm != "layer":
        family = known["llama"]
        if config.activation not in family.activations:
            family = known.get("arcee", family)
        elif config.qk_norm:
            family = known["qwen3"]
        elif has_options(config, IN_QWEN2):
            family = known["qwen2"]
    wanted = {"ngrams": 1, "qk_norm": False, "position": family.options["position"]}
    if family.name == "qwen3":
        wanted |= {"qk_norm": True, "bias": False} | NO_BIASES
    else:       # whose classes ask for it, also where head_dim says otherwise
        wanted["n_embd"] = config.n_head * math.ceil(config.n_embd / config.n_head)
    if family.name == "gpt2":
        wanted |= {"n_kv_head": config.n_head, "head_dim": wanted["n_embd"] // config.n_head}
    elif config.norm == "layer":
        wanted["norm"] = "rms"
    if config.activation not in family.activations:
        wanted["activation"] = next(iter(family.activations))
    own = asdict(config.resolved())
    lacking = {name: value for name, value in wanted.items() if own[name] != value}
    if lacking:
        flags = as_flags({name: value for name, value in lacking.items() if name in FLAGS})
        train = f"train a model with {' '.join(flags)}, or " if flags else ""
        raise FormatError(f"{family.name}, the nearest architecture, has no "
                          f"{any_of([f'{name} {own[name]}' for name in lacking])}; {train}convert "
                          "this one to a .safetensors file, which has all its parts")
    return family


def has_options(config: TransformerConfig, options: Mapping[str, object]) -> bool:
    """Whether a configuration, with no option unset, has these."""
    own = asdict(config.resolved())
    return all(own[name] == value for name, value in options.items())


def complete(config: TransformerConfig, family: Family) -> TransformerConfig:
    """Return the configuration with every part that models of the class have."""
    own = config.resolved()
    attention_bias = own.attention_bias or own.attention_out_bias       # in most, both or none
    return replace(own, **{"bias": False, "attention_bias": attention_bias} | family.options)


def neutral_weights(config: TransformerConfig, family: Family) -> dict[str, np.ndarray]:
    """Return the parameters that models of the class have and this one lacks, as numbers that
    change nothing: gains of 1 and biases of 0."""
    own = shapes_of(config)
    return {name: np.full(shape, name.endswith(".weight"), np.float32)
            for name, shape in shapes_of(complete(config, family)).items() if name not in own}


def settings(config: TransformerConfig, family: Family) -> dict[str, object]:
    """Return the keys that say what a model computes."""
    config = complete(config, family)
    values = asdict(config) | {
        "activation": family.activations[config.activation], "d_head": config.d_head,
        "rope_parameters": {"rope_theta": config.rotary_base} | rotation(config)}
    found = ({key: values[option] for option, key in family.keys.items()}
             | {key: values[option] for key, option in family.repeats.items()})
    if "rope_parameters" in found and config.rotary_scaling is not None:
        found["rope_scaling"] = rotation(config)        # where transformers before 5 look
    return found


def rotation(config: TransformerConfig) -> dict[str, object]:
    """Return how Hugging Face's classes describe what slows rotary positions."""
    if config.rotary_scaling is None:
        return {"rope_type": "default"}
    factor, length = config.rotary_scaling
    return LLAMA3 | {"factor": factor, "original_max_position_embeddings": length}


def in_float32(values: Mapping[str, object]) -> dict[str, object]:
    """Return settings with each float as GGUF files have it: by the fewest digits that give the
    same float32."""
    return {key: float(str(np.float32(value))) if type(value) is float else value
            for key, value in values.items()}


def configuration(path: object, found: Mapping[str, object], family: Family, **known: object
                  ) -> TransformerConfig:
    """Return the configuration that keys describe, with options that are known without a key.
    Refuse keys that ask for what our models do not compute.  None stands for a default."""
    said = {key: value for key, value in found.items()
            if value is not None or family.fixed.get(key)}
    stated = family.defaults | said
    for key in family.keys.values():
        if key not in stated:
            raise FormatError(f"{path} lacks {key}; fetch the whole model again")
    options = {option: stated[key] for option, key in family.keys.items()}
    if key := family.keys.get("activation"):
        ours = [option for option, name in family.activations.items() if name == stated[key]]
        if not ours:
            refuse(path, key, stated[key], *family.activations.values())
        options["activation"] = ours[0]
    with explain(f"{path} describes no model", errors=(TypeError, ValueError)):
        config = TransformerConfig(**family.options | options | known)
        if config.n_head * config.d_head == config.n_embd:      # as usual
            config = replace(config, head_dim=None)
    expected = settings(config, family) | family.fixed
    for key, value in said.items():
        if not same(value, expected.get(key, value)):
            refuse(path, key, value, expected[key])
        if value and key not in expected:
            raise FormatError(f"{path} has {shown(key)} = {shown(value)}, which is not known here; "
                              "delete it from the file if the model does not depend on it")
    return config


def same(value: object, expected: object) -> bool:
    """Whether a file says what is expected; true is not the number 1."""
    return value == expected and not (value is True and expected is not True)


def refuse(path: object, key: str, value: object, *possible: object) -> NoReturn:
    """Refuse a setting, and name the values that our models can have."""
    raise FormatError(f"{path} has {shown(key)} = {shown(value)}, and only "
                      f"{any_of([*map(shown, possible)])} can be computed here; "
                      "take another model")


def as_noted(note: object, config: TransformerConfig, weights: Lazy, family: Family,
             known: Mapping[str, Family] = FAMILIES) -> tuple[TransformerConfig, Lazy]:
    """Return the configuration that was noted beside a model, and its own weights; those that are
    given if there is no note, or the model has been changed since.  Rotary positions may reach
    further than the noted block."""
    try:
        own = like = TransformerConfig(**note)
        if own.position == "rotary" and own.block_size < config.block_size:
            like = replace(own, block_size=config.block_size)
        parameters = shapes_of(own)
        neutral = neutral_weights(own, family)
        agrees = (family_of(own, known) is family and {*parameters, *neutral} == {*weights}
                  and own.rotary_scaling == config.rotary_scaling
                  and in_float32(settings(like, family)) == in_float32(settings(config, family)))
    except (TypeError, ValueError):
        return config, weights
    if agrees and all((weights[name] == a).all() for name, a in neutral.items()):
        return own, Lazy({name: weights.data[name] for name in parameters})
    return config, weights


class Piece(NamedTuple):
    """A tensor of theirs that holds some rows of one of our parameters."""
    name: str
    shape: tuple[int, ...]
    rows: slice
    pairs: int          # of a head, rotary pairs that are reordered; 0 of all else
    transposed: bool


def layout(config: TransformerConfig, family: Family, tensors: float = math.inf
           ) -> dict[str, list[Piece]]:
    """Return how a file of so many tensors, which can claim 10^12 layers, stores each parameter, by
    our names."""
    q = config.n_head * config.d_head
    kv = config.kv_heads * config.d_head
    half = config.d_head // 2 * family.in_halves
    qkv = [(slice(0, q), half), (slice(q, q + kv), half), (slice(q + kv, q + 2 * kv), 0)]
    found = {}
    for name, shape in shapes_of(config, tensors).items():
        _, block, module, leaf = re.fullmatch(r"(blocks\.(\d+)\.)?(.+)\.(.+)", name).groups()
        theirs = family.names[module].format(block).split()
        pairs = half if module in ("attention.query_norm", "attention.key_norm") else 0
        parts = qkv if len(theirs) == len(qkv) else [(slice(0, shape[0]), pairs)]
        transposed = family.conv1d and block is not None and len(shape) == 2
        found[name] = []
        for their_module, (rows, pairs) in zip(theirs, parts):
            size = (rows.stop - rows.start, *shape[1:])
            found[name].append(Piece(f"{their_module}.{leaf}", size[::-1] if transposed else size,
                                     rows, pairs, transposed))
    return found


def swapped(a: np.ndarray, m: int, n: int) -> np.ndarray:
    """Return an array whose rows, in blocks of m n, go from the order (m, n) to (n, m)."""
    return a.reshape(-1, m, n, *a.shape[1:]).swapaxes(1, 2).reshape(a.shape)


def their_tensors(config: TransformerConfig, weights: Mapping[str, np.ndarray], family: Family
                  ) -> dict[str, Stored]:
    """Return a model's tensors as the class has them."""
    weights = ChainMap(neutral_weights(config, family), weights)

    def make(name, piece):
        whole = weights[name]
        a = rows_of_blocks(whole, piece.rows)
        if a is None:
            a = unpacked(whole)[piece.rows]
        if piece.pairs:
            a = swapped(a, piece.pairs, 2)
        return a.T if piece.transposed else a
    return {piece.name: Stored(piece.shape, partial(make, name, piece))
            for name, pieces in layout(complete(config, family), family).items()
            for piece in pieces}


def our_parameters(config: TransformerConfig, family: Family, tensors: Mapping[str, Stored]
                   ) -> Lazy:
    """Return our parameters of a file's tensors.  Matrices may be packed.  Refuse a file that lacks
    a tensor, or has one too many, or one of another shape."""
    stored = layout(config, family, len(tensors))
    check_shapes({piece.name: piece.shape for pieces in stored.values() for piece in pieces},
                 tensors)

    def part_of(piece):
        a = tensors[piece.name].read()
        if piece.transposed:
            a = a.T
        return swapped(a, 2, piece.pairs) if piece.pairs else a

    def make(pieces):
        parts = [*map(part_of, pieces)]
        if len(parts) == 1:         # a large table is not copied
            return np.ascontiguousarray(parts[0])
        packed = below(parts)
        return np.concatenate([*map(unpacked, parts)]) if packed is None else packed
    return Lazy({name: partial(make, pieces) for name, pieces in stored.items()})
