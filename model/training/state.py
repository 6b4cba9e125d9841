"""A run's state besides the model: counts and losses, its log, its interrupts; and evaluation."""
import contextlib
import csv
import io
import math
import os
import pathlib
import signal
import stat
import statistics
import sys
import threading

import numpy as np

import minigrad as mg
from data import IGNORE
from minigrad.random import generator
from model.storage.files import replacing
from model.transformer import Transformer

OPTIMIZERS = ("adamw", "muon")
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

    def generators(self) -> dict:
        """Return the state of its generators, as JSON can hold it."""
        return {name: getattr(self, name).bit_generator.state for name in ("batches", "dropout")}

    def saved(self) -> dict:
        """Return the state exactly, as JSON can hold it."""
        return vars(self) | self.generators()

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
    return type(value) in (int, type(now)) and (value in (math.inf, -math.inf)
                                                or abs(value) < EXACT)


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


class Interrupts:
    """Records Ctrl-C and similar signals, so that a loop can stop between steps; a second one stops
    at once.  Python sends signals to its main thread only; in another thread this does nothing."""
    NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")     # a closed terminal; Windows' Ctrl-Break

    def __enter__(self) -> "Interrupts":
        self.came = False
        numbers = [getattr(signal, name) for name in self.NAMES if hasattr(signal, name)
                   and threading.current_thread() is threading.main_thread()]
        # A signal that the caller ignores, as nohup does with SIGHUP, stays ignored.
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
    """Discard output to a terminal that was closed, instead of failing."""
    for number in (1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISCHR(os.fstat(number).st_mode) and not os.isatty(number):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, number)
                os.close(nowhere)


def forward_backward(model: Transformer, batches: list[tuple[np.ndarray, np.ndarray]],
                     rng: np.random.Generator) -> float:
    """Return the mean loss over batches of ids and targets, (B, T) each; add its gradient to the
    parameters' gradients."""
    mean = 0.0
    for x, y in batches:
        logits = model(x, rng=rng)                                              # (B, T, V)
        loss = mg.cross_entropy(logits, y) / len(batches)
        loss.backward()
        mean += loss.item()
    return mean


def evaluate(model: Transformer, x: np.ndarray, y: np.ndarray, batch_size: int) -> float:
    """Return the mean loss over windows (N, T), in nats per character that counts."""
    total = 0.0
    with mg.no_grad():
        for at in range(0, len(x), batch_size):
            targets = y[at:at + batch_size]
            loss = mg.cross_entropy(model(x[at:at + batch_size]), targets, ignore_index=IGNORE)
            total += loss.item() * (targets != IGNORE).sum()
    return float(total / (y != IGNORE).sum())


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
