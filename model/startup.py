"""Preparations before NumPy and Numba are loaded, which takes a while.

A program of this project exits quietly at Ctrl-C, finds its packages whatever files are in the
current folder, and answers mistakes in a line.  Code that imports the packages keeps its signals
and path, and gets exceptions.
"""
import importlib.util
import os
import signal
import sys

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), ".."))


def is_program() -> bool:
    """Whether Python was started to run train.py or a module of this package, such as
    model.sample."""
    program = sys.argv[0] if sys.argv else ""
    if program == "-m":     # Python has not found the module yet
        return sys.orig_argv[-len(sys.argv)].removeprefix("-m").startswith("model.")
    return os.path.realpath(program) == os.path.join(ROOT, "train.py")


def in_the_way() -> str:
    """Return a line on what Python finds instead of a package of this project; "" if nothing."""
    for name in ("data", "minigrad"):
        spec = importlib.util.find_spec(name)
        if spec is None:        # the import itself reports that
            continue
        found = spec.origin or list(spec.submodule_search_locations)[0]     # a file, or a folder
        if os.path.realpath(found) != os.path.join(ROOT, name, "__init__.py"):
            return (f"{found} is in the way of this project's package {name}; rename it, or move "
                    "it to where Python does not look for modules (it looks into the program's own "
                    "folder and those of PYTHONPATH)")
    return ""


def main_begins() -> None:
    """Make Ctrl-C raise KeyboardInterrupt again: all is loaded, and the caller handles that."""
    if signal.getsignal(signal.SIGINT) is _quit:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _quit(*_):
    os._exit(130)       # an exception might be shown, or be caught by what is being imported


def _begin():
    """Prepare a program; check that the packages below exist and can be loaded."""
    program = is_program()
    if program:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:   # and is not ignored
            signal.signal(signal.SIGINT, _quit)
        # With -m, Python looks for every module in the current folder first, unless there is -P.
        if not sys.flags.safe_path and os.path.realpath(sys.path[0]) != ROOT:
            del sys.path[0]
    if problem := in_the_way():
        raise SystemExit(problem) if program else ImportError(problem)
    try:
        import minigrad     # noqa: F401  which looks at what is set for Numba
    except ValueError as error:
        raise SystemExit(str(error)) if program else error


_begin()
