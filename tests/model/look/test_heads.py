"""A head in numbers: against loops over single weights, and the phrase that they give."""
import math

import numpy as np
import pytest

from model.look.heads import Head, describe, distinguishing, kind


def random_maps(T, rng, layers=2, heads=3):
    maps = np.tril(rng.random((layers, heads, T, T)) ** 6)
    return (maps / maps.sum(-1, keepdims=True)).astype(np.float32)


def one_by_one(rows):
    """The numbers of a head, from queries: the row, and the weights of its keys."""
    def mean(f):
        return sum(f(row, w) for row, w in rows) / len(rows)
    return pytest.approx({
        "entropy": mean(lambda row, w: -sum(x * math.log2(x) for x in w if x)),
        "distance": mean(lambda row, w: sum(x * (row - k) for k, x in enumerate(w))),
        "previous": mean(lambda row, w: w[row - 1]),
        "itself": mean(lambda row, w: w[row]),
        "first": mean(lambda row, w: w[0]),
    }, rel=1e-6)


def test_the_numbers_are_those_of_weights_taken_one_by_one():
    rng = np.random.default_rng(0)
    windows = [(random_maps(T, rng), fresh) for T, fresh in ((9, 0), (9, 4), (6, 4))]
    described = describe(windows)
    for layer, head in np.ndindex(2, 3):
        rows = [(row, [float(x) for x in maps[layer, head, row, :row + 1]])
                for maps, fresh in windows for row in range(max(fresh, 1), maps.shape[-1])]
        even = [(row, [1 / (row + 1)] * (row + 1)) for row, _ in rows]
        assert described[layer][head].numbers == one_by_one(rows)
        assert described[layer][head].even == one_by_one(even)


T = 24
ROW, COLUMN = np.indices((T, T))
WIDE = "looks far and wide, and a little more at the character "
MIXED = "picks some characters, near and far"


@pytest.mark.parametrize("name, does, map", [
    ("previous character", "looks mostly at the previous character",
     (COLUMN == np.maximum(ROW - 1, 0)) + 0.01),
    ("itself", "looks mostly at the character itself", (COLUMN == ROW) + 0.01),
    ("first character", "rests mostly on the first character", (COLUMN == 0) + 0.01),
    ("last few", "looks at the last few characters", np.exp((COLUMN - ROW) / 3)),
    ("", WIDE + "itself", np.ones((T, T))),
    ("", MIXED, (COLUMN == ROW // 3) + (COLUMN == ROW // 2) + 1e-9)])
def test_a_head_is_described_by_the_first_rule_that_holds(name, does, map):
    map = np.tril(map) / np.tril(map).sum(-1, keepdims=True)
    assert kind(describe([(map[None, None], 0)])[0][0]) == (name, does)


def test_a_name_distinguishes_only_if_at_most_half_of_the_heads_have_it():
    previous, itself, wide = (
        describe([(map[None, None] / map.sum(-1, keepdims=True), 0)])[0][0]
        for map in (np.tril(COLUMN == np.maximum(ROW - 1, 0)), np.tril(COLUMN == ROW),
                    np.tril(np.ones((T, T)))))
    assert distinguishing([[previous, itself], [itself, wide]]) == {
        "previous character", "itself", ""}
    assert distinguishing([[previous] * 3, [itself, wide, wide]]) == {
        "previous character", "itself", ""}
    assert distinguishing([[previous] * 3, [itself]]) == {"itself"}
    assert distinguishing([[previous]]) == set()


@pytest.mark.parametrize("back", [0, 1, 3, 15])
def test_describe_finds_how_far_back_a_head_looks_more_than_evenly(back):
    map = np.tril(1 + (COLUMN == ROW - back) / 2)
    head = describe([((map / map.sum(-1, keepdims=True))[None, None], 0)])[0][0]
    assert head.back == back
    assert kind(head)[1] == WIDE + (f"{back} back" if back else "itself")


@pytest.mark.parametrize("does, entropy, distance", [
    (WIDE + "3 back", 3, 9), (MIXED, 2.99, 9), ("looks at the last few characters", 3, 5)])
def test_a_head_is_wide_from_three_quarters_of_an_even_entropy_on(does, entropy, distance):
    base = dict.fromkeys(("previous", "itself", "first"), 0.1)
    head = Head(base | {"entropy": entropy, "distance": distance},
                base | {"entropy": 4.0, "distance": 10}, 3)
    assert kind(head)[1] == does


def test_queries_with_nothing_before_them_say_nothing():
    for count in (1, 3):
        head = describe([(np.ones((1, 1, 1, 1), np.float32), 0)] * count)[0][0]
        assert all(math.isnan(x) for x in (*head.numbers.values(), *head.even.values()))
        assert kind(head) == ("", "has nothing earlier to look at")
