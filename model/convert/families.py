"""GPT-2 and Llama, as Hugging Face's classes name their settings and store their weights.

Three classes have our parts.  GPT2LMHeadModel: learned positions, layer norm, biases everywhere,
linear weights stored as (inputs, outputs).  LlamaForCausalLM: rotary positions, RMS norm with
gains, gated SiLU.  ArceeForCausalLM: the same, but an MLP without a gate.  What these have and a
model of ours has not is written as what changes nothing: biases of 0, gains of 1.

Rotary positions turn channels in pairs.  In ours, a pair is two neighbours; in theirs, channel i of
the first half of a head and channel i of the second.  So the rows that make queries and keys change
places.

Source: the configuration_*.py and modeling_*.py of gpt2, llama and arcee in transformers 5.23.
"""
import functools
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, NoReturn

import numpy as np

from model.command import any_of, shown
from model.convert.found import FormatError, Lazy
from model.transformer import TransformerConfig, meant, parameter_shapes, unknown_options

ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu2": "relu2"}       # ours: theirs
OTHER_NAMES = {"gelu_pytorch_tanh": "gelu_new", "swish": "silu"}    # of the same functions
# Keys that do not change what a trained model computes.
IDLE = set("""
    _attn_implementation_autoset _name_or_path _num_labels architectures attention_dropout
    attn_pdrop bos_token_id dtype embd_pdrop eos_token_id gradient_checkpointing id2label
    initializer_range is_llama_config label2id minigrad model_type n_ctx num_labels
    output_attentions output_hidden_states pad_token_id problem_type reorder_and_upcast_attn
    resid_pdrop return_dict summary_activation summary_first_dropout summary_proj_to_labels
    summary_type summary_use_proj task_specific_params torch_dtype transformers.js_config
    transformers_version unk_token_id use_cache""".split())


class Family(NamedTuple):
    """A class of Hugging Face."""
    model_type: str
    architecture: str                   # the name of the class
    options: dict[str, object]          # of TransformerConfig, in every model of the class
    keys: dict[str, str]                # of config.json, and our option for each
    usual: dict[str, object]            # what keys are that are not there
    activation: str                     # the key
    activations: dict[str, str]
    fixed: dict[str, object]            # keys with the only value that our models compute
    names: dict[str, tuple[str, ...]]   # our modules, and theirs that hold the same rows


GPT2 = Family(
    "gpt2", "GPT2LMHeadModel", dict(position="learned", norm="layer", bias=True),
    {"vocab_size": "vocab_size", "n_positions": "block_size", "n_embd": "n_embd",
     "n_layer": "n_layer", "n_head": "n_head", "n_inner": "n_inner",
     "layer_norm_epsilon": "norm_eps", "tie_word_embeddings": "tied"},
    {"n_inner": None, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True,
     "activation_function": "gelu_new"},
    "activation_function", ACTIVATIONS,
    {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False,
     "add_cross_attention": False},
    {"token_embedding": ("transformer.wte",),
     "position_embedding": ("transformer.wpe",),
     "blocks.{}.norm1": ("transformer.h.{}.ln_1",),
     "blocks.{}.attention.qkv": ("transformer.h.{}.attn.c_attn",),
     "blocks.{}.attention.out": ("transformer.h.{}.attn.c_proj",),
     "blocks.{}.norm2": ("transformer.h.{}.ln_2",),
     "blocks.{}.mlp.up": ("transformer.h.{}.mlp.c_fc",),
     "blocks.{}.mlp.down": ("transformer.h.{}.mlp.c_proj",),
     "norm": ("transformer.ln_f",),
     "lm_head": ("lm_head",)})
