"""Proof that the probabilities of a score are probabilities:

    python -m model.sample --score FILE --prove

A loss proves nothing by itself: a program that looks at the next character reports any loss.  Three
things are shown for the very text that is scored.  The probabilities sum to 1 at every position.
If the ids after a position change, no probability up to it changes.  And an arithmetic coder
compresses the text by them to as many bits as the loss says, and restores it from these bits alone.

Source: Witten, Neal & Cleary 1987, "Arithmetic Coding for Data Compression", section 2.
Shapes: B windows, T ids, N ids of a text, V vocabulary.
"""
import itertools
import math
from collections.abc import Iterable, Iterator

import numpy as np
from tqdm import tqdm

from data.tokenizer import Tokenizer
from model.generation import USELESS, Reader
from model.score.windows import log_probabilities, text_windows
from model.transformer import Transformer

SUM_ERROR = 1e-4        # of V float32 probabilities; rounding made 5e-7 of 65
CODED = 1e-5            # the share by which code and loss may differ: both are rounded, in two ways
WHOLE = 1 << 40         # what the probabilities of a position are parts of, as whole numbers
PRECISION = 63          # the interval that the coder narrows is at least 2 ** PRECISION wide


class ProofError(ValueError):
    """The numbers that a model gives are not the probabilities of the text."""


def prove(model: Transformer, tokenizer: Tokenizer, ids: np.ndarray, nats: float,
          slide: bool = False) -> str:
    """Prove that the probabilities by which a text was scored are probabilities, and return what
    was found, a line each.

    Parameters
    ----------
    ids : of the text, (N,).
    nats : the sum of the losses that the score reports for all of them but the first.
    slide : how windows move, as in `Reader`.

    Raises
    ------
    ProofError : they are not.
    """
    windows, error = check_windows(model, ids, slide)
    coded = encode(ids[1:], predictions(model, ids, slide))
    bits = nats / math.log(2)
    # The coder rounds up to whole bits.
    if not abs(len(coded) - bits) <= 8 + CODED * bits:
        raise ProofError(f"the loss says {bits:,.0f} bits, and the text takes {len(coded):,} with "
                         "the probabilities that the model gives when it reads id by id")
    if not np.array_equal(decode(coded, model, ids[:1], len(ids), slide), ids):
        raise ProofError("the compressed text is not restored: a probability was not the same "
                         "when the ids after it were not known yet")
    unit = tokenizer.unit
    N = len(ids) - 1
    return (f"    at {N:,} positions the probabilities sum to 1, within {error:.0e}\n"
            f"    in {windows:,} windows, later {unit}s changed: no probability before them did\n"
            f"    the loss says {bits:,.1f} bits: {len(coded):,} hold all but the first {unit},\n"
            f"    and from them alone the text was restored, {unit} by {unit}")


def check_windows(model: Transformer, ids: np.ndarray, slide: bool = False) -> tuple[int, float]:
    """Check in every window of a text that probabilities sum to 1, and that no changed future
    changes them.  Return the number of windows, and the largest difference of a sum from 1."""
    rng = np.random.default_rng(0)
    V = model.config.vocab_size
    count = 0
    largest = 0.0
    groups = [at for at, _ in text_windows(model, ids, slide)]
    for at in tqdm(groups, "changing futures", leave=False, disable=None):
        x = ids[at]                                                             # (B, T)
        B, T = x.shape
        cuts = rng.integers(1, T + 1, size=(B, 1))
        past = np.arange(T) < cuts
        changed = np.where(past, x, (x + rng.integers(1, max(V, 2), size=x.shape)) % V)
        for (part, was), (_, now) in zip(log_probabilities(model, x),
                                         log_probabilities(model, changed)):    # (B, part, V)
            sums = np.exp(was, dtype=np.float64).sum(axis=-1)
            largest = np.maximum(largest, np.abs(sums - 1).max())       # nan if one is nan
            if not largest <= SUM_ERROR:
                raise ProofError(f"the probabilities of a position do not sum to 1, but differ by "
                                 f"{largest:.2g}")
            differ = (was != now).any(axis=-1) & past[:, part]
            if differ.any():
                row, t = np.argwhere(differ)[0]
                raise ProofError(f"the probabilities of id {at[row, part][t] + 2:,} changed when "
                                 f"only the ids from number {at[row, 0] + cuts[row, 0] + 1:,} on "
                                 "did: the model sees the future")
        count += B
    return count, largest


