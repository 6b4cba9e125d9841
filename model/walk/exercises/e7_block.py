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
    shapes = dict(gain1=C, bias1=C, qkv=(C, 3 * C), out=(C, C), gain2=C, bias2=C, up=(C, F),
                  down=(F, C))
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


def cases(rng):
    w, square = weights(rng, 4, 6), weights(rng, 4, 4)
    return [(rng.standard_normal((2, 2)).round(1), weights(rng, 2, 3), 1),
            (rng.standard_normal((3, 4)), w, 2), (rng.standard_normal((2, 3, 4)), w, 4),
            (rng.standard_normal((4, 4)), square, 2),
            (rng.standard_normal((2, 3, 4)).astype(np.float32),
             {name: a.astype(np.float32) for name, a in w.items()}, 2),
            # Large scores, of a word for itself far below 0
            (rng.standard_normal((5, 4)), w | {"qkv": 100 * np.tile(w["qkv"][:, :4], (1, 3))
                                               * np.repeat([1, -1, 1], 4)}, 2)]


FOUND = 'multi_head(read, w["qkv"], w["out"], heads)'
NORM1, NORM2 = 'layer_norm(x, w["gain1"], w["bias1"])', 'layer_norm(middle, w["gain2"], w["bias2"])'
MLP = 'mg.gelu(read @ w["up"]) @ w["down"]'
FIRST, SECOND = f"x + {FOUND}", f"middle + {MLP}"
NO_NORM1, NO_NORM2 = {f"read = {NORM1}": "read = x"}, {f"read = {NORM2}": "read = middle"}
MISTAKES = {
    "The first residual is missing: add what attention finds to x.": {FIRST: FOUND},
    "The second residual is missing: add what the MLP finds to x.": {SECOND: MLP},
    "The first residual starts from the normed x; add to x itself.": {FIRST: f"read + {FOUND}"},
    "The second residual starts from the normed x; add to x itself.": {SECOND: f"read + {MLP}"},
    "The second residual starts from the block's input, without attention.": {SECOND: f"x + {MLP}"},
    "The second residual adds the block's input once more.": {SECOND: f"x + {SECOND}"},
    "The norms stand after the sums (post-norm); here each part reads a normed copy of x.":
        NO_NORM1 | NO_NORM2 | {FIRST: NORM1.replace("x", FIRST, 1),
                               SECOND: NORM2.replace("middle", SECOND)},
    "The norms stand on what the parts return; they belong on what the parts read.":
        NO_NORM1 | NO_NORM2 | {FOUND: NORM1.replace("x", FOUND, 1),
                               MLP: NORM2.replace("middle", MLP)},
    "There is a third norm at the end; a block has two.": {SECOND: NORM2.replace("middle", SECOND)},
    "The first norm is missing: attention reads x as it is.": NO_NORM1,
    "The second norm is missing: the MLP reads the stream as it is.": NO_NORM2,
    "Both norms use gain1 and bias1; the second has its own.": {NORM2: NORM2.replace("2", "1")},
    "The norms have exchanged weights.":
        {NORM1: NORM1.replace("1", "2"), NORM2: NORM2.replace("2", "1")},
    "Gain and bias are exchanged where the norms are called.":
        {NORM1: 'layer_norm(x, w["bias1"], w["gain1"])',
         NORM2: 'layer_norm(middle, w["bias2"], w["gain2"])'},
    "The MLP reads the same normed x as attention; norm x anew.": {f"read = {NORM2}": "pass"},
    "The MLP reads attention's part without x.": {NORM2: NORM2.replace("middle", "middle - x")},
    "Both read the same x; the MLP must read the sum.": {NORM2: NORM2.replace("middle", "x")},
    "The MLP comes before attention; attention is first.":
        {NORM1: NORM1.replace("1", "2"), FIRST: f"x + {MLP}",
         NORM2: NORM2.replace("2", "1"), SECOND: f"middle + {FOUND}"},
    "The GELU is missing: without it, up and down are one matrix.": {"mg.gelu(": "("},
    "The MLP uses the GELU by tanh; here it is the exact one.": {'w["up"])': 'w["up"], "tanh")'},
    "The GELU stands after down; it belongs before.": {MLP: 'mg.gelu(read @ w["up"] @ w["down"])'},
    "The GELU stands before up; it belongs after it.": {MLP: 'mg.gelu(read) @ w["up"] @ w["down"]'},
    "The GELU is applied twice, before down and after it.": {MLP: f"mg.gelu({MLP})"},
    "up and down are exchanged.": {MLP: 'mg.gelu(read @ w["down"]) @ w["up"]'},
    "up and down are transposed, as PyTorch's layers have them; here it is z @ up.":
        {MLP: 'mg.gelu(read @ w["up"].T) @ w["down"].T'},
    "Attention is missing: the block has its MLP only.": {FIRST: "x"},
    "The MLP is missing: the block has its attention only.": {SECOND: "middle"},
    "Attention has one head, whatever `heads` says.": {'w["out"], heads)': 'w["out"], 1)'},
    "The matrix out is applied twice: multi_head has applied it.": {FOUND: f'{FOUND} @ w["out"]'},
    "The residuals carry no gradient: x was added as an array (.data).":
        {FIRST: f"x.detach() + {FOUND}", SECOND: f"middle.detach() + {MLP}"},
    "No gradient reaches attention: its result is an array.": {FIRST: f"{FIRST}.detach()"},
}
MISTAKES |= {f"The MLP bends by {name}; here it is the GELU, mg.gelu.": {"mg.gelu": f"mg.{name}"}
             for name in ("relu", "silu", "sigmoid", "tanh")}
