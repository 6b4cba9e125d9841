"""EncoderDecoder: it reads one sequence as a whole and writes another from it, token by token.

Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.1 and figure 1, but with norms
before each branch, GELU and learnt positions, as in GPT-2.  One table holds the tokens of both
sequences and is the output's weights (section 3.4).
Shapes: B batch, S source, T target, C = n_embd channels, H heads, V = vocab_size.
"""
import math
from dataclasses import MISSING, dataclass

import numpy as np

import minigrad as mg
from minigrad import Tensor
from minigrad.module import Module
from minigrad.random import generator
from model.attention import AttentionOptions, MultiHeadAttention
from model.config import head_problems
from model.layers import MLP, STD, Dropout, Embedding, LayerNorm, Linear, Rng
from model.options import flag, problems
from model.variants.heads import CrossAttention, SelfAttention, StackedHeads

PAD, BEGIN, END = 0, 1, 2       # the first three tokens of every vocabulary


@dataclass(frozen=True)
class EncoderDecoderConfig:
    """The sizes of an EncoderDecoder, as its arguments give them."""
    vocab_size: int = flag(MISSING, "different tokens, V", at_least=3)
    block_size: int = flag(MISSING, "the longest sequence, S or T", at_least=1)
    n_layer: int = flag(2, "blocks of the encoder, and of the decoder", at_least=1)
    n_head: int = flag(2, "attention heads, H", at_least=1)
    n_embd: int = flag(32, "channels, C", at_least=1)
    dropout: float = flag(0.0, "share of activations dropped in training", at_least=0, below=1)
    bias: bool = flag(False, "biases in linear layers and norms")

    kind = "encoder-decoder"        # that a checkpoint names

    def __post_init__(self) -> None:
        if mistakes := problems(self) or head_problems(self.n_embd, self.n_head):
            raise ValueError(mistakes[0])

    def check_claim(self, weights: int) -> None:
        """Refuse a file that claims more heads than its number of weights can fill, before a model
        of them is built."""
        if self.n_layer * self.n_head > weights:
            raise ValueError(f"it claims {self.n_layer} layers of {self.n_head} heads, and holds "
                             f"{weights} weights")

    @property
    def std_out(self) -> float:
        """The standard deviation of weights that write to the residual stream, 3 n_layer times."""
        return STD / math.sqrt(3 * self.n_layer)


def stacked_heads(head: type, c: EncoderDecoderConfig, rng: np.random.Generator,
                  dtype: type) -> StackedHeads:
    """Return H heads of C / H channels side by side, and their output projection."""
    C = c.n_embd
    D = C // c.n_head
    heads = [head(C, D, qkv_bias=c.bias, dropout=c.dropout, rng=rng, dtype=dtype)
             for _ in range(c.n_head)]
    return StackedHeads(heads, Linear(C, C, c.bias, rng, c.std_out, dtype))


class EncoderBlock(Module):
    """x + attention(norm(x)), then x + mlp(norm(x)): (B, S, C) -> (B, S, C).

    Attention covers every position except padding.
    """

    def __init__(self, c: EncoderDecoderConfig, rng: np.random.Generator, dtype: type) -> None:
        self.norm1 = LayerNorm(c.n_embd, c.bias, dtype)
        self.attention = stacked_heads(SelfAttention, c, rng, dtype)
        self.norm2 = LayerNorm(c.n_embd, c.bias, dtype)
        self.mlp = MLP(c.n_embd, c.bias, rng, c.std_out, dtype)
        self.dropout = Dropout(c.dropout)

    def __call__(self, x: Tensor, mask: np.ndarray, rng: Rng = None) -> Tensor:
        """`mask` (B, 1, S) is false at padding."""
        mixed = self.attention(self.norm1(x), mask=mask, rng=rng)
        x = x + self.dropout(mixed, rng)
        return x + self.dropout(self.mlp(self.norm2(x)), rng)


class DecoderBlock(Module):
    """x + causal attention(norm(x)), x + cross-attention(norm(x), memory), x + mlp(norm(x)):
    (B, T, C), (B, S, C) -> (B, T, C)."""

    def __init__(self, c: EncoderDecoderConfig, rng: np.random.Generator, dtype: type) -> None:
        self.norm1 = LayerNorm(c.n_embd, c.bias, dtype)
        self.attention = MultiHeadAttention(c.n_embd, c.n_embd, c.n_head, c.dropout, c.bias, rng,
                                            dtype, AttentionOptions(std_out=c.std_out))
        self.norm2 = LayerNorm(c.n_embd, c.bias, dtype)
        self.across = stacked_heads(CrossAttention, c, rng, dtype)
        self.norm3 = LayerNorm(c.n_embd, c.bias, dtype)
        self.mlp = MLP(c.n_embd, c.bias, rng, c.std_out, dtype)
        self.dropout = Dropout(c.dropout)

    def __call__(self, x: Tensor, memory: Tensor, mask: np.ndarray, rng: Rng = None) -> Tensor:
        """`mask` (B, 1, S) is false at the memory's padding."""
        within = self.attention(self.norm1(x), rng)
        x = x + self.dropout(within, rng)
        across = self.across(self.norm2(x), memory, mask=mask, rng=rng)
        x = x + self.dropout(across, rng)
        return x + self.dropout(self.mlp(self.norm3(x)), rng)


