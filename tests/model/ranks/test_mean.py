"""Ranks come to the losses, gradients and weights of one process, and wrong means are noticed."""
import functools
from types import SimpleNamespace

import numpy as np
import pytest

from model.processes import Ranks
from model.ranks.mean import share_out
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
    return np.max([abs(found[f"{name}/{key}"] - a).max() for key, a in expected.items()])


@pytest.mark.parametrize("name, at_most", [
    *[on(size, name, 1e-12) for name in ("gpt2", "modern") for size in (2, 3, 4)],
    *[on(size, "float32", 1e-4) for size in (2, 3)]])
def test_losses_gradients_and_weights_are_those_of_one_process(by_ranks, name, at_most):
    assert len(alone(name)["losses"]) == together.STEPS
    assert furthest(name, by_ranks, alone(name)) <= at_most


@pytest.mark.parametrize("wrong", [on(size, wrong) for size in (2, 3) for wrong in together.WRONG])
def test_a_wrong_mean_is_noticed(by_ranks, wrong):
    assert furthest(wrong.__name__, by_ranks, alone("gpt2", 5)) > 1e-5


@pytest.mark.parametrize("costs, size, expected", [
    ([1, 5, 3, 3], 2, [[1, 0], [2, 3]]),
    ([2, 2, 2], 3, [[0], [1], [2]]),
    ([7], 3, [[0], [], []])])
def test_the_costliest_goes_to_the_rank_with_the_least_to_do(costs, size, expected):
    assert share_out(costs, size) == expected


@pytest.mark.parametrize("settings, size, says", [
    (dict(batch_size=12), 5, []),
    (dict(explain=True), 1, []),
    (dict(explain=True), 2, ["--explain", "one process"])])
def test_settings_that_do_not_go_with_the_number_of_ranks_are_refused(settings, size, says):
    found = MPIRanks.problems(SimpleNamespace(size=size), Settings(**settings))
    assert Ranks().problems(Settings(**settings)) == []
    assert len(found) == bool(says)
    assert all(words in found[0] for words in says)
