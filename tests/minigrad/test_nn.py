"""Each layer against a line of NumPy and, where it is installed, against PyTorch's; what it begins
with; and what it refuses."""
import copy
import importlib
import math
import pickle

import numpy as np
import pytest

import minigrad as mg
from minigrad import Tensor, nn
from minigrad.nn import Dropout, Embedding, LayerNorm, Linear, RMSNorm, Sequential
from tests.checking import assert_normal, random_weights
from tests.kit import normal, refusal

pytestmark = pytest.mark.late
X = normal(2, 3, 8)                                       # (B, T, C)


def fresh():
    return np.random.default_rng(1)


def close(actual, expected):
    assert actual.dtype == np.float64
    return actual.shape == expected.shape and np.allclose(actual.data, expected, 1e-12, 1e-12)


@pytest.mark.parametrize("kind, settings", [
    (Linear, (3, 4, True, fresh())),
    (Linear, (3, 4, True, fresh(), 0.1)),
    (Embedding, (5, 4, fresh())),
    (LayerNorm, (4, True)),
    (RMSNorm, (4,))])
def test_every_layer_is_of_float32_or_of_the_type_that_is_given(kind, settings):
    assert {p.dtype for p in kind(*settings).parameters()} == {np.dtype(np.float32)}
    assert {p.dtype for p in kind(*settings, dtype=np.float64).parameters()} == {
        np.dtype(np.float64)}


def test_Linear_and_Embedding_are_a_product_and_a_row():
    layer = random_weights(Linear(8, 4, dtype=np.float64))
    assert close(layer(Tensor(X)), X @ layer.weight.data.T + layer.bias.data)
    assert Linear(8, 4, bias=False).bias is None
    table = Embedding(5, 4, dtype=np.float64)
    assert close(table([[3, 0]]), table.weight.data[[[3, 0]]])


@pytest.mark.parametrize("eps", [1e-5, 0.1])
@pytest.mark.parametrize("bias", [False, True])
def test_LayerNorm_is_the_standardised_row_times_gain_plus_shift(bias, eps):
    layer = random_weights(LayerNorm(8, bias, np.float64, eps))
    distance = X - X.mean(-1, keepdims=True)
    unit = distance / np.sqrt(X.var(-1, keepdims=True) + eps)
    shift = layer.bias.data if bias else 0
    assert (layer.bias is not None) == bias
    assert close(layer(Tensor(X)), unit * layer.weight.data + shift)


def test_RMSNorm_is_the_row_by_its_root_mean_square_with_a_gain_if_it_knows_the_channels():
    layer = random_weights(RMSNorm(8, np.float64, eps=0.1))
    square = (X * X).mean(-1, keepdims=True)
    assert close(layer(Tensor(X)), X / np.sqrt(square + 0.1) * layer.weight.data)
    assert (RMSNorm(8).weight.data == 1).all()
    assert layer.bias is None
    assert close(RMSNorm()(Tensor(X)), X / np.sqrt(square + 1e-5))
    assert not RMSNorm().parameters()


def test_Dropout_happens_only_with_a_generator():
    x = Tensor(np.ones((300, 300)))
    layer = Dropout(0.25)
    assert np.array_equal(layer(x).data, x.data)
    dropped = layer(x, fresh()).data
    assert set(np.unique(dropped)) == {0, 1 / 0.75}
    share = (dropped == 0).mean()
    assert abs(share - 0.25) < 5 * math.sqrt(0.25 * 0.75 / x.size)
    assert np.array_equal(Dropout(0.0)(x, fresh()).data, x.data)


def assert_even(array, bound):
    """The numbers are those of an even distribution between -bound and bound."""
    assert np.abs(array).max() <= bound
    shares, _ = np.histogram(array, bins=10, range=(-bound, bound))
    assert np.abs(shares / array.size - 0.1).max() < 5 * math.sqrt(0.1 * 0.9 / array.size)


def test_layers_begin_as_those_of_pytorch():
    layer = Linear(100, 400, rng=fresh())
    assert_even(layer.weight.data, 0.1)
    assert_even(layer.bias.data, 0.1)
    assert_normal(Embedding(100, 100, fresh()).weight.data, 1)
    norm = LayerNorm(3)
    assert (norm.weight.data == 1).all() and (norm.bias.data == 0).all()
    assert Dropout().p == 0.5


def test_Linear_and_Embedding_draw_with_the_deviation_that_they_are_told():
    layer = Linear(100, 100, rng=fresh(), std=0.5)
    assert_normal(layer.weight.data, 0.5)
    assert not layer.bias.data.any()
    assert_normal(Embedding(100, 100, fresh(), std=0.5).weight.data, 0.5)


