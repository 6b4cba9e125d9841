"""Predict the next character of growing sequences, from a window of the text, cached or not.

Shapes: B sequences, T characters, L layers, H heads of queries, G of keys and values, C = H D
channels, V vocabulary.
"""
import numpy as np

from minigrad import kernels, no_grad
from minigrad.kernels.build.tiles import empty_panels, pack
from minigrad.ops.attention import rotary_angles
from minigrad.ops.network import NORM_EPS
from model.transformer import Transformer


def window_step(block_size: int, slide: bool = False) -> int:
    """Return by how many characters a full window moves: half of it, or one with `slide`."""
    return 1 if slide else block_size - block_size // 2


def window_start(n: int, block_size: int, slide: bool = False) -> int:
    """Return the start of the window from which the character after n others is predicted.

    The first window starts with the text.  Whenever it would exceed the block size, its start moves
    on, so that a character is predicted from more than half a block and at most a block before it;
    with `slide`, from the whole block.  A window that moves is read again, since its cached keys
    and values depend on the characters before it.
    """
    step = window_step(block_size, slide)
    return max(0, -((block_size - n) // step)) * step


class Reader:
    """B sequences of one length that grow character by character, and the logits of the next one.

    Parameters
    ----------
    ids : the beginnings, (B, T) with T of at least 1.
    cache : keep keys and values, and read only new characters; the logits are the same.
    slide : see `window_start`.
    """

    def __init__(self, model: Transformer, ids: np.ndarray, cache: bool = True,
                 slide: bool = False) -> None:
        self.model, self.ids, self.slide = model, ids, slide
        self.n = ids.shape[1]                   # characters so far; ids are the last of them
        # A model that is no Transformer, or a subclass of it, is called as a whole.
        self.decoder = Decoder(model, len(ids)) if cache and type(model) is Transformer else None

    def logits(self) -> np.ndarray:
        """Return the logits of the next character of each sequence, (B, V)."""
        start = window_start(self.n, self.model.config.block_size, self.slide)
        if self.decoder and self.decoder.length == self.n - 1 - start > 0:
            return self.decoder.step(self.ids[:, -1])
        window = self.ids[:, start - self.n:]
        if self.decoder:
            return self.decoder.read(window)
        with no_grad():
            return self.model(window).data[:, -1]

    def append(self, ids: np.ndarray) -> None:
        """Add a character to each sequence, (B,)."""
        longer = np.concatenate([self.ids, ids[:, None]], axis=1)
        self.ids = longer[:, -self.model.config.block_size:]
        self.n += 1


class Decoder:
    """A transformer that keeps the keys and values of what it has read, for B sequences.

    It uses copies of the weights, made at the beginning.
    """

    def __init__(self, model: Transformer, batch: int = 1) -> None:
        config, dtype = model.config, model.token_embedding.weight.dtype
        L, G, D = config.n_layer, config.kv_heads, config.d_head
        self.model = model
        self.length = 0             # characters read, T
        self._recent = None         # the last of them, (B, at most the longest n-gram)
        self._tokens, self._ngrams, self._positions = _embeddings(model)
        self._weights = _weights(model)
        self._keys = empty_panels(L, batch, G, D, config.block_size, dtype=dtype)
        self._values = empty_panels(L, batch, G, config.block_size, D, dtype=dtype)

    def read(self, ids: np.ndarray) -> np.ndarray:
        """Clear the cache and read ids (B, T); return the logits after the last, (B, V)."""
        block = self.model.config.block_size
        if not 1 <= ids.shape[1] <= block:
            raise ValueError(f"{ids.shape[1]} characters are not a window of 1 to {block}")
        self.length, self._recent = 0, ids[:, :0]
        return self._go_on(ids)

    def step(self, ids: np.ndarray) -> np.ndarray:
        """Read one more character of each sequence, ids (B,); return logits, (B, V)."""
        if not 0 < self.length < self.model.config.block_size:
            raise ValueError(f"after {self.length} characters there is nothing to go on from, or "
                             f"no room in the block of {self.model.config.block_size}; use read")
        return self._go_on(ids[:, None])

    def _go_on(self, ids):
        """Read ids (B, T) after those that have been read; return logits, (B, V)."""
        config = self.model.config
        if not all([0 <= x < config.vocab_size for x in ids.ravel().tolist()]):
            raise IndexError(f"ids lie from 0 to {config.vocab_size - 1}, and these are "
                             f"{ids.ravel().tolist()}")
        logits = kernels.decode(*self._weights, self._keys, self._values, self._embed(ids),
                                config.vocab_size, self.length, NORM_EPS, config.norm == "layer",
                                config.qk_norm, config.activation == "relu2")
        self.length += ids.shape[1]
        return logits

    def _embed(self, ids):
        """Return the first block's input for T more characters, summed as in the model's `embed`:
        (B, T) -> (B, T, C)."""
        n, x, end = self.model.config.ngrams, self._tokens[ids], self.length + ids.shape[1]
        if n > 1:
            recent = np.concatenate([self._recent, ids], axis=1)
            self._recent = recent[:, -n:]
            rows = self.model.ngram_embedding.rows(recent)[:, -ids.shape[1]:]
            x += kernels.sum_rows(self._ngrams, rows.reshape(-1, n - 1)).reshape(x.shape)
        if self._positions is not None:
            x += self._positions[self.length:end]
        return x


def _embeddings(model):
    """Return copies of the tables of characters, n-grams and positions; None if there is none."""
    config = model.config
    positions = (model.position_embedding.weight.data.copy() if config.position == "learned" else
                 model.sinusoids if config.position == "sinusoidal" else None)
    return (model.token_embedding.weight.data.copy(),
            model.ngram_embedding.weight.data.copy() if config.ngrams > 1 else None, positions)


def _weights(model):
    """Return the model's weights as `kernels.decode` takes them."""
    config, dtype = model.config, model.token_embedding.weight.dtype
    cos, sin = (np.zeros((config.block_size, 0), dtype) for _ in range(2))
    slopes = np.zeros(config.n_head, dtype)
    if config.position == "rotary":
        cos, sin = rotary_angles(config.block_size, config.d_head, dtype)
    elif config.position == "alibi":
        slopes = model.blocks[0].attention.slopes
    norms = [norm for block in model.blocks for norm in (block.norm1, block.norm2)] + [model.norm]
    linears = [(b.attention.qkv, b.attention.out, b.mlp.up, b.mlp.down) for b in model.blocks]

    def given(parameter, size, otherwise):
        return np.full(size, otherwise, dtype) if parameter is None else parameter.data

    return (cos, sin, slopes,
            np.stack([given(norm.weight, config.n_embd, 1) for norm in norms]),
            np.stack([given(norm.bias, config.n_embd, 0) for norm in norms]),
            np.stack([np.concatenate([given(linear.bias, len(linear.weight.data), 0)
                                      for linear in layer]) for layer in linears]),
            *(pack(np.stack([linear.weight.data.T for linear in same])) for same in zip(*linears)),
            pack(model.token_embedding.weight.data.T))
