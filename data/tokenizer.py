"""Tokenizers: text to ids and back, here with one id for each character."""
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import index

import numpy as np

from minigrad.words import shown

NEAREST = 3     # known characters named in an error
FAR = 128       # code points between two alphabets
SHOWN = 100     # pieces of a vocabulary that are printed
TYPED = dict(zip("‘’“”–—…", "''\"\"--."))      # what was typed, where a word processor changed it


class TextError(ValueError):
    """A mistake with a text that the user can correct.  The message is one line: what was expected,
    what came, what to do."""


class UnknownCharacterError(ValueError):
    """A text has a character that is not in the vocabulary."""


class MissingLibrary(ValueError):
    """The library that reads a tokenizer is not installed; the message says how to install it."""


class Tokenizer:
    """Text to ids and back.

    Attributes
    ----------
    unit : what an id stands for, "character" or "token".
    end : the id that ends a text, or None.
    more_ends : further ids that do; `ends` are all of them.
    hidden : the names of special tokens, which are not shown in a text, by their ids.
    chat_template : the program that writes a conversation for a model that was made to chat, or
        None.
    vocabulary : the text of each id.
    vocab_size : the number of ids, V.
    ARRAYS : the names of the arrays that a checkpoint keeps of it.  The method arrays() returns
        them, and the class method restored(vocab_size, *arrays) makes the tokenizer of them, or
        raises a ValueError if they are damaged or do not fit.
    """

    unit = "character"
    end = None
    more_ends: Sequence[int] = ()
    hidden: Mapping[int, str] = {}
    chat_template: str | None = None
    ARRAYS = ()

    @property
    def ends(self) -> tuple[int, ...]:
        """The ids that end a text, `end` first."""
        return () if self.end is None else (self.end, *self.more_ends)

    def __repr__(self) -> str:
        first = "".join(self.vocabulary[:SHOWN])
        return f"<{type(self).__name__} of {self.vocab_size:,} {self.unit}s: {shown(first)}>"


class CharTokenizer(Tokenizer):
    """One id for each character of a vocabulary.

    Parameters
    ----------
    text : any text; its distinct characters are the vocabulary, in the order of their code points.
    """

    ARRAYS = ("vocabulary",)

    def __init__(self, text: str) -> None:
        self._set_vocabulary("".join(map(chr, np.unique(_code_points(text)))))

    @classmethod
    def of(cls, vocabulary: str, vocab_size: int | None = None) -> "CharTokenizer":
        """Return the tokenizer whose ids are the places of the characters in a vocabulary, in any
        order.  `vocab_size` is the number of ids of the model that it is for.

        Raises
        ------
        ValueError : a character occurs twice, there is none, or there are not `vocab_size`.
        """
        if vocab_size not in (None, len(vocabulary)):
            raise ValueError(f"the vocabulary has {len(vocabulary)} characters, for a model of "
                             f"{vocab_size}")
        tokenizer = cls.__new__(cls)
        tokenizer._set_vocabulary(vocabulary)
        return tokenizer

    def arrays(self) -> tuple[np.ndarray, ...]:
        """Return the code point of each id, (V,)."""
        return self._points,

    @classmethod
    def restored(cls, vocab_size: int, *arrays: np.ndarray) -> "CharTokenizer":
        """Return the tokenizer of these code points."""
        points, = arrays
        if points.ndim != 1 or points.dtype.kind != "u":
            raise ValueError("its vocabulary is no row of characters")
        return cls.of("".join(map(chr, points)), vocab_size)

    def _set_vocabulary(self, vocabulary):
        if not vocabulary:
            raise ValueError("a vocabulary needs at least one character, and the text is empty")
        for c, n in Counter(vocabulary).items():
            if n > 1:
                raise ValueError(f"a vocabulary has each character once, and {c!r} is in it twice")
        self.vocabulary = vocabulary
        self._points = _code_points(vocabulary)
        self._ids = np.full(int(self._points.max()) + 2, -1, np.int64)  # of code points; -1: none
        self._ids[self._points] = np.arange(len(vocabulary))

    @property
    def vocab_size(self) -> int:
        """The number of characters, V."""
        return len(self.vocabulary)

    def encode(self, text: str) -> np.ndarray:
        """Encode a text as ids, (len(text),) int64.

        Raises
        ------
        UnknownCharacterError : it names the first unknown character, its position, and the most
            similar known ones.
        """
        points = _code_points(text)
        ids = self._ids[points.clip(max=len(self._ids) - 1)]
        if (unknown := ids < 0).any():
            position = int(unknown.argmax())
            character = text[position]
            name = unicodedata.name(character, f"U+{ord(character):04X}")
            near = ", ".join(map(repr, self._near(character)))
            where = repr(text) if len(text) <= 40 else f"the text ({len(text)} characters)"
            raise UnknownCharacterError(
                f"the character {character!r} ({name}) at position {position} of {where} is not "
                f"among the {self.vocab_size} that the model knows{near and '; the nearest are '}"
                f"{near}")
        return ids

    def without_unknown(self, text: str) -> tuple[str, dict[str, int]]:
        """Return the text without its unknown characters, and how often it has each of these, the
        most frequent first."""
        points = _code_points(text)
        is_known = np.isin(points, self._points)
        known, unknown = (points[part].tobytes().decode("utf-32-le", "surrogatepass")
                          for part in (is_known, ~is_known))
        return known, dict(sorted(Counter(unknown).items(), key=lambda item: (-item[1], item[0])))

    def decode(self, ids: Iterable[int]) -> str:
        """Decode ids as a text."""
        return "".join(map(chr, self._points[check_ids(ids, self.vocab_size)]))

    def stream(self, after: Iterable[int] = ()) -> "Stream":
        """Return a decoder of one id at a time; the ids before them do not matter."""
        return Stream(self.vocabulary)

    def _near(self, character):
        """Return known characters: the other case, without the accent, then the nearest code
        points; none if these are of another alphabet, or the character is no letter or sign."""
        plain = unicodedata.normalize("NFKD", TYPED.get(character, character))[0]
        by_distance = sorted(self.vocabulary, key=lambda c: abs(ord(c) - ord(character)))
        alike = [c for c in (plain, character.swapcase(), plain.swapcase()) if c in by_distance]
        far = abs(ord(by_distance[0]) - ord(character)) > FAR or not character.isprintable()
        return [] if far and not alike else list(dict.fromkeys(alike + by_distance))[:NEAREST]


class Stream:
    """Decode one id at a time: add(id) returns a character, and rest() what is left of a text."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self.vocabulary = vocabulary

    def add(self, id: int) -> str:
        """Return the character of an id."""
        return self.vocabulary[id]

    def rest(self) -> str:
        """Return nothing, since every id is a whole character."""
        return ""


def check_ids(ids: Iterable[int], vocab_size: int) -> np.ndarray:
    """Return ids as int64, (N,).  Refuse what is no whole number, by a TypeError, and ids outside
    the vocabulary."""
    ids = np.fromiter(map(index, ids), np.int64)
    if ids.size and not 0 <= ids.min() <= ids.max() < vocab_size:
        raise ValueError(f"ids lie between 0 and {vocab_size - 1}; "
                         f"these reach from {ids.min()} to {ids.max()}")
    return ids


def _code_points(text):
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
