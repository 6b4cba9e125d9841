"""Predict the next character of growing sequences, from a window of the text, cached or not.

Shapes: B sequences, T characters, V vocabulary.

Generate text from a model, a character or token at a time: find the possible ones, and draw
one.
"""
from collections.abc import Iterator, Sequence

import numpy as np

import minigrad as mg
from data.tokenizer import Stream, Tokenizer
from minigrad import random
from minigrad.random import generator
from model.transformer import Transformer


def window_step(block_size: int, slide: bool = False) -> int:
    """Return by how many characters a full window moves: half of it, or one with `slide`."""
    return 1 if slide else block_size - block_size // 2


def window_start(n: int, block_size: int, slide: bool = False) -> int:
    """Return the start of the window from which the character after n others is predicted.

    The first window starts with the text.  Whenever it would exceed the block size, its start moves
    on, so that a character is predicted from more than half a block and at most a block before it;
    with `slide`, from the whole block.  A window that moves is read again, since its cached keys
    and values depend on the characters before it.
    """
    step = window_step(block_size, slide)
    return max(0, -((block_size - n) // step)) * step


class Reader:
    """B sequences of one length that grow character by character, and the logits of the next one.

    Parameters
    ----------
    ids : the beginnings, (B, T) with T of at least 1.
    cache : keep keys and values, and read only new characters, if compiled kernels can; the logits
        are the same.
    slide : see `window_start`.
    """

    def __init__(self, model: Transformer, ids: np.ndarray, cache: bool = True,
                 slide: bool = False) -> None:
        self.model, self.ids, self.slide = model, ids, slide
        self.n = ids.shape[1]                   # characters so far; ids are the last of them
        self.decoder = None
        # A model that is no Transformer, or a subclass of it, is called as a whole.
        if cache and mg.COMPILED and type(model) is Transformer:
            from model.kv_cache.decoder import decoder_of
            self.decoder = decoder_of(model, len(ids))

    def logits(self) -> np.ndarray:
        """Return the logits of the next character of each sequence, (B, V)."""
        if self.decoder:
            return self.decoder.read(*self._unread())
        with mg.no_grad():
            return self.model(self._window()).data[:, -1]

    def room(self) -> int:
        """Return how many characters `draw` can draw at once: with the cache, those that are
        predicted before the window moves."""
        if not self.decoder:
            return 1
        return 1 + self.model.config.block_size - self._window().shape[1]

    def draw(self, u: np.ndarray, *settings: float | None) -> np.ndarray:
        """Draw and append a character for each column of u (B, n), n at most `room`; return their
        ids.  u and the settings are those of `random.draw`."""
        drawn = (self.decoder.draw(*self._unread(), u, *settings) if self.decoder else
                 random.draw(self.logits(), u[:, 0], *settings)[0][:, None])
        self.append(drawn)
        return drawn

    def append(self, ids: np.ndarray) -> None:
        """Add characters to each sequence, (B, n)."""
        longer = np.concatenate([self.ids, ids], axis=1)
        self.ids = longer[:, -self.model.config.block_size:]
        self.n += ids.shape[1]

    def _window(self):
        start = window_start(self.n, self.model.config.block_size, self.slide)
        return self.ids[:, start - self.n:]

    def _unread(self):
        """Return what of the window the decoder has not read, and how much it has."""
        window = self._window()
        read = window.shape[1] - 1
        return (window[:, -1:], read) if self.decoder.length == read else (window, 0)


AT_ONCE = 8     # ids of each text that a kernel draws before they are shown
SMALL = 1 << 23         # weights that an id meets, up to which so many are drawn; of more, fewer
USELESS = ("the model gave no usable prediction (nan or infinite logits); its training may have "
           "diverged: train again with a lower --learning_rate")


def next_probabilities(logits: np.ndarray, temperature: float = 1.0, top_k: int | None = None,
                       top_p: float | None = None) -> np.ndarray:
    """Return the probability that each id is drawn, (V,) -> (V,) float64, summing to 1.

    Parameters
    ----------
    temperature : divides the logits; 0 always takes the likeliest.
    top_k : keep only this many of the likeliest.
    top_p : then keep the fewest likeliest that together have at least this probability
        (Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration", section 3.1).
    """
    check_settings(temperature, top_k, top_p)
    logits = np.asarray(logits, np.float64)
    if logits.ndim != 1 or not logits.size:
        raise ValueError("logits are one row of numbers, one for each id of the vocabulary; "
                         f"these have the shape {list(logits.shape)}")
    drawn, p = random.draw(logits[None], np.zeros(1), temperature, top_k, top_p)
    _usable(drawn)
    return p[0]


def check_settings(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Refuse settings that have no meaning, in words that name them."""
    if not 0 <= temperature < np.inf:
        raise ValueError(f"temperature is a number of at least 0 (0 is greedy), not {temperature}")
    if top_k is not None and (not isinstance(top_k, (int, np.integer)) or top_k < 1):
        raise ValueError(f"top_k is a whole number of at least 1, not {top_k}; "
                         "leave it out to keep all")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p is a probability above 0 and at most 1, not {top_p}")


def _usable(drawn):
    if drawn.min() < 0:
        raise ValueError(USELESS)
    return drawn


def stream_many(model: Transformer, tokenizer: Tokenizer, prompt: str,
                seeds: Sequence[int | None], max_new_tokens: int = 500, temperature: float = 1.0,
                top_k: int | None = None, top_p: float | None = None, stop: str | None = None,
                cache: bool = True, slide: bool = False) -> Iterator[list[str]]:
    """Continue a prompt once for each seed, all at once.  Yield a piece of each text as they are
    made; a piece may be empty.

    A text ends after `max_new_tokens` characters or tokens, or before `stop` would be written, or
    with the tokenizer's `end`.  `beginning` says where an empty prompt begins.  `window_start`
    defines the window from which the next id is predicted, and explains `slide`.  `cache` changes
    the time needed, not the text.  (A model that is not exactly a Transformer, such as a subclass,
    is called without the cache.)
    """
    check_settings(temperature, top_k, top_p)
    if max_new_tokens < 0:
        raise ValueError(f"max_new_tokens is at least 0, not {max_new_tokens}")
    ids = beginning(tokenizer, prompt)
    reader = Reader(model, np.tile(ids, (len(seeds), 1)), cache, slide)
    generators = [generator(seed, "sampling") for seed in seeds]
    texts = [Text(tokenizer.stream(ids), tokenizer.end, stop) for _ in seeds]
    return _continue(reader, generators, texts, max_new_tokens, (temperature, top_k, top_p))


def beginning(tokenizer: Tokenizer, prompt: str) -> np.ndarray:
    """Return the ids of a prompt.  An empty one begins where a text does: with the token that
    begins every text, if the tokenizer has one, else with that which ends one, else with a line
    break, else with the first id."""
    if len(ids := tokenizer.encode(prompt)):
        return ids
    if tokenizer.end is not None:
        return np.array([tokenizer.end])
    vocabulary = tokenizer.vocabulary
    return np.array([vocabulary.index("\n") if "\n" in vocabulary else 0])


def _continue(reader, generators, texts, max_new_tokens, settings):
    left, most = max_new_tokens, _at_once(reader)
    while left:
        n = min(left, most, reader.room())
        u = np.array([rng.random(n) for rng in generators])                     # (B, n)
        drawn = _usable(reader.draw(u, *settings))
        for ids in drawn.T.tolist():
            yield [text.add(id) for text, id in zip(texts, ids)]
            if all([text.ended for text in texts]):
                return
        left -= n
    yield [text.rest() for text in texts]


def _at_once(reader):
    """Return how many ids are drawn before they are shown: the longer one takes, the fewer."""
    if not reader.decoder:
        return 1
    config = reader.model.config
    weights = config.n_embd * (12 * config.n_layer * config.n_embd + config.vocab_size)     # about
    return max(1, min(AT_ONCE, AT_ONCE * SMALL // weights))


class Text:
    """A text that is made id by id.  It holds back what may become `stop`.

    Parameters
    ----------
    stream : what decodes the ids.
    end : the id that ends the text, or None.
    stop : what ends the text if it is about to be written, or None.
    """

    def __init__(self, stream: Stream, end: int | None, stop: str | None) -> None:
        self.stream, self.end, self.stop = stream, end, stop
        self.held = ""
        self.ended = False
        if end is None and not stop:
            self.add = stream.add       # there is nothing to look for

    def add(self, id: int) -> str:
        """Add an id; return what can be shown now."""
        if self.ended:
            return ""
        if id == self.end:
            return self.rest()
        piece = self.stream.add(id)
        return self._before_stop(piece) if self.stop else piece

    def rest(self) -> str:
        """End the text; return what was held back and did not become `stop`."""
        if self.ended:
            return ""
        piece = self.stream.rest()
        shown = self._before_stop(piece) + self.held if self.stop else piece
        self.ended = True
        return shown

    def _before_stop(self, piece):
        """Return what can be shown of what was held back and a piece."""
        self.held += piece
        at = self.held.find(self.stop)
        self.ended = at >= 0
        shown = self.held[:at if self.ended else len(self.held) - self._could_become_stop()]
        self.held = "" if self.ended else self.held[len(shown):]
        return shown

    def _could_become_stop(self):
        """Return the length of the longest suffix of the held text that is a prefix of `stop`."""
        return next(n for n in range(min(len(self.held), len(self.stop) - 1), -1, -1)
                    if self.held.endswith(self.stop[:n]))


def generate(model: Transformer, tokenizer: Tokenizer, prompt: str = "",
             max_new_tokens: int = 500, temperature: float = 1.0, top_k: int | None = None,
             top_p: float | None = None, seed: int | None = None, stop: str | None = None,
             cache: bool = True, slide: bool = False) -> str:
    """Return the prompt and its continuation by `stream_many`, which explains the settings."""
    pieces = stream_many(model, tokenizer, prompt, [seed], max_new_tokens, temperature, top_k,
                         top_p, stop, cache, slide)
    return prompt + "".join(piece for piece, in pieces)
