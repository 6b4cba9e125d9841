"""GPT-2, Llama and Arcee: how Hugging Face's classes name settings and store weights.

    GPT2LMHeadModel     learned positions, layer norm, biases everywhere; the linear weights of its
                        blocks are (inputs, outputs), by the class Conv1D, and ours are transposed
    LlamaForCausalLM    rotary positions (RoPE), RMS norm with gains, gated SiLU (SwiGLU)
    ArceeForCausalLM    the same with an MLP that has no gate

A part that the class has and our model lacks is written as numbers that change nothing: biases of
0, gains of 1.

Rotary positions rotate pairs of channels.  Ours are neighbours, 2i and 2i + 1; theirs are i and
i + D/2 of a head of D channels.  So the rows of queries and keys are reordered.

Source: the configuration_*.py and modeling_*.py of gpt2, llama and arcee in transformers 5.23.
"""
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import NamedTuple, NoReturn

import numpy as np

from minigrad.packed import unpacked
from minigrad.words import any_of, shown
from model.command import as_flags, unknown_options
from model.convert.model_file import FormatError, Lazy, check_shapes, explain, shapes_of
from model.config import TRAINING, TransformerConfig

ACTIVATIONS = {"gelu_tanh": "gelu_new", "gelu": "gelu", "relu2": "relu2"}       # ours: theirs
SYNONYMS = {"gelu_pytorch_tanh": "gelu_new", "swish": "silu"}
# Keys that do not change what a trained model computes.
IDLE = set("""
    _attn_implementation_autoset _name_or_path _num_labels architectures attention_dropout
    attn_pdrop bos_token_id dtype embd_pdrop eos_token_id gradient_checkpointing id2label
    initializer_range is_llama_config label2id minigrad model_type num_labels
    output_attentions output_hidden_states pad_token_id problem_type reorder_and_upcast_attn
    resid_pdrop return_dict summary_activation summary_first_dropout summary_proj_to_labels
    summary_type summary_use_proj task_specific_params torch_dtype transformers.js_config
    transformers_version unk_token_id use_cache""".split())

ROPE = "rope_parameters", "rope_scaling"        # keys of rotary positions, and what scales none
UNSCALED = {"rope_type": "default", "type": "default", "factor": 1, "partial_rotary_factor": 1}


class Family(NamedTuple):
    """A class of Hugging Face."""
    model_type: str
    architecture: str               # the name of the class
    options: dict[str, object]      # of TransformerConfig, in every model of the class
    keys: dict[str, str]            # of config.json -> our options
    defaults: dict[str, object]     # of keys that may be missing
    activation: str                 # the key of the activation
    activations: dict[str, str]     # ours -> theirs; GGUF files know the first one
    fixed: dict[str, object]        # keys -> the only value that our models compute
    names: dict[str, str]           # our modules -> theirs, see `layout`
    storage: dict[str, bool]        # of `layout`


GPT2 = Family(
    "gpt2", "GPT2LMHeadModel",
    dict(position="learned", norm="layer", bias=True, attention_bias=None, mlp_bias=None),
    {"vocab_size": "vocab_size", "n_positions": "block_size", "n_embd": "n_embd",
     "n_layer": "n_layer", "n_head": "n_head", "n_inner": "n_inner",
     "layer_norm_epsilon": "norm_eps", "tie_word_embeddings": "tied"},
    {"n_inner": None, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True,
     "activation_function": "gelu_new"},
    "activation_function", ACTIVATIONS,
    {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False,
     "add_cross_attention": False},
    {"token_embedding": "transformer.wte", "position_embedding": "transformer.wpe",
     "blocks": "transformer.h", "norm1": "ln_1", "attention.qkv": "attn.c_attn",
     "attention.out": "attn.c_proj", "norm2": "ln_2", "mlp.up": "mlp.c_fc",
     "mlp.down": "mlp.c_proj", "norm": "transformer.ln_f", "lm_head": "lm_head"},
    dict(conv1d=True))
