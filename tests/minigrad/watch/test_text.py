"""Arrays in words, tables, and pictures of characters."""
import io
import math

import numpy as np
import pytest

from minigrad.watch.text import (ASCII, BLOCKS, RULER, SHOWN, UNICODE, Numbers, aligned,
                                 block_line, norm, numbers, rms, ruler, signs_for)


@pytest.mark.parametrize("array, says", [
    (np.array([[1.0, -0.0], [-np.inf, 0.123456]]), "[[1, 0], [-inf, 0.1235]]"),
    (np.array(7), "7"), (np.ones(0), "[]"), (None, "-"),
    (np.arange(SHOWN + 1.0), "0 to 6, mean 3"), (np.arange(SHOWN + 1), "0 to 6"),
    (np.full(SHOWN + 1, -np.inf), "-inf to -inf, mean -inf"),
    (np.r_[np.inf, -np.inf, np.zeros(SHOWN)], "-inf to inf, mean nan")])
def test_small_arrays_are_shown_whole_and_larger_ones_by_their_range(array, says):
    assert numbers(array) == says


@pytest.mark.parametrize("array, says", [
    (np.array([[1, -2.5]], np.float32), "x  float32[1, 2]: -2.5 to 1"),
    (np.full(3, 7), "x  int64[3]: 7"),
    (np.array([1, np.nan, 3, -np.inf]), "x  float64[4]: 1 to 3, but 2 of 4 are nan or inf"),
    (np.array(np.inf), "x  float64[]: all nan or inf"),
    (np.empty((0, 2)), "x  float64[0, 2]: empty")], ids=str)
def test_a_summary_has_the_range_and_how_many_numbers_are_not_finite(array, says):
    assert str(Numbers.of("x", array)) == says


def test_norm_and_root_mean_square_are_of_all_arrays_together():
    assert norm([np.array([3.0]), np.array([[0.0, 4.0]])]) == 5
    assert rms([np.full(3, 2.0), np.full((2, 2), -2.0)]) == 2
    assert math.isclose(norm([np.full(2, 1e30, np.float32)]), math.sqrt(2) * 1e30, rel_tol=1e-6)


def test_columns_are_as_wide_as_their_longest_cell_and_no_line_ends_in_a_space():
    rows = [("op", "calls", ""), ("exp", "12", "x")]
    assert aligned(rows) == ["op   calls", "exp  12     x"]
    assert aligned(rows, "<><") == ["op   calls", "exp     12  x"]


@pytest.mark.parametrize("encoding, terminal, signs", [
    ("utf-8", "xterm", UNICODE), ("utf-8", None, UNICODE), ("utf-8", "linux", ASCII),
    ("utf-8", "dumb", ASCII), ("ascii", "xterm", ASCII), ("cp1252", "xterm", ASCII),
    ("ascii", None, ASCII), (None, None, UNICODE)])
def test_signs_for_is_ascii_where_encoding_or_terminal_lacks_the_others(
        encoding, terminal, signs, monkeypatch):
    monkeypatch.setenv("TERM", terminal or "dumb")      # which a pipe does not ask
    stream = io.StringIO() if encoding is None else io.TextIOWrapper(io.BytesIO(), encoding)
    stream.isatty = lambda: terminal is not None
    assert signs_for(stream) is signs


def test_block_line_is_higher_for_larger_numbers_from_the_first_to_the_last():
    assert block_line([4.127, 1.9, 1.55, 1.3, 1.14]) == "█▃▂▂▁"
    assert block_line([1.0, 2.0, 0.0], ASCII) == "+#_"
    assert block_line([2.5]) == block_line([0.0]) == "▁"
    many = block_line([9.0] + [1.0] * 500 + [3.0])
    assert len(many) == BLOCKS and many[0] == "█" and many[-1] == "▄"
    assert set(many[1:-1]) == {"▁"}


def test_ruler_has_its_marks_in_order_and_where_their_numbers_are_if_there_is_room():
    assert ruler({"a": 0.0, "b": 31.0, "c": 10.0}) == f"b{'─' * 20}c{'─' * 9}a"
    rng = np.random.default_rng(0)
    names = ["uni", "bi", "tri", "4", "5", "●"]
    for scale in (1e-9, 1, 1):
        marks = dict(zip(names, rng.permutation(rng.lognormal(1, scale, 6))))
        line = ruler(marks)
        places = [line.index(name) for name in sorted(marks, key=marks.get, reverse=True)]
        assert places == sorted(places) and len(line) == RULER
        assert line.replace("─", " ").split() == sorted(marks, key=marks.get, reverse=True)
    assert ruler({"uni": 2.0, "o": 2.0}, ASCII) == "uni-o" + 27 * "-"
