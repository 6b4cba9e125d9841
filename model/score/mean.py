"""The mean of several models' probabilities:  python -m model.sample --out_dir out_1 out_2

Models that began from other random weights make other mistakes, which the mean takes away.
Shapes: B texts, T ids, V vocabulary.

Source: Lakshminarayanan, Pritzel & Blundell 2017, "Simple and Scalable Predictive Uncertainty
Estimation using Deep Ensembles", section 2.4.
"""
import dataclasses
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from minigrad import Tensor
from minigrad.module import Module
from model.checkpoint import Checkpoint, load_checkpoint
from model.score.windows import log_probabilities
from model.transformer import Transformer


class Ensemble(Module):
    """A model of which each probability is the mean of those of its models.  It reads windows of
    the shortest of their blocks."""

    def __init__(self, models: Sequence[Transformer]) -> None:
        self.models = list(models)
        block_size = min(model.config.block_size for model in models)
        self.config = dataclasses.replace(models[0].config, block_size=block_size)

    def __call__(self, ids: np.ndarray, rng: None = None) -> Tensor:
        """Return logits, which are log p: (B, T) integers -> (B, T, V)."""
        return Tensor(np.concatenate([logp for _, logp in self.log_probabilities(ids)], axis=1))

    def log_probabilities(self, ids: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield what `model.score.windows.log_probabilities` yields of one model."""
        for parts in zip(*(log_probabilities(model, ids) for model in self.models)):
            yield parts[0][0], log_mean([logp for _, logp in parts])


def log_mean(logps: Sequence[np.ndarray]) -> np.ndarray:
    """Return log(mean(exp(logp))) over arrays of one shape, without underflow."""
    top = np.maximum.reduce(logps)
    return top + np.log(sum(np.exp(logp - top) for logp in logps) / len(logps))


def average_checkpoints(first: Checkpoint, paths: Sequence[pathlib.Path]) -> Checkpoint:
    """Return a checkpoint of the mean of a model and of those in other files.

    Raises
    ------
    ValueError : a file is no checkpoint of a Transformer, or has another vocabulary.
    """
    checkpoints = [first, *map(load_checkpoint, paths)]
    for path, other in zip(paths, checkpoints[1:]):
        if list(other.tokenizer.vocabulary) != list(first.tokenizer.vocabulary):
            raise ValueError(f"{path} has another vocabulary than the first model, so their "
                             "predictions have no mean; average models of the same text")
    texts = {str(checkpoint.training.get("text")) for checkpoint in checkpoints}
    training = first.training if len(texts) == 1 else {}        # n-grams are counted on one text
    return Checkpoint(Ensemble([c.model for c in checkpoints]), first.tokenizer, training, {})
