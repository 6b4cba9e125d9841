"""The KV cache of `model/cache.py` for a compiled kernel, which reads and draws in its place.

Shapes: B sequences, T characters, L layers, H heads of queries, G of keys and values, D channels
of a head, C of the model, V vocabulary.
"""
import functools
import warnings

import numpy as np

from minigrad.kernels.compiler.compiling import KERNELS, CannotCompile
from minigrad.kernels.compiler.tiles import TILE_BYTES
from minigrad.kernels.decoding import (STAGES, Cache, Options, Weights, decode, empty_panels,
                                       pack)
from minigrad.kernels.elementwise import GELU, NUMBER_OF
from minigrad.kernels.packed import FLOATS, PANELS, rows_of_table
from minigrad.ops import rotary_angles
from minigrad.packed import PackedTensor
from minigrad.words import any_of
from model.cache import Drawing, check_layers
from model.config import KERNEL, unknown_options
from model.transformer import Transformer

AT_ONCE = 256       # characters of a sequence that are read at once, with each weight read once
ROOM = 512          # characters for which there is memory from the beginning
NOT_THERE = [0, 0, 0, *FLOATS, 0, 0, 0]     # the row of the gate of an MLP without


def decoder_of(model: Transformer, batch: int = 1) -> "Decoder | None":
    """Return a Decoder for B sequences; None if Numba cannot compile its kernel."""
    return Decoder(model, batch) if _compiles(model.token_embedding.weight.dtype) else None


@functools.cache
def _compiles(dtype):
    """Whether Numba can compile the kernel; it warns if not."""
    try:
        KERNELS["decode"].compile(dtype)
    except CannotCompile as error:
        warnings.warn("characters are drawn in plain NumPy, which takes longer, because Numba "
                      f"could not compile {error}", RuntimeWarning, stacklevel=2)
        return False
    return True


class Decoder:
    """A transformer with a KV cache, for B sequences.  It copies the weights when it is made.

    Raises
    ------
    ValueError : the model has an option that is not known to KERNEL, so that another model
        would draw; or a parameter has data of another shape or type than it was made with.
    """

    def __init__(self, model: Transformer, batch: int = 1) -> None:
        check_layers(model)
        if unknown := unknown_options(model.config, KERNEL):
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
            V=self.config.vocab_size,
            longest=self.config.ngrams,
            eps=self.config.norm_eps,
            qk_eps=self.config.norm_eps if self.config.qk_norm else 0.0,
            centred=self.config.norm == "layer",
            activation=NUMBER_OF.get(self.config.activation, GELU))     # a gated MLP reads none
        self._learned = np.zeros((0, self.config.n_embd), self._dtype)
        if self.config.position == "learned":
            self._learned = model.position_embedding.weight.data.copy()
        self._sinusoids = model.sinusoids
        self._cache = self._empty(batch, 0)

    def read(self, ids: np.ndarray, after: int = 0) -> np.ndarray:
        """Read ids (B, T) after the first `after` characters of those that have been read; return
        the logits after the last, (B, V)."""
        return self._decode(ids, after, np.empty((len(ids), 0)))

    def draw(self, ids: np.ndarray, after: int, u: np.ndarray, drawing: Drawing) -> np.ndarray:
        """Read ids, then draw a character for each column of u (B, n), and read all but the last;
        return ids of u's shape.  u is that of `random.draw`."""
        self._decode(ids, after, u, drawing.temperature, drawing.top_k, drawing.top_p)
        return self._cache.ids[:, after + ids.shape[1]:self.length + 1].copy()

    def _decode(self, ids, after, u, *settings):
        T = ids.shape[1]
        V = self.config.vocab_size
        block = self.config.block_size
        batch = len(self._cache.ids)
        length = after + T + max(0, u.shape[1] - 1)
        if len(ids) != batch or len(u) != batch:
            raise ValueError(f"this cache is of {batch} sequences; there are {len(ids)} rows of "
                             f"ids, and {len(u)} of u")
        if not (0 <= after <= self.length and T >= 1 and length <= block):
            raise ValueError(f"after {after} of {self.length} characters that were read, "
                             f"{length - after} more are no window of at most {block}")
        read = ids.ravel().tolist()     # to look at a few is faster in Python
        if not all([0 <= i < V for i in read]):
            raise IndexError(f"ids lie from 0 to {V - 1}, and these are {read}")
        self._make_room(length)
        end = after + T
        self._cache.ids[:, after:end] = ids
        for begin in range(after, end, AT_ONCE):
            count = min(AT_ONCE, end - begin)
            is_last = begin + count == end
            drawn = u if is_last else u[:, :0]
            logits = decode(self._weights, self._cache, self._options, count, begin, drawn,
                            *settings)
        self.length = length
        return logits

    def _empty(self, batch, room):
        """Return a Cache with room for a number of characters of each sequence."""
        config = self.config
        sizes = config.n_layer, batch, config.kv_heads
        D = config.d_head
        cos = sin = np.zeros((room, 0), self._dtype)
        positions = self._learned
        if config.position == "rotary":
            cos, sin = rotary_angles(room, D, self._dtype,
                                     base=config.rotary_base,
                                     scaling=config.rotary_scaling)
        elif config.position == "sinusoidal":
            positions = self._sinusoids(room)
        keys = empty_panels(*sizes, D, room, dtype=self._dtype)
        values = empty_panels(*sizes, room, D, dtype=self._dtype)
        return Cache(cos, sin, positions, keys, values, np.zeros((batch, room + 1), np.int64))

    def _make_room(self, length):
        """Make room for `length` characters at least; a large block is seldom filled, so its memory
        is taken step by step."""
        old = self._cache
        room = old.values.shape[-2]
        if length <= room:
            return
        new = self._empty(len(old.ids), min(self.config.block_size, max(ROOM, 2 * length)))
        new.keys[:, :, :, :old.keys.shape[3]] = old.keys
        new.values[..., :room, :] = old.values
        new.ids[:, :room + 1] = old.ids
        self._cache = new


