"""Every matrix is stepped by one rank, and the ranks have about as much to do.  (That its results
are those of one process: test_mean.py.)"""
import numpy as np
import pytest

from minigrad import Muon
from minigrad.core import Tensor
from model.ranks.muon import SharedMuon, shared_out
from model.processes import Ranks


@pytest.mark.parametrize("costs, size, expected", [
    ([1, 5, 3, 3], 2, [[1, 0], [2, 3]]), ([2, 2, 2], 3, [[0], [1], [2]]), ([7], 3, [[0], [], []])])
def test_the_costliest_goes_to_the_rank_with_the_least_to_do(costs, size, expected):
    assert shared_out(costs, size) == expected


class Several(Ranks):
    """One of several ranks, all in this process, whose exchanges are kept."""

    def __init__(self, number, size):
        self.number, self.size = number, size

    def exchange(self, arrays):
        self.arrays = arrays


@pytest.mark.parametrize("size", [2, 7])
def test_ranks_together_do_what_muon_does(size):
    def stepped(kind):
        rng = np.random.default_rng(0)
        shapes = (6, 4), (4, 4), (12, 4), (4, 9)
        parameters = [Tensor(rng.standard_normal(shape), requires_grad=True) for shape in shapes]
        for p in parameters:
            p.grad = rng.standard_normal(p.shape)
        muon = kind([{"params": parameters[:3]}, {"params": parameters[3:], "sections": (1, 3)}])
        muon.step()
        return parameters, muon.momentum
    every = [Several(number, size) for number in range(size)]
    for ranks in every:
        stepped(lambda parameters: SharedMuon(ranks, parameters))
    for places in zip(*(ranks.arrays for ranks in every)):
        assert len({len(its) for its in places}) == 1       # all ranks list the same arrays
    weights, momentum = stepped(Muon)
    expected = [*(p.data for p in weights), *momentum]
    sent = [a for number, ranks in enumerate(every) for a in ranks.arrays[number]]
    assert sorted(np.concatenate([a.ravel() for a in sent])) == sorted(
        np.concatenate([a.ravel() for a in expected]))
