"""The n-gram baseline: how well counts of the last few characters predict the next one."""
import math
from collections.abc import Iterator

import numpy as np

# Codes per training character up to which counting in a table beats sorting.
TABLE_LIMIT = 4
# Seconds per character and order.  Only their size matters: they bound the work, and being
# constants they let every machine count the same orders.
SECONDS_TABLE = 2.5e-8
SECONDS_SORT = 2.5e-7


def ngram_losses(train: np.ndarray, val: np.ndarray, vocab_size: int, orders: int = 5,
                 seconds: float = math.inf) -> list[float]:
    """Return the loss of counted 1-grams, 2-grams, ... in nats per character, on all validation ids
    but the first, which no model predicts either.

    Parameters
    ----------
    orders : how many losses to return, at most
    seconds : roughly how long counting may take; a large text gets fewer orders, at least one
    """
    return [float(0 - np.log(p[1:]).mean())        # 0 and not -0 where all probabilities are 1
            for p in ngram_probabilities(train, val, vocab_size, orders, seconds)]


def ngram_probabilities(train: np.ndarray, val: np.ndarray, vocab_size: int, orders: int,
                        seconds: float = math.inf) -> Iterator[np.ndarray]:
    """For each order from 1, yield the probability of every validation id: (len(val),) float64.

    The context of an id is the validation ids before it.  Counts c and the number of different
    successors t come from the training ids; with h the context, h' the same without its oldest
    id, and p(x) = 1/V below the unigram,

        p(x | h) = (c(h x) + t(h) p(x | h')) / (c(h) + t(h)),    p(x | h') if h was never seen.

    Source: Witten & Bell 1991, method C, interpolated as in Chen & Goodman 1998, section 2.
    """
    p = np.full(len(val), 1 / vocab_size)
    # A context is known by its rank among the different ones in training, 0 .. n_contexts - 1;
    # n_contexts itself stands for every unseen one.  So codes stay small for any order.
    contexts = np.zeros(len(train), np.int64)
    val_contexts = np.zeros(len(val), np.int64)
    n_contexts = 1
    for order in range(1, orders + 1):
        in_table = n_contexts * vocab_size <= TABLE_LIMIT * len(train)
        seconds -= (len(train) + len(val)) * (SECONDS_TABLE if in_table else SECONDS_SORT)
        if order > 1 and seconds < 0:
            return
        codes = contexts * vocab_size + train[order - 1:]
        if in_table:
            grams, ranks, counts = _count_in_table(codes)
        else:
            grams, ranks, counts = np.unique(codes, return_inverse=True, return_counts=True)
        val_ranks = _look_up(grams, val_contexts * vocab_size + val)

        context_of = grams // vocab_size
        successors = np.bincount(context_of, minlength=n_contexts + 1)
        total = successors + np.bincount(context_of, counts, minlength=n_contexts + 1)
        successors = successors[val_contexts]
        total = total[val_contexts]
        counts = np.append(counts, 0)[val_ranks]
        p = np.where(total > 0, (counts + successors * p) / np.maximum(total, 1), p)
        yield p

        # The gram that ends at one id is the context, one longer, of the next id.
        n_contexts = len(grams)
        contexts = ranks[:-1]
        val_contexts = np.append(n_contexts, val_ranks[:-1])


def _count_in_table(codes):
    """Return the same as np.unique: the distinct codes in order, the rank of each code among them,
    and their counts.  It is faster, unless the table would be mostly empty."""
    table = np.bincount(codes)
    present = table > 0
    rank = np.cumsum(present) - 1
    return np.flatnonzero(present), rank[codes], table[present]


def _look_up(grams, codes):
    """Return the rank of each code among the ascending grams; len(grams) where it is missing."""
    ranks = np.searchsorted(grams, codes)
    is_there = np.append(grams, -1)[ranks] == codes
    return np.where(is_there, ranks, len(grams))
