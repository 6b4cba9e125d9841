"""A model in a GGUF file, as llama.cpp runs them: architecture llama or gpt2, of any quantisation.

The weights become float32.  Those of queries and keys are in our order already: llama.cpp turns
adjacent channels, and the files hold the rows so.

Source: gguf/constants.py of the library gguf; gguf_config_mapping.py, gguf_tokenizer_mapping.py and
modeling_gguf_pytorch_utils.py of transformers 5.23; llama-vocab.cpp of llama.cpp for how a text is
split before it is encoded.
"""
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from model.convert.tokens import MissingLibrary, TokenTokenizer
from model.command import shown
from model.convert.families import as_ours, stored_as, stored_shapes
from model.convert.found import FormatError, Found, Lazy, check_shapes, shapes_of, text_of
from model.convert.gguf_file import GGUFFile
from model.transformer import TransformerConfig

SIZES = {"block_count": "n_layer", "embedding_length": "n_embd", "context_length": "block_size",
         "feed_forward_length": "n_inner", "attention.head_count": "n_head"}
KEYS = {        # of an architecture -> our options
    "llama": SIZES | {"attention.head_count_kv": "n_kv_head", "rope.freq_base": "rotary_base",
                      "attention.layer_norm_rms_epsilon": "norm_eps"},
    "gpt2": SIZES | {"attention.layer_norm_epsilon": "norm_eps"}}
NEEDED = {*SIZES, "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"}
OPTIONS = {"llama": dict(position="rotary", norm="rms_gain", activation="swiglu"),
           "gpt2": dict(bias=True, activation="gelu_tanh")}
D_HEAD = ("rope.dimension_count", "attention.key_length", "attention.value_length")
PLAIN = {"vocab_size": None, "rope.scaling.type": "none", "rope.scaling.factor": 1.0,
         "expert_count": 0, "expert_used_count": 0}     # None: any value
NAMES = {       # our modules -> theirs that hold the same rows
    "token_embedding": ("token_embd",), "position_embedding": ("position_embd",),
    "blocks.{}.norm1": ("blk.{}.attn_norm",), "blocks.{}.attention.out": ("blk.{}.attn_output",),
    "blocks.{}.norm2": ("blk.{}.ffn_norm",), "blocks.{}.mlp.gate": ("blk.{}.ffn_gate",),
    "blocks.{}.mlp.up": ("blk.{}.ffn_up",), "blocks.{}.mlp.down": ("blk.{}.ffn_down",),
    "norm": ("output_norm",), "lm_head": ("output",)}
QKV = {"llama": ("blk.{}.attn_q", "blk.{}.attn_k", "blk.{}.attn_v"), "gpt2": ("blk.{}.attn_qkv",)}

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
SPLITS = {"gpt-2": BYTES, "smollm": {"type": "Sequence", "pretokenizers": [
    {"type": "Digits", "individual_digits": True}, BYTES]}}
CONTROL, USER_DEFINED = 3, 4        # gguf.TokenType
INSTEAD = "give its tokenizer.json by --tokenizer"


def read(path: str | os.PathLike, tokenizer: str | os.PathLike | None = None) -> Found:
    """Read a GGUF file.

    Parameters
    ----------
    tokenizer : a tokenizer.json to take instead of what the file says.

    Raises
    ------
    FormatError : the file is damaged, or holds what this program's Transformer cannot express, or
        a library is missing.
    """
    path = pathlib.Path(path)
    file = _naming(path, GGUFFile, path)
    architecture, config = _naming(path, _configuration, file)
    stored = stored_as(config, NAMES | {"blocks.{}.attention.qkv": QKV[architecture]},
                       shapes_of(config, len(file.tensors)))
    check_shapes(path, stored_shapes(stored), {name: t.shape for name, t in file.tensors.items()})
    _naming(path, file.check)
    tokens, said = _naming(path, _tokenizer, file.metadata, config.vocab_size, tokenizer)
    kinds = {stored.kind.name for stored in file.tensors.values()}
    said.insert(0, f"its weights are stored as {', '.join(sorted(kinds))}, and become float32")
    arrays = Lazy({name: partial(_naming, path, file.array, name) for name in file.tensors})
    return Found("GGUF file", config, as_ours(arrays, stored), tokens, said)


def _naming(path: pathlib.Path, what: Callable, *arguments: object) -> Any:
    """Call a function; name the file in the error that it raises."""
    try:
        return what(*arguments)
    except MissingLibrary:
        raise
    except ValueError as error:
        said = error if isinstance(error, FormatError) else shown(error)    # ours are bounded
        raise FormatError(f"cannot take the model of {path}: {said}") from error


