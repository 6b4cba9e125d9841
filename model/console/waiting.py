"""A line for whoever waits."""
import contextlib
import sys
import threading
from collections.abc import Iterator

PATIENCE = 2.5      # seconds


@contextlib.contextmanager
def told_if_slow(what: str) -> Iterator[None]:
    """Say on standard error what is done, once, if it takes long."""
    timer = threading.Timer(PATIENCE, lambda: print(f"{what} ...", file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
