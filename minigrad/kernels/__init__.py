"""The kernels: loops that Numba compiles.  They take and return arrays, and know no Tensor.

Each but `decode` stands in for a formula of `minigrad/formulas.py`, or for `minigrad.random.draw`,
which run if Numba is not there, may not compile (NUMBA_DISABLE_JIT=1), or cannot.

How to read a kernel file, for example rows.py:

    softmax             takes the arguments of the formula, makes the results, calls the kernel
    softmax_kernel      the kernel: one thread's share of the rows; C2 is a C-contiguous array of
                        two axes.  `share` gives a thread its rows, `part` a row of a dense array
    softmax_row         the arithmetic of one row.  `load`, `store` and `total` work on LANES = 16
                        numbers at a time, in an order that fixes every bit

A kernel that does more than share its work has a parameter `threads`, and calls `on_threads`.
`serial` compiles a function that only kernels call.  You may stop reading at `compiler/`.
"""
import minigrad.kernels.compiler        # noqa: F401  checks Numba's version first

import numba

from minigrad import compiled
from minigrad.kernels import (       # noqa: F401  as they are loaded, they register their kernels
    attention, decoding, elementwise, embedding, matmul, optim, rows)
from minigrad.kernels.compiler import ahead, compiling, threads
from minigrad.kernels.compiler.memory import keep_freed_memory

ANSWERS = {compiled.announce: compiling.announce, compiled.clock: compiling.clock,
           compiled.compile_ahead: ahead.compile_ahead, compiled.version: lambda: numba.__version__,
           compiled.set_threads: numba.set_num_threads, compiled.thread_count: threads.count,
           compiled.thread_limit: threads.limit}

keep_freed_memory()


def stand_in() -> bool:
    """Have every kernel stand in for its formula, unless Numba may not compile; return whether they
    do."""
    if numba.config.DISABLE_JIT:
        return False
    for formula, function in (compiling.STAND_INS | ANSWERS).items():
        compiling.put_in_place_of(formula, function)
    return True
