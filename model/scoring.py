"""The loss of a model on a text, and of counted n-grams, in nats per id (character or token).

Perplexity is exp(loss).  Shapes: B windows, T ids, N ids of a text, V vocabulary.
"""
import math

import numpy as np
from tqdm import tqdm

import minigrad as mg
from data import IGNORE, Text, digest, ngram_losses, read_texts
from data.tokenizer import CharTokenizer
from model.checkpoint import texts_of
from model.generation import window_step
from model.processes import Ranks
from model.transformer import Transformer

NGRAMS = ("unigram", "bigram", "trigram", "4-gram", "5-gram")
COUNTING_SECONDS = 3    # for the n-grams; a large text gets fewer of them
AT_ONCE = 4096          # ids per pass of the model
LOGITS = 1 << 24        # numbers that are computed at once: with a large vocabulary, for few ids


def yardstick(train: np.ndarray, val: np.ndarray, vocab_size: int) -> dict[str, float]:
    """Return the losses on the second text of n-grams counted on the first, by name."""
    return dict(zip(NGRAMS, ngram_losses(train, val, vocab_size, len(NGRAMS), COUNTING_SECONDS)))


def ladder(loss: float, counted: dict[str, float]) -> str:
    """Return a model's loss among those of counted n-grams, a line each, the worst first."""
    rows = [(loss, "this model  <--"), *((x, f"counted {name}") for name, x in counted.items())]
    return "\n".join(f"    {x:.3f}  {name}" for x, name in sorted(rows, key=lambda row: -row[0]))


def text_losses(model: Transformer, ids: np.ndarray, slide: bool = False, bar: bool = False
                ) -> np.ndarray:
    """Return -log p of each id of a text but the first, (N,) -> (N - 1,), given the window that
    sampling would use (see `generation.window_start`)."""
    if len(ids) < 2:
        raise ValueError("a text needs two characters or tokens to have one to predict, and this "
                         f"has {len(ids)}")
    N = len(ids) - 1
    block = min(model.config.block_size, N)
    step = window_step(block, slide)
    starts = step * np.arange(1 + math.ceil(max(0, N - block) / step))      # all full but the last
    groups = np.array_split(starts[:-1], math.ceil(len(starts) * block / AT_ONCE)) + [starts[-1:]]
    losses = np.empty(N)
    for group in tqdm(groups, "scoring", leave=False, disable=None if bar else True):
        if not group.size:
            continue
        at = group[:, None] + np.arange(min(block, N - group[-1]))                      # (B, T)
        of_window = _losses(model, ids[at], ids[at + 1])
        new = block - step      # from here on, earlier windows have not predicted
        losses[at[:, new:]] = of_window[:, new:]
        if group[0] == 0:
            losses[at[0]] = of_window[0]
    return losses


def _losses(model, x, y):
    """Return -log p of each target: (B, T), (B, T) -> (B, T)."""
    losses = np.empty(y.shape)
    some = max(1, LOGITS // (len(x) * model.config.vocab_size))
    with mg.no_grad():
        for _, states in model.layers(x):       # the last remain, (B, T, C)
            pass
        for first in range(0, x.shape[1], some):
            part = slice(first, first + some)
            logp = mg.log_softmax(model.output(mg.Tensor(states.data[:, part]))).data
            losses[:, part] = -np.take_along_axis(logp, y[:, part, None], axis=-1)[..., 0]
    return losses


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


def training_text(training: dict, tokenizer: CharTokenizer) -> Text:
    """Return the text on which a run was trained, with the ids of its model.

    Raises
    ------
    ValueError : the checkpoint does not name the text, or it is gone, or it has changed.
    """
    names = texts_of(training)
    if not names or "text" not in training:
        raise ValueError("the checkpoint does not say which text it was trained on")
    texts = read_texts(names)
    if digest(texts.characters) != training["text"]:
        raise ValueError(f"the text {texts.name} is no longer the one that the model was trained "
                         "on")
    return Text(texts.characters, texts.name, tokenizer)
