"""Transformer: embeddings, pre-norm attention and MLPs, a final norm, the token table as output.

Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners" (GPT-2),
section 2.3.  The options of TransformerConfig, in config.py, or the ops that they name, give the
sources of the alternatives.  Shapes: B batch, T time, C = n_embd channels, V = vocab_size.
"""
import math

import numpy as np
from numpy.random import Generator

import minigrad as mg
from minigrad import Tensor
from minigrad.nn import Dropout, Embedding, LayerNorm, Linear, Module, RMSNorm, Rng
from minigrad.random import generator
from model.attention import AttentionOptions, MultiHeadAttention
from model.config import TransformerConfig
from model.layers import MLP, STD, NGramEmbedding, sinusoids

# Vaswani et al. add sinusoids of amplitude 1 to embeddings of about that size.  Ours start at STD:
# amplitude 1 would swamp them, and STD would be swamped.  This one trains as well as learnt ones.
SINUSOID_SIZE = 4 * STD
IGNORED = -100          # a target that is not there, which a loss does not count


def norm(config: TransformerConfig, dtype: type) -> Module:
    """Return the norm that the configuration names, over C channels."""
    C = config.n_embd
    if config.norm == "layer":
        return LayerNorm(
            C,
            bias=config.bias,
            dtype=dtype,
            eps=config.norm_eps)
    return RMSNorm(C if config.norm == "rms_gain" else None, dtype, config.norm_eps)


class Block(Module):
    """x + attention(norm(x)), then x + mlp(norm(x)): (B, T, C) -> (B, T, C).  No option of the
    configuration is unset, as after `resolved`."""

    def __init__(
            self,
            config: TransformerConfig,
            rng: Generator,
            dtype: type = np.float32) -> None:
        C = config.n_embd
        # The residual stream sums 2 n_layer of these outputs.
        std_out = 0.0 if config.zero_init else STD / math.sqrt(2 * config.n_layer)
        base = config.rotary_base if config.position == "rotary" else None
        options = AttentionOptions(
            num_kv_heads=config.n_kv_head,
            rotary_base=base,
            qk_norm=config.qk_norm,
            std_out=std_out,
            rotary_scaling=config.rotary_scaling,
            out_bias=config.attention_out_bias,
            head_dim=config.head_dim,
            qk_gain=config.qk_gain,
            norm_eps=config.norm_eps)
        self.norm1 = norm(config, dtype)
        self.attention = MultiHeadAttention(
            d_in=C,
            d_out=C,
            num_heads=config.n_head,
            dropout=config.dropout,
            bias=config.attention_bias,
            rng=rng,
            dtype=dtype,
            options=options)
        self.norm2 = norm(config, dtype)
        self.mlp = MLP(
            C,
            bias=config.mlp_bias,
            rng=rng,
            std_out=std_out,
            dtype=dtype,
            activation=config.activation,
            inner=config.n_inner)
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
        and no memory, until `load_state_dict` assigns them the arrays of a file.
    """
    Config = TransformerConfig

    def __init__(
            self,
            config: TransformerConfig,
            seed: int = 0,
            dtype: type = np.float32) -> None:
        c = config
        V, C = c.vocab_size, c.n_embd
        rng = generator(seed, "weights")
        self.config = c
        self.token_embedding = Embedding(
            V,
            C,
            rng=rng,
            dtype=dtype,
            std=STD)
        if c.ngrams > 1:
            self.ngram_embedding = NGramEmbedding(
                n=c.ngrams,
                rows=c.ngram_rows,
                channels=C,
                rng=rng,
                dtype=dtype,
                dropout=c.ngram_dropout)
        if c.position == "learned":
            self.position_embedding = Embedding(
                c.block_size,
                C,
                rng=rng,
                dtype=dtype,
                std=STD)
        self.dropout = Dropout(c.dropout)
        self.blocks = [Block(c.resolved(), rng, dtype) for _ in range(c.n_layer)]
        self.norm = norm(c, dtype)
        if not c.tied:
            self.lm_head = Linear(
                C,
                V,
                bias=False,
                rng=rng,
                std=STD,
                dtype=dtype)
        self.ahead = []

    def look_ahead(self, number: int, seed: int | None = None) -> None:
        """Give the model what only training needs: for each of as many ids after the next one, a
        linear layer that predicts it.  Without a seed, they have shapes alone."""
        V, C = self.token_embedding.weight.shape
        rng = None
        dtype = None
        if seed is not None:
            rng = generator(seed, "weights", 1)
            dtype = self.token_embedding.weight.dtype
        self.ahead = [
            Linear(
                C,
                V,
                bias=False,
                rng=rng,
                std=STD,
                dtype=dtype)
            for _ in range(number)]

    def __call__(self, ids: np.ndarray, rng: Rng = None) -> Tensor:
        """Return the logits of each position.  Dropout is applied if and only if `rng` is given."""
        return self.output(self.states(ids, rng))                               # (B, T, V)

    def loss(
            self,
            ids: np.ndarray,
            targets: np.ndarray,
            rng: Rng = None,
            ahead: float = 0.0) -> Tensor:
        """Return the loss that training lowers: the mean of -log p of the targets, in nats,
        (B, T), (B, T) -> ().  Dropout is applied if and only if `rng` is given.

        The losses of ids further ahead, if the model looks there, change nothing but its gradient:
        in that, the first of them counts `ahead`, and each further one half as much  (Gloeckle et
        al. 2024, "Better & Faster Large Language Models via Multi-token Prediction").
        """
        x = self.norm(self.states(ids, rng))                                    # (B, T, C)
        loss = self.next_loss(x, targets)
        if ahead and self.ahead:
            for k, predict in enumerate(self.ahead, 1):
                later = np.full(targets.shape, IGNORED)
                later[..., :-k] = targets[..., k:]
                further = mg.cross_entropy(predict(x), later, IGNORED)
                loss = loss + ahead * (further - further.item())
                ahead /= 2
        return loss

    def next_loss(self, x: Tensor, targets: np.ndarray) -> Tensor:
        """Return the mean of -log p of the targets, in nats, where the last norm gives x:
        (B, T, C), (B, T) -> ()."""
        return mg.cross_entropy(self.logits(x), targets)

    def states(self, ids: np.ndarray, rng: Rng = None) -> Tensor:
        """Return the output of the last block: (B, T) or (T,) integers -> (..., T, C)."""
        x = self.dropout(self.embed(ids, rng), rng)
        for block in self.blocks:
            x = block(x, rng)
        return x

    def output(self, x: Tensor) -> Tensor:
        """Return the logits for the output of the last block: (..., C) -> (..., V)."""
        return self.logits(self.norm(x))

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits where the last norm gives x: (..., C) -> (..., V)."""
        return mg.linear(x, self.output_weight)

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
