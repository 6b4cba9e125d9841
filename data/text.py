"""A text as a run uses it: read, checked, split and encoded once."""
import functools
import hashlib

import numpy as np

from data import batches
from data.reading import read_text
from data.tokenizer import CharTokenizer, Tokenizer

# A text that repeats itself: the validation loss reads too low by about the repeated share.
PROBE = 50              # characters; at 20, one in fifty of an ordinary play is a stock phrase
MOST_PROBES = 150       # keeps a text of 20 million characters under a second
WARNING_SHARE = 0.05    # ordinary texts measure 0.00, and a text pasted twice 1.00


class Text:
    """The characters of a text, and their ids in two parts: the last tenth of the characters is for
    validation.

    Parameters
    ----------
    characters : the whole text.
    name : what it is called.
    tokenizer : that of a model; if None, one of the text's own characters.

    Attributes
    ----------
    train, val : the ids of the training part and of the validation part, int64.
    """

    def __init__(self, characters: str, name: str = "",
                 tokenizer: Tokenizer | None = None) -> None:
        self.characters = characters
        self.name = name
        self.tokenizer = tokenizer or CharTokenizer(characters)
        train, val = self.parts()
        self.train = self.tokenizer.encode(train)
        self.val = self.tokenizer.encode(val)

    @classmethod
    def read(cls, name_or_file: str) -> "Text":
        """Read a known text, or a UTF-8 file; see `read_text`."""
        return cls(read_text(name_or_file), name_or_file)

    def __len__(self) -> int:
        """The number of ids: of characters or tokens."""
        return len(self.train) + len(self.val)

    @property
    def different(self) -> int:
        """The number of different ids."""
        V = self.tokenizer.vocab_size
        return np.count_nonzero(np.bincount(self.train, minlength=V)
                                + np.bincount(self.val, minlength=V))

    @functools.cached_property
    def digest(self) -> str:
        """What identifies the text."""
        return digest(self.characters)

    def parts(self) -> tuple[str, str]:
        """Return the characters of both parts."""
        return batches.split(self.characters)

    def problems(self, block_size: int) -> list[str]:
        """Return a line if a part does not hold a window of T ids and the one that follows them, or
        there is nothing to learn."""
        unit = self.tokenizer.unit
        largest = min(len(self.train), len(self.val)) - 1
        if block_size > largest:
            smaller = f"use --block_size {largest} or less, or " if largest > 0 else "use "
            return [f"--block_size {block_size} needs {block_size + 1} {unit}s in each part of the "
                    f"text, but {len(self.train)} are for training and {len(self.val)} for "
                    f"validation; {smaller}a longer text"]
        if self.different == 1:
            return [f"the text has one {unit} only, {self.characters[0]!r}, over and over, so "
                    "there is nothing to learn; give a text of different ones"]
        return []

    def windows(self, block_size: int, count: int = 0) -> batches.Batch:
        """Return windows over the validation part, (N, T) each: all, or `count` of them, evenly
        spaced and always the same."""
        x, y = batches.windows(self.val, block_size)
        chosen = batches.spread(len(x), count)
        return x[chosen], y[chosen]


def digest(characters: str) -> str:
    """Return the sha256 of a text's UTF-8, which identifies it."""
    return hashlib.sha256(characters.encode("utf-8", "surrogatepass")).hexdigest()


def repetition_warning(train_text: str, val_text: str) -> str | None:
    """Return a warning if too much of the validation text also stands in the training text.  The
    share is estimated from probes, evenly spaced over the validation text."""
    probes = [val_text[i * PROBE:(i + 1) * PROBE]
              for i in batches.spread(len(val_text) // PROBE, MOST_PROBES)]
    share = sum(probe in train_text for probe in probes) / max(len(probes), 1)
    if share >= WARNING_SHARE:
        return (f"{share:.0%} of the validation text (the last part of the text) stands word for "
                "word in the training text too, so the validation loss will look better than it "
                "is; remove the repetitions")