LLAMA = Family(
    "llama", "LlamaForCausalLM", dict(position="rotary", norm="rms_gain"),
    {"vocab_size": "vocab_size", "max_position_embeddings": "block_size", "hidden_size": "n_embd",
     "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
     "num_key_value_heads": "n_kv_head", "intermediate_size": "n_inner",
     "rms_norm_eps": "norm_eps", "attention_bias": "attention_bias", "mlp_bias": "mlp_bias",
     "tie_word_embeddings": "tied"},
    {"num_key_value_heads": None, "rms_norm_eps": 1e-6, "attention_bias": False, "mlp_bias": False,
     "tie_word_embeddings": False, "hidden_act": "silu"},
    "hidden_act", {"swiglu": "silu"},
    {"pretraining_tp": 1, "rope_interleaved": False},
    {"token_embedding": ("model.embed_tokens",),
     "blocks.{}.norm1": ("model.layers.{}.input_layernorm",),
     "blocks.{}.attention.qkv": ("model.layers.{}.self_attn.q_proj",
                                 "model.layers.{}.self_attn.k_proj",
                                 "model.layers.{}.self_attn.v_proj"),
     "blocks.{}.attention.out": ("model.layers.{}.self_attn.o_proj",),
     "blocks.{}.norm2": ("model.layers.{}.post_attention_layernorm",),
     "blocks.{}.mlp.gate": ("model.layers.{}.mlp.gate_proj",),
     "blocks.{}.mlp.up": ("model.layers.{}.mlp.up_proj",),
     "blocks.{}.mlp.down": ("model.layers.{}.mlp.down_proj",),
     "norm": ("model.norm",),
     "lm_head": ("lm_head",)})
ARCEE = LLAMA._replace(
    model_type="arcee", architecture="ArceeForCausalLM", activations=ACTIVATIONS,
    usual=LLAMA.usual | {"rms_norm_eps": 1e-5, "hidden_act": "relu2"})
FAMILIES = {family.model_type: family for family in (GPT2, LLAMA, ARCEE)}
# The options of TransformerConfig that are written into a config.json, or seen in the weights, or
# refused by `family_of` where no class has them, or that shape training alone.
OPTIONS = dict.fromkeys([*GPT2.keys.values(), *LLAMA.keys.values(), "bias", "rotary_base", "ngrams",
                         "qk_norm", "ngram_rows", "ngram_dropout", "dropout", "zero_init"])
OPTIONS |= {"position": ("learned", "sinusoidal", "rotary", "alibi", "none"),
            "norm": ("layer", "rms", "rms_gain"), "activation": (*ACTIVATIONS, "swiglu")}


def family_of(config: TransformerConfig) -> Family:
    """Return the class that computes what the model computes.

    Raises
    ------
    FormatError : there is none; the message names each part that the classes lack.
    """
    if unknown := unknown_options(config, OPTIONS):
        raise FormatError(f"no class of Hugging Face is known to have {any_of(unknown)}; convert "
                          "the model to a .safetensors file, which has all its parts")
    lacking = {}        # what, and the flags to train without it
    if config.ngrams > 1:
        lacking["n-grams"] = "--ngrams 1"
    if config.qk_norm:
        lacking["normed queries and keys"] = "--no-qk_norm"
    positions = ("without positions" if config.position == "none" else
                 f"with {config.position} positions")
    if config.position == "rotary" or config.norm != "layer":
        family = LLAMA if config.activation == "swiglu" else ARCEE
        if config.norm == "layer":
            lacking["layer norm with rotary positions"] = "--norm rms"
        elif config.position != "rotary":
            lacking[f"RMS norm {positions}"] = "--position rotary"
    else:
        family = GPT2
        if config.position != "learned":
            lacking[f"layer norm {positions}"] = "--position learned"
        if config.activation == "swiglu":
            lacking["gated MLPs with layer norm"] = "--activation gelu_tanh"
        if config.kv_heads < config.n_head:
            lacking["grouped heads with layer norm"] = f"--n_kv_head {config.n_head}"
    if lacking:
        raise FormatError(f"no class of Hugging Face has {any_of(list(lacking))}; train a "
                          f"model with {' '.join(lacking.values())}, or convert this one to a "
                          ".safetensors file, which has all its parts")
    return family


def whole(config: TransformerConfig, family: Family) -> TransformerConfig:
    """Return the configuration with every part that models of the class have."""
    if family is GPT2:
        return replace(config, attention_bias=None, mlp_bias=None, **family.options)
    return replace(config, bias=False, attention_bias=meant(config, "attention_bias"),
                   mlp_bias=meant(config, "mlp_bias"), **family.options)


