"""Three recorded graphs to learn from: a neuron, attention between two words, one block."""
import dataclasses
import math
import pathlib

import numpy as np

import minigrad as mg
from minigrad import Recorder, Tensor, compiled
from model.attention import attention, causal_mask
from model.checkpoint import load_checkpoint
from model.transformer import Transformer, TransformerConfig

BATCH = 12          # sequences, as in training, so that the same kernels run
LONGEST = 1024      # characters of each; a block may have millions


def neuron() -> Recorder:
    """One neuron, by hand: sigmoid(w x + b), and how far it is from 1, squared.

    sigmoid(0) is 1/2, and its slope there is 1/4.  The error is used twice, so its
    gradient is a sum.
    """
    w = Tensor([1.0, -1.0], requires_grad=True)
    b = Tensor(1.0, requires_grad=True)
    x = np.array([2.0, 3.0])
    with Recorder(w=w, b=b, x=x) as r:
        y = mg.sigmoid((w * x).sum() + b)
        error = y - 1.0
        loss = error * error
        loss.backward()
    return r.name(y=y, error=error, loss=loss)


def two_words() -> Recorder:
    """Attention between two words, by hand: a number each for query, key and value.

    The first word sees itself only.  The second one's scores differ by ln 3, so it
    takes 1/4 of the first value and 3/4 of the second: 4 / 4 + 8 * 3 / 4 = 7.
    """
    query = Tensor([[1.0], [1.0]], requires_grad=True)
    key = Tensor([[0.0], [math.log(3)]], requires_grad=True)
    value = Tensor([[4.0], [8.0]], requires_grad=True)
    mask = causal_mask(2, dtype=np.float64)
    with Recorder(query=query, key=key, value=value, mask=mask) as r:
        mixed, weights = attention(query, key, value, mask)
        loss = mixed.sum()
        loss.backward()
    return r.name(mixed=mixed, weights=weights, loss=loss)


def one_block(config: TransformerConfig = TransformerConfig(vocab_size=62)) -> Recorder:
    """A transformer of one block, from characters to the loss, before training.

    A value that is used twice has a gradient of two parts: the token table, which
    is both input and output, and each value that a residual passes around a layer.
    """
    compiled.compile_ahead()
    model = Transformer(dataclasses.replace(config, n_layer=1))
    ids = np.random.default_rng(0).integers(config.vocab_size,
                                            size=(BATCH, 1 + min(LONGEST, config.block_size)))
    ids, targets = ids[:, :-1], ids[:, 1:]
    with Recorder(ids=ids, targets=targets, **dict(model.named_parameters())) as r:
        logits = model(ids)
        loss = mg.cross_entropy(logits, targets)
        loss.backward()
    return r.name(logits=logits, loss=loss)


GRAPHS = {"expression": neuron, "attention": two_words, "block": one_block}


def recorded(of: str, out_dir: str) -> Recorder:
    """Return one of GRAPHS; that of a block has the shapes of the model in a folder, if there is
    one."""
    checkpoint = pathlib.Path(out_dir) / "ckpt.npz"
    if of == "block" and checkpoint.exists():
        return one_block(load_checkpoint(checkpoint).model.config)
    return GRAPHS[of]()
