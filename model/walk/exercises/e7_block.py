"""Exercise 7: a block.

A transformer is a stack of equal blocks.  A block has two parts.  Attention
lets each word gather from others.  The MLP (multi-layer perceptron) then works
on each word alone: it makes the word's row wider, applies the GELU to each
number, and makes the row narrow again.  Neither part replaces x.  Each reads a
normed copy and adds what it has found, which is called a residual connection.
So x runs through the whole stack like a stream, and gradients run back through
it:

    x = x + attention(norm1(x))
    x = x + mlp(norm2(x))
    mlp(z) = gelu(z up) down

For example, if the matrices out and down are 0, both parts add nothing, and the
block returns x as it came.

The weights are in a dictionary w of Tensors, by these names:

    "gain1", "bias1"     of the first norm, (C,)
    "qkv", "out"         of attention, (C, 3 C) and (C, C)
    "gain2", "bias2"     of the second norm, (C,)
    "up", "down"         of the MLP, (C, F) and (F, C); it has no biases

Call multi_head of exercise 4 and layer_norm of exercise 5: yours, if they are
in this folder and right, else ours.  The GELU is mg.gelu.
"""
import numpy as np

import minigrad as mg
from model.walk.exercises.e4_heads import multi_head
from model.walk.exercises.e5_layer_norm import layer_norm


def block(x, w, heads):
    """Return x with what attention and the MLP add to it.

    x : (..., T, C)      w : a dictionary of Tensors, see above      heads : H
    returns : (..., T, C)
    """
    read = layer_norm(x, w["gain1"], w["bias1"])
    middle = x + multi_head(read, w["qkv"], w["out"], heads)
    read = layer_norm(middle, w["gain2"], w["bias2"])
    return middle + mg.gelu(read @ w["up"]) @ w["down"]


def weights(rng, C, F):
    """Return weights of a block with C channels, F in its MLP."""
    shapes = {"gain1": C, "bias1": C, "qkv": (C, 3 * C), "out": (C, C), "gain2": C, "bias2": C,
              "up": (C, F), "down": (F, C)}
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


def cases(rng):
    normal = rng.standard_normal
    w = weights(rng, 4, 6)
    query = 100 * w["qkv"][:, :4]
    yield normal((2, 2)).round(1), weights(rng, 2, 3), 1
    yield normal((3, 4)), w, 2
    yield normal((2, 3, 4)), w, 4
    yield normal((4, 4)), weights(rng, 4, 4), 2
    # Large scores, of a word for itself far below 0
    yield normal((5, 4)), w | {"qkv": np.concatenate([query, -query, query], axis=1)}, 2
