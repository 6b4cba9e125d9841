"""The optimisers of a run, and which parameters each of them gets.

All that changes during a run but weights and optimiser: counts, losses, random generators.

The file log.csv of a run, with a line for each evaluation.

What is kept of a training step, or of an evaluation, whose loss or gradient is not finite.

`model.replay` reads it, and finds the op that made it so.

The folder of a run: what is in it, what is in the way, and how to go on from it.

A run: its steps, its schedule, its evaluations, and what it saves of them.
"""
import contextlib
import csv
import dataclasses
import functools
import io
import itertools
import math
import os
import pathlib
import shlex
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

import data
import minigrad as mg
from minigrad import compiled
from minigrad.core import timed
from minigrad.machine import memory_limit
from minigrad.optim import Optimizer, warmup_cosine, warmup_linear
from minigrad.random import generator
from model.checkpoint import (BEST, DAMAGED, LAST, PREVIOUS, Checkpoint, CheckpointError,
                              contents_of, load_checkpoint, load_last, read_by_first,
                              restore_optimizer, save_checkpoint)
from model.command import scaled
from model.files import claimed, replacing
from model.processes import Ranks
from model.scoring import evaluate
from model.settings import Settings
from model.transformer import Transformer, TransformerConfig, parameter_shapes


def optimizer_of(model: Transformer, s: Settings, ranks: Ranks = Ranks()
                 ) -> mg.Optimizers | mg.AdamW:
    """Return the optimiser of a model's parameters that the settings ask for.  Several ranks share
    out Muon's matrices."""
    matrices = packed_and_other_matrices(model) if s.optimizer == "muon" else []
    adamw = mg.AdamW(decayed_and_other(model, matrices), s.learning_rate, (s.beta1, s.beta2),
                     weight_decay=s.weight_decay)
    if not matrices:
        return adamw
    # Three Newton-Schulz steps train as well as the published five, and take less time.
    return mg.Optimizers([adamw, ranks.muon(matrices, s.muon_lr, weight_decay=s.weight_decay,
                                            ns_steps=3)])


def decayed_and_other(model: Transformer, without: list[dict] = ()) -> list[dict]:
    """Return AdamW's parameters, without those of another optimiser, in two groups: matrices, which
    get weight decay, and norms and biases, which do not."""
    elsewhere = {id(p) for group in without for p in group["params"]}
    parameters = [p for p in model.parameters() if id(p) not in elsewhere]
    return [{"params": [p for p in parameters if p.ndim >= 2]},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}]


def packed_and_other_matrices(model: Transformer) -> list[dict]:
    """Return Muon's parameters, the matrices of the blocks: those that pack queries, keys and
    values, which Muon takes one by one, and the others."""
    one = model.blocks[0].attention
    n_q, n_k = one.heads * one.d_key, one.kv_heads * one.d_key
    packed = [block.attention.qkv.weight for block in model.blocks]
    other = [p for block in model.blocks for p in block.parameters()
             if p.ndim == 2 and p is not block.attention.qkv.weight]
    return [{"params": packed, "sections": (n_q, n_k, len(packed[0].data) - n_q - n_k)},
            {"params": other}]


RECENT = 100        # steps whose losses define the usual one
QUIET = 20          # a spike is reported only after this many steps without one
DEVIATIONS = 8.0    # a spike lies this many above the median of the usual losses
AT_LEAST = 0.3      # and above it by this share of the median
EXACT = 1 << 53     # integers below it are exact in float64


