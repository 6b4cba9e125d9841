"""The loss of a model on windows, and of counted n-grams, in nats per id (character or token).

Shapes: N windows, T ids."""
import math

import numpy as np

import minigrad as mg
from data import IGNORE, ngram_losses
from model.processes import Ranks
from model.transformer import Transformer

NGRAMS = ("unigram", "bigram", "trigram", "4-gram", "5-gram")
COUNTING_SECONDS = 3    # for the n-grams; a large text gets fewer of them


def yardstick(train: np.ndarray, val: np.ndarray, vocab_size: int) -> dict[str, float]:
    """Return the losses on the second text of n-grams counted on the first, by name."""
    return dict(zip(NGRAMS, ngram_losses(train, val, vocab_size, len(NGRAMS), COUNTING_SECONDS)))


def ladder(loss: float, counted: dict[str, float]) -> str:
    """Return a model's loss among those of counted n-grams, a line each, the worst first."""
    rows = [(loss, "this model  <--"), *((x, f"counted {name}") for name, x in counted.items())]
    return "\n".join(f"    {x:.3f}  {name}" for x, name in sorted(rows, key=lambda row: -row[0]))


def evaluate(model: Transformer, x: np.ndarray, y: np.ndarray, batch_size: int,
             ranks: Ranks = Ranks()) -> float:
    """Return the mean loss over windows (N, T), in nats per id that counts.  Ranks take turns with
    the batches; the result has the same bits for any number of ranks."""
    totals = np.zeros(math.ceil(len(x) / batch_size))       # of batches; 0 for other ranks'
    with mg.no_grad():
        for i in range(ranks.number, len(totals), ranks.size):
            at = slice(i * batch_size, (i + 1) * batch_size)
            loss = mg.cross_entropy(model(x[at]), y[at], ignore_index=IGNORE)
            totals[i] = loss.item() * (y[at] != IGNORE).sum()
    ranks.sum(totals)
    return float(sum(totals) / (y != IGNORE).sum())
