"""Whole training runs on the compiled kernels: as on plain NumPy, on any number of threads, and in
memory that does not grow with the square of the length."""
import tracemalloc

import numba
import numpy as np
import pytest

import data
import minigrad as mg
from model import CharTokenizer, Transformer, TransformerConfig
from model.run import decayed_and_other
from tests import plain

compiled_only = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="Numba is told not to compile")


def losses(steps, batch=4, **config):
    """Of a run on the beginning of the built-in text."""
    text = data.read_text("lantern")[:20_000]
    tokenizer = CharTokenizer(text)
    model = Transformer(TransformerConfig(tokenizer.vocab_size, **config), seed=1)
    optimizer = mg.AdamW(decayed_and_other(model), lr=2e-3)
    batches, dropped = np.random.default_rng(2), np.random.default_rng(3)
    ids = tokenizer.encode(text)
    seen = []
    for _ in range(steps):
        x, y = data.random_batch(ids, batch, model.config.block_size, batches)
        loss = mg.cross_entropy(model(x, rng=dropped), y)
        loss.backward()
        mg.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seen.append(loss.item())
    return np.array(seen)


@compiled_only
def test_losses_of_200_steps_agree_with_those_on_plain_numpy(monkeypatch):
    config = dict(block_size=20, n_layer=2, n_head=2, n_embd=16, dropout=0.1, bias=True)
    compiled = losses(200, **config)
    plain.use(monkeypatch)
    assert np.abs(compiled - losses(200, **config)).max() < 1e-3
    assert compiled[-1] < compiled[0] - 1


@compiled_only
def test_losses_do_not_depend_on_the_threads_by_a_single_bit():
    config = dict(block_size=64, n_layer=2, n_head=4, n_embd=64, dropout=0.1, bias=True)
    every = losses(10, batch=8, **config)
    numba.set_num_threads(1)
    assert np.array_equal(every, losses(10, batch=8, **config))


@compiled_only
def test_memory_grows_with_the_length_and_not_with_its_square():
    def most(T):
        model = Transformer(TransformerConfig(60, T, n_layer=1, n_head=4, n_embd=32))
        ids = np.arange(T)[None] % 60
        tracemalloc.start()
        try:
            mg.cross_entropy(model(ids), ids).backward()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    for T in (512, 2048):       # compiling, too, takes memory
        most(T)
    assert 3.5 < most(2048) / most(512) < 4.5           # 16 with a (T, T) matrix for every head
