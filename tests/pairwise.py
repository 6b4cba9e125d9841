"""Few combinations of options, in which every pair of values occurs."""
import itertools


def pairwise(first, second, *more):
    """Return combinations of a value for each option, such that every two values of two options
    occur together in at least one.

    They find each fault that one value causes, or two values together.  A combination begins with
    the first missing pair, and takes the values that add most pairs.  The result never changes.
    """
    options = [[*values] for values in (first, second, *more)]
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


def pairs(chosen):
    """Return the pairs of (option, value) in a combination, in the order of the options."""
    return itertools.combinations(sorted(chosen.items()), 2)
