"""Small GGUF files of two families, written without the library, sound or with any change."""
import struct

import numpy as np

from model import Transformer, TransformerConfig
from tests.token_files import END, MERGES, alphabet

F32, F16, Q8_0 = 0, 1, 8
TOKENS = [END, *alphabet(), *("".join(pair.split()) for pair in MERGES)]
V = len(TOKENS)
SIZES = dict(vocab_size=V, block_size=16, n_layer=2, n_head=4, n_embd=32, n_inner=64, norm_eps=1e-4)
LLAMA = TransformerConfig(**SIZES, n_kv_head=2, position="rotary", norm="rms_gain", tied=False,
                          activation="swiglu", rotary_base=5000.0)
GPT2 = TransformerConfig(**SIZES, bias=True, activation="gelu_tanh")


class Number(int):
    """A whole number of 64 bits."""


def packed_text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def packed(value):
    """A value of the metadata, with its kind; bytes are packed already."""
    match value:
        case bytes():
            return value
        case str():
            return struct.pack("<I", 8) + packed_text(value)
        case [str(), *_]:
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(packed_text, value))
        case list():
            return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)
    kind, format = {bool: (7, "?"), Number: (10, "Q"), int: (4, "I"), float: (6, "f")}[type(value)]
    return struct.pack(f"<I{format}", kind, value)


def written(path, metadata, tensors, alignment=32):
    """Write a GGUF file; a tensor is an array, or kind, shape, bytes and, if it lies, offset."""
    table, data = b"", b""
    for name, tensor in tensors.items():
        if isinstance(tensor, np.ndarray):
            tensor = F32, tensor.shape, tensor.astype("<f4").tobytes()
        kind, shape, content, *offset = tensor
        data += bytes(-len(data) % alignment)
        table += packed_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1],
                                                 kind, *(offset or [len(data)]))
        data += content
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)) + b"".join(
        packed_text(key) + packed(value) for key, value in metadata.items()) + table
    path.write_bytes(header + bytes(-len(header) % alignment) + data)
    return path


def weights_of(config):
    """Weights far from their initial values."""
    draw = np.random.default_rng(0)
    return {name: (p.data + 0.2 * draw.standard_normal(p.shape)).astype(np.float32)
            for name, p in Transformer(config).named_parameters()}


TOKENIZER = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm",
             "tokenizer.ggml.tokens": TOKENS, "tokenizer.ggml.merges": MERGES,
             "tokenizer.ggml.token_type": [3] + [1] * (V - 1), "tokenizer.ggml.eos_token_id": 0}


def made(kind, config, sizes, changes):
    """Metadata and tensors of a kind; a change of None leaves an entry out."""
    sizes = {"block_count": 2, "context_length": 16, "embedding_length": 32,
             "feed_forward_length": 64, "attention.head_count": 4} | sizes
    metadata = {f"{kind}.{name}": value for name, value in sizes.items()} | TOKENIZER
    return changed({"general.architecture": kind} | metadata, tensors_of(config), changes)


def llama(**changes):
    return made("llama", LLAMA, {
        "vocab_size": V, "attention.head_count_kv": 2, "rope.freq_base": 5000.0,
        "rope.dimension_count": 8, "attention.layer_norm_rms_epsilon": 1e-4}, changes)


def gpt2(**changes):
    return made("gpt2", GPT2, {"attention.layer_norm_epsilon": 1e-4},
                {"tokenizer.ggml.pre": "gpt-2"} | changes)


NAMES = {"token_embedding": "token_embd", "position_embedding": "position_embd",
         "blocks": "blk", "norm1": "attn_norm", "attention.out": "attn_output",
         "attention.qkv": "attn_qkv", "norm2": "ffn_norm", "mlp.gate": "ffn_gate",
         "mlp.up": "ffn_up", "mlp.down": "ffn_down", "lm_head": "output"}


def tensors_of(config):
    """The weights by the names of llama.cpp."""
    tensors = {}
    for name, a in weights_of(config).items():
        if name.startswith("norm."):
            name = f"output_{name}"
        else:
            for ours, theirs in NAMES.items():
                name = name.replace(ours, theirs)
        if "attn_qkv" in name and config is LLAMA:
            parts = zip("qkv", np.split(a, [32, 48]))
            tensors |= {name.replace("attn_qkv", f"attn_{part}"): rows for part, rows in parts}
        else:
            tensors[name] = a
    return tensors


def changed(metadata, tensors, changes):
    for name, value in changes.items():
        part = tensors if name in tensors or isinstance(value, np.ndarray | tuple) else metadata
        part[name] = value
    return tuple({name: value for name, value in part.items() if value is not None}
                 for part in (metadata, tensors))


def for_llama_cpp(path, n_ctx):
    """What llama.cpp is given to run the model of a file quietly, on one thread."""
    import xllamacpp
    given = xllamacpp.CommonParams()
    given.model.path = str(path)
    given.n_ctx = n_ctx
    given.n_parallel = 1
    given.cpuparams.n_threads = 1
    given.warmup = False
    given.verbosity = -1
    return given
