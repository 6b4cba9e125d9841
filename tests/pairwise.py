"""Few combinations of options, in which every pair of values occurs."""
import itertools
from collections.abc import Sequence
from typing import Any


def pairwise(first: Sequence[Any], second: Sequence[Any], *more: Sequence[Any]) -> list[tuple]:
    """Return combinations of one value of each option, such that every two values of two options
    occur together in one of them.

    A fault that one value causes, or two values together, shows in these as in all combinations.
    Each combination begins with the first pair that is missing, and takes the values that add most
    pairs.  The result is the same at every call.
    """
    options = first, second, *more
    sizes = [range(len(values)) for values in options]
    missing = dict.fromkeys(
        ((i, a), (j, b)) for i, j in itertools.combinations(range(len(options)), 2)
        for a, b in itertools.product(sizes[i], sizes[j]))
    combinations = []
    while missing:
        chosen = dict(next(iter(missing)))
        for option in set(range(len(options))) - chosen.keys():
            chosen[option] = max(sizes[option], key=lambda value: sum(
                pair in missing for pair in pairs(chosen | {option: value})))
        for pair in pairs(chosen):
            missing.pop(pair, None)
        combinations.append(tuple(values[chosen[i]] for i, values in enumerate(options)))
    return combinations


def pairs(chosen: dict[int, int]) -> itertools.combinations:
    """Return the pairs of (option, value) that a combination has, in the order of the options."""
    return itertools.combinations(sorted(chosen.items()), 2)