def _weights(model):
    """Return the model's Weights, and what has the panels whose addresses are in them."""
    C = model.config.n_embd
    dtype = model.token_embedding.weight.dtype
    norms = [norm for block in model.blocks for norm in (block.norm1, block.norm2)] + [model.norm]
    gains = np.ones((len(norms), C), dtype)
    shifts = np.zeros((len(norms), C), dtype)
    for i, norm in enumerate(norms):
        if norm.weight is not None:
            gains[i] = norm.weight.data
        if norm.bias is not None:
            shifts[i] = norm.bias.data
    panels, biases, matrices = _matrices(model)
    ngrams = np.empty((0, C), dtype)
    if model.config.ngrams > 1:
        ngrams = model.ngram_embedding.weight.data.copy()
    return panels, Weights(gains, shifts, biases, matrices, ngrams, _head_gains(model))


def _head_gains(model):
    """Return the gains of queries and keys, (L, 2, D), or (L, 2, 0) without."""
    layers = [block.attention for block in model.blocks]
    if layers[0].query_norm is None:
        return np.zeros((len(layers), 2, 0), model.token_embedding.weight.dtype)
    return np.array([[layer.query_norm.weight.data, layer.key_norm.weight.data]
                     for layer in layers])


def _matrices(model):
    """Return what has the panels of all matrices, and the biases and the table of `Weights`."""
    kept = []
    biases = []
    further = []        # rows of the table for the parts of a matrix after the first
    NR = TILE_BYTES // model.token_embedding.weight.dtype.itemsize

    def keep(weight, bias=None):
        """Keep a matrix in panels, and its bias; return its row of the table."""
        begin = sum(map(len, biases))
        if isinstance(weight, PackedTensor):
            following = len(model.blocks) * STAGES + 1 + len(further)
            row, *others = rows_of_table(weight.packed, NR, begin, following)
            kept.append(weight.packed)
            further.extend(others)
        else:
            panels = pack(weight.data.T)
            count = len(panels)
            row = [panels.ctypes.data, count, weight.shape[1], *FLOATS, begin, count, 0]
            kept.append(panels)
        padded = np.zeros(row[PANELS] * NR, weight.dtype)
        if bias is not None:
            padded[:bias.size] = bias.data
        biases.append(padded)
        return row

    head = keep(model.output_weight)      # first, as others may have memory that it frees
    table = [keep(linear.weight, linear.bias) if linear else NOT_THERE
             for block in model.blocks
             for linear in (block.attention.qkv, block.mlp.gate, block.attention.out,
                            block.mlp.up, block.mlp.down)]
    embedding = head if model.config.tied else keep(model.token_embedding.weight)
    return kept, np.concatenate(biases), np.array([*table, head, *further, embedding])
