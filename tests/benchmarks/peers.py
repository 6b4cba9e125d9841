"""A training step and the model that it trains, from minigrad; its twin is in twin.py."""
import numpy as np

import minigrad as mg
from model import Transformer, TransformerConfig
from model.run import decayed_and_other
from tests.benchmarks.sizes import MAX_NORM, OPTIMIZER, VOCABULARY, Size


class Minigrad:
    """minigrad's side of a comparison."""

    def __init__(self, size: Size) -> None:
        self.model = Transformer(config_of(size))
        self.optimizer = mg.AdamW(decayed_and_other(self.model), **OPTIMIZER)
        self.rng = np.random.default_rng(0)

    def loss(self, batch: np.ndarray) -> float:
        """Train on one batch, ids and targets, (2, B, T); returns the loss before."""
        ids, targets = batch
        loss = mg.cross_entropy(self.model(ids, rng=self.rng), targets)
        loss.backward()
        mg.clip_grad_norm_(self.model.parameters(), MAX_NORM)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


def config_of(size: Size) -> TransformerConfig:
    """The size in the model's own words."""
    return TransformerConfig(VOCABULARY, size.block, size.layers, size.heads, size.channels,
                             size.dropout)


def random_batch(size: Size) -> np.ndarray:
    """Ids and targets, (2, B, T)."""
    return np.random.default_rng(0).integers(VOCABULARY, size=(2, size.batch, size.block))
