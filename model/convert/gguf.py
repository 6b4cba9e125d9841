"""GGUF files, as llama.cpp runs them: a model of architecture llama, qwen2, qwen3 or gpt2, however
it is quantised.

The weights become float32; a checkpoint keeps blocks that `minigrad.packed` knows as they are.  The
rows of queries and keys of a llama are in our order already, as llama.cpp rotates neighbouring
channels there; those of a qwen2 or qwen3 are not.

The library gguf reads the file, and knows how tensors are quantised.

Source: gguf_config_mapping.py, gguf_tokenizer_mapping.py and modeling_gguf_pytorch_utils.py of
transformers 5.23; llama-vocab.cpp of llama.cpp for how a text is split before it is encoded.
"""
import json
import math
import os
from collections.abc import Mapping
from functools import partial

import numpy as np

from data.files import AnyPath
from data.tokenizer import CharTokenizer
from minigrad.ops import rotary_frequencies, slowing
from minigrad.packed import BLOCKS, NUMBERS
from minigrad.words import shown
from model.answers import command_line
from model.config import TransformerConfig
from model.convert import families
from model.convert.gguf_tokens import CHARACTERS, HF_JSON, TOKENS, ends_of, tokenizer_json
from model.convert.model_file import (FormatError, ModelFile, Stored, explain, read_numbers,
                                      require, text_of)
from model.convert.tokens import TokenTokenizer, with_metadata

KEYS = {        # our options -> keys, without the architecture
    "n_layer": "block_count", "n_embd": "embedding_length", "block_size": "context_length",
    "n_inner": "feed_forward_length", "n_head": "attention.head_count"}
REPEATS = {"vocab_size": "vocab_size", "rope.dimension_count": "d_head",
           "attention.key_length": "d_head", "attention.value_length": "d_head"}
FIXED = {"rope.scaling.type": "none", "rope.scaling.factor": 1.0, "attention.causal": True}
NAMES = {       # our modules -> theirs; see families.Family
    "token_embedding": "token_embd", "position_embedding": "position_embd",
    "norm1": "blk.{}.attn_norm", "attention.out": "blk.{}.attn_output",
    "norm2": "blk.{}.ffn_norm", "mlp.gate": "blk.{}.ffn_gate", "mlp.up": "blk.{}.ffn_up",
    "mlp.down": "blk.{}.ffn_down", "norm": "output_norm", "lm_head": "output"}


LLAMA = families.LLAMA._replace(
    keys=KEYS | {"n_kv_head": "attention.head_count_kv", "rotary_base": "rope.freq_base",
                 "head_dim": "attention.key_length",
                 "norm_eps": "attention.layer_norm_rms_epsilon"},
    repeats=REPEATS, fixed=FIXED, in_halves=False,
    defaults={"attention.head_count_kv": None, "attention.key_length": None,
              "rope.freq_base": TransformerConfig.rotary_base},
    names=NAMES | {"attention.qkv": "blk.{0}.attn_q blk.{0}.attn_k blk.{0}.attn_v"})
QWEN2 = families.QWEN2._replace(
    keys=LLAMA.keys, repeats=REPEATS, fixed=FIXED, defaults=LLAMA.defaults, names=LLAMA.names)
QWEN3 = families.QWEN3._replace(
    keys=LLAMA.keys, repeats=REPEATS, fixed=FIXED, defaults=LLAMA.defaults,
    names=LLAMA.names | {"attention.query_norm": "blk.{}.attn_q_norm",
                         "attention.key_norm": "blk.{}.attn_k_norm"})
GPT2 = families.GPT2._replace(
    keys=KEYS | {"norm_eps": "attention.layer_norm_epsilon"}, repeats=REPEATS, fixed=FIXED,
    defaults={}, activations={"gelu_tanh": ""}, conv1d=False,
    names=NAMES | {"attention.qkv": "blk.{}.attn_qkv"})
FAMILIES = {"llama": LLAMA, "qwen2": QWEN2, "qwen3": QWEN3, "gpt2": GPT2}
ROPE_FREQS = "rope_freqs.weight"    # how many times as slowly each pair of channels turns
LENGTH = "rope.scaling.original_context_length"     # of RotaryScaling
BIASES = {"attention_bias": "attn_q", "mlp_bias": "ffn_up"}     # options -> what has them in Llamas
ARRAY = 9                           # gguf.GGUFValueType
MOST_AXES = 4                       # of a tensor of llama.cpp
TABLE = "token_embd.weight"
NOTE = "minigrad.config"            # a key of our own
LISTS = (f"{TOKENS}tokens", f"{TOKENS}merges")  # which a tokenizer.json has, too


