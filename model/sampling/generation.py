"""Generate text from a model, a character at a time: find the possible characters, and draw one."""
from collections.abc import Iterator, Sequence

import numpy as np

from data.tokenizer import CharTokenizer
from minigrad import kernels
from minigrad.random import generator
from model.sampling.decoding import Reader
from model.transformer import Transformer

AT_ONCE = 8     # characters of each text that a kernel draws before they are shown
USELESS = ("the model gave no usable prediction (nan or infinite logits); its training may have "
           "diverged: train again with a lower --learning_rate")


def next_probabilities(logits: np.ndarray, temperature: float = 1.0, top_k: int | None = None,
                       top_p: float | None = None) -> np.ndarray:
    """Return the probability that each character is drawn, (V,) -> (V,) float64, summing to 1.

    Parameters
    ----------
    temperature : divides the logits; 0 always takes the likeliest character.
    top_k : keep only this many of the likeliest characters.
    top_p : then keep the fewest likeliest that together have at least this probability
        (Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration", section 3.1).
    """
    check_settings(temperature, top_k, top_p)
    logits = np.asarray(logits, np.float64)
    if logits.ndim != 1 or not logits.size:
        raise ValueError("logits are one row of numbers, one for each character of the vocabulary; "
                         f"these have the shape {list(logits.shape)}")
    drawn, p = kernels.draw(logits[None], np.zeros(1), temperature, top_k, top_p)
    _usable(drawn)
    return p[0]


def check_settings(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Refuse settings that have no meaning, in words that name them."""
    if not 0 <= temperature < np.inf:
        raise ValueError(f"temperature is a number of at least 0 (0 is greedy), not {temperature}")
    if top_k is not None and (not isinstance(top_k, (int, np.integer)) or top_k < 1):
        raise ValueError(f"top_k is a whole number of at least 1, not {top_k}; "
                         "leave it out to keep every character")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p is a probability above 0 and at most 1, not {top_p}")


def _usable(drawn):
    if drawn.min() < 0:
        raise ValueError(USELESS)
    return drawn


def stream_many(model: Transformer, tokenizer: CharTokenizer, prompt: str,
                seeds: Sequence[int | None], max_new_tokens: int = 500, temperature: float = 1.0,
                top_k: int | None = None, top_p: float | None = None, stop: str | None = None,
                cache: bool = True, slide: bool = False) -> Iterator[list[str]]:
    """Continue a prompt once for each seed, all at once.  Yield a piece of each text as they are
    made; a piece may be empty.

    A text ends after `max_new_tokens` characters, or before `stop` would be written.  An empty
    prompt begins where the text does, with the vocabulary's line break if it has one, else with its
    first character.  `window_start` defines the window from which a character is predicted, and
    explains `slide`.  `cache` changes the time needed, not the text.  (A model that is not exactly
    a Transformer, such as a subclass, is called without the cache.)
    """
    check_settings(temperature, top_k, top_p)
    if max_new_tokens < 0:
        raise ValueError(f"max_new_tokens is at least 0, not {max_new_tokens}")
    ids = tokenizer.encode(prompt or ("\n" if "\n" in tokenizer.vocabulary
                                      else tokenizer.vocabulary[0]))
    reader = Reader(model, np.tile(ids, (len(seeds), 1)), cache, slide)
    generators = [generator(seed, "sampling") for seed in seeds]
    texts = [Text(stop) for _ in seeds]
    return _continue(reader, generators, texts, tokenizer.vocabulary, max_new_tokens,
                     (temperature, top_k, top_p))


def _continue(reader, generators, texts, vocabulary, max_new_tokens, settings):
    left = max_new_tokens
    while left:
        n = min(left, AT_ONCE, reader.room())
        u = np.array([rng.random(n) for rng in generators])                     # (B, n)
        drawn = _usable(reader.draw(u, *settings))
        for ids in drawn.T.tolist():
            yield [text.add(vocabulary[x]) for text, x in zip(texts, ids)]
            if all([text.ended for text in texts]):
                return
        left -= n
    yield [text.rest() for text in texts]


class Text:
    """Collects characters for output; it holds back as many as may become `stop`."""

    def __init__(self, stop: str | None) -> None:
        self.stop = stop
        self.held = ""
        self.ended = False      # `stop` has come

    def add(self, character: str) -> str:
        """Add a character; return what can be shown now."""
        if self.ended or not self.stop:
            return "" if self.ended else character
        self.held += character
        self.ended = self.held.endswith(self.stop)
        kept = len(self.stop) if self.ended else self._could_become_stop()
        shown = self.held[:len(self.held) - kept]
        self.held = "" if self.ended else self.held[len(shown):]
        return shown

    def rest(self) -> str:
        """Return what was held back and did not become `stop`."""
        return self.held

    def _could_become_stop(self):
        """Return the length of the longest suffix of the held text that is a prefix of `stop`."""
        return next(n for n in range(min(len(self.held), len(self.stop) - 1), -1, -1)
                    if self.held.endswith(self.stop[:n]))


def generate(model: Transformer, tokenizer: CharTokenizer, prompt: str = "",
             max_new_tokens: int = 500, temperature: float = 1.0, top_k: int | None = None,
             top_p: float | None = None, seed: int | None = None, stop: str | None = None,
             cache: bool = True, slide: bool = False) -> str:
    """Return the prompt and its continuation by `stream_many`, which explains the settings."""
    pieces = stream_many(model, tokenizer, prompt, [seed], max_new_tokens, temperature, top_k,
                         top_p, stop, cache, slide)
    return prompt + "".join(piece for piece, in pieces)
