"""Write GGUF files, which llama.cpp and Ollama run: models of the architectures llama and gpt2.

Matrices are stored as float32, float16, bfloat16 or in blocks of 8-bit numbers (q8_0); what has
one axis, and the positions, as float32.  Metadata that a model brought from a GGUF file goes out
as it came, the chat template above all.

The vocabulary of a model of characters goes out as one of the tokenizer of RWKV, which takes the
longest token that a text begins with, and knows no token that ends a text.  (With llama.cpp's
gpt2, token 11 would end it.)

Source: constants.py of gguf 0.19 for keys and types; llama-vocab.cpp of llama.cpp for tokenizers.
"""
import json
import math
from collections import ChainMap
from dataclasses import asdict
from functools import partial
from types import ModuleType
from typing import NamedTuple

import numpy as np

from data.files import AnyPath
from data.tokenizer import CharTokenizer
from minigrad.words import any_of
from model.convert import families
from model.convert.gguf import (CHARACTERS, CONTROL, HF_JSON, KEYS, LISTS, NAMES, NOTE, SPLITS,
                                TOKENS, USER_DEFINED, configuration, read)
from model.convert.model_file import FormatError, Lazy, ModelFile, require

__all__ = ["KINDS", "planned", "read", "write"]

KINDS = {"f32": "ALL_F32", "f16": "MOSTLY_F16", "bf16": "MOSTLY_BF16", "q8_0": "MOSTLY_Q8_0"}
NORMAL, UNUSED = 1, 5           # gguf.TokenType
# Pairs of bytes that no text has: llama.cpp refuses a tokenizer without any merge.
NO_MERGE = "ÿ ÿ"


class Plan(NamedTuple):
    """How a model is stored."""
    model: ModelFile                            # with the weights that the file will hold
    kind: str
    library: ModuleType
    family: families.Family
    stored: dict[str, list[families.Piece]]     # our parameters -> tensors
    kinds: dict[str, int]                       # names of tensors -> gguf.GGMLQuantizationType
    brought: dict[str, dict]                    # what a GGUF file said of the model

    @property
    def kept(self) -> int:
        """The number of tensors that have the kind that they had in a GGUF file."""
        before = self.brought.get("tensors", {})
        return sum(before.get(name) == of for name, of in self.kinds.items())


def planned(model: ModelFile, kind: str) -> Plan:
    """Return how to store a model.  A tensor whose numbers the kind that it had in a GGUF file
    still holds exactly goes out in that kind; all other matrices are of the kind that is given.

    Raises
    ------
    FormatError : llama.cpp computes no such model.
    MissingLibrary : gguf is not installed.
    """
    library = require("gguf", "gguf", "GGUF files are written by it")
    family = families.family_of(model.config, llama_cpp=True)
    whole = families.complete(model.config, family)
    stored = families.layout(whole, NAMES[family.model_type])
    tensors = _tensors(model, family, stored)
    brought = getattr(model.tokenizer, "metadata", {})
    before = brought.get("tensors", {})
    kinds = {name: _kind(library, name, tensors[name], kind, before.get(name))
             for name in before | tensors.data if name in tensors.data}

    def rounded(name):
        a = np.array(model.weights[name])
        for piece in stored[name]:
            a[piece.rows] = _through(library, a[piece.rows], kinds[piece.name])
        return a
    weights = Lazy({name: partial(rounded, name) for name in model.weights})
    return Plan(model._replace(weights=weights), kind, library, family, stored, kinds, brought)


def write(path: AnyPath, model: ModelFile, plan: Plan) -> None:
    """Write the model of a plan as a GGUF file.

    Raises
    ------
    FormatError : llama.cpp has no such tokenizer.
    """
    library = plan.library
    shapes = families.their_shapes(plan.stored)
    tensors = _tensors(model, plan.family, plan.stored)
    writer = library.GGUFWriter(path, plan.family.model_type)
    try:
        del writer.kv_data[0]["general.architecture"]       # it has its place among the others
        for key, (value, *types) in _metadata(plan).items():
            writer.add_key_value(key, value, *types)
            if key == "general.alignment":
                writer.data_alignment = value
        for name, of in plan.kinds.items():
            in_bytes = library.quant_shape_to_byte_shape(shapes[name], of)
            writer.add_tensor_info(name, in_bytes, np.dtype(np.uint8), math.prod(in_bytes), of)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for name, of in plan.kinds.items():
            numbers = library.quantize(np.ascontiguousarray(tensors[name]), of)
            writer.write_tensor_data(np.ascontiguousarray(numbers).view(np.uint8))
    finally:
        writer.close()


def _tensors(model, family, stored):
    """Return the tensors of a model, with those that it lacks as numbers that change nothing."""
    neutral = families.neutral_weights(model.config, family)
    return families.their_tensors(ChainMap(neutral, model.weights), stored)


