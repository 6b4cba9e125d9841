"""Ctrl-C and similar signals, on which a loop stops between its steps."""
import contextlib
import os
import signal
import stat
import sys
import threading


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


class AtOnce(Interrupts):
    """Ends what runs on any of these signals as Ctrl-C does, so that it removes what it began."""

    def _note(self, number, frame):
        if number == getattr(signal, "SIGHUP", None):
            _let_go_of_terminal()
        raise KeyboardInterrupt


def _let_go_of_terminal():
    """Discard output to a terminal that was closed, instead of failing."""
    for number in (1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISCHR(os.fstat(number).st_mode) and not os.isatty(number):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, number)
                os.close(nowhere)
