"""A head in numbers: against loops over single weights, and the phrase that they give."""
import math

import numpy as np
import pytest

from model.look.heads import RULES, Head, describe, distinguishing, kind

V = 5


def random_maps(T, rng, layers=2, heads=3):
    maps = np.tril(rng.random((layers, heads, T, T)) ** 6)
    return (maps / maps.sum(-1, keepdims=True)).astype(np.float32)


def one_by_one(rows, favourite):
    """The numbers of a head, from queries: the ids, the row, and the weights of its keys."""
    def mean(f):
        return sum(f(ids, row, w) for ids, row, w in rows) / len(rows)
    return pytest.approx({
        "entropy": mean(lambda ids, row, w: -sum(x * math.log2(x) for x in w if x)),
        "distance": mean(lambda ids, row, w: sum(x * (row - k) for k, x in enumerate(w))),
        "previous": mean(lambda ids, row, w: w[row - 1]),
        "itself": mean(lambda ids, row, w: w[row]),
        "first": mean(lambda ids, row, w: w[0]),
        "favourite": mean(lambda ids, row, w: sum(x for id, x in zip(ids, w) if id == favourite)),
    }, rel=1e-6)


def test_the_numbers_are_those_of_weights_taken_one_by_one():
    rng = np.random.default_rng(0)
    windows = [(rng.integers(V, size=T), random_maps(T, rng), fresh)
               for T, fresh in ((9, 0), (9, 4), (6, 4))]
    described = describe(windows)
    for layer, head in np.ndindex(2, 3):
        rows = [(ids, row, [float(x) for x in maps[layer, head, row, :row + 1]])
                for ids, maps, fresh in windows for row in range(max(fresh, 1), len(ids))]
        even = [(ids, row, [1 / (row + 1)] * (row + 1)) for ids, row, _ in rows]
        found = described[layer][head]
        shares, evens = ([one_by_one(of, c).expected["favourite"] for c in range(V)]
                         for of in (rows, even))
        assert found.favourite_id == np.argmax(np.subtract(shares, evens))
        assert found.numbers == one_by_one(rows, found.favourite_id)
        assert found.even == one_by_one(even, found.favourite_id)
    head, other = (describe([(f(ids), maps, fresh) for ids, maps, fresh in windows])[0][0]
                   for f in (np.array, lambda ids: 7 * ids + 9))        # whichever ids there are
    assert other == head._replace(favourite_id=7 * head.favourite_id + 9)


T = 24
ROW, COLUMN = np.indices((T, T))
IDS = np.arange(T) % 4                  # the character 4 never comes


WIDE = "looks far and wide, and a little more at the character {back}"
MIXED = "picks some characters, near and far"


@pytest.mark.parametrize("name, does, map", [
    ("previous character", "looks mostly at the previous character",
     (COLUMN == np.maximum(ROW - 1, 0)) + 0.01),
    ("itself", "looks mostly at the character itself", (COLUMN == ROW) + 0.01),
    ("first character", "rests mostly on the first character", (COLUMN == 0) + 0.01),
    ("last few", "looks at the last few characters", np.exp((COLUMN - ROW) / 3)),
    ("often {}", "often looks for {}", (IDS[COLUMN] == 2) + 0.05),
    ("", WIDE, np.ones((T, T))),
    ("", MIXED, (COLUMN == ROW // 3) + (COLUMN == ROW // 2) + 1e-9)])
def test_a_head_is_described_by_the_first_rule_that_holds(name, does, map):
    map = np.tril(map) / np.tril(map).sum(-1, keepdims=True)
    assert kind(describe([(IDS, map[None, None], 0)])[0][0]) == (name, does)


def test_a_name_distinguishes_only_if_at_most_half_of_the_heads_have_it():
    previous, itself, wide = (
        describe([(IDS, map[None, None] / map.sum(-1, keepdims=True), 0)])[0][0]
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
    head = describe([(IDS, (map / map.sum(-1, keepdims=True))[None, None], 0)])[0][0]
    assert head.back == back and kind(head)[1].endswith("at the character {back}")


@pytest.mark.parametrize("does, share, even, entropy", [
    ("leans towards {}", 0.1, 0.01, 1),
    (MIXED, 0.0999, 0.01, 1),
    (MIXED, 0.19, 0.1, 1),
    ("often looks for {}", 0.25, 0.125, 1),
    (WIDE, 0.1, 0.01, 3)])
def test_a_head_leans_to_what_it_gives_a_tenth_and_twice_an_even_look(does, share, even, entropy):
    base = dict.fromkeys(("previous", "itself", "first"), 0.1)
    head = Head(base | {"entropy": entropy, "distance": 9, "favourite": share},
                base | {"entropy": 4.0, "distance": 10, "favourite": even}, 2)
    assert kind(head)[1] == does


def test_queries_with_nothing_before_them_say_nothing():
    for count in (1, 3):
        head = describe([(np.array([1]), np.ones((1, 1, 1, 1), np.float32), 0)] * count)[0][0]
        assert all(math.isnan(x) for x in (*head.numbers.values(), *head.even.values()))
        assert kind(head) == ("", "has nothing earlier to look at")
    assert all(does and when for _, does, _, when in RULES) and RULES[-1][3] == "none of these"
