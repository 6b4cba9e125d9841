"""A training run: its optimisers, its state, its learning-rate schedule, evaluations and
checkpoints.  The loop itself is `steps` in train.py."""
import contextlib
import dataclasses
import functools
import math
import os
import pathlib
import sys
import time
from collections.abc import Iterator

import numpy as np
from tqdm import tqdm

import data
import minigrad as mg
from minigrad import compiled
from minigrad.core import timed
from minigrad.optim import Optimizer, cosine, linear_decay, warm_up
from minigrad.random import generator
from model.answers import announced_if_slow
from model.checkpoint import (BEST, LAST, PREVIOUS, Checkpoint, CheckpointError, Record,
                              checked_arrays, is_there, load_checkpoint, restore_optimizer,
                              save_checkpoint)
from model.folder import LOG, Folder, Log
from model.processes import Ranks
from model.scoring import evaluate
from model.settings import Settings
from model.start import launcher_rank
from model.transformer import Transformer

RECENT = 101            # losses that are remembered: the last one and 100 before it
WARM_UP = 5             # steps before a profile begins
SKIPS_IN_A_ROW = 20     # skipped steps after which a run ends
USUAL_INTERVAL = 60.0   # seconds between checkpoints, if --checkpoint_interval is not given
USUAL_MIN_LR = 0.1      # what the learning rate falls to, as a share of the highest


def make_optimizer(
        model: Transformer,
        s: Settings,
        ranks: Ranks = Ranks()) -> mg.Optimizers | mg.AdamW:
    """Return the optimiser that the settings ask for.  Ranks share out Muon's matrices."""
    matrices = muon_groups(model) if s.optimizer == "muon" else []
    adamw = mg.AdamW(
        adamw_groups(model, matrices, s.ngram_decay),
        lr=s.learning_rate,
        betas=(s.beta1, s.beta2),
        weight_decay=s.weight_decay)
    if not matrices:
        return adamw
    # Three Newton-Schulz steps train as well as the published five, and take less time.
    muon = ranks.muon(
        matrices,
        s.muon_lr,
        weight_decay=s.weight_decay,
        ns_steps=3,
        equal_rows=s.equal_rows)
    return mg.Optimizers([adamw, muon])


def adamw_groups(
        model: Transformer,
        without: list[dict] = (),
        ngram_decay: float | None = None) -> list[dict]:
    """Return AdamW's parameter groups, without the parameters of other groups: matrices, which get
    weight decay; norms and biases, which do not; and the n-gram table, if its decay is another."""
    groups = []
    if model.config.ngrams > 1 and ngram_decay is not None and not model.config.kind:
        groups = [{"params": model.ngram_embedding.parameters(), "weight_decay": ngram_decay}]
    elsewhere = {id(p) for group in [*without, *groups] for p in group["params"]}
    others = [p for p in model.parameters() if id(p) not in elsewhere]
    return [{"params": [p for p in others if p.ndim >= 2]},
            {"params": [p for p in others if p.ndim < 2], "weight_decay": 0.0}, *groups]


def muon_groups(model: Transformer) -> list[dict]:
    """Return Muon's parameter groups, the matrices of the blocks: those that pack queries, keys and
    values, which Muon updates one by one, and the others."""
    config = model.config
    n_q = config.n_head * config.d_head
    n_k = config.kv_heads * config.d_head
    packed = [block.attention.qkv.weight for block in model.blocks]
    other = [p for block in model.blocks for p in block.parameters()
             if p.ndim == 2 and p is not block.attention.qkv.weight]
    return [{"params": packed, "sections": (n_q, n_k, n_k)}, {"params": other}]