def _kind(library, name, a, kind, before):
    """Return how a tensor is stored: as before, if that holds its numbers; else blocks divide a row
    evenly, and vectors are not rounded."""
    kinds = library.GGMLQuantizationType
    if before is not None and _holds(library, a, kinds(before)):
        return kinds(before)
    if a.ndim == 1 or name.startswith("position"):
        return kinds.F32
    if kind == "q8_0" and a.shape[-1] % 32:
        return kinds.F16
    return kinds[kind.upper()]


def _through(library, a, kind):
    """Return the float32 numbers that are left of a tensor that is stored as a kind."""
    numbers = library.quantize(np.ascontiguousarray(a), kind)
    return library.dequantize(numbers, kind).reshape(a.shape)


def _holds(library, a, kind):
    """Whether a kind stores these numbers exactly.  The library cannot make blocks of each kind."""
    try:
        return bool((_through(library, a, kind) == a).all())
    except (NotImplementedError, ValueError):
        return False


def _metadata(plan):
    """Return the metadata in order: key -> (value, its type, the type of its elements)."""
    config, architecture = plan.model.config, plan.family.model_type
    whole = families.complete(config, plan.family)
    sizes = {key: getattr(whole, option) for key, option in KEYS[architecture].items()}
    sizes["vocab_size"] = whole.vocab_size
    if whole.position == "rotary":
        sizes["rope.dimension_count"] = whole.d_head
    sizes = {f"{architecture}.{key}": value for key, value in sizes.items()}
    of_kinds = {"general.file_type": int(plan.library.LlamaFileType[KINDS[plan.kind]]),
                "general.quantization_version": plan.library.GGML_QUANT_VERSION}
    tokens = _tokens(plan.model.tokenizer)
    brought = plan.brought.get("keys", {})
    theirs = {key: value for key, (value, _) in brought.items()}
    length = f"{architecture}.context_length"
    if whole.position == "rotary":      # a shorter block in fine-tuning takes no position away
        sizes[length] = max(whole.block_size, theirs.get(length, 0))
    if same := theirs.get("general.architecture") == architecture:
        anew = sizes | {key: tokens[key] for key in LISTS}
        if plan.kinds != plan.brought["tensors"]:
            anew |= of_kinds
        found = {key: anew.get(key, value) for key, value in theirs.items()}
    else:
        found = {"general.architecture": architecture} | sizes | of_kinds | tokens | theirs
    shapes = families.their_shapes(plan.stored)
    # Without, what came is of another file, such as the chat template of a folder of Hugging Face.
    if not same or NOTE in theirs or (architecture, config) != configuration(
            found, {name: np.broadcast_to(0, shape) for name, shape in shapes.items()}):
        found[NOTE] = json.dumps(asdict(config))
    types = plan.library.GGUFValueType
    return {key: (value, *(map(types, brought[key][1]) if key in brought else _types(types, value)))
            for key, value in found.items()}


def _types(types, value):
    """Return the type of a value, and that of its elements."""
    if isinstance(value, list):
        return types.ARRAY, types.get_type(value[0])
    return (types.UINT32 if type(value) is int else types.get_type(value),)


def _tokens(tokenizer):
    """Return the metadata of the tokenizer."""
    if isinstance(tokenizer, CharTokenizer):
        return _characters(tokenizer.vocabulary)
    found = json.loads(tokenizer.library_json)
    model = found["model"]
    pre = [name for name, split in SPLITS.items() if split == found["pre_tokenizer"]]
    if model["type"] != "BPE" or not pre or found["normalizer"]:
        raise FormatError("its tokenizer is no byte-level BPE that splits a text as "
                          f"{any_of([*SPLITS])}, and only such ones are written; give llama.cpp "
                          "the model's own files")
    names = {i: token for token, i in model["vocab"].items()}
    kinds = dict.fromkeys(names, NORMAL)
    for added in found["added_tokens"]:
        names[added["id"]] = added["content"]
        kinds[added["id"]] = CONTROL if added["special"] else USER_DEFINED
    every = range(tokenizer.vocab_size)
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    stated = {"model": "gpt2", "pre": pre[0],
              "tokens": [names.get(i, f"[UNUSED{i}]") for i in every],
              "token_type": [kinds.get(i, UNUSED) for i in every], "merges": merges or [NO_MERGE]}
    if tokenizer.end is not None:
        stated["eos_token_id"] = tokenizer.end
    return {TOKENS + key: value for key, value in stated.items()} | {
        HF_JSON: tokenizer.library_json}


def _characters(vocabulary):
    """Return the metadata of a vocabulary of characters, as RWKV's tokenizer writes tokens: the
    bytes of what is not printable ASCII as \\xff."""
    try:
        tokens = [c if c.isascii() and c.isprintable() and c != "\\" else
                  "".join(f"\\x{byte:02x}" for byte in c.encode()) for c in vocabulary]
    except UnicodeEncodeError:
        raise FormatError("no GGUF file can hold half a pair of surrogates; train on a text "
                          "without it") from None
    return {f"{TOKENS}model": "rwkv", CHARACTERS: vocabulary, f"{TOKENS}tokens": tokens,
            f"{TOKENS}token_type": [NORMAL] * len(tokens)}
