"""A run: its steps, its schedule, its evaluations, and what it saves of them."""
import contextlib
import dataclasses
import functools
import math
import os
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from tqdm import tqdm

import data
import minigrad as mg
from minigrad import compiled
from minigrad.core import timed
from minigrad.optim import Optimizer, warmup_cosine, warmup_linear
from model.processes import Ranks
from model.sampling.scoring import evaluate
from model.storage.checkpoint import (BEST, LAST, PREVIOUS, Checkpoint, CheckpointError, check,
                                      contents_of, restore_optimizer, save_checkpoint)
from model.training.folder import LOG, NAN, Folder
from model.training.log import Log
from model.training.nan import Case
from model.training.settings import Settings
from model.training.state import State
from model.transformer import Transformer

WARM_UP = 5             # steps before a profile begins
SKIPS_IN_A_ROW = 20     # after this many the run ends


@dataclasses.dataclass
class Step:
    """A step of the optimiser."""
    number: int                         # from 1
    before: dict[str, Any]              # the run's state before it, to go back if it is not taken
    # ids and targets, (B, T) each
    batches: list[tuple[np.ndarray, np.ndarray]] = dataclasses.field(default_factory=list)
    loss: float = 0.0                   # nats per character
    norm: float = math.nan              # of the gradient, before clipping
    taken: bool = False                 # or it has changed neither weights nor optimiser
    usual: float | None = None          # loss, where this one is far above it
    seconds: float = 0.0

    def is_finite(self) -> bool:
        """Whether its loss and its gradient are neither nan nor inf, so that it can be taken."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)


class Run:
    """A model in training, with its text, its optimiser and its state, new or resumed."""

    def __init__(self, settings: Settings, text: data.Text, model: Transformer,
                 optimizer: Optimizer, folder: Folder | None = None,
                 resumed: Checkpoint | None = None, ranks: Ranks = Ranks()) -> None:
        self.settings, self.text, self.model, self.optimizer = settings, text, model, optimizer
        self.highest = [group["lr"] for group in optimizer.param_groups]
        self.state, self.folder, self.ranks = State(settings.seed), folder, ranks
        self.resumed, self.log = resumed, None      # `begin` opens the log, on the first rank
        self.profile = mg.Profile()
        self.kept = None        # the iteration in last.npz
        self.saved = time.monotonic()
        if resumed:
            self.state.restore(resumed.training["state"])
            restore_optimizer(optimizer, model, resumed.optimizer,
                              self.state.iteration - self.state.skipped)
            self.kept = self.state.iteration
        self.first = self.state.iteration

    @property
    def progress(self) -> float:
        """The share of the run that is done, by its steps or by the clock; it ends at 1."""
        s, state = self.settings, self.state
        by_clock = 0.0 if s.minutes is None else state.seconds / (60 * s.minutes)
        return max(by_clock, state.iteration / s.steps if s.steps else 1.0)

    def is_over(self) -> bool:
        """Whether the last step is done.  A step that is only explained may come after it."""
        return self.progress >= 1 and not self.settings.explain

    @contextlib.contextmanager
    def measure(self, step: Step) -> Iterator[None]:
        """Time a step, and its ops if a profile is asked for."""
        profiled = WARM_UP < step.number - self.first <= WARM_UP + self.settings.profile
        started = clock()
        with self.profile if profiled else contextlib.nullcontext():
            yield
        step.seconds = self.ranks.firsts(clock() - started)     # one clock ends the run for all

    def count(self, step: Step) -> None:
        """Count a step that is done.  One that was not taken is skipped or ends the run, as
        --on_nan says.

        Raises
        ------
        ValueError : the run ends.
        """
        if step.taken:
            step.usual = self.state.spike(step.loss)
            self.state.note_step(step.loss, step.seconds)
        else:
            self.state.note_skip(step.seconds)
            self._skip_or_end(step)

    @timed("batches")
    def batches(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Draw the batches of a step: ids and targets, (B, T) each."""
        s = self.settings
        return [data.random_batch(self.text.train, s.batch_size, s.block_size, self.state.batches)
                for _ in range(s.gradient_accumulation_steps)]

    def set_learning_rates(self) -> None:
        """Give each group of parameters the learning rate of the next step."""
        for group, highest in zip(self.optimizer.param_groups, self.highest):
            group["lr"] = self.rate_below(highest)

    @property
    def learning_rate(self) -> float:
        """AdamW's learning rate for the next step."""
        return self.rate_below(self.settings.learning_rate)

    def rate_below(self, highest: float) -> float:
        """Return the next step's learning rate for parameters whose highest rate is `highest`.  All
        rates fall in proportion to --learning_rate."""
        s = self.settings
        lowest = s.learning_rate / 10 if s.min_lr is None else s.min_lr
        if highest != s.learning_rate:
            lowest = highest * lowest / s.learning_rate if s.learning_rate else highest / 10
        at, warmup, end = self._place_in_schedule()
        if s.schedule == "linear":
            return warmup_linear(at, highest, lowest, warmup, end, s.decay_share)
        return warmup_cosine(at, highest, lowest, warmup, end)

    def _place_in_schedule(self):
        """Return (position of the next step, end of the warm-up, end of the decay), in steps; or,
        after the warm-up, in seconds of training, if by the clock more of the run is done."""
        s, state = self.settings, self.state
        steps = s.steps if s.lr_decay_iters is None else s.lr_decay_iters
        if (s.minutes is not None and state.iteration >= s.warmup_iters
                and state.seconds / (60 * s.minutes) > state.iteration / max(steps, 1)):
            return state.seconds, 0, 60 * s.minutes
        return state.iteration, s.warmup_iters, steps

    def is_time_to_evaluate(self) -> bool:
        """Whether an evaluation is due that has not been done."""
        state = self.state
        return state.iteration != state.evaluated and (
            state.iteration % self.settings.eval_interval == 0 or self.is_over())

    def is_time_to_save(self, step: Step) -> bool:
        """Whether to save now: after one more step, which may take twice as long as this one, more
        than --checkpoint_interval seconds would have passed since the last time."""
        waited = time.monotonic() - self.saved + 2 * step.seconds
        return 0 < self.settings.checkpoint_interval < waited

    @functools.cached_property
    def windows(self) -> tuple[np.ndarray, np.ndarray]:
        """The windows of the validation part that --eval_iters chooses, (N, T) each."""
        s = self.settings
        return self.text.windows(s.block_size, s.eval_iters * s.batch_size)

    def evaluate(self) -> float:
        """Return the loss over the chosen windows of the validation part."""
        return evaluate(self.model, *self.windows, self.settings.batch_size, self.ranks)

    def evaluate_and_save(self) -> tuple[float | None, float]:
        """Evaluate; write the log and the checkpoints.  Return the mean training loss since the
        evaluation before, and the validation loss.

        Raises
        ------
        ValueError : the loss is not finite, and the run ends.
        """
        s, state, val_loss = self.settings, self.state, self.evaluate()
        if not math.isfinite(val_loss):
            case = Case.of_validation(state.iteration, self.model, *self.windows, s.batch_size)
            self._end(str(case), self._find_op(case, state.saved(), keep=True))
        train_loss, tokens_per_s = state.since_evaluation(s.characters)
        improved = state.note_evaluation(val_loss)
        if self.ranks.first:
            self.log.write(state.iteration, train_loss, val_loss, self.learning_rate, tokens_per_s,
                           state.seconds, state.skipped)
        # If the process dies before the last of these writes, the resumed run repeats all three.
        if improved or s.always_save_checkpoint:
            self.save(BEST)
        self.save_last()
        return train_loss, val_loss

    def _skip_or_end(self, step):
        on_nan, state = self.settings.on_nan, self.state
        case = Case("training", step.number, step.loss, step.norm, step.batches)
        if self.settings.explain:
            raise ValueError(f"{case}, so the step is not taken; without --explain, train.py names "
                             "the op that made it so")
        first, gives_up = state.skipped == 1, state.skipped_in_row == SKIPS_IN_A_ROW
        if on_nan == "skip" and not first and not gives_up:
            return
        remedy = self._find_op(case, step.before, keep=first or on_nan == "stop")
        if on_nan == "stop":
            self._end(str(case), remedy)
        if gives_up:
            self._end(f"{SKIPS_IN_A_ROW} steps in a row were to be skipped; {case}", remedy,
                      "that of the first skipped step")
        tqdm.write(f"step {step.number:,} is skipped, and those like it will be: weights and "
                   f"optimiser stay as they were.  {remedy}.  To see this again:\n"
                   f"    {self.folder.replay_command()}\n", sys.stderr)

    def _find_op(self, case, before, keep):
        """Name the op that made a case, and write the case to nan.npz if it is to be kept; return
        what to do about it.  `before` is the state before it."""
        from model.replay.nan import find_op
        remedy = find_op(case, self.model, before, dataclasses.asdict(self.settings))
        if keep:
            self.save(NAN, {"nan": case.saved(), "state": before}, optimizer=self.optimizer,
                      finite=False)
        return remedy

    def _end(self, why, remedy, shown="again"):
        kept, folder = "nothing had been saved yet", self.folder
        if (step := folder.kept_step()) is not None:
            kept = (f"the best model so far is in {folder / BEST}, and {folder.resume_command()} "
                    f"goes on after step {step:,}, with other settings if you give them")
        raise ValueError(f"{why}, so the run ends; the op that made it is named above, and {shown} "
                         f"by {folder.replay_command()}.  {remedy}; {kept}")

    def begin(self) -> None:
        """Make the folder ready: for a new run, or to go on in.  Only the first rank writes.

        Raises
        ------
        CheckpointError : what the run would save could not be loaded again.
        """
        if not self.ranks.first:
            return
        check(contents_of(self.model, self.text.tokenizer, self.record(), self.optimizer))
        skips = self.settings.on_nan == "skip" or self.state.skipped > 0
        if self.resumed is None:
            earlier, began = self.folder.begin(), pathlib.Path(self.settings.init_from)
            if earlier and not began.exists() and (moved := earlier / began.name).exists():
                self.settings = dataclasses.replace(self.settings, init_from=str(moved.absolute()))
            self.log = Log(self.folder / LOG, None, skips)
            return
        try:
            self.state.best = min(self.state.best, self.folder.best_of(self.resumed))
        except CheckpointError as error:
            print(f"warning     {error}; until the next evaluation the model that is gone on from "
                  "takes its place")
            self.state.best = math.inf
            self.save(BEST)
        self.log = Log(self.folder / LOG, self.state.evaluated, skips)

    def save(self, name: str, also: dict | None = None, **more) -> None:
        """Write a checkpoint into the folder, if this is the first rank; `also` is added to its
        record, and `more` goes to save_checkpoint."""
        if self.ranks.first:
            save_checkpoint(self.folder / name, self.model, self.text.tokenizer,
                            self.record() | (also or {}), **more)

    def record(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of the run, beside model and optimiser."""
        s = self.settings
        kept = dataclasses.asdict(s) | {"profile": 0}
        texts = [name if name in data.KNOWN_TEXTS else os.path.abspath(name) for name in s.data]
        kept["data"] = texts if len(texts) > 1 else texts[0]
        return dict(settings=kept, text=self.text.digest, state=self.state.saved())

    def save_last(self) -> None:
        """Write last.npz, from which the run can be resumed, and keep the one before it.  Write
        neither if the last step was skipped, or made a weight or the optimiser's state nan or
        inf."""
        arrays = [p.data for p in self.model.parameters()]
        arrays += [a for *_, a in self.optimizer.state()]
        if self.state.skipped_in_row or not all(np.isfinite(a).all() for a in arrays):
            return
        self.save(LAST, optimizer=self.optimizer, before=self.folder / PREVIOUS)
        self.kept, self.saved = self.state.iteration, time.monotonic()


def clock() -> float:
    """Return the seconds of a clock that stops while kernels are compiled."""
    return time.perf_counter() - compiled.seconds_compiling()
