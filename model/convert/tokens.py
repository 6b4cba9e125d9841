"""Tokens of subwords (BPE and the like) to ids and back, by a tokenizer.json of Hugging Face and
its library `tokenizers`, which is imported when a tokenizer is made.
"""
import contextlib
import json
import os
from collections.abc import Callable, Iterable
from functools import cached_property

import numpy as np

from data.tokenizer import Stream, Tokenizer, UnknownCharacterError, check_ids
from model.convert.model_file import require

REPLACED = "\ufffd"     # what the library makes of bytes that are no character
MOST_IDS = 2            # ids of a model, for each id of its tokenizer
METADATA = "minigrad.metadata"  # a key of a tokenizer.json in our checkpoints
MOST_HELD = 16          # tokens held back as parts of a character, which has four bytes at most


def tokenizer_parts(**parts: object) -> dict[str, object]:
    """Return the object of a tokenizer.json with these parts."""
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
            **parts}


def with_metadata(json_text: str, metadata: dict[str, object]) -> str:
    """Return a tokenizer.json with what else a file said of its model, which goes out with it."""
    return json.dumps(json.loads(json_text) | {METADATA: metadata})


def end_of(stated: object, vocab_size: int) -> int | None:
    """Return the id that ends a text, as a file states it; None if that is no id."""
    return stated if type(stated) is int and 0 <= stated < vocab_size else None


class TokenTokenizer(Tokenizer):
    """The tokens of a tokenizer.json.  A text always has the same ids: cutting, filling up
    and BPE-dropout are turned off.

    Parameters
    ----------
    json : the text of the file.
    end : the id of the end-of-text token, if there is one.
    vocab_size : the number of ids of the model, V; it may have up to twice as many as the
        tokenizer, and the others stand for an empty text.

    Raises
    ------
    MissingLibrary : `tokenizers` is not installed.
    ValueError : the file is damaged, or the ids do not fit.
    """

    unit = "token"
    ARRAYS = "tokenizer", "end"

    def __init__(self, json: str, end: int | None = None, vocab_size: int | None = None) -> None:
        library = require("tokenizers", "convert", "its vocabulary is of tokens")
        self.json, self.end = json, end
        self.library_json, self.metadata = _apart(json)
        with _answered("the library tokenizers cannot read its tokenizer"):
            self._tokenizer = library.Tokenizer.from_str(self.library_json)
            self._tokenizer.no_truncation()
            self._tokenizer.no_padding()
            # BPE-dropout leaves out merges by chance, in training (Provilkov et al. 2020).
            if hasattr(self._tokenizer.model, "dropout"):
                self._tokenizer.model.dropout = None
            whole, bare = (self._tokenizer.encode("a", add_special_tokens=special)
                           for special in (True, False))
            self._anchor = bare.ids     # before a token, it keeps the token's leading space
            self._tokenizer.decode(self._anchor)
            ids = self._tokenizer.get_vocab().values()
            added = self._tokenizer.get_added_tokens_decoder()
        own = max(ids, default=-1) + 1
        self.vocab_size = own if vocab_size is None else vocab_size
        if not own:
            raise ValueError("its tokenizer has no tokens")
        if not own <= self.vocab_size <= MOST_IDS * own:
            raise ValueError(f"a tokenizer of {own} ids for a model of {vocab_size}; give that of "
                             "the model")
        if end is not None and not 0 <= end < self.vocab_size:
            raise ValueError(f"its end is the id {end}, and ids lie between 0 and "
                             f"{self.vocab_size - 1}")
        # The tokens before every text.  Those that the tokenizer puts after one would end it.
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

    @cached_property
    def vocabulary(self) -> list[str]:
        """The text of each token, or its name in the file if it is only a part of a character."""
        before = len(self._text(self._anchor))
        with _answered("the model's tokenizer cannot decode its tokens"):
            texts = [text[before:] for text in self._tokenizer.decode_batch(
                [[*self._anchor, i] for i in range(self.vocab_size)], skip_special_tokens=False)]
        return [text if text and REPLACED not in text else self._tokenizer.id_to_token(i) or ""
                for i, text in enumerate(texts)]

    def encode(self, text: str) -> np.ndarray:
        """Encode a text as ids, (N,) int64.  If the tokenizer has a beginning-of-text token, the
        ids start with it.

        Raises
        ------
        UnknownCharacterError : no token stands for a part of the text.
        """
        with _answered("the model's tokenizer cannot encode the text", UnknownCharacterError):
            text.encode()       # which names a half of a surrogate pair
            ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return np.array(self._first + ids, np.int64)

    def without_unknown(self, text: str) -> tuple[str, dict[str, int]]:
        """Return the text as it is: the library decides what becomes of unknown characters."""
        return text, {}

    def decode(self, ids: Iterable[int]) -> str:
        """Decode ids as a text, without special tokens, such as `end`."""
        return self._text(check_ids(ids, self.vocab_size).tolist())

    def stream(self, after: Iterable[int] = ()) -> "TokenStream":
        """Return a stream that decodes ids one by one, as the continuation of those in `after`."""
        return TokenStream(self._text, after, self._special)

    def _text(self, ids):
        try:
            return self._tokenizer.decode(ids)
        except BaseException:       # a `with` around each call would take longer than the call
            with _answered("the model's tokenizer cannot decode its tokens"):
                raise


def _apart(text):
    """Return a tokenizer.json as the library reads it, and the metadata in it."""
    if METADATA not in text:
        return text, {}
    found = json.loads(text)
    metadata = found.pop(METADATA, {})
    return json.dumps(found), metadata


class TokenStream(Stream):
    """Decodes ids one by one as the continuation of others, and shows no text of hidden ids.

    The text of a token depends on the tokens around it: it may be a part of a character, or begin
    with a space that is dropped at the beginning of a text.
    """

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
def _answered(what, kind=ValueError):
    """Turn an error of the library into one of a line, and discard what it writes to standard error
    when it panics; a panic is no Exception."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):      # standard error may be closed
            kept = os.dup(2)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, 2)
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 2)
        try:
            yield
        except BaseException as error:
            if isinstance(error, Exception) or type(error).__name__ == "PanicException":
                raise kind(f"{what}: {error}") from error
            raise
