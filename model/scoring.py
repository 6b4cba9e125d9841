"""How a model is judged: its loss on windows, beside that of counted n-grams, in nats per id (a
character or token); and before training the proof that its causal mask hides what it must predict.

Shapes: N windows, T ids.
"""
import math
from collections.abc import Callable, Sequence

import numpy as np
from tqdm import tqdm

import minigrad as mg
from data import IGNORE, ngram_losses
from model.processes import Ranks
from model.transformer import Transformer

NGRAMS = ("unigram", "bigram", "trigram", "4-gram", "5-gram")
COUNTING_SECONDS = 3    # for the n-grams; a large text gets fewer of them
LOGITS = 1 << 23    # at most this many at once: a large vocabulary means smaller batches
# Of the proof:
TOKENS = 4096       # about the number tried at each length, and again with the future changed
SHORT = 64          # the length at which every position is tried
LONG = 2048         # the longest sequence tried: attention over more takes seconds, then minutes


def yardstick(train: np.ndarray, val: np.ndarray, vocab_size: int) -> dict[str, float]:
    """Return the losses on the second text of n-grams counted on the first, by name."""
    return dict(zip(NGRAMS, ngram_losses(
        train,
        val,
        vocab_size,
        orders=len(NGRAMS),
        seconds=COUNTING_SECONDS)))


def ladder(
        loss: float,
        counted: dict[str, float],
        name: str = "this model",
        mixed: dict[str, float] | None = None) -> str:
    """Return a model's loss among those of counted n-grams, a line each, the worst first; `mixed`
    are losses of the model with counts in it, by name."""
    losses = {f"{name}  <--": loss} | {f"counted {name}": x for name, x in counted.items()}
    losses |= mixed or {}
    names = sorted(losses, key=losses.get, reverse=True)
    return "\n".join(f"    {losses[name]:.3f}  {name}" for name in names)


def evaluate(
        model: Transformer,
        x: np.ndarray,
        y: np.ndarray,
        batch_size: int,
        ranks: Ranks = Ranks()) -> float:
    """Return the mean loss over windows (N, T), in nats per id that counts.  Ranks take turns with
    the batches, which are smaller than `batch_size` where a large vocabulary has many logits; the
    result has the same bits for any number of ranks."""
    loss, = mean_losses(
        model,
        [],
        x,
        y,
        batch_size=batch_size,
        ranks=ranks)
    return loss


def mean_losses(
        model: Transformer,
        mixtures: Sequence[object],
        x: np.ndarray,
        y: np.ndarray,
        batch_size: int,
        ranks: Ranks = Ranks()) -> list[float]:
    """Return what `evaluate` returns of a model, and of each of its mixtures with counts
    (`model.counted.mixture.Mixture`), for which the model need not read the windows again."""
    batch_size = max(1, min(batch_size, LOGITS // (x.shape[1] * model.config.vocab_size)))
    batches = math.ceil(len(x) / batch_size)
    totals = np.zeros((1 + len(mixtures), batches))         # 0 for other ranks' batches
    counts = y != IGNORE                                                            # (N, T)
    with mg.no_grad():
        for i in range(ranks.number, batches, ranks.size):
            at = slice(i * batch_size, (i + 1) * batch_size)
            logits = model(x[at])                                                   # (B, T, V)
            each = [logits]
            each += [mg.Tensor(mixture.mixed(x[at], logits.data)) for mixture in mixtures]
            for total, predicted in zip(totals, each):
                loss = mg.cross_entropy(predicted, y[at], ignore_index=IGNORE)
                total[i] = loss.item() * counts[at].sum()
    ranks.sum(totals.reshape(-1))
    return [float(sum(total) / counts.sum()) for total in totals]


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
    rng = np.random.default_rng(0)
    lengths = [(rng.integers(vocab_size, size=T), batches)
               for T, batches in _lengths_and_batches(vocab_size, block_size)]
    tried = [(ids, cuts) for ids, batches in lengths for cuts in batches]
    bar = tqdm(
        tried,
        desc="proving that it is causal",
        leave=False,
        delay=1,
        disable=None)
    before = np.empty(0)
    for ids, cuts in bar:
        if before.shape[:2] != (len(cuts), len(ids)):       # else it is the same batch again
            before = _finite_logits(model, np.tile(ids, (len(cuts), 1)))            # (cuts, T, V)
        _prove_at(
            model,
            vocab_size,
            ids,
            cuts=cuts,
            before=before,
            rng=rng)


def count_proof_ids(vocab_size: int, block_size: int) -> int:
    """Return how many ids the model reads in its proof."""
    return sum(T * (sum(map(len, batches)) + sum({*map(len, batches)}))
               for T, batches in _lengths_and_batches(vocab_size, block_size))


def _lengths_and_batches(vocab_size, block_size):
    """Return the lengths of the sequences that are tried, each with its positions of a change, in
    the batches that the model gets."""
    if block_size < 2 or vocab_size < 2:
        return []                                           # there is no future, or no other id
    tried = []
    for T in sorted({min(block_size, SHORT), min(block_size, LONG)}):
        cuts = np.linspace(0, T - 1, 1 + min(T - 1, TOKENS // T)).astype(int)[1:]
        batches = math.ceil(len(cuts) * T * vocab_size / LOGITS)
        tried.append((T, [some for some in np.array_split(cuts, batches) if len(some)]))
    return tried


def _finite_logits(model, ids):
    """Return the logits of a batch, (B, T) -> (B, T, V).  Refuse those that are not finite."""
    with mg.no_grad():
        logits = model(ids).data
    if not np.isfinite(logits).all():
        raise CausalityError("nothing can be proven of a model whose logits are not finite; "
                             "look at its weights")
    return logits


def _prove_at(model, vocab_size, ids, cuts, before, rng):
    """Run the proof on one sequence, (T,), with changes from each of the cuts on.  `before` is what
    the model says of the sequence in each row, (cuts, T, V)."""
    changed = np.tile(ids, (len(cuts), 1))                                          # (cuts, T)
    for row, cut in zip(changed, cuts):
        row[cut:] = (row[cut:] + rng.integers(1, vocab_size, size=len(row) - cut)) % vocab_size
    after = _finite_logits(model, changed)                                          # (cuts, T, V)
    moved = (before != after).any(axis=-1)                                          # (cuts, T)
    for row, cut in zip(moved, cuts):
        if row[:cut].any():
            raise CausalityError("the model sees the future: the logits at position "
                                 f"{int(row.argmax())} changed when only the input from position "
                                 f"{cut} on did; look at its mask")