def _configuration(file: GGUFFile) -> tuple[str, TransformerConfig]:
    """Return the architecture and the configuration; refuse what they cannot say."""
    architecture = file.metadata.get("general.architecture")
    if type(architecture) is not str or architecture not in KEYS:
        raise FormatError(f"its architecture is {shown(str(architecture))}, and those that can be "
                          f"expressed are {' and '.join(KEYS)}; take a model of one of them")
    prefix = architecture + "."
    stated = {key.removeprefix(prefix): value for key, value in file.metadata.items()
              if key.startswith(prefix)}
    known = KEYS[architecture]
    for key, value in stated.items():
        if not isinstance(value, int | float | str):
            raise FormatError(f"its {shown(prefix + key)} is not the same for all layers")
        if key not in {*known, *D_HEAD, *PLAIN} or key in PLAIN and PLAIN[key] not in (None, value):
            raise FormatError(f"its {shown(prefix + key)} is {shown(str(value))}, and this "
                              f"program's {architecture} has no such thing; take a model without")
    if missing := (NEEDED & known.keys()) - stated.keys():
        raise FormatError(f"it does not say its {prefix}{min(missing)}")
    if "token_embd.weight" not in file.tensors:
        raise FormatError("it has no tensor token_embd.weight")
    options = {ours: stated[key] for key, ours in known.items() if key in stated}
    config = TransformerConfig(
        file.tensors["token_embd.weight"].shape[0], **options, **OPTIONS[architecture],
        tied="output.weight" not in file.tensors,
        attention_bias=True if "blk.0.attn_q.bias" in file.tensors else None)
    for key in D_HEAD:
        if stated.get(key, config.d_head) != config.d_head:
            raise FormatError(f"its {prefix}{key} is {shown(stated[key])}, and heads of this "
                              "program have embedding_length / head_count channels, "
                              f"{config.d_head} of them")
    return architecture, replace(config, norm_eps=_short(config.norm_eps),
                                 rotary_base=_short(config.rotary_base))


def _short(number: float) -> float:
    """Return the number of the fewest digits that is the same in float32, in which it is stored."""
    return float(str(np.float32(number)))


def _tokenizer(metadata: Mapping[str, object], V: int, given: str | os.PathLike | None
               ) -> tuple[TokenTokenizer, list[str]]:
    """Return the tokenizer of V tokens, and a list of lines about it."""
    end = metadata.get("tokenizer.ggml.eos_token_id")
    if type(end) is not int or not 0 <= end < V:
        end = None
    if given is not None:
        return TokenTokenizer(text_of(given), end, V), [f"its tokens are those of {given}"]
    return TokenTokenizer(tokenizer_json(metadata), end, V), []


def tokenizer_json(metadata: Mapping[str, object]) -> str:
    """Return the tokenizer.json, as the library tokenizers reads it, of a GGUF file's byte-level
    BPE (Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units",
    section 3.2; on bytes: Radford et al. 2019, section 2.2)."""
    def stated(key, kind, otherwise=None):
        value = metadata.get(f"tokenizer.ggml.{key}", otherwise)
        if not isinstance(value, kind):
            raise FormatError(f"its tokenizer.ggml.{key} is missing or of another kind; {INSTEAD}")
        return value

    for key, known in (("model", ["gpt2"]), ("pre", [*SPLITS])):
        if (value := stated(key, str)) not in known:
            raise FormatError(f"its tokenizer.ggml.{key} is {shown(value)}, and what can be read "
                              f"is {' and '.join(known)}; {INSTEAD}")
    tokens, kinds = stated("tokens", list), stated("token_type", np.ndarray)
    if len(set(tokens)) < len(tokens) or len(kinds) != len(tokens):
        raise FormatError(f"it has not as many different tokens as kinds of them; {INSTEAD}")
    added = [dict(id=i, content=tokens[i], single_word=False, lstrip=False, rstrip=False,
                  normalized=False, special=bool(kinds[i] == CONTROL))
             for i in np.flatnonzero((kinds == CONTROL) | (kinds == USER_DEFINED)).tolist()]
    before = None
    if stated("add_bos_token", bool, False):
        first = stated("bos_token_id", int)
        if not 0 <= first < len(tokens):
            raise FormatError(f"its tokenizer.ggml.bos_token_id is no token; {INSTEAD}")
        name = tokens[first]
        sequence = [{"SpecialToken": {"id": name, "type_id": 0}},
                    {"Sequence": {"id": "A", "type_id": 0}}]
        before = {"type": "TemplateProcessing", "single": sequence,
                  "pair": [*sequence, {"Sequence": {"id": "B", "type_id": 0}}],
                  "special_tokens": {name: {"id": name, "ids": [first], "tokens": [name]}}}
    return json.dumps(dict(
        version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None,
        pre_tokenizer=SPLITS[stated("pre", str)], post_processor=before, decoder=BYTES,
        model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None,
                   end_of_word_suffix=None, fuse_unk=False, byte_fallback=False,
                   ignore_merges=False, vocab={token: i for i, token in enumerate(tokens)},
                   merges=stated("merges", list))))
