"""How a program of this project starts.

This module is loaded before NumPy and Numba, which take a while, and itself needs only the standard
library.  When a program loads it, Ctrl-C ends that quietly from then on, and modules in the current
folder cannot hide the project's packages.
"""
import importlib.util
import os
import signal
import sys

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), ".."))


def is_program() -> bool:
    """Return whether Python runs train.py or a module of this package, such as model.sample."""
    program = sys.argv[0] if sys.argv else ""
    if program == "-m":         # Python has not found the module yet
        return sys.orig_argv[-len(sys.argv)].removeprefix("-m").startswith("model.")
    return os.path.realpath(program) == os.path.join(ROOT, "train.py")


def in_the_way() -> str:
    """Return an error message if other files hide this project's packages; "" if none does."""
    for name in ("data", "minigrad"):
        spec = importlib.util.find_spec(name)
        found = spec and (spec.origin or list(spec.submodule_search_locations)[0])
        if found and os.path.realpath(found) != os.path.join(ROOT, name, "__init__.py"):
            return (f"{found} hides this project's package {name}; rename it, or take its folder "
                    "out of PYTHONPATH")
    return ""


def _start():
    """Prepare a program; report what would keep the packages from being loaded."""
    program = is_program()
    if program:
        _prepare_output()
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:   # it is not ignored
            signal.signal(signal.SIGINT, quit_at_once)
        # With -m, Python looks for modules in the current folder first, unless -P is given.
        if not sys.flags.safe_path and os.path.realpath(sys.path[0]) != ROOT:
            del sys.path[0]
    if problem := in_the_way():
        raise SystemExit(problem) if program else ImportError(problem)
    try:
        import minigrad     # noqa: F401  which refuses wrong environment variables
    except ValueError as error:
        raise SystemExit(str(error)) if program else error


def quit_at_once(*_):
    os._exit(130)       # an import might catch or print an exception


def _prepare_output():
    """Let programs print if the terminal lacks a character, or if an output is closed.  A file or a
    pipe gets UTF-8, which `read_text` reads; Windows has another encoding for them."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))
    sys.stdout.reconfigure(errors="replace")
    for stream in (sys.stdout, sys.stderr):
        if not stream.isatty():
            stream.reconfigure(encoding="utf-8", errors=stream.errors)


_start()
