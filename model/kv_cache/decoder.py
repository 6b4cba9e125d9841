"""The KV cache: keys and values of the ids that were read, for a compiled kernel that draws more.

Shapes: B sequences, T characters, L layers, H heads of queries, G of keys and values, C = H D
channels, V vocabulary.
"""
import functools
import warnings

import numpy as np

from minigrad.formulas import ACTIVATIONS
from minigrad.kernels.compiler.compiling import KERNELS, CannotCompile
from minigrad.kernels.compiler.tiles import TILE_BYTES
from minigrad.kernels.decoding import (Cache, Options, Weights, decode, empty_panels, pack)
from minigrad.kernels.packed import FLOATS, functions_of
from minigrad.ops.network import NORM_EPS, rotary_angles
from minigrad.packed import PackedTensor
from minigrad.words import any_of
from model.attention import MultiHeadAttention
from model.command import unknown_options
from model.kv_cache import OPTIONS
from model.transformer import Transformer

AT_ONCE = 256       # characters of a sequence that are read at once, with each weight read once
ROOM = 512          # characters for which there is memory from the beginning
NOT_THERE = None, [0, 0, 0, *FLOATS]    # what `_in_panels` returns for the gate of a model without


def decoder_of(model: Transformer, batch: int = 1) -> "Decoder | None":
    """Return a Decoder for B sequences; None if Numba cannot compile its kernel."""
    return Decoder(model, batch) if _compiles(model.token_embedding.weight.dtype) else None


@functools.cache
def _compiles(dtype):
    """Whether Numba can compile the kernel; it warns if not."""
    try:
        KERNELS["decode"].compile(dtype)
    except CannotCompile as error:
        warnings.warn("the window is read anew for each character, which takes longer, because "
                      f"Numba could not compile {error}", RuntimeWarning, stacklevel=2)
        return False
    return True