LLAMA = Family(
    "llama", "LlamaForCausalLM", dict(position="rotary", norm="rms_gain"),
    {"vocab_size": "vocab_size", "max_position_embeddings": "block_size", "hidden_size": "n_embd",
     "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
     "num_key_value_heads": "n_kv_head", "intermediate_size": "n_inner",
     "rms_norm_eps": "norm_eps", "attention_bias": "attention_bias", "mlp_bias": "mlp_bias",
     "tie_word_embeddings": "tied"},
    {"num_key_value_heads": None, "rms_norm_eps": 1e-6, "attention_bias": False, "mlp_bias": False,
     "tie_word_embeddings": False, "hidden_act": "silu"},
    "hidden_act", {"swiglu": "silu"}, {"pretraining_tp": 1, "rope_interleaved": False},
    {"token_embedding": "model.embed_tokens", "blocks": "model.layers", "norm1": "input_layernorm",
     "attention.qkv": "self_attn.q_proj self_attn.k_proj self_attn.v_proj",
     "attention.out": "self_attn.o_proj", "norm2": "post_attention_layernorm",
     "mlp.gate": "mlp.gate_proj", "mlp.up": "mlp.up_proj", "mlp.down": "mlp.down_proj",
     "norm": "model.norm", "lm_head": "lm_head"},
    dict(in_halves=True))
ARCEE = LLAMA._replace(
    model_type="arcee", architecture="ArceeForCausalLM", activations=ACTIVATIONS,
    defaults=LLAMA.defaults | {"rms_norm_eps": 1e-5, "hidden_act": "relu2"})
FAMILIES = {family.model_type: family for family in (GPT2, LLAMA, ARCEE)}
# The options of TransformerConfig that a config.json or the weights express, that `family_of`
# refuses where no class has them, or that matter in training alone; and the choices of each.
OPTIONS = dict.fromkeys([*GPT2.keys.values(), *LLAMA.keys.values(), "bias", "rotary_base", "ngrams",
                         "qk_norm", "ngram_rows", "zero_init", *TRAINING])
OPTIONS |= {"position": ("learned", "sinusoidal", "rotary"),
            "norm": ("layer", "rms", "rms_gain"), "activation": (*ACTIVATIONS, "swiglu")}


def family_of(config: TransformerConfig, llama_cpp: bool = False) -> Family:
    """Return the class that computes what the model computes.  If there is none, refuse the model,
    and name each part that the class lacks with the flags to train without it.  With `llama_cpp`,
    the classes are the architectures of GGUF files."""
    classes = "architecture of GGUF files" if llama_cpp else "class of Hugging Face"
    if unknown := unknown_options(config, OPTIONS):
        raise FormatError(f"no {classes} is known to have {any_of(unknown)}; convert "
                          "the model to a .safetensors file, which has all its parts")
    family = GPT2
    if config.position == "rotary" or config.norm != "layer":
        family = LLAMA if llama_cpp or config.activation == "swiglu" else ARCEE
    wanted = {"ngrams": 1, "qk_norm": False, "position": family.options["position"]}
    if family is GPT2:
        wanted["n_kv_head"] = config.n_head
    elif config.norm == "layer":
        wanted["norm"] = "rms"
    if llama_cpp or config.activation not in family.activations:
        wanted["activation"] = first_activation(family)
    own = asdict(config.resolved())
    lacking = {name: value for name, value in wanted.items() if own[name] != value}
    if lacking:
        nearest = family.model_type if llama_cpp else family.architecture
        raise FormatError(f"{nearest}, the nearest {classes}, has no "
                          f"{any_of([f'{name} {own[name]}' for name in lacking])}; train a model "
                          f"with {' '.join(as_flags(lacking))}, or convert this one to a "
                          ".safetensors file, which has all its parts")
    return family


def first_activation(family: Family) -> str:
    """Return the activation of the class that every program knows."""
    return next(iter(family.activations))


def complete(config: TransformerConfig, family: Family) -> TransformerConfig:
    """Return the configuration with every part that models of the class have."""
    return replace(config.resolved(), **{"bias": False} | family.options)


