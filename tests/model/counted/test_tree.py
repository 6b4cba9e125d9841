"""The tree has the counts of a naive program, and its distributions those of a naive recursion."""
from collections import Counter

import numpy as np
import pytest

import minigrad as mg
from data import Text
from model.counted import tree
from tests.kit import memory

if mg.COMPILED:
    from model.counted import kernel    # noqa: F401  stands in for `mix`

V = 6
FEW = 3


def some_ids(count, vocab_size=FEW, seed=0):
    return np.random.default_rng(seed).integers(vocab_size, size=count)


def below(found, node=0, gram=()):
    """The n-grams below a node, with their counts."""
    grams = {}
    if node + 1 < len(found.children):
        for child in range(found.children[node], found.children[node + 1]):
            if found.digits[child]:
                longer = (*gram, int(found.digits[child]) - 1)
                grams[longer] = int(found.counts[child])
                grams |= below(found, child, longer)
    return grams


def naive_counts(ids, order):
    """How often each of the longest n-grams occurs, and what number of different ids, or the
    beginning of the text, precede a shorter one."""
    ids = tuple(ids)
    counts = Counter(ids[i:i + order] for i in range(len(ids) - order + 1))
    for n in range(1, order):
        before = {(ids[i - 1] if i else None, ids[i:i + n]) for i in range(len(ids) - n + 1)}
        counts.update(gram for _, gram in before)
    return counts


def naive_discount(counts, n, c):
    """Chen & Goodman 1998, equation 26; or 0.5, 1, 1.5 where that is undefined, or not above 0."""
    N = [sum(len(gram) == n and x == k for gram, x in counts.items()) for k in range(5)]
    usual = [0.5, 1.0, 1.5]
    if min(N[1:]):
        Y = N[1] / (N[1] + 2 * N[2])
        usual = [1 - 2 * Y * N[2] / N[1], 2 - 3 * Y * N[3] / N[2], 3 - 4 * Y * N[4] / N[3]]
        if min(usual) <= 0:
            usual = [0.5, 1.0, 1.5]
    return usual[min(c, 3) - 1]


def naive_p(counts, x, context):
    """The probability of an id after a context, by the recursion of Kneser and Ney."""
    shorter = naive_p(counts, x, context[1:]) if context else 1 / V
    n = len(context) + 1
    after = {y: counts[(*context, y)] for y in range(V) if counts[(*context, y)]}
    if not after:
        return shorter
    discounts = {y: naive_discount(counts, n, c) for y, c in after.items()}
    own = after.get(x, 0) - discounts.get(x, 0)
    return (own + sum(discounts.values()) * shorter) / sum(after.values())


@pytest.mark.parametrize("order", [1, 2, 4, 9])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 60])
def test_count_ngrams_finds_every_n_gram_and_counts_as_a_naive_program_does(order, count):
    ids = some_ids(count)
    assert below(tree.count_ngrams(ids, V, order)) == naive_counts(ids.tolist(), order)


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [1, 3, 40, 400])
def test_distributions_are_those_of_kneser_and_ney_and_sum_to_1(order, count):
    """Also at the beginning of a text, after contexts that were never seen, beyond the length of
    the text that was counted, and with discounts that are estimated and that are not."""
    train = some_ids(count)
    text = some_ids(30, V, seed=1)
    found = tree.distributions(
        tree.count_ngrams(train, V, order),
        tree.contexts(text[None], order)[0],
        V)
    counts = naive_counts(train.tolist(), order)
    expected = []
    for i in range(len(text)):
        context = tuple(text[max(0, i + 2 - order):i + 1].tolist()) if order > 1 else ()
        expected.append([naive_p(counts, x, context) for x in range(V)])
    assert found.shape == (30, V) and found.min() > 0
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_discounts_are_estimated_where_all_numbers_of_few_occur():
    estimated = tree.count_ngrams(some_ids(400), V, 5).discounts[-1]
    usual = tree.count_ngrams(some_ids(40), V, 2).discounts[0]
    assert 0 == estimated[0] < estimated[1] < estimated[2] < estimated[3] < 3
    assert estimated.tolist() != usual.tolist() == [0, 0.5, 1, 1.5]


def test_contexts_are_the_last_ids_and_minus_1_before_the_first():
    ids = np.array([[5, 6, 7], [1, 2, 3]])
    assert tree.contexts(ids, 3).tolist() == [[[-1, 5], [5, 6], [6, 7]], [[-1, 1], [1, 2], [2, 3]]]
    assert tree.contexts(ids, 1).shape == (2, 3, 0)


@pytest.mark.parametrize("vocab_size, order", [(1, 62), (62, 10), (65, 10), (96, 9), (4000, 5),
                                               (50_257, 4), (65_534, 3), (65_535, 0)])
def test_largest_order_is_what_a_number_of_64_bits_holds(vocab_size, order):
    assert tree.largest_order(vocab_size) == order
    if order:
        highest = np.full(order, vocab_size - 1)
        assert below(tree.count_ngrams(highest, vocab_size, order))[tuple(highest.tolist())] == 1


@pytest.mark.usefixtures("by_every_way")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order, weight", [(1, 0.2), (4, 0.2), (4, 0), (4, 1), (9, 0.7)])
def test_mix_is_the_mean_of_two_distributions_with_these_weights(order, weight, dtype):
    text = some_ids(30, V, seed=2)
    counted = tree.count_ngrams(some_ids(300), V, order)
    preceding = tree.contexts(text[None], order)[0]
    logits = np.random.default_rng(3).standard_normal((30, V)).astype(dtype) * 9
    mixed = np.exp(tree.mix(logits, preceding, counted, weight).astype(np.float64))
    shares = np.exp(logits.astype(np.float64))
    shares /= shares.sum(axis=1, keepdims=True)
    expected = (1 - weight) * shares + weight * tree.distributions(counted, preceding, V)
    np.testing.assert_allclose(mixed, expected, rtol=1e-5 if dtype == np.float32 else 1e-12)
    assert abs(mixed.sum(axis=1) - 1).max() < 1e-6


@pytest.mark.usefixtures("by_every_way")
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_mix_hides_no_logit_that_is_not_finite(wrong):
    logits = np.zeros((2, V), np.float32)
    logits[1, 3] = wrong
    with np.errstate(invalid="ignore"):
        mixed = tree.mix(logits, np.zeros((2, 1), int), tree.count_ngrams(some_ids(9), V, 2), 0.2)
    assert np.isfinite(mixed[0]).all() and np.isnan(mixed[1]).any()


def test_the_counts_of_the_plays_take_at_most_40_bytes_a_character_and_then_20():
    """A long text takes fewer, as its n-grams return."""
    text = Text.read("lantern")
    with memory() as taken:
        counted = tree.count_ngrams(text.train, text.tokenizer.vocab_size, 9)
    assert sum(array.nbytes for array in counted) < 20 * len(text.train)
    assert taken[0] < 40 * len(text.train)
