"""Compile a training step's kernels in two processes at once, when they are not on disk yet.

This process compiles the two slowest kernels of the forward pass, and Muon's; a second process
compiles the others.  Those are then loaded from disk or, if the second process failed, compiled
when they are needed.
"""
import contextlib
import os
import subprocess
import sys

import numba

from minigrad.kernels.compiler import compiling, threads

COMMAND = ("import sys; sys.path[:] = {path!r}; import minigrad; "
           "from minigrad.kernels.compiler import ahead; ahead.compile_in_turn({names}, {last})")
OWN = ["matmul", "attention"]
OTHERS = ["attention_vjp", "norm_vjp", "norm", "cross_entropy", "add_rows", "adamw",
          "sum_of_squares"]             # about from the slowest to compile to the fastest
SAMPLE = ["decode"]
_started = []       # keeps Python from warning of a process that has not ended


def compile_ahead(muon: bool = False, qk_norm: bool = False, ngrams: bool = False,
                  gated: bool = False, sample: bool = False) -> None:
    """Compile, for float32, the kernels of a training step with Muon, normed queries and keys,
    n-gram embeddings and gated MLPs, if it has them; and, while training begins, those that draw a
    sample."""
    if numba.config.DISABLE_JIT or threads.count() == 1:
        return
    own = OWN + ["muon"] * muon
    others = (OTHERS + ["norm_heads_vjp", "norm_heads"] * qk_norm
              + ["sum_rows", "ngram_rows"] * ngrams + ["swiglu_vjp", "swiglu"] * gated)
    missing, last = ([name for name in names if not compiling.KERNELS[name].on_disk()]
                     for names in (others, SAMPLE * sample))
    if (missing or last) and compiling.cache_folder():
        number = sum(not compiling.KERNELS[name].on_disk() for name in own + missing + last)
        compiling.say_compiling(f"{number} kernel" + "s" * (number > 1))
        command = COMMAND.format(path=sys.path, names=missing, last=last)
        process = subprocess.Popen([sys.executable, "-c", command],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _started.append(process)
        compiling.elsewhere.update(dict.fromkeys(missing, process))     # to be waited for
    _compile(own)


def compile_in_turn(names: list[str], last: list[str]) -> None:
    """Compile these kernels, the last ones in the time that training leaves; the second process
    runs this.  The first one does not wait for the last ones, for which there may be little time;
    it compiles what is not on disk."""
    _compile(names)
    if hasattr(os, "nice"):             # Windows has none
        os.nice(10)
    _compile(last)


def _compile(names):
    for name in names:
        with contextlib.suppress(compiling.CannotCompile):      # its first call says so
            compiling.KERNELS[name].compile("float32")
