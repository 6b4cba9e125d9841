"""The folder of a run: its checkpoints and its log, and what a run needs to begin or to be resumed.

`prepare` reads all of it: the checkpoint, the text and the settings.
"""
import contextlib
import dataclasses
import errno
import math
import os
import pathlib
import sys
from collections.abc import Sequence

import data
from data.files import AnyPath, claimed, is_in_use, rename, replacing
from minigrad import compiled
from minigrad.words import first_of, scaled, shown
from model.checkpoint import (BEST, DAMAGED, LAST, PREVIOUS, Checkpoint, is_there, load_last,
                              path_of, texts_of)
from model.command import Given, Parser, command_line, problems, reading
from model.processes import Ranks
from model.settings import NAMES, WITHOUT_FLAG, Settings, resolve

LOG = "log.csv"
NAN = "nan.npz"
MUCH = 200_000_000      # bytes of earlier runs in a folder


class Folder(contextlib.ExitStack):
    """The folder of a run.  One run at a time writes into it: leaving the context releases it."""

    begun = False       # whether a run writes into it

    def __init__(self, path: AnyPath) -> None:
        super().__init__()
        self.path = pathlib.Path(os.path.expanduser(path))

    def __truediv__(self, name: str) -> pathlib.Path:
        return self.path / name

    def __str__(self) -> str:
        return str(self.path)

    def begin(self) -> pathlib.Path | None:
        """Make and claim the folder.  Move the files of an earlier run into a folder within it, and
        return that folder."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._claim()
        names = (LAST, PREVIOUS, DAMAGED, BEST, LOG, NAN)
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
        self.enter_context(claimed(self.path))
        self.begun = True

    def kept(self) -> str:
        """Return what is saved, for a run that is ended."""
        try:
            if self.begun and not is_there(self.path):
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
        return command_line("train", "--init_from", "resume", "--out_dir", self.path, *more)

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

    def __init__(self, path: pathlib.Path, start: int | None = None, skips: bool = False) -> None:
        self.path = path
        self.lines = []
        self.columns = self.COLUMNS | (self.SKIPPED if skips else {})
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


def settings_of(run: Checkpoint, folder: object) -> Settings:
    """Return the settings of a saved run.

    Raises
    ------
    ValueError : this version cannot use them.
    """
    saved = run.training["settings"] | {"data": texts_of(run.training) or Settings.data}
    for name in WITHOUT_FLAG:
        saved.pop(name, None)
    wrong = [f"there is no --{shown(name)}" for name in sorted(saved.keys() - {*NAMES})]
    if not wrong:
        # An older checkpoint lacks some settings, which were those of the recipe gpt2.
        earlier = Settings(**{"recipe": "gpt2"} | saved)
        wrong = [f"--{line}" for line in problems(earlier)]
    if wrong:
        raise ValueError(f"the run in {folder} has settings that this version cannot use "
                         f"({first_of(wrong)}); train anew into another --out_dir")
    most, _ = compiled.thread_limit()           # of this machine
    return dataclasses.replace(earlier, threads=min(earlier.threads, most))


def refuse_mistakes(mistakes: list[str], given: Given, parser: Parser, ranks: Ranks) -> None:
    """Exit with this rank's mistakes on the command line, unless the first rank has some, too:
    `prepare` then answers those for all.  Refuse ranks that differ, and warn of flags given twice.
    """
    first, *_ = ranks.of_each(mistakes)
    if not first:
        parser.refuse(mistakes)
    ranks.check_alike(given)
    if ranks.first:
        parser.warn()


def prepare(given: Given, mistakes: list[str], parser: Parser, folder: Folder,
            ranks: Ranks = Ranks()
            ) -> tuple[Settings, data.Text, Checkpoint | None, Checkpoint | None]:
    """Read the checkpoint and the text of a run; rank 0 reads for all.  Set the number of threads.

    Return its settings, its text, the checkpoint whose model it fine-tunes, and the one that it
    resumes; None if there is none.  Exit with a line for each mistake, if there are any.
    """
    refuse_mistakes(mistakes, given, parser, ranks)
    initial = resumed = earlier = config = tokenizer = None
    whose = ""
    given = given | {"out_dir": str(folder)}
    names = given.get("data", Settings.data)
    init_from = given.pop("init_from", Settings.init_from)
    if init_from == "resume":
        resumed = ranks.made_by_first(lambda: folder.resume(given.get("explain", False)))
        config = resumed.model.config
        tokenizer = resumed.tokenizer
        earlier = settings_of(resumed, folder)
        whose = f"the run in {folder}"
        names = given.get("data", earlier.data)
    elif init_from != "scratch":
        from model import beginning as tuning
        initial = ranks.made_by_first(lambda: tuning.load_initial(init_from))
        path = path_of(init_from)
        config = earlier = initial.model.config
        whose = f"the model in {path}"
        given["init_from"] = str(path.absolute())
    text = None
    try:
        texts = _texts_of(names, folder, resumed, ranks)
        given["data"] = tuple(name for name, _ in texts.taken)
        if initial:
            tokenizer, new = tuning.with_characters_of(texts.characters, initial.tokenizer)
        text = data.Text(texts.characters, texts.name, tokenizer)
    except data.TextError as error:
        unreadable = [str(error)]
    except MemoryError as error:
        raise ValueError("there is not enough memory for the text; give a shorter one") from error
    s, wrong = resolve(given, earlier, len(text or ()), whose)
    if text is not None:
        unreadable = text.problems(s.block_size)
    if ranks.first:
        parser.refuse([*mistakes, *wrong, *s.problems(), *ranks.problems(s),
                       *problems_of_folder(s), *unreadable])
    ranks.meet()
    if s.threads or ranks.threads:
        compiled.set_threads(s.threads or ranks.threads)
    from model.beginning import check_memory
    check_memory(s, s.model_config(text.tokenizer.vocab_size, config))
    if len(texts.taken) > 1 or texts.left_out:
        from data.sources.folders import listed
        print(f"files       {listed(texts.taken, texts.left_out)}")
    if initial:
        print(f"begins      {tuning.describe_initial(path, config, s.block_size, new)}")
    for warning in s.warnings():
        print(f"warning     {warning}")
    return s, text, initial, resumed


def _texts_of(words, folder, resumed, ranks):
    """Read the texts that words stand for; of a resumed run, refuse another one than its own."""
    try:
        with reading(words):
            texts = ranks.made_by_first(lambda: data.read_texts(words))
    except data.TextError as error:
        if resumed and [*words] == [*texts_of(resumed.training)]:
            raise data.TextError(f"{error}.  The run in {folder} was trained on it; if the same "
                                 "text is in another file, give that with --data FILE") from error
        raise
    if resumed and resumed.training["text"] != data.digest(texts.characters):
        raise ValueError(f"the text {texts.name} is not the one that the run in {folder} was "
                         "trained on; give that with --data, or train anew into another --out_dir")
    return texts


def leads_nowhere(link: pathlib.Path) -> bool:
    """Return whether a link ends at nothing, or in a circle."""
    try:
        return not is_there(link)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return True
        raise


def problems_of_folder(s: Settings) -> list[str]:
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
