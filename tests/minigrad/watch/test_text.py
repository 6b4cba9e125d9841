"""Arrays in words, and tables."""
import math

import numpy as np
import pytest

from minigrad.watch.text import SHOWN, Numbers, aligned, norm, numbers, rms


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
