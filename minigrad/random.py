"""Random streams: one generator for each purpose, all from one seed, independent of each other."""
import numpy as np

# The position here is part of the seed: add new purposes at the end, or runs would change.
PURPOSES = ("weights", "batches", "dropout", "sampling")


def generator(seed: int | None, purpose: str) -> np.random.Generator:
    """Return the generator of one of PURPOSES; that of the weights gives the same numbers as
    `np.random.default_rng(seed)`.  Without a seed, the numbers differ each time."""
    # PCG64 by name: its numbers stay the same, while NumPy may change default_rng's generator.
    entropy = None if seed is None else [seed, PURPOSES.index(purpose)]
    return np.random.Generator(np.random.PCG64(entropy))


class RowsFrom(np.random.Generator):
    """A generator for the rows of a batch from `first_row` on.  It draws what the generator that it
    is made from would draw next, and the ops of minigrad drop what they would drop in those rows
    of the whole batch."""

    def __init__(self, rng: np.random.Generator, first_row: int) -> None:
        super().__init__(rng.bit_generator)
        self.first_row = first_row
