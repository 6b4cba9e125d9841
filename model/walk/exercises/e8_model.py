"""Exercise 8: a model that learns to write.

All parts are there.  A text comes as ids, a whole number for each character.
The model says at every position which character it expects next, as V logits:

    x = the row of "tokens" for each id, plus the row of "positions" for each
        position, 0 first
    x = block(x), for each block in turn
    logits = norm(x) unembed

For example, with no blocks at all the logits depend on the character and its
position alone.

The weights are in a dictionary w:

    "tokens"             a row for each of the V characters, (V, C)
    "positions"          a row for each position of the longest text, (S, C)
    "blocks"             a list of dictionaries, one for each block
    "gain", "bias"       of the last norm, (C,)
    "unembed"            from channels to logits, (C, V)

Call block of exercise 7 and layer_norm of exercise 5: yours, if they are in
this folder and right, else ours.

Hints.  mg.embedding(ids, table) takes a row for each id.  The ids may be fewer
than the positions in the table: take the first T rows.  Return logits, without
softmax: the loss of exercise 2 has it inside.

When the function is right, it is trained on the plays of this project, for a
minute at most.  Counting which character follows which (bigrams) gives a loss
of 2.332 nats; counting triples (trigrams) gives 1.704.  Your model has to get
below both.
"""
import numpy as np

import minigrad as mg
from model.walk.exercises.e5_layer_norm import layer_norm
from model.walk.exercises.e7_block import block


def model(ids, w, heads):
    """Return a logit for each character that might come next, at every position.

    ids : (..., T), whole numbers      w : the weights, see above      heads : H
    returns : (..., T, V)
    """
    T = ids.shape[-1]
    x = mg.embedding(ids, w["tokens"]) + w["positions"][:T]
    for of_block in w["blocks"]:
        x = block(x, of_block, heads)
    return layer_norm(x, w["gain"], w["bias"]) @ w["unembed"]


def weights(rng, V, S, C, blocks):
    """Return weights drawn from a normal distribution, for V characters, S positions, C
    channels."""
    from model.walk.exercises.e7_block import weights as weights_of_block
    w = {"tokens": rng.standard_normal((V, C)), "positions": rng.standard_normal((S, C))}
    w["blocks"] = [weights_of_block(rng, C, 4 * C) for _ in range(blocks)]
    w["gain"], w["bias"] = rng.standard_normal((2, C))
    w["unembed"] = rng.standard_normal((C, V))
    return w


def cases(rng):
    w = weights(rng, 7, 5, 4, 2)
    large = [of_block | {"qkv": 100 * of_block["qkv"]} for of_block in w["blocks"]]
    yield np.array([1, 0]), weights(rng, 2, 2, 2, 0), 1
    yield np.array([3, 0, 2, 3]), weights(rng, 4, 4, 4, 2), 2
    yield rng.integers(7, size=(2, 5)), w, 2
    yield rng.integers(7, size=(2, 3)), w, 1
    yield rng.integers(7, size=(2, 5)), w | {"blocks": large}, 2
