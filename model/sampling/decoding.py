"""Predict the next character of growing sequences, from a window of the text, cached or not.

Shapes: B sequences, T characters, L layers, H heads of queries, G of keys and values, C = H D
channels, V vocabulary.
"""
import numpy as np

from minigrad import kernels, no_grad
from minigrad.kernels.build.tiles import empty_panels, pack, put
from minigrad.ops.attention import rotary_angles
from minigrad.ops.network import ACTIVATIONS, NORM_EPS
from model.console.words import any_of
from model.transformer import Transformer, unknown_options

AT_ONCE = 256       # characters of a sequence that are read at once, with each weight read once
ROOM = 512          # characters for which there are keys and values from the beginning
# The options of TransformerConfig that a Decoder computes, or finds in the weights, or that shape
# training alone.  A new one is for `Decoder` and `kernels.decode` to compute before it stands here.
OPTIONS = dict.fromkeys("""
    vocab_size block_size n_layer n_head n_embd dropout bias n_kv_head qk_norm zero_init ngrams
    ngram_rows ngram_dropout norm_eps n_inner attention_bias mlp_bias rotary_base tied""".split())
OPTIONS |= {"position": ("learned", "sinusoidal", "rotary", "alibi", "none"),
            "norm": ("layer", "rms", "rms_gain"),
            "activation": ("gelu", "gelu_tanh", "relu2", "swiglu")}


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
        if self.decoder:
            return self.decoder.read(*self._unread())
        with no_grad():
            return self.model(self._window()).data[:, -1]

    def room(self) -> int:
        """Return how many characters `draw` can draw at once: with the cache, those that are
        predicted before the window moves."""
        if not self.decoder:
            return 1
        return 1 + self.model.config.block_size - self._window().shape[1]

    def draw(self, u: np.ndarray, *settings: float | None) -> np.ndarray:
        """Draw and append a character for each column of u (B, n), n at most `room`; return their
        ids.  u and the settings are those of `kernels.draw`."""
        drawn = (self.decoder.draw(*self._unread(), u, *settings) if self.decoder else
                 kernels.draw(self.logits(), u[:, 0], *settings)[0][:, None])
        self.append(drawn)
        return drawn

    def append(self, ids: np.ndarray) -> None:
        """Add characters to each sequence, (B, n)."""
        longer = np.concatenate([self.ids, ids], axis=1)
        self.ids = longer[:, -self.model.config.block_size:]
        self.n += ids.shape[1]

    def _window(self):
        start = window_start(self.n, self.model.config.block_size, self.slide)
        return self.ids[:, start - self.n:]

    def _unread(self):
        """Return what of the window the decoder has not read, and how much it has."""
        window = self._window()
        read = window.shape[1] - 1
        return (window[:, -1:], read) if self.decoder.length == read else (window, 0)


