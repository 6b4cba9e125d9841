"""GGUF files, as llama.cpp runs them: a model of architecture llama or gpt2, quantised in any way.

The weights become float32; a checkpoint keeps blocks that `minigrad.packed` knows as they are.  The
rows of queries and keys are in our order already, as llama.cpp rotates neighbouring channels.

The library gguf reads the file, and knows how tensors are quantised.

Source: gguf_config_mapping.py, gguf_tokenizer_mapping.py and modeling_gguf_pytorch_utils.py of
transformers 5.23; llama-vocab.cpp of llama.cpp for how a text is split before it is encoded.
"""
import json
import os
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from data.files import AnyPath
from data.tokenizer import CharTokenizer
from minigrad.packed import BLOCKS, NUMBERS
from minigrad.words import shown
from model.convert.families import (FAMILIES, as_noted, first_activation, layout,
                                    our_parameters)
from model.convert.model_file import (FormatError, ModelFile, explain, read_numbers, require,
                                      text_of)
from model.convert.tokens import TokenTokenizer, tokenizer_parts, with_metadata
from model.config import TransformerConfig

SIZES = {"block_count": "n_layer", "embedding_length": "n_embd", "context_length": "block_size",
         "feed_forward_length": "n_inner", "attention.head_count": "n_head"}
KEYS = {        # architecture -> keys, without its name -> our options
    "llama": SIZES | {"attention.head_count_kv": "n_kv_head", "rope.freq_base": "rotary_base",
                      "attention.layer_norm_rms_epsilon": "norm_eps"},
    "gpt2": SIZES | {"attention.layer_norm_epsilon": "norm_eps"}}
OPTIONAL = {"attention.head_count_kv", "rope.freq_base"}
D_HEAD = ("rope.dimension_count", "attention.key_length", "attention.value_length")
PLAIN = {"rope.scaling.type": "none", "rope.scaling.factor": 1.0, "expert_count": 0,
         "expert_used_count": 0}        # the only values that can be computed
COMMON = {
    "token_embedding": "token_embd", "position_embedding": "position_embd", "blocks": "blk",
    "norm1": "attn_norm", "attention.out": "attn_output", "norm2": "ffn_norm",
    "mlp.gate": "ffn_gate", "mlp.up": "ffn_up", "mlp.down": "ffn_down", "norm": "output_norm",
    "lm_head": "output"}
NAMES = {       # architecture -> our modules -> theirs; see families.layout
    "llama": COMMON | {"attention.qkv": "attn_q attn_k attn_v"},
    "gpt2": COMMON | {"attention.qkv": "attn_qkv"}}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
SPLITS = {"gpt-2": BYTES, "smollm": {"type": "Sequence", "pretokenizers": [
    {"type": "Digits", "individual_digits": True}, BYTES]}}
CONTROL, USER_DEFINED = 3, 4        # gguf.TokenType
TOKENS = "tokenizer.ggml."          # how keys of the tokenizer begin
HF_JSON = "tokenizer.huggingface.json"
NOTE, CHARACTERS = "minigrad.config", "minigrad.characters"     # keys of our own
LISTS = (f"{TOKENS}tokens", f"{TOKENS}merges")  # which a tokenizer.json has, too


