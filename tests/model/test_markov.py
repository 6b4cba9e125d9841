"""Training reaches the entropy of a source that is known exactly, and never goes below it.

A loss above the entropy rate is something not learnt; one below it by more than the sampling error
would be a look at the answer.  Losses and entropies are in nats per character.
"""
import math

import numpy as np
import pytest

import data
import minigrad as mg
import train
from model.settings import Settings
from tests.documents import WORDS, stated
from tests.kit import run_of

pytestmark = pytest.mark.late
V = 5                                                       # characters
BACK, COPIED = 3, 0.9                                       # of the source
T = 6                                                       # of a window


def echo(n, rng):
    """n characters, each a copy of the one BACK places before, or now and then any at all."""
    ids = rng.integers(V, size=n)
    for t in np.flatnonzero(rng.random(n) < COPIED):
        if t >= BACK:
            ids[t] = ids[t - BACK]
    return ids


def trained(ids):
    """A tiny model, trained on these ids as train.py trains."""
    text = data.Text("".join(map(chr, ids + ord("a"))))
    s = Settings(n_layer=1, n_head=2, n_embd=24, block_size=T, batch_size=24,
                 max_iters=500, learning_rate=7e-3, min_lr=0.0, warmup_iters=20,
                 schedule="linear", decay_share=1.0, weight_decay=0.0)
    run = run_of(s, text)
    for _ in train.steps(run):
        pass
    return run.model


def surprises(model, ids):
    """-ln p of every character that follows a place in a window, (N, T)."""
    N = (len(ids) - 1) // T
    x, y = ids[:N * T].reshape(N, T), ids[1:N * T + 1].reshape(N, T)        # windows side by side
    with mg.no_grad():
        log_p = mg.log_softmax(model(x)).data
    return -np.take_along_axis(log_p, y[..., None], axis=-1)[..., 0].astype(np.float64)


def mean_and_error(losses):
    """The mean, and its standard error."""
    return losses.mean(), losses.std(ddof=1) / math.sqrt(losses.size)


def test_a_model_of_a_markov_source_reaches_its_entropy_rate_and_no_less():
    rng, p = np.random.default_rng(2), np.full(V, (1 - COPIED) / V)
    p[0] += COPIED
    rate = float(-(p * np.log(p)).sum())
    model = trained(echo(50_000, rng))
    losses = surprises(model, echo(40_000, rng))
    loss, error = mean_and_error(losses[:, BACK - 1:])      # places that see BACK characters
    assert error < 0.007
    assert rate - 4 * error < loss < rate + 0.03
    assert loss < math.log(V) - 1
    for early in losses[:, :BACK - 1].T:                    # and those that cannot see so far
        loss, error = mean_and_error(early)
        assert math.log(V) - 4 * error < loss < math.log(V) + 0.03


def test_the_source_is_the_one_that_the_document_describes():
    assert stated("docs/trust.md", r"(\w+) of ten characters copy the one (\w+) places before") == [
        (WORDS[round(10 * COPIED)], WORDS[BACK])]
