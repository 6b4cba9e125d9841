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
    """
    numbers: dict[str, float]
    even: dict[str, float]      # the same for a head with equal weights
    back: int = 0               # how far back, below NEAR, it gains most over equal weights


# The first rule that holds describes a head: a name, or none where it would say nothing, what such
# a head does ({} is how far back it gains most), and the condition.
RULES = (
    ("", "has nothing earlier to look at", lambda n, even: math.isnan(n["entropy"])),
    ("previous character", "looks mostly at the previous character",
     lambda n, even: n["previous"] >= 0.5),
    ("itself", "looks mostly at the character itself", lambda n, even: n["itself"] >= 0.5),
    ("first character", "rests mostly on the first character", lambda n, even: n["first"] >= 0.5),
    ("last few", "looks at the last few characters",
     lambda n, even: n["distance"] <= min(6, even["distance"] / 2)),
    ("", "looks far and wide, and a little more at the character {}",
     lambda n, even: n["entropy"] >= 0.75 * even["entropy"]),
    ("", "picks some characters, near and far", lambda n, even: True),
)


def describe(windows: Sequence[tuple[np.ndarray, int]]) -> list[list[Head]]:
    """Describe every head of every layer, from windows of a text: maps (L, H, T, T), and the first
    row that counts.  A query with none before it never counts; without any, all is nan.
    """
    parts = []
    queries = 0
    for maps, first in windows:
        T = maps.shape[-1]
        rows = np.arange(max(first, 1), T)
        even = np.tri(T) / np.arange(1, T + 1)[:, None]
        looks = np.concatenate([maps.reshape(-1, T, T), even[None]])        # the last is even
        parts.append(_sums(looks[:, rows], rows))
        queries += len(rows)
    mean = {name: sum(part[name] for part in parts) / (queries or math.nan) for name in parts[0]}
    near = mean.pop("near")
    back = (near[:-1] - near[-1]).argmax(axis=-1)
    L, H = maps.shape[:2]
    numbers = [{name: float(x[look]) for name, x in mean.items()} for look in range(L * H + 1)]
    heads = [Head(numbers[i], numbers[-1], int(back[i])) for i in range(L * H)]
    return [heads[layer * H:layer * H + H] for layer in range(L)]


def _sums(weights, rows):
    """Return sums over the queries of these rows of a map, (..., R, T) -> name -> (...)."""
    each, keys = np.arange(len(rows)), np.arange(weights.shape[-1])
    logs = np.log2(weights, out=np.zeros_like(weights), where=weights > 0)      # 0 log 0 is 0
    return {"entropy": -(weights * logs).sum(axis=(-1, -2)),
            "distance": (weights * (rows[:, None] - keys)).sum(axis=(-1, -2)),
            "previous": weights[..., each, rows - 1].sum(axis=-1),
            "itself": weights[..., each, rows].sum(axis=-1),
            "first": weights[..., 0].sum(axis=-1),
            "near": np.stack([weights[..., each[rows >= k], rows[rows >= k] - k].sum(axis=-1)
                              for k in range(NEAR)], axis=-1)}


def kind(head: Head) -> tuple[str, str]:
    """Return the first rule that holds: the name of such a head, and what it does."""
    back = f"{head.back} back" if head.back else "itself"
    return next((name, does.format(back)) for name, does, holds in RULES
                if holds(head.numbers, head.even))


def distinguishing(layers: Sequence[Sequence[Head]]) -> set[str]:
    """Return the names, as `kind` has them, that at most half of the heads share."""
    names = [kind(head)[0] for heads in layers for head in heads]
    return {name for name in names if 2 * names.count(name) <= len(names)}
