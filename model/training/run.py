"""A run: the model, its optimiser and state during training, and the folder that stores them."""
import contextlib
import dataclasses
import itertools
import math
import os
import pathlib
import shlex
import sys
import time

import numpy as np
from tqdm import tqdm

import data
import minigrad as mg
from data.tokenizer import CharTokenizer
from minigrad.kernels.build import compiling
from minigrad.optim import warmup_cosine, warmup_linear
from model.storage.checkpoint import (BEST, DAMAGED, LAST, PREVIOUS, Checkpoint, CheckpointError,
                                      load_checkpoint, load_last, restore_optimizer,
                                      save_checkpoint)
from model.storage.files import claimed
from model.training.nan import Case, NotFinite, advice
from model.training.settings import Settings
from model.training.state import (Log, State, decayed_and_other, evaluate, forward_backward,
                                  packed_and_other_matrices)
from model.transformer import Transformer

LOG, NAN = "log.csv", "nan.npz"
SKIPS_IN_A_ROW = 20     # after this many the run ends


class Run:
    """A model in training, its optimiser and its state, new or restored from a checkpoint."""

    def __init__(self, settings: Settings, tokenizer: CharTokenizer, text: str,
                 resumed: Checkpoint | None) -> None:
        s = self.settings = settings
        self.out_dir = pathlib.Path(s.out_dir)
        self.tokenizer = tokenizer
        self.text = data.digest(text)
        self.model = resumed.model if resumed else Transformer(
            s.model_config(tokenizer.vocab_size), s.seed)
        self.optimizer = optimizer_of(self.model, s)
        self.highest = [group["lr"] for group in self.optimizer.param_groups]
        self.state = State(s.seed)
        self.kept = None        # the iteration in last.npz
        if resumed:
            self.state.restore(resumed.training["state"])
            restore_optimizer(self.optimizer, self.model, resumed.optimizer,
                              self.state.iteration - self.state.skipped)
            self.kept = self.state.iteration

    @property
    def learning_rate(self) -> float:
        """AdamW's learning rate for the next step."""
        return self.rate_below(self.settings.learning_rate)

    def rate_below(self, highest: float) -> float:
        """Return the learning rate of the next step for parameters with another highest rate than
        the settings' one: the same share of it."""
        s = self.settings
        lowest = s.learning_rate / 10 if s.min_lr is None else s.min_lr
        if highest != s.learning_rate:
            lowest = highest * lowest / s.learning_rate if s.learning_rate else highest / 10
        at, warmup, end = self._place_in_schedule()
        if s.schedule == "linear":
            return warmup_linear(at, highest, lowest, warmup, end, s.decay_share)
        return warmup_cosine(at, highest, lowest, warmup, end)

    def _place_in_schedule(self):
        """Return (position of the next step, end of the warm-up, end of the run), in steps; or,
        after the warm-up, in seconds of training, if by the clock more of the run is done."""
        s, state = self.settings, self.state
        steps = s.steps if s.lr_decay_iters is None else s.lr_decay_iters
        if (s.minutes is not None and state.iteration >= s.warmup_iters
                and state.seconds / (60 * s.minutes) > state.iteration / max(steps, 1)):
            return state.seconds, 0, 60 * s.minutes
        return state.iteration, s.warmup_iters, steps

    @property
    def progress(self) -> float:
        """The share of the run that is done, by its steps or by the clock; it ends at 1."""
        s, state = self.settings, self.state
        by_clock = 0.0 if s.minutes is None else state.seconds / (60 * s.minutes)
        return max(by_clock, state.iteration / s.steps if s.steps else 1.0)

    def take_step(self, train: np.ndarray) -> tuple[float, float]:
        """Take one optimiser step over one or more batches of the ids; return the training loss and
        the norm of its gradient before clipping.

        Raises
        ------
        NotFinite : one of the two is not finite; weights and optimiser are as before.
        """
        s, state, parameters = self.settings, self.state, self.model.parameters()
        batches = [data.random_batch(train, s.batch_size, s.block_size, state.batches)
                   for _ in range(s.gradient_accumulation_steps)]
        loss = forward_backward(self.model, batches, state.dropout)
        norm = mg.clip_grad_norm_(parameters, s.grad_clip or math.inf)
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self.optimizer.zero_grad()
            raise NotFinite(Case("training", state.iteration + 1, loss, norm, batches))
        for group, highest in zip(self.optimizer.param_groups, self.highest):
            group["lr"] = self.rate_below(highest)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss, norm

    def step(self, train: np.ndarray) -> None:
        """Take a step and count it.  Report a loss that is far above the usual one.  Handle a step
        that cannot be taken as --on_nan says."""
        state, before, started = self.state, self.state.generators(), clock()
        try:
            loss, norm = self.take_step(train)
        except NotFinite as error:
            seconds = clock() - started
            self._stop_or_skip(error.case, before)
            return state.note_skip(seconds)
        usual = state.spike(loss)
        state.note_step(loss, clock() - started)
        if usual is not None:
            tqdm.write(f"step {state.iteration:6,}   a spike: the training loss is {loss:.3f}, "
                       f"where {usual:.3f} is usual; gradient norm {norm:.3g} before clipping")

    def evaluate(self, x: np.ndarray, y: np.ndarray) -> float:
        """Return the loss over windows of the validation split, (N, T) each; end the run if it is
        not finite."""
        batch_size = self.settings.batch_size
        loss = evaluate(self.model, x, y, batch_size)
        if not math.isfinite(loss):
            case = Case.of_validation(self.state.iteration, self.model, x, y, batch_size)
            self._stop_or_skip(case, self.state.generators())
        return loss

    def _stop_or_skip(self, case, generators):
        """Report the origin of a nan or inf, once, and store it in nan.npz; then let the step be
        skipped, or end the run."""
        skips = self.settings.on_nan == "skip" and case.part == "training"
        gives_up = skips and self.state.skipped_in_row + 1 == SKIPS_IN_A_ROW
        first = not self.state.skipped
        if skips and not first and not gives_up:
            return
        now = self.state.generators()
        self.state.restore(generators)
        _, finding = case.again(self.model, self.state.dropout)
        tqdm.write(f"\n{case}\n{finding or '   taken again, all of it is finite'}\n", sys.stderr)
        if first or not skips:
            self.save(NAN, {"nan": case.saved()}, optimizer=self.optimizer)
        self.state.restore(now)
        remedy = advice(finding, dataclasses.asdict(self.settings))
        if gives_up or not skips:
            raise ValueError(self._stopped(case, remedy, gives_up))
        tqdm.write(f"step {case.step:,} is skipped, and those like it will be: weights and "
                   f"optimiser stay as they were.  {remedy}.  To see this again:\n"
                   f"    {self.replay_command()}\n", sys.stderr)

    def _stopped(self, case, remedy, gives_up):
        """Return why a run ends that met a nan or inf, what is kept, and what to do."""
        why = (f"{SKIPS_IN_A_ROW} steps in a row were to be skipped; {case}" if gives_up
               else str(case))
        kept = "nothing had been saved yet"
        with contextlib.suppress(CheckpointError):
            step = load_last(self.out_dir)[0].training["state"]["iteration"]
            kept = (f"the best model so far is in {self.out_dir / BEST}, and "
                    f"{resume_command(self.out_dir)} goes on after step {step:,}, with other "
                    "settings if you give them")
        return (f"{why}, so the run ends; the op that made it is named above, and again by "
                f"{self.replay_command()}.  {remedy}; {kept}")

    def replay_command(self) -> str:
        """Return the command that shows again what was not finite."""
        return f"python train.py --replay {shlex.quote(str(self.out_dir / NAN))}"

    def open_log(self, resumed: bool) -> Log:
        """Return log.csv, with its lines up to the point from which the run continues."""
        return Log(self.out_dir / LOG, self.state.evaluated if resumed else None,
                   skips=self.settings.on_nan == "skip" or self.state.skipped > 0)

    def save(self, name: str, also: dict | None = None, **more) -> None:
        """Write a checkpoint into the folder; `also` and `more` go to save_checkpoint."""
        s = self.settings
        kept = dataclasses.asdict(s) | {"init_from": "scratch", "profile": 0}
        if s.data not in data.KNOWN_TEXTS:
            kept["data"] = os.path.abspath(os.path.expanduser(s.data))
        training = dict(settings=kept, text=self.text, state=self.state.saved()) | (also or {})
        save_checkpoint(self.out_dir / name, self.model, self.tokenizer, training, **more)

    def save_last(self) -> bool:
        """Write last.npz, from which the run can be resumed, and keep the one before it.  Write
        neither if the last step was skipped or made a weight nan or inf.  Return whether it was
        written."""
        if self.state.skipped_in_row or not all(np.isfinite(p.data).all()
                                                for p in self.model.parameters()):
            return False
        self.save(LAST, optimizer=self.optimizer, before=self.out_dir / PREVIOUS)
        self.kept = self.state.iteration
        return True

    def know_best(self, resumed: Checkpoint) -> None:
        """Make sure that the best model of a resumed run is there.

        It may be of a later step than the one from which the run continues, if that was not saved.
        """
        path, what = self.out_dir / BEST, "not there"
        try:
            best = load_checkpoint(path)
            if _origin(best) == _origin(resumed):
                self.state.best = min(self.state.best, best.training["state"]["best"])
                return
            what = "of another run"
        except (CheckpointError, KeyError):
            if path.exists():
                what = "damaged"
        print(f"warning     {path} is {what}; until the next evaluation the model that is gone on "
              "from takes its place")
        self.state.best = math.inf
        self.save(BEST)


