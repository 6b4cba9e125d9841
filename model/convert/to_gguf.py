"""Write GGUF files, which llama.cpp and Ollama run: models of the architectures llama and gpt2.

Matrices are stored as float32, float16, bfloat16 or in blocks of 8-bit numbers (q8_0); what has
one axis, and the positions, as float32.  Metadata that a model brought from a GGUF file goes out
as it came, the chat template above all.

The vocabulary of a model of characters goes out as one of the tokenizer of RWKV, which takes the
longest token that a text begins with, and knows no token that ends a text.  (With llama.cpp's
gpt2, token 11 would end it.)

Source: constants.py of gguf 0.19 for keys and types; llama-vocab.cpp of llama.cpp for tokenizers.
"""
import contextlib
import json
import math
from dataclasses import asdict
from functools import partial

import numpy as np

from data.files import AnyPath
from data.tokenizer import CharTokenizer
from minigrad.words import any_of, number_of
from model.convert import families
from model.convert.gguf import (CHARACTERS, CONTROL, FAMILIES, HF_JSON, NOTE, SPLITS, TOKENS,
                                USER_DEFINED, configuration, read)
from model.convert.model_file import FormatError, Held, Lazy, ModelFile, explain, require

__all__ = ["KINDS", "read", "write"]

KINDS = {"f32": "ALL_F32", "f16": "MOSTLY_F16", "bf16": "MOSTLY_BF16", "q8_0": "MOSTLY_Q8_0"}
NORMAL, UNUSED = 1, 5           # gguf.TokenType
# Pairs of bytes that no text has: llama.cpp refuses a tokenizer without any merge.
NO_MERGE = "ÿ ÿ"


def write(path: AnyPath, model: ModelFile, kind: str | None = None) -> Held:
    """Write a model as a GGUF file.

    A tensor whose numbers the kind that it had in a GGUF file still holds exactly goes out in that
    kind; all other matrices are of the kind that is given, or else f16.

    Raises
    ------
    FormatError : llama.cpp computes no such model, or has no such tokenizer.
    MissingLibrary : gguf is not installed.
    """
    library = require("gguf", "gguf", "GGUF files are written by it")
    family = families.family_of(model.config, FAMILIES)
    tensors = families.their_tensors(model.config, model.weights, family)
    before = getattr(model.tokenizer, "metadata", {}).get("tensors", {})
    kinds = {name: _kind(library, name, tensors[name], kind or "f16", before.get(name))
             for name in before | tensors if name in tensors}
    of_kinds = {}       # what is said of them, if they are not those of before
    if kinds != before:
        of_kinds = {"general.file_type": int(library.LlamaFileType[KINDS[kind or "f16"]]),
                    "general.quantization_version": library.GGML_QUANT_VERSION}
    writer = library.GGUFWriter(path, family.name)
    try:
        del writer.kv_data[0]["general.architecture"]       # it has its place among the others
        for key, (value, *types) in _metadata(library, model, family, tensors, of_kinds).items():
            writer.add_key_value(key, value, *types)
            if key == "general.alignment":
                writer.data_alignment = value
        for name, of in kinds.items():
            shape = tensors[name].shape
            size = math.prod(library.quant_shape_to_byte_shape(shape, of))
            writer.add_tensor_info(name, shape, np.dtype(np.float32), size, of)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for name, of in kinds.items():
            numbers = library.quantize(np.ascontiguousarray(tensors[name].read()), of)
            writer.write_tensor_data(np.ascontiguousarray(numbers).view(np.uint8))
    finally:
        writer.close()
    kept = sum(before.get(name) == of for name, of in kinds.items())
    notes = [f"kept        {kept:,} of {number_of(len(kinds), 'tensor')} in the kind that they "
             f"had, which holds their numbers exactly; --as {kind} is for the others"]
    return Held(_rounded(library, model, family, kinds), notes if kind and kept else [])


def _kind(library, name, tensor, kind, before):
    """Return how a tensor is stored: as before, if that holds its numbers; else blocks divide a row
    evenly, and vectors are not rounded."""
    kinds = library.GGMLQuantizationType
    if before is not None:
        a = tensor.read()
        # The library cannot make blocks of each kind.
        with contextlib.suppress(NotImplementedError, ValueError):
            if (_through(library, a, before) == a).all():
                return kinds(before)
    if len(tensor.shape) == 1 or name.startswith("position"):
        return kinds.F32
    if kind == "q8_0" and tensor.shape[-1] % 32:
        return kinds.F16
    return kinds[kind.upper()]


def _through(library, a, kind):
    """Return the float32 numbers that are left of a tensor that is stored as a kind."""
    kind = library.GGMLQuantizationType(kind)
    numbers = library.quantize(np.ascontiguousarray(a), kind)
    return library.dequantize(numbers, kind).reshape(a.shape)


def _rounded(library, model, family, kinds):
    """Return the weights that are left of a model whose tensors are stored as these kinds."""
    stored = families.layout(families.complete(model.config, family), family)

    def make(name):
        a = np.array(model.weights[name])
        for piece in stored[name]:
            a[piece.rows] = _through(library, a[piece.rows], kinds[piece.name])
        return a
    return Lazy({name: partial(make, name) for name in model.weights})


def _metadata(library, model, family, tensors, of_kinds):
    """Return the metadata in order: key -> (value, its type, the type of its elements)."""
    config = model.config
    brought = getattr(model.tokenizer, "metadata", {}).get("keys", {})
    theirs = {key: value for key, (value, _) in brought.items()}
    sizes = {f"{family.name}.{key}": value
             for key, value in families.settings(config, family).items()}
    length = f"{family.name}.context_length"
    if config.position == "rotary":     # a shorter block in fine-tuning takes no position away
        sizes[length] = max(config.block_size, theirs.get(length, 0))
    tokens = _tokens(model.tokenizer)
    anew = sizes | of_kinds
    same = theirs.get("general.architecture") == family.name
    if same:        # what the file had, in its order, of this model
        found = {key: tokens[key] if value is None else anew.get(key, value)
                 for key, value in theirs.items()}
    else:
        found = {"general.architecture": family.name} | tokens | theirs | anew
    # Without, what came is of another file, such as the chat template of a folder of Hugging Face.
    if not same or NOTE in theirs or config != configuration(found, tensors)[0]:
        found[NOTE] = json.dumps(asdict(config))
    types = library.GGUFValueType

    def types_of(key, value):
        if key in brought:
            return map(types, brought[key][1])
        return [types.UINT32 if type(value) is int else types.get_type(value)]
    return {key: (value, *types_of(key, value)) for key, value in found.items()}


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
    """Return the metadata of a vocabulary of characters, as RWKV's tokenizer writes tokens: bytes
    as \\xff."""
    with explain("no GGUF file can hold half a pair of surrogates", "train on a text without it",
                 UnicodeEncodeError):
        tokens = ["".join(f"\\x{byte:02x}" for byte in c.encode()) for c in vocabulary]
    return {f"{TOKENS}model": "rwkv", CHARACTERS: vocabulary, f"{TOKENS}tokens": tokens,
            f"{TOKENS}token_type": [NORMAL] * len(tokens)}
