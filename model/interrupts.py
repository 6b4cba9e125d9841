"""Ctrl-C and similar signals: a loop stops between steps, or what runs stops at once."""
import contextlib
import os
import signal
import stat
import sys
import threading

AGAIN = 1.0                     # seconds after which an interrupt that had no effect comes again


class Interrupts:
    """Records Ctrl-C and similar signals, so that a loop can stop between steps; a second signal
    raises KeyboardInterrupt, and raises it again each second while the body goes on: Python drops
    an exception in a callback from C, of which compiling has many.  Python sends signals to its
    main thread only.

    With `at_once`, the first signal raises it, so that temporary files are removed.
    """
    NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")     # a closed terminal; Windows' Ctrl-Break

    def __init__(self, at_once: bool = False) -> None:
        self.received = at_once
        self.again = None

    def __enter__(self) -> "Interrupts":
        numbers = [getattr(signal, name) for name in self.NAMES if hasattr(signal, name)
                   and threading.current_thread() is threading.main_thread()]
        # A signal that the caller ignores, as nohup does with SIGHUP, stays ignored.
        self.before = {number: signal.signal(number, self._note) for number in numbers
                       if signal.getsignal(number) is not signal.SIG_IGN}
        return self

    def __exit__(self, *error) -> None:
        if self.again:
            self.again.cancel()
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _note(self, number, frame):
        if number == getattr(signal, "SIGHUP", None):
            _discard_output_to_closed_terminal()
        if self.received:
            self._raise()
        self.received = True
        print("\nstopping after this step; once more stops at once", file=sys.stderr)

    def _raise(self):
        # Sent to the main thread, it also ends a call that waits.  Windows' sleep sees it anyway.
        send = getattr(signal, "pthread_kill", lambda _, number: signal.raise_signal(number))
        self.again = threading.Timer(AGAIN, send, [threading.main_thread().ident, signal.SIGINT])
        self.again.daemon = True
        self.again.start()
        raise KeyboardInterrupt


def _discard_output_to_closed_terminal():
    for number in (1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISCHR(os.fstat(number).st_mode) and not os.isatty(number):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, number)
                os.close(nowhere)
