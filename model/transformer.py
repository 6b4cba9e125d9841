"""Transformer: embeddings, pre-norm attention and MLPs, a final norm, the token table as output.

Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners" (GPT-2),
section 2.3.  The options of TransformerConfig, or the ops that they name, give the sources of the
alternatives.  Shapes: B batch, T time, C = n_embd channels, V = vocab_size.
"""
import math
from dataclasses import MISSING, dataclass, fields, replace

import numpy as np
from numpy.random import Generator

import minigrad as mg
from minigrad import Tensor
from minigrad.module import Module
from minigrad.ops.network import ACTIVATIONS, NORM_EPS, ROTARY_BASE
from minigrad.random import generator
from model.attention import AttentionOptions, MultiHeadAttention
from model.command import flag, problems, problems_of_heads
from model.layers import (MLP, STD, Dropout, Embedding, LayerNorm, Linear, NGramEmbedding, RMSNorm,
                          Rng, sinusoids)

POSITIONS = ("learned", "sinusoidal", "rotary")
NORMS = ("layer", "rms", "rms_gain")
TRAINING = ("dropout", "ngram_dropout")     # options that change nothing but training
# Vaswani et al. add sinusoids of amplitude 1 to embeddings of about that size.  Ours start at STD:
# amplitude 1 would swamp them, and STD would be swamped.  This one trains as well as learnt ones.
SINUSOID_SIZE = 4 * STD


@dataclass(frozen=True)
class Vocabulary:
    """The vocabulary."""
    vocab_size: int = flag(MISSING, "different characters, V", at_least=1)


@dataclass(frozen=True)
class ModelOptions:
    """The model: the options that train.py has flags for, each with its help and its check.  Names
    and meaning are nanoGPT's where it has one.

    docs/engine.md, "To add a setting", names the places that a new option needs.
    """
    block_size: int = flag(64, "characters of a sequence, T", at_least=1)
    n_layer: int = flag(4, "blocks of attention and MLP", at_least=1)
    n_head: int = flag(4, "attention heads, H", at_least=1)
    n_embd: int = flag(128, "channels, C", at_least=1)
    dropout: float = flag(0.0, "share of activations dropped in training", at_least=0, below=1)
    bias: bool = flag(False, "biases in linear layers and norms")
    n_kv_head: int = flag(None, "heads of keys and values, each for several of the queries'; 1 is "
                                "multi-query attention", unset="n_head", at_least=1)
    position: str = flag("learned", f"what tells positions apart: {', '.join(POSITIONS)}",
                         choices=POSITIONS)
    norm: str = flag("layer", f"before each part of a block and at the end: {', '.join(NORMS)}; "
                              "rms learns nothing, rms_gain a factor for each channel",
                     choices=NORMS)
    qk_norm: bool = flag(False, "queries and keys of one size, head by head")
    activation: str = flag("gelu", f"of the MLPs: {', '.join(ACTIVATIONS)}", choices=ACTIVATIONS)
    # Weights that write to the residual stream begin at 0 (Zhang, Dauphin & Ma 2019, "Fixup",
    # section 3).
    zero_init: bool = flag(False, "each block begins by passing on what it reads")
    ngrams: int = flag(1, "n-grams of up to so many characters have embeddings too; 1 for none",
                       at_least=1, at_most=1000)
    ngram_rows: int = flag(8192, "rows of the table that they share", at_least=1)
    ngram_dropout: float = flag(0.0, "share of n-grams left out in training", at_least=0, below=1)


@dataclass(frozen=True)
class ImportedOptions:
    """What imported models have: options that a run takes from its initial model, without flags."""
    norm_eps: float = flag(NORM_EPS, "added before the root is taken, in the norms of the blocks "
                                     "and the last", above=0)
    n_inner: int = flag(None, "hidden channels of an MLP, F", unset="4 n_embd", at_least=1)
    attention_bias: bool = flag(None, "biases in the linear layers of attention", unset="bias")
    mlp_bias: bool = flag(None, "biases in the linear layers of MLPs", unset="bias")
    rotary_base: float = flag(ROTARY_BASE, "of position rotary: the larger, the more slowly the "
                                           "slowest channels turn", above=0)
    tied: bool = flag(True, "the token table is also the output's weights")


