"""Bytes of training, by formula and as NumPy allocates them; the rest is held in test_count.py."""
import tracemalloc

import numba
import numpy as np
import pytest

import minigrad as mg
from model import Transformer, TransformerConfig
from model.run import decayed_and_other
from model.sizes import training_bytes


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="plain NumPy keeps the (T, T) of attention")
@pytest.mark.parametrize("batch_size, config", [
    (12, TransformerConfig(65, 64, 4, 4, 128)), (2, TransformerConfig(65, 256, 2, 4, 128)),
    (4, TransformerConfig(1000, 64, 2, 2, 64, dropout=0.2)),
    (8, TransformerConfig(30, 32, 6, 2, 32, bias=True)),
    (16, TransformerConfig(65, 64, 4, 4, 64, n_kv_head=1, norm="rms_gain", activation="swiglu",
                           n_inner=512, tied=False)),
    (4, TransformerConfig(65, 64, 4, 4, 64, activation="gelu_tanh", n_inner=64))])
def test_the_bytes_of_a_step_are_those_that_are_allocated_to_a_quarter(batch_size, config):
    rng = np.random.default_rng(0)

    def train():
        model = Transformer(config)
        optimizer = mg.AdamW(decayed_and_other(model))
        for _ in range(2):
            ids = rng.integers(config.vocab_size, size=(batch_size, config.block_size))
            logits = model(ids, rng=rng)
            loss = mg.cross_entropy(logits, ids)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    train()             # so that what is compiled is not counted
    tracemalloc.start()
    train()
    allocated = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.8 < training_bytes(config, "adamw", batch_size) / allocated < 1.25