class Decoder:
    """A transformer with a KV cache, for B sequences.  It copies the weights when it is made.

    Raises
    ------
    ValueError : the model has an option that is not in OPTIONS, so that another model would draw;
        or a parameter has data of another shape or type than it was made with.
    """

    def __init__(self, model: Transformer, batch: int = 1) -> None:
        layers = {type(block.attention) for block in model.blocks} - {MultiHeadAttention}
        unknown = [layer.__name__ for layer in layers] or unknown_options(model.config, OPTIONS)
        if unknown:
            raise ValueError(f"the KV cache does not know {any_of(unknown)}; sample with "
                             "cache=False (--no-cache)")
        for name, p in model.named_parameters():
            if p.node and (p.shape, p.dtype) != (p.node.shape, p.node.dtype):
                raise ValueError(f"{name} was made as {p.node.dtype}{list(p.node.shape)}, and its "
                                 f"data is {p.dtype}{list(p.shape)}")
        self.config = model.config
        self.length = 0             # characters read, T
        self._dtype = model.token_embedding.weight.dtype
        self._panels, self._weights = _weights(model)
        self._options = Options(
            self.config.vocab_size, self.config.ngrams, self.config.norm_eps,
            NORM_EPS if self.config.qk_norm else 0.0, self.config.norm == "layer",
            ACTIVATIONS.index(self.config.activation))
        self._learned = (model.position_embedding.weight.data.copy()
                         if self.config.position == "learned" else
                         np.zeros((0, self.config.n_embd), self._dtype))
        self._sinusoids = model.sinusoids
        self._cache = self._empty(batch, 0)

    def read(self, ids: np.ndarray, after: int = 0) -> np.ndarray:
        """Read ids (B, T) after the first `after` characters of those that have been read; return
        the logits after the last, (B, V)."""
        return self._decode(ids, after, np.empty((len(ids), 0)))

    def draw(self, ids: np.ndarray, after: int, u: np.ndarray, *settings: float | None
             ) -> np.ndarray:
        """Read ids, then draw a character for each column of u (B, n), and read all but the last;
        return ids of u's shape.  u and the settings are those of `random.draw`."""
        self._decode(ids, after, u, *settings)
        return self._cache.ids[:, after + ids.shape[1]:self.length + 1].copy()

    def _decode(self, ids, after, u, *settings):
        config, T, batch = self.config, ids.shape[1], len(self._cache.ids)
        if (len(ids), len(u)) != (batch, batch):
            raise ValueError(f"this cache is of {batch} sequences; there are {len(ids)} rows of "
                             f"ids, and {len(u)} of u")
        length = after + T + max(0, u.shape[1] - 1)
        if not (0 <= after <= self.length and T >= 1 and length <= config.block_size):
            raise ValueError(f"after {after} of {self.length} characters that were read, "
                             f"{length - after} more are no window of at most {config.block_size}")
        if not all([0 <= x < config.vocab_size for x in ids.ravel().tolist()]):
            raise IndexError(f"ids lie from 0 to {config.vocab_size - 1}, and these are "
                             f"{ids.ravel().tolist()}")
        self._make_room(length)
        self._cache.ids[:, after:after + T] = ids
        for begin in range(after, after + T, AT_ONCE):
            count = min(AT_ONCE, after + T - begin)
            last = begin + count == after + T
            logits = decode(self._weights, self._cache, self._options, count, begin,
                            u if last else u[:, :0].copy(), *settings)
        self.length = length
        return logits

    def _empty(self, batch, room):
        """Return a Cache with room for a number of characters of each sequence."""
        config, dtype = self.config, self._dtype
        sizes, D = (config.n_layer, batch, config.kv_heads), config.d_head
        cos = sin = np.zeros((room, 0), dtype)
        if config.position == "rotary":
            cos, sin = rotary_angles(room, D, dtype, base=config.rotary_base)
        return Cache(cos, sin,
                     self._sinusoids(room) if config.position == "sinusoidal" else self._learned,
                     empty_panels(*sizes, D, room, dtype=dtype),
                     empty_panels(*sizes, room, D, dtype=dtype),
                     np.zeros((batch, room + 1), np.int64))

    def _make_room(self, length):
        """Make room for `length` characters at least; a large block is seldom filled, so its memory
        is taken step by step."""
        old, room = self._cache, self._cache.values.shape[-2]
        if length <= room:
            return
        new = self._empty(len(old.ids), min(self.config.block_size, max(ROOM, 2 * length)))
        new.keys[:, :, :, :old.keys.shape[3]] = old.keys
        new.values[..., :room, :] = old.values
        new.ids[:, :room + 1] = old.ids
        self._cache = new


def _weights(model):
    """Return the model's Weights, and the panels whose addresses are in them."""
    config, dtype = model.config, model.token_embedding.weight.dtype
    norms = [norm for block in model.blocks for norm in (block.norm1, block.norm2)] + [model.norm]
    of_blocks = [[b.attention.qkv, b.mlp.gate, b.attention.out, b.mlp.up, b.mlp.down]
                 for b in model.blocks]

    def given(parameter, size, otherwise):
        return np.full(size, otherwise, dtype) if parameter is None else parameter.data

    head = _in_panels(model.output_weight)      # first, as others may have memory that it frees
    found = [_in_panels(linear.weight) if linear else NOT_THERE
             for block in of_blocks for linear in block]
    found += [head, head if config.tied else _in_panels(model.token_embedding.weight)]
    panels, table = zip(*found)
    return panels, Weights(
        np.stack([given(norm.weight, config.n_embd, 1) for norm in norms]),
        np.stack([given(norm.bias, config.n_embd, 0) for norm in norms]),
        np.stack([np.concatenate([given(linear.bias, linear.weight.shape[0], 0)
                                  for linear in block if linear]) for block in of_blocks]),
        np.array(table),
        model.ngram_embedding.weight.data.copy() if config.ngrams > 1 else
        np.empty((0, config.n_embd), dtype))


def _in_panels(weight):
    """Return the panels of a matrix of weights, and its row of `Weights.matrices`."""
    if isinstance(weight, PackedTensor):
        panels = weight.packed.in_panels(TILE_BYTES // 4)
        how = functions_of(weight.packed.kind)
    else:
        panels, how = pack(weight.data.T), FLOATS
    return panels, [panels.ctypes.data, len(panels), weight.shape[1], *how]