def read(path: AnyPath, tokenizer: AnyPath | None = None) -> ModelFile:
    """Read a GGUF file; `tokenizer` is a tokenizer.json to take instead of the one in the file.

    Raises
    ------
    FormatError : the file is damaged, or this program's Transformer cannot express its model.
    MissingLibrary : gguf or tokenizers is not installed.
    """
    library = require("gguf", "gguf", f"{path} is a GGUF file")
    explained = partial(explain, f"cannot take the model of {path}", errors=Exception)  # any kind
    with explained():
        file = _opened(library, path)
        metadata = {key: _value(library, field) for key, field in file.fields.items()}
        if (parts := metadata.get("split.count", 1)) not in (0, 1):
            raise FormatError(f"it is a part of a model that is split into {shown(parts)} files; "
                              "join them with llama-gguf-split --merge of llama.cpp")
        tensors = {}
        for each in file.tensors:
            shape = tuple(each.shape[::-1].tolist())
            tensors[each.name] = Stored(shape, explained()(partial(
                _array, library, path, each.tensor_type, shape, each.data_offset, each.n_bytes)))
        config, family = configuration(metadata, tensors)
        if family is LLAMA:
            tensors.pop(ROPE_FREQS, None)       # which is in the configuration
        weights = families.our_parameters(config, family, tensors)
        config, weights = families.as_noted(json.loads(metadata.get(NOTE, "null")), config, weights,
                                            family, FAMILIES)
        # What `to_gguf` writes again.
        keys = {key: (None if key in LISTS and value else value, _types(key, file.fields[key]))
                for key, value in metadata.items() if not key.startswith("GGUF.")}
        kinds = {each.name: int(each.tensor_type) for each in file.tensors}
        tokens = _tokenizer(metadata, {"keys": keys, "tensors": kinds}, tokenizer,
                            config.vocab_size)
    kinds = ", ".join(sorted({each.tensor_type.name for each in file.tensors}))
    notes = [f"its weights are stored as {kinds}; a checkpoint keeps matrices of "
             f"{', '.join(BLOCKS)}, and all else becomes float32"]
    if tokenizer:
        notes.append(f"its tokens are those of {tokenizer}")
    return ModelFile("GGUF file", config, weights, tokens, notes)


def _tokenizer(metadata, brought, file, vocab_size):
    """Return the tokenizer of a file named on the command line, or else of the metadata, with all
    that the GGUF file said; beside a file's, without what it said of its own tokenizer but the ids
    of special tokens."""
    if CHARACTERS in metadata and not file:
        return CharTokenizer.of(metadata[CHARACTERS], vocab_size)
    ends = ends_of(metadata, vocab_size)
    if file:
        keys = {key: value for key, value in brought["keys"].items()
                if key not in (HF_JSON, CHARACTERS)
                and (not key.startswith(TOKENS) or key.endswith("_token_id"))}
        text = with_metadata(text_of(file), brought | {"keys": keys})
        return TokenTokenizer(text, ends, vocab_size)
    with explain("its tokenizer cannot be read", "give its tokenizer.json by --tokenizer",
                 Exception):
        ours = NOTE in metadata and HF_JSON in metadata
        text = metadata[HF_JSON] if ours else tokenizer_json(metadata)
        return TokenTokenizer(with_metadata(text, brought), ends, vocab_size)


def _opened(library, path):
    """Return the library's reader of a file.  Refuse what is not in the file, and tensors that do
    not follow one another: each begins at the first place after the one before it that the file's
    alignment allows, as llama.cpp reads and writes them."""
    size = os.path.getsize(path)
    if not size:        # which cannot be mapped into memory
        raise FormatError("it is empty; fetch it again")

    class Reader(library.GGUFReader):
        def _get(self, offset, dtype, count=1, override_order=None):
            # NumPy refuses a count beyond the end; the library would take what is there.
            if self.byte_order == "S":      # the library has seen a swapped version
                raise FormatError("its GGUF.version is big-endian, and only little-endian files "
                                  "are read; convert it with the library's gguf-convert-endian")
            try:
                return np.frombuffer(self.data, dtype, int(count), int(offset))
            except (ValueError, OverflowError):
                *_, last = ["GGUF.version", *getattr(self, "fields", {})]
                raise FormatError("it ends before what it says it holds, after the key "
                                  f"{shown(last)}; it was cut or is damaged, so fetch it again"
                                  ) from None

        def _get_field_parts(self, offset, kind):
            if kind not in VALUES:
                *_, last = self.fields
                raise FormatError(f"after the key {shown(last)} it has a value of the kind {kind}, "
                                  "which GGUF does not have; it is damaged, so fetch it again")
            return super()._get_field_parts(offset, kind)

        def _build_tensors(self, start, fields):
            places = [_place(library, *field.parts[1:]) for field in fields]
            expected = 0
            for offset, size_of, name in sorted(places):
                if offset != expected:
                    raise FormatError(f"its tensor {shown(name)} begins at byte {offset:,} of the "
                                      f"tensors, and not at {expected:,}, where the one before it "
                                      "ends; it is damaged, so fetch it again")
                end = start + offset + size_of
                if end > size:
                    raise FormatError(f"its tensor {shown(name)} ends {end - size:,} bytes after "
                                      "the file; it was cut or is damaged, so fetch it again")
                expected = library.GGUFWriter.ggml_pad(offset + size_of, int(self.alignment))
            if self.data[start + expected:].any():      # zeros may fill the end
                raise FormatError("it goes on after the end of its last tensor; it is damaged, so "
                                  "fetch it again")
            super()._build_tensors(start, fields)

    VALUES = frozenset(map(int, library.GGUFValueType))
    return Reader(path)


