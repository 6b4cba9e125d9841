"""What a program asks of compiled kernels.  In plain NumPy nothing is compiled, and these answer.

`minigrad.kernels` plugs in functions that stand in for them, as others do for `minigrad.formulas`.
"""
import time
from collections.abc import Mapping
from typing import TextIO

from minigrad.formulas import formula as pluggable

clock = pluggable(time.perf_counter)    # seconds; with kernels, it stops while they are compiled


def problem(environment: Mapping[str, str]) -> str:
    """Return a line on what Numba cannot accept, as its own error would not say what to do; "" if
    there is nothing."""
    for name, least, what in (("NUMBA_NUM_THREADS", 1, "the number of threads to use"),
                              ("NUMBA_DISABLE_JIT", 0, "1 for plain NumPy, 0 for kernels")):
        value = environment.get(name, "1").strip()
        if not value.isdecimal() or int(value) < least:
            return (f"{name} is a whole number of at least {least}, not {value!r}; set it to "
                    f"{what}, or unset it")
    return ""


@pluggable
def version() -> str:
    """Return the compiler's version."""
    return "none"


@pluggable
def announce(label: str | None, file: TextIO | None = None) -> None:
    """Print a line that begins with `label`, once, when kernels must be compiled that are not on
    disk; without a label print none."""


@pluggable
def compile_ahead(muon: bool = False, qk_norm: bool = False, ngrams: bool = False,
                  gated: bool = False, sample: bool = False) -> None:
    """Compile, for float32, the kernels of a training step with Muon, normed queries and keys,
    n-gram embeddings and gated MLPs, if it has them; and those that draw a sample."""


@pluggable
def thread_count() -> int:
    """Return how many threads a kernel called now may use."""
    return 1


@pluggable
def thread_limit() -> tuple[int, str]:
    """Return the most threads that this process may use, and the reason for that limit."""
    return 1, "without compiled kernels, NumPy computes on one thread"


@pluggable
def set_threads(count: int) -> None:
    """Have kernels use this many threads, at most the limit."""
