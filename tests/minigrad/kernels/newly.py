"""Kernels that nobody has compiled, what stands for the compiler, and the code that it makes."""
import time

import numpy as np

from minigrad.kernels.compiler import compiling
from minigrad.kernels.compiler.compiling import C1
from minigrad.kernels.compiler.parallel import share


def doubled():
    """A kernel that nobody has compiled, and what is known of it."""
    @compiling.kernel
    def double(thread, threads, x: C1):
        for i in share(x.size, thread, threads):
            x[i] *= 2
    return double, compiling.KERNELS["double"]


class Slow:
    """What stands for a kernel whose compilation takes a while."""
    made = 0

    def __init__(self, *arguments):
        Slow.made += 1
        time.sleep(0.05)

    def compile(self, signature):
        pass

    def __call__(self, *arguments):
        pass

    disable_compile = __call__


def code_of(kernel, dtype=np.float32):
    """LLVM's optimised code of a kernel's version for a float type."""
    kernel.compile(dtype)
    compiled, = kernel.versions[np.dtype(dtype)].overloads.values()
    return str(compiled.library._get_module_for_linking())
