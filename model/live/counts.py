"""Counted 5-grams for a page, as many of the most frequent ones as fit."""
import zlib

import numpy as np

ORDER = 5
MOST_BYTES = 750_000        # deflated; a third more in base64, which is 1 MB


def counted(ids: np.ndarray, vocab_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the different 5-grams of a text, sorted by their last id, then by the one before it,
    and so on, and how often each occurs: (N,) -> (R, 5), (R,)."""
    if len(ids) < ORDER or vocab_size ** ORDER > 2 ** 62:
        return np.empty((0, ORDER), np.int64), np.empty(0, np.int64)
    powers = vocab_size ** np.arange(ORDER)
    windows = np.lib.stride_tricks.sliding_window_view(ids.astype(np.int64), ORDER)
    codes, counts = np.unique(windows @ powers, return_counts=True)
    return codes[:, None] // powers % vocab_size, counts


def table(ids: np.ndarray, vocab_size: int) -> tuple[int, float, bytes]:
    """Return how many 5-grams a table holds, the share of the text that they cover, and the table,
    deflated: five columns of ids and one of counts, of 32 bits each."""
    grams, counts = counted(ids, vocab_size)
    order, kept = np.argsort(-counts, kind="stable"), len(grams)
    while True:
        some = np.sort(order[:kept])
        columns = np.column_stack([grams[some], counts[some]]).astype("<u4").T
        data = zlib.compress(columns.tobytes(), 9)
        if len(data) <= MOST_BYTES:
            return kept, float(counts[some].sum() / max(1, counts.sum())), data
        kept = int(kept * min(0.95, MOST_BYTES / len(data)))
