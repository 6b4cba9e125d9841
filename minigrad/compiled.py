"""What a program asks of compiled kernels.  In plain NumPy nothing is compiled, and these answer.

`minigrad.kernels` puts its own functions in their place when it is loaded: call them by their
module, as compiled.clock().
"""
import time
from collections.abc import Mapping
from typing import TextIO


def clock() -> float:
    """Return seconds since some moment.  With kernels, it stops while they are compiled."""
    return time.perf_counter()


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


def version() -> str:
    """Return the compiler's version."""
    return "none"


def announce(label: str | None, file: TextIO | None = None) -> None:
    """Print a line that begins with `label`, once, when kernels must be compiled that are not on
    disk; without a label print none."""


def compile_ahead(muon: bool = False, qk_norm: bool = False, ngrams: bool = False,
                  gated: bool = False, sample: bool = False) -> None:
    """Compile, for float32, the kernels of a training step with Muon, normed queries and keys,
    n-gram embeddings and gated MLPs, if it has them; and those that draw a sample."""


def thread_count() -> int:
    """Return how many threads a kernel called now may use."""
    return 1


def thread_limit() -> tuple[int, str]:
    """Return the most threads that this process may use, and the reason for that limit."""
    return 1, "without compiled kernels, NumPy computes on one thread"


def set_threads(count: int) -> None:
    """Have kernels use this many threads, at most the limit."""
