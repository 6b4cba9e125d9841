"""GGUF files, as llama.cpp runs them: a model of architecture llama or gpt2, quantised in any way.

The weights become float32.  The rows of queries and keys are in our order already, as llama.cpp
rotates neighbouring channels.

Each length that the header states is compared with the file before it is used.  (The reader of the
library gguf trusts the lengths, and makes an array of every number of the metadata.)  The library
knows how tensors are quantised.

Source: gguf/gguf_reader.py and gguf/constants.py of the library gguf; gguf_config_mapping.py,
gguf_tokenizer_mapping.py and modeling_gguf_pytorch_utils.py of transformers 5.23; llama-vocab.cpp
of llama.cpp for how a text is split before it is encoded.
"""
import json
import math
import os
import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from model.command import shown
from model.convert.families import layout, our_parameters
from model.convert.model_file import (FormatError, ModelFile, explain, read_numbers, require,
                                      text_of)
from model.convert.tokens import TokenTokenizer, tokenizer_parts
from model.transformer import TransformerConfig

LARGEST = 1 << 26       # bytes of a header; that of a vocabulary of 128,000 tokens has a tenth
NUMBERS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8",
           11: "<i8", 12: "<f8"}
TEXT, ARRAY = 8, 9

SIZES = {"block_count": "n_layer", "embedding_length": "n_embd", "context_length": "block_size",
         "feed_forward_length": "n_inner", "attention.head_count": "n_head"}
KEYS = {        # architecture -> keys, without its name -> our options
    "llama": SIZES | {"attention.head_count_kv": "n_kv_head", "rope.freq_base": "rotary_base",
                      "attention.layer_norm_rms_epsilon": "norm_eps"},
    "gpt2": SIZES | {"attention.layer_norm_epsilon": "norm_eps"}}
NEEDED = {*SIZES, "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"}
OPTIONS = {"llama": dict(position="rotary", norm="rms_gain", activation="swiglu"),
           "gpt2": dict(bias=True, activation="gelu_tanh")}
D_HEAD = ("rope.dimension_count", "attention.key_length", "attention.value_length")
PLAIN = {"rope.scaling.type": "none", "rope.scaling.factor": 1.0, "expert_count": 0,
         "expert_used_count": 0}        # the only values that can be computed
NAMES = {       # our modules -> theirs; see families.layout
    "token_embedding": "token_embd", "position_embedding": "position_embd", "blocks": "blk",
    "norm1": "attn_norm", "attention.out": "attn_output", "norm2": "ffn_norm",
    "mlp.gate": "ffn_gate", "mlp.up": "ffn_up", "mlp.down": "ffn_down", "norm": "output_norm",
    "lm_head": "output"}
QKV = {"llama": "attn_q attn_k attn_v", "gpt2": "attn_qkv"}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
SPLITS = {"gpt-2": BYTES, "smollm": {"type": "Sequence", "pretokenizers": [
    {"type": "Digits", "individual_digits": True}, BYTES]}}
CONTROL, USER_DEFINED = 3, 4        # gguf.TokenType
INSTEAD = "give its tokenizer.json by --tokenizer"


def read(path: str | os.PathLike, tokenizer: str | os.PathLike | None = None) -> ModelFile:
    """Read a GGUF file; `tokenizer` is a tokenizer.json to take instead of the one in the file.

    Raises
    ------
    FormatError : the file is damaged, or this program's Transformer cannot express its model.
    MissingLibrary : gguf or tokenizers is not installed.
    """
    what = f"cannot take the model of {path}"
    with explain(what):
        file = GGUFFile(path)
        architecture, config = _configuration(file)
        names = NAMES | {"attention.qkv": QKV[architecture]}
        weights = our_parameters("it", layout(config, names, len(file.tensors) + 1), file.tensors,
                                 explain(what)(file.array))
        end = file.metadata.get("tokenizer.ggml.eos_token_id")
        if type(end) is not int or not 0 <= end < config.vocab_size:
            end = None
        text = text_of(tokenizer) if tokenizer else tokenizer_json(file.metadata)
        tokens = TokenTokenizer(text, end, config.vocab_size)
    kinds = ", ".join(sorted({stored.kind.name for stored in file.tensors.values()}))
    notes = [f"its weights are stored as {kinds}, and become float32"]
    if tokenizer:
        notes.append(f"its tokens are those of {tokenizer}")
    return ModelFile("GGUF file", config, weights, tokens, notes)


