"""Each layer against a line of NumPy, and the weights that a model starts from."""
import math

import numpy as np
import pytest

import minigrad as mg
from minigrad import Tensor, formulas, nn
from model import MultiHeadAttention, Transformer, TransformerConfig, layers
from model.attention import AttentionOptions
from model.layers import MLP, STD, NGramEmbedding, sinusoids
from tests.checking import assert_normal, random_weights
from tests.kit import normal, refusal

pytestmark = pytest.mark.late
X = normal(2, 3, 8)                                       # (B, T, C)
erf = np.vectorize(math.erf)
CONFIG = TransformerConfig(
    vocab_size=50,
    block_size=40,
    n_layer=3,
    n_head=4,
    n_embd=64,
    bias=True)


def fresh():
    return np.random.default_rng(1)


def close(actual, expected):
    assert actual.dtype == np.float64
    return actual.shape == expected.shape and np.allclose(actual.data, expected, 1e-12, 1e-12)


def test_NGramEmbedding_is_the_sum_of_the_rows_that_fnv_finds_for_what_a_character_ends():
    layer = NGramEmbedding(4, 23, 8, fresh(), np.float64)
    ids = np.random.default_rng(3).integers(1000, size=(2, 9))
    expected = np.zeros((2, 9, 8))
    for b, t in np.ndindex(ids.shape):
        state = 0xcbf29ce484222325
        for back in range(4):                       # in whole numbers of any size
            state ^= int(ids[b, t - back]) + 1 if back <= t else 0
            state = state * 0x100000001b3 % 2 ** 64
            if back:
                expected[b, t] += layer.weight.data[(state ^ state >> 32) % 23]
    assert close(layer(ids), expected)
    assert close(layer(ids[0, :2]), expected[0, :2])


def test_NGramEmbedding_leaves_out_whole_ngrams_and_scales_the_others():
    layer = NGramEmbedding(3, 1 << 17, 2, fresh(), np.float64, dropout=0.25)
    ids = np.random.default_rng(4).integers(50, size=(20, 100))
    rows = formulas.ngram_rows(ids, 3, 1 << 17)
    pairs, triples = layer.weight.data[np.moveaxis(rows, -1, 0)]
    dropped = layer(ids, np.random.default_rng(0)).data
    found = np.stack([np.abs(dropped - (i * pairs + j * triples) / 0.75).max(-1) < 1e-12
                      for i in (0, 1) for j in (0, 1)], axis=-1)
    assert (found.sum(-1) == 1).all()
    assert np.allclose(found.mean(axis=(0, 1)), [1 / 16, 3 / 16, 3 / 16, 9 / 16], atol=0.04)
    assert close(layer(ids), pairs + triples)


@pytest.mark.parametrize("kind, settings", [
    (NGramEmbedding, (3, 7, 4, fresh())), (MLP, (4, True, fresh(), STD))])
def test_every_layer_is_of_float32_or_of_the_type_that_is_given(kind, settings):
    assert {p.dtype for p in kind(*settings).parameters()} == {np.dtype(np.float32)}
    assert {p.dtype for p in kind(*settings, dtype=np.float64).parameters()} == {
        np.dtype(np.float64)}


ACTIVATIONS = {
    "gelu": lambda h: h / 2 * (1 + erf(h / math.sqrt(2))),
    "gelu_tanh": lambda h: h / 2 * (
        1 + np.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h ** 3))),
    "relu2": lambda h: np.square(np.maximum(h, 0)),
    "swiglu": lambda h, a: a / (1 + np.exp(-a)) * h}


@pytest.mark.parametrize("activation, inner", [
    ("gelu", None),
    ("gelu_tanh", 9),
    ("relu2", None),
    ("swiglu", 5)])
