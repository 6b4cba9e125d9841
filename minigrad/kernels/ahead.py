"""Compile a training step's kernels in two processes at once, when they are not on disk yet.

This process compiles the two slowest kernels of the forward pass, and Muon's; a second process
compiles the others.  Those are then loaded from disk or, if the second process failed, compiled
when they are needed.
"""
import subprocess
import sys

import numba
import numpy as np

from minigrad.kernels.build import compiling

COMMAND = ("import sys; sys.path[:] = {path!r}; "
           "from minigrad.kernels.ahead import compile_others; compile_others({qk_norm}, {ngrams})")


def compile_ahead(elements: int, muon: bool = False, qk_norm: bool = False, ngrams: bool = False
                  ) -> None:
    """Compile, for float32, the kernels of a training step whose activations have `elements`
    elements; with Muon, normed queries and keys, and n-gram embeddings if the step has them.

    A step too small for threads needs other versions of fewer kernels.  They are compiled when they
    are needed.
    """
    if numba.config.DISABLE_JIT or compiling.threads_for(elements) == 1:
        return
    missing = [kernel for kernel in others(qk_norm, ngrams) if not kernel.on_disk()]
    if missing and compiling.folder():
        compiling.say_compiling()
        command = COMMAND.format(path=sys.path, qk_norm=qk_norm, ngrams=ngrams)
        process = subprocess.Popen([sys.executable, "-c", command],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        compiling.elsewhere.update((kernel.__name__, process) for kernel in missing)
    for kernel in own(muon):
        kernel.compile(np.dtype(np.float32))


def own(muon: bool) -> list:
    """Return the kernels of a step that this process compiles."""
    from minigrad.kernels.attention import attention_kernel
    from minigrad.kernels.matmul import matmul_kernel
    from minigrad.kernels.muon import muon_kernel
    return [matmul_kernel, attention_kernel] + [muon_kernel] * muon


def compile_others(qk_norm: bool, ngrams: bool) -> None:
    """Compile the other kernels; the second process runs this."""
    for kernel in others(qk_norm, ngrams):
        kernel.compile(np.dtype(np.float32))


def others(qk_norm: bool, ngrams: bool) -> list:
    """Return the other kernels of a step, the slowest to compile first."""
    from minigrad.kernels.attention import attention_vjp_kernel
    from minigrad.kernels.adamw import adamw_kernel, sum_of_squares_kernel
    from minigrad.kernels.embedding import add_rows_kernel, ngram_rows_kernel, sum_rows_kernel
    from minigrad.kernels.norm import norm_kernel, norm_vjp_kernel
    from minigrad.kernels.rotary import norm_heads_kernel, norm_heads_vjp_kernel
    from minigrad.kernels.softmax import cross_entropy_kernel
    return [attention_vjp_kernel, *[norm_heads_vjp_kernel, norm_heads_kernel] * qk_norm,
            norm_vjp_kernel, norm_kernel, cross_entropy_kernel, *[sum_rows_kernel] * ngrams,
            add_rows_kernel, adamw_kernel, sum_of_squares_kernel, *[ngram_rows_kernel] * ngrams]
