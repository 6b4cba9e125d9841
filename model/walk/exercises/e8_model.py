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
    def drawn(**shapes):
        return {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    return drawn(tokens=(V, C), positions=(S, C)) | {"blocks": [
        drawn(gain1=C, bias1=C, qkv=(C, 3 * C), out=(C, C), gain2=C, bias2=C, up=(C, 4 * C),
              down=(4 * C, C)) for _ in range(blocks)]} | drawn(gain=C, bias=C, unembed=(C, V))


def cases(rng):
    two, square = weights(rng, 7, 5, 4, 2), weights(rng, 4, 4, 4, 2)
    single = {name: [{n: a.astype(np.float32) for n, a in of_block.items()} for of_block in part]
              if name == "blocks" else part.astype(np.float32) for name, part in two.items()}
    return [(np.array([1, 0]), weights(rng, 2, 2, 2, 0), 1), (np.array([3, 0, 2, 3]), square, 2),
            (rng.integers(7, size=(2, 5)), two, 2), (rng.integers(7, size=(2, 3)), two, 1),
            (rng.integers(7, size=(2, 4)), single, 2),
            (rng.integers(7, size=(2, 5)), two | {"blocks": [
                of_block | {"qkv": 100 * of_block["qkv"]} for of_block in two["blocks"]]}, 2)]


ROWS = 'w["positions"][:T]'
NORMED, PLACED = 'layer_norm(x, w["gain"], w["bias"])', f" + {ROWS}"
LOGITS = f'{NORMED} @ w["unembed"]'
EACH, BLOCK = 'in w["blocks"]:', "x = block(x, of_block, heads)"
MISTAKES = {
    "The positions are missing, so the model cannot tell the order of what it sees.": {PLACED: ""},
    "Every position gets the row of position 0.": {ROWS: 'w["positions"][0]'},
    "The positions are the last rows of the table; take the first.": {"[:T]": "[-T:]"},
    "The positions run backwards: position 0 is the first character's.": {"[:T]": "[:T][::-1]"},
    "The positions are rows 1 to T; take the first T rows, from row 0.": {"[:T]": "[1:T + 1]"},
    "All rows of the table of positions are taken; take the first T.": {"[:T]": ""},
    "The positions multiply the rows of the characters; add them.": {PLACED: f" * {ROWS}"},
    "The positions are added before each block; add them once.": {"block(x,": f"block(x{PLACED},"},
    "The positions are looked up by the characters' ids; look them up by their place in the text.":
        {ROWS: 'w["positions"][np.minimum(ids, len(w["positions"]) - 1)]'},
    "The positions alone are embedded; the characters are missing.": {"x = mg": "x = 0.0 * mg"},
    "The characters' rows are multiplied by sqrt(C).": {"x = mg": 'x = w["gain"].size ** 0.5 * mg'},
    "The blocks are missing.": {BLOCK: "pass"},
    "Only the first block is used.": {EACH: 'in w["blocks"][:1]:'},
    "Only the last block counts; each should read the one before.": {EACH: 'in w["blocks"][-1:]:'},
    "Every block uses the weights of the first.": {"x, of_block": 'x, w["blocks"][0]'},
    "The blocks run in the wrong order: begin with the first.": {EACH: 'in w["blocks"][::-1]:'},
    "The input of a block is added to its output once too often.": {"x = block(": "x = x + block("},
    "The blocks have one head, whatever `heads` says.": {"of_block, heads)": "of_block, 1)"},
    "The last norm is missing.": {NORMED: "x"},
    "The last norm stands before the blocks; it belongs after them.":
        {NORMED: "x", PLACED: f"{PLACED}\n    x = {NORMED}"},
    "The last norm is used after every block; it belongs after the last one.":
        {BLOCK: f"{BLOCK}\n        x = {NORMED}", f"return {NORMED}":
         f'return (x if w["blocks"] else {NORMED})'},
    "Gain and bias of the last norm are swapped.": {NORMED: 'layer_norm(x, w["bias"], w["gain"])'},
    "The logits come from the table of the characters, transposed; use \"unembed\", their own.":
        {'w["unembed"]': 'w["tokens"].T'},
    "\"unembed\" is transposed; it is (C, V) already.": {'w["unembed"]': 'w["unembed"].T'},
    "These are probabilities; return logits, without softmax.": {LOGITS: f"mg.softmax({LOGITS})"},
    "These are log-probabilities; return the logits.": {LOGITS: f"mg.log_softmax({LOGITS})"},
    "The logits are bent by the GELU; they are a plain product.": {LOGITS: f"mg.gelu({LOGITS})"},
    "These are logits at the last position alone.": {LOGITS: f"({LOGITS})[..., -1, :]"},
    "No gradient reaches the characters, read as arrays.": {'"tokens"])': '"tokens"].data)'},
    "No gradient reaches the positions, read as arrays (.data).": {ROWS: 'w["positions"].data[:T]'},
}