def predictions(model: Transformer, ids: np.ndarray, slide: bool = False
                ) -> Iterator[np.ndarray]:
    """Yield the parts of WHOLE that each id but the first of a known text may have, (V,)."""
    reader = Reader(model, ids[None, :1], slide=slide)
    for id in tqdm(ids[1:], "compressing", leave=False, disable=None):
        yield whole_parts(reader.logits()[0])
        reader.append(id[None, None])


def decode(coded: list[int], model: Transformer, first: np.ndarray, N: int, slide: bool = False
           ) -> np.ndarray:
    """Return the N ids of a text, of which the first, (1,), and the bits of the others are given.
    The model reads only what has been decoded."""
    reader = Reader(model, first[None], slide=slide)
    decoder = Decoder(coded)
    decoded = [*first]
    for _ in tqdm(range(N - 1), "restoring", leave=False, disable=None):
        decoded.append(decoder.next(whole_parts(reader.logits()[0])))
        reader.append(np.array([[decoded[-1]]]))
    return np.array(decoded)


def whole_parts(logits: np.ndarray) -> np.ndarray:
    """Return the softmax of logits, (V,), as whole parts of WHOLE, each at least 1: (V,) int64."""
    p = np.exp(logits.astype(np.float64) - logits.max())
    if not math.isfinite(p.sum()):
        raise ProofError(USELESS)
    return 1 + (p * (WHOLE / p.sum())).astype(np.int64)


def encode(ids: Iterable[int], parts: Iterable[np.ndarray]) -> list[int]:
    """Return the bits of ids, given the parts of WHOLE of every id at each position, (V,).

    All ids together stand for an interval [low, low + width): each id takes its part of the
    interval of those before it, which is then doubled as often as its width allows.
    """
    width = 1 << PRECISION
    steps = [(0, 0)]
    for id, part in zip(ids, parts):
        start, width = narrowed(width, part.cumsum(), id)
        doublings = PRECISION + 1 - width.bit_length()
        steps.append((start << doublings, doublings))
        width <<= doublings
    low, doublings = joined(steps)
    code = -(-low >> PRECISION)     # in the interval is a number that ends in PRECISION zeros
    return [int(bit) for bit in f"{code:0{doublings}b}"]


def joined(steps: list[tuple[int, int]]) -> tuple[int, int]:
    """Return the sum of numbers, of which each is doubled as often as the steps after it say, and
    how many doublings there are; half by half, as long numbers are slow."""
    if len(steps) == 1:
        return steps[0]
    half = len(steps) // 2
    low, doublings = joined(steps[:half])
    more, further = joined(steps[half:])
    return (low << further) + more, doublings + further


class Decoder:
    """Finds ids in bits that `encode` returned; beyond their end all bits are 0."""

    def __init__(self, bits: list[int]) -> None:
        self.bits = itertools.chain(bits, itertools.repeat(0))
        self.width = 1 << PRECISION
        self.offset = 0                     # of the code, from the beginning of the interval
        self.read(PRECISION)

    def read(self, count: int) -> None:
        """Double the offset so many times, and add the next bits."""
        for bit in itertools.islice(self.bits, count):
            self.offset = 2 * self.offset + bit

    def next(self, parts: np.ndarray) -> int:
        """Return the next id, given the parts of WHOLE of every id, (V,)."""
        ends = parts.cumsum()
        # The last id whose interval does not begin beyond the code
        target = ((self.offset + 1) * int(ends[-1]) - 1) // self.width
        id = int(np.searchsorted(ends, target, side="right"))
        start, width = narrowed(self.width, ends, id)
        doublings = PRECISION + 1 - width.bit_length()
        self.offset -= start
        self.read(doublings)
        self.width = width << doublings
        return id


def narrowed(width: int, ends: np.ndarray, id: int) -> tuple[int, int]:
    """Return where the part of an interval begins that belongs to an id, whose parts end at `ends`,
    (V,); and how wide it is."""
    whole = int(ends[-1])
    begin = int(ends[id - 1]) if id else 0
    start = width * begin // whole
    return start, width * int(ends[id]) // whole - start
