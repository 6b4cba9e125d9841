"""A head with a purpose, made by hand; and a step of training, which is how others get theirs."""
from collections.abc import Iterator, Sequence

import numpy as np

import minigrad as mg
from minigrad import Tensor
from minigrad.optim import SGD
from model.transformer import Transformer, TransformerConfig
from model.walk.station import Table, Trace

PHRASE = "a fluffy blue creature roamed the verdant forest".split()
FEATURES = ["noun", "soft", "colour", "half"]
ROWS = np.array([[0, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1], [1, 0, 0, 1],
                 [0, 0, 0, -1], [0, 0, 0, -1], [0, 0, 1, -1], [1, 0, 0, -1]], np.float32)
MATRICES = np.array([[4, 0, 0, 0], [0, 0, 0, 2], [0, 4, 4, 0], [0, 0, 0, 2],
                     [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]], np.float32)


def made_by_hand() -> Iterator[str | Table]:
    """Yield the parts that explain a head in which nouns ask and adjectives answer."""
    names = ["creature", "forest"]
    nouns = Tensor(ROWS[[3, 7]])
    x = Tensor(ROWS)
    w_query, w_key, w_value = np.split(MATRICES, [2, 4])
    with Trace() as trace:
        queries, keys, values = nouns @ w_query.T, x @ w_key.T, x @ w_value.T
        scores = queries @ keys.T
        weights = mg.softmax(scores)
        context = weights @ values
    yield """
        First we make a head by hand, in which nouns ask and adjectives answer.  Each word of "a
        fluffy blue creature roamed the verdant forest" gets four channels: is it a noun, is it
        soft, has it a colour, and does it stand in the first half (1) or in the second (-1)?"""
    yield Table("Eight words", ROWS, PHRASE, FEATURES, digits=0)
    yield Table("The matrices", MATRICES, ["query 1", "query 2", "key 1", "key 2",
                                           *(f"value {c}" for c in range(1, 5))], FEATURES,
                digits=0)
    yield """
        The query of "creature", `q4`, is (4, 2): it asks for an adjective (4) in the first half
        (2).  The keys of "fluffy" and "blue", `k2` and `k3`, are (4, 2) as well, and both scores
        are `4 * 4 + 2 * 2 = 20`.  The key of "verdant" is (4, -2), and its score `4 * 4 - 2 * 2 =
        12`."""
    yield trace.table("Scores of the nouns", scores, names, PHRASE, digits=0)
    yield trace.table("Weights of the nouns", weights, names, PHRASE, ("query", "key"),
                      digits=2)
    yield """
        `e^20` is 3,000 times `e^12`.  So "creature" gives one half each to "fluffy" and "blue", and
        "forest" gives all to "verdant".  The values hand over softness and colour.  Half of each is
        added to the row that the word had:"""
    yield Table('What "creature" gets', np.stack([ROWS[3], *values.data[1:3], context.data[0],
                                                  ROWS[3] + context.data[0]]),
                ["its embedding", 'value of "fluffy"', 'value of "blue"', "context vector",
                 "embedding + context"], FEATURES, digits=2)


def one_step(words: Sequence[str]) -> Iterator[str | Table]:
    """Yield what a small model of these words predicts, before a step of training and after it."""
    model = Transformer(TransformerConfig(len(words), len(words), n_layer=2, n_head=1, n_embd=3), 1)
    for p in model.parameters():
        p.data *= 20 if p.ndim == 2 else 1      # so that four digits show it
    optimizer = SGD(model.parameters(), lr=0.1)
    ids = np.arange(len(words) - 1)
    targets = np.arange(1, len(words))
    before = mg.softmax(model(ids)).data                                # (T, V)
    loss = mg.cross_entropy(model(ids), targets)
    loss.backward()
    optimizer.step()
    p = np.stack([before, mg.softmax(model(ids)).data])                 # (2, T, V)
    losses = -np.log(p[:, ids, targets])                                # (2, T)
    yield f"""
        Let a model of two blocks read "{' '.join(words[:-1])}".  Its last row becomes six
        probabilities.  The text goes on with "{words[-1]}".  The loss is minus the logarithm of the
        probability that "{words[-1]}" got: 0 for a probability of 1, and 1.79 for one sixth.

        Every position predicts at once, as the mask hides what comes: "Your" predicts "journey",
        and so on.  So a text of `T` words is `T` examples, and its loss is the mean of theirs.  A
        step of training has three lines:

            loss = mg.cross_entropy(model(ids), targets)
            loss.backward()
            optimizer.step()

        The second finds for each number of the model how the loss changes with it.  The third
        moves each number a little, in the direction in which the loss falls."""
    when = ["before the step", "after it"]
    yield Table(f'Probabilities after "{words[-2]}"', p[:, -1], when, words)
    yield Table("Losses", np.column_stack([losses, losses.mean(axis=1)]), when,
                [*words[1:], "mean"])
    yield "The loss has fallen.  `python train.py` makes thousands of such steps."