@pytest.mark.parametrize("bias", [False, True])
def test_MLP_is_down_of_the_activation_of_up_and_of_any_gate(bias, activation, inner):
    layer = random_weights(MLP(8, bias, fresh(), dtype=np.float64, activation=activation,
                               inner=inner))
    hidden = [X @ part.weight.data.T + (part.bias.data if bias else 0)
              for part in (layer.up, layer.gate) if part]
    assert hidden[0].shape[-1] == (inner or 4 * 8)
    down = layer.down.bias.data if bias else 0
    assert close(layer(Tensor(X)),
                 ACTIVATIONS[activation](*hidden) @ layer.down.weight.data.T + down)


def test_normal_draws_a_transformer_as_gpt2_does():
    model = Transformer(CONFIG)
    assert STD == 0.02
    drawn = 0
    for path, p in model.named_parameters():
        if path.endswith(".bias"):
            assert (p.data == 0).all(), path
        elif "norm" in path:
            assert (p.data == 1).all(), path
        else:
            onto_the_residual_stream = path.endswith(("attention.out.weight", "mlp.down.weight"))
            assert_normal(p.data, 0.02 / math.sqrt(2 * 3) if onto_the_residual_stream else 0.02)
            drawn += 1
    assert drawn == 2 + 4 * 3


def test_layers_of_a_transformer_draw_from_their_generator_as_gpt2_does():
    assert_normal(NGramEmbedding(2, 100, 100, fresh()).weight.data, 0.02)
    mlp = MLP(50, False, fresh(), 0.3)
    attention = MultiHeadAttention(60, 60, 2, rng=fresh(), options=AttentionOptions(std_out=0.3))
    for part in (mlp.up, attention.qkv):
        assert_normal(part.weight.data, 0.02)
    for part in (mlp.down, attention.out):
        assert_normal(part.weight.data, 0.3)


def test_normal_draws_a_float32_model_that_is_the_rounded_float64_one():
    single = Transformer(CONFIG, seed=5)
    double = Transformer(CONFIG, seed=5, dtype=np.float64)
    for (path, p), q in zip(single.named_parameters(), double.parameters()):
        assert p.dtype == np.float32 and q.dtype == np.float64, path
        assert np.array_equal(p.data, q.data.astype(np.float32)), path
    assert not np.array_equal(double.blocks[0].mlp.up.weight.data,
                              single.blocks[0].mlp.up.weight.data)


def test_sinusoids_are_the_papers_formula():
    for T, C in ((1, 1), (5, 2), (9, 7), (64, 16)):
        table = sinusoids(T, C)
        assert table.shape == (T, C)
        for t, c in np.ndindex(T, C):
            angle = t / 10000 ** ((c - c % 2) / C)
            expected = math.cos(angle) if c % 2 else math.sin(angle)
            assert abs(table[t, c] - expected) < 1e-12


def test_layers_of_minigrad_can_be_imported_from_here_too():
    for name in ("Dropout", "Embedding", "LayerNorm", "Linear", "RMSNorm", "Rng", "full", "normal"):
        assert getattr(layers, name) is getattr(nn, name)


@pytest.mark.parametrize("make", [
    lambda **rng: MLP(4, **rng),
    lambda **rng: NGramEmbedding(2, 3, 4, **rng),
    lambda **rng: MultiHeadAttention(4, 4, 2, **rng)])
def test_layers_draw_from_the_generator_of_the_process_where_they_are_given_none(make):
    mg.manual_seed(7)
    layers_of_7 = [make(), make()]
    rng = np.random.default_rng(7)
    for layer in layers_of_7:
        expected = make(rng=rng).state_dict()
        assert all(np.array_equal(a, expected[path]) for path, a in layer.state_dict().items())


def test_layers_name_themselves_where_a_shape_does_not_fit():
    assert refusal(ValueError, MLP(4), np.ones((2, 5))) == "MLP(4) takes (..., 4), and got (2, 5)"
    assert refusal(ValueError, MultiHeadAttention(8, 8, 2), np.ones((3, 4))) == (
        "Linear(8, 24) takes (..., 8), and got (3, 4)")
