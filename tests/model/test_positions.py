"""Positions that nothing learns: the formulas, and figures that their papers print."""
import math

import numpy as np

from model.layers import alibi_bias, alibi_slopes, sinusoids


def test_sinusoids_are_the_papers_formula():
    for T, C in ((1, 1), (5, 2), (9, 7), (64, 16)):
        table = sinusoids(T, C)
        assert table.shape == (T, C)
        for t in range(T):
            for c in range(C):
                angle = t / 10000 ** ((c - c % 2) / C)
                assert abs(table[t, c] - (math.cos if c % 2 else math.sin)(angle)) < 1e-12


def test_the_sinusoids_of_a_fixed_offset_are_a_turn_of_each_pair():
    """The reason that the paper gives for them."""
    table = sinusoids(60, 8)
    pairs = table[:, 1::2] + 1j * table[:, ::2]
    turns = pairs[7:] / pairs[:-7]
    assert np.allclose(turns, turns[0], rtol=1e-10)


def test_slopes_of_eight_heads_are_the_printed_ones():
    assert np.array_equal(alibi_slopes(8), [1 / 2**n for n in range(1, 9)])
    assert np.allclose(alibi_slopes(16)[:4], [2**-0.5, 2**-1, 2**-1.5, 2**-2], rtol=1e-7)
    assert np.allclose(alibi_slopes(6)[1:] / alibi_slopes(6)[:-1], 2 ** (-8 / 6), rtol=1e-6)


def test_the_bias_is_the_slope_times_the_distance():
    bias = alibi_bias(alibi_slopes(2, np.float64), 4)
    assert bias.shape == (2, 4, 4)
    assert np.array_equal(bias[0] * 16, [[0, -1, -2, -3], [-1, 0, -1, -2],
                                         [-2, -1, 0, -1], [-3, -2, -1, 0]])
    assert np.array_equal(bias[1], bias[0] / 16)


def test_slopes_and_bias_are_of_the_type_that_is_asked_for():
    for dtype in (np.float32, np.float64):
        slopes = alibi_slopes(3, dtype)
        assert slopes.dtype == alibi_bias(slopes, 5).dtype == dtype
