"""Write GGUF files, which llama.cpp and Ollama run: models of the architectures llama, qwen2,
qwen3 and gpt2.

Matrices are stored as float32, float16, bfloat16 or in blocks of 8-bit numbers (q8_0); what has
one axis, and the positions, as float32.  Metadata that a model brought from a GGUF file goes out
as it came, the chat template above all.

Source: constants.py of gguf 0.19 for keys and types.
"""
import contextlib
import json
import math
import struct
from dataclasses import asdict
from functools import partial

import numpy as np

from data.files import AnyPath
from minigrad.packed import kind_of
from minigrad.words import any_of, shown
from model.config import TransformerConfig
from model.convert import families
from model.convert.gguf import (ARRAY, FAMILIES, LENGTH, NOTE, ROPE_FREQS, configuration,
                                metadata_of, read, rope_freqs)
from model.convert.gguf_tokens import TOKENS, check, keys_of, without_end
from model.convert.model_file import (AsStored, FormatError, Held, ModelFile, Stored, check_finite,
                                      explain, require)

__all__ = ["KINDS", "read", "write"]

KINDS = {"f32": "ALL_F32", "f16": "MOSTLY_F16", "bf16": "MOSTLY_BF16", "q8_0": "MOSTLY_Q8_0"}
USUAL = "f16"
# The sizes of numbers up to which a kind makes 0 of all, and from which on inf.  The largest number
# of a block of q8_0 is 127 times its scale, an f16.
LIMITS = {"f32": (0, math.inf), "f16": (2.0 ** -25, (2 - 2.0 ** -11) * 2.0 ** 15),
          "bf16": (2.0 ** -134, (2 - 2.0 ** -8) * 2.0 ** 127),
          "q8_0": (127 * 2.0 ** -25, 127 * (2 - 2.0 ** -11) * 2.0 ** 15)}
# Shares of a number, or of the largest in its block, by which it may be rounded.  (2^-20 is for
# float32, in which a block is made.)
SHARES = {"f16": 2.0 ** -11, "bf16": 2.0 ** -8, "q8_0": 1 / 254 + 2.0 ** -11 + 2.0 ** -20}
BLOCK = 32                      # numbers of a block of q8_0
ROWS = 1024                     # of a matrix, that are compared at a time
STRING = 8                      # gguf.GGUFValueType


def write(path: AnyPath, model: ModelFile, kind: str | None = None) -> Held:
    """Write a model as a GGUF file, with all matrices of a kind.

    Without a kind, a tensor whose numbers the kind that it had in a GGUF file still holds exactly
    goes out in that kind, and all other matrices are f16.

    Raises
    ------
    FormatError : llama.cpp computes no such model, or has no such tokenizer; or a matrix has
        numbers that are too large for its kind, or all too small.
    MissingLibrary : gguf is not installed.
    """
    library = require("gguf", "gguf", "GGUF files are written by it")
    family = families.family_of(model.config, FAMILIES)
    tensors = families.their_tensors(model.config, model.weights, family)
    tensors |= _slowing(model.config, family)
    before = getattr(model.tokenizer, "metadata", {}).get("tensors", {})
    # Blocks that a model has go out as they are; of some kinds, the library could not make them.
    packed = families.their_tensors(model.config, AsStored(model.weights.data), family)
    as_before = {name: of for name, of in before.items() if name in tensors and not kind}
    came = {name for name, of in as_before.items() if name in packed
            and kind_of(packed[name].read()) == library.GGMLQuantizationType(of).name}
    kept = came | {name for name, of in as_before.items()
                   if name not in came and _holds(library, tensors[name], of)}
    kinds = {name: library.GGMLQuantizationType(before[name]) if name in kept
             else _kind(library, name, tensors[name], kind or USUAL)
             for name in before | tensors if name in tensors}
    of_kinds = {}       # what is said of them, if they are not those of before
    if kinds != before:
        of_kinds = {"general.file_type": int(library.LlamaFileType[KINDS[kind or USUAL]]),
                    "general.quantization_version": library.GGML_QUANT_VERSION}
    writer = _writer(library, path, family)
    try:
        for key, (value, *types) in _metadata(library, model, family, tensors, of_kinds).items():
            writer.add_key_value(key, value, *types)
            if key == "general.alignment":
                writer.data_alignment = value
        for name, of in kinds.items():
            shape = tensors[name].shape
            size = math.prod(library.quant_shape_to_byte_shape(shape, of))
            writer.add_tensor_info(name, shape, np.dtype(np.float32), size, of)
        writer.write_header_to_file()
        with explain("its sizes do not fit into the numbers that its GGUF file had for them",
                     "train with a smaller --block_size", struct.error):
            writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for name, of in kinds.items():
            a = np.ascontiguousarray(tensors[name].read())
            check_held(name, a, of.name.lower())
            numbers = packed[name].read() if name in came else library.quantize(a, of)
            writer.write_tensor_data(np.ascontiguousarray(numbers).view(np.uint8))
    finally:
        writer.close()
    check(metadata_of(path), model.tokenizer)
    stored = families.layout(families.complete(model.config, family), family)
    rounded = {name: of.name.lower() for name, of in kinds.items()
               if name not in kept and of.name.lower() in SHARES}
    return Held(partial(_agree, stored, rounded), any_of(sorted({*rounded.values()}) or [""]),
                without_end(model.tokenizer))


def _slowing(config, family):
    """Return the tensor that slows rotations, by its name, if the model has it.  Refuse a model of
    which llama.cpp would compute another."""
    if config.rotary_scaling is None:
        return {}
    why = ""
    slowing = rope_freqs(config)
    if family.name != "llama":
        why = f"llama.cpp slows no rotations of a {family.name}"
    elif slowing.max() < np.float32(config.rotary_factor):
        why = "it slows no channel fully, and so no GGUF file can say it"
    if why:
        raise FormatError(f"this model has rotary_factor {config.rotary_factor}, and {why}; "
                          "convert it to a .safetensors file")
    return {ROPE_FREQS: Stored(slowing.shape, lambda: slowing)}


