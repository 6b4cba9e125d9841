"""What a run keeps beside the model: its state, its log, its interrupts; and evaluation."""
import contextlib
import csv
import io
import math
import os
import pathlib
import signal
import stat
import sys

import numpy as np

import minigrad as mg
from data import IGNORE
from model.files import replacing
from model.transformer import Transformer


class State:
    """All that changes while a run goes on, but for weights and optimiser."""

    def __init__(self, seed: int) -> None:
        # A generator for each purpose, so that one does not move the other.
        self.batches, self.dropout = (np.random.default_rng([seed, i]) for i in (1, 2))
        self.iteration = 0          # optimiser steps done
        self.evaluated = -1         # the iteration of the last evaluation
        self.best = math.inf        # lowest validation loss, nats per character
        self.seconds = 0.0          # spent in steps
        self.evaluated_at = 0.0     # self.seconds at the last evaluation
        self.losses = []            # of the steps since then

    def note_step(self, loss: float, seconds: float) -> None:
        """Count a step, with its training loss and its time."""
        self.iteration += 1
        self.losses.append(loss)
        self.seconds += seconds

    def note_evaluation(self, val_loss: float) -> bool:
        """Count an evaluation; returns whether it is the best so far."""
        self.evaluated, self.evaluated_at, self.losses = self.iteration, self.seconds, []
        improved = val_loss < self.best
        self.best = min(self.best, val_loss)
        return improved

    def since_evaluation(self, tokens: int) -> tuple[float | None, float]:
        """Mean training loss (None before any step) and characters per second since the last
        evaluation, for steps of so many characters."""
        if not self.losses:
            return None, 0.0
        mean = sum(self.losses) / len(self.losses)
        return mean, len(self.losses) * tokens / (self.seconds - self.evaluated_at)

    def saved(self) -> dict:
        """All of it as JSON can hold it, exactly."""
        generators = {name: getattr(self, name).bit_generator.state
                      for name in ("batches", "dropout")}
        return vars(self) | generators

    def restore(self, saved: dict) -> None:
        """Take over what `saved` gave."""
        for name, value in saved.items():
            if name in ("batches", "dropout"):
                getattr(self, name).bit_generator.state = value
            else:
                setattr(self, name, value)


class Log:
    """log.csv: a line for each evaluation.  A run resumed after the evaluation at `start` drops the
    lines that lie after it; one that is not resumed (None) begins anew."""
    COLUMNS = ("iter", "train_loss", "val_loss", "lr", "tokens_per_s", "seconds")

    def __init__(self, path: pathlib.Path, start: int | None) -> None:
        self.path = path
        self.rows = [] if start is None else self._rows_until(start)
        self._write()

    def write(self, iteration: int, train_loss: float | None, val_loss: float, lr: float,
              tokens_per_s: float, seconds: float) -> None:
        """Add a line; losses in nats per character."""
        self.rows.append([str(iteration), "" if train_loss is None else f"{train_loss:.6f}",
                          f"{val_loss:.6f}", f"{lr:.6g}", f"{tokens_per_s:.0f}", f"{seconds:.2f}"])
        self._write()

    def _write(self):
        # All of it each time: a line added in place could be cut in the middle.
        with replacing(self.path) as file:
            text = io.TextIOWrapper(file, encoding="utf-8", newline="")
            csv.writer(text).writerows([self.COLUMNS, *self.rows])
            text.detach()

    def _rows_until(self, start):
        """The lines of an earlier log up to an iteration; says so if some cannot be read."""
        lines = []
        with contextlib.suppress(FileNotFoundError):
            lines = self.path.read_text(encoding="utf-8", errors="replace").split("\n")[1:-1]
        rows = [line.rstrip("\r").split(",") for line in lines]
        whole = [row for row in rows if _is_row(row)]
        kept = [row for row in whole if int(row[0]) <= start]
        if len(whole) < len(rows) or not kept or int(kept[-1][0]) != start:
            print(f"warning: {self.path} is damaged; of its lines {len(kept)} could be kept, and "
                  "the run goes on without the others", file=sys.stderr)
        return kept


def _is_row(cells):
    """Whether these are the cells of a line of a log."""
    try:
        for i, cell in enumerate(cells):
            float(cell or "0" if i == 1 else cell)      # there is no training loss before any step
    except ValueError:
        return False
    return len(cells) == len(Log.COLUMNS) and cells[0].isdecimal()


def read_log(path: pathlib.Path) -> list[list[float | None]]:
    """The lines of a log.csv, numbers in the order of `Log.COLUMNS`; None for the training loss
    before any step.

    Raises
    ------
    ValueError : there is no such file, or it is damaged.
    """
    try:
        with open(path, newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        if tuple(header) != Log.COLUMNS:
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


class Interrupts:
    """Remembers Ctrl-C and the like, so that a loop can stop between two steps; a second one stops
    at once."""
    NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")     # a closed terminal; Windows' Ctrl-Break

    def __enter__(self) -> "Interrupts":
        self.came = False
        numbers = [getattr(signal, name) for name in self.NAMES if hasattr(signal, name)]
        # What the caller has ignored, as nohup does with SIGHUP, stays ignored.
        self.before = {number: signal.signal(number, self._note) for number in numbers
                       if signal.getsignal(number) is not signal.SIG_IGN}
        return self

    def __exit__(self, *error) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _note(self, number, frame):
        if self.came:
            raise KeyboardInterrupt
        self.came = True
        if number == getattr(signal, "SIGHUP", None):
            _let_go_of_terminal()
        print("\nstopping after this step; once more stops at once", file=sys.stderr)


def _let_go_of_terminal():
    """Have what is written to a terminal that was closed go nowhere, instead of failing."""
    for number in (1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISCHR(os.fstat(number).st_mode) and not os.isatty(number):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, number)
                os.close(nowhere)


def evaluate(model: Transformer, x: np.ndarray, y: np.ndarray, batch_size: int) -> float:
    """Mean loss over windows (N, T), in nats per character that counts."""
    total = 0.0
    with mg.no_grad():
        for at in range(0, len(x), batch_size):
            targets = y[at:at + batch_size]
            loss = mg.cross_entropy(model(x[at:at + batch_size]), targets, ignore_index=IGNORE)
            total += loss.item() * (targets != IGNORE).sum()
    return float(total / (y != IGNORE).sum())


def decayed_and_other(model: Transformer) -> list[dict]:
    """Parameters for AdamW: weight decay falls on matrices, not on norms and biases."""
    return [{"params": [p for p in model.parameters() if p.ndim >= 2]},
            {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0}]
