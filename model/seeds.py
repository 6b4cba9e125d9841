"""Random numbers by purpose: a generator for each, all of one seed, so that none moves another."""
import numpy as np

# Each goes into the seed by its number here: new ones come last, or runs would change.
PURPOSES = ("weights", "batches", "dropout", "sampling")


def generator(seed: int | None, purpose: str) -> np.random.Generator:
    """What to draw from for one of PURPOSES; for the weights, as `np.random.default_rng(seed)`.
    Without a seed it gives other numbers each time."""
    # PCG64 by name: its numbers stay, whereas NumPy may give default_rng another one.
    entropy = None if seed is None else [seed, PURPOSES.index(purpose)]
    return np.random.Generator(np.random.PCG64(entropy))