@pytest.mark.needs("interop")
@pytest.mark.parametrize("make, settings, shape", [
    ("Linear", (100, 300), (2, 100)),
    ("Embedding", (100, 100), None),
    ("LayerNorm", (8,), X.shape),
    ("RMSNorm", (8,), X.shape)])
def test_layers_have_the_names_shapes_and_spread_of_pytorchs(make, settings, shape):
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    theirs = getattr(torch.nn, make)(*settings)
    ours = getattr(nn, make)(*settings)
    state = {path: p.detach().numpy() for path, p in theirs.named_parameters()}
    assert [*ours.state_dict()] == [*state]
    for path, array in ours.state_dict().items():
        assert array.shape == state[path].shape
        assert np.allclose(array.std(), state[path].std(), rtol=0.1)
    theirs.eps = 1e-5                       # PyTorch's RMSNorm has the type's own by default
    ours.load_state_dict(state)
    if shape is not None:
        x = normal(*shape, dtype=np.float32)
        expected = theirs(torch.tensor(x)).detach().numpy()
        assert np.allclose(ours(x).data, expected, atol=1e-5)


@pytest.mark.parametrize("make", [Linear, Embedding])
def test_layers_draw_from_the_generator_that_they_are_given_else_from_that_of_the_process(make):
    def weights(seed, count=1, **rng):
        mg.manual_seed(seed)
        return [make(9, 8, **rng).weight.data for _ in range(count)][-1]
    assert np.array_equal(weights(3), weights(0, rng=np.random.default_rng(3)))
    assert np.array_equal(weights(3, 2), weights(3, 2))
    assert not np.array_equal(weights(3), weights(3, 2))
    assert not np.array_equal(weights(3), weights(4))
    assert np.array_equal(weights(3, rng=fresh()), weights(4, rng=fresh()))


@pytest.mark.parametrize("make", [Linear, Embedding])
@pytest.mark.parametrize("rng", [0, np.random.RandomState(0)])
def test_layers_say_how_to_give_a_generator(make, rng):
    said = refusal(TypeError, make, 3, 4, rng=rng)
    assert "weights are drawn from a generator: give rng=np.random.default_rng(0), not " in said
    assert "mg.manual_seed(0)" in said


@pytest.mark.parametrize("layer, shape, says", [
    (Linear(3, 4), (2, 5), "Linear(3, 4) takes (..., 3), and got (2, 5)"),
    (Linear(3, 4), (), "Linear(3, 4) takes (..., 3), and got ()"),
    (LayerNorm(4), (2, 1), "LayerNorm(4) takes (..., 4), and got (2, 1)"),
    (RMSNorm(4), (7,), "RMSNorm(4) takes (..., 4), and got (7,)"),
    (Sequential(Linear(3, 4), mg.relu, Linear(5, 1)), (2, 3),
     "Linear(5, 1) takes (..., 5), and got (2, 4)")])
def test_layers_name_themselves_where_a_shape_does_not_fit(layer, shape, says):
    assert refusal(ValueError, layer, np.ones(shape)) == says
    assert refusal(ValueError, layer, Tensor(np.ones(shape))) == says


def test_layers_keep_the_error_of_an_op_where_the_shape_fits():
    layer = LayerNorm(4)
    layer.bias = Tensor(np.ones(5), requires_grad=True)
    said = refusal(ValueError, layer, np.ones((2, 4)))
    assert said.startswith("expected x (..., C)") and "LayerNorm(4)" not in said


def test_Sequential_is_its_layers_one_after_the_other_under_pytorchs_names():
    model = Sequential(Linear(8, 5), mg.tanh, Sequential(Linear(5, 2)))
    model.comment = "no layer"
    assert [*model.state_dict()] == ["0.weight", "0.bias", "2.0.weight", "2.0.bias"]
    hidden = np.tanh(X @ model[0].weight.data.T + model[0].bias.data)
    expected = hidden @ model[2][0].weight.data.T + model[2][0].bias.data
    for each in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert np.allclose(each(X).data, expected, rtol=1e-12)
    assert model[-1] is model.layers[2]


def test_Sequential_hands_a_generator_to_those_that_take_one():
    model = Sequential(Dropout(0.25), mg.exp, Sequential(Dropout(0.25)))
    x = np.zeros((300, 300))
    assert np.array_equal(model(x).data, np.ones((300, 300)))
    rng = fresh()
    expected = mg.dropout(mg.exp(mg.dropout(x, 0.25, rng)), 0.25, rng)
    assert np.array_equal(model(x, rng=fresh()).data, expected.data)
    assert (expected.data == 0).mean() > 0.2
