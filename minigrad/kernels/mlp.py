"""The MLP of a block.  Its activation and the derivative are computed on each row of a product,
while it is still in the cache, by `finish_row` in matmul.py.
"""
import numpy as np

from minigrad import formulas
from minigrad.formulas import column_sum, rows
from minigrad.kernels.compiler.compiling import stands_in_for
from minigrad.kernels.elementwise import NUMBER_OF
from minigrad.kernels.matmul import compute, prepare


@stands_in_for(formulas.mlp)
def mlp(x, up, up_bias, down, down_bias, activation):
    number = NUMBER_OF[activation]
    if activation == "relu2":
        kept = prepare(x, up.T, up_bias, activation=number)             # (..., F)
        hidden = kept.value
    else:
        hidden = np.empty((*x.shape[:-1], len(up)), x.dtype)
        kept = prepare(x, up.T, up_bias, activated=hidden, activation=number)
    y = prepare(hidden, down.T, down_bias)
    compute(kept, y)
    return y.value, kept.value


@stands_in_for(formulas.mlp_vjp)
def mlp_vjp(g, x, up, up_bias, down, down_bias, kept, activation):
    hidden = kept if activation == "relu2" else np.empty_like(kept)
    number = NUMBER_OF[activation]
    dh = prepare(g, down, slope_at=kept, activated=hidden, activation=number)
    dx = prepare(dh.value, up)
    compute(dh, dx)
    dup = prepare(rows(dh.value).T, rows(x))
    ddown = prepare(rows(g).T, rows(hidden))
    compute(dup, ddown)
    dup_bias = None if up_bias is None else column_sum(dh.value)
    ddown_bias = None if down_bias is None else column_sum(g)
    return dx.value, dup.value, dup_bias, ddown.value, ddown_bias
