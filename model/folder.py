"""The folder of a run: its checkpoints and its log."""
import contextlib
import errno
import math
import os
import pathlib
import sys
from collections.abc import Sequence

from data.files import AnyPath, claimed, is_in_use, rename, replacing
from minigrad.words import scaled
from model.checkpoint import BEST, DAMAGED, LAST, PREVIOUS, Checkpoint, is_there, load_last
from model.answers import command_line
from model.settings import Settings

LOG = "log.csv"
PAGE = "run.html"       # with --page
NAN = "nan.npz"
MUCH = 200_000_000      # bytes of earlier runs in a folder


class Folder:
    """The folder of a run.  One run at a time writes into it: leaving the context releases it."""

    def __init__(self, path: AnyPath) -> None:
        self.path = pathlib.Path(os.path.expanduser(path))
        self.is_claimed = False             # whether a run writes into it
        self._claims = contextlib.ExitStack()

    def __enter__(self) -> "Folder":
        return self

    def __exit__(self, *error: object) -> None:
        self._claims.close()

    def __truediv__(self, name: str) -> pathlib.Path:
        return self.path / name

    def __str__(self) -> str:
        return str(self.path)

    def begin(self) -> pathlib.Path | None:
        """Make and claim the folder.  Move the files of an earlier run into a folder within it, and
        return that folder."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._claim()
        names = (LAST, PREVIOUS, DAMAGED, BEST, LOG, NAN, PAGE)
        files = [self / name for name in names if is_there(self / name)]
        if not files:
            return None
        n = 1
        while is_there(self / f"earlier.{n}"):
            n += 1
        earlier = self / f"earlier.{n}"
        earlier.mkdir()
        for file in files:
            rename(file, earlier / file.name)
        print(f"{self} held an earlier run, which is now in {earlier}")
        folders = [*self.path.glob("earlier.[0-9]*")]
        taken = sum(file.lstat().st_size for folder in folders for file in folder.rglob("*"))
        if taken >= MUCH:
            print(f"its {len(folders)} earlier runs take {scaled(taken, 'B')}; delete those of "
                  "the folders earlier.1, earlier.2, ... in it that you do not need")
        print()
        return earlier

    def resume(self, only_look: bool) -> Checkpoint:
        """Return the checkpoint to resume from.  Claim the folder, unless the run only looks."""
        if os.path.isdir(self.path) and not only_look:
            self._claim()
        resumed, warning = load_last(self.path)
        if (not resumed.optimizer or not {"settings", "text"} <= resumed.training.keys()
                or "iteration" not in resumed.training.get("state", {})):
            raise ValueError(f"{self / LAST} holds a model, but no run to resume; train.py writes "
                             "a last.npz that does")
        if warning:
            print(f"warning     {warning}, at step {resumed.training['state']['iteration']:,}")
            if is_there(self / LAST) and not only_look:    # or it would become previous.npz
                rename(self / LAST, self / DAMAGED)
        return resumed

    def _claim(self):
        self._claims.enter_context(claimed(self.path))
        self.is_claimed = True

    def describe_saved(self) -> str:
        """Return what is saved, for a run that is ended."""
        try:
            if self.is_claimed and not is_there(self.path):
                return f"{self} was renamed or removed; resume with the name that it has now"
            if not any([is_there(self / name) for name in (LAST, PREVIOUS)]):
                return "nothing had been saved yet"
        except OSError as error:
            return f"what is saved in {self} cannot be told: {error.strerror}"
        return f"what was saved in {self} before is whole; resume with {self.resume_command()}"

    def resume_command(self, texts: Sequence[str] = (), *more: str) -> str:
        """Return the command that resumes the run, with more words; a text that was piped in must
        be a file then."""
        if any(os.path.abspath(text).startswith(("/dev/", "/proc/")) for text in texts):
            more += "--data", "FILE"
        return command_line(
            "train",
            "--init_from",
            "resume",
            "--out_dir",
            self.path,
            *more)

    def replay_command(self) -> str:
        """Return the command that repeats the step in nan.npz."""
        return command_line("model.replay", "--out_dir", self.path)


class Log:
    """The file log.csv: a line for each evaluation, with losses in nats per character.

    A run that is resumed after the evaluation at step `start` drops later lines; a new run (None)
    starts an empty log.  A run that may skip steps has one more column.  Of a damaged log, the
    lines that are whole are kept.
    """
    COLUMNS = {"iter": ".0f", "train_loss": ".6f", "val_loss": ".6f", "lr": ".6g",
               "tokens_per_s": ".0f", "seconds": ".2f"}     # and how each number is written
    SKIPPED = {"skipped": ".0f"}                            # steps skipped so far

    def __init__(
            self,
            path: pathlib.Path,
            start: int | None = None,
            may_skip: bool = False) -> None:
        self.path = path
        self.lines = []
        self.columns = self.COLUMNS | (self.SKIPPED if may_skip else {})
        if start is not None:
            lines, problem = read_log(path)
            self.lines = [numbers for numbers in lines if numbers[0] <= start]
            if problem:
                print(f"warning: {problem}; of its lines {len(self.lines)} are whole and kept",
                      file=sys.stderr)
        self._write()

    def write(self, *numbers: float | None) -> None:
        """Add a line, with a number for each column; the training loss may be None."""
        self.lines.append([*numbers])
        self._write()

    def _write(self):
        # Rewrite the whole file: a line added in place could be cut in the middle.
        written = [[*self.columns]]
        for numbers in self.lines:
            padded = [*numbers, 0]      # of a run that could not skip: no step was
            written.append(["" if x is None else format(x, how)
                            for x, how in zip(padded, self.columns.values())])
        try:
            with replacing(self.path) as file:
                for words in written:
                    file.write(f"{','.join(words)}\r\n".encode())
        except PermissionError as error:
            if not is_in_use(error):
                raise
            print(f"warning: another program has {self.path} open, so it could not be written; "
                  "close it there, and the next evaluation writes all lines", file=sys.stderr)


def read_log(path: pathlib.Path) -> tuple[list[list[float | None]], str]:
    """Return the whole lines of a log.csv, a number for each column, and what is wrong with the
    file, or "".  The training loss is None where no step had one."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return [], f"{path} cannot be read: {error.strerror or error}"
    *lines, cut = text.split("\n")          # every line ends with a line break
    header, *lines = lines or [""]
    columns = header.count(",") + 1
    whole = []
    for line in lines:
        with contextlib.suppress(ValueError):       # the line is damaged
            step, loss, *others = line.split(",")
            numbers = [float(step), float(loss) if loss else None, *map(float, others)]
            is_finite = math.isfinite(sum(filter(None, numbers)))
            if is_finite and len(numbers) == columns >= len(Log.COLUMNS):
                whole.append(numbers)
    known = [",".join(columns) for columns in (Log.COLUMNS, Log.COLUMNS | Log.SKIPPED)]
    sound = header in known and len(whole) == len(lines) and not cut
    return whole, "" if sound else f"{path} is damaged, or no log of this program"


def leads_nowhere(link: pathlib.Path) -> bool:
    """Return whether a link ends at nothing, or in a circle."""
    try:
        return not is_there(link)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return True
        raise


def folder_problems(s: Settings) -> list[str]:
    """Return a line if a run could not write into its folder."""
    if s.explain:           # it writes nothing
        return []
    path = pathlib.Path(s.out_dir)
    remedy = "give another folder"
    try:
        there = next(folder for folder in (path, *path.absolute().parents)
                     if is_there(folder, follow=False))
        if os.path.islink(there) and leads_nowhere(there):
            why = f"{there} is a link to {os.readlink(there)}, which leads nowhere"
        elif os.path.isfile(there):
            why = f"{there} is a file"
            remedy = f"give a folder, such as {there.parent}"
        elif not os.path.isdir(there):
            why = f"{there} is no folder"
        elif os.access(there, os.W_OK | os.X_OK):
            return []
        else:
            why = f"{there} does not allow it"
    except OSError as error:
        why = error.strerror
    return [f"--out_dir {s.out_dir} cannot be written: {why}; {remedy}"]
