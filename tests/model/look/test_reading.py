"""A text in the windows that sampling reads, and what every step there has computed."""
import numpy as np
import pytest

import minigrad as mg
from model import Transformer, TransformerConfig
from model.look.reading import lens, log_probabilities, read, watch
from model.generation import window_start


def enlarged(**config):
    """A model whose attention says something."""
    settings = dict(vocab_size=13, block_size=8, n_layer=2, n_head=2, n_embd=8) | config
    model = Transformer(TransformerConfig(**settings), seed=1)
    for p in model.parameters():
        p.data *= 8 if p.ndim > 1 else 1
    return model


@pytest.mark.parametrize("block,N", [(8, 2), (8, 8), (8, 9), (8, 13), (7, 40), (2, 9), (1, 4)])
def test_every_character_is_predicted_once_and_from_the_window_of_sampling(block, N):
    model, ids = enlarged(block_size=block), np.random.default_rng(N).integers(13, size=N)
    windows, predicted = read(model, ids), []
    for window in windows:
        for row in range(window.fresh, len(window.ids)):
            n = window.start + row + 1
            predicted.append(n)
            assert window.start == window_start(n, block)
            with mg.no_grad():
                alone = model(ids[window.start:n]).data[-1]
            assert np.allclose(window.logits[row], alone, atol=1e-5)
    assert predicted == list(range(1, N + 1))
    assert all(np.array_equal(window.maps, model.attention_maps(window.ids)) for window in windows)


def test_the_stream_begins_with_the_embeddings_and_the_lens_after_the_last_block_is_the_model():
    model, ids = enlarged(n_layer=3, bias=True), np.arange(8)
    logits, stream, _ = watch(model, ids)
    assert np.array_equal(logits, model(ids).data) and stream.shape == (4, 8, 8)
    assert np.array_equal(stream[0], (model.token_embedding(ids)
                                      + model.position_embedding(np.arange(8))).data)
    with mg.no_grad():
        x = mg.Tensor(stream[0])
        for after, block in zip(stream[1:], model.blocks):
            x = block(x)
            assert np.allclose(after, x.data, atol=1e-5)
    assert np.array_equal(lens(model, stream)[-1], logits)
    assert not np.allclose(lens(model, stream)[0], logits, atol=0.1)


@pytest.mark.parametrize("bias,dropout", [(False, 0.0), (True, 0.3)])
def test_the_steps_use_every_parameter_and_each_belongs_to_its_block(bias, dropout):
    model = enlarged(bias=bias, dropout=dropout)
    steps = watch(model, np.arange(5))[2]
    used = [name for step in steps for name, _ in step.parameters]
    shapes = {name: p.shape for name, p in model.named_parameters()}
    assert set(used) == set(shapes)
    assert [name for name in used if used.count(name) > 1] == ["token_embedding.weight"] * 2
    for step in steps:
        assert all(shapes[name] == shape for name, shape in step.parameters)
        assert all(step.block == (int(name.split(".")[1]) if name.startswith("blocks.") else None)
                   for name, _ in step.parameters)
    ops = [(step.op, step.block) for step in steps]
    block = ["layer_norm", "linear", "self_attention", "linear", "layer_norm", "mlp"]
    assert ops == [("embedding", None), ("embedding", None), ("add", None),
                   *((op, 0) for op in block), *((op, 1) for op in block),
                   ("layer_norm", None), ("linear", None)]
    assert steps[-1].shape == (1, 5, 13) and steps[5].shape == (1, 5, 8)


@pytest.mark.parametrize("options", [{}, dict(norm="rms"), dict(qk_norm=True, position="rotary"),
                                     dict(norm="rms", position="none"),
                                     dict(norm="rms_gain", activation="swiglu", tied=False),
                                     dict(ngrams=3)])
def test_steps_belong_to_the_block_that_ran_them_also_where_they_use_no_parameter(options):
    model, ids = enlarged(n_layer=3, **options), np.arange(8)
    logits, stream, steps = watch(model, ids)
    with mg.no_grad():
        outputs = [model.embed(ids)]
        for block in model.blocks:
            outputs.append(block(outputs[-1]))
    assert np.allclose(stream, [x.data for x in outputs], atol=1e-5)
    assert np.array_equal(lens(model, stream)[-1], logits)
    blocks = [step.block for step in steps]
    assert blocks.count(0) == blocks.count(1) == blocks.count(2) > 5
    assert [b for b in blocks if b is not None] == sorted(b for b in blocks if b is not None)
    assert blocks[-1] is None and steps[-1].shape == (1, 8, 13)


def test_log_probabilities_are_those_of_the_logits():
    logits = np.random.default_rng(0).standard_normal((3, 7)) * 5
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    assert np.allclose(np.exp(log_probabilities(logits)), p, rtol=1e-6)
