"""One process alone does what ranks do together, which is mostly nothing."""
import numpy as np

from minigrad import Muon
from model.processes import Ranks
from tests.kit import leaf


def test_one_process_computes_every_row_and_its_gradients_are_the_mean():
    p = leaf([1.0, 2.0])
    p.grad = gradient = np.array([3.0, 4.0])
    averager = Ranks().averager([p], batch_size=5)
    rng = np.random.default_rng(0)
    assert averager.average(2.5) == 2.5
    assert p.grad is gradient and gradient.tolist() == [3.0, 4.0]
    assert [*range(5)][averager.rows] == [0, 1, 2, 3, 4]
    assert averager.generator(rng) is rng


def test_one_process_is_the_first_of_its_ranks_and_has_what_all_have():
    ranks = Ranks()
    row = np.array([1.0, 2.0])
    ranks.sum(row)
    assert row.tolist() == [1.0, 2.0]
    assert ranks.first and (ranks.number, ranks.size) == (0, 1)
    assert ranks.any(True) and not ranks.any(False)
    assert ranks.total(2.5) == ranks.broadcast(2.5) == ranks.call_on_first(lambda: 2.5) == 2.5
    assert ranks.gather("flags") == ["flags"]
    assert type(ranks.muon([leaf([[1.0]])], 0.1)) is Muon