class EncoderDecoder(Module):
    """Logits of the target's next id, from the source and the target so far:
    (B, S), (B, T) integers -> (B, T, V).

    Sources are padded at the end with PAD to the length of the batch; padding is never attended to.
    A target begins with BEGIN and ends with END; earlier positions never see the PAD after that.

    With the dtype None, parameters have shapes and no memory.
    """
    Config = EncoderDecoderConfig

    def __init__(self, config: EncoderDecoderConfig, seed: int = 0, dtype: type = np.float32
                 ) -> None:
        rng = generator(seed, "weights")
        self.config = c = config
        self.token_embedding = Embedding(c.vocab_size, c.n_embd, rng, dtype, STD)
        self.position_embedding = Embedding(c.block_size, c.n_embd, rng, dtype, STD)
        self.dropout = Dropout(c.dropout)
        self.encoder = [EncoderBlock(c, rng, dtype) for _ in range(c.n_layer)]
        self.memory_norm = LayerNorm(c.n_embd, c.bias, dtype)
        self.decoder = [DecoderBlock(c, rng, dtype) for _ in range(c.n_layer)]
        self.norm = LayerNorm(c.n_embd, c.bias, dtype)

    def __call__(self, source: np.ndarray, target: np.ndarray, rng: Rng = None) -> Tensor:
        """Dropout is applied if and only if `rng` is given."""
        return self.decode(target, *self.encode(source, rng), rng)

    def encode(self, source: np.ndarray, rng: Rng = None) -> tuple[Tensor, np.ndarray]:
        """Return the memory of a source, (B, S, C), and a mask, (B, 1, S), false at padding."""
        mask = np.asarray(source) != PAD
        mask = mask[..., None, :]
        x = self._embed(source, rng)
        for block in self.encoder:
            x = block(x, mask, rng)
        return self.memory_norm(x), mask

    def decode(self, target: np.ndarray, memory: Tensor, mask: np.ndarray,
               rng: Rng = None) -> Tensor:
        """Return the logits (B, T, V) for the results of `encode`."""
        x = self._embed(target, rng)
        for block in self.decoder:
            x = block(x, memory, mask, rng)
        return mg.linear(self.norm(x), self.token_embedding.weight)

    def attention_maps(self, source: np.ndarray, target: np.ndarray
                       ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the weight of each query (row) on each key (column), in every head of every layer:
        within the source, (L, B, H, S, S), within the target, (L, B, H, T, T), and of the target on
        the source, (L, B, H, T, S), for ids (B, S) and (B, T).  Rows sum to 1.

        They are computed by the plain formula, `model.attention.attention`.
        """
        within_source = []
        within_target = []
        across = []
        with mg.no_grad():
            memory, mask = self.encode(source)
            x = self._embed(source, None)
            for block in self.encoder:
                y = block.norm1(x)
                within_source.append(block.attention.weights(y, y, mask))
                x = block(x, mask)
            x = self._embed(target, None)
            for block in self.decoder:
                normed = block.norm1(x)
                within_target.append(block.attention.weights(normed))
                asking = block.norm2(x + block.attention(normed))
                across.append(block.across.weights(asking, memory, mask))
                x = block(x, memory, mask)
        return np.stack(within_source), np.stack(within_target), np.stack(across)

    def write(self, source: np.ndarray) -> np.ndarray:
        """Take the likeliest token at each step: (B, S) -> (B, T), without BEGIN, PAD after END."""
        B = len(source)
        target = np.full((B, 1), BEGIN)
        ended = np.zeros(B, bool)
        with mg.no_grad():
            memory, mask = self.encode(source)
            while target.shape[1] <= self.config.block_size and not ended.all():
                logits = self.decode(target, memory, mask).data[:, -1]
                likeliest = logits.argmax(axis=-1)
                likeliest[ended] = PAD
                ended |= likeliest == END
                target = np.concatenate([target, likeliest[:, None]], axis=1)
        return target[:, 1:]

    def _embed(self, ids, rng):
        ids = np.asarray(ids)
        most = self.config.block_size
        if not 1 <= ids.shape[-1] <= most:
            raise ValueError(f"a sequence has from 1 to block_size={most} tokens; these ids have "
                             f"the shape {list(ids.shape)}")
        x = self.token_embedding(ids) + self.position_embedding(np.arange(ids.shape[-1]))
        return self.dropout(x, rng)
