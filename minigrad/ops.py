"""Every op, gathered from the three files that define them."""
from minigrad.core import OPS
from minigrad.elementwise import (       # noqa: F401
    add, subtract, multiply, divide, power, negative, abs_ as abs, square, exp, expm1, log, log1p,
    sqrt, sin, cos, tanh, maximum, minimum, clip, where)
from minigrad.network import (       # noqa: F401
    NORM_EPS, ROTARY_BASE, check_heads, sigmoid, silu, relu, leaky_relu, softplus, gelu, linear,
    mlp, swiglu, embedding, embedding_bag, softmax, log_softmax, cross_entropy, nll_loss, mse_loss,
    binary_cross_entropy_with_logits, layer_norm, rms_norm, dropout, scaled_dot_product_attention,
    self_attention, rotary, qk_norm, rotary_angles, RotaryScaling,
    rotary_frequencies, slowing)
from minigrad.shapes import (       # noqa: F401
    sum_ as sum, mean, var, std, max_ as max, min_ as min, cumsum, reshape, ravel, squeeze,
    expand_dims, transpose, swapaxes, broadcast_to, concatenate, stack, pad, split, take, matmul,
    einsum)

__all__ = list(OPS)
