"""Draw the next of V characters for each of B sequences, from its own logits.

Everything is in float64, whatever the logits are.  A temperature of 0 takes the likeliest.
"""
import math

import numpy as np

from minigrad import random
from minigrad.kernels.compiler.compiling import C2, D1, D2, I1, dense, kernel, stands_in_for
from minigrad.kernels.compiler.linking import serial


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
    heap = np.empty(logits.shape[1], np.int64)
    for b in range(len(logits)):
        drawn[b] = draw_one(logits[b], u[b], p[b], heap, temperature, kept, top_p)


@serial
def draw_one(logits, u, p, heap, temperature, kept, top_p):
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
    if kept < V or top_p < 1:
        make_heap(logits, heap)
    total = 0.0
    for n in range(kept):
        i = pop(logits, heap, V - n) if kept < V else n
        p[i] = math.exp((np.float64(logits[i]) - np.float64(logits[top])) / temperature)
        total += p[i]
    if top_p < 1:
        n, reached = 0, 0.0
        while n < kept and reached < top_p * total:
            reached += p[heap[V - 1 - n] if kept < V else pop(logits, heap, V - n)]
            n += 1
        for place in range(V - kept, V - n):
            p[heap[place]] = 0
        total = reached
    drawn, reached = top, 0.0           # the last id, if rounding leaves the total below u
    for i in range(V):
        p[i] /= total
        if p[i] > 0 and reached <= u:
            drawn = i
        reached += p[i]
    return drawn


@serial
def make_heap(logits, heap):
    """Arrange all ids as a heap: none below one that is less likely."""
    for i in range(heap.size):
        heap[i] = i
    for at in range(heap.size // 2 - 1, -1, -1):
        sift(logits, heap, at, heap.size)


@serial
def pop(logits, heap, size):
    """Move the likeliest of the first `size` ids, a heap, behind the others, and return it; the
    others become a heap.  Ranking ends with the last id that is kept, mostly one of the first."""
    heap[0], heap[size - 1] = heap[size - 1], heap[0]
    sift(logits, heap, 0, size - 1)
    return heap[size - 1]


@serial
def sift(logits, heap, at, size):
    """Let the id at a place of the heap sink below all that are likelier."""
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and likelier(logits, heap[child + 1], heap[child]):
            child += 1
        if not likelier(logits, heap[child], heap[at]):
            return
        heap[at], heap[child] = heap[child], heap[at]
        at = child


@serial
def likelier(logits, i, j):
    return logits[i] > logits[j] or logits[i] == logits[j] and i < j
