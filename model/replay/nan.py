"""The first nan: repeat a step whose loss or gradient is nan or inf, and find the op that made it.

The step, or the batch of an evaluation, runs again with the same weights and random generators, and
every op is watched.
"""
import contextlib
import dataclasses
import math
import os
import sys
from typing import Any

import numpy as np
from tqdm import tqdm

import minigrad as mg
from minigrad import compiled
from minigrad.core import OPS
from minigrad.watch.detective import Detective, Finding
from minigrad.watch.source import definition
from minigrad.words import shown
from model.checkpoint import BEST, CheckpointError, is_there, load_checkpoint
from model.folder import NAN
from model.run import SKIPS_IN_A_ROW, Evaluation, Run, State, Step
from model.scoring import evaluate
from model.settings import usual_settings
from model.transformer import Transformer

FAR = 10
# What helps against settings that can make a run diverge.
FARTHEST = ("learning_rate", "muon_lr", "min_lr", "weight_decay", "ngram_decay", "grad_clip",
            "dropout", "ngram_dropout", "beta1", "beta2")
BELOW_1 = ("dropout", "ngram_dropout", "beta1", "beta2")
ELSEWHERE = {"min_lr": "learning_rate", "ngram_decay": "weight_decay"}  # where the usual one is


def sentence(step: Step | Evaluation) -> str:
    """Say what of a step or an evaluation is not finite."""
    if isinstance(step, Evaluation):
        return f"the validation loss after step {step.number:,} is {step.loss}"
    if not math.isfinite(step.loss):
        return f"the loss of step {step.number:,} is {step.loss}"
    return (f"the loss of step {step.number:,} is {step.loss:.4g}, but the norm of its gradient is "
            f"{step.norm}")


def record(step: Step | Evaluation, state: State) -> dict[str, Any]:
    """Return a step exactly, as JSON can hold it, and the state before it; `state` is the one after
    it."""
    batches = [[x.tolist(), y.tolist()] for x, y in step.batches]
    nan = dict(step=step.number, loss=step.loss, norm=gradient_norm(step), batches=batches)
    if isinstance(step, Evaluation):
        nan |= dict(part="validation")
    else:
        nan |= dict(part="training", ahead=step.ahead)
    return {"state": state.saved() | step.before, "nan": nan}


def restore_step(training: dict[str, Any]) -> Step | Evaluation:
    """Return the step that `record` returned."""
    nan = training["nan"]
    batches = [(np.array(x, np.int64), np.array(y, np.int64)) for x, y in nan["batches"]]
    values = dict(number=nan["step"], before=training["state"], batches=batches, loss=nan["loss"])
    if nan["part"] == "validation":
        return Evaluation(**values)
    return Step(norm=nan["norm"], ahead=nan.get("ahead", 0.0), **values)


def gradient_norm(step: Step | Evaluation) -> float:
    """Return the norm of the gradient; an evaluation has none."""
    return math.nan if isinstance(step, Evaluation) else step.norm


def repeat(step: Step | Evaluation, model: Transformer
           ) -> tuple[Step | Evaluation, Finding | None]:
    """Run a step again, watched; return what it is now, and the op that was found.  No gradient is
    left."""
    now = dataclasses.replace(step, loss=0.0)
    state = State(seed=0)
    parameters = model.parameters()
    state.restore(step.before)
    with Detective(model) as detective:
        for x, y in step.batches:
            if isinstance(step, Evaluation):
                now.loss = evaluate(model, x, y, len(x))
            else:
                loss = model.loss(x, y, state.dropout, step.ahead) / len(step.batches)
                loss.backward()
                now.loss += loss.item()
    if isinstance(step, Step):
        now.norm = mg.clip_grad_norm_(parameters, math.inf)
        detective.look_at_gradients()
    for p in parameters:
        p.grad = None
    return now, detective.finding


def find_op(step: Step | Evaluation, model: Transformer, settings: dict[str, Any]
            ) -> tuple[str, str]:
    """Repeat a step, and print the op that made it not finite.  Return a sentence on what is not
    finite, and one on what to do.  Of an evaluation only the first bad batch is left in the step.
    """
    if isinstance(step, Evaluation):
        ((x, y),) = step.batches
        B = settings["batch_size"]
        for batch in [(x[i:i + B], y[i:i + B]) for i in range(0, len(x), B)]:
            step.batches = [batch]
            step.loss = evaluate(model, *batch, B)
            if not math.isfinite(step.loss):
                break
    _, finding = repeat(step, model)
    tqdm.write(f"\n{sentence(step)}\n{finding or '   repeated, all of it is finite'}\n", sys.stderr)
    return sentence(step), advice(finding, settings)


def explain_skipped(run: Run, step: Step) -> None:
    """Name the op that made a step not finite, say that the run goes on without it, and keep it in
    nan.npz."""
    _, remedy = find_op(step, run.model, dataclasses.asdict(run.settings))
    keep(run, step)
    tqdm.write(f"step {step.number:,} is skipped, and those like it will be: weights and optimiser "
               f"stay as they were.  {remedy}.  To repeat it:\n"
               f"    {run.folder.replay_command()}\n", sys.stderr)


