"""The windows in which a model reads a whole text, and the probabilities that it gives in them.

Shapes: B windows, T ids, N ids of a text, V vocabulary.
"""
import math
from collections.abc import Iterator

import numpy as np

import minigrad as mg
from model.generation import window_step
from model.transformer import Transformer

AT_ONCE = 4096          # ids per pass of the model
LOGITS = 1 << 24        # numbers that are computed at once: with a large vocabulary, for few ids


def text_windows(model: Transformer, ids: np.ndarray, slide: bool = False
                 ) -> Iterator[tuple[np.ndarray, int]]:
    """Yield windows of a text that go through the model together: the numbers of their ids, (B, T),
    and of how many of these an earlier window has predicted the next id already."""
    N = len(ids) - 1
    block = min(model.config.block_size, N)
    step = window_step(block, slide)
    first, *starts = step * np.arange(1 + math.ceil(max(0, N - block) / step))
    yield first + np.arange(block)[None], 0
    full = starts[:-1]          # all but the last
    last = starts[-1:]
    for group in np.array_split(full, math.ceil((1 + len(full)) * block / AT_ONCE)) + [last]:
        if len(group):
            yield np.add.outer(group, np.arange(min(block, N - group[-1]))), block - step


def log_probabilities(model: Transformer, x: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield a range of positions, and log p of every id after each of them: (B, T) integers ->
    (B, part, V)."""
    if hasattr(model, "log_probabilities"):         # such as a mean of several
        yield from model.log_probabilities(x)
        return
    some = max(1, LOGITS // (len(x) * model.config.vocab_size))
    with mg.no_grad():
        states = model.states(x).data                                           # (B, T, C)
    for first in range(0, x.shape[1], some):
        part = slice(first, first + some)
        with mg.no_grad():      # and not while the caller has its turn
            logp = mg.log_softmax(model.output(mg.Tensor(states[:, part]))).data
        yield part, logp
