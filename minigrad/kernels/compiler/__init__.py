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

This file only checks the environment, before Numba is imported: Numba's own error would not say
what to do.
"""
import os


def problem(environment: dict[str, str]) -> str:
    """Return a line on what Numba cannot accept; "" if there is nothing."""
    value = environment.get("NUMBA_NUM_THREADS", "1").strip()
    if value.isdecimal() and int(value) > 0:
        return ""
    return (f"NUMBA_NUM_THREADS is a whole number of at least 1, not {value!r}; set it to the "
            "number of threads to use, or unset it")


# Intel's library of vector functions, if it is installed, gives other bits than libm.
os.environ.setdefault("NUMBA_DISABLE_INTEL_SVML", "1")

if _problem := problem(os.environ):
    raise ValueError(_problem)
