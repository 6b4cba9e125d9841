"""Flags of a command from a table: name -> (kind, default, help), once for all laboratories."""
import argparse
import math

# The environment variables with the number of threads of every library.
THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS",
           "VECLIB_MAXIMUM_THREADS")


def parser(name, description):
    """Return a parser for `python -m name` that shows its description as it is written."""
    return argparse.ArgumentParser(f"python -m {name}", description=description,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)


def add_flags(parser, flags):
    """Add each flag of a table.

    Parameters
    ----------
    flags : the kind is a function of the word, a tuple of choices, or bool for a flag that takes no
        word; with a list as the default, a flag takes several words.
    """
    for name, (kind, default, text) in flags.items():
        if kind is bool:
            parser.add_argument(f"--{name}", action="store_true", help=text)
            continue
        settings = {"type": kind, "metavar": getattr(kind, "metavar", "WORD")}
        if isinstance(kind, tuple):
            settings = {"choices": kind, "metavar": name.upper().removesuffix("S")}
            text += f": {', '.join(kind)}"
        if isinstance(default, list):
            settings["nargs"] = "+"
        elif default is not None:
            text += " (default: %(default)s)"
        parser.add_argument(f"--{name}", default=default, help=text, **settings)


def number(kind, metavar, holds, words):
    """Return what makes a finite number of a word, and refuses one for which `holds` is false."""
    def read(word):
        try:
            if math.isfinite(found := kind(word)) and holds(found):
                return found
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"{words} is needed, not {word}")
    read.metavar = metavar
    return read


whole = number(int, "N", lambda n: n >= 1, "a whole number of at least 1")
count = number(int, "N", lambda n: n >= 0, "a whole number of at least 0")
positive = number(float, "X", lambda x: x > 0, "a number above 0")
