"""Read beginnings from the terminal, with a history of lines, and continue each of them."""
import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Iterator

from data import cache_folder

HISTORY_LINES = 1000
CTRL_D = "\x04"         # is typed on Windows, too, where it ends no input


def continue_typed(start: str, check: Callable[[str], object], write: Callable[[str, int], object],
                   typed: str = "a beginning",
                   written: str = "its continuation") -> None:
    """Ask for a beginning and `write` its continuation, of the numbers 0, 1, ..., until the input
    ends (Ctrl-D; on Windows, Ctrl-Z and Enter).  The first one is `start`, unless that is empty.

    Ctrl-C ends a continuation, or clears the typed line.  A ValueError is printed; a beginning that
    `check` refuses has no number.  `typed` and `written` say what it all is, to the user.
    """
    numbers = itertools.count()
    if sys.stdin is None:
        raise ValueError("standard input is closed, so no beginning can come from it")
    asks = sys.stdin.isatty()
    if hasattr(sys.stdin, "reconfigure"):       # a wrong byte would cost all lines read with it
        sys.stdin.reconfigure(encoding=None if asks else "utf-8-sig", errors="surrogateescape")
    prompt = "> " if asks and sys.stdout.isatty() else ""
    if asks:
        leaves = "Ctrl-Z and Enter leave" if sys.platform == "win32" else "Ctrl-D leaves"
        print(f"Type {typed}; Ctrl-C ends {written}, {leaves}.", file=sys.stderr)
    with history() if asks else contextlib.nullcontext():
        while True:
            try:
                given = start
                start = ""
                beginning = given or input(prompt)
                if beginning == CTRL_D:
                    break
                check(beginning)
                write(beginning, next(numbers))
            except ValueError as error:
                print(error, file=sys.stderr)
            except KeyboardInterrupt:
                print()
            except EOFError:
                break
    if asks:
        print()


@contextlib.contextmanager
def history() -> Iterator[None]:
    """Let typed lines be edited, recalled, and kept between sessions, if there is readline."""
    try:
        import readline
    except ImportError:
        yield
        return
    path = cache_folder() / "history"
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    try:
        yield
    finally:
        readline.set_history_length(HISTORY_LINES)
        with contextlib.suppress(OSError):
            os.makedirs(path.parent, exist_ok=True)
            readline.write_history_file(path)
