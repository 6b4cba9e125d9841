"""What ranks share out: the rows of batches, for data parallelism, and Muon's matrices.

Shapes: B rows of a batch, T time.
"""
import numpy as np

from minigrad import Muon, Tensor
from minigrad.core import timed
from minigrad.random import RowsFrom
from model.processes import Averager, Ranks


class OverRanks(Averager):
    """The mean over the ranks of their means, weighted by their rows, of which some ranks have one
    more than others.  A rank that would have none takes one, with the weight 0.

    Attributes
    ----------
    rows : the rows of each batch that this rank computes.
    """

    def __init__(self, ranks: Ranks, parameters: list[Tensor], batch_size: int) -> None:
        start, stop = (batch_size * n // ranks.size for n in (ranks.number, ranks.number + 1))
        self.ranks = ranks
        self.parameters = parameters
        self.rows = slice(start, max(stop, start + 1))
        self.weight = (stop - start) / batch_size
        self.row, self.parts = flat(parameters)

    def generator(self, rng: np.random.Generator) -> RowsFrom:
        """Return the generator for the dropout of these rows."""
        return RowsFrom(rng, self.rows.start)

    @timed("summing over ranks")
    def average(self, loss: float) -> float:
        """Replace the gradient of each parameter by its mean over the rows of all ranks; return the
        mean of their losses."""
        for p, part in zip(self.parameters, self.parts):
            if p.grad is None:          # on all ranks: what looks ahead rests
                part[...] = 0
                continue
            np.multiply(p.grad, self.weight, out=part)
            p.grad = part
        self.ranks.sum(self.row)
        return self.ranks.total(loss * self.weight)


def flat(parameters: list[Tensor]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return a row of zeros for the numbers of all parameters, and for each parameter its part, of
    the parameter's shape."""
    row = np.zeros(sum(p.size for p in parameters), parameters[0].dtype)
    ends = np.cumsum([p.size for p in parameters])[:-1]
    return row, [part.reshape(p.shape) for p, part in zip(parameters, np.split(row, ends))]


class SharedMuon(Muon):
    """Muon, of which each rank updates some of the matrices and sends them to the others.

    All ranks have the same gradients before a step, and the same weights and state after it: those
    of `mg.Muon`, to the last bit.
    """

    def __init__(self, ranks: Ranks, *args, **settings) -> None:
        super().__init__(*args, **settings)
        self.ranks = ranks

    def step_matrices(self, matrices: list[tuple]) -> None:
        shares = share_out([p.size * min(p.shape) for p, *_ in matrices], self.ranks.size)
        super().step_matrices([matrices[i] for i in shares[self.ranks.number]])
        self.ranks.exchange([[a for i in share for a in (matrices[i][0], matrices[i][2])]
                             for share in shares])


def share_out(costs: list[int], size: int) -> list[list[int]]:
    """Share out tasks of these costs among `size` ranks: the costliest first, each to the rank that
    has the least to do.  Return the numbers of each rank's tasks."""
    shares = [[] for _ in range(size)]
    loads = [0] * size
    for i in sorted(range(len(costs)), key=costs.__getitem__, reverse=True):
        rank = loads.index(min(loads))
        shares[rank].append(i)
        loads[rank] += costs[i]
    return shares
