"""The KV cache, in plain NumPy: keys and values of the characters that were read are kept.

Only attention looks at other positions, and only through their keys and values.  These depend on
earlier characters alone, so they stay as they are when the text grows: a further character costs
one position, where a window that is read anew costs all of them.

Shapes: B sequences, T characters that are read now, S all that were read, H heads, D channels of a
head, C channels, V vocabulary.
"""
import dataclasses

import numpy as np

import minigrad as mg
from minigrad import Tensor, random
from minigrad.words import any_of
from model.attention import MultiHeadAttention, attention, causal_mask
from model.options import flag
from model.transformer import Transformer


@dataclasses.dataclass(frozen=True)
class Drawing:
    """How an id is drawn from logits; see `random.draw`."""
    temperature: float = flag(0.8, "0 takes the likeliest, 1 draws as the model predicts",
                              at_least=0)
    top_k: int = flag(
        None,
        "draw from so many of the likeliest only",
        unset="all",
        at_least=1)
    top_p: float = flag(
        None,
        "draw from the likeliest that together have this probability "
        "(nucleus sampling)",
        unset="all",
        above=0,
        at_most=1)


class KVCache:
    """A transformer that reads B sequences piece by piece, and remembers what it has read.

    `model.kv_cache.decoder.Decoder` stands in for it where its kernel can be compiled.

    Raises
    ------
    ValueError : a block has another layer of attention than MultiHeadAttention.
    """

    def __init__(self, model: Transformer, batch: int = 1) -> None:
        check_layers(model)
        config = model.config
        dtype = model.token_embedding.weight.dtype
        shape = batch, config.n_head, config.block_size, config.d_head
        self.model = model
        self.length = 0             # characters read, S
        self.ids = np.zeros((batch, config.block_size), np.int64)
        self.keys = [np.zeros(shape, dtype) for _ in model.blocks]
        self.values = [np.zeros(shape, dtype) for _ in model.blocks]

    def read(self, ids: np.ndarray, after: int = 0) -> np.ndarray:
        """Read ids (B, T) after the first `after` characters of those that have been read; return
        the logits after the last, (B, V)."""
        end = after + ids.shape[1]
        if not after <= self.length or end > self.ids.shape[1]:
            raise ValueError(f"after {after} of {self.length} characters that were read, "
                             f"{end - after} more are no window of at most {self.ids.shape[1]}")
        self.ids[:, after:end] = ids
        with mg.no_grad():
            x = self.model.embed(self.ids[:, :end])[:, after:]                  # (B, T, C)
            for i, block in enumerate(self.model.blocks):
                x = x + self._attend(i, block.norm1(x), after)
                x = x + block.mlp(block.norm2(x))
            logits = self.model.output(x[:, -1])
        self.length = end
        return logits.data

    def _attend(self, i: int, x: Tensor, after: int) -> Tensor:
        """Return what the attention of block i gives for positions from `after` on,
        (B, T, C) -> (B, T, C), and keep their keys and values."""
        layer = self.model.blocks[i].attention
        B, T, _ = x.shape
        end = after + T
        query, key, value = layer.split(layer.project(x, after))                # (B, H, T, D)
        self.keys[i][:, :, after:end] = key.data
        self.values[i][:, :, after:end] = value.data
        keys = Tensor(self.keys[i][:, :, :end])                                 # (B, H, S, D)
        values = Tensor(self.values[i][:, :, :end])
        mask = causal_mask(end, x.dtype)[after:]                                # (T, S)
        mixed, _ = attention(
            query,
            keys,
            values,
            mask)                         # (B, H, T, D)
        return layer.out(mixed.swapaxes(1, 2).reshape(B, T, -1))

    def draw(self, ids: np.ndarray, after: int, u: np.ndarray, drawing: Drawing) -> np.ndarray:
        """Read ids, then draw a character for each column of u (B, n), and read all but the last;
        return ids of u's shape.  u is that of `random.draw`."""
        drawn = []
        for column in u.T:
            logits = self.read(ids, after)
            after = self.length
            chosen, _ = random.draw(
                logits,
                column,
                drawing.temperature,
                drawing.top_k,
                drawing.top_p)               # (B,)
            ids = chosen[:, None]
            drawn.append(ids)
        return np.concatenate(drawn, axis=1)


def check_layers(model: Transformer) -> None:
    """Raise a ValueError if a block attends otherwise than by MultiHeadAttention, whose keys and
    values a cache knows."""
    layers = {type(block.attention) for block in model.blocks} - {MultiHeadAttention}
    if layers:
        names = any_of(layer.__name__ for layer in layers)
        raise ValueError(f"the KV cache does not know {names}; sample with cache=False "
                         "(--no-cache)")
