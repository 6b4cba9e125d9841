"""Describe what an attention head does, in a few numbers and one phrase.

Shapes: L layers, H heads, T queries and keys of a window.
"""
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

NEAR = 16


class Head(NamedTuple):
    """Means over the queries of a text; shares are of 1.

        entropy     of the weights, in bits: 0 for a single key, log2(n) for n equal weights
        distance    from the query back to the keys that it attends to, in characters
        previous    the share on the character before the query
        itself      the share on the query
        first       the share on the first of the window
        favourite   the share on one character of the vocabulary, the one that gets the most beyond
                    its share with equal weights
    """
    numbers: dict[str, float]
    even: dict[str, float]      # the same for a head with equal weights
    favourite_id: int
    back: int = 0               # how far back, below NEAR, it gains most over equal weights


# The first rule that holds describes a head: a name, or none where it would say nothing, what such
# a head does ({} is its favourite character, {back} how far back it gains most), the condition, and
# the condition in words.
RULES = (
    ("", "has nothing earlier to look at", lambda n, even: math.isnan(n["entropy"]),
     "no character of the text has another before it in its window"),
    ("previous character", "looks mostly at the previous character",
     lambda n, even: n["previous"] >= 0.5,
     "at least 50 % on the previous character"),
    ("itself", "looks mostly at the character itself", lambda n, even: n["itself"] >= 0.5,
     "at least 50 % on the character itself"),
    ("first character", "rests mostly on the first character", lambda n, even: n["first"] >= 0.5,
     "at least 50 % on the first character of the window"),
    ("last few", "looks at the last few characters",
     lambda n, even: n["distance"] <= min(6, even["distance"] / 2),
     "a mean distance of at most 6 characters, and at most half that of an even look"),
    ("often {}", "often looks for {}",
     lambda n, even: n["favourite"] >= max(0.25, 2 * even["favourite"]),
     "at least 25 % on its favourite character, and at least twice what an even look has there"),
    ("", "looks far and wide, and a little more at the character {back}",
     lambda n, even: n["entropy"] >= 0.75 * even["entropy"],
     "an entropy of at least 75 % of an even look's"),
    ("leans to {}", "leans towards {}",
     lambda n, even: n["favourite"] >= max(0.1, 2 * even["favourite"]),
     "at least 10 % on its favourite character, and at least twice what an even look has there"),
    ("", "picks some characters, near and far", lambda n, even: True,
     "none of these"),
)


def describe(windows: Sequence[tuple[np.ndarray, np.ndarray, int]]) -> list[list[Head]]:
    """Describe every head of every layer, from windows of a text: ids (T,), maps (L, H, T, T), and
    the first row that counts.  A query with none before it never counts; without any, all is nan.
    """
    present = np.unique(np.concatenate([ids for ids, _, _ in windows]))         # P ids
    parts = []
    queries = 0
    for ids, maps, first in windows:
        T = len(ids)
        rows = np.arange(max(first, 1), T)
        even = np.tri(T) / np.arange(1, T + 1)[:, None]
        looks = np.concatenate([maps.reshape(-1, T, T), even[None]])        # the last is even
        parts.append(_sums(looks[:, rows], ids, rows, present))
        queries += len(rows)
    mean = {name: sum(part[name] for part in parts) / (queries or math.nan) for name in parts[0]}
    best, back = ((x[:-1] - x[-1]).argmax(axis=-1) for x in (mean["favourite"], mean.pop("near")))

    def numbers(look, favourite):
        return {name: float(x[look][favourite] if name == "favourite" else x[look])
                for name, x in mean.items()}
    L, H = maps.shape[:2]
    return [[Head(numbers(i, best[i]), numbers(-1, best[i]), int(present[best[i]]), int(back[i]))
             for i in range(layer * H, layer * H + H)] for layer in range(L)]


def _sums(weights, ids, rows, present):
    """Return sums over the queries of these rows of a map, (..., R, T) -> name -> (...); of every
    character present, (..., P), for the favourite."""
    each, keys = np.arange(len(rows)), np.arange(len(ids))
    logs = np.log2(weights, out=np.zeros_like(weights), where=weights > 0)      # 0 log 0 is 0
    return {"entropy": -(weights * logs).sum(axis=(-1, -2)),
            "distance": (weights * (rows[:, None] - keys)).sum(axis=(-1, -2)),
            "previous": weights[..., each, rows - 1].sum(axis=-1),
            "itself": weights[..., each, rows].sum(axis=-1),
            "first": weights[..., 0].sum(axis=-1),
            "near": np.stack([weights[..., each[rows >= k], rows[rows >= k] - k].sum(axis=-1)
                              for k in range(NEAR)], axis=-1),
            "favourite": weights.sum(axis=-2) @ (ids[:, None] == present)}


def kind(head: Head) -> tuple[str, str]:
    """Return the first rule that holds: the name of such a head, and what it does."""
    return next((name, does) for name, does, holds, _ in RULES if holds(head.numbers, head.even))


def distinguishing(layers: Sequence[Sequence[Head]]) -> set[str]:
    """Return the names, as `kind` has them, that at most half of the heads share."""
    names = [kind(head)[0] for heads in layers for head in heads]
    return {name for name in names if 2 * names.count(name) <= len(names)}