def _place(library, name, axes, shape, kind, offset):
    """Return where a tensor begins, its bytes and its name, of the parts of its description."""
    name = str(bytes(name), "utf-8")
    kind, = map(int, kind)
    if len(shape) > MOST_AXES:
        raise FormatError(f"its tensor {shown(name)} has {len(shape)} axes, and {MOST_AXES} are "
                          "the most; it is damaged, so fetch it again")
    if kind not in [*map(int, library.GGMLQuantizationType)]:
        raise FormatError(f"its tensor {shown(name)} is of the kind {kind}, which the library gguf "
                          "here does not know; if it is a newer kind, update the library with "
                          f"{command_line('pip', 'install', '-U', 'gguf')}, else fetch the file "
                          "again")
    kind = library.GGMLQuantizationType(kind)
    numbers, size = library.GGML_QUANT_SIZES[kind]
    if left := sum(shape[:1]) % numbers:
        raise FormatError(f"its tensor {shown(name)} has {left} numbers in a row beyond whole "
                          f"blocks of {kind.name}; it is damaged, so fetch it again")
    return int(offset[0]), math.prod(shape.tolist()) // numbers * size, name


def _value(library, field):
    """Return the value of a key; of a float32, the fewest digits that give it."""
    value = field.contents()
    is_float = field.types == [library.GGUFValueType.FLOAT32]
    return float(str(np.float32(value))) if is_float else value


def _types(key, field):
    """Return the number of a field's type and, of an array, of its elements' type."""
    types = [*map(int, field.types[:2])]
    if types == [ARRAY]:        # it is empty; the field's own type is the third part
        types.append(int(field.parts[3][0]))
    if types == [ARRAY, ARRAY]:
        raise FormatError(f"its {shown(key)} is an array of arrays, which llama.cpp does not read "
                          "either; take a file without it")
    return types


def metadata_of(path: AnyPath) -> dict[str, object]:
    """Return the metadata of a file that was written."""
    library = require("gguf", "gguf", f"{path} is a GGUF file")
    return {key: _value(library, field) for key, field in _opened(library, path).fields.items()}


def _array(library, path, kind, shape, start, size):
    """Return the blocks of a matrix, or numbers as float32."""
    if len(shape) == 2 and kind.name in BLOCKS and shape[1] % NUMBERS[kind.name] == 0:
        block = BLOCKS[kind.name]
        return read_numbers(path, block, size // block.itemsize, start).reshape(shape[0], -1)
    rows = read_numbers(path, np.uint8, size, start).reshape(*shape[:-1], -1)
    with np.errstate(all="ignore"):     # scales may be inf
        return library.dequantize(rows, kind).reshape(shape)


def configuration(metadata: Mapping[str, object], tensors: Mapping[str, Stored]
                  ) -> tuple[TransformerConfig, families.Family]:
    """Return the configuration and its class.  Refuse what they cannot express."""
    architecture = metadata.get("general.architecture")
    family = FAMILIES.get(architecture)
    if not family:
        families.refuse("it", "general.architecture", architecture, *FAMILIES)
    if TABLE not in tensors:
        raise FormatError(f"it lacks the tensor {TABLE}; fetch it again")
    prefix = f"{architecture}."
    stated = {key.removeprefix(prefix): value for key, value in metadata.items()
              if key.startswith(prefix)}
    known = {"vocab_size": tensors[TABLE].shape[0], "tied": "output.weight" not in tensors,
             "activation": next(iter(family.activations))}
    if family is LLAMA:     # which has them or not; those of GPT-2 are in every file
        known |= {option: True for option, module in BIASES.items()
                  if f"blk.0.{module}.bias" in tensors}
        if "attention_bias" in known:
            known["attention_out_bias"] = "blk.0.attn_output.bias" in tensors
    if ROPE_FREQS in tensors and family is LLAMA:
        known["rotary_length"] = stated.pop(LENGTH, TransformerConfig.rotary_length)
        freqs = tensors[ROPE_FREQS].read()
        known["rotary_factor"] = float(freqs.max(initial=1))
    config = families.configuration(f"its {architecture}", stated, family, **known)
    if config.rotary_scaling is not None and not _same_slowing(config, freqs):
        raise FormatError(f"its {ROPE_FREQS} slows rotations otherwise than Llama 3's rule does, "
                          "which alone can be computed here; take another model")
    return config, family


def _same_slowing(config, stored):
    """Whether a tensor slows rotations as the configuration says, but for rounding."""
    return stored.shape == (config.d_head // 2,) and np.allclose(rope_freqs(config), stored, 1e-5)


def rope_freqs(config: TransformerConfig) -> np.ndarray:
    """Return how many times as slowly each pair of channels turns, (D / 2,)."""
    frequencies = rotary_frequencies(config.d_head, config.rotary_base)
    return slowing(frequencies, config.rotary_scaling).astype(np.float32)
