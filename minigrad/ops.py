"""Every op, gathered from the three files that define them."""
from minigrad.core import OPS
from minigrad.elementwise import (       # noqa: F401
    add, subtract, multiply, divide, power, negative, exp, log, sqrt, tanh, maximum, where)
from minigrad.network import (       # noqa: F401
    NORM_EPS, ROTARY_BASE, check_heads, sigmoid, silu, relu, gelu, linear, mlp, swiglu,
    embedding, embedding_bag, softmax, log_softmax, cross_entropy, layer_norm, rms_norm,
    dropout, scaled_dot_product_attention, self_attention, rotary, qk_norm, rotary_angles,
    RotaryScaling, slowing)
from minigrad.shapes import (       # noqa: F401
    sum_ as sum, mean, max_ as max, reshape, transpose, swapaxes, broadcast_to,
    concatenate, stack, split, take, matmul)

__all__ = list(OPS)