def explain_end(run: Run, step: Step | Evaluation) -> str:
    """Name the op that made the step or evaluation with which a run ends not finite, and keep it in
    nan.npz, unless that has the first of many.  Return what to say of the end."""
    what, remedy = find_op(step, run.model, dataclasses.asdict(run.settings))
    folder = run.folder
    after = ""
    if run.state.skipped_in_row == SKIPS_IN_A_ROW:
        after = f" after {SKIPS_IN_A_ROW} skipped steps in a row"
    else:
        keep(run, step)
    saved = "nothing was saved yet"
    if run.last_saved is not None:
        saved = (f"the best model so far is in {folder / BEST}, and {folder.resume_command()} "
                 f"resumes after step {run.last_saved:,}, with other settings if you give them")
    return (f"{what}, so the run ends{after}; the op that made it is named above, and "
            f"{folder.replay_command()} repeats the first such step.  {remedy}; {saved}")


def keep(run: Run, step: Step | Evaluation) -> None:
    """Write a step into nan.npz, with the model and the state before it."""
    run.save(NAN, record(step, run.state), optimizer=run.optimizer, finite=False)


def replay(path: str | os.PathLike) -> None:
    """Repeat the step of a nan.npz, and print the op that was found.

    Raises
    ------
    ValueError : there is no such file, or it holds no such step, or all is finite this time.
    """
    with contextlib.suppress(PermissionError):      # which load_checkpoint answers
        if not is_there(path) or not os.path.isfile(path):
            raise CheckpointError(f"{path} is no file; give the out_dir/nan.npz that train.py "
                                  "writes where a loss is not finite")
    model, _, training, _ = load_checkpoint(path, finite=False, ahead=True)
    compiled.announce("compiling  ")
    try:
        then = restore_step(training)
        print(f"then        {sentence(then)}")
        now, finding = repeat(then, model)
        remedy = advice(finding, training["settings"])
    except (IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} holds no step that can be repeated ({shown(error)}); "
                              "train.py writes one to out_dir/nan.npz where a loss is not finite"
                              ) from error
    equal = np.array_equal(
        [then.loss, gradient_norm(then)], [now.loss, gradient_norm(now)], equal_nan=True)
    print(f"now         {sentence(now)}, "
          + ("the same bit for bit" if equal else
             "not the same: it was trained on another processor, or with other kernels")
          + f"\n\n{finding or ''}")
    if finding is None:
        raise ValueError(f"every value of the step in {path} is finite here")
    print(f"\n{remedy}")


def far_from_usual(settings: dict[str, Any]) -> list[str]:
    """Return a remedy for each setting that is more than FAR times as strong as usual, the
    strongest first."""
    usual = usual_settings(settings.get("recipe"))
    remedies = {}
    for name in FARTHEST:
        value = settings.get(name)
        default = usual[name]
        if name == "muon_lr" and settings.get("optimizer") != "muon":
            continue
        if not default and name in ELSEWHERE:
            default = usual[ELSEWHERE[name]]
        if value and strength(name, value) > FAR * strength(name, default):
            remedy = f"a lower --{name} (it was {value:g}, and {default:g} is usual)"
            remedies[remedy] = strength(name, value) / strength(name, default)
    return sorted(remedies, key=remedies.get, reverse=True)


def strength(name: str, value: float) -> float:
    """Return a number that grows as a setting comes nearer to where training diverges."""
    return 1 / (1 - value) if name in BELOW_1 else value


def advice(finding: Finding | None, settings: dict[str, Any]) -> str:
    """Return what to do about it, in a sentence."""
    far = far_from_usual(settings)
    slower = ", ".join(far or [f"a lower --learning_rate (it was {settings['learning_rate']:g})"])
    if settings["warmup_iters"] < 100 and not far:
        slower += f", a longer --warmup_iters (it was {settings['warmup_iters']})"
    if not settings["grad_clip"]:
        slower += ", or --grad_clip 1 (nothing was clipped)"
    if finding and finding.left_out:
        return (f"The value of {finding.op} is left out by mg.where at {finding.left_out.place}, "
                "and its gradient there is 0 times inf, which is nan: make its argument safe, too, "
                "as in mg.where(c, mg.sqrt(mg.where(c, x, 1)), 0) with c = x.data > 0")
    if far or finding is None or finding.cause in ("weight", "overflow"):
        return f"Train with {slower}"
    if finding.cause == "input":
        return f"Look at the arguments of {finding.op} at {finding.line.place}"
    where = f", at {definition(OPS[finding.op]).place}" if finding.op in OPS else ""
    if finding.cause in ("zero", "domain"):
        return f"Keep the arguments of {finding.op} away from there, or look at the op{where}"
    return f"Look at the op{where}; mg.gradcheck compares its gradient with differences"
