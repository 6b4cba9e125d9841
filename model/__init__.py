"""A transformer on minigrad: its layers, training, checkpoints, sampling, and views into it."""
from model.console import startup       # noqa: F401  before NumPy and Numba are loaded
from model.attention import (CausalAttention, CrossAttention, MultiHeadAttention, SelfAttention,
                             StackedHeads)
from model.variants.forms import (ColumnAttention, IterativeAttention, LowRankValueAttention,
                                  WeightlessAttention)
from model.storage.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from model.reverse.encoder_decoder import EncoderDecoder
from model.sampling.generation import generate
from data.tokenizer import CharTokenizer, UnknownCharacterError
from model.convert.tokens import TokenTokenizer
from model.transformer import Transformer, TransformerConfig

__all__ = ["CausalAttention", "CharTokenizer", "CheckpointError", "ColumnAttention",
           "CrossAttention", "EncoderDecoder", "IterativeAttention", "LowRankValueAttention",
           "MultiHeadAttention", "SelfAttention", "StackedHeads", "TokenTokenizer", "Transformer",
           "TransformerConfig", "UnknownCharacterError", "WeightlessAttention", "generate",
           "load_checkpoint", "save_checkpoint"]