def neutral_weights(config: TransformerConfig, family: Family) -> dict[str, np.ndarray]:
    """Return the parameters that models of the class have and this one lacks, as numbers that
    change nothing: gains of 1 and biases of 0."""
    own = shapes_of(config)
    return {name: np.full(shape, name.endswith(".weight"), np.float32)
            for name, shape in shapes_of(complete(config, family)).items() if name not in own}


def settings(config: TransformerConfig, family: Family) -> dict[str, object]:
    """Return the keys of config.json that say what a model computes."""
    config = complete(config, family)
    found = {key: getattr(config, option) for key, option in family.keys.items()}
    found |= {family.activation: family.activations[config.activation], **family.fixed}
    if config.position == "rotary":
        found |= {"head_dim": config.d_head, "rope_theta": config.rotary_base,
                  "rope_parameters": {"rope_type": "default", "rope_theta": config.rotary_base}}
    return found


def configuration(path: object, found: dict[str, object]) -> tuple[TransformerConfig, Family]:
    """Return the configuration that a config.json describes, and its class.  Refuse one of another
    class, or that asks for what our models do not compute."""
    family = FAMILIES.get(str(found.get("model_type")))
    if family is None:
        refuse(path, "model_type", found.get("model_type"), *FAMILIES)
    stated = family.defaults | found
    if missing := [key for key in family.keys if key not in stated]:
        raise FormatError(f"{path} lacks {missing[0]}")
    classes = stated.get("architectures")
    if classes and family.model_type not in str(classes).lower():
        refuse(path, "architectures", classes, f"{family.architecture} of its model_type")
    options = {option: stated[key] for key, option in family.keys.items()}
    given = str(stated[family.activation])
    theirs = stated[family.activation] = SYNONYMS.get(given, given)
    ours = {name: option for option, name in family.activations.items()}
    if theirs not in ours:
        refuse(path, family.activation, theirs, *ours)
    options["activation"] = ours[theirs]
    base = stated.get("rope_theta")
    for key in ROPE:
        rope = stated.pop(key, None) or {}
        if not isinstance(rope, dict):
            refuse(path, key, rope, "null")
        stated |= {f"{name} of {key}": value for name, value in rope.items()}
        base = base or rope.get("rope_theta")
    options["rotary_base"] = base or TransformerConfig.rotary_base
    with explain(f"{path} describes no model", errors=(TypeError, ValueError)):
        config = TransformerConfig(**options, **family.options)
    expected = settings(config, family) | {"n_ctx": config.block_size}      # GPT-2's older name
    unscaled = UNSCALED | {"rope_theta": config.rotary_base}
    expected |= {f"{name} of {key}": unscaled[name] for key in ROPE for name in unscaled}
    for key, value in stated.items():
        unset = value is None and not family.fixed.get(key)
        if key in IDLE or unset:
            continue
        if key in expected:
            if value != expected[key]:
                refuse(path, key, value, expected[key])
        elif value:
            raise FormatError(f"{path} has {shown(key)} = {shown(value)}, which is not known here; "
                              "delete it from the file if the model does not depend on it")
    return config, family


def refuse(path: object, key: str, value: object, *possible: object) -> NoReturn:
    """Refuse a setting, and name the values that our models can have."""
    raise FormatError(f"{path} has {shown(key)} = {shown(value)}, and only "
                      f"{any_of([*map(shown, possible)])} can be computed here")


def as_noted(note: object, config: TransformerConfig, family: Family, weights: Lazy
             ) -> tuple[TransformerConfig, Lazy]:
    """Return the configuration that was noted beside a model, and its own weights; those that are
    given if there is no note, or the model has been changed since.  Rotary positions may reach
    further than the noted block."""
    try:
        own = like = TransformerConfig(**note)
        if own.position == "rotary" and own.block_size < config.block_size:
            like = replace(own, block_size=config.block_size)
        agrees = settings(like, family_of(own)) == settings(config, family)
    except (TypeError, ValueError):
        return config, weights
    if agrees and all((weights[name] == a).all()
                      for name, a in neutral_weights(own, family).items()):
        return own, Lazy({name: weights.data[name] for name in shapes_of(own)})
    return config, weights


