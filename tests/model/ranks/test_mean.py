"""Ranks come to the losses, gradients and weights of one process, and wrong means are noticed."""
import functools
from types import SimpleNamespace

import numpy as np
import pytest

from minigrad.core import Tensor
from model.processes import Ranks
from model.ranks.mean import COARSE, FINE, add_exactly, shared_out
from model.ranks.mpi import MPIRanks
from model.settings import Settings
from tests.model.ranks import together


def on(size, *values):
    """Parameters of a test of the runs of so many ranks, which are taken meanwhile."""
    name = getattr(values[0], "__name__", values[0])
    return pytest.param(*values, id=f"{name}-{size}", marks=[
        pytest.mark.needs("mpi"),
        pytest.mark.meanwhile("-m", "tests.model.ranks.together", str(size), "FOLDER")])


@pytest.fixture
def by_ranks(ended):
    """What became of the runs of ranks."""
    assert ended.returncode == 0, ended.stderr
    size, folder = ended.args[-2:]
    return results_in(f"{folder}/{size}.npz")


@functools.cache
def results_in(path):
    with np.load(path) as file:
        return dict(file)


@functools.cache
def alone(name, steps=together.STEPS):
    return together.results_of(name, Ranks(), steps)


def furthest(name, found, expected):
    """The largest difference of any number."""
    return max(abs(found[f"{name}/{key}"] - a).max() for key, a in expected.items())


@pytest.mark.parametrize("name, at_most", [
    *[on(size, name, 1e-12) for name in ("gpt2", "modern") for size in (2, 3, 4)],
    *[on(size, "float32", 1e-4) for size in (2, 3)], *[on(size, "exact", 0) for size in (2, 3)]])
def test_losses_gradients_and_weights_are_those_of_one_process(by_ranks, name, at_most):
    assert len(alone(name)["losses"]) == (10 if name == "exact" else together.STEPS)
    assert furthest(name, by_ranks, alone(name)) <= at_most


@pytest.mark.parametrize("wrong", [on(size, wrong) for size in (2, 3) for wrong in together.WRONG])
def test_a_wrong_mean_is_noticed(by_ranks, wrong):
    assert furthest(wrong.__name__, by_ranks, alone("gpt2", 5)) > 1e-5


def test_a_process_alone_takes_its_batches_and_gradients_as_they_are():
    rng, batches = np.random.default_rng(0), [(np.zeros((2, 3)), np.ones((2, 3)))]
    w = Tensor(np.ones(2), requires_grad=True)
    mean, w.grad = Ranks().mean([w], batch_size=2), (g := np.ones(2))
    (x, y, its), = mean.rows(batches, rng)
    assert x is batches[0][0] and y is batches[0][1] and its is rng
    mean.add_gradients(), mean.average_gradients()
    assert w.grad is g and mean.average_loss(0.1) == 0.1


def test_exact_sums_do_not_depend_on_their_order_and_of_what_is_not_finite_they_are_not():
    rng = np.random.default_rng(1)
    numbers = rng.standard_normal((40, 5000)) * 10.0 ** rng.integers(-12, 4, size=(40, 5000))
    numbers[:, 0], numbers[:2, 1] = 2.0**-80, (2.0**18, -2.0**18)
    totals = []
    for order in (range(40), range(39, -1, -1), rng.permutation(40)):
        sums = np.zeros((2, 5000))
        for i in order:
            add_exactly(numbers[i], sums)
        totals.append(sums)
    assert all(np.array_equal(totals[0], other) for other in totals[1:])
    assert np.allclose(totals[0].sum(axis=0), numbers.sum(axis=0), rtol=1e-9, atol=40 * FINE)
    assert not np.array_equal(numbers.sum(axis=0), numbers[::-1].cumsum(axis=0)[-1])    # floats do
    assert (totals[0][0] % COARSE == 0).all()
    sums = np.zeros((2, 3))
    with np.errstate(invalid="ignore"):
        add_exactly(np.array([np.nan, np.inf, 1.0]), sums)
    assert list(np.isfinite(sums.sum(axis=0))) == [False, False, True]


def test_an_exact_mean_alone_is_the_mean_of_the_rows_gradients():
    w = Tensor(np.array([1.0, 2.0], np.float32), requires_grad=True)
    x = np.array([[1.0], [2.0], [4.0]])
    mean = Ranks().mean([w], batch_size=3, exact=True)
    for row, _, _ in mean.rows([(x, x)], np.random.default_rng(0)):
        (w * row.item()).sum().backward()
        mean.add_gradients()
    mean.average_gradients()
    assert mean.average_loss(6.0) == 2.0
    assert w.grad.dtype == np.float32 and np.allclose(w.grad, 7 / 3)


@pytest.mark.parametrize("costs, size, expected", [
    ([1, 5, 3, 3], 2, [[1, 0], [2, 3]]), ([2, 2, 2], 3, [[0], [1], [2]]), ([7], 3, [[0], [], []])])
def test_the_costliest_goes_to_the_rank_with_the_least_to_do(costs, size, expected):
    assert shared_out(costs, size) == expected


@pytest.mark.parametrize("settings, size, says", [
    (dict(batch_size=12, reduce="exact"), 5, ["--reduce exact", "--batch_size 12, and 5 do not"]),
    (dict(batch_size=12), 5, []), (dict(batch_size=12, reduce="exact"), 4, []),
    (dict(explain=True), 1, []), (dict(explain=True), 2, ["--explain", "one process"])])
def test_settings_that_do_not_go_with_the_number_of_ranks_are_refused(settings, size, says):
    found = MPIRanks.problems(SimpleNamespace(size=size), Settings(**settings))
    assert Ranks().problems(Settings(**settings)) == []
    assert len(found) == bool(says) and all(words in found[0] for words in says)
