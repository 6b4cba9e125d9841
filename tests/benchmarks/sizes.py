"""The models that are measured, as plain numbers: to be read before NumPy is loaded.

Shapes: B batch, T block, C channels, V vocabulary.
"""
import os
from dataclasses import dataclass

ENVIRONMENT = dict(os.environ)      # before any library changes it
VOCABULARY = 65
TEMPERATURE = 0.8                   # of sampling
MODES = ("eager", "compiled")       # of PyTorch
RECIPES = ("modern", "gpt2")        # of train.py


@dataclass(frozen=True)
class Size:
    """A model and its batch; no biases."""
    name: str
    layers: int
    heads: int
    channels: int
    block: int
    batch: int
    dropout: float = 0.0

    def __str__(self):
        return (f"{self.layers} layers, {self.heads} heads, {self.channels} channels, "
                f"block {self.block}, batch {self.batch}, dropout {self.dropout:g}")


SIZES = {size.name: size for size in (Size("small", 4, 4, 128, 64, 12),
                                      Size("baby", 6, 6, 384, 256, 64, 0.2))}
