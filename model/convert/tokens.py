"""Tokens to ids and back, by a tokenizer.json of Hugging Face and their library `tokenizers`.

The library is imported when a tokenizer is made, and only then.
"""
import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

import numpy as np

from data.tokenizer import MissingLibrary, Stream, Tokenizer, UnknownCharacterError, check_ids

REPLACED = "\ufffd"     # what the library makes of bytes that are no character
MOST_IDS = 2            # of a model, for each of its tokenizer; none is filled up by as many
MOST_HELD = 16          # tokens that may be parts of a character; it has four bytes at most


class TokenTokenizer(Tokenizer):
    """The tokens of a tokenizer.json.

    Parameters
    ----------
    json : the text of the file.
    end : the id of the token that ends a text, if there is one.
    vocab_size : the number of ids of the model, V, if it has more than the tokenizer, up to twice
        as many; the others stand for an empty text.

    Raises
    ------
    MissingLibrary : `tokenizers` is not installed.
    ValueError : the file is damaged, or the ids do not fit.
    """

    unit = "token"
    ARRAYS = "tokenizer", "end"

    def __init__(self, json: str, end: int | None = None, vocab_size: int | None = None) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingLibrary(
                "its vocabulary is of tokens, which the library tokenizers reads, and that is not "
                "installed; install it with python -m pip install -e '.[convert]'") from error
        self.json, self.end = json, end
        with _silent(), _answering("its tokenizer is none that the library tokenizers can use"):
            self._tokenizer = Tokenizer.from_str(json)
            self._tokenizer.no_truncation()
            self._tokenizer.no_padding()
            whole, bare = (self._tokenizer.encode("a", add_special_tokens=special)
                           for special in (True, False))
            self._anchor = bare.ids     # before a token, so that a space that begins it is kept
            self._tokenizer.decode(self._anchor)
            ids = self._tokenizer.get_vocab().values()
            added = self._tokenizer.get_added_tokens_decoder()
        self.vocab_size = max(ids, default=-1) + 1
        if vocab_size is not None:
            if not self.vocab_size <= vocab_size <= MOST_IDS * self.vocab_size:
                raise ValueError(f"a tokenizer of {self.vocab_size} ids for a model of "
                                 f"{vocab_size}; give that of the model")
            self.vocab_size = vocab_size
        if not self.vocab_size:
            raise ValueError("its tokenizer has no tokens")
        if end is not None and not 0 <= end < self.vocab_size:
            raise ValueError(f"its end is the id {end}, and ids lie between 0 and "
                             f"{self.vocab_size - 1}")
        # What the tokenizer puts before every text.  What it puts behind one would end the text.
        mask = whole.special_tokens_mask
        self._first = whole.ids[:mask.index(0)] if 0 in mask else []
        check_ids(self._first, self.vocab_size)
        self._special = {i for i, token in added.items() if token.special}

    def arrays(self) -> tuple[np.ndarray, ...]:
        """Return tokenizer.json as UTF-8 bytes, and `end`, -1 for none."""
        return (np.frombuffer(self.json.encode(), np.uint8),
                np.array(-1 if self.end is None else self.end))

    @classmethod
    def restored(cls, vocab_size: int, *arrays: np.ndarray) -> "TokenTokenizer":
        """Return the tokenizer of these arrays."""
        json, end = arrays
        if json.ndim != 1 or json.dtype != np.uint8 or end.shape != () or end.dtype.kind != "i":
            raise ValueError("its tokenizer and end are no text and number")
        return cls(json.tobytes().decode(), None if end == -1 else int(end), vocab_size)

    def __reduce__(self):
        return TokenTokenizer, (self.json, self.end, self.vocab_size)

    @cached_property
    def vocabulary(self) -> list[str]:
        """The text of each token, or its name in the file if it is only a part of a character."""
        before = len(self._text(self._anchor))
        with _silent(), _answering("the model's tokenizer cannot decode its tokens"):
            texts = self._tokenizer.decode_batch(
                [[*self._anchor, i] for i in range(self.vocab_size)], skip_special_tokens=False)
        return [text[before:] if text[before:] and REPLACED not in text[before:] else
                self._tokenizer.id_to_token(i) or "" for i, text in enumerate(texts)]

    def encode(self, text: str) -> np.ndarray:
        """Encode a text as ids, (N,) int64.  They begin with the token that begins every text, if
        the tokenizer has such a one.

        Raises
        ------
        UnknownCharacterError : the text has what no token stands for.
        """
        with _silent(), _answering("the model's tokenizer cannot encode the text",
                                   UnknownCharacterError):
            text.encode()       # which names a half of a surrogate pair
            ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return np.array(self._first + ids, np.int64)

    def without_unknown(self, text: str) -> tuple[str, dict[str, int]]:
        """Return the text as it is: the library decides what becomes of unknown characters."""
        return text, {}

    def decode(self, ids: Iterable[int]) -> str:
        """Decode ids as a text; special tokens, such as `end`, are no part of it."""
        return self._text(check_ids(ids, self.vocab_size).tolist())

    def stream(self, after: Iterable[int] = ()) -> "TokenStream":
        """Return what decodes ids one by one, as the continuation of the ids in `after`."""
        return TokenStream(self._text, after, self._special)

    def _text(self, ids):
        try:
            return self._tokenizer.decode(ids)
        except BaseException:       # a `with` around each call would take longer than the call
            with _answering("the model's tokenizer cannot decode its tokens"):
                raise


class TokenStream(Stream):
    """Decodes ids one by one as the continuation of others, and shows no text of hidden ids.  The
    text of a token depends on those around it: it may be a part of a character, or begin with a
    space that is dropped at the beginning of a text."""

    def __init__(self, decode: Callable[[list[int]], str], after: Iterable[int], hidden: set[int]
                 ) -> None:
        self._decode, self._hidden = decode, hidden
        self._before, self._waiting = [int(i) for i in after], []   # shown, and not yet shown
        self._shown = len(self._decode(self._before))               # characters

    def add(self, id: int) -> str:
        """Add a token; return the text that can be shown now."""
        if id in self._hidden:
            return ""
        self._waiting.append(id)
        text = self._text()
        if text.endswith(REPLACED) and len(self._waiting) < MOST_HELD:
            return ""
        self._before, self._waiting = self._waiting, []
        self._shown = len(self._decode(self._before))
        return text

    def rest(self) -> str:
        """Return the text of what has not been shown."""
        return self._text()

    def _text(self):
        return self._decode(self._before + self._waiting)[self._shown:]


@contextlib.contextmanager
def _answering(what: str, kind: type[ValueError] = ValueError) -> Iterator[None]:
    """Answer an error of the library in a line; its panics are no Exceptions."""
    try:
        yield
    except Exception as error:
        raise kind(f"{what}: {error}") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise kind(f"{what}: {error}") from error


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Send to nowhere what the library writes to standard error when it panics."""
    try:
        kept = os.dup(2)
    except OSError:         # it is closed
        yield
        return
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
