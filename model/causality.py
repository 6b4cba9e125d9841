"""Proof before training that a model predicts without looking at what it shall predict."""
from collections.abc import Callable

import numpy as np

from minigrad import no_grad

TOKENS = 8192       # shown, at most, unless that allows fewer than FEWEST futures
FEWEST = 16


class CausalityError(ValueError):
    """A model whose output depends on later input, or may do so for all that can be seen."""


def prove_causality(model: Callable, vocab_size: int, block_size: int, seed: int = 0) -> None:
    """Change the future and see that the past's logits stay equal bit for bit.

    A batch of one random sequence of `block_size` ids, repeated, is shown to the model, and then
    the same with other ids from some position on, a different one in each row; all logits before
    that position must be the same.  Up to a block size of 90 that is every position; of a longer
    block it is some, evenly spaced, so that a leak between two neighbours only may pass.

    Raises
    ------
    CausalityError : names the first position whose logits moved, and where the change began.
    """
    if block_size < 2 or vocab_size < 2:
        return                                              # no future, or nothing to change it to
    rng = np.random.default_rng(seed)
    n_cuts = min(block_size - 1, max(FEWEST, TOKENS // block_size))
    cuts = np.linspace(1, block_size - 1, n_cuts).astype(int)
    ids = np.tile(rng.integers(vocab_size, size=block_size), (len(cuts), 1))        # (cuts, T)
    changed = ids.copy()
    for row, cut in zip(changed, cuts):
        row[cut:] = (row[cut:] + rng.integers(1, vocab_size, size=block_size - cut)) % vocab_size
    with no_grad():
        before, after = model(ids).data, model(changed).data                        # (cuts, T, V)
    if not (np.isfinite(before).all() and np.isfinite(after).all()):
        raise CausalityError("nothing can be proven of a model whose logits are not finite; "
                             "look at its weights")
    moved = (before != after).any(axis=-1)                                          # (cuts, T)
    for row, cut in zip(moved, cuts):
        if row[:cut].any():
            raise CausalityError("the model sees the future: the logits at position "
                                 f"{int(row.argmax())} changed when only the input from position "
                                 f"{cut} on did; look at its mask")