def _origin(checkpoint):
    """Return what all checkpoints of a run have in common."""
    training = checkpoint.training
    return (training["text"], training["settings"].get("seed"), checkpoint.tokenizer.vocabulary,
            checkpoint.model.config)


def clock() -> float:
    """Return the seconds of a clock that stops while kernels are compiled."""
    return time.perf_counter() - compiling.seconds


def optimizer_of(model: Transformer, s: Settings) -> mg.Optimizers | mg.AdamW:
    """Return the optimiser of a model's parameters that the settings ask for."""
    matrices = packed_and_other_matrices(model) if s.optimizer == "muon" else []
    adamw = mg.AdamW(decayed_and_other(model, matrices), s.learning_rate, (s.beta1, s.beta2),
                     weight_decay=s.weight_decay)
    if not matrices:
        return adamw
    # Three Newton-Schulz steps train as well as the published five, and take less time.
    return mg.Optimizers([adamw, mg.Muon(matrices, s.muon_lr, weight_decay=s.weight_decay,
                                         ns_steps=3)])


def earlier_run(out_dir: pathlib.Path, held: contextlib.ExitStack, explain: bool) -> Checkpoint:
    """Return the checkpoint to resume from.  The folder stays claimed, except to explain a step."""
    last = out_dir / LAST
    if out_dir.is_dir() and not explain:
        held.enter_context(claimed(out_dir))
    resumed, warning = load_last(out_dir)
    if (not resumed.optimizer or not {"settings", "text"} <= resumed.training.keys()
            or "iteration" not in resumed.training.get("state", {})):
        raise ValueError(f"{last} holds a model, but no run to go on with; train.py writes a "
                         "last.npz that does")
    if warning:
        print(f"warning     {warning}, at step {resumed.training['state']['iteration']:,}")
        if last.exists() and not explain:       # else the next save would keep it as previous.npz
            os.replace(last, out_dir / DAMAGED)
    return resumed


def keep_earlier_run(out_dir: pathlib.Path) -> None:
    """Move the files of an earlier run to a folder of their own instead of overwriting them.  That
    folder lies within this one, which may be the only writable one."""
    files = [out_dir / name for name in (LAST, PREVIOUS, DAMAGED, BEST, LOG, NAN)]
    files = [file for file in files if file.exists()]
    if files:
        kept = next(folder for n in itertools.count(1)
                    if not (folder := out_dir / f"earlier.{n}").exists())
        kept.mkdir()
        for file in files:
            os.replace(file, kept / file.name)
        print(f"{out_dir} held an earlier run, which is now in {kept}\n")


def resume_command(out_dir: pathlib.Path) -> str:
    """Return the command that resumes the run."""
    return f"python train.py --init_from resume --out_dir {shlex.quote(str(out_dir))}"
