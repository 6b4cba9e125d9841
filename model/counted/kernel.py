"""`tree.mix`, compiled: a row at a time."""
import math
from typing import NamedTuple

import numpy as np
from numba import types

from minigrad.kernels.compiler.compiling import C2, D1, IDS2, dense, kernel, rows, stands_in_for
from minigrad.kernels.compiler.linking import serial
from model.counted import tree
from model.counted.tree import LARGE


def _dense(kind, axes=1):
    """Return what a dense array of numbers of this type is annotated with."""
    return lambda real: types.Array(kind, axes, "C", readonly=True)


class Nodes(NamedTuple):
    """Those of a `tree.Tree`."""
    digits: _dense(types.uint16)
    counts: _dense(types.int32)
    children: _dense(types.int32)
    discounts: _dense(types.float64, axes=2)


@stands_in_for(tree.mix)
def mix(logits, preceding, tree, weight):
    logits = rows(logits)
    out = np.empty_like(logits)
    p = np.empty(logits.shape[1])
    mix_kernel(
        logits,
        dense(preceding),
        *tree,
        weight,
        p,
        out)
    return out


@kernel
def mix_kernel(logits: C2, preceding: IDS2, tree: Nodes, weight: float, p: D1, out: C2):
    for r in range(len(logits)):
        distribution(tree, preceding[r], p)
        mix_row(
            logits[r],
            p,
            weight,
            out[r])


@serial
def distribution(tree, ids, p):
    """Write the probability of every id after these to p, (V,)."""
    p[:] = 1 / p.size
    K = ids.size
    for n in range(K + 1):
        node = 0
        for i in range(K - n, K):
            node = child(tree, node, ids[i])
            if node < 0:
                return              # nor was a longer context ever seen
        begin = np.int64(tree.children[node])
        end = np.int64(tree.children[node + 1])
        if tree.digits[begin] == 0:     # the end of the text is no id
            begin += 1
        if begin == end:
            return
        total = 0
        rest = 0.0
        for i in range(begin, end):
            total += tree.counts[i]
            rest += tree.discounts[n, min(tree.counts[i], LARGE)]
        for i in range(p.size):
            p[i] *= rest / total
        for i in range(begin, end):
            count = tree.counts[i]
            p[tree.digits[i] - 1] += (count - tree.discounts[n, min(count, LARGE)]) / total


@serial
def child(tree, node, id):
    """Return the child of a node for an id; -1 if there is none."""
    left = np.int64(tree.children[node])
    end = np.int64(tree.children[node + 1])
    right = end
    while left < right:
        middle = (left + right) // 2
        if tree.digits[middle] < id + 1:
            left = middle + 1
        else:
            right = middle
    if id >= 0 and left < end and tree.digits[left] == id + 1:
        return left
    return -1


@serial
def mix_row(logits, p, weight, out):
    """Write log((1 - weight) softmax(logits) + weight p)."""
    top = -np.inf
    for i in range(logits.size):
        if logits[i] > top:
            top = np.float64(logits[i])
    total = 0.0
    for i in range(logits.size):
        total += math.exp(logits[i] - top)
    for i in range(logits.size):
        share = math.exp(logits[i] - top) / total
        out[i] = math.log((1 - weight) * share + weight * p[i])