def _writer(library, path, family):
    """Return the library's writer, which writes empty arrays, too, and no key of its own."""
    class Writer(library.GGUFWriter):
        def _pack_val(self, value, kind, add_vtype, sub_type=None):
            if kind == ARRAY and not value:
                return struct.pack("<IIQ", kind, STRING if sub_type is None else sub_type, 0)
            return super()._pack_val(value, kind, add_vtype, sub_type)

    writer = Writer(path, family.name)
    del writer.kv_data[0]["general.architecture"]       # it has its place among the others
    return writer


def _holds(library, tensor, kind):
    """Whether a kind holds the numbers of a tensor exactly, and the library can make its blocks."""
    a = np.ascontiguousarray(tensor.read())
    kind = library.GGMLQuantizationType(kind)
    with contextlib.suppress(NotImplementedError, ValueError):
        return (library.dequantize(library.quantize(a, kind), kind).reshape(a.shape) == a).all()
    return False


def _kind(library, name, tensor, kind):
    """Return how a tensor is stored as a kind: blocks divide a row evenly, and vectors are not
    rounded."""
    kinds = library.GGMLQuantizationType
    if len(tensor.shape) == 1 or name.startswith("position"):
        return kinds.F32
    if kind == "q8_0" and tensor.shape[-1] % BLOCK:
        return kinds.F16
    return kinds[kind.upper()]


def check_held(name: str, a: np.ndarray, kind: str) -> None:
    """Refuse a tensor of which a kind would make nan, inf, or nothing but zeros."""
    check_finite(name, a)
    size = float(max(a.max(), -a.min()))
    vanishing, overflowing = LIMITS.get(kind, LIMITS["f32"])
    if vanishing < size < overflowing or size == 0:
        return
    holds = next(other for other in ("bf16", "f32") if LIMITS[other][0] < size < LIMITS[other][1])
    if size >= overflowing:
        why = f"a number of the size {size:,.6g}, and {kind} holds sizes below {overflowing:,.6g}"
    else:
        why = f"no number larger than {size:.3g}, and {kind} would make 0 of all"
    raise FormatError(f"{name} has {why}; give --as {holds}, which holds them")


def _agree(stored, rounded, name, a, b):
    """Whether a parameter's numbers were read back within what the kinds of its tensors round."""
    for piece in stored[name]:
        kind = rounded.get(piece.name)
        mine, read = a[piece.rows], b[piece.rows]
        for start in range(0, len(mine), ROWS):         # little memory is taken at a time
            rows = slice(start, start + ROWS)
            if not (np.abs(mine[rows] - read[rows]) <= rounding(mine[rows], kind)).all():
                return False
    return True


def rounding(a: np.ndarray, kind: str | None) -> np.ndarray | int:
    """Return how far the number that a kind stores may be from each in an array that `check_held`
    lets pass.  None stands for kinds that hold the numbers exactly."""
    if kind is None:
        return 0
    size = np.abs(a)
    if kind == "q8_0":
        blocks = size.reshape(-1, BLOCK)
        blocks[...] = blocks.max(-1, keepdims=True)
    vanishing, _ = LIMITS[kind]
    return size * np.float32(SHARES[kind]) + np.float32(vanishing)


def _metadata(library, model, family, tensors, of_kinds):
    """Return the metadata in order: key -> (value, its type, the type of its elements)."""
    config = model.config
    brought = getattr(model.tokenizer, "metadata", {}).get("keys", {})
    theirs = {key: value for key, (value, _) in brought.items()}
    sizes = {f"{family.name}.{key}": value
             for key, value in families.in_float32(families.settings(config, family)).items()}
    if config.rotary_length != TransformerConfig.rotary_length:
        sizes[f"{family.name}.{LENGTH}"] = config.rotary_length
    for key, value in sizes.items():
        if not (0 < value < (2 ** 32 if type(value) is int else math.inf)):
            raise FormatError(f"its {key} is {value:.6g} as a number of 32 bits, in which a GGUF "
                              "file holds it; convert the model to a .safetensors file")
    length = f"{family.name}.context_length"
    if config.position == "rotary":     # a shorter block in fine-tuning takes no position away
        sizes[length] = max(config.block_size, theirs.get(length, 0))
    tokens = keys_of(model.tokenizer)
    anew = sizes | of_kinds
    same = theirs.get("general.architecture") == family.name
    if same and f"{TOKENS}tokens" in theirs:    # what the file had, in its order, of this model
        found = {key: tokens[key] if value is None else anew.get(key, value)
                 for key, value in theirs.items()}
    else:
        name = model.name.encode(errors="replace").decode()     # a file's need not be a text
        named = {"general.name": name} if name else {}
        found = {"general.architecture": family.name} | named | theirs | tokens | anew
    # Without, what came is of another file, such as the chat template of a folder of Hugging Face.
    if not same or NOTE in theirs or config != configuration(found, tensors)[0]:
        found[NOTE] = json.dumps(asdict(config))
    types = library.GGUFValueType

    def types_of(key, value):
        if key in brought:
            if brought[key][1] == [ARRAY, ARRAY]:
                raise FormatError(f"its {shown(key)} is an array of arrays, which llama.cpp does "
                                  "not read; import a file without it")
            return map(types, brought[key][1])
        return [types.UINT32 if type(value) is int else types.get_type(value)]
    return {key: (value, *types_of(key, value)) for key, value in found.items()}