@dataclass(frozen=True)
class TransformerConfig(ImportedOptions, ModelOptions, Vocabulary):
    """The sizes and options of a Transformer.  Its arguments are those of the three tables, the
    last one first: vocab_size, block_size, ..., tied."""

    def __post_init__(self) -> None:
        if found := problems(self) or problems_of_heads(self.n_embd, self.n_head, self.n_kv_head,
                                                        self.position):
            raise ValueError(found[0])
        for field in fields(self):      # NumPy's numbers round otherwise, and make float64 of more
            if isinstance(value := getattr(self, field.name), np.generic):
                object.__setattr__(self, field.name, value.item())

    kind = None         # in a checkpoint; an EncoderDecoder's has a name

    def model(self, weights: float = math.inf) -> "Transformer":
        """Return a new model of parameters that have shapes and no memory, for the weights of a
        file.  Refuse to build more layers than so many weights can fill."""
        if self.n_layer > weights:
            raise ValueError(f"it claims {self.n_layer} layers, and holds {weights} weights")
        return Transformer(self, dtype=None)

    @property
    def kv_heads(self) -> int:
        """The number of heads of keys and values, G."""
        return self.resolved().n_kv_head

    @property
    def d_head(self) -> int:
        """The number of channels of a head, D."""
        return self.n_embd // self.n_head

    def resolved(self) -> "TransformerConfig":
        """Return the same configuration with no option unset (None)."""
        usual = {"n_kv_head": self.n_head, "n_inner": 4 * self.n_embd,
                 "attention_bias": self.bias, "mlp_bias": self.bias}
        unset = {name: value for name, value in usual.items() if getattr(self, name) is None}
        return replace(self, **unset)


def norm(config: TransformerConfig, dtype: type) -> Module:
    """Return the norm that the configuration names, over C channels."""
    C = config.n_embd
    if config.norm == "layer":
        return LayerNorm(C, config.bias, dtype, config.norm_eps)
    return RMSNorm(C if config.norm == "rms_gain" else None, dtype, config.norm_eps)


class Block(Module):
    """x + attention(norm(x)), then x + mlp(norm(x)): (B, T, C) -> (B, T, C).  No option of the
    configuration is unset, as after `resolved`."""

    def __init__(self, config: TransformerConfig, rng: Generator,
                 dtype: type = np.float32) -> None:
        C = config.n_embd
        # The residual stream sums 2 n_layer of these outputs.
        std_out = 0.0 if config.zero_init else STD / math.sqrt(2 * config.n_layer)
        base = config.rotary_base if config.position == "rotary" else None
        options = AttentionOptions(config.n_kv_head, base, config.qk_norm, std_out)
        self.norm1 = norm(config, dtype)
        self.attention = MultiHeadAttention(C, C, config.n_head, config.dropout,
                                            config.attention_bias, rng, dtype, options)
        self.norm2 = norm(config, dtype)
        self.mlp = MLP(C, config.mlp_bias, rng, std_out, dtype, config.activation, config.n_inner)
        self.dropout = Dropout(config.dropout)

    def __call__(self, x: Tensor, rng: Rng = None) -> Tensor:
        x = x + self.dropout(self.attention(self.norm1(x), rng), rng)
        x = x + self.dropout(self.mlp(self.norm2(x)), rng)
        return x


