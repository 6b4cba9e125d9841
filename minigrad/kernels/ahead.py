"""Compile a training step's kernels in two processes at once, when none is on disk yet.

A second process compiles the kernels that go backward, while this one compiles those that go
forward as it comes to them; it then finds the others on disk, or, if the second process failed,
compiles them itself.
"""
import subprocess
import sys

import numba
import numpy as np

from minigrad.kernels import compiling

COMMAND = ("import sys; sys.path[:] = {path!r}; "
           "from minigrad.kernels.ahead import compile_backward; compile_backward()")


def compile_ahead() -> bool:
    """Start the second process if there is need; returns whether kernels must be compiled."""
    threads = numba.get_num_threads()
    if numba.config.DISABLE_JIT or compiling.folder(parallel=threads > 1).exists():
        return False
    if threads > 1:
        process = subprocess.Popen([sys.executable, "-c", COMMAND.format(path=sys.path)],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        compiling.elsewhere.update((kernel.__name__, process) for kernel in backward_kernels())
    return True


def compile_backward() -> None:
    """Compile every kernel that only backward and the optimiser call, for float32 and threads."""
    for kernel in backward_kernels():
        kernel.compile(np.dtype(np.float32), True)


def backward_kernels() -> list:
    """Those kernels, the slowest to compile first."""
    from minigrad.kernels.attention import attention_vjp_kernel
    from minigrad.kernels.cross_entropy import losses_vjp_kernel
    from minigrad.kernels.embedding import add_rows_kernel
    from minigrad.kernels.gelu import gelu_vjp_kernel
    from minigrad.kernels.norm import norm_vjp_kernel
    from minigrad.kernels.update import adamw_kernel, sum_of_squares_kernel
    return [attention_vjp_kernel, norm_vjp_kernel, gelu_vjp_kernel, losses_vjp_kernel, adamw_kernel,
            sum_of_squares_kernel, add_rows_kernel]
