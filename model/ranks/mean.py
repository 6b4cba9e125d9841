"""What ranks share out: the rows of batches, for data parallelism, and Muon's matrices.

Shapes: B rows of a batch, T time; n numbers in all parameters together.
"""
import numpy as np

from minigrad import Muon, Tensor
from minigrad.core import timed
from model.processes import Mean, Ranks

# `Exact` adds up multiples of COARSE and, of what is left over, multiples of FINE.  A float64 has
# 53 bits: the first are exact below 2^21, the others for 2^12 rows.
COARSE, FINE = 2.0**-32, 2.0**-74
AT_ONCE = 1 << 12       # numbers that stay in the first-level cache


class RowsFrom(np.random.Generator):
    """A generator for the rows of a batch from `first_row` on.  It draws what the generator that it
    is made from would draw next, and the ops of minigrad drop what they would drop in those rows
    of the whole batch."""

    def __init__(self, rng: np.random.Generator, first_row: int) -> None:
        super().__init__(rng.bit_generator)
        self.first_row = first_row


class OverRanks(Mean):
    """The mean of the ranks' means, weighted by their rows, of which some ranks have one more than
    others.  A rank that would have none takes one, with the weight 0."""

    def __init__(self, ranks: Ranks, parameters: list[Tensor], batch_size: int) -> None:
        start, stop = (batch_size * n // ranks.size for n in (ranks.number, ranks.number + 1))
        self.ranks, self.parameters = ranks, parameters
        self.own, self.weight = slice(start, max(stop, start + 1)), (stop - start) / batch_size
        self.flat, self.parts = flat(parameters, 1, parameters[0].dtype)

    def rows(self, batches, rng):
        for x, y in batches:
            yield x[self.own], y[self.own], RowsFrom(rng, self.own.start)

    @timed("summing over ranks")
    def average_gradients(self):
        for p, (part,) in zip(self.parameters, self.parts):
            np.multiply(p.grad, self.weight, out=part)
            p.grad = part
        self.ranks.sum(self.flat[0])

    def average_loss(self, loss):
        return self.ranks.total(loss * self.weight)


class Exact(Mean):
    """The mean with the same bits for every number of ranks that divides B.

    The gradient of each row is computed alone, and added up without rounding, so that the order
    does not matter.  This holds while all sums stay below 2^21.
    """

    def __init__(self, ranks: Ranks, parameters: list[Tensor], batch_size: int) -> None:
        self.ranks, self.parameters, self.batch_size = ranks, parameters, batch_size
        self.sums, self.parts = flat(parameters, 2, np.float64)

    def rows(self, batches, rng):
        for x, y in batches:
            before = rng.bit_generator.state
            for row in range(self.batch_size)[self.ranks.number::self.ranks.size]:
                rng.bit_generator.state = before        # one seed for all rows of a mask
                yield x[row:row + 1], y[row:row + 1], RowsFrom(rng, row)

    def add_gradients(self):
        for p, sums in zip(self.parameters, self.parts):
            add_exactly(p.grad.reshape(-1), sums.reshape(2, -1))
            p.grad = None

    @timed("summing over ranks")
    def average_gradients(self):
        self.ranks.sum(self.sums.reshape(-1))
        for p, (coarse, fine) in zip(self.parameters, self.parts):
            p.grad = ((coarse + fine) / self.batch_size).astype(p.dtype)
        self.sums[:] = 0

    def average_loss(self, loss):
        # Losses of float32 are added up in float64 without rounding, unless they differ vastly.
        return self.ranks.total(loss) / self.batch_size


def flat(parameters: list[Tensor], kinds: int, dtype: type) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return zeros (kinds, n), and for each parameter its part, (kinds, *shape)."""
    row = np.zeros((kinds, sum(p.size for p in parameters)), dtype)
    ends = np.cumsum([p.size for p in parameters])[:-1]
    return row, [part.reshape(kinds, *p.shape)
                 for p, part in zip(parameters, np.split(row, ends, axis=1))]


def add_exactly(x: np.ndarray, sums: np.ndarray) -> None:
    """Add x (n,) to sums (2, n): its multiples of COARSE to the first row, and of the rest those of
    FINE to the second.

    Adding a number so large that the last bit of the sum has the unit's value, and subtracting it
    again, rounds to multiples of the unit.
    """
    for at in range(0, x.size, AT_ONCE):
        rest = x[at:at + AT_ONCE].astype(np.float64)
        for total, unit in zip(sums, (COARSE, FINE)):
            rounded = rest + 1.5 * 2**52 * unit
            rounded -= 1.5 * 2**52 * unit
            total[at:at + AT_ONCE] += rounded
            rest -= rounded


class SharedMuon(Muon):
    """Muon, of which each rank updates some of the matrices and sends them to the others.

    All ranks have the same gradients before a step, and the same weights and state after it: those
    of `mg.Muon`, to the last bit.
    """

    def __init__(self, ranks: Ranks, *args, **settings) -> None:
        super().__init__(*args, **settings)
        self.ranks = ranks

    def step_matrices(self, matrices: list[tuple]) -> None:
        shares = shared_out([p.size * min(p.shape) for p, *_ in matrices], self.ranks.size)
        super().step_matrices([matrices[i] for i in shares[self.ranks.number]])
        self.ranks.exchange([[a for i in share for a in (matrices[i][0], matrices[i][2])]
                             for share in shares])


def shared_out(costs: list[int], size: int) -> list[list[int]]:
    """Share out tasks of these costs among `size` ranks: the costliest first, each to the rank that
    has the least to do.  Return the numbers of each rank's tasks."""
    shares, loads = [[] for _ in range(size)], [0] * size
    for i in sorted(range(len(costs)), key=costs.__getitem__, reverse=True):
        rank = loads.index(min(loads))
        shares[rank].append(i)
        loads[rank] += costs[i]
    return shares