class Piece(NamedTuple):
    """A tensor of theirs that holds some rows of one of our parameters."""
    name: str
    shape: tuple[int, ...]
    part: slice         # the rows
    pairs: int          # channels of a head whose rotary pairs are reordered; 0 of all else
    transposed: bool

    @property
    def rows(self) -> slice | np.ndarray:
        """The rows in the tensor's order."""
        return halves(np.r_[self.part], self.pairs) if self.pairs else self.part


def halves(rows: np.ndarray, D: int) -> np.ndarray:
    """Reorder the rows of heads of D channels from pairs (2i, 2i + 1) to pairs (i, i + D/2)."""
    return rows.reshape(-1, D // 2, 2).swapaxes(1, 2).ravel()


def layout(config: TransformerConfig, names: Mapping[str, str], tensors: float = math.inf,
           in_halves: bool = False, conv1d: bool = False) -> dict[str, list[Piece]]:
    """Return how a file stores each parameter, by our names.

    Parameters
    ----------
    names : our modules -> theirs, three where queries, keys and values are apart; those of a block
        without their beginning, which "blocks" states.
    tensors : the number of tensors in the file, which can claim 10^12 layers.
    in_halves : whether the rotary pairs of a head are (i, i + D/2).
    conv1d : whether the linear weights of blocks are (inputs, outputs).
    """
    D, q, kv = config.d_head, config.n_head * config.d_head, config.kv_heads * config.d_head
    qkv = [(slice(0, q), D), (slice(q, q + kv), D), (slice(q + kv, q + 2 * kv), 0)]
    found = {}
    for name, shape in shapes_of(config, tensors).items():
        module, _, leaf = name.rpartition(".")
        if block := re.fullmatch(r"blocks\.(\d+)\.(.+)", module):
            theirs = [f"{names['blocks']}.{block[1]}.{part}" for part in names[block[2]].split()]
        else:
            theirs = [names[module]]
        transposed = conv1d and block is not None and len(shape) == 2
        parts = qkv if len(theirs) == len(qkv) else [(slice(0, shape[0]), 0)]
        found[name] = []
        for their_module, (part, pairs) in zip(theirs, parts):
            size = (part.stop - part.start, *shape[1:])
            found[name].append(Piece(f"{their_module}.{leaf}", size[::-1] if transposed else size,
                                     part, pairs if in_halves else 0, transposed))
    return found


def their_shapes(stored: dict[str, list[Piece]]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of their tensors."""
    return {piece.name: piece.shape for pieces in stored.values() for piece in pieces}


def their_tensors(weights: Mapping[str, np.ndarray], stored: dict[str, list[Piece]]) -> Lazy:
    """Return their tensors of our parameters."""
    def make(name, piece):
        a = weights[name][piece.rows]
        return a.T if piece.transposed else a
    return Lazy({piece.name: partial(make, name, piece)
                 for name, pieces in stored.items() for piece in pieces})


def our_parameters(path: object, stored: dict[str, list[Piece]], tensors: Mapping[str, object],
                   read: Callable[[str], np.ndarray]) -> Lazy:
    """Return our parameters of a file's tensors, which have shapes and which `read` reads by name.
    Matrices may be packed.  Refuse a file that lacks a tensor, or has one too many, or one of
    another shape."""
    check_shapes(path, their_shapes(stored), tensors)

    def make(pieces):
        parts = [read(piece.name) for piece in pieces]
        if len({a.dtype for a in parts}) > 1:       # some of them are packed
            parts = map(unpacked, parts)
        parts = [a.T if piece.transposed else a for piece, a in zip(pieces, parts)]
        if len(parts) == 1:         # a large table is not copied
            return np.ascontiguousarray(parts[0])
        whole = np.empty((sum(map(len, parts)), *parts[0].shape[1:]), parts[0].dtype)
        for piece, part in zip(pieces, parts):
            whole[piece.rows] = part
        return whole
    return Lazy({name: partial(make, pieces) for name, pieces in stored.items()})
