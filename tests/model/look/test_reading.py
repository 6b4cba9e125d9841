"""A text in the windows that sampling reads, and what every step there has computed."""
import numpy as np
import pytest

import minigrad as mg
from model import TransformerConfig
from model.look.reading import lens, read, watch
from model.generation import window_start
from tests.kit import opinionated


def enlarged(block_size=8, **options):
    """A model whose attention says something."""
    return opinionated(TransformerConfig(13, block_size, 3, 2, 8, **options), 8, seed=1)


@pytest.mark.parametrize("block, N", [(8, 2), (8, 8), (8, 9), (8, 13), (7, 40), (2, 9), (1, 4)])
def test_every_character_is_predicted_once_and_from_the_window_of_sampling(block, N):
    model, ids = enlarged(block), np.random.default_rng(N).integers(13, size=N)
    windows, predicted = read(model, ids), []
    for window in windows:
        assert np.array_equal(window.maps, model.attention_maps(window.ids))
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
