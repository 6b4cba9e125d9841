"""Characters to ids and back."""
import unicodedata
from collections.abc import Iterable

import numpy as np

NEAREST = 3     # known characters named in an error
TYPED = dict(zip("‘’“”–—…", "''\"\"--."))      # word processors put these for what was typed


class UnknownCharacterError(ValueError):
    """A text has a character that the vocabulary lacks."""


class CharTokenizer:
    """One id for each character of a vocabulary, in the order of their code points.

    Parameters
    ----------
    text : any text; its distinct characters are the vocabulary.
    """

    def __init__(self, text: str) -> None:
        if not text:
            raise ValueError("a vocabulary needs at least one character, and the text is empty")
        self._points = np.unique(_code_points(text))
        self.vocabulary = "".join(map(chr, self._points))

    @property
    def vocab_size(self) -> int:
        """The number of characters, V."""
        return len(self.vocabulary)

    def encode(self, text: str) -> np.ndarray:
        """Encode a text as ids, (len(text),) int64.

        Raises
        ------
        UnknownCharacterError : names the first unknown character, its position, the nearest known.
        """
        points = _code_points(text)
        ids = np.searchsorted(self._points, points).clip(max=self.vocab_size - 1)
        unknown = self._points[ids] != points
        if unknown.any():
            position = int(unknown.argmax())
            raise UnknownCharacterError(
                f"the character {_named(text[position])} at position {position} of {_shown(text)} "
                f"is not among the {self.vocab_size} that the model knows; the nearest are "
                f"{', '.join(map(repr, self._near(text[position])))}")
        return ids

    def without_unknown(self, text: str) -> tuple[str, dict[str, int]]:
        """Return the text without the characters that the vocabulary lacks, and how often it has
        each of these, the most frequent first."""
        points = _code_points(text)
        known = np.isin(points, self._points)
        unknown, counts = np.unique(points[~known], return_counts=True)
        often = np.argsort(-counts, kind="stable")
        return (points[known].tobytes().decode("utf-32-le", "surrogatepass"),
                {chr(unknown[i]): int(counts[i]) for i in often})

    def decode(self, ids: Iterable[int]) -> str:
        """Decode ids as a text."""
        ids = np.fromiter(ids, dtype=np.int64)
        if ids.size and not 0 <= ids.min() <= ids.max() < self.vocab_size:
            raise ValueError(f"ids lie between 0 and {self.vocab_size - 1}; "
                             f"these reach from {ids.min()} to {ids.max()}")
        return "".join(map(chr, self._points[ids]))

    def _near(self, character):
        """Return known characters: the other case, without the accent, then the nearest code
        points."""
        plain = unicodedata.normalize("NFKD", TYPED.get(character, character))[0]
        by_distance = sorted(self.vocabulary, key=lambda c: abs(ord(c) - ord(character)))
        alike = [c for c in (plain, character.swapcase(), plain.swapcase()) if c in by_distance]
        return list(dict.fromkeys(alike + by_distance))[:NEAREST]


def _code_points(text):
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def _named(character):
    return f"{character!r} ({unicodedata.name(character, f'U+{ord(character):04X}')})"


def _shown(text):
    return repr(text) if len(text) <= 40 else f"the text ({len(text)} characters)"
