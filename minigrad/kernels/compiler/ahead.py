"""Compile a training step's kernels in two processes at once, when they are not on disk yet.

A second process goes through a list of kernels from its beginning, this one from its end.  Each
loads what the other has kept on disk meanwhile, so they share the work without waiting.  The second
one ends with this one, however this one ends: then the pipe to its standard input is closed.
"""
import contextlib
import os
import subprocess
import sys
import threading

from minigrad.kernels.compiler import compiling, threads
from minigrad.words import number_of

COMMAND = ("import sys; sys.path[:] = {path!r}; import minigrad; "
           "from minigrad.kernels.compiler import ahead; ahead.compile_in_turn({names}, {last})")
# The kernels of every step.  The slowest to compile come first and last, so that the two processes
# meet at a fast one; the last ones are for this process, which begins a second earlier.
STEP = ["attention_vjp", "attention", "norm_vjp", "norm", "cross_entropy", "adamw", "add", "scale",
        "add_rows", "sum_of_squares", "two_products", "matmul"]
SLOWEST = 3         # of them at the beginning; what a model needs besides comes after these
SAMPLE = ["decode"]
_started = []       # keeps Python from warning of a process that has not ended


def compile_ahead(muon: bool = False, qk_norm: bool = False, ngrams: bool = False,
                  gated: bool = False, sample: bool = False) -> None:
    """Compile, for float32, the kernels of a training step with Muon, normed queries and keys,
    n-gram embeddings and gated MLPs, if it has them; and, while training begins, those that draw a
    sample."""
    if threads.count() == 1:
        return
    more = []
    if qk_norm:
        more += ["norm_heads_vjp", "norm_heads"]
    if gated:
        more += ["swiglu_vjp", "swiglu"]
    if ngrams:
        more.append("sum_rows")
    names = [*STEP[:SLOWEST], *more, *STEP[SLOWEST:]]
    if muon:
        names.append("muon")
    missing = _missing(names)
    last = _missing(SAMPLE) if sample else []
    if (missing or last) and compiling.cache_folder():
        compiling.say_compiling(number_of(len(missing + last), "kernel"))
        command = COMMAND.format(path=sys.path, names=missing, last=last)
        _started.append(subprocess.Popen([sys.executable, "-c", command], stdin=subprocess.PIPE,
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    _compile(reversed(names))


def _missing(names):
    """Return those of the kernels that are not on disk."""
    return [name for name in names if not compiling.KERNELS[name].on_disk()]


def compile_in_turn(names: list[str], last: list[str]) -> None:
    """Compile these kernels, the last ones in the time that training leaves; the second process
    runs this."""
    threading.Thread(target=_end_with_the_first, daemon=True).start()
    _compile(names)
    if hasattr(os, "nice"):             # Windows has none
        os.nice(10)
    _compile(last)


def _end_with_the_first():
    """Wait for the end of the first process, and end this one."""
    os.read(0, 1)
    os._exit(1)


def _compile(names):
    for name in names:
        with contextlib.suppress(compiling.CannotCompile):      # its first call says so
            compiling.KERNELS[name].compile("float32")
