"""What a reader of a file of another program answers with: a configuration, weights, a tokenizer.

The weights of a real model fill a good part of the memory.  So a reader gives the arrays as `Lazy`,
and whoever converts or compares them holds one at a time.
"""
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from data.tokenizer import CharTokenizer
from model.storage.archive import Lazy      # noqa: F401  readers take it from here
from model.transformer import TransformerConfig

if TYPE_CHECKING:
    from data.tokens import TokenTokenizer


class FormatError(ValueError):
    """A file is not what it should be, or holds what cannot be expressed.  The message is one line:
    what was expected, what came, what to do."""


class Found(NamedTuple):
    """A model in a file."""
    kind: str       # "checkpoint", "safetensors file", "Hugging Face folder", "GGUF file", ...
    config: TransformerConfig
    weights: Mapping[str, np.ndarray]           # our names -> float32, in the model's shapes
    tokenizer: "CharTokenizer | TokenTokenizer"
    said: list[str] = []                        # more lines for the user
