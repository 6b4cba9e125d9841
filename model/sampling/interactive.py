"""A beginning is typed and continued, again and again."""
import contextlib
import os
import sys
from collections.abc import Callable, Iterator

from data import cache_folder

HISTORY_LINES = 1000


def interact(write: Callable[[str], None], start: str) -> None:
    """Ask for a beginning and `write` its continuation, until the input ends (Ctrl-D); a first one
    may be given.

    Ctrl-C ends a continuation, or clears what was typed; what `write` refuses with a ValueError is
    said, and asked for anew.
    """
    if sys.stdin is None:
        raise ValueError("standard input is closed, so no beginning can come from it")
    asks = sys.stdin.isatty()
    prompt = "> " if asks and sys.stdout.isatty() else ""
    if asks:
        print("Type a beginning; Ctrl-C ends its continuation, Ctrl-D leaves.", file=sys.stderr)
    with history() if asks else contextlib.nullcontext():
        while True:
            try:
                start, given = "", start
                write(given or input(prompt))
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
    """Editing and recall of what is typed, kept from one time to the next, where the system has
    readline."""
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
