"""What a command says: the answer to a mistake in one line, what takes long, and lines to type."""
import contextlib
import errno
import os
import pathlib
import shlex
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from data import KNOWN_TEXTS, read_text
from minigrad.words import first_of, in_a_line
from model.start import ROOT, quit_at_once, typed_program

SYSTEM = os.name                # which tests change
TRAIN = os.path.join(ROOT, "train.py")
NO_RIGHT = errno.EACCES, errno.EPERM, errno.EROFS
NO_ROOM = errno.ENOSPC, errno.EDQUOT
PATIENCE = 2.5                  # seconds before a long task is announced


@contextlib.contextmanager
def answering(
        command: str,
        describe_saved: Callable[[], str] | None = None,
        unread: int = 1) -> Iterator[None]:
    """Turn an exception of a command, or of its output, into one line on standard error and an exit
    status.

    A ValueError is a mistake of the user; its message says what is wrong and what to do.
    `describe_saved` returns what to say of files that were written before; `unread` is the exit
    status if nobody reads the output any more.
    """
    try:
        if signal.getsignal(signal.SIGINT) is quit_at_once:        # all is loaded
            signal.signal(signal.SIGINT, signal.default_int_handler)
        with np.errstate(all="ignore"):     # what is not finite is said in our words
            yield
        sys.stdout.flush()
    except SystemExit:
        _flush_or_discard_output()
        raise
    except KeyboardInterrupt:
        _flush_or_discard_output()
        if describe_saved:
            print(f"\nstopped at once; {describe_saved()}", file=sys.stderr)
        sys.exit(130)
    except ValueError as error:
        message = error
    except MemoryError as error:
        message = (f"there is not enough memory ({error}); take a smaller model, batch or text, or "
                   "end other programs")
    except OSError as error:
        if _is_closed_pipe(error):
            _flush_or_discard_output()
            if describe_saved:
                print(f"\nnobody reads the output any more; {describe_saved()}", file=sys.stderr)
            sys.exit(unread)
        message = f"cannot use {error.filename or 'standard output'}: {error.strerror or error}"
        if error.errno in NO_RIGHT:
            message += "; first get the right to read and write there"
        elif error.errno in NO_ROOM:
            message += "; first make room there"
        elif error.errno == errno.EFBIG:
            message += "; first allow larger files (ulimit -f), or give a folder on another disk"
        elif error.errno == errno.ENOENT and error.filename:
            folder = os.path.dirname(error.filename)
            if folder and not os.path.isdir(folder):
                message += f"; first make the folder {folder}, or give another"
        if describe_saved:
            message += f"; {describe_saved()}"
    else:
        return
    raise SystemExit(f"{command}: {in_a_line(message)}") from None      # notebooks show all others


def _is_closed_pipe(error):
    """Whether nobody reads the output any more."""
    on_windows = sys.platform == "win32" and error.errno == errno.EINVAL and not error.filename
    return isinstance(error, BrokenPipeError) or on_windows


def _flush_or_discard_output():
    """Discard what has been printed if nobody reads it any more, or Python's end would fail."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def tell(*lines: str) -> None:
    """Print lines about a file that is written.  If nobody reads them any more, as after `| head
    -1`, this and what follows is not shown, and the work goes on."""
    try:
        print(*lines, sep="\n", flush=True)
    except OSError as error:
        if not _is_closed_pipe(error):
            raise
        _flush_or_discard_output()


@contextlib.contextmanager
def announced_if_slow(what: str) -> Iterator[None]:
    """Print what is being done on standard error, once, if it takes longer than PATIENCE."""
    timer = threading.Timer(PATIENCE, lambda: print(f"{what} ...", file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def reading(words: Sequence[str]) -> contextlib.AbstractContextManager:
    """Say that texts are read if it takes long, as it does for a named pipe until somebody writes
    into it.  A known text has a bar."""
    files = [os.path.expanduser(word) for word in words if word not in KNOWN_TEXTS]
    if not files:
        return contextlib.nullcontext()
    pipes = [file for file in files
             if os.path.exists(file) and stat.S_ISFIFO(os.stat(file).st_mode)]
    what = f"waiting for {first_of(pipes)}" if pipes else f"reading {first_of(files)}"
    return announced_if_slow(what)


def quoted(words: Sequence[str]) -> str:
    """Return words in a line that the shell of this system takes apart into the same words."""
    return subprocess.list2cmdline(words) if SYSTEM == "nt" else shlex.join(words)


def command_line(module: str, *words: str | os.PathLike) -> str:
    """Return a line to type in the current folder, which runs a module of Python with these words:
    "train" of this project, or one such as "model.sample" or "pip".

    The line begins as the one that started this program.  A path may begin with any character.
    """
    python, file, here = started_as()
    if module == "train" and (file or here):
        return quoted([python, file or "train.py", *map(_as_word, words)])
    before = ""
    if file and not here:               # only from its folder is it sure that Python finds a module
        before = f"cd {quoted([ROOT])} && "
        words = [pathlib.Path(word).absolute() if isinstance(word, os.PathLike) else word
                 for word in words]
        if os.path.dirname(python):
            python = os.path.abspath(python)
    return before + quoted([python, "-m", module, *map(_as_word, words)])


def started_as() -> tuple[str, str, bool]:
    """Return how the user calls Python; the path of train.py, if that was typed, else ""; and
    whether the current folder is that of train.py, which where no program of this project runs is
    taken for granted."""
    program = os.path.realpath(sys.argv[0]) if sys.argv else ""
    if not program.startswith((TRAIN, os.path.join(ROOT, "model", ""))):
        return "python", "", True
    typed = typed_program()
    python = "python" if SYSTEM == "nt" else sys.orig_argv[0]   # Windows has another path there
    file = typed if os.path.realpath(typed) == program == TRAIN else ""
    return python, file, os.path.realpath(os.curdir) == ROOT


def install_command(extra: str) -> str:
    """Return a line to type, which installs this project with an extra of setup.cfg."""
    _, _, here = started_as()
    return command_line(
        "pip",
        "install",
        "-e",
        f"{'.' if here else ROOT}[{extra}]")


def _as_word(word):
    """Return a word of a command; a path that could be a flag, or a home, begins with "./"."""
    if isinstance(word, os.PathLike) and str(word).startswith(("-", "~")):
        return os.path.join(os.curdir, word)
    return str(word)


def text_or_file(value: str) -> str:
    """Return the text itself, or the contents of the file in FILE:path."""
    if not value.startswith("FILE:"):
        return value
    file = os.path.expanduser(value.removeprefix("FILE:"))
    if not os.path.exists(file):
        raise ValueError(f"there is no file {file!r}; give a UTF-8 text file as FILE:path, or a "
                         "text that does not begin with FILE:")
    with reading([file]):
        return read_text(os.path.abspath(file))
