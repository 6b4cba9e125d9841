"""A model of which each probability is mixed with that of counted n-grams:

    python -m model.sample --counted 9

    p(x | text) = (1 - weight) p_model(x | text) + weight p_counted(x | its last ids)

The counts are made of the training part of the text that the checkpoint names.  They are a second
model, which knows by heart what a small network has no room for.

Source: Jelinek & Mercer 1980, "Interpolated estimation of Markov source parameters from sparse
data".  Shapes: B texts, T ids, N rows, K ids of a context, V vocabulary.
"""
from collections.abc import Iterator

import numpy as np

import minigrad as mg
from data import Text
from minigrad import Tensor
from minigrad.module import Module
from model.answers import announced_if_slow
from model.cache import KVCache
from model.checkpoint import Checkpoint
from model.counted.tree import Tree, contexts, count_ngrams, largest_order, mix
from model.generation import make_cache
from model.score.text import training_text
from model.score.windows import log_probabilities
from model.transformer import Transformer

WEIGHT = 0.25       # of the counts: see docs/recipe.md
ORDER = 9           # of those in the last report of train.py,
MOST = 20_000_000   # and the characters in which they are counted, at most


class Mixture(Module):
    """A model and counted n-grams, which see no further back than the model's window.

    Parameters
    ----------
    model : a Transformer, or the mean of several.
    tree : the n-grams, of at most `order` ids.
    weight : that of the n-grams, from 0 to 1.
    """

    def __init__(self, model: Module, tree: Tree, order: int, weight: float = WEIGHT) -> None:
        self.model = model
        self.config = model.config
        self.tree = tree
        self.order = order
        self.weight = weight
        self.name = f"this model, with the counted {order}-gram"
        if mg.COMPILED:
            from model.counted import kernel    # noqa: F401  stands in for `mix`

    def __call__(self, ids: np.ndarray, rng: None = None) -> Tensor:
        """Return logits, which are log p: (B, T) integers -> (B, T, V)."""
        with mg.no_grad():
            return Tensor(self.mixed(ids, self.model(ids).data))

    def mixed(self, ids: np.ndarray, logits: np.ndarray) -> np.ndarray:
        """Return log p of the mixture for a model's logits after each of the ids of windows,
        (B, T), (B, T, V) -> (B, T, V)."""
        return self._mixed(contexts(ids, self.order), logits)

    def _mixed(self, preceding, logits):
        B, T, V = logits.shape
        mixed = mix(
            logits.reshape(B * T, V),
            preceding.reshape(B * T, self.order - 1),
            self.tree,
            self.weight)
        return mixed.reshape(B, T, V)

    def log_probabilities(self, ids: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield what `model.score.windows.log_probabilities` yields of a model alone."""
        preceding = contexts(ids, self.order)
        for part, logp in log_probabilities(self.model, ids):
            yield part, self._mixed(preceding[:, part], logp)

    def make_cache(self, batch: int) -> "MixtureCache | None":
        """Return a KV cache for B texts; None if the model has none."""
        if type(self.model) is Transformer:
            return MixtureCache(self, batch)
        return None


class MixtureCache:
    """The KV cache of a model, and the logits of its mixture with counted n-grams."""

    def __init__(self, mixture: Mixture, batch: int) -> None:
        self.mixture = mixture
        self.cache = make_cache(mixture.model, batch)
        self.ids = np.zeros((batch, mixture.config.block_size), np.int64)

    @property
    def length(self) -> int:
        """How many ids have been read."""
        return self.cache.length

    @length.setter
    def length(self, length: int) -> None:
        self.cache.length = length

    def read(self, ids: np.ndarray, after: int = 0) -> np.ndarray:
        """Read ids (B, T) after the first `after` of those that have been read; return log p after
        the last, (B, V)."""
        logits = self.cache.read(ids, after)
        mixture = self.mixture
        end = after + ids.shape[1]
        self.ids[:, after:end] = ids
        K = mixture.order - 1
        preceding = self.ids[:, max(0, end - K):end]
        if end < K:
            preceding = contexts(preceding, mixture.order)[:, -1]
        return mix(
            logits,
            preceding,
            mixture.tree,
            mixture.weight)

    draw = KVCache.draw


def with_counts(checkpoint: Checkpoint, order: int, weight: float = WEIGHT) -> Checkpoint:
    """Return a checkpoint of the mixture of a model and n-grams counted in its training text.

    Raises
    ------
    ValueError : the checkpoint does not name its text, or it is gone, or has changed; or the order
        is too large.
    """
    tokenizer = checkpoint.tokenizer
    most = largest_order(tokenizer.vocab_size)
    if order > most:
        units = f"{tokenizer.vocab_size:,} different {tokenizer.unit}s"
        if not most:
            raise ValueError(f"--counted takes no model of {units}; leave it out")
        raise ValueError(f"--counted is at most {most} for {units}, not {order}, as an n-gram is "
                         f"counted as a number of 64 bits; give {min(most, ORDER)}")
    try:
        text = training_text(checkpoint.training, tokenizer)
    except ValueError as error:
        raise ValueError(f"there are no n-grams to mix in, because {error}; leave out --counted"
                         ) from error
    with announced_if_slow(f"counting n-grams in {text.name}"):
        tree = count_ngrams(text.train, tokenizer.vocab_size, order)
    return checkpoint._replace(model=Mixture(
        checkpoint.model,
        tree,
        order,
        weight))


def usual_mixtures(model: Transformer, text: Text) -> list[Mixture]:
    """Return the mixture of a model that is reported beside it, in a list; none if the text is
    long, or of tokens, whose distributions take long."""
    vocab_size = text.tokenizer.vocab_size
    order = min(ORDER, largest_order(vocab_size))
    if not order or text.tokenizer.unit == "token" or len(text.train) > MOST:
        return []
    return [Mixture(model, count_ngrams(text.train, vocab_size, order), order)]