class Transformer(Module):
    """A model from ids to the logits of the next id: (B, T) or (T,) integers -> (B, T, V) or (T,
    V).

    Parameters
    ----------
    seed : the seed of the initial weights.
    dtype : np.float32 to train, np.float64 to check gradients; None for parameters that have shapes
        and no memory.
    """

    def __init__(self, config: TransformerConfig, seed: int = 0, dtype: type = np.float32) -> None:
        c = config
        V, C = c.vocab_size, c.n_embd
        rng = generator(seed, "weights")
        self.config = c
        self.token_embedding = Embedding(V, C, rng, dtype)
        if c.ngrams > 1:
            self.ngram_embedding = NGramEmbedding(c.ngrams, c.ngram_rows, C, rng, dtype,
                                                  c.ngram_dropout)
        if c.position == "learned":
            self.position_embedding = Embedding(c.block_size, C, rng, dtype)
        self.dropout = Dropout(c.dropout)
        self.blocks = [Block(c.resolved(), rng, dtype) for _ in range(c.n_layer)]
        self.norm = norm(c, dtype)
        if not c.tied:
            self.lm_head = Linear(C, V, False, rng, dtype=dtype)

    def __call__(self, ids: np.ndarray, rng: Rng = None) -> Tensor:
        """Return the logits of each position.  Dropout is applied if and only if `rng` is given."""
        return self.output(self.states(ids, rng))                               # (B, T, V)

    def states(self, ids: np.ndarray, rng: Rng = None) -> Tensor:
        """Return the output of the last block: (B, T) or (T,) integers -> (..., T, C)."""
        x = self.dropout(self.embed(ids, rng), rng)
        for block in self.blocks:
            x = block(x, rng)
        return x

    def output(self, x: Tensor) -> Tensor:
        """Return the logits for the output of the last block: (..., C) -> (..., V)."""
        return mg.linear(self.norm(x), self.output_weight)

    @property
    def output_weight(self) -> Tensor:
        """The weights of the logits, (V, C): the token table or, untied, those of `lm_head`."""
        return self.token_embedding.weight if self.config.tied else self.lm_head.weight

    def embed(self, ids: np.ndarray, rng: Rng = None) -> Tensor:
        """Return the input of the first block: (..., T) integers -> (..., T, C)."""
        c = self.config
        ids = np.asarray(ids)
        T = ids.shape[-1] if ids.ndim else 0
        if not 1 <= T <= c.block_size:
            raise ValueError("ids have the shape (B, T) or (T,) with T from 1 to "
                             f"block_size={c.block_size}; these have {list(ids.shape)}")
        x = self.token_embedding(ids)                                           # (..., T, C)
        if c.ngrams > 1:
            x = x + self.ngram_embedding(ids, rng)
        if c.position == "learned":
            return x + self.position_embedding(np.arange(T))
        if c.position == "sinusoidal":
            return x + self.sinusoids(T)
        return x            # attention rotates queries and keys by their positions

    def sinusoids(self, T: int) -> np.ndarray:
        """Return the positions that are added to the embeddings of T characters, (T, C)."""
        table = SINUSOID_SIZE * sinusoids(T, self.config.n_embd)
        return table.astype(self.token_embedding.weight.dtype)

    def attention_maps(self, ids: np.ndarray) -> np.ndarray:
        """Return the weight of each query (row) on each key (column), in every head of every layer:
        (B, T) or (T,) integers -> (L, B, H, T, T) or (L, H, T, T); rows sum to 1.

        They are computed by the plain formula, `model.attention.attention`.
        """
        maps = []
        with mg.no_grad():
            x = self.embed(ids)
            for block in self.blocks:
                maps.append(block.attention.weights(block.norm1(x)))
                x = block(x)
        return np.stack(maps)


def loss_of(model: Transformer, ids: np.ndarray, targets: np.ndarray, rng: Rng = None) -> Tensor:
    """Return the loss that training lowers: the mean of -log p of the targets, in nats,
    (B, T), (B, T) -> ().  Dropout is applied if and only if `rng` is given."""
    logits = model(ids, rng)                                                    # (B, T, V)
    return mg.cross_entropy(logits, targets)