def read(path: AnyPath, tokenizer: AnyPath | None = None) -> ModelFile:
    """Read a GGUF file; `tokenizer` is a tokenizer.json to take instead of the one in the file.

    Raises
    ------
    FormatError : the file is damaged, or this program's Transformer cannot express its model.
    MissingLibrary : gguf or tokenizers is not installed.
    """
    library = require("gguf", "gguf", f"{path} is a GGUF file")
    what = f"cannot take the model of {path}"
    with explain(what, errors=Exception):       # of many kinds, depending on the damage
        metadata, types, tensors = _contents(library, path)
        architecture, config = configuration(metadata, tensors)
        weights = our_parameters(
            "it", layout(config, NAMES[architecture], len(tensors)), tensors, explain(
                what, errors=Exception)(lambda name: _array(library, path, tensors[name])))
        config, weights = as_noted(json.loads(metadata.get(NOTE, "null")), config,
                                   FAMILIES[architecture], weights)
        # What `to_gguf` writes again.
        keys = {key: (None if key in LISTS else value, types[key])
                for key, value in metadata.items() if not key.startswith("GGUF.")}
        kinds = {name: int(stored.kind) for name, stored in tensors.items()}
        tokens = _tokenizer(metadata, {"keys": keys, "tensors": kinds}, tokenizer,
                            config.vocab_size)
    kinds = ", ".join(sorted({stored.kind.name for stored in tensors.values()}))
    notes = [f"its weights are stored as {kinds}; a checkpoint keeps matrices of "
             f"{', '.join(BLOCKS)}, and all else becomes float32"]
    if tokenizer:
        notes.append(f"its tokens are those of {tokenizer}")
    return ModelFile("GGUF file", config, weights, tokens, notes)


def _tokenizer(metadata, brought, file, vocab_size):
    """Return the tokenizer of a file named on the command line, or else of the metadata, with all
    that the GGUF file said."""
    if CHARACTERS in metadata and not file:
        return CharTokenizer.of(metadata[CHARACTERS], vocab_size)
    end = metadata.get(f"{TOKENS}eos_token_id")
    if type(end) is not int or not 0 <= end < vocab_size:
        end = None
    if file:
        return TokenTokenizer(text_of(file), end, vocab_size)
    with explain("its tokenizer cannot be read", "give its tokenizer.json by --tokenizer",
                 Exception):
        ours = NOTE in metadata and HF_JSON in metadata
        text = metadata[HF_JSON] if ours else tokenizer_json(metadata)
        return TokenTokenizer(with_metadata(text, brought), end, vocab_size)


class Stored(NamedTuple):
    """A tensor in the file."""
    kind: int                   # gguf.GGMLQuantizationType
    shape: tuple[int, ...]
    start: int                  # byte in the file
    size: int                   # bytes


def _contents(library, path):
    """Return the metadata, its types and the tensors, by name.  Refuse what is not in the file."""
    class Reader(library.GGUFReader):
        def _get(self, offset, dtype, count=1, override_order=None):
            # NumPy refuses a count beyond the end; the library would take what is there.
            if self.byte_order == "S":      # the library has seen a swapped version
                raise FormatError("its GGUF.version is big-endian, and only little-endian files "
                                  "are read; convert it with the library's gguf-convert-endian")
            try:
                return np.frombuffer(self.data, dtype, int(count), int(offset))
            except ValueError:
                *_, last = ["GGUF.version", *getattr(self, "fields", {})]
                raise FormatError("it ends before what it says it holds, after the key "
                                  f"{shown(last)}; it was cut or is damaged, so fetch it again"
                                  ) from None

    if not os.path.getsize(path):       # which cannot be mapped into memory
        raise FormatError("it is empty; fetch it again")
    file = Reader(path)
    metadata = {name: field.contents() for name, field in file.fields.items()}
    for name, field in file.fields.items():     # of a float32, the fewest digits that give it
        if field.types == [library.GGUFValueType.FLOAT32]:
            metadata[name] = float(str(np.float32(metadata[name])))
    tensors = {tensor.name: Stored(tensor.tensor_type, tuple(tensor.shape[::-1].tolist()),
                                   tensor.data_offset, tensor.n_bytes) for tensor in file.tensors}
    if sum(stored.size for stored in tensors.values()) > os.path.getsize(path):
        raise FormatError("its tensors share their bytes, so it is damaged")
    types = {name: [int(kind) for kind in field.types[:2]] for name, field in file.fields.items()}
    return metadata, types, tensors


