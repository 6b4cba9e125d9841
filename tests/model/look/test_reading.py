"""A text in the windows that sampling reads, and what every step there has computed."""
import numpy as np
import pytest

import minigrad as mg
from model import Transformer, TransformerConfig
from model.look.reading import lens, read, watch
from model.generation import window_start
from tests.kit import opinionated
from tests.model.forms import IDS, OPTIONS, PARTS, SMALL, changed, enlarged as large
from tests.model.look.pages import maps_of


def enlarged(block_size=8, **options):
    """A model whose attention says something."""
    return opinionated(TransformerConfig(13, block_size, 3, 2, 8, **options), 8, seed=1)


@pytest.mark.parametrize("block, N", [(8, 2), (8, 8), (8, 9), (8, 13), (7, 40), (2, 9), (1, 4)])
def test_every_character_is_predicted_once_and_from_the_window_of_sampling(block, N):
    model, ids = enlarged(block), np.random.default_rng(N).integers(13, size=N)
    windows, predicted = read(model, ids), []
    for window in windows:
        assert np.array_equal(window.maps, maps_of(model, window.ids))
        for row in range(window.fresh, len(window.ids)):
            n = window.start + row + 1
            predicted.append(n)
            assert window.start == window_start(n, block)
            alone = model(ids[window.start:n]).data[-1]
            assert np.allclose(window.logits[row], alone, atol=1e-5)
    assert predicted == list(range(1, N + 1))


@pytest.mark.parametrize("options", [
    {},
    {"bias": True, "dropout": 0.3},
    {"norm": "rms", "position": "sinusoidal"},
    {"qk_norm": True, "position": "rotary"},
    {"norm": "rms_gain", "activation": "swiglu", "tied": False},
    {"ngrams": 3}])
def test_the_stream_ends_in_the_logits_of_the_model(options):
    model, ids = enlarged(**options), np.arange(8)
    stream = watch(model, ids)
    with mg.no_grad():
        assert np.array_equal(stream[0], model.embed(ids).data) and len(stream) == 4
        assert np.allclose(stream[-1], model.states(ids).data, atol=1e-5)
        assert np.allclose(lens(model, stream)[-1], model(ids).data, atol=1e-5)
    assert not np.allclose(lens(model, stream)[0], lens(model, stream)[-1], atol=0.1)


of_each_form = pytest.mark.parametrize("options", OPTIONS + PARTS, ids=str)


@of_each_form
def test_attention_maps_are_the_weights_that_mix_the_values_of_layers(options):
    model = large(Transformer(changed(**options), seed=1))
    maps = maps_of(model, IDS)
    x = model.embed(IDS)
    (B, T), H = IDS.shape, SMALL.n_head
    D = model.config.d_head
    for layer, block in zip(maps, model.blocks, strict=True):
        G = options.get("n_kv_head") or H
        qkv = block.attention.project(block.norm1(x)).data
        values = qkv[..., -D * G:].reshape(B, T, G, D).swapaxes(1, 2)       # (B, G, T, D)
        mixed = (layer @ np.repeat(values, H // G, axis=1)).swapaxes(1, 2).reshape(B, T, -1)
        fused = mg.self_attention(qkv, H, G, is_causal=True).data
        x = block(x)
        assert np.allclose(mixed, fused, rtol=1e-5, atol=1e-6 * np.abs(fused).max())
    assert np.array_equal(model.output(x).data, model(IDS).data)


@of_each_form
def test_attention_maps_are_causal_weights_that_add_up_to_1(options):
    model = large(Transformer(changed(**options), seed=1))
    maps = maps_of(model, IDS)
    (B, T), H = IDS.shape, SMALL.n_head
    assert maps.shape == (SMALL.n_layer, B, H, T, T)
    assert maps.dtype == np.float32
    assert maps[..., 2:, :].max() > 0.6                     # they say something
    assert 0.1 < np.median(maps[..., -1, :].max(-1)) < 1
    assert np.allclose(maps.sum(-1), 1, atol=1e-6)
    assert not np.triu(maps, 1).any()


@of_each_form
def test_attention_maps_of_a_text_are_those_that_it_has_in_a_batch(options):
    model = large(Transformer(changed(**options), seed=1))
    assert np.allclose(maps_of(model, IDS[0]), maps_of(model, IDS)[:, 0], rtol=0, atol=1e-6)
