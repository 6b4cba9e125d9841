"""Bytes of training, by formula and as NumPy allocates them; the rest is held in test_count.py."""
import dataclasses
import tracemalloc

import numba
import numpy as np
import pytest

import minigrad as mg
from model import Transformer, TransformerConfig
from model import run
from model.count import sizes
from model.run import check_memory, decayed_and_other, training_bytes
from model.settings import Settings


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


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_step_that_needs_more_memory_than_there_is_is_refused(monkeypatch, optimizer):
    s = Settings(batch_size=64, optimizer=optimizer)

    def refusal(limit, **changes):
        monkeypatch.setattr(run, "memory_limit", lambda: float(limit))
        with pytest.raises(ValueError) as caught:
            check_memory(dataclasses.replace(s, **changes), 65)
        return str(caught.value)
    needed, model = (training_bytes(s.model_config(65), optimizer, size) for size in (64, 0))
    monkeypatch.setattr(run, "memory_limit", lambda: float(needed))
    check_memory(s, 65)
    assert "--batch_size 64, --block_size 64" in refusal(needed, batch_size=65).replace("65", "64")
    assert "--gradient_accumulation_steps 2" in refusal(needed, gradient_accumulation_steps=2)
    assert "a smaller model: fewer --n_layer" in refusal(model - 1)
    assert "a smaller model" in refusal(1e9, n_inner=10 ** 9)
    for config in (s.model_config(65), TransformerConfig(30, 32, 6, 2, 32, bias=True, ngrams=3)):
        counted = 2 * sizes.parameters(config) + sizes.state(config, optimizer)
        assert training_bytes(config, optimizer, 0) == 4 * counted