def _configuration(file: "GGUFFile") -> tuple[str, TransformerConfig]:
    """Return the architecture and the configuration.  Refuse what they cannot express."""
    architecture = file.metadata.get("general.architecture")
    if type(architecture) is not str or architecture not in KEYS:
        raise FormatError(f"its architecture is {shown(str(architecture))}, and only "
                          f"{' and '.join(KEYS)} can be read")
    prefix, known = architecture + ".", KEYS[architecture]
    stated = {key.removeprefix(prefix): value for key, value in file.metadata.items()
              if key.startswith(prefix)}
    if missing := (NEEDED & known.keys()) - stated.keys():
        raise FormatError(f"it lacks {prefix}{min(missing)}")
    if "token_embd.weight" not in file.tensors:
        raise FormatError("it lacks the tensor token_embd.weight")
    config = TransformerConfig(
        file.tensors["token_embd.weight"].shape[0], **OPTIONS[architecture],
        **{ours: stated[key] for key, ours in known.items() if key in stated},
        tied="output.weight" not in file.tensors,
        attention_bias=True if "blk.0.attn_q.bias" in file.tensors else None)
    possible = PLAIN | dict.fromkeys(D_HEAD, config.d_head)
    for key in sorted(stated.keys() - known.keys() - {"vocab_size"}):
        if key not in possible or str(stated[key]) != str(possible[key]):
            raise FormatError(f"its {shown(prefix + key)} is {shown(str(stated[key]))}, and only "
                              f"{possible.get(key, 'a model without it')} can be computed here")
    return architecture, config


def tokenizer_json(metadata: Mapping[str, object]) -> str:
    """Return the tokenizer.json, as the library tokenizers reads it, of a GGUF file's byte-level
    BPE (Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units",
    section 3.2; on bytes: Radford et al. 2019, section 2.2)."""
    def stated(key, kind, default=None):
        value = metadata.get(f"tokenizer.ggml.{key}", default)
        if not isinstance(value, kind):
            raise FormatError(f"its tokenizer.ggml.{key} is missing or of another type; {INSTEAD}")
        return value

    for key, known in (("model", ["gpt2"]), ("pre", [*SPLITS])):
        if (value := stated(key, str)) not in known:
            raise FormatError(f"its tokenizer.ggml.{key} is {shown(value)}, and only "
                              f"{' and '.join(known)} can be read; {INSTEAD}")
    tokens, kinds = stated("tokens", list), stated("token_type", np.ndarray)
    if len(set(tokens)) < len(tokens) or len(kinds) != len(tokens):
        raise FormatError("its tokens are not all different, or do not have one type each; "
                          f"{INSTEAD}")
    added = [dict(id=i, content=tokens[i], single_word=False, lstrip=False, rstrip=False,
                  normalized=False, special=bool(kinds[i] == CONTROL))
             for i in np.flatnonzero((kinds == CONTROL) | (kinds == USER_DEFINED)).tolist()]
    before = None
    if stated("add_bos_token", bool, False):
        first = stated("bos_token_id", int)
        if not 0 <= first < len(tokens):
            raise FormatError(f"its tokenizer.ggml.bos_token_id is no token; {INSTEAD}")
        name = tokens[first]
        special = {"SpecialToken": {"id": name, "type_id": 0}}
        a, b = ({"Sequence": {"id": text, "type_id": 0}} for text in "AB")
        before = {"type": "TemplateProcessing", "single": [special, a], "pair": [special, a, b],
                  "special_tokens": {name: {"id": name, "ids": [first], "tokens": [name]}}}
    return json.dumps(tokenizer_parts(
        added_tokens=added, pre_tokenizer=SPLITS[stated("pre", str)], post_processor=before,
        decoder=BYTES, model=dict(type="BPE", vocab={token: i for i, token in enumerate(tokens)},
                                  merges=stated("merges", list))))


class Stored(NamedTuple):
    """A tensor in the file."""
    kind: int                   # gguf.GGMLQuantizationType
    shape: tuple[int, ...]
    start: int                  # byte in the file
    size: int                   # bytes


