"""Batches of windows from a row of ids.

B is the batch size, T the block size, N a number of windows.  x are ids, and y the ids that follow
them, both int64 and contiguous.
"""
import functools
from collections.abc import Callable

import numpy as np

IGNORE = -100       # a target that does not count: cross_entropy's ignore_index
Batch = tuple[np.ndarray, np.ndarray]       # x and y, (B, T) each


def split(ids: np.ndarray | str, share: float = 0.1) -> tuple[np.ndarray | str, ...]:
    """Return the training part and, at the end, the validation part, of ids or of a string.

    Source: nanoGPT, data/shakespeare_char/prepare.py, which rounds the same way.
    """
    end = int((1 - share) * len(ids))
    return ids[:end], ids[end:]


def random_batch(train: np.ndarray, batch_size: int, block_size: int,
                 rng: np.random.Generator) -> Batch:
    """Draw B windows from anywhere in the ids, each start equally likely: x and y, (B, T) each."""
    starts = rng.integers(len(train) - block_size, size=batch_size)
    return _cut(train, starts, block_size)


class Shuffled:
    """Windows side by side over the ids, in a new order in each pass over them.

    So every id is read once a pass, but for fewer than 2 T at the two ends: a pass begins somewhere
    in the first ones.  Batches drawn from anywhere read some ids often and others never.

    Parameters
    ----------
    ids : the ids of the training part, (N,).
    rng_of : returns the generator of a pass, of which the first is 0.
    """

    def __init__(self, ids: np.ndarray, block_size: int,
                 rng_of: Callable[[int], np.random.Generator]) -> None:
        self.ids = ids
        self.block_size = block_size
        self.rng_of = rng_of
        self.n = max(1, (len(ids) - 1) // block_size - 1)       # windows of a pass
        self.starts = functools.lru_cache(maxsize=2)(self._starts)

    def _starts(self, number):
        """Return where the windows of a pass start, (n,)."""
        rng = self.rng_of(number)
        free = len(self.ids) - self.n * self.block_size
        return rng.integers(free) + self.block_size * rng.permutation(self.n)

    def batch(self, first: int, batch_size: int) -> Batch:
        """Return B windows, from number `first` of all passes on: x and y, (B, T) each."""
        starts = [self.starts(i // self.n)[i % self.n] for i in range(first, first + batch_size)]
        return _cut(self.ids, np.array(starts), self.block_size)


def windows(val: np.ndarray, block_size: int) -> Batch:
    """Return windows side by side over all the ids: x and y, (N, T) each.

    The last window starts earlier, so that it is full.  The targets that it shares with the window
    before are IGNORE: each id but the first is a target exactly once.
    """
    n_targets = len(val) - 1
    if n_targets < block_size:
        raise ValueError(f"windows of {block_size} need {block_size + 1} ids, got {len(val)}")
    starts = np.arange(0, n_targets, block_size)
    overlap = starts[-1] + block_size - n_targets
    starts[-1] -= overlap
    x, y = _cut(val, starts, block_size)
    y[-1, :overlap] = IGNORE
    return x, y


def spread(n: int, count: int) -> np.ndarray:
    """Return `count` numbers below n, evenly spaced and ascending; all if `count` is 0.

    0 .. n-1 is cut into equal stretches, and the middle of each is taken.
    """
    if count == 0 or count >= n:
        return np.arange(n)
    return (2 * np.arange(count, dtype=np.int64) + 1) * n // (2 * count)


def _cut(ids, starts, block_size):
    positions = starts[:, None] + np.arange(block_size)     # (N, T)
    x = ids[positions]
    y = ids[positions + 1]
    return x.astype(np.int64), y.astype(np.int64)
