"""Read a text with a model, window by window, and keep what each block computed.

Shapes: T characters of a window, L layers, H heads, C channels, V vocabulary.
"""
from typing import NamedTuple

import numpy as np

import minigrad as mg
from model.generation import window_start, window_step
from model.transformer import Transformer


class Window(NamedTuple):
    """Characters that are read together, with their attention and residual stream."""
    start: int                  # where in the text it begins
    ids: np.ndarray             # (T,)
    fresh: int                  # the first row whose next character no earlier window predicts
    logits: np.ndarray          # (T, V)
    maps: np.ndarray            # (L, H, T, T): how much each query looks at each key
    stream: np.ndarray          # (L + 1, T, C): before the first block, and after each


def read(model: Transformer, ids: np.ndarray) -> list[Window]:
    """Return the windows from which sampling would predict each character of a text, ids (N,), and
    the one after it (see `window_start` in model/generation.py)."""
    block = model.config.block_size
    step, windows = window_step(block), []
    for start in range(0, window_start(len(ids), block) + 1, step):
        part = ids[start:start + block]
        stream = watch(model, part)
        windows.append(Window(start, part, block - step if start else 0, lens(model, stream[-1]),
                              attention_maps(model, stream), stream))
    return windows


def watch(model: Transformer, ids: np.ndarray) -> np.ndarray:
    """Return the residual stream before the first block and after each, (..., T) ->
    (L + 1, ..., T, C)."""
    with mg.no_grad():
        stream = [model.embed(ids)]
        for block in model.blocks:
            stream.append(block(stream[-1]))
    return np.stack([x.data for x in stream])


def attention_maps(model: Transformer, stream: np.ndarray) -> np.ndarray:
    """Return the weight of each query (row) on each key (column), in every head of every layer,
    from the residual stream: (L + 1, ..., T, C) -> (L, ..., H, T, T); rows sum to 1.

    They are computed by the plain formula, `model.attention.attention`.
    """
    with mg.no_grad():
        return np.stack([block.attention.weights(block.norm1(mg.Tensor(x)))
                         for block, x in zip(model.blocks, stream)])


def lens(model: Transformer, stream: np.ndarray) -> np.ndarray:
    """Return the logits if the model stopped there: its last norm and output applied to the
    residual stream, (..., C) -> (..., V).

    Source: nostalgebraist 2020, "interpreting GPT: the logit lens".
    """
    with mg.no_grad():
        return model.output(mg.Tensor(stream)).data
