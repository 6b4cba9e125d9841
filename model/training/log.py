"""The file log.csv of a run, with a line for each evaluation."""
import contextlib
import csv
import io
import math
import pathlib
import sys

from model.storage.files import replacing
from model.training.state import EXACT


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
