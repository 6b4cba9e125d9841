"""Logits by the cache are those of the window computed anew: bit for bit, at every length."""

import numba
import numpy as np
import pytest

from model import Transformer, TransformerConfig
from model.generation import Reader, window_start

SHAPES = [      # as TransformerConfig has them, without dropout
    (65, 16, 2, 4, 32, False), (11, 8, 1, 2, 16, True), (7, 9, 3, 1, 6, True),
    (70, 20, 2, 2, 20, False), (5, 3, 1, 1, 1, True), (3, 1, 1, 1, 4, False),
    (2, 2, 2, 3, 24, True), (200, 33, 1, 5, 40, False), (65, 50, 1, 2, 136, True),
    (30, 20, 2, 4, 32, True, 2), (9, 11, 2, 6, 36, False, 1), (30, 35, 2, 4, 72, True, 4, "rotary"),
    (7, 9, 2, 3, 6, False, 1, "rotary"), (30, 35, 2, 4, 64, True, 2, "alibi"),
    (9, 6, 1, 3, 15, False, None, "alibi"), (30, 17, 2, 2, 14, True, None, "sinusoidal"),
    (30, 17, 2, 2, 32, False, 1, "none"), (30, 20, 2, 2, 36, True, None, "learned", "rms"),
    (30, 20, 2, 2, 36, False, 1, "alibi", "layer", True),
    (9, 20, 1, 3, 6, True, None, "rotary", "layer", True, "gelu", False, 1, 8192, 0.0, 0.1),
    (30, 20, 2, 2, 40, True, None, "learned", "layer", False, "relu2"),
    (30, 20, 2, 2, 40, True, None, "learned", "layer", False, "gelu", True),
    (65, 35, 3, 4, 64, False, 2, "rotary", "rms", True, "relu2", True),
    (11, 8, 2, 3, 42, True, None, "rotary", "rms", True, "relu2", False),
    (30, 9, 1, 2, 20, True, None, "learned", "layer", False, "gelu", False, 2, 50),
    (11, 8, 2, 3, 42, False, None, "rotary", "rms", True, "relu2", True, 4, 300),
    (5, 3, 1, 1, 8, False, None, "none", "rms", False, "relu2", True, 6, 7)]


def of_families(count):
    """Shapes of GPT-2's family and of Llama's, in turns, with random sizes and options."""
    rng = np.random.default_rng(0)

    def any_of(*options):
        return options[rng.integers(len(options))]
    for gpt2 in [True, False] * (count // 2):
        G, D = any_of(1, 2, 3), any_of(2, 4, 6, 10, 18)
        H = G * any_of(1, 2, 3)
        C, bias = H * D, gpt2 and any_of(False, True)
        options = ((H, "learned", "layer", False, any_of("gelu", "gelu_tanh")) if gpt2 else
                   (G, "rotary", "rms_gain", False, "swiglu"))
        yield (any_of(3, 16, 17, 130), any_of(2, 9, 20), any_of(1, 2), H, C, bias, *options, False,
               1, 8192, 0.0, any_of(1e-6, 1e-3), any_of(None, 1, 7, 33, 800), any_of(None, True),
               any_of(None, True), any_of(1e2, 1e5), any_of(True, False))


SHAPES += of_families(14)


def opinionated(config, dtype=np.float32, seed=0):
    """A model of large weights, none of them zero."""
    V, block, layers, heads, channels, bias, *options = config
    model = Transformer(TransformerConfig(V, block, layers, heads, channels, 0.0, bias, *options),
                        seed, dtype)
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.data *= 8 if p.ndim > 1 else 1
        p.data += 0.1 * rng.standard_normal(p.shape).astype(dtype)
    return model


def assert_equal(cached, computed, dtype=np.float32):
    """To the last bit; on plain NumPy, whose library takes sums in an order that depends on the
    shape, as near as float32 allows."""
    assert cached.dtype == computed.dtype == dtype and cached.shape == computed.shape
    if numba.config.DISABLE_JIT:
        assert np.allclose(cached, computed, rtol=0, atol=1e-5 * max(1, np.abs(computed).max()))
    else:
        assert np.array_equal(cached, computed)


@pytest.mark.parametrize("slide", [False, True])
@pytest.mark.parametrize("block", [1, 2, 3, 7, 8, 64])
def test_a_window_has_half_a_block_or_more_and_at_most_a_block(block, slide):
    starts = [window_start(n, block, slide) for n in range(1, 5 * block)]
    for n, start in enumerate(starts, start=1):
        if slide:
            assert n - start == min(n, block)
        else:
            assert min(n, block // 2 + 1) <= n - start <= block
    moves = np.diff(starts)
    assert (moves >= 0).all() and set(moves[moves > 0]) <= {1 if slide else (block + 1) // 2}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cached_logits_are_those_of_the_window_at_every_length_up_to_three_blocks(shape):
    """Of sequences that are read alone, with two others from some length on, and with all."""
    model = opinionated(shape)
    block = model.config.block_size
    rng = np.random.default_rng(1)
    ids = rng.integers(model.config.vocab_size, size=(8, 3 * block))
    begun = {1: 1, 3: rng.integers(1, 2 * block + 1), 8: 1}
    readers = {B: Reader(model, ids[:B, :T]) for B, T in begun.items()}
    for n in range(1, 3 * block + 1):
        computed = model(ids[:, window_start(n, block):n]).data[:, -1]
        for B, reader in readers.items():
            if n >= begun[B]:
                assert_equal(reader.logits(), computed[:B])
                reader.append(ids[:B, n:n + 1])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cached_logits_are_those_of_a_window_that_slides_at_every_length_until_it_has_slid(shape):
    model = opinionated(shape)
    block = model.config.block_size
    rng = np.random.default_rng(1)
    ids, T = rng.integers(model.config.vocab_size, size=(3, block + 4)), rng.integers(1, block + 1)
    reader = Reader(model, ids[:, :T], slide=True)
    for n in range(T, block + 4):
        assert_equal(reader.logits(), model(ids[:, max(0, n - block):n]).data[:, -1])
        reader.append(ids[:, n:n + 1])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cached_logits_are_those_of_the_window_in_float64_beyond_a_block(shape):
    model = opinionated(shape, np.float64)
    block = model.config.block_size
    ids = np.random.default_rng(2).integers(model.config.vocab_size, size=(2, block + 3))
    reader = Reader(model, ids[:, :1])
    for n in range(1, block + 3):
        window = ids[:, window_start(n, block):n]
        assert_equal(reader.logits(), model(window).data[:, -1], np.float64)
        reader.append(ids[:, n:n + 1])


def test_a_sequence_does_not_see_the_others_of_its_batch():
    model = opinionated(SHAPES[0])
    ids = np.random.default_rng(3).integers(65, size=(13, 30))
    together = Reader(model, ids[:, :2])
    alone = [Reader(model, row[None, :2]) for row in ids]
    for n in range(2, 30):
        assert_equal(together.logits(), np.concatenate([reader.logits() for reader in alone]))
        together.append(ids[:, n:n + 1])
        for reader, row in zip(alone, ids):
            reader.append(row[None, n:n + 1])