def _array(library, path, stored):
    """Return the blocks of a matrix, or numbers as float32."""
    kind, shape, start, size = stored
    if len(shape) == 2 and kind.name in BLOCKS and shape[1] % NUMBERS[kind.name] == 0:
        block = BLOCKS[kind.name]
        return read_numbers(path, block, size // block.itemsize, start).reshape(shape[0], -1)
    rows = read_numbers(path, np.uint8, size, start).reshape(*shape[:-1], -1)
    with np.errstate(all="ignore"):     # scales may be inf
        return library.dequantize(rows, kind).reshape(shape)


def configuration(metadata: Mapping[str, object], tensors: Mapping[str, object]
                  ) -> tuple[str, TransformerConfig]:
    """Return the architecture and the configuration.  Refuse what they cannot express."""
    architecture = metadata.get("general.architecture")
    if architecture not in KEYS:
        raise FormatError(f"its architecture is {shown(str(architecture))}, and only "
                          f"{' and '.join(KEYS)} can be read")
    prefix, known = architecture + ".", KEYS[architecture]
    stated = {key.removeprefix(prefix): value for key, value in metadata.items()
              if key.startswith(prefix)}
    if missing := known.keys() - OPTIONAL - stated.keys():
        raise FormatError(f"it lacks {prefix}{min(missing)}")
    if "token_embd.weight" not in tensors:
        raise FormatError("it lacks the tensor token_embd.weight")
    family = FAMILIES[architecture]
    options = family.options | {ours: stated[key] for key, ours in known.items() if key in stated}
    if "blk.0.attn_q.bias" in tensors:
        options["attention_bias"] = True
    config = TransformerConfig(
        tensors["token_embd.weight"].shape[0], **options, activation=first_activation(family),
        tied="output.weight" not in tensors)
    if "rope_freqs.weight" in tensors:
        raise FormatError("it has rope_freqs.weight, by which Llama 3.1 and later models scale the "
                          "rotary angles (rope_scaling of the type llama3), and only a model "
                          "without it can be computed here")
    possible = PLAIN | dict.fromkeys(D_HEAD, config.d_head) | {"vocab_size": config.vocab_size}
    for key in sorted(stated.keys() - known.keys()):
        if key not in possible or str(stated[key]) != str(possible[key]):
            raise FormatError(f"its {shown(prefix + key)} is {shown(str(stated[key]))}, and only "
                              f"{possible.get(key, 'a model without it')} can be computed here")
    return architecture, config


def tokenizer_json(metadata: Mapping[str, object]) -> str:
    """Return the tokenizer.json, as the library tokenizers reads it, of a GGUF file's byte-level
    BPE (Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units",
    section 3.2; on bytes: Radford et al. 2019, section 2.2)."""
    stated = {key.removeprefix("tokenizer.ggml."): value for key, value in metadata.items()}
    for key, known in (("model", ["gpt2"]), ("pre", [*SPLITS])):
        if (value := stated.get(key)) not in known:
            raise FormatError(f"its tokenizer.ggml.{key} is {shown(str(value))}, and only "
                              f"{' and '.join(known)} can be read")
    tokens, kinds = stated["tokens"], stated["token_type"]
    if len(set(tokens)) < len(tokens) or len(kinds) != len(tokens):
        raise FormatError("its tokens are not all different, or do not have one type each")
    added = [dict(id=i, content=token, single_word=False, lstrip=False, rstrip=False,
                  normalized=False, special=kind == CONTROL)
             for i, (token, kind) in enumerate(zip(tokens, kinds))
             if kind in (CONTROL, USER_DEFINED)]
    before = None
    if stated.get("add_bos_token"):
        name = tokens[first := stated["bos_token_id"]]
        special = {"SpecialToken": {"id": name, "type_id": 0}}
        a, b = ({"Sequence": {"id": text, "type_id": 0}} for text in "AB")
        before = {"type": "TemplateProcessing", "single": [special, a], "pair": [special, a, b],
                  "special_tokens": {name: {"id": name, "ids": [first], "tokens": [name]}}}
    return json.dumps(tokenizer_parts(
        added_tokens=added, pre_tokenizer=SPLITS[stated["pre"]], post_processor=before,
        decoder=BYTES, model=dict(type="BPE", vocab={token: i for i, token in enumerate(tokens)},
                                  merges=stated["merges"])))
