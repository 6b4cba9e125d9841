"""Combinations of options: every pair of values occurs in one of them, and they are few."""
import itertools

import pytest

from tests.pairwise import pairwise


@pytest.mark.parametrize("sizes, most", [
    ((2, 3), 6), ((2, 2, 2), 4), ((5, 2, 2), 10), ((11, 2, 4), 44), ((2,) * 6, 8), ((3,) * 4, 10),
    ((5, 4, 3, 2, 2, 2, 2), 20), ((1, 1), 1), ((4, 1, 1), 4)])
def test_every_two_values_of_two_options_occur_together(sizes, most):
    options = [[f"{name}{value}" for value in range(n)] for name, n in zip("abcdefg", sizes)]
    combinations = pairwise(*options)
    for (i, one), (j, other) in itertools.combinations(enumerate(options), 2):
        found = {(combination[i], combination[j]) for combination in combinations}
        assert found == set(itertools.product(one, other))
    assert len(combinations) <= most and combinations == pairwise(*options)
    assert pairwise([[]], [{}, {}]) == [([], {}), ([], {})]     # neither hashable nor different
