"""Draw the next of V characters for each of B sequences, from its own logits.

Everything is in float64, whatever the logits are.  A temperature of 0 takes the likeliest.
"""
import heapq
import math

import numpy as np

from minigrad import random
from minigrad.kernels.compiler.compiling import C2, D1, D2, I1, dense, kernel, stands_in_for
from minigrad.kernels.compiler.linking import allocating


@stands_in_for(random.draw)
def draw(logits: np.ndarray, u: np.ndarray, temperature: float, top_k: int | None,
         top_p: float | None) -> tuple[np.ndarray, np.ndarray]:
    drawn, p = np.empty(len(logits), np.int64), np.empty(logits.shape)
    draw_kernel(dense(logits), u, drawn, p, temperature, *limits(logits.shape[1], top_k, top_p))
    return drawn, p


def limits(V: int, top_k: int | None, top_p: float | None) -> tuple[int, float]:
    """Return how many of the likeliest ids are kept, and top_p."""
    return min(V, top_k or V), 1.0 if top_p is None else top_p


@kernel
def draw_kernel(logits: C2, u: D1, drawn: I1, p: D2, temperature: float, kept: int, top_p: float):
    for b in range(len(logits)):
        drawn[b] = draw_one(logits[b], u[b], p[b], temperature, kept, top_p)


@allocating
def draw_one(logits, u, p, temperature, kept, top_p):
    """Return the id drawn, and write the probabilities to p."""
    top, V = 0, logits.size
    p[:] = 0
    for i in range(V):
        if not logits[i] < np.inf:      # nan too
            return -1
        if logits[i] > logits[top]:
            top = i
    if logits[top] == -np.inf:
        return -1
    if temperature == 0:
        p[top] = 1
        return top
    # The likeliest comes first, and of equal ones the lower id.
    heap = [(-logits[i], i) for i in range(V if kept < V or top_p < 1 else 0)]
    heapq.heapify(heap)
    ranked = [heapq.heappop(heap)[1] for _ in range(kept if kept < V else 0)]
    total = 0.0
    for n in range(kept):
        i = ranked[n] if kept < V else n
        p[i] = math.exp((np.float64(logits[i]) - np.float64(logits[top])) / temperature)
        total += p[i]
    if top_p < 1:
        n, reached = 0, 0.0
        while n < kept and reached < top_p * total:
            if n == len(ranked):
                ranked.append(heapq.heappop(heap)[1])
            reached += p[ranked[n]]
            n += 1
        for i in ranked[n:]:
            p[i] = 0
        for _, i in heap:
            p[i] = 0
        total = reached
    drawn, reached = top, 0.0           # the last id, if rounding leaves the total below u
    for i in range(V):
        p[i] /= total
        if p[i] > 0 and reached <= u:
            drawn = i
        reached += p[i]
    return drawn
