"""The kernels: loops that Numba compiles.  They take and return arrays, and know no Tensor.

If Numba may not compile (NUMBA_DISABLE_JIT=1), or cannot, the plain NumPy versions run instead.
"""
import numba

from minigrad.kernels import plain
from minigrad.kernels.build.memory import keep_freed_memory

__all__ = ["adamw", "add_rows", "attention", "attention_vjp", "cross_entropy", "decode", "draw",
           "dropout", "gelu", "gelu_vjp", "matmul", "muon", "ngram_rows", "norm", "norm_heads",
           "norm_heads_vjp", "norm_vjp", "rotate", "softmax", "softmax_vjp", "sum_of_squares",
           "sum_rows"]

if numba.config.DISABLE_JIT:
    globals().update({name: getattr(plain, name) for name in __all__})
else:
    from minigrad.kernels.adamw import adamw, sum_of_squares
    from minigrad.kernels.attention import attention, attention_vjp
    from minigrad.kernels.build.compiling import or_plain
    from minigrad.kernels.cross_entropy import cross_entropy
    from minigrad.kernels.decoding import decode
    from minigrad.kernels.dropout import dropout
    from minigrad.kernels.embedding import add_rows, sum_rows
    from minigrad.kernels.gelu import gelu, gelu_vjp
    from minigrad.kernels.matmul import matmul
    from minigrad.kernels.muon import muon
    from minigrad.kernels.ngrams import ngram_rows
    from minigrad.kernels.norm import norm, norm_vjp
    from minigrad.kernels.rotary import norm_heads, norm_heads_vjp, rotate
    from minigrad.kernels.sampling import draw
    from minigrad.kernels.softmax import softmax, softmax_vjp
    globals().update({name: or_plain(globals()[name], getattr(plain, name)) for name in __all__})

keep_freed_memory()
