"""Tokens of subwords (BPE and the like) to ids and back, by a tokenizer.json of Hugging Face and
its library `tokenizers`, which is imported when a tokenizer is made.
"""
import contextlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from data.tokenizer import Stream, Tokenizer, UnknownCharacterError, check_ids
from model.convert.model_file import require

REPLACED = "\ufffd"     # what the library makes of bytes that are no character
MOST_IDS = 2            # ids of a model, for each id of its tokenizer
METADATA = "minigrad.metadata"  # a key of a tokenizer.json in our checkpoints
CHAT_TEMPLATE = "tokenizer.chat_template"       # a key of GGUF files
AT_ONCE = 4096          # texts that are encoded together
MOST_HELD = 16          # tokens held back as parts of a character, which has four bytes at most


def tokenizer_parts(**parts: object) -> dict[str, object]:
    """Return the object of a tokenizer.json with these parts."""
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
            **parts}


def with_metadata(json_text: str, metadata: dict[str, object]) -> str:
    """Return a tokenizer.json with what else a file said of its model, which goes out with it."""
    return json.dumps(json.loads(json_text) | {METADATA: metadata})


def valid_ids(stated: Iterable[object], vocab_size: int) -> list[int]:
    """Return ids that a file states, such as those that end a text, each once; what is no id is
    left out."""
    ids = (id for id in stated if type(id) is int and 0 <= id < vocab_size)
    return [*dict.fromkeys(ids)]


def stated_ends(tokenizer: Tokenizer) -> int | list[int] | None:
    """Return the ids that end a text, as files state them: none, one or several."""
    first, *more = tokenizer.ends or [None]
    return [first, *more] if more else first


class TokenTokenizer(Tokenizer):
    """The tokens of a tokenizer.json.  A text always has the same ids: cutting, filling up
    and BPE-dropout are turned off.

    Parameters
    ----------
    json : the text of the file.
    end : the id of the end-of-text token, if there is one, or all such ids.
    vocab_size : the number of ids of the model, V; it may have up to twice as many as the
        tokenizer, and the others stand for an empty text.

    Raises
    ------
    MissingLibrary : `tokenizers` is not installed.
    ValueError : the file is damaged, or the ids do not fit.
    """

    unit = "token"
    ARRAYS = "tokenizer", "end"

    def __init__(self, json: str, end: int | Sequence[int] | None = None,
                 vocab_size: int | None = None) -> None:
        library = require("tokenizers", "convert", "its vocabulary is of tokens")
        self.json = json
        ends = [] if end is None else [end] if isinstance(end, int) else [*end]
        self.end, *self.more_ends = ends or [None]
        self.library_json, self.metadata = _apart(json)
        with _answered("the library tokenizers cannot read its tokenizer"):
            self._tokenizer = library.Tokenizer.from_str(self.library_json)
            self._keep_texts_whole()
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
        for id in ends:
            if not 0 <= id < self.vocab_size:
                raise ValueError(f"its end is the id {id}, and ids lie between 0 and "
                                 f"{self.vocab_size - 1}")
        # The tokens before every text, and after it.  `encode` leaves out the latter, which would
        # end it.
        mask = whole.special_tokens_mask
        self._first = whole.ids[:mask.index(0)] if 0 in mask else []
        last = whole.ids[len(self._first) + len(bare.ids):] if 0 in mask else []
        self.around = self._first, last
        check_ids(self._first, self.vocab_size)
        self.hidden = {i: token.content for i, token in added.items() if token.special}

    def _keep_texts_whole(self):
        """Turn off what would give a text other ids now and then; other programs shall, too."""
        tokenizer = self._tokenizer
        # BPE-dropout leaves out merges by chance, in training (Provilkov et al. 2020).
        dropout = getattr(tokenizer.model, "dropout", None)
        if tokenizer.truncation or tokenizer.padding or dropout:
            tokenizer.no_truncation()
            tokenizer.no_padding()
            if dropout:
                tokenizer.model.dropout = None
            self.library_json = tokenizer.to_str()

    @property
    def chat_template(self) -> str | None:
        """The program in Jinja that writes a conversation, if the model brought one."""
        template, _ = self.metadata.get("keys", {}).get(CHAT_TEMPLATE, (None, None))
        return template

    def arrays(self) -> tuple[np.ndarray, ...]:
        """Return tokenizer.json as UTF-8 bytes, and the ids that end a text: -1 for none, one, or
        several as a row."""
        end = stated_ends(self)
        return np.frombuffer(self.json.encode(), np.uint8), np.array(-1 if end is None else end)

    @classmethod
    def restored(cls, vocab_size: int, *arrays: np.ndarray) -> "TokenTokenizer":
        """Return the tokenizer of these arrays."""
        json, end = arrays
        is_row = end.ndim == 1 and end.size > 1
        if (json.ndim != 1 or json.dtype != np.uint8 or end.dtype.kind != "i"
                or not (end.ndim == 0 or is_row)):
            raise ValueError("its tokenizer and end are no text and number")
        ends = None if not is_row and end == -1 else end.tolist()
        return cls(json.tobytes().decode(), ends, vocab_size)

    def parts(self) -> dict[str, object]:
        """Return its tokenizer.json as the library writes it: with all that a file may leave
        out."""
        return json.loads(self._tokenizer.to_str())

    def ids_of_names(self) -> dict[str, int]:
        """Return the ids of all tokens by their names in the file."""
        return self._tokenizer.get_vocab()

    def differing(self, other: "TokenTokenizer", texts: Sequence[str]
                  ) -> tuple[str, list[int], list[int]] | None:
        """Return the first of many texts that another tokenizer gives other ids, with ours and
        theirs; the tokens around a text count, too."""
        for start in range(0, len(texts), AT_ONCE):
            some = texts[start:start + AT_ONCE]
            with _answered("the model's tokenizer cannot encode a text"):
                pairs = zip(*(each._tokenizer.encode_batch(some) for each in (self, other)))
                for text, (ours, theirs) in zip(some, pairs):
                    if ours.ids != theirs.ids:
                        return text, ours.ids, theirs.ids
        return None

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
        return TokenStream(self._text, after, self.hidden)

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

    def __init__(self, decode: Callable[[list[int]], str], after: Iterable[int],
                 hidden: Mapping[int, str]) -> None:
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