def absent(config: TransformerConfig, family: Family) -> dict[str, np.ndarray]:
    """Return the parameters that models of the class have and this one lacks, as numbers that
    change nothing."""
    own = dict(parameter_shapes(config))
    return {name: np.full(shape, name.endswith(".weight"), np.float32)
            for name, shape in parameter_shapes(whole(config, family)) if name not in own}


def settings(config: TransformerConfig, family: Family) -> dict[str, object]:
    """Return what config.json says of what a model computes."""
    config = whole(config, family)
    found = {key: meant(config, option) for key, option in family.keys.items()}
    found[family.activation] = family.activations[config.activation]
    found |= family.fixed
    if config.position == "rotary":
        found |= {"head_dim": config.d_head, "rope_theta": config.rotary_base,
                  "rope_parameters": {"rope_type": "default", "rope_theta": config.rotary_base}}
    return found


def configuration(path: object, found: dict[str, object]) -> tuple[TransformerConfig, Family]:
    """Return the configuration that a config.json describes, and its class.

    Raises
    ------
    FormatError : it is of a class that is not known, or asks for what our models do not compute.
    """
    family = FAMILIES.get(str(found.get("model_type")))
    if family is None:
        kind = shown(repr(found.get("model_type")))
        raise FormatError(f"{path} is of the model_type {kind}, and only "
                          f"{any_of(list(FAMILIES))} can be read; convert a model of these")
    values = {}
    for key, option in family.keys.items():
        if key not in found and key not in family.usual:
            raise FormatError(f"{path} lacks {key}; take the file as it was written")
        values[option] = found.get(key, family.usual.get(key))
    known = family.keys.keys() | family.fixed.keys() | IDLE | {family.activation}
    values["activation"] = activation(path, found, family)
    if family is not GPT2:
        values["rotary_base"] = rotary_base(path, found)
        known |= {"head_dim", "rope_theta", "rope_parameters", "rope_scaling"}
    for key, value in found.items():
        if key in family.fixed and value != family.fixed[key]:
            refuse(path, key, value, family.fixed[key])
        if key not in known and value:
            raise FormatError(f"{path} has {shown(key)} = {shown(value)}, which is not known here; "
                              "if it does not change what the model computes, take it out of the "
                              "file")
    try:
        config = TransformerConfig(**values, **family.options)
    except (TypeError, ValueError) as error:
        raise FormatError(f"{path} describes no model: {shown(error)}; take the file as it was "
                          "written") from error
    if found.get("head_dim") not in (None, config.d_head):
        refuse(path, "head_dim", found["head_dim"], config.d_head)
    return config, family


def activation(path: object, found: dict[str, object], family: Family) -> str:
    """Return our name of the activation."""
    name = found.get(family.activation, family.usual[family.activation])
    for ours, theirs in family.activations.items():
        if theirs == OTHER_NAMES.get(str(name), name):
            return ours
    refuse(path, family.activation, name, *family.activations.values())


def rotary_base(path: object, found: dict[str, object]) -> float:
    """Return the base of the rotary wavelengths; refuse any scaling of them."""
    key = "rope_scaling" if found.get("rope_scaling") else "rope_parameters"
    rope = found.get(key) or {}
    if not isinstance(rope, dict):
        refuse(path, key, rope, "null")
    if (kind := rope.get("rope_type", rope.get("type", "default"))) != "default":
        refuse(path, f"the type of {key}", kind, "default")
    for name, value in rope.items():
        if name not in ("rope_type", "type", "rope_theta") and value not in (None, 1):
            refuse(path, f"{key} with {name}", value, "none")
    base = rope.get("rope_theta", found.get("rope_theta", TransformerConfig.rotary_base))
    if type(base) not in (int, float) or not abs(base) <= sys.float_info.max:
        refuse(path, "rope_theta", base, "a number")
    return float(base)


def refuse(path: object, key: str, value: object, *instead: object) -> NoReturn:
    """Refuse a setting, naming what our models compute."""
    raise FormatError(f"{path} has {shown(key)} = {shown(value)}, and only "
                      f"{any_of([*map(shown, instead)])} can be computed here; convert another "
                      "model")


