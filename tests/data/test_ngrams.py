from collections import Counter

import numpy as np
import pytest

from data import ngram_losses, ngrams, read_text, split

FEW, MANY = 3, 1_000_000    # ids: a tiny text is counted in a table, or by sorting


def foretold(train, history, x, order, vocab_size):
    """The published formula with dictionaries: p(x | the last order - 1 ids of history)."""
    if order == 0:
        return 1 / vocab_size
    shorter = foretold(train, history, x, order - 1, vocab_size)
    if len(history) < order - 1:
        return shorter
    context = history[len(history) - order + 1:]
    followers = Counter(train[i + order - 1] for i in range(len(train) - order + 1)
                        if train[i:i + order - 1] == context)
    if not followers:
        return shorter
    return (followers[x] + len(followers) * shorter) / (followers.total() + len(followers))


@pytest.fixture(scope="module")
def lantern():
    """The ids of the built-in text in two parts, and the number of different characters."""
    letters, ids = np.unique(list(read_text("lantern")), return_inverse=True)
    return *split(ids), len(letters)


@pytest.mark.parametrize("vocab_size", [FEW, 7, MANY])
@pytest.mark.parametrize("n_train", [0, 1, 2, 3, 40])
def test_probabilities_are_those_of_the_published_formula_and_sum_to_one(vocab_size, n_train):
    rng = np.random.default_rng(n_train)
    train = rng.integers(min(vocab_size, 5), size=n_train)
    val = np.append(rng.integers(min(vocab_size, 6), size=25), vocab_size - 1)
    for order, p in enumerate(ngrams.ngram_probabilities(train, val, vocab_size, 6), start=1):
        expected = [foretold(train.tolist(), val[:i].tolist(), x, order, vocab_size)
                    for i, x in enumerate(val.tolist())]
        np.testing.assert_allclose(p, expected, rtol=1e-12)
        if vocab_size < MANY:
            every = [foretold(train.tolist(), val.tolist(), x, order, vocab_size)
                     for x in range(vocab_size)]
            assert sum(every) == pytest.approx(1, rel=1e-12)
    assert order == 6


def test_the_losses_on_the_built_in_text_are_the_published_ones(lantern):
    assert [f"{loss:.3f}" for loss in ngram_losses(*lantern, orders=6)] == [
        "3.279", "2.332", "1.704", "1.414", "1.327", "1.323"]


def test_the_first_id_does_not_count():
    train = np.array([0, 1, 1, 0, 1])
    val = np.array([2, 1, 0, 1])
    expected = [-np.log(p[1:]).mean() for p in ngrams.ngram_probabilities(train, val, 3, 3)]
    assert ngram_losses(train, val, 3, 3) == expected


def test_the_kind_of_integer_does_not_matter(lantern):
    train = lantern[0][:3000]
    val = lantern[1][:300]
    vocab_size = lantern[2]
    for dtype in (np.uint8, np.uint16, np.int32):
        assert (ngram_losses(train.astype(dtype), val.astype(dtype), vocab_size)
                == ngram_losses(train, val, vocab_size))


def test_a_text_too_large_for_the_time_gets_fewer_orders(lantern):
    five = ngram_losses(*lantern)
    assert ngram_losses(*lantern, seconds=3) == five
    assert ngram_losses(*lantern, seconds=0.1) == five[:3]
    assert ngram_losses(*lantern, seconds=0) == five[:1]


def test_a_text_that_is_foretold_in_full_has_a_loss_of_zero_and_not_of_minus_zero():
    zeros = np.zeros(9, int)
    assert [f"{loss:.3f}" for loss in ngram_losses(zeros, zeros, 1)] == ["0.000"] * 5
