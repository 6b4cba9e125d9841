"""A step whose loss or gradient is not finite: the op that made it, and what a run does about it.

    python train.py --replay out/nan.npz

The loss and the norm of the gradient of each step are checked, and the loss of each evaluation.  If
one of them is not finite, the step or batch is run again with the same weights and generators, and
each op is watched.
"""
import copy
import dataclasses
import math
import os
import sys
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

import minigrad as mg
from minigrad.core import OPS
from minigrad.kernels.build import ahead, compiling
from minigrad.watch.detective import Detective, Finding
from minigrad.watch.source import definition
from model.sampling.scoring import evaluate
from model.storage.checkpoint import BEST, CheckpointError, load_checkpoint
from model.training.folder import NAN
from model.training.run import Run, Step
from model.training.state import State
from model.transformer import Transformer

SKIPS_IN_A_ROW = 20     # after this many the run ends


class Case(NamedTuple):
    """A training step, or a batch of an evaluation, whose loss or gradient is not finite."""
    part: str               # "training" or "validation"
    step: int               # the step being taken, or the last one before the evaluation
    loss: float
    norm: float             # of the gradient; nan without a backward pass
    batches: list[tuple[np.ndarray, np.ndarray]]        # ids and targets, (B, T) each

    def __str__(self) -> str:
        if self.part == "validation":
            return f"the validation loss after step {self.step:,} is {self.loss}"
        if not math.isfinite(self.loss):
            return f"the loss of step {self.step:,} is {self.loss}"
        return (f"the loss of step {self.step:,} is {self.loss:.4g}, but the norm of its gradient "
                f"is {self.norm}")

    @classmethod
    def of_step(cls, step: Step) -> "Case":
        """Return a step that was not taken."""
        return cls("training", step.number, step.loss, step.norm, step.batches)

    @classmethod
    def of_validation(cls, step: int, model: Transformer, x: np.ndarray, y: np.ndarray,
                      batch_size: int) -> "Case":
        """Return the first batch of an evaluation whose loss is not finite."""
        for at in range(0, len(x), batch_size):
            ids, targets = x[at:at + batch_size], y[at:at + batch_size]
            if not math.isfinite(loss := evaluate(model, ids, targets, len(ids))):
                break
        return cls("validation", step, loss, math.nan, [(ids, targets)])

    def again(self, model: Transformer, dropout: np.random.Generator
              ) -> tuple["Case", Finding | None]:
        """Run the case again, watched.  No gradient is left, and `dropout` keeps its state."""
        parameters, norm = model.parameters(), math.nan
        for p in parameters:
            p.grad = None
        with Detective(model) as detective:
            if self.part == "validation":
                (x, y), = self.batches
                loss = evaluate(model, x, y, len(x))
            else:
                loss, dropout = 0.0, copy.deepcopy(dropout)
                for x, y in self.batches:
                    part = mg.cross_entropy(model(x, rng=dropout), y) / len(self.batches)
                    part.backward()
                    loss += part.item()
        if self.part == "training":
            norm = mg.clip_grad_norm_(parameters, math.inf)
            detective.look_at_gradients()
        for p in parameters:
            p.grad = None
        return self._replace(loss=loss, norm=norm), detective.finding

    def saved(self) -> dict[str, Any]:
        """Return the case exactly, as JSON can hold it."""
        return self._asdict() | {"batches": [[x.tolist(), y.tolist()] for x, y in self.batches]}

    @classmethod
    def restored(cls, saved: dict[str, Any]) -> "Case":
        """Return the case that `saved` stored.

        Raises
        ------
        ValueError : the data is not of that form.
        """
        try:
            case = cls(**saved | {"batches": [(np.array(x, np.int64), np.array(y, np.int64))
                                              for x, y in saved["batches"]]})
            sound = (type(case.step) is int and type(case.loss) is type(case.norm) is float
                     and (case.part == "training" and case.batches
                          or case.part == "validation" and len(case.batches) == 1)
                     and all(x.ndim == 2 and x.shape == y.shape for x, y in case.batches))
        except (KeyError, OverflowError, TypeError, ValueError):
            sound = False
        if not sound:
            raise ValueError("its parts are not those of a step")
        return case


def stop_or_skip(run: Run, step: Step) -> None:
    """Let a step that was not taken be skipped, or end the run, as --on_nan says.

    Raises
    ------
    ValueError : the run ends.
    """
    skips = run.settings.on_nan == "skip"
    first, gives_up = run.state.skipped == 1, run.state.skipped_in_row == SKIPS_IN_A_ROW
    if skips and not first and not gives_up:
        return
    case = Case.of_step(step)
    remedy = _explained(run, case, step.before, kept=first or not skips)
    if gives_up or not skips:
        why, shown = str(case), "again"
        if gives_up:
            why = f"{SKIPS_IN_A_ROW} steps in a row were to be skipped; {case}"
            shown = "that of the first skipped step"
        raise ValueError(_stopped(run, why, remedy, shown))
    tqdm.write(f"step {step.number:,} is skipped, and those like it will be: weights and "
               f"optimiser stay as they were.  {remedy}.  To see this again:\n"
               f"    {run.folder.replay_command()}\n", sys.stderr)


def stop_at_evaluation(run: Run) -> None:
    """End a run whose validation loss is not finite.

    Raises
    ------
    ValueError : always.
    """
    case = Case.of_validation(run.state.iteration, run.model, *run.windows,
                              run.settings.batch_size)
    remedy = _explained(run, case, run.state.saved(), kept=True)
    raise ValueError(_stopped(run, str(case), remedy))


def _explained(run, case, before, kept):
    """Take the case again from the state before it, print the op that made it, and write it to
    nan.npz if it is to be kept; return what to do about it."""
    now = run.state.saved()
    run.state.restore(before)
    _, finding = case.again(run.model, run.state.dropout)
    tqdm.write(f"\n{case}\n{finding or '   taken again, all of it is finite'}\n", sys.stderr)
    if kept:
        run.save(NAN, {"nan": case.saved()}, optimizer=run.optimizer, finite=False)
    run.state.restore(now)
    return advice(finding, dataclasses.asdict(run.settings))


def _stopped(run, why, remedy, shown="again"):
    """Return why a run ends, what is kept, and what to do."""
    kept, folder = "nothing had been saved yet", run.folder
    if (step := folder.kept_step()) is not None:
        kept = (f"the best model so far is in {folder / BEST}, and {folder.resume_command()} goes "
                f"on after step {step:,}, with other settings if you give them")
    return (f"{why}, so the run ends; the op that made it is named above, and {shown} by "
            f"{folder.replay_command()}.  {remedy}; {kept}")


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
        compiling.announce("compiling  ")
        ahead.compile_ahead(qk_norm=config.qk_norm, ngrams=config.ngrams > 1,
                            gated=config.activation == "swiglu")
        now, finding = then.again(checkpoint.model, state.dropout)
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
