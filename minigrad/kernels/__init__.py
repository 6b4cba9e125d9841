"""The kernels: loops that Numba compiles.  They take and return arrays, and know no Tensor.

Each but `decode` stands in for a formula of `minigrad/formulas.py`, or for `minigrad.random.draw`:
`stands_in_for` plugs it in.  The formulas themselves run if Numba is not there, may not compile
(NUMBA_DISABLE_JIT=1), or cannot.

How to read a kernel file, for example rows.py:

    softmax             takes the arguments of the formula, makes the results, calls the kernel
    softmax_kernel      the kernel: one thread's share of the rows; C2 is a C-contiguous array of
                        two axes.  `share` gives a thread its rows, `row_of` returns one
    softmax_row         the arithmetic of one row.  `load`, `store` and `total` work on LANES = 16
                        numbers at a time, in an order that fixes every bit

A kernel that does more than share its work has a parameter `threads`, and calls `on_threads`.
`serial` compiles a function that only kernels call.  You may stop reading at `compiler/`.
"""
import minigrad.kernels.compiler        # noqa: F401  checks Numba's version first

import numba

from minigrad import compiled
from minigrad.kernels import (       # noqa: F401  as they are loaded, they plug themselves in
    attention, decoding, elementwise, embedding, frozen, matmul, mlp, optim, rows)
from minigrad.kernels.compiler import ahead, compiling, threads
from minigrad.kernels.compiler.memory import keep_freed_memory

PLUGGED_IN = compiling.MAY_COMPILE     # as each was loaded, it took the place of its formula

if PLUGGED_IN:
    compiled.announce = compiling.announce
    compiled.clock = compiling.clock
    compiled.compile_ahead = ahead.compile_ahead
    compiled.version = lambda: numba.__version__
    compiled.set_threads = numba.set_num_threads
    compiled.thread_count = threads.count
    compiled.thread_limit = threads.limit
keep_freed_memory()
