"""All n-grams of a text with their counts, as a tree, and the distribution that they give.

Each node is an n-gram, and its children are those that continue it by one id.  The nodes stand
level by level, and in each level in order, so the children of a node lie side by side.  The longest
n-grams are packed into whole numbers and sorted, and the shorter ones are the beginnings of these.

The longest n-grams count as often as they occur; a shorter one counts once for each different id
that precedes it.  For it is asked only after a longer context has said little: then an id that
follows many contexts is likelier than one that follows a single context often.

Source: Kneser & Ney 1995, "Improved backing-off for m-gram language modeling", as modified and
interpolated by Chen & Goodman 1998, "An Empirical Study of Smoothing Techniques for Language
Modeling", section 3.
Shapes: N rows, K ids of a context, V vocabulary.
"""
from typing import NamedTuple

import numpy as np

from minigrad.plug import formula

BITS = 63               # of a packed n-gram
MOST_IDS = (1 << 16) - 1    # of a vocabulary: digits have 16 bits
LARGE = 3               # a count from which on all have one discount
# What is taken off counts of 0, 1, 2 and more, where a text has too few n-grams to estimate it
USUAL_DISCOUNTS = 0.0, 0.5, 1.0, 1.5


class Tree(NamedTuple):
    """The n-grams of a text, up to an order.  The first node is the root, the empty n-gram."""
    digits: np.ndarray      # the last id of each n-gram, plus 1; 0 where the text ends: uint16
    counts: np.ndarray      # of each: int32
    children: np.ndarray    # the first child of each but the longest; and the end of all: int32
    discounts: np.ndarray   # of counts of 0, 1, 2 and more after contexts of 0, 1 .. ids: float64


def largest_order(vocab_size: int) -> int:
    """Return the largest order of n-grams that can be counted, 0 if there are too many ids: the
    longest n-grams are packed into numbers of 64 bits."""
    if vocab_size >= MOST_IDS:
        return 0
    order = 0
    while (vocab_size + 1) ** (order + 1) < 1 << BITS:
        order += 1
    return order


def count_ngrams(ids: np.ndarray, vocab_size: int, order: int) -> Tree:
    """Return the n-grams of ids (N,) of at most `order` of them, which is at most `largest_order`.
    Those that begin at the last ids end with the text."""
    base = vocab_size + 1
    codes = np.zeros(len(ids), np.int64)
    for n in range(order):
        end = max(0, len(ids) - n)
        codes *= base
        codes[:end] += ids[n:]
        codes[:end] += 1
    first = codes[:1].copy()        # of the text
    codes.sort()
    digits, counts, starts = _levels(
        codes,
        first,
        base,
        order)
    discounts = [_discounts(count[digit > 0]) for count, digit in zip(counts[1:], digits[1:])]
    sizes = np.cumsum([0, *map(len, digits)])
    for level, start in enumerate(starts):
        start += sizes[level + 1].astype(np.int32)
    return Tree(
        _joined(digits),
        _joined(counts),
        _joined([*starts, sizes[-1:].astype(np.int32)]),
        np.array(discounts))


def _levels(codes, first, base, order):
    """Return the digits, the counts, and the first children of the nodes, a list for each, with an
    array for each level; the first children are numbered within theirs."""
    digits = []
    counts = []
    starts = []
    total = np.array([len(codes)], np.int32)
    counted = codes         # what is counted: the n-grams of this level, in order
    for level in range(order, 0, -1):
        start = _starts(codes)
        codes = codes[start]
        if level < order:
            starts.append(start.astype(np.int32))
            start = _starts(counted)
        ends = np.append(start, len(counted)).astype(np.int32)
        counts.append(np.diff(ends))
        del start, ends, counted        # large ones
        digits.append((codes % base).astype(np.uint16))
        first //= base
        shorter = codes % base ** (level - 1)       # all but the first id of each
        counted = np.append(shorter[shorter > 0], first)
        counted.sort()
        codes //= base
    root = np.zeros(1, np.int32)
    digits.append(root.astype(np.uint16))
    counts.append(total)
    return digits[::-1], counts[::-1], [root, *starts[::-1]]


def _starts(codes):
    """Return where each run of equal codes begins, of codes in order."""
    begins = np.ones(len(codes), bool)
    np.not_equal(codes[1:], codes[:-1], out=begins[1:])
    return np.flatnonzero(begins)


