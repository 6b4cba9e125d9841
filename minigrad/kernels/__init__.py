"""The loops that Numba compiles: arrays in, arrays out; nothing here has heard of a Tensor.

Where Numba is told not to compile (NUMBA_DISABLE_JIT=1), or cannot, the plain NumPy statements run
instead.
"""
import numba

from minigrad.kernels.memory import keep_freed_memory

if numba.config.DISABLE_JIT:
    from minigrad.kernels.plain import (adamw, add_rows, attention, attention_vjp, cross_entropy,
                                        decode, draw, dropout, gelu, gelu_vjp, matmul, muon,
                                        ngram_rows, norm, norm_heads, norm_heads_vjp, norm_vjp,
                                        rotate, softmax, softmax_vjp, sum_of_squares, sum_rows)
else:
    from minigrad.kernels.attention import attention, attention_vjp
    from minigrad.kernels.compiling import or_plain
    from minigrad.kernels.cross_entropy import cross_entropy
    from minigrad.kernels.decoding import decode
    from minigrad.kernels.drawing import draw
    from minigrad.kernels.dropout import dropout
    from minigrad.kernels.embedding import add_rows, sum_rows
    from minigrad.kernels.gelu import gelu, gelu_vjp
    from minigrad.kernels.matmul import matmul
    from minigrad.kernels.ngrams import ngram_rows
    from minigrad.kernels.norm import norm, norm_vjp
    from minigrad.kernels.orthogonal import muon
    from minigrad.kernels.rotary import norm_heads, norm_heads_vjp, rotate
    from minigrad.kernels.softmax import softmax, softmax_vjp
    from minigrad.kernels.update import adamw, sum_of_squares
    for _f in (adamw, add_rows, attention, attention_vjp, cross_entropy, decode, draw, dropout,
               gelu, gelu_vjp, matmul, muon, ngram_rows, norm, norm_heads, norm_heads_vjp, norm_vjp,
               rotate, softmax, softmax_vjp, sum_of_squares, sum_rows):
        globals()[_f.__name__] = or_plain(_f)

__all__ = ["adamw", "add_rows", "attention", "attention_vjp", "cross_entropy", "decode", "draw",
           "dropout", "gelu", "gelu_vjp", "matmul", "muon", "ngram_rows", "norm", "norm_heads",
           "norm_heads_vjp", "norm_vjp", "rotate", "softmax", "softmax_vjp", "sum_of_squares",
           "sum_rows"]

keep_freed_memory()
