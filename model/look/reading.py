"""Read a text with a model, window by window, and keep what each step computed.

Shapes: T characters of a window, L layers, H heads, C channels, V vocabulary.
"""
from typing import NamedTuple

import numpy as np

import minigrad as mg
from minigrad.watching import watch_ops
from minigrad.watch.events import owner, passes_on
from minigrad.watch.source import callers
from model.generation import window_start, window_step
from model.transformer import Transformer


class Step(NamedTuple):
    """An op that ran on the way from characters to logits."""
    op: str
    block: int | None                   # None before the first block and after the last
    shape: tuple[int, ...]              # of its value
    parameters: dict[str, tuple[int, ...]]      # names and shapes of those that it used


class Window(NamedTuple):
    """Characters that are read together, with their attention and residual stream."""
    start: int                  # where in the text it begins
    ids: np.ndarray             # (T,)
    fresh: int                  # the first row whose next character no earlier window predicts
    logits: np.ndarray          # (T, V)
    maps: np.ndarray            # (L, H, T, T): how much each query looks at each key
    stream: np.ndarray          # (L + 1, T, C): before the first block, and after each
    steps: list[Step]


def read(model: Transformer, ids: np.ndarray) -> list[Window]:
    """Return the windows from which sampling would predict each character of a text, ids (N,), and
    the one after it (see `window_start` in model/generation.py)."""
    block = model.config.block_size
    step, windows = window_step(block), []
    for start in range(0, window_start(len(ids), block) + 1, step):
        part = ids[start:start + block]
        logits, stream, steps = watch(model, part)
        windows.append(Window(start, part, block - step if start else 0, logits,
                              model.attention_maps(part), stream, steps))
    return windows


def watch(model: Transformer, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[Step]]:
    """Run a model on ids (T,) and note every op.  Return logits (T, V), the residual stream before
    the first block and after each, (L + 1, T, C), and the steps."""
    names = {id(p): name for name, p in model.named_parameters()}
    blocks = {id(block): i for i, block in enumerate(model.blocks)}
    steps, outputs = [], []

    def note(event):
        if not passes_on(event):
            used = {names[id(x)]: x.shape for x in event.inputs if id(x) in names}
            outputs.append(event.outputs[0].data)
            steps.append(Step(event.op, owner(blocks, callers()), outputs[-1].shape, used))

    with mg.no_grad(), watch_ops(note):
        logits = model(ids[None]).data[0]
    after = [i for i, (this, following) in enumerate(zip(steps, steps[1:]))
             if this.block != following.block]      # where a block ends, or the first begins
    return logits, np.stack([outputs[i][0] for i in after]), steps


def lens(model: Transformer, stream: np.ndarray) -> np.ndarray:
    """Return the logits if the model stopped there: its last norm and output applied to the
    residual stream, (..., C) -> (..., V).

    Source: nostalgebraist 2020, "interpreting GPT: the logit lens".
    """
    with mg.no_grad():
        return model.output(mg.Tensor(stream)).data