@dataclasses.dataclass
class Step:
    """A step of the optimiser."""
    number: int                         # from 1
    before: Record                      # the state before the step, from which it can be repeated
    batches: list[data.Batch] = dataclasses.field(default_factory=list)
    loss: float = 0.0                   # nats per character
    norm: float = math.nan              # of the gradient, before clipping
    taken: bool = False                 # whether weights and optimiser have changed
    seconds: float = 0.0
    processor: float = 0.0              # seconds in which the main thread had a processor
    ahead: float = 0.0                  # what the first character after the next one counts

    def is_finite(self) -> bool:
        """Whether loss and gradient are finite, so that the step can be taken."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)


@dataclasses.dataclass
class Evaluation:
    """The loss over windows of the validation part."""
    number: int                         # of the step before it
    before: Record                      # the state then
    batches: list[data.Batch]           # all windows in one
    loss: float                         # nats per character

    def is_finite(self) -> bool:
        """Whether the loss is finite."""
        return math.isfinite(self.loss)


class State:
    """Everything that changes during a run, except weights and optimiser."""

    # What a checkpoint keeps of it, beside the generators
    NUMBERS = {"iteration": int, "read": int, "evaluated": int, "best": float, "seconds": float,
               "evaluated_at": float, "skipped": int, "skipped_in_row": int}
    LISTS = ("losses", "recent")

    def __init__(self, seed: int) -> None:
        self.batches = generator(seed, "batches")
        self.dropout = generator(seed, "dropout")
        self.iteration = 0          # optimiser steps done
        self.read = 0               # shuffled windows read
        self.evaluated = -1         # the iteration of the last evaluation
        self.best = math.inf        # lowest validation loss, nats per character
        self.seconds = 0.0          # spent in steps
        self.evaluated_at = 0.0     # self.seconds at the last evaluation
        self.losses = []            # of the steps since then
        self.recent = []            # losses of the last RECENT steps
        self.skipped = 0            # steps that were not taken
        self.skipped_in_row = 0     # those of them after the last one that was taken

    def note_step(
            self,
            loss: float,
            seconds: float,
            taken: bool = True) -> None:
        """Count a step, with its training loss and its time; one that was not taken is skipped."""
        self.iteration += 1
        self.seconds += seconds
        if taken:
            self.losses.append(loss)
            self.recent.append(loss)
            del self.recent[:-RECENT]
            self.skipped_in_row = 0
        else:
            self.skipped += 1
            self.skipped_in_row += 1

    def note_evaluation(self, val_loss: float) -> bool:
        """Count an evaluation; return whether it is the best so far."""
        self.evaluated = self.iteration
        self.evaluated_at = self.seconds
        self.losses = []
        improved = val_loss < self.best
        self.best = min(self.best, val_loss)
        return improved

    def since_evaluation(self, tokens: int) -> tuple[float | None, float]:
        """Return the mean training loss (None before any step) and characters per second since the
        last evaluation, for steps of `tokens` characters."""
        if not self.losses:
            return None, 0.0
        seconds = self.seconds - self.evaluated_at
        return (sum(self.losses) / len(self.losses),
                len(self.losses) * tokens / seconds if seconds else 0.0)

    def generators(self) -> dict[str, np.random.Generator]:
        """Return the generators by name."""
        return {"batches": self.batches, "dropout": self.dropout}

    def saved(self) -> Record:
        """Return the state exactly, as JSON can hold it."""
        lists = {name: [*getattr(self, name)] for name in self.LISTS}
        return self.before_step() | lists

    def before_step(self) -> Record:
        """Return the state but for the lists of losses, to which a step that is skipped adds
        nothing."""
        states = {name: rng.bit_generator.state for name, rng in self.generators().items()}
        return states | {name: getattr(self, name) for name in self.NUMBERS}

    def restore(self, saved: Record) -> None:
        """Restore what `saved` returned; names that it does not know are those of another version.

        Raises
        ------
        ValueError : the data is not of that form.
        """
        generators = self.generators()
        try:
            for name, value in saved.items():
                if name in generators:
                    generators[name].bit_generator.state = value
                elif name in self.NUMBERS:
                    setattr(self, name, self.NUMBERS[name](value))
                elif name in self.LISTS:
                    setattr(self, name, list(value))
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise ValueError(f"no run can be resumed from {name[:20]!r} in the saved state; train "
                             "anew into another --out_dir") from error


class Run:
    """A model in training, with its text, its optimiser and its state, new or resumed."""

    def __init__(
            self,
            settings: Settings,
            text: data.Text,
            model: Transformer,
            optimizer: Optimizer,
            folder: Folder | None = None,
            resumed: Checkpoint | None = None,
            ranks: Ranks = Ranks()) -> None:
        self.settings = settings
        self.text = text
        self.model = model
        self.optimizer = optimizer
        self.folder = folder
        self.resumed = resumed
        self.ranks = ranks
        self.state = State(settings.seed)
        self.log = None                     # the first rank's, from `begin` on
        self.profile = mg.Profile()
        self.highest = [group["lr"] for group in optimizer.param_groups]
        self.max_iters = settings.steps
        self.saved_at = time.monotonic()
        self.last_saved = None              # the iteration in last.npz
        if resumed:
            self.state.restore(resumed.training["state"])
            restore_optimizer(
                optimizer,
                model,
                state=resumed.optimizer,
                steps=self.state.iteration - self.state.skipped)
            self.last_saved = self.state.iteration
        self.first = self.state.iteration
        self.averager = ranks.averager(model.parameters(), settings.batch_size)
        self.dropout = self.averager.generator(self.state.dropout)

    def begin(self) -> None:
        """Make the folder ready: for a new run, or for a resumed one.  Only the first rank writes.

        Raises
        ------
        ValueError : what the run would save could not be loaded again, or the best model in the
            folder is that of another run.
        """
        if not self.ranks.first:
            return
        checked_arrays(
            self.model,
            self.text.tokenizer,
            self.record(),
            self.optimizer)
        if self.resumed:
            self._check_best()
        else:
            earlier = self.folder.begin()
            initial = pathlib.Path(self.settings.init_from)
            if earlier and not is_there(initial):       # it may be what was moved
                moved = (earlier / initial.name).absolute()
                if is_there(moved):
                    self.settings = dataclasses.replace(self.settings, init_from=str(moved))
        self.log = Log(self.folder / LOG, self.state.evaluated if self.resumed else None,
                       self.settings.on_nan == "skip" or self.state.skipped > 0)

    def _check_best(self):
        """Take the loss of ckpt.npz, which may be newer than last.npz, or write it anew.  Evaluate
        it if it was judged by other windows than this run evaluates."""
        path = self.folder / BEST
        try:
            best = load_checkpoint(path)
            training = best.training
            saved = training["settings"]
            loss = training["state"]["best"]
            theirs = best.model.config, training["text"], saved["seed"]
            ours = self.model.config, self.text.digest, self.settings.seed
            if theirs != ours:
                raise ValueError(f"{path} is the best model of another run; move it elsewhere, "
                                 "then resume")
            if self._count_windows(self.resumed.training["settings"]) != len(self.windows[0]):
                self.state.best = math.inf          # it is the loss on other windows
            if self._count_windows(saved) == len(self.windows[0]):
                self.state.best = min(self.state.best, loss)
            elif not self.is_complete():
                with announced_if_slow(f"judging {path} anew"):
                    loss = evaluate(best.model, *self.windows, self.settings.batch_size)
                self.state.best = loss if math.isfinite(loss) else math.inf
                print(f"best        {path} is judged anew, as this run evaluates other parts of "
                      f"the text: validation {loss:.3f}")
        except (CheckpointError, KeyError) as error:
            if isinstance(error.__cause__, OSError):    # it may be whole
                raise
            what = "damaged" if is_there(path) else "not there"
            print(f"warning     {path} is {what}; until the next evaluation the resumed model "
                  "stands in as the best one")
            self.state.best = math.inf
            self.save(BEST)

    def is_over(self) -> bool:
        """Whether the run is finished.  --explain may still show one more step."""
        s = self.settings
        state = self.state
        by_clock = s.minutes and state.seconds >= 60 * s.minutes
        return (by_clock or state.iteration >= self.max_iters) and not s.explain

    def is_complete(self) -> bool:
        """Whether no step is left, all is saved, and the last step is evaluated, or is the last one
        only because the run was resumed with another end."""
        state = self.state
        if not self.is_over() or self.last_saved != state.iteration:
            return False
        if state.iteration == state.evaluated:
            return True
        if not self.resumed or state.iteration > self.first:
            return False
        before = self.resumed.training["settings"]
        return any(before.get(name) != getattr(self.settings, name)
                   for name in ("minutes", "max_iters"))

    @contextlib.contextmanager
    def measure(self, step: Step) -> Iterator[None]:
        """Time a step, and its ops if a profile is asked for."""
        profiled = WARM_UP < step.number - self.first <= WARM_UP + self.settings.profile
        had = time.thread_time()
        started = compiled.clock()      # that of the first rank ends the run for all
        with self.profile if profiled else contextlib.nullcontext():
            yield
        step.seconds = self.ranks.broadcast(compiled.clock() - started)
        step.processor = time.thread_time() - had

    @timed("batches")
    def batches(self, step: Step) -> list[data.Batch]:
        """Draw the batches of a step; return of each the rows that this process computes: ids and
        targets, (B, T) each."""
        s = self.settings
        state = self.state
        for _ in range(s.gradient_accumulation_steps):
            if s.windows == "random":
                batch = data.random_batch(
                    self.text.train,
                    s.batch_size,
                    s.block_size,
                    rng=state.batches)
            else:
                batch = self.shuffled.batch(state.read, s.batch_size)
                state.read += s.batch_size
            step.batches.append(batch)
        rows = self.averager.rows
        return [(ids[rows], targets[rows]) for ids, targets in step.batches]

    @functools.cached_property
    def shuffled(self) -> data.Shuffled:
        """The windows of the training part, if --windows is shuffled."""
        return data.Shuffled(self.text.train, self.settings.block_size,
                             lambda number: generator(self.settings.seed, "batches", number + 1))

    def set_learning_rates(self) -> None:
        """Give each group of parameters the learning rate of the next step."""
        multiplier = self.multiplier()
        for group, highest in zip(self.optimizer.param_groups, self.highest):
            group["lr"] = highest * multiplier

    def ahead(self) -> float:
        """Return what the first character after the next one counts in the next step: a half at
        the beginning of the run, and nothing from its middle on."""
        s = self.settings
        state = self.state
        by_steps = state.iteration / max(1, self.max_iters)
        by_clock = state.seconds / (60 * s.minutes) if s.minutes else 0.0
        return max(0.0, 0.5 - max(by_steps, by_clock)) if s.ahead else 0.0

    def multiplier(self) -> float:
        """Return the share of its highest learning rate that each parameter gets in the next step.

        After the warm-up it falls with the progress of the run: with the share of its steps, or of
        its time, whichever is larger.
        """
        s = self.settings
        done = self.state.iteration
        if done < s.warmup_iters:
            return warm_up(done, s.warmup_iters)
        end = self.max_iters if s.lr_decay_iters is None else s.lr_decay_iters
        progress = done / end if done < end else 1.0
        by_clock = self.state.seconds / (60 * s.minutes) if s.minutes else 0.0
        if s.schedule == "linear":
            share = linear_decay(max(progress, by_clock), s.decay_share)
        elif by_clock > progress:
            share = cosine(by_clock)
        else:
            share = cosine(progress, s.warmup_iters / max(end, 1))
        lowest = USUAL_MIN_LR
        if s.min_lr is not None and s.learning_rate:
            lowest = s.min_lr / s.learning_rate
        return lowest + (1 - lowest) * share

    def is_time_to_evaluate(self) -> bool:
        """Whether an evaluation is due that has not been done."""
        state = self.state
        return state.iteration != state.evaluated and (
            state.iteration % self.settings.eval_interval == 0 or self.is_over())

    def is_time_to_save(self, step: Step) -> bool:
        """Whether last.npz is to be written after a step: after one more, which may take twice as
        long as this one, more than --checkpoint_interval seconds would have passed."""
        interval = self.settings.checkpoint_interval
        if interval is None:
            interval = USUAL_INTERVAL
        waited = time.monotonic() - self.saved_at + 2 * step.seconds
        return 0 < interval < waited

    def is_time_to_save_evaluation(self) -> bool:
        """Whether last.npz is to be written with an evaluation: unless --checkpoint_interval is
        given, and as many seconds have not passed yet.  The first and the last one are written."""
        interval = self.settings.checkpoint_interval
        if interval is None or self.last_saved is None or self.is_over():
            return True
        return time.monotonic() - self.saved_at >= interval

    @functools.cached_property
    def windows(self) -> data.Batch:
        """The windows of the validation part that --eval_iters chooses, (N, T) each."""
        number = self.settings.eval_iters * self.settings.batch_size
        return self.text.windows(self.settings.block_size, number)

    def _count_windows(self, saved: Record) -> int:
        """Return the number of windows that saved settings of this run choose, which says which
        these are; 0 if they do not tell."""
        if not {"eval_iters", "batch_size"} <= saved.keys():
            return 0
        number = saved["eval_iters"] * saved["batch_size"]
        return len(self.text.windows(self.settings.block_size, number)[0])

    def evaluate(self) -> Evaluation:
        """Return the loss over these windows."""
        loss = evaluate(
            self.model,
            *self.windows,
            batch_size=self.settings.batch_size,
            ranks=self.ranks)
        return Evaluation(
            number=self.state.iteration,
            before=self.state.before_step(),
            batches=[self.windows],
            loss=loss)

    def ends_with(self, step: Step | Evaluation) -> bool:
        """Whether the run ends with a step or an evaluation that is not finite: with any
        evaluation, and with a step unless --on_nan skips it, which it does less than SKIPS_IN_A_ROW
        times in a row."""
        return (isinstance(step, Evaluation) or self.settings.on_nan == "stop"
                or self.state.skipped_in_row >= SKIPS_IN_A_ROW)

    def save_evaluation(self, val_loss: float) -> float | None:
        """Write an evaluation to the log, and the checkpoints.  Return the mean training loss since
        the evaluation before."""
        s = self.settings
        state = self.state
        train_loss, tokens_per_s = state.since_evaluation(s.characters)
        improved = state.note_evaluation(val_loss)
        if self.ranks.first:
            self.log.write(
                state.iteration,
                train_loss,
                val_loss,
                s.learning_rate * self.multiplier(),
                tokens_per_s,
                state.seconds,
                state.skipped)
        # If the process dies before last.npz is written, the resumed run repeats the evaluation.
        if improved or s.always_save_checkpoint:
            self.save(BEST)
        if self.is_time_to_save_evaluation():
            self.save_last()
        return train_loss

    def save(self, name: str, also: dict | None = None, **more) -> None:
        """Write a checkpoint into the folder, if this is the first rank; `also` is added to its
        record, and `more` goes to save_checkpoint."""
        if self.ranks.first:
            save_checkpoint(
                self.folder / name,
                self.model,
                self.text.tokenizer,
                self.record() | (also or {}),
                **more)

    def record(self) -> Record:
        """Return what a checkpoint keeps of the run, besides model and optimiser."""
        settings = dataclasses.asdict(self.settings) | {"profile": 0}
        texts = [name if name in data.KNOWN_TEXTS else os.path.abspath(name)
                 for name in self.settings.data]
        settings["data"] = texts if len(texts) > 1 else texts[0]
        return dict(settings=settings, text=self.text.digest, state=self.state.saved())

    def save_last(self) -> None:
        """Write last.npz, from which the run can be resumed, and keep the one before it, except of
        an adapter.  Write nothing if the last step was skipped, or left a nan or inf in weights or
        optimiser."""
        if self.state.skipped_in_row:
            return
        weights = [p.data for p in self.model.parameters()]
        moments = [array for *_, array in self.optimizer.state()]
        if not all(np.isfinite(array).all() for array in weights + moments):
            tqdm.write(f"warning     {LAST} is not written after step {self.state.iteration:,}: a "
                       "weight or the optimiser's state is nan or inf", sys.stderr)
            return
        # Beside a base that is there once, one more copy of an adapter would be most of the disk.
        before = None if self.settings.lora else self.folder / PREVIOUS
        self.save(LAST, optimizer=self.optimizer, before=before)
        self.last_saved = self.state.iteration
        self.saved_at = time.monotonic()


def join(command: str) -> contextlib.AbstractContextManager[Ranks]:
    """Join the other ranks, if a launcher has started several.  See `model.ranks.launch`."""
    rank = launcher_rank()
    if rank is None or rank[1] == 1:
        return contextlib.nullcontext(Ranks())
    from model.ranks import launch
    return launch.join(command, *rank)
