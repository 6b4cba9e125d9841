"""A transformer on minigrad: its layers, training, checkpoints, sampling, and views into it."""
import importlib

from model import start         # noqa: F401  before NumPy and Numba are loaded
from data.tokenizer import CharTokenizer, UnknownCharacterError
from model.attention import MultiHeadAttention
from model.generation import generate
from model.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from model.transformer import Transformer, TransformerConfig

# The names that rooms add: each is imported when it is first asked for.
ROOMS = {"CausalAttention": "variants.heads", "CrossAttention": "variants.heads",
         "SelfAttention": "variants.heads", "StackedHeads": "variants.heads",
         "ColumnAttention": "variants.forms", "IterativeAttention": "variants.forms",
         "LowRankValueAttention": "variants.forms", "WeightlessAttention": "variants.forms",
         "EncoderDecoder": "reverse.encoder_decoder",
         "EncoderDecoderConfig": "reverse.encoder_decoder", "TokenTokenizer": "convert.tokens"}
__all__ = ["CharTokenizer", "CheckpointError", "MultiHeadAttention", "Transformer",
           "TransformerConfig", "UnknownCharacterError", "generate", "load_checkpoint",
           "save_checkpoint", *ROOMS]


def __getattr__(name: str) -> object:
    """Return a name that a room adds."""
    if name not in ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"model.{ROOMS[name]}"), name)
    return value
