"""How kernels are compiled, kept and run on threads.  A reader of the project may stop here.

A kernel needs four things that neither Numba nor LLVM gives by itself, and each has its files:

    compiling   one version per float type, compiled on first use and kept on disk (kernel cache)
    cache       where it keeps them, each in a file that shows damage
    ahead       the kernels of a training step, compiled by two processes at once
    linking     `serial` and `inlined`: functions that only kernels call
    processor   what LLVM knows of this processor

    parallel    `on_threads` and `in_stages`: one function on several threads
    workers     those threads, which wait for work without sleeping at once
    threads     how many there are

    lanes, vector_math
                loops over sixteen numbers at a time: the same bits on every processor
    tiles       the innermost loop of a matrix product, with its sums in registers
    memory      freed memory is kept for the next arrays

This file checks Numba's version, before any other one uses what Numba keeps to itself.
"""
import os
import re

# Intel's library of vector functions, if it is installed, gives other bits than libm.
os.environ.setdefault("NUMBA_DISABLE_INTEL_SVML", "1")

import numba        # noqa: E402


def check_version(version: str) -> None:
    """Raise an ImportError if kernels need another version of Numba.  0.66 is the one that makes
    addresses of integers and compiles with LLVM 22, which may take them for others (issue 10695 of
    Numba)."""
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers < (0, 62) and version[:2] != "0+" or numbers == (0, 66):
        raise ImportError(f"it is {version}, and kernels need 0.62 or newer, but not 0.66")


check_version(numba.__version__)