class State:
    """Everything that changes during a run, except weights and optimiser."""

    def __init__(self, seed: int) -> None:
        self.batches, self.dropout = generator(seed, "batches"), generator(seed, "dropout")
        self.iteration = 0          # optimiser steps done
        self.evaluated = -1         # the iteration of the last evaluation
        self.best = math.inf        # lowest validation loss, nats per character
        self.seconds = 0.0          # spent in steps
        self.evaluated_at = 0.0     # self.seconds at the last evaluation
        self.losses = []            # of the steps since then
        self.recent = []            # losses of the last steps, RECENT at most
        self.spiked = -QUIET        # the iteration of the last spike
        self.skipped = 0            # steps not taken, because their gradient was not finite
        self.skipped_in_row = 0     # the last steps that were skipped without a break

    def note_step(self, loss: float, seconds: float) -> None:
        """Count a step, with its training loss and its time."""
        self.iteration += 1
        self.losses.append(loss)
        self.recent = [*self.recent[1 - RECENT:], loss]
        self.seconds += seconds
        self.skipped_in_row = 0

    def note_skip(self, seconds: float) -> None:
        """Count a step that changed nothing."""
        self.iteration += 1
        self.seconds += seconds
        self.skipped += 1
        self.skipped_in_row += 1

    def spike(self, loss: float) -> float | None:
        """Return the usual loss if the next step's is far above it, without a recent spike; else
        None.

        Far above is DEVIATIONS standard deviations over the median of the RECENT losses, estimated
        from their median absolute deviation, and at least AT_LEAST of the median.  Nothing is
        reported before half of the RECENT losses are in.
        """
        if len(self.recent) < RECENT // 2:
            return None
        usual = statistics.median(self.recent)
        deviation = 1.4826 * statistics.median(abs(x - usual) for x in self.recent)     # normal's
        if loss <= usual + max(DEVIATIONS * deviation, AT_LEAST * usual):
            return None
        before, self.spiked = self.spiked, self.iteration
        return usual if self.iteration - before >= QUIET else None

    def note_evaluation(self, val_loss: float) -> bool:
        """Count an evaluation; return whether it is the best so far."""
        self.evaluated, self.evaluated_at, self.losses = self.iteration, self.seconds, []
        improved = val_loss < self.best
        self.best = min(self.best, val_loss)
        return improved

    def since_evaluation(self, tokens: int) -> tuple[float | None, float]:
        """Return the mean training loss (None before any step) and characters per second since the
        last evaluation, for steps of `tokens` characters."""
        if not self.losses:
            return None, 0.0
        mean = sum(self.losses) / len(self.losses)
        seconds = self.seconds - self.evaluated_at
        return mean, len(self.losses) * tokens / seconds if seconds else 0.0

    def saved(self) -> dict:
        """Return the state exactly, as JSON can hold it."""
        return vars(self) | {name: getattr(self, name).bit_generator.state
                             for name in ("batches", "dropout")}

    def restore(self, saved: dict) -> None:
        """Restore what `saved` returned.

        Raises
        ------
        ValueError : the data is not of that form.
        """
        for name, value in saved.items():
            try:
                if name in ("batches", "dropout"):
                    getattr(self, name).bit_generator.state = value
                elif _is_like(vars(self)[name], value):
                    setattr(self, name, value)
                else:
                    raise ValueError
            except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
                raise ValueError(f"no run can go on from {name[:20]!r} in the state that was kept; "
                                 "train anew into another --out_dir") from error
        if not 0 <= self.skipped <= self.iteration:
            raise ValueError(f"no run can go on after {self.iteration} steps, {self.skipped} of "
                             "them skipped; train anew into another --out_dir")


def _is_like(now, value):
    """Whether a value from JSON has the type of `now`, a number or a list of numbers."""
    if isinstance(now, list):
        return isinstance(value, list) and all(_is_like(0.0, x) for x in value)
    if type(value) is int:
        return abs(value) < EXACT
    return type(value) is type(now) is float and not math.isnan(value)


class Log:
    """The file log.csv, with a line for each evaluation.  A run resumed after the evaluation at
    `start` drops later lines; a new run (None) starts an empty log.  A run that may skip steps has
    one more column: how many it has skipped so far."""
    COLUMNS = ("iter", "train_loss", "val_loss", "lr", "tokens_per_s", "seconds")
    SKIPPED = "skipped"

    def __init__(self, path: pathlib.Path, start: int | None, skips: bool = False) -> None:
        self.path, self.skips = path, skips
        self.columns = [*self.COLUMNS, *[self.SKIPPED] * skips]
        self.rows = [] if start is None else self._rows_until(start)
        self._write()

    def write(self, iteration: int, train_loss: float | None, val_loss: float, lr: float,
              tokens_per_s: float, seconds: float, skipped: int = 0) -> None:
        """Add a line; losses in nats per character."""
        self.rows.append([str(iteration), "" if train_loss is None else f"{train_loss:.6f}",
                          f"{val_loss:.6f}", f"{lr:.6g}", f"{tokens_per_s:.0f}", f"{seconds:.2f}",
                          *[str(skipped)] * self.skips])
        self._write()

    def _write(self):
        # Rewrite the whole file: a line added in place could be cut in the middle.
        with replacing(self.path) as file:
            text = io.TextIOWrapper(file, encoding="utf-8", newline="")
            csv.writer(text).writerows([self.columns, *self.rows])
            text.detach()

    def _rows_until(self, start):
        """Return the lines of an earlier log up to an iteration; report any that cannot be read."""
        header, rows, what = [], [], "not there"
        with contextlib.suppress(FileNotFoundError):
            lines = self.path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
            header, *rows = [line.rstrip("\r").split(",") for line in lines] or [[]]
            what = "damaged"
        whole = [row for row in rows if _is_row(row, len(header))]
        kept = [row for row in whole if int(row[0]) <= start]
        if len(whole) < len(rows) or not kept or int(kept[-1][0]) != start:
            print(f"warning: {self.path} is {what}; of its lines {len(kept)} could be kept, and "
                  "the run goes on without the others", file=sys.stderr)
        return [(row + ["0"] * self.skips)[:len(self.columns)] for row in kept]