class Decoder:
    """A transformer that keeps the keys and values of what it has read, for B sequences.

    It uses copies of the weights, made at the beginning.

    Raises
    ------
    ValueError : the model has an option that is not in OPTIONS, so that another model would draw.
    """

    def __init__(self, model: Transformer, batch: int = 1) -> None:
        if unknown := unknown_options(model.config, OPTIONS):
            raise ValueError(f"the cache of sampling does not know {any_of(unknown)}; sample with "
                             "cache=False (--no-cache)")
        self.config = model.config
        self.length = 0             # characters read, T
        self._ids = np.zeros((batch, 1), np.int64)      # and drawn
        self._dtype = model.token_embedding.weight.dtype
        self._weights = _weights(model)
        self._cos = self._sin = np.zeros((0, 0), self._dtype)
        self._positions = (model.position_embedding.weight.data.copy()
                           if self.config.position == "learned" else
                           np.zeros((0, self.config.n_embd), self._dtype))
        self._sinusoids = model.sinusoids
        self._keys, self._values = self._empty(0)

    def read(self, ids: np.ndarray, after: int = 0) -> np.ndarray:
        """Read ids (B, T) after the first `after` characters of those that have been read; return
        the logits after the last, (B, V)."""
        return self._decode(ids, after, np.empty((len(ids), 0)))

    def draw(self, ids: np.ndarray, after: int, u: np.ndarray, *settings: float | None
             ) -> np.ndarray:
        """Read ids, then draw a character for each column of u (B, n), and read all but the last;
        return ids of u's shape.  u and the settings are those of `kernels.draw`."""
        self._decode(ids, after, u, *settings)
        return self._ids[:, after + ids.shape[1]:self.length + 1].copy()

    def _decode(self, ids, after, u, *settings):
        config, T = self.config, ids.shape[1]
        length = after + T + max(0, u.shape[1] - 1)
        if not (0 <= after <= self.length and T >= 1 and length <= config.block_size):
            raise ValueError(f"after {after} of {self.length} characters that were read, "
                             f"{length - after} more are no window of at most {config.block_size}")
        if not all([0 <= x < config.vocab_size for x in ids.ravel().tolist()]):
            raise IndexError(f"ids lie from 0 to {config.vocab_size - 1}, and these are "
                             f"{ids.ravel().tolist()}")
        self._make_room(length)
        self._ids[:, after:after + T] = ids
        for begin in range(after, after + T, AT_ONCE):
            count = min(AT_ONCE, after + T - begin)
            last = begin + count == after + T
            logits = kernels.decode(
                self._cos, self._sin, *self._weights, self._positions, self._keys, self._values,
                self._ids, u if last else u[:, :0].copy(),
                config.vocab_size, count, begin, config.ngrams, config.norm_eps,
                NORM_EPS if config.qk_norm else 0.0, config.norm == "layer",
                ACTIVATIONS.index(config.activation), *settings)
        self.length = length
        return logits

    def _empty(self, room):
        """Return keys and values of a number of characters."""
        sizes = self.config.n_layer, len(self._ids), self.config.kv_heads
        D = self.config.d_head
        return (empty_panels(*sizes, D, room, dtype=self._dtype),
                empty_panels(*sizes, room, D, dtype=self._dtype))

    def _make_room(self, length):
        """Let there be room for `length` characters at least: a large block is seldom filled, and
        its memory is not taken before."""
        config, room = self.config, self._values.shape[-2]
        if length <= room:
            return
        larger = min(config.block_size, max(ROOM, 2 * length))
        ids, (keys, values) = self._ids, self._empty(larger)
        keys[:, :, :, :self._keys.shape[3]] = self._keys
        values[..., :room, :] = self._values
        self._keys, self._values = keys, values
        self._ids = np.zeros((len(ids), larger + 1), np.int64)
        self._ids[:, :ids.shape[1]] = ids
        if config.position == "rotary":
            self._cos, self._sin = rotary_angles(larger, config.d_head, self._dtype,
                                                 base=config.rotary_base)
        else:
            self._cos = self._sin = np.zeros((larger, 0), self._dtype)
        if config.position == "sinusoidal":
            self._positions = self._sinusoids(larger)


def _weights(model):
    """Return the model's weights as `kernels.decode` takes them, from slopes to ngrams."""
    config, dtype = model.config, model.token_embedding.weight.dtype
    slopes = np.zeros(config.n_head, dtype)
    if config.position == "alibi":
        slopes = model.blocks[0].attention.slopes
    norms = [norm for block in model.blocks for norm in (block.norm1, block.norm2)] + [model.norm]
    of_blocks = [[[b.attention.qkv], [b.attention.out],
                  [b.mlp.up] if b.mlp.gate is None else [b.mlp.gate, b.mlp.up], [b.mlp.down]]
                 for b in model.blocks]

    def given(parameter, size, otherwise):
        return np.full(size, otherwise, dtype) if parameter is None else parameter.data

    head = pack(model.output_weight.data.T)
    return (slopes,
            np.stack([given(norm.weight, config.n_embd, 1) for norm in norms]),
            np.stack([given(norm.bias, config.n_embd, 0) for norm in norms]),
            np.stack([np.concatenate([given(linear.bias, len(linear.weight.data), 0)
                                      for linears in block for linear in linears])
                      for block in of_blocks]),
            *map(_in_panels, zip(*of_blocks)),
            head, head if config.tied else pack(model.token_embedding.weight.data.T),
            model.ngram_embedding.weight.data.copy() if config.ngrams > 1 else
            np.empty((0, config.n_embd), dtype))


def _in_panels(of_blocks):
    """Pack the weights of one or more linear layers of each block, side by side:
    (L, panels, K, NR)."""
    P, K = of_blocks[0][0].weight.shape
    packed = empty_panels(len(of_blocks), len(of_blocks[0]), K, P,
                          dtype=of_blocks[0][0].weight.dtype)
    for block, linears in enumerate(of_blocks):
        for i, linear in enumerate(linears):
            put(linear.weight.data.T, packed[block, i])
    return packed.reshape(len(of_blocks), -1, *packed.shape[-2:])