class Piece(NamedTuple):
    """Some rows of one of our parameters, and how they are stored as a tensor of theirs."""
    name: str
    rows: slice
    turned: int         # channels of a head, of queries and keys that are turned; 0 of all else
    transposed: bool
    shape: tuple[int, ...]

    def stored(self, ours: np.ndarray) -> np.ndarray:
        """Return their tensor."""
        a = ours[self.rows]
        if self.turned:
            a = halves(a, self.turned)
        return a.T if self.transposed else a

    def read(self, theirs: np.ndarray) -> np.ndarray:
        """Return our rows."""
        a = theirs.T if self.transposed else theirs
        return neighbours(a, self.turned) if self.turned else a


def halves(rows: np.ndarray, D: int) -> np.ndarray:
    """Reorder the rows of heads of D channels from pairs (2i, 2i + 1) to pairs (i, i + D/2)."""
    return rows.reshape(-1, D // 2, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def neighbours(rows: np.ndarray, D: int) -> np.ndarray:
    """Undo `halves`."""
    return rows.reshape(-1, 2, D // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def pieces(config: TransformerConfig, family: Family, shapes: Mapping[str, tuple[int, ...]]
           ) -> dict[str, list[Piece]]:
    """Return how each parameter of a whole model is stored by its class, by our names."""
    return stored_as(config, family.names, shapes, turned=family is not GPT2,
                     transposed=family is GPT2)


def stored_as(config: TransformerConfig, names: Mapping[str, tuple[str, ...]],
              shapes: Mapping[str, tuple[int, ...]], turned: bool = False,
              transposed: bool = False) -> dict[str, list[Piece]]:
    """Return how each parameter is stored, by our names.

    Parameters
    ----------
    names : our modules, and those of the file that hold the same rows, one after the other.
    shapes : of the parameters, (outputs, inputs) where they are of a linear layer.
    turned : whether pairs of rotary positions are halves of a head.
    transposed : whether linear weights of the blocks are (inputs, outputs).
    """
    q, kv = config.n_head * config.d_head, config.kv_heads * config.d_head
    of_qkv = slice(0, q), slice(q, q + kv), slice(q + kv, q + 2 * kv)
    found = {}
    for name, shape in shapes.items():
        module, _, leaf = name.rpartition(".")
        layer = re.match(r"blocks\.(\d+)\.", module)
        theirs = names[re.sub(r"^blocks\.\d+\.", "blocks.{}.", module)]
        rows = of_qkv if len(theirs) == 3 else (slice(0, shape[0]),)
        turns = transposed and layer is not None and len(shape) == 2
        found[name] = []
        for i, (their_module, part) in enumerate(zip(theirs, rows)):
            D = config.d_head if turned and len(theirs) == 3 and i < 2 else 0
            size = (part.stop - part.start, *shape[1:])
            found[name].append(Piece(f"{their_module.format(layer and layer[1])}.{leaf}", part, D,
                                     turns, size[::-1] if turns else size))
    return found


def stored_shapes(stored: dict[str, list[Piece]]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of their tensors."""
    return {piece.name: piece.shape for parts in stored.values() for piece in parts}


def as_theirs(weights: Mapping[str, np.ndarray], stored: dict[str, list[Piece]]) -> Lazy:
    """Return their tensors of our parameters."""
    return Lazy({piece.name: functools.partial(_stored, weights, name, piece)
                 for name, parts in stored.items() for piece in parts})


def _stored(weights, name, piece):
    return piece.stored(weights[name])


def as_ours(tensors: Mapping[str, np.ndarray], stored: dict[str, list[Piece]]) -> Lazy:
    """Return our parameters of their tensors."""
    return Lazy({name: functools.partial(_read, tensors, parts) for name, parts in stored.items()})


def _read(tensors, parts):
    read = [piece.read(tensors[piece.name]) for piece in parts]
    return np.ascontiguousarray(read[0] if len(read) == 1 else np.concatenate(read))
