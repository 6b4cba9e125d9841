"""Random streams: one generator for each purpose, all from one seed, independent of each other; the
generator of the process, for weights that nobody gives one for; and the draw of an id."""
from numbers import Integral

import numpy as np

from minigrad.plug import formula

# The position here is part of the seed: add new purposes at the end, or runs would change.
PURPOSES = ("weights", "batches", "dropout", "sampling")


def generator(seed: int | None, purpose: str, *number: int) -> np.random.Generator:
    """Return the generator of one of PURPOSES, or one of many for it by number, from 1; that of the
    weights gives the same numbers as `np.random.default_rng(seed)`.  Without a seed, the numbers
    differ each time."""
    # PCG64 by name: its numbers stay the same, while NumPy may change default_rng's generator.
    entropy = None if seed is None else [seed, PURPOSES.index(purpose), *number]
    return np.random.Generator(np.random.PCG64(entropy))


_of_process = generator(0, "weights")


def of_process() -> np.random.Generator:
    """Return the generator of this process, from which layers draw weights if they are given none.
    """
    return _of_process


def manual_seed(seed: int) -> None:
    """Begin the generator of this process anew.  It begins with seed 0, so that a program draws the
    same weights each time.  It is for weights alone: dropout needs a generator at each call."""
    global _of_process
    if not isinstance(seed, Integral) or seed < 0:
        raise ValueError(f"a seed is a whole number of at least 0, not {seed!r}")
    _of_process = generator(int(seed), "weights")


class RowsFrom(np.random.Generator):
    """A generator for the rows of a batch from `first_row` on.  It draws what the generator that it
    is made from would draw next, and the ops of minigrad drop what they would drop in those rows
    of the whole batch."""

    def __init__(self, rng: np.random.Generator, first_row: int) -> None:
        super().__init__(rng.bit_generator)
        self.first_row = first_row


@formula
def draw(logits, u, temperature, top_k, top_p):
    """Return an id for each row of logits, (B, V), and u from [0, 1), (B,); and the probabilities
    from which it is drawn, (B, V), float64.  A temperature of 0 takes the likeliest.  The id is -1
    if a logit is nan or inf, or all are -inf  (top_p: Holtzman et al. 2020, section 3.1)."""
    drawn = np.full(len(logits), -1)
    probabilities = np.zeros(logits.shape)
    most = 1 if temperature == 0 else top_k
    for b, row in enumerate(logits.astype(np.float64)):
        ranked = np.argsort(-row, kind="stable")[:most]
        top = row[ranked[0]]
        if top == -np.inf or not (row < np.inf).all():
            continue
        p = np.exp((row[ranked] - top) / (temperature or 1.0))
        if top_p is not None and top_p < 1:
            reached = np.cumsum(p)
            fewest = 1 + np.searchsorted(reached, top_p * reached[-1])
            ranked = ranked[:fewest]
            p = p[:fewest]
        probabilities[b, ranked] = p / p.sum()
        likely = np.flatnonzero(probabilities[b])
        reached = np.cumsum(probabilities[b, likely])
        place = np.searchsorted(reached, u[b], side="right")
        drawn[b] = likely[min(place, likely.size - 1)]
    return drawn, probabilities
