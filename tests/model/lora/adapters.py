"""Adapters for tests: of small models, whose bases are packed or not."""
import dataclasses

import numpy as np

from model import Transformer, TransformerConfig
from model.lora.adapted import AdaptedConfig, AdaptedTransformer
from tests.kit import normal, packed_copy

# As the models of GGUF files are, and as ours are
LLAMA = TransformerConfig(20, block_size=8, n_layer=2, n_head=2, n_embd=32, n_kv_head=1,
                          position="rotary", norm="rms_gain", activation="swiglu", n_inner=64)
OURS = TransformerConfig(20, block_size=8, n_layer=2, n_head=2, n_embd=32, bias=True, norm="layer",
                         activation="gelu", ngrams=3, ngram_rows=30)


def adapted(config, weights, dtype=np.float32, seed=3, **changed):
    """A model with an adapter, whose second matrices are no longer zero."""
    layers = "qkv,out,gate,up,down" if config.activation == "swiglu" else "qkv,out,up,down"
    chosen = dict(lora=4, lora_alpha=6.0, lora_layers=layers) | changed
    model = AdaptedTransformer(AdaptedConfig(**dataclasses.asdict(config), **chosen), seed, dtype)
    model.take_base(weights)
    return model


def trained_a_little(model, seed=5):
    """Give the second matrices of an adapter numbers; return the model."""
    for n, (name, p) in enumerate(model.named_parameters()):
        if name.endswith("lora_b"):
            p.data[:] = 0.1 * normal(*p.shape, seed=seed + n)
    return model


def packed_base(config, kinds):
    """A base with matrices in blocks of these kinds, and one of their numbers in float32."""
    base = Transformer(config, 1)
    floats = packed_copy(base, kinds)
    return base, floats
