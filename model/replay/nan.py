"""The first nan: the op that made the loss or the gradient of a step not finite, and the remedy.

    python train.py --replay out/nan.npz

The step, or the batch of an evaluation, is run again with the same weights and generators, and each
op is watched.
"""
import copy
import math
import os
import sys
from typing import Any

import numpy as np
from tqdm import tqdm

import minigrad as mg
from minigrad.core import OPS
from minigrad import compiled
from minigrad.watch.detective import Detective, Finding
from minigrad.watch.source import definition
from model.scoring import evaluate
from model.checkpoint import CheckpointError, load_checkpoint
from model.run import Case, State
from model.transformer import Transformer, loss_of


def again(case: Case, model: Transformer, dropout: np.random.Generator
          ) -> tuple[Case, Finding | None]:
    """Run a case again, watched.  No gradient is left, and `dropout` keeps its state."""
    parameters, norm = model.parameters(), math.nan
    for p in parameters:
        p.grad = None
    with Detective(model) as detective:
        if case.part == "validation":
            (x, y), = case.batches
            loss = evaluate(model, x, y, len(x))
        else:
            loss, dropout = 0.0, copy.deepcopy(dropout)
            for x, y in case.batches:
                part = loss_of(model, x, y, dropout) / len(case.batches)
                part.backward()
                loss += part.item()
    if case.part == "training":
        norm = mg.clip_grad_norm_(parameters, math.inf)
        detective.look_at_gradients()
    for p in parameters:
        p.grad = None
    return case._replace(loss=loss, norm=norm), detective.finding


def find_op(case: Case, model: Transformer, before: dict[str, Any], settings: dict[str, Any]
            ) -> str:
    """Take a case again from the run's state before it, and print the op that made it; return what
    to do about it."""
    state = State(seed=0)
    state.restore(before)
    _, finding = again(case, model, state.dropout)
    tqdm.write(f"\n{case}\n{finding or '   taken again, all of it is finite'}\n", sys.stderr)
    return advice(finding, settings)


def replay(path: str | os.PathLike) -> None:
    """Run the step of a nan.npz again, and print what was found.

    Raises
    ------
    ValueError : there is no such file, or it holds no such step, or all is finite this time.
    """
    if not os.path.isfile(path):
        raise CheckpointError(f"--replay {path} is no file; give the out_dir/nan.npz that train.py "
                              "leaves where a loss is not finite")
    checkpoint = load_checkpoint(path, finite=False)
    settings = checkpoint.training.get("settings", {})
    if not ({"nan", "state"} <= checkpoint.training.keys()
            and {"learning_rate", "warmup_iters", "grad_clip"} <= settings.keys()):
        raise CheckpointError(f"{path} is a checkpoint, and holds no step that went wrong; "
                              "train.py leaves one in out_dir/nan.npz where a loss is not finite")
    state, config = State(seed=0), checkpoint.model.config
    try:
        state.restore(checkpoint.training["state"])
        then = Case.restored(checkpoint.training["nan"])
        compiled.announce("compiling  ")
        compiled.compile_ahead(qk_norm=config.qk_norm, ngrams=config.ngrams > 1,
                               gated=config.activation == "swiglu")
        now, finding = again(then, checkpoint.model, state.dropout)
    except (IndexError, ValueError) as error:
        raise CheckpointError(f"{path} holds no step that can be taken again: {error}") from error
    print(f"then        {then}\nnow         {now}, "
          + ("the same bit for bit" if np.array_equal(then[2:4], now[2:4], equal_nan=True) else
             "not the same: it was trained on another processor, or with other kernels")
          + f"\n\n{finding or ''}")
    if finding is None:
        raise ValueError(f"every value of the step in {path} is finite here")
    print(f"\n{advice(finding, settings)}")


def advice(finding: Finding | None, settings: dict[str, Any]) -> str:
    """Return what to do about it, in a sentence."""
    slower = f"a lower --learning_rate (it was {settings['learning_rate']:g})"
    if settings["warmup_iters"] < 100:
        slower += f", a longer --warmup_iters (it was {settings['warmup_iters']})"
    if not settings["grad_clip"]:
        slower += ", or --grad_clip 1 (nothing was clipped)"
    if finding and finding.left_out:
        return (f"The value of {finding.op} is left out by mg.where at {finding.left_out.place}, "
                "and its gradient there is 0 times inf, which is nan: make what it is given safe "
                "inside, too, as in mg.where(c, mg.sqrt(mg.where(c, x, 1)), 0) with c = x.data > 0")
    if finding is None or finding.cause in ("weight", "overflow"):
        return f"Train with {slower}"
    if finding.cause == "input":
        return f"Look at what {finding.op} is given at {finding.line.place}"
    where = f", at {definition(OPS[finding.op]).place}" if finding.op in OPS else ""
    if finding.cause in ("zero", "domain"):
        return f"Keep what {finding.op} is given away from there, or look at the op{where}"
    return f"Look at the op{where}; mg.gradcheck compares its gradient with differences"
