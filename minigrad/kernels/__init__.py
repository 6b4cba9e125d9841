"""The kernels: loops that Numba compiles.  They take and return arrays, and know no Tensor.

Above each stands what it computes in plain NumPy, which runs instead if Numba may not compile
(NUMBA_DISABLE_JIT=1), or cannot.
"""
from minigrad.kernels.activations import gelu, gelu_vjp, swiglu, swiglu_vjp
from minigrad.kernels.adamw import adamw, sum_of_squares
from minigrad.kernels.attention import attention, attention_vjp
from minigrad.kernels.build.memory import keep_freed_memory
from minigrad.kernels.decoding import decode
from minigrad.kernels.dropout import dropout
from minigrad.kernels.embedding import add_rows, ngram_rows, sum_rows
from minigrad.kernels.matmul import matmul
from minigrad.kernels.muon import muon
from minigrad.kernels.norm import norm, norm_vjp
from minigrad.kernels.rotary import norm_heads, norm_heads_vjp, rotate
from minigrad.kernels.sampling import draw
from minigrad.kernels.softmax import cross_entropy, softmax, softmax_vjp

__all__ = [name for name, f in list(globals().items()) if hasattr(f, "plain")]

keep_freed_memory()
