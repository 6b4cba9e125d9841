"""What comes before NumPy and Numba are loaded, which takes a while.

A program of this project is ended quietly by Ctrl-C, and answers mistakes in a line.  Whoever
imports the packages keeps signals, and gets exceptions.
"""
import os
import signal
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def is_program() -> bool:
    """Whether Python was started to run train.py or a module of this package, such as
    model.sample."""
    program = sys.argv[0] if sys.argv else ""
    if program == "-m":     # for which Python has not found the module yet
        return sys.orig_argv[-len(sys.argv)].removeprefix("-m").startswith("model.")
    return os.path.realpath(program) == os.path.join(ROOT, "train.py")


def main_begins() -> None:
    """Have Ctrl-C raise KeyboardInterrupt again: all is loaded, and the caller answers that."""
    if signal.getsignal(signal.SIGINT) is _quit:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _quit(*_):
    os._exit(130)       # an exception might be shown, or be caught by what is being imported


def _begin():
    """Prepare a program; and see to it that the packages below can be loaded."""
    program = is_program()
    if program:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:   # and is not ignored
            signal.signal(signal.SIGINT, _quit)
    try:
        import minigrad     # noqa: F401  which looks at what is set for Numba
    except ValueError as error:
        raise SystemExit(str(error)) if program else error


_begin()