def _is_row(cells, columns):
    """Whether these are the cells of a line of a log with `columns` columns."""
    try:
        for i, cell in enumerate(cells):
            float(cell or "0" if i == 1 else cell)      # there is no training loss before any step
    except ValueError:
        return False
    return (len(cells) == columns >= len(Log.COLUMNS) and cells[0].isdecimal()
            and int(cells[0][:20]) < EXACT)


def read_log(path: pathlib.Path) -> list[list[float | None]]:
    """Return the lines of a log.csv: numbers in the order of `Log.COLUMNS` and, in some logs, the
    number of steps skipped.  The training loss is None where no step had one.

    Raises
    ------
    ValueError : there is no such file, or it is damaged.
    """
    try:
        with open(path, newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        if tuple(header) not in (Log.COLUMNS, (*Log.COLUMNS, Log.SKIPPED)):
            raise ValueError
        lines = [[None if i == 1 and x == "" else float(x) for i, x in enumerate(row)]
                 for row in rows]
        if not all(len(line) == len(header) and math.isfinite(sum(x or 0 for x in line))
                   for line in lines):
            raise ValueError
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{path} is damaged, or no log of this program") from error
    return lines


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
    def of_validation(cls, step: int, model: Transformer, x: np.ndarray, y: np.ndarray,
                      batch_size: int) -> "Case":
        """Return the first batch of an evaluation whose loss is not finite."""
        for at in range(0, len(x), batch_size):
            ids, targets = x[at:at + batch_size], y[at:at + batch_size]
            if not math.isfinite(loss := evaluate(model, ids, targets, len(ids))):
                break
        return cls("validation", step, loss, math.nan, [(ids, targets)])

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


LOG, NAN = "log.csv", "nan.npz"


class Folder:
    """A folder into which one run at a time writes.  Leaving the context releases it.  Of several
    ranks, the first reads and claims it for all."""

    def __init__(self, path: str | os.PathLike, ranks: Ranks = Ranks()) -> None:
        self.path, self.ranks = pathlib.Path(os.path.expanduser(path)), ranks
        self._held = contextlib.ExitStack()

    def __enter__(self) -> "Folder":
        return self

    def __exit__(self, *error) -> None:
        self._held.close()

    def __truediv__(self, name: str) -> pathlib.Path:
        return self.path / name

    def __str__(self) -> str:
        return str(self.path)

    def begin(self) -> pathlib.Path | None:
        """Make the folder, claim it, and move an earlier run's files to a folder of their own
        within it: it may be the only one that is writable.  Return that folder, if there is one."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._held.enter_context(claimed(self.path))
        files = [self / name for name in (LAST, PREVIOUS, DAMAGED, BEST, LOG, NAN)]
        files = [file for file in files if file.exists()]
        if not files:
            return None
        kept = next(folder for n in itertools.count(1)
                    if not (folder := self / f"earlier.{n}").exists())
        kept.mkdir()
        for file in files:
            os.replace(file, kept / file.name)
        print(f"{self} held an earlier run, which is now in {kept}\n")
        return kept

    def resume(self, only_look: bool) -> Checkpoint:
        """Return the checkpoint to resume from.  Claim the folder, unless the run only looks."""
        return read_by_first(self.ranks, lambda: self._resume(only_look))

    def _resume(self, only_look):
        if self.path.is_dir() and not only_look:
            self._held.enter_context(claimed(self.path))
        resumed, warning = load_last(self.path)
        if (not resumed.optimizer or not {"settings", "text"} <= resumed.training.keys()
                or "iteration" not in resumed.training.get("state", {})):
            raise ValueError(f"{self / LAST} holds a model, but no run to go on with; train.py "
                             "writes a last.npz that does")
        if warning:
            print(f"warning     {warning}, at step {resumed.training['state']['iteration']:,}")
            if self.holds_run() and not only_look:      # or it would become previous.npz
                os.replace(self / LAST, self / DAMAGED)
        return resumed

    def best(self) -> Checkpoint:
        """Return the run's best model."""
        return read_by_first(self.ranks, lambda: load_checkpoint(self / BEST))

    def holds_run(self) -> bool:
        """Whether there is a checkpoint to resume from."""
        return os.path.exists(self / LAST)

    def kept_step(self) -> int | None:
        """Return the step after which a run can be resumed, if there is one."""
        with contextlib.suppress(CheckpointError):
            return load_last(self.path)[0].training["state"]["iteration"]

    def best_of(self, run: Checkpoint) -> float:
        """Return the lowest validation loss of the run's best model.

        It may be of a later step than the one from which the run continues, if that was not saved.

        Raises
        ------
        CheckpointError : the best model is damaged, or of another run, or not there.
        """
        path = self / BEST
        try:
            best = load_checkpoint(path)
            if _origin(best) == _origin(run):
                return best.training["state"]["best"]
            what = "of another run"
        except (CheckpointError, KeyError):
            what = "damaged" if path.exists() else "not there"
        raise CheckpointError(f"{path} is {what}")

    def resume_command(self, texts: Sequence[str] = ()) -> str:
        """Return the command that resumes the run.  A text that was piped in is to be given in a
        file."""
        piped = any(os.path.abspath(text).startswith(("/dev/", "/proc/")) for text in texts)
        return (f"python train.py --init_from resume --out_dir {shlex.quote(str(self))}"
                + " --data FILE" * piped)

    def replay_command(self) -> str:
        """Return the command that shows again what was not finite."""
        return f"python train.py --replay {shlex.quote(str(self / NAN))}"


def _origin(checkpoint):
    """Return what all checkpoints of a run have in common."""
    training = checkpoint.training
    return (training["text"], training["settings"].get("seed"), checkpoint.tokenizer.vocabulary,
            checkpoint.model.config)


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
        contents_of(self.model, self.text.tokenizer, self.record(), self.optimizer)
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


def training_bytes(config: TransformerConfig, optimizer: str, batch_size: int) -> int:
    """Return the bytes of all arrays at the peak of a training step in float32, to about a tenth.

    For each parameter: itself, its gradient, and the optimiser's state, which is one number for a
    matrix of a block that Muon steps, else two.  For each token: in a block, 6 C, its keys and
    values, and the MLP's hidden channels; outside the blocks, 4 C and three times the V logits.
    """
    parameters = 0
    for name, shape in parameter_shapes(dataclasses.replace(config, n_layer=1)):
        in_block = name.startswith("blocks.")
        by_muon = optimizer == "muon" and in_block and len(shape) == 2
        parameters += math.prod(shape) * (3 if by_muon else 4) * (config.n_layer if in_block else 1)
    C, gated = config.n_embd, config.activation == "swiglu"
    of_block = 6 * C + 2 * config.kv_heads * config.d_head + config.inner * (1 + gated)
    of_token = config.n_layer * of_block + 4 * C + 3 * config.vocab_size
    return 4 * (parameters + batch_size * config.block_size * of_token)


def check_memory(s: Settings, vocab_size: int) -> None:
    """Compare what a training step needs with the memory of this machine, before any is taken.

    Raises
    ------
    ValueError : the step needs more.
    """
    config, limit = s.model_config(vocab_size), memory_limit()
    ids = 16 * (s.characters - s.batch_size * s.block_size)     # of accumulated batches
    for batch_size, more, remedy in (
            (0, 0, "a smaller model: fewer --n_layer, --n_embd or --n_inner"),
            (s.batch_size, ids, f"less than --batch_size {s.batch_size}, --block_size "
             f"{s.block_size} or --gradient_accumulation_steps {s.gradient_accumulation_steps}")):
        needed = training_bytes(config, s.optimizer, batch_size) + more
        if needed > limit:
            raise ValueError(f"a training step needs {scaled(needed, 'B')} of memory, and this "
                             f"machine has {scaled(limit, 'B')}; take {remedy}")
