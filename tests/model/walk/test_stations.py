"""The stations: they show the printed numbers, and what they say of them is so."""
import itertools
import linecache
import re

import numpy as np
import pytest

from minigrad import Tensor
from model.walk.practice import exercises
from model.walk.published import WORDS
from model.walk.screen import number
from model.walk.station import Question
from model.walk.stations import STATIONS
from model.walk.stations.one_head import published_head
from tests.kit import ROOT
from tests.model.walk.shown import EACH, tables, texts, values

# Rows of the worked examples, as they were printed elsewhere: station, a table's title, its rows
# from the first or the one named on.
PRINTED = [
    (1, "Scores", "journey", ["0.9544 1.4950 1.4754 0.8434 0.7070 1.0865"]),
    (1, "Weights", "journey", ["0.1385 0.2379 0.2333 0.1240 0.1082 0.1581"]),
    (1, "Context vectors", "journey", ["0.4419 0.6515 0.5683"]),
    (2, "Keys", "Your", [
        "0.2727 -0.4519 0.2216",
        "0.1008 -0.7142 -0.1961",
        "0.1060 -0.7127 -0.1971",
        "0.0051 -0.3809 -0.1557",
        "0.1696 -0.4861 -0.1597",
        "-0.0388 -0.4213 -0.1501",
    ]),
    (2, "Queries", "Your", [
        "-0.3536 0.3965 -0.5740",
        "-0.3021 -0.0289 -0.8709",
        "-0.3015 -0.0232 -0.8628",
        "-0.1353 -0.0978 -0.4789",
        "-0.2052 0.0870 -0.4744",
        "-0.1542 -0.1499 -0.5888",
    ]),
    (2, "Values", "Your", [
        "0.3326 0.5659 -0.3132",
        "0.3558 0.5643 -0.1536",
        "0.3412 0.5522 -0.1574",
        "0.2123 0.2991 -0.0360",
        "-0.0177 0.1780 -0.1805",
        "0.3660 0.4382 -0.0080",
    ]),
    (2, "Scores", "Your", [
        "-0.4028 -0.2063 -0.2069 -0.0635 -0.1611 -0.0672",
        "-0.2623 0.1610 0.1602 0.1450 0.1019 0.1546",
        "-0.2630 0.1553 0.1546 0.1416 0.0979 0.1510",
        "-0.0989 0.1501 0.1497 0.1111 0.1010 0.1183",
        "-0.2004 0.0102 0.0098 0.0397 -0.0013 0.0425",
        "-0.1048 0.2070 0.2065 0.1480 0.1407 0.1575",
    ]),
    (4, "Weights", "Your", [
        "1.0000 0 0 0 0 0",
        "0.4392 0.5608 0 0 0 0",
        "0.2820 0.3591 0.3589 0 0 0",
        "0.2253 0.2602 0.2601 0.2544 0 0",
        "0.1809 0.2043 0.2042 0.2078 0.2029 0",
        "0.1456 0.1743 0.1743 0.1685 0.1678 0.1694",
    ]),
    (5, "Weights at the first reading", "Your", [
        "0 0 0 0 0 0",
        "0.5490 0 0 0 0 0",
        "0 0.4488 0.4486 0 0 0",
        "0.2817 0.3252 0.3251 0 0 0",
        "0.2261 0.2553 0 0.2597 0.2536 0",
        "0.1820 0.2179 0.2179 0.2106 0 0.2118",
    ]),
    (5, "Context vectors at the first reading", "Your", [
        "0 0 0",
        "0.1826 0.3107 -0.1719",
        "0.3128 0.5010 -0.1396",
        "0.3203 0.5225 -0.1893",
        "0.2167 0.3949 -0.1651",
        "0.3346 0.5021 -0.1340",
    ]),
    (5, "Weights at the second reading", "Your", [
        "1.2500 0 0 0 0 0",
        "0 0.7010 0 0 0 0",
        "0.3525 0.4488 0.4486 0 0 0",
        "0.2817 0.3252 0.3251 0.3180 0 0",
        "0.2261 0 0.2553 0.2597 0.2536 0",
        "0.1820 0 0.2179 0.2106 0.2098 0",
    ]),
    (5, "Context vectors at the second reading", "Your", [
        "0.4158 0.7074 -0.3914",
        "0.2494 0.3956 -0.1077",
        "0.4300 0.7005 -0.2500",
        "0.3878 0.6176 -0.2008",
        "0.2129 0.3917 -0.1661",
        "0.1759 0.3237 -0.1367",
    ]),
    (6, "Context vectors of three heads", "Your", [
        "0.3326 0.5659 -0.3132",
        "0.3445 0.5651 -0.2191",
        "0.3434 0.5608 -0.1963",
        "0.3100 0.4965 -0.1586",
        "0.2448 0.4308 -0.1632",
        "0.2655 0.4346 -0.1358",
    ]),
    (6, "Output", "Your", [
        "0.0766 0.0755 -0.0321",
        "0.0311 0.1048 -0.0368",
        "0.0165 0.1088 -0.0409",
        "-0.0470 0.0841 -0.0825",
        "-0.1018 0.0327 -0.1292",
        "-0.1060 0.0508 -0.1246",
    ]),
    (7, "Numbers in one head, in a layer, in all layers", "together",
     ["6,291,456 603,979,776 57,982,058,496"]),
    (7, "Numbers in one head, in a layer, in all layers", "a full value matrix",
     ["150,994,944 14,495,514,624 1,391,569,403,904"]),
]


