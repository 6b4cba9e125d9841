"""Ops and losses beside PyTorch: values, and gradients at ties, kinks and nan.

    python -m pytest tests/interop          with '.[interop]'
"""
import itertools
import math
import warnings

import numpy as np
import pytest

import minigrad as mg
from tests.extras import lacking
from tests.kit import leaf, normal

if not lacking("interop"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from torch.nn import functional

pytestmark = [pytest.mark.needs("interop"), pytest.mark.filterwarnings("default")]
EDGES = [-math.inf, -2, -1, -0.0, 0, 1e-8, 1, 2, math.inf, math.nan]
PAIRS = np.array([*itertools.product(EDGES, EDGES)]).T
TRIPLES = np.array([*itertools.product(EDGES, EDGES, EDGES)]).T
TIES = np.array([[0.0, 1, 1], [0, 0, 0], [math.nan, 1, 2]])
X = normal(3, 4, 5)


def both(ours, theirs, *arrays):
    """Pairs of arrays, ours and PyTorch's: values and gradients."""
    leaves = [leaf(a) for a in arrays]
    tensors = [torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in arrays]
    with np.errstate(all="ignore"):
        found = ours(*leaves)
        g = np.cos(np.arange(found.size)).reshape(found.shape)
        found.backward(g)
    expected = theirs(*tensors)
    assert found.shape == tuple(expected.shape)
    expected.backward(torch.tensor(g))
    yield found.data, expected.detach().numpy()
    for x, tensor in zip(leaves, tensors):
        yield x.grad, tensor.grad.numpy()


def assert_same(*case):
    for ours, theirs in both(*case):
        assert np.allclose(ours, theirs, rtol=1e-12, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("name", ["abs", "square", "exp", "log", "log1p", "sin", "cos", "sqrt",
                                  "tanh", "sigmoid", "relu"])
def test_an_op_of_a_number_is_pytorchs_at_its_edges(name):
    assert_same(getattr(mg, name), getattr(torch, name), EDGES)


@pytest.mark.parametrize("ours, theirs", [
    (mg.expm1, lambda x: torch.expm1(x)),
    (mg.leaky_relu, lambda x: functional.leaky_relu(x)),
    (lambda x: mg.leaky_relu(x, 0.3), lambda x: functional.leaky_relu(x, 0.3)),
    (mg.softplus, lambda x: functional.softplus(x, threshold=100)),
    (lambda x: mg.clip(x, -1, 1), lambda x: torch.clamp(x, -1, 1)),
    (lambda x: x.clip(max=1), lambda x: torch.clamp(x, max=1))])
def test_an_op_of_a_number_with_settings_is_pytorchs_at_its_edges(ours, theirs):
    assert_same(ours, theirs, EDGES)


def test_a_root_by_power_has_pytorchs_infinite_slope_at_0():
    assert_same(lambda x: x ** 0.5, lambda x: x ** 0.5, [0, 2, math.inf, math.nan])


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_maximum_and_minimum_are_pytorchs_at_ties_and_nan(name):
    assert_same(getattr(mg, name), getattr(torch, name), *PAIRS)


def test_clip_is_pytorchs_wherever_its_bounds_are():
    assert_same(mg.clip, lambda *args: torch.clamp(*args), *TRIPLES)


@pytest.mark.parametrize("ours, theirs", [
    ("min", "amin"),
    ("max", "amax")])
@pytest.mark.parametrize("axis", [0, -1, (0, 1)])
def test_min_and_max_share_the_gradient_as_pytorchs(ours, theirs, axis):
    assert_same(lambda x: getattr(mg, ours)(x, axis),
                lambda x: getattr(torch, theirs)(x, axis), TIES)


@pytest.mark.parametrize("name", ["var", "std"])
@pytest.mark.parametrize("axis, correction", [
    (1, 0),
    (-1, 1),
    ((0, 1), 2.5),
    (0, 3)])
def test_var_and_std_are_pytorchs_with_its_correction(name, axis, correction):
    def ours(x):
        return getattr(mg, name)(x, axis, correction=correction)

    def theirs(x):
        return getattr(torch, name)(x, axis, correction=correction)
    assert_same(ours, theirs, normal(4, 5))
    if correction < 3:
        assert_same(ours, theirs, TIES)


@pytest.mark.parametrize("mode, theirs", [
    ("constant", "constant"),
    ("edge", "replicate"),
    ("reflect", "reflect"),
    ("wrap", "circular")])
def test_pad_is_pytorchs_in_its_modes(mode, theirs):
    assert_same(lambda x: mg.pad(x, ((0, 0), (1, 2), (3, 0)), mode),
                lambda x: functional.pad(x, (3, 0, 1, 2), theirs), X)


@pytest.mark.parametrize("letters, shapes", [
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("bqhd,bkhd->bhqk", [(2, 4, 3, 5), (2, 6, 3, 5)]),
    ("bcpqhw,ochw->bopq", [(2, 3, 4, 4, 2, 2), (5, 3, 2, 2)]),
    ("iij,iik->jk", [(3, 3, 4), (3, 3, 5)]),
    ("...ij->...ji", [(2, 3, 4)]),
    ("ii", [(3, 3)])])
def test_einsum_is_pytorchs(letters, shapes):
    assert_same(lambda *arrays: mg.einsum(letters, *arrays),
                lambda *arrays: torch.einsum(letters, *arrays),
                *[normal(*shape, seed=n) for n, shape in enumerate(shapes)])


TARGETS = np.array([[0, 4, 2], [2, 1, 3], [4, 0, 2], [1, 2, 0]])
WEIGHT = np.array([0.5, 0, 1, 2.5, 0.1])


def kept(targets, ignored):
    """The targets, of which those of class 2 are ignored if that has another number."""
    return np.where(targets == 2, ignored, targets)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("ignored", [-100, 2, 7])
def test_cross_entropy_and_nll_loss_are_pytorchs(reduction, weight, smoothing, ignored):
    targets = kept(TARGETS, ignored)
    settings = {"ignore_index": ignored, "reduction": reduction}
    classes_first = torch.tensor(targets)

    def theirs(loss, **more):
        if weight is not None:
            more["weight"] = torch.tensor(weight)
        return lambda x: loss(x.movedim(-1, 1), classes_first, **settings, **more)

    x = 4 * normal(4, 3, 5)
    assert_same(lambda x: mg.cross_entropy(x, targets, **settings, weight=weight,
                                           label_smoothing=smoothing),
                theirs(functional.cross_entropy, label_smoothing=smoothing), x)
    if not smoothing:
        assert_same(lambda x: mg.nll_loss(x, targets, **settings, weight=weight),
                    theirs(functional.nll_loss), x)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_of_two_arrays_are_pytorchs(reduction):
    assert_same(lambda x, y: mg.mse_loss(x, y, reduction),
                lambda x, y: functional.mse_loss(x, y, reduction=reduction), X, 1 - X)
    assert_same(
        lambda x, y: mg.binary_cross_entropy_with_logits(x, y, reduction),
        lambda x, y: functional.binary_cross_entropy_with_logits(x, y, reduction=reduction),
        [1000, -1000, 40, -40, 0, 3.0], [1, 0, 0, 1, 0.3, 2])
