"""A small model in each of its forms, and ids that it reads."""
import dataclasses

import numpy as np

from model import TransformerConfig
from model.config import POSITIONS
from model.layers import STD

SMALL = TransformerConfig(
    vocab_size=7,
    block_size=6,
    n_layer=2,
    n_head=2,
    n_embd=8,
    dropout=0.3)
IDS, TARGETS = np.random.default_rng(0).integers(7, size=(2, 3, 6))     # (B, T) each


def changed(config=SMALL, **settings):
    return dataclasses.replace(config, **settings)


def enlarged(model, factor=20):
    """The model with weights at which attention is far from uniform, and none of them at 0."""
    rng = np.random.default_rng(2)
    for path, p in model.named_parameters():
        if path.endswith("bias"):
            p.data[...] = rng.standard_normal(p.shape)
        elif not p.data.any():
            p.data[...] = factor * STD * rng.standard_normal(p.shape)
        elif "norm" not in path:
            p.data *= factor
        else:
            p.data += 0.3 * rng.standard_normal(p.shape)
    return model


OPTIONS = [dict(position=position, n_kv_head=n_kv_head)
           for position in POSITIONS for n_kv_head in (None, 1)]
PARTS = [
    dict(norm="rms"),
    dict(qk_norm=True),
    dict(qk_norm=True, position="rotary", n_kv_head=1),
    dict(qk_norm=True, qk_gain=True, head_dim=6, position="rotary", n_kv_head=1, norm_eps=0.1),
    dict(activation="relu2"),
    dict(zero_init=True),
    dict(ngrams=3, ngram_rows=11, ngram_dropout=0.4),
    dict(activation="gelu_tanh", attention_bias=True, mlp_bias=False, n_inner=17),
    dict(norm="rms_gain", norm_eps=0.1, activation="swiglu", n_inner=17, mlp_bias=True,
         attention_bias=False, position="rotary", rotary_base=30.0, tied=False, n_kv_head=1),
    dict(norm="rms", qk_norm=True, position="rotary", activation="relu2", zero_init=True)]