def as_printed(table):
    return [[number(x, table.digits) for x in row] for row in table.values]


@pytest.mark.parametrize("n, title, first, rows", PRINTED,
                         ids=[f"{n} {title}, {first}" for n, title, first, _ in PRINTED])
def test_a_station_shows_the_printed_rows(n, title, first, rows):
    table = tables(n)[title]
    printed = [row.split() for row in rows]
    start = list(table.rows).index(first)
    assert as_printed(table)[start:start + len(printed)] == printed


@EACH
def test_each_number_that_a_text_quotes_stands_in_a_table_up_to_there(n):
    shown = {x for k in range(1, n + 1) for table in tables(k).values()
             for x in itertools.chain(*as_printed(table))}
    quoted = re.findall(r"-?\d[\d,]*\.\d{4}\b|\d+(?:,\d{3}){2,}", " ".join(texts(n)))
    assert set(quoted) <= shown and (quoted or n not in (1, 2, 5))


@EACH
def test_a_station_ends_with_a_question_and_has_tables_with_names_beside_their_line_of_source(n):
    *parts, question = STATIONS[n - 1].parts()
    assert isinstance(question, Question) and question.text.rstrip().endswith("?") and tables(n)
    for table in tables(n).values():
        assert table.values.shape == (len(table.rows), len(table.columns))
        if table.line:
            in_file = linecache.getline(str(ROOT / table.line.file), table.line.number).split()
            assert in_file and table.line.text.startswith(" ".join(in_file))
    of_station_4 = {title: table.axes for title, table in tables(4).items()}
    assert of_station_4["Weights"] == ("query", "key")
    assert of_station_4["Context vectors"] == ("word", "channel")
    assert tables(4)["Scores with the mask"].line.text == "masked = scores + causal_mask(6)"


def same(x, y):
    return np.allclose(x, y, atol=1e-6)


def test_scores_are_symmetric_at_first_alone_and_weights_add_up_to_1():
    first = values(1, "Scores")
    later = values(2, "Scores")
    assert np.array_equal(first, first.T) and not np.allclose(later, later.T, atol=0.01)
    for n in (1, 3, 4, 10):             # at a single reading with dropout they need not
        assert same(values(n, "Weights").sum(axis=1), 1)
    assert same(values(8, "Weights, a query in each column"), values(4, "Weights").T)


def test_what_three_heads_add_and_the_bias_make_the_output_and_a_low_rank_has_no_bias():
    *parts, whole = values(6, 'What each head adds to the output of "journey"')
    assert same(np.sum(parts, axis=0), whole) and np.array_equal(whole, values(6, "Output")[1])
    assert np.linalg.matrix_rank(values(7, "Value-up times value-down of head 1")) == 1
    bias = values(6, "Output") - values(7, "Sum of three heads")
    assert same(bias, bias[0])


def test_a_mask_before_the_softmax_hides_the_last_word_and_zeros_do_not():
    mask, zeros, after, changed = values(4, 'The weights of "Your"')
    assert list(mask) == [1, 0, 0, 0, 0, 0] and min(zeros[1:]) > zeros[0] and same(zeros.sum(), 1)
    assert abs(after[0] - changed[0]) > 0.02 and not after[1:].any() and not changed[1:].any()
    head = published_head()
    changed = [*WORDS[:5], [5, -5, 5]]
    assert same(*(head(Tensor(np.float32(words))).data[:5] for words in (WORDS, changed)))


def test_columns_and_one_key_at_a_time_give_the_context_vectors_of_station_4():
    contexts = values(4, "Context vectors")
    read = values(9, "After each key")
    assert same(values(8, "Context vectors"), contexts.T) and same(read[-1, 3:], contexts[5])
    assert (np.diff(read[:, 1]) >= 0).all() and (np.diff(read[:, 2]) > 0).all()


def test_turned_and_biased_scores_depend_on_the_distance_alone():
    assert same(*values(11, 'The context vector of "journey"'))     # in any order, without places
    for title in ("Scores of equal words, by place", "Bias by distance"):
        assert all(np.ptp(np.diagonal(values(12, title), k)) < 1e-6 for k in range(-5, 6))


def test_without_places_two_equal_words_differ_in_a_causal_head():
    head = published_head()
    words = WORDS.astype(np.float32)
    _, first, second = head(Tensor(words[[0, 5, 5]])).data
    assert abs(first - second).max() > 1e-3
    assert same(*(head(Tensor(words[order])).data[-1] for order in ([0, 1, 2], [1, 0, 2])))


def test_a_block_adds_what_its_parts_find_and_makes_a_word_depend_on_its_context():
    x, _, found, middle, _, changed, output, other = values(13, '"journey" in a block')
    assert same(x, WORDS[1]) and same(x + found, middle) and same(middle + changed, output)
    assert abs(output - other).min() > 0.1


def test_the_page_for_teachers_has_every_station_and_exercise():
    page = (ROOT / "docs" / "walk.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()
            if re.match(r"\| \d", line)]
    assert [row[:3] for row in rows if len(row) == 4] == [
        [str(n), station.title, str(station.minutes)] for n, station in enumerate(STATIONS, 1)]
    assert [row[:2] for row in rows if len(row) == 3] == [
        [str(n), f"`{exercise.function}`"] for n, exercise in enumerate(exercises())]