class GGUFFile:
    """A GGUF file.

    Attributes
    ----------
    metadata : key -> a number, a text, an array of numbers or a list of texts.
    tensors : name -> Stored.

    A file is refused that is of another kind or damaged, that claims more than it has, or that the
    library cannot dequantise.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self.library = require("gguf", "gguf", f"{path} is a GGUF file")
        self.path, self.length = path, os.path.getsize(path)
        with open(path, "rb") as file:
            header = _Header(file.read(LARGEST))
        if header.bytes(4) != b"GGUF":
            raise FormatError("it does not begin as a GGUF file")
        version, tensors, pairs = header.numbers("<IQQ")
        if version not in (2, 3):
            raise FormatError(f"it is of version {version} of GGUF, or of another byte order")
        self.metadata = header.named(pairs, header.value)
        stated = header.named(tensors, header.tensor)
        alignment = self.metadata.get("general.alignment", 32)
        if type(alignment) is not int or alignment < 1:
            raise FormatError("its general.alignment is not a whole number of at least 1")
        start = header.at + -header.at % alignment
        self.tensors = {name: self._stored(name, kind, shape, start + offset)
                        for name, (kind, shape, offset) in stated.items()}
        if sum(stored.size for stored in self.tensors.values()) > self.length:
            raise FormatError("its tensors share their bytes, so it is damaged")

    def _stored(self, name, kind, shape, start):
        with explain(f"{shown(name)} is quantised in a way that the installed library gguf cannot "
                     "read", errors=(ValueError, KeyError, NotImplementedError)):
            kind = self.library.GGMLQuantizationType(kind)
            block, size = self.library.GGML_QUANT_SIZES[kind]
            self._dequantize(np.zeros((1, size), np.uint8), kind)
        size *= math.prod(shape) // block
        if not shape or shape[-1] % block or not 1 <= size <= self.length - start:
            raise FormatError(f"{shown(name)} of the shape {list(shape)} claims {size:,} bytes, "
                              f"which are not in the file, or not whole blocks of {block} numbers")
        return Stored(kind, shape, start, size)

    def array(self, name: str) -> np.ndarray:
        """Return a tensor as float32."""
        kind, shape, start, size = self.tensors[name]
        rows = read_numbers(self.path, np.uint8, size, start).reshape(*shape[:-1], -1)
        return self._dequantize(rows, kind).reshape(shape)

    def _dequantize(self, rows, kind):
        with np.errstate(all="ignore"):     # scales may be inf
            return self.library.dequantize(rows, kind)


class _Header:
    """Reads values from the beginning of a file, one after the other."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def bytes(self, size: int) -> bytes:
        found = self.content[self.at:self.at + size]
        if len(found) < size:
            raise FormatError("its header claims more than the file has, or than the first "
                              f"{LARGEST:,} bytes, so it is cut short or damaged")
        self.at += size
        return found

    def numbers(self, format: str) -> tuple[int, ...]:
        return struct.unpack(format, self.bytes(struct.calcsize(format)))

    def text(self) -> str:
        with explain("a text of its header is no UTF-8, so it is damaged"):
            return self.bytes(*self.numbers("<Q")).decode("utf-8")

    def named(self, count: int, value: Callable[[], object]) -> dict[str, object]:
        """Return so many values by the name before each."""
        found = {}
        for _ in range(count):
            name = self.text()
            if name in found:
                raise FormatError(f"it holds {shown(name)} twice")
            found[name] = value()
        return found

    def value(self) -> object:
        """Return a value of the metadata."""
        (kind,) = self.numbers("<I")
        kind, count = self.numbers("<IQ") if kind == ARRAY else (kind, None)
        if kind == TEXT:
            return self.text() if count is None else [self.text() for _ in range(count)]
        if kind not in NUMBERS:
            raise FormatError(f"its header holds a value of the kind {kind}, which is not read")
        dtype = np.dtype(NUMBERS[kind])
        numbers = np.frombuffer(self.bytes((1 if count is None else count) * dtype.itemsize), dtype)
        if count is not None:
            return numbers
        # Of a float32, the number of the fewest digits that is the same in float32.
        return float(str(numbers[0])) if dtype == np.float32 else numbers[0].item()

    def tensor(self) -> tuple[int, tuple[int, ...], int]:
        """Return a tensor's kind, its shape with rows first, and its offset in the data."""
        (axes,) = self.numbers("<I")
        *shape, kind, offset = self.numbers(f"<{axes}QIQ")
        return kind, tuple(reversed(shape)), offset
