"""A text in the windows that sampling reads, and what every step there has computed."""
import numpy as np
import pytest

import minigrad as mg
from model import TransformerConfig
from model.look.reading import lens, read, watch
from model.generation import window_start
from tests.kit import opinionated


def enlarged(**config):
    """A model whose attention says something."""
    settings = dict(vocab_size=13, block_size=8, n_layer=2, n_head=2, n_embd=8) | config
    return opinionated(TransformerConfig(**settings), 8, seed=1)


@pytest.mark.parametrize("block, N", [(8, 2), (8, 8), (8, 9), (8, 13), (7, 40), (2, 9), (1, 4)])
def test_every_character_is_predicted_once_and_from_the_window_of_sampling(block, N):
    model, ids = enlarged(block_size=block), np.random.default_rng(N).integers(13, size=N)
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
    {}, dict(bias=True, dropout=0.3), dict(norm="rms"), dict(qk_norm=True, position="rotary"),
    dict(norm="rms", position="sinusoidal"), dict(norm="rms_gain", activation="swiglu", tied=False),
    dict(ngrams=3)])
def test_the_stream_and_the_steps_are_those_of_the_blocks(options):
    model, ids = enlarged(n_layer=3, **options), np.arange(8)
    logits, stream, steps = watch(model, ids)
    with mg.no_grad():
        outputs = [model.embed(ids)]
        for block in model.blocks:
            outputs.append(block(outputs[-1]))
    assert np.allclose(stream, [x.data for x in outputs], atol=1e-5)
    assert np.array_equal(logits, model(ids).data)
    assert np.array_equal(lens(model, stream)[-1], logits)
    assert not np.allclose(lens(model, stream)[0], logits, atol=0.1)
    blocks = [step.block for step in steps]
    assert blocks.count(0) == blocks.count(1) == blocks.count(2) > 5
    assert [b for b in blocks if b is not None] == sorted(b for b in blocks if b is not None)
    assert blocks[-1] is None and steps[-1].shape == (1, 8, 13)
    if not options:
        assert [step.op for step in steps if step.block == 0] == [
            "layer_norm", "linear", "self_attention", "linear", "add", "layer_norm", "mlp", "add"]
    shapes = {name: p.shape for name, p in model.named_parameters()}
    used = [(name, shape, step.block) for step in steps for name, shape in step.parameters.items()]
    assert {name for name, *_ in used} == shapes.keys()
    for name, shape, block in used:
        assert shapes[name] == shape
        assert block == (int(name.split(".")[1]) if name.startswith("blocks.") else None)
    names = [name for name, *_ in used]
    tied = ["token_embedding.weight"] * 2 if options.get("tied", True) else []
    assert [name for name in names if names.count(name) > 1] == tied
