"""The mean of loss and gradients over the rows of batches that ranks share out.

Shapes: B rows of a batch, T time; n numbers in all parameters together.
"""
from collections.abc import Iterable, Iterator

import numpy as np

from minigrad import Tensor
from minigrad.core import timed
from minigrad.random import RowsFrom
from model.ranks.ranks import Ranks

Batch = tuple[np.ndarray, np.ndarray]       # ids and targets, (B, T) each
# `Exact` adds up multiples of COARSE and, of what is left over, multiples of FINE.  A float64 has
# 53 bits: the first are exact below 2^21, the others for 2^12 rows.
COARSE, FINE = 2.0**-32, 2.0**-74
AT_ONCE = 1 << 12       # numbers that stay in the first-level cache


class Mean:
    """The mean over batches that this process has for itself.

    Parameters
    ----------
    parameters : those whose gradients are averaged.
    """

    def __init__(self, ranks: Ranks, parameters: list[Tensor]) -> None:
        self.ranks, self.parameters = ranks, parameters

    def rows(self, batches: Iterable[Batch], rng: np.random.Generator
             ) -> Iterator[tuple[np.ndarray, np.ndarray, np.random.Generator]]:
        """Yield what this rank is to go forward and back with, in turn: ids and targets of rows of
        a batch, and the generator for their dropout."""
        for x, y in batches:
            yield x, y, rng

    def over_ranks(self, loss: float) -> float:
        """Return the mean loss over the rows of all ranks.  Replace each gradient, which is that of
        this rank's rows, by the mean over all rows."""
        return loss

    def _flat(self, kinds, dtype):
        """Return zeros (kinds, n), and for each parameter its part, (kinds, *shape)."""
        flat = np.zeros((kinds, sum(p.size for p in self.parameters)), dtype)
        ends = np.cumsum([p.size for p in self.parameters])[:-1]
        return flat, [part.reshape(kinds, *p.shape)
                      for p, part in zip(self.parameters, np.split(flat, ends, axis=1))]


class OverRanks(Mean):
    """The mean of the ranks' means, weighted by their rows, of which some ranks have one more than
    others.  A rank that would have none takes one, with the weight 0."""

    def __init__(self, ranks, parameters):
        super().__init__(ranks, parameters)
        self.flat, self.parts = self._flat(1, parameters[0].dtype)

    def rows(self, batches, rng):
        number, size = self.ranks.number, self.ranks.size
        for x, y in batches:
            B = len(x)
            start, stop = B * number // size, B * (number + 1) // size
            self.weight = (stop - start) / B
            own = slice(start, max(stop, start + 1))
            yield x[own], y[own], RowsFrom(rng, start)

    @timed("summing over ranks")
    def over_ranks(self, loss):
        for p, (part,) in zip(self.parameters, self.parts):
            np.multiply(p.grad, self.weight, out=part)
            p.grad = part
        loss = self.ranks.total(loss * self.weight)
        self.ranks.sum(self.flat[0])
        return loss


class Exact(Mean):
    """The mean with the same bits for every number of ranks that divides B.

    The gradient of each row is computed alone, and added up without rounding, so that the order
    does not matter.  This holds while all sums stay below 2^21.
    """

    def __init__(self, ranks, parameters):
        super().__init__(ranks, parameters)
        self.sums, self.parts = self._flat(2, np.float64)

    def rows(self, batches, rng):
        for x, y in batches:
            self.B = len(x)
            before = rng.bit_generator.state
            for row in range(self.B)[self.ranks.number::self.ranks.size]:
                rng.bit_generator.state = before        # one seed for all rows of a mask
                yield x[row:row + 1], y[row:row + 1], RowsFrom(rng, row)
                for p, sums in zip(self.parameters, self.parts):
                    add_exactly(p.grad.reshape(-1), sums.reshape(2, -1))
                    p.grad = None

    @timed("summing over ranks")
    def over_ranks(self, loss):
        self.ranks.sum(self.sums.reshape(-1))
        for p, (coarse, fine) in zip(self.parameters, self.parts):
            p.grad = ((coarse + fine) / self.B).astype(p.dtype)
        self.sums[:] = 0
        # Losses of float32 are added up in float64 without rounding, unless they differ vastly.
        return self.ranks.total(loss) / self.B


def add_exactly(x: np.ndarray, sums: np.ndarray) -> None:
    """Add x (n,) to sums (2, n): its multiples of COARSE to the first row, and of the rest those of
    FINE to the second.

    To add a number so large that the last bit of the sum has the unit's value, and to subtract it,
    rounds to multiples of the unit.
    """
    for at in range(0, x.size, AT_ONCE):
        rest = x[at:at + AT_ONCE].astype(np.float64)
        for total, unit in zip(sums, (COARSE, FINE)):
            rounded = rest + 1.5 * 2**52 * unit
            rounded -= 1.5 * 2**52 * unit
            total[at:at + AT_ONCE] += rounded
            rest -= rounded


def mean_of(ranks: Ranks, parameters: list[Tensor], exact: bool = False) -> Mean:
    """Return how the mean over all rows is taken."""
    kind = Exact if exact else OverRanks if ranks.size > 1 else Mean
    return kind(ranks, parameters)
