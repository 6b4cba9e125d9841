"""The MLP of a block.  Its activation and the derivative are computed on each row of a product,
while it is still in the cache, by `finish_row` in matmul.py.
"""
import numpy as np

from minigrad import formulas
from minigrad.formulas import column_sum, rows
from minigrad.kernels.compiler.compiling import stands_in_for
from minigrad.kernels.elementwise import NUMBER_OF
from minigrad.kernels.matmul import product


@stands_in_for(formulas.mlp)
def mlp(x, up, up_bias, down, down_bias, activation):
    number = NUMBER_OF[activation]
    if activation == "relu2":
        hidden = kept = product(x, up.T, up_bias, activation=number)            # (..., F)
    else:
        hidden = np.empty((*x.shape[:-1], len(up)), x.dtype)
        kept = product(x, up.T, up_bias, activated=hidden, activation=number)
    return product(hidden, down.T, down_bias), kept


@stands_in_for(formulas.mlp_vjp)
def mlp_vjp(g, x, up, up_bias, down, down_bias, kept, activation):
    hidden = kept if activation == "relu2" else np.empty_like(kept)
    dh = product(g, down, slope_at=kept, activated=hidden, activation=NUMBER_OF[activation])
    dup = product(rows(dh).T, rows(x))
    ddown = product(rows(g).T, rows(hidden))
    dup_bias = None if up_bias is None else column_sum(dh)
    ddown_bias = None if down_bias is None else column_sum(g)
    return product(dh, up), dup, dup_bias, ddown, ddown_bias
