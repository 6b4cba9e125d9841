"""Proof before training that a model is causal: that its causal mask hides what it must predict."""
import math
from collections.abc import Callable

import numpy as np
from tqdm import tqdm

from minigrad import no_grad

TOKENS = 4096       # about the number tried at each length, and again with the future changed
SHORT = 64          # the length at which every position is tried
LONG = 2048         # the longest sequence tried: attention over more takes seconds, then minutes
LOGITS = 1 << 26    # at most this many at once: a large vocabulary means fewer positions per batch


class CausalityError(ValueError):
    """The model's output depends on later input, or this cannot be ruled out."""


def prove_causality(model: Callable, vocab_size: int, block_size: int) -> None:
    """Change the future and check that the logits of the past stay equal bit for bit.

    The model gets a batch that repeats one random sequence of ids.  Then it gets the same batch
    with other ids from some position on, a different position in each row.  All logits before that
    position must be equal.  In sequences of SHORT ids, every position is tried; in sequences as
    long as the block, or LONG, evenly spaced positions, the last one included.

    So a leak that all queries have, or all blocks of up to SHORT queries, is found at any block
    size.  Beyond SHORT, a leak between two single neighbours may be missed.  Beyond LONG nothing is
    tried: a leak there is found only if earlier positions have it, too.

    Raises
    ------
    CausalityError : names the first position whose logits changed, and where the change began.
    """
    if block_size < 2 or vocab_size < 2:
        return                                              # there is no future, or no other id
    rng, tried = np.random.default_rng(0), []
    for T in sorted({min(block_size, SHORT), min(block_size, LONG)}):
        ids = rng.integers(vocab_size, size=T)
        cuts = np.linspace(0, T - 1, 1 + min(T - 1, TOKENS // T)).astype(int)[1:]
        for some in np.array_split(cuts, math.ceil(len(cuts) * T * vocab_size / LOGITS)):
            tried += [(ids, some)] * (len(some) > 0)
    for ids, some in tqdm(tried, "proving that it is causal", leave=False, delay=1, disable=None):
        _prove_at(model, vocab_size, ids, some, rng)


def _prove_at(model, vocab_size, ids, cuts, rng):
    """Run the proof on one sequence, (T,), with changes from each of the cuts on."""
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