def _discounts(counts):
    """Return what is taken off counts of 0, 1, 2, and 3 or more of all n-grams of one length."""
    numbers = np.bincount(np.minimum(counts, LARGE + 2), minlength=LARGE + 3)
    if not numbers[1:LARGE + 2].all():
        return USUAL_DISCOUNTS
    once = numbers[1] / (numbers[1] + 2 * numbers[2])
    discounts = [k - (k + 1) * once * numbers[k + 1] / numbers[k] for k in range(1, LARGE + 1)]
    if min(discounts) <= 0:
        return USUAL_DISCOUNTS
    return 0.0, *discounts


def _joined(arrays):
    """Return arrays one after the other, and empty the list, so that no level stays in memory
    twice for longer than it must."""
    joined = np.concatenate(arrays)
    arrays.clear()
    return joined


def contexts(ids: np.ndarray, order: int) -> np.ndarray:
    """Return what precedes the id after each of ids (B, T): their last K = order - 1 ids, -1 where
    there are fewer, (B, T, K)."""
    B, T = ids.shape
    K = order - 1
    padded = np.concatenate([np.full((B, K), -1), ids], axis=1)
    preceding = np.empty((B, T, K), np.int64)
    for k in range(K):
        preceding[:, :, k] = padded[:, k + 1:k + 1 + T]
    return preceding


def distributions(tree: Tree, preceding: np.ndarray, vocab_size: int) -> np.ndarray:
    """Return the probability of every id after each of the contexts, (N, K) -> (N, V) float64.

    With counts c, discounts D, h the context, h' the same without its oldest id, and p(x) = 1/V
    below the unigram,

        p(x | h) = (c(h x) - D(c(h x)) + sum over y of D(c(h y)) p(x | h')) / sum over y of c(h y),

    and p(x | h') if h was never seen.
    """
    p = np.full((len(preceding), vocab_size), 1 / vocab_size)
    for nodes, discounts in zip(_nodes(tree, preceding), tree.discounts):
        rows = np.flatnonzero(nodes >= 0)
        begin = tree.children[nodes[rows]].astype(np.int64)
        end = tree.children[nodes[rows] + 1]
        begin += tree.digits[begin] == 0        # the end of the text is no id
        different = end - begin
        within = np.arange(different.sum()) - np.repeat(np.cumsum(different) - different, different)
        children = np.repeat(begin, different) + within
        row = np.repeat(np.arange(len(rows)), different)
        counts = tree.counts[children]
        discount = discounts[np.minimum(counts, LARGE)]
        total = np.bincount(row, counts, minlength=len(rows))
        rest = np.bincount(row, discount, minlength=len(rows))
        seen = different > 0
        p[rows[seen]] *= (rest[seen] / total[seen])[:, None]
        left = (counts - discount) / total[row]
        p[rows[row], tree.digits[children].astype(np.int64) - 1] += left
    return p


def _nodes(tree, preceding):
    """Return the nodes of each context of 0, 1, ... K ids: (K + 1, N); -1 if it was never seen."""
    N, K = preceding.shape
    nodes = np.zeros((K + 1, N), np.int64)
    for step in range(K):
        # A context of n ids begins at column K - n.
        for n in range(step + 1, K + 1):
            nodes[n] = _child(tree, nodes[n], preceding[:, K - n + step])
    return nodes


def _child(tree, nodes, ids):
    """Return the child of each node for an id; -1 if there is none, or no node, or no id."""
    known = (nodes >= 0) & (ids >= 0)
    nodes = np.where(known, nodes, 0)
    left = tree.children[nodes].astype(np.int64)
    end = tree.children[nodes + 1].astype(np.int64)
    right = end.copy()
    while (left < right).any():
        middle = (left + right) // 2
        less = tree.digits[np.minimum(middle, len(tree.digits) - 1)] < ids + 1
        searching = left < right
        right = np.where(searching & ~less, middle, right)
        left = np.where(searching & less, middle + 1, left)
    at = np.minimum(left, len(tree.digits) - 1)
    return np.where(known & (left < end) & (tree.digits[at] == ids + 1), left, -1)


@formula
def mix(logits, preceding, tree, weight):
    """Return log((1 - weight) softmax(logits) + weight p), (N, V), for p the distribution of a tree
    of n-grams after each context, (N, K)."""
    shares = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    counted = distributions(tree, preceding, logits.shape[1])
    return np.log((1 - weight) * shares + weight * counted).astype(logits.dtype)
