"""The head made by hand does what its text says, and a step of training lowers the loss."""
import ast
import inspect

import numpy as np

from model.walk.station import Table
from model.walk.stations.purpose import MATRICES, PHRASE, ROWS, made_by_hand, one_step

SENTENCE = "Your journey starts with one step".split()


def tables(parts):
    return {part.title: part.values for part in parts if isinstance(part, Table)}


def test_nouns_give_their_weights_to_their_own_adjectives_and_get_what_these_hand_over():
    shown = tables(made_by_hand())
    query = ROWS @ MATRICES[:2].T
    key = ROWS @ MATRICES[2:4].T
    scores = query[[3, 7]] @ key.T              # of "creature" and "forest"
    assert np.array_equal(shown["Scores of the nouns"], scores)
    assert list(scores[0][[1, 2, 6]]) == [20, 20, 12] and 2900 < np.exp(20 - 12) < 3100
    expected = np.zeros((2, len(PHRASE)))
    expected[0, [1, 2]] = 0.5                # "fluffy" and "blue"
    expected[1, 6] = 1                      # "verdant"
    assert np.allclose(shown["Weights of the nouns"], expected, atol=0.002)
    own, fluffy, blue, context, both = shown['What "creature" gets']
    assert np.allclose(context, (fluffy + blue) / 2, atol=0.002)
    assert np.array_equal(own + context, both) and (both[1:3] > 0.49).all()


def test_a_step_lowers_the_loss_and_raises_the_probability_of_the_word_that_came():
    shown = tables(one_step(SENTENCE))
    p = shown['Probabilities after "one"']
    losses = shown["Losses"]
    assert np.allclose(p.sum(axis=1), 1) and p[1, 5] > p[0, 5] + 0.04
    assert np.allclose(-np.log(p[:, 5]), losses[:, 4])
    assert (losses[1] < losses[0]).all() and np.allclose(losses[:, :5].mean(axis=1), losses[:, 5])


def test_the_lines_of_the_step_that_the_text_shows_are_those_that_ran_one_after_another():
    ran = [ast.unparse(node) for node in ast.parse(inspect.getsource(one_step)).body[0].body]
    text = next(part for part in one_step(SENTENCE) if "backward()" in part)
    lines = [line.strip() for line in text.splitlines() if line.startswith(" " * 12)]
    first = ran.index(lines[0])
    assert len(lines) == 3 and ran[first:first + 3] == lines
