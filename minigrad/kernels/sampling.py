"""Draw the next of V characters for each of B sequences, from its own logits.

Everything is in float64, whatever the logits are.  A temperature of 0 takes the likeliest.
"""
import math

import numpy as np

from minigrad.kernels.build.compiling import dense, instead_of, kernel, serial


def plain_draw(logits, u, temperature, top_k, top_p):
    drawn, probabilities = np.full(len(logits), -1), np.zeros(logits.shape)
    for b, row in enumerate(logits.astype(np.float64)):
        ranked = np.argsort(-row, kind="stable")[:1 if temperature == 0 else top_k]
        if not (row < np.inf).all() or row[ranked[0]] == -np.inf:
            continue
        p = np.exp((row[ranked] - row[ranked[0]]) / (temperature or 1.0))
        if top_p is not None and top_p < 1:
            reached = np.cumsum(p)
            fewest = int(np.searchsorted(reached, top_p * reached[-1])) + 1
            ranked, p = ranked[:fewest], p[:fewest]
        probabilities[b, ranked] = p / p.sum()
        likely = np.flatnonzero(probabilities[b])
        reached = np.cumsum(probabilities[b, likely])
        drawn[b] = likely[min(np.searchsorted(reached, u[b], side="right"), likely.size - 1)]
    return drawn, probabilities


@instead_of(plain_draw)
def draw(logits: np.ndarray, u: np.ndarray, temperature: float, top_k: int | None,
         top_p: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Return ids (B,), and the probabilities (B, V) from which they were drawn, from logits (B, V).

    An id is -1 where logits are nan or inf, or all of them are -inf.
    """
    drawn, p = np.empty(len(logits), np.int64), np.zeros(logits.shape)
    draw_kernel(dense(logits), likeliest(logits, top_k, top_p), u, drawn, p, temperature,
                1.0 if top_p is None else top_p)
    return drawn, p


def likeliest(logits: np.ndarray, top_k: int | None, top_p: float | None) -> np.ndarray:
    """Return the ids that top_k leaves, (B, k), likeliest first, the lowest id first among equals;
    an empty (B, 0) where neither is given."""
    if top_k is None and top_p is None:
        return np.empty((len(logits), 0), np.int64)
    return np.ascontiguousarray(np.argsort(-logits, axis=-1, kind="stable")[:, :top_k])


@kernel("C2 ids2 D1 I1 D2 double double")
def draw_kernel(logits, ranked, u, drawn, p, temperature, top_p):
    for b in range(len(logits)):
        drawn[b] = draw_one(logits[b], ranked[b], u[b], p[b], temperature, top_p)


@serial
def draw_one(logits, ranked, u, p, temperature, top_p):
    """Return the id drawn, and write the probabilities to p, which holds zeros."""
    top = 0
    for i in range(logits.size):
        if not logits[i] < np.inf:      # nan too
            return -1
        if logits[i] > logits[top]:
            top = i
    if logits[top] == -np.inf:
        return -1
    if temperature == 0:
        p[top] = 1
        return top
    total = 0.0
    for n in range(ranked.size or logits.size):
        i = ranked[n] if ranked.size else n
        p[i] = math.exp((np.float64(logits[i]) - np.float64(logits[top])) / temperature)
        total += p[i]
    if top_p < 1:
        reached = 0.0
        for i in ranked:
            if reached >= top_p * total:
                p[i] = 0
            reached += p[i]
        total = reached
    drawn, reached = top, 0.0           # the last id, if rounding leaves the total below u
    for i in range(p.size):
        p[i] /= total
        if p[i] > 0 and reached <= u:
            drawn = i
        reached += p[i]
    return drawn
