"""Proof before training that a model predicts without looking at what it shall predict."""
from collections.abc import Callable

import numpy as np

from minigrad import no_grad

TOKENS = 4096       # shown at each length, about, and the same number with the future changed
SHORT = 64          # positions, of which each is tried
LONG = 2048         # positions, at most: attention to more takes seconds, then minutes


class CausalityError(ValueError):
    """A model whose output depends on later input, or may do so for all that can be seen."""


def prove_causality(model: Callable, vocab_size: int, block_size: int, seed: int = 0) -> None:
    """Change the future and see that the past's logits stay equal bit for bit.

    A batch of one random sequence of ids, repeated, is shown to the model, and then the same with
    other ids from some position on, a different one in each row; all logits before that position
    must be the same.  In sequences of SHORT that is every position; then, in sequences as long as
    the block or LONG, positions evenly spaced, the last among them.

    So a leak that all queries have, or all blocks of up to SHORT queries, is found at any block
    size.  From SHORT on, a leak between two neighbours only may pass.  From LONG on, nothing is
    shown: there a leak must be one that earlier positions have too.

    Raises
    ------
    CausalityError : names the first position whose logits moved, and where the change began.
    """
    if block_size < 2 or vocab_size < 2:
        return                                              # no future, or nothing to change it to
    rng = np.random.default_rng(seed)
    for T in sorted({min(block_size, SHORT), min(block_size, LONG)}):
        ids = rng.integers(vocab_size, size=T)
        cuts = np.linspace(0, T - 1, 1 + min(T - 1, TOKENS // T)).astype(int)[1:]
        _prove_at(model, vocab_size, ids, cuts, rng)


def _prove_at(model, vocab_size, ids, cuts, rng):
    """The proof for one sequence, (T,), and changes from each of the cuts on."""
    ids = np.tile(ids, (len(cuts), 1))                                              # (cuts, T)
    changed = ids.copy()
    for row, cut in zip(changed, cuts):
        row[cut:] = (row[cut:] + rng.integers(1, vocab_size, size=len(row) - cut)) % vocab_size
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
