"""Checkpoints of adapters, whose bases are small models of characters."""
import pathlib

import numpy as np

from data.tokenizer import CharTokenizer
from model import Transformer, TransformerConfig, save_checkpoint
from model.lora.base import read_seal
from tests.kit import normal
from tests.model.lora.adapters import adapted, trained_a_little

CHARACTERS = "abcdefgh ijklm\nnopqrst\\uvwxyzäöüé漢🙂.,A\t"
SIZES = dict(vocab_size=len(CHARACTERS), block_size=96, n_layer=2, n_head=4, n_embd=32)
LLAMA = TransformerConfig(**SIZES, n_kv_head=2, position="rotary", norm="rms_gain",
                          activation="swiglu", n_inner=64)
GPT2 = TransformerConfig(**SIZES, activation="gelu_tanh", bias=True)
IDS = np.random.default_rng(0).integers(len(CHARACTERS), size=(2, 20))


def saved_adapter(config, folder, training=None, **changed):
    """Save a base in FOLDER/base and an adapter of it in FOLDER/on; return the adapter."""
    folder = pathlib.Path(folder).absolute()
    base = Transformer(config, seed=1)
    for n, p in enumerate(base.parameters()):
        p.data += 0.12 * normal(*p.shape, seed=n, dtype=p.dtype)
    path = folder / "base" / "ckpt.npz"
    save_checkpoint(path, base, CharTokenizer.of(CHARACTERS))
    model = trained_a_little(adapted(config, base, base=str(path), base_seal=read_seal(path),
                                     **changed))
    save_checkpoint(folder / "on" / "ckpt.npz", model, CharTokenizer.of(CHARACTERS), training)
    return model
