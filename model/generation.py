"""Text generation: the window of a model, temperature, top-k and top-p (nucleus) sampling, stops.

`minigrad.random.draw` draws an id from logits; the KV cache is in `model/cache.py`.
Shapes: B texts, T ids (of characters or tokens), V vocabulary.
"""
import math
import numbers
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

import minigrad as mg
from data.tokenizer import Stream, Tokenizer
from minigrad import random
from minigrad.random import generator
from minigrad.words import shown
from model.cache import Drawing, KVCache
from model.checkpoint import ADAPTER
from model.options import problems, takes
from model.transformer import Transformer

AT_ONCE = 8             # ids that a kernel draws before they are shown, and
SMALL = 1 << 23         # the weights of a model up to which it does; of a larger one, fewer
USELESS = ("the model gave no usable prediction (nan or infinite logits); its training may have "
           "diverged: train again with settings nearer to the usual ones, such as a lower "
           "--learning_rate")


def window_step(block_size: int, slide: bool = False) -> int:
    """Return by how many ids a full window moves: half of it, or one with `slide`."""
    return 1 if slide else block_size - block_size // 2


def window_start(n: int, block_size: int, slide: bool = False) -> int:
    """Return the start of the window from which the id after n others is predicted.

    The first window starts with the text.  When it would exceed the block size, its start moves by
    `window_step`: an id is predicted from more than half a block, or with `slide` from a whole one.
    A window that moves is read again, as its keys and values depend on the ids before it.
    """
    step = window_step(block_size, slide)
    moves = math.ceil(max(0, n - block_size) / step)
    return moves * step


class Reader:
    """B texts of one length that grow id by id, and the logits of the next id.

    Parameters
    ----------
    ids : the beginnings, (B, T) with T of at least 1.
    cache : use the KV cache.  By kernels the logits have the same bits; in plain NumPy the last
        ones differ, as BLAS adds up other shapes in another order.
    slide : see `window_start`.
    """

    def __init__(
            self,
            model: Transformer,
            ids: np.ndarray,
            cache: bool = True,
            slide: bool = False) -> None:
        self.model = model
        self.ids = ids
        self.slide = slide
        self.n = ids.shape[1]                   # ids so far, of which `ids` are the last ones
        self.cache = None
        self.at_once = 1
        if cache:
            self.cache = make_cache(model, len(ids))
        if self.cache is not None:
            weights = sum(p.size for p in model.parameters())
            self.at_once = max(1, min(AT_ONCE, AT_ONCE * SMALL // weights))

    def logits(self) -> np.ndarray:
        """Return the logits of the next id of each text, (B, V)."""
        if self.cache is not None:
            return self.cache.read(*self._unread())
        with mg.no_grad():
            return self.model(self._window()).data[:, -1]

    def room(self) -> int:
        """Return how many ids can be drawn at once: a few, and none after the window moves."""
        return min(self.at_once, 1 + self.model.config.block_size - self._window().shape[1])

    def draw(self, u: np.ndarray, drawing: Drawing) -> np.ndarray:
        """Draw and append an id for each column of u (B, n), n at most `room`; return the ids.  u
        is that of `random.draw`."""
        if self.cache is not None:
            ids, after = self._unread()
            drawn = self.cache.draw(
                ids,
                after,
                u,
                drawing)
        else:
            ids, _ = random.draw(
                self.logits(),
                u[:, 0],
                drawing.temperature,
                drawing.top_k,
                drawing.top_p)                  # (B,)
            drawn = ids[:, None]
        self.append(drawn)
        return drawn

    def append(self, ids: np.ndarray) -> None:
        """Add ids to each text, (B, n)."""
        longer = np.concatenate([self.ids, ids], axis=1)
        self.ids = longer[:, -self.model.config.block_size:]
        self.n += ids.shape[1]

    def restart(self, ids: np.ndarray) -> None:
        """Take other texts (B, T) in place of these.  The cache keeps what both begin with."""
        if self.cache is not None:
            kept = 0
            if self.n <= self.model.config.block_size:          # so the window never moved
                most = min(self.cache.length, ids.shape[1] - 1)
                differs = (self.ids[:, :most] != ids[:, :most]).any(axis=0)
                kept = int(differs.argmax()) if differs.any() else most
            self.cache.length = kept
        self.ids = ids
        self.n = ids.shape[1]

    def _window(self):
        start = window_start(self.n, self.model.config.block_size, self.slide)
        return self.ids[:, start - self.n:]

    def _unread(self):
        """Return the ids of the window that the cache has not read, and how many it has."""
        window = self._window()
        read = self.cache.length
        if read < window.shape[1]:
            return window[:, read:], read
        return window, 0        # it has moved


def make_cache(model: Transformer, batch: int) -> KVCache | None:
    """Return a KV cache for B texts: the plain one where Numba does not compile the other, and for
    a model with an adapter, which the other does not know; None for a model without."""
    if hasattr(model, "make_cache"):        # such as a mixture with counts
        return model.make_cache(batch)
    # A subclass may do otherwise than a Transformer, but for one with an adapter.
    is_known = (type(model) is Transformer
                or isinstance(model, Transformer) and model.config.kind == ADAPTER)
    if not is_known:
        return None
    if mg.COMPILED and not model.config.kind:
        from model.kv_cache.decoder import decoder_of
        if decoder := decoder_of(model, batch):
            return decoder
    return KVCache(model, batch)


def stream_many(
        model: Transformer,
        tokenizer: Tokenizer,
        prompt: str,
        seeds: Sequence[int | None],
        max_new_tokens: int = 500,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        stop: str | None = None,
        cache: bool = True,
        slide: bool = False) -> Iterator[list[str]]:
    """Continue a prompt once for each seed, all at once; yield the next piece of each text, which
    may be empty.

    Parameters
    ----------
    max_new_tokens : characters or tokens, after which a text ends.  It ends earlier with one of
        the tokenizer's `ends`, or before `stop` would be written, in which special tokens may
        stand by their names.
    temperature : divides the logits; 0 always takes the likeliest id.
    top_k : draw from this many of the likeliest ids only.
    top_p : then from the fewest likeliest that together have at least this probability (Holtzman
        et al. 2020, "The Curious Case of Neural Text Degeneration", section 3.1).
    cache, slide : see `Reader`; without the cache the text is the same.

    Raises
    ------
    ValueError : a setting has no meaning, or the prompt a character that the model does not know.
    """
    drawing = Drawing(temperature, top_k, top_p)
    wrong = problems(drawing)
    if wrong:
        raise ValueError(wrong[0])
    for name, text in (("prompt", prompt), ("stop", stop or "")):
        if not isinstance(text, str):
            raise ValueError(f"{name} {takes(str, text)}")
    _check_count("max_new_tokens", max_new_tokens)
    for seed in seeds:
        if seed is not None:
            _check_count("seed", seed)
    ids = beginning(tokenizer, prompt)
    reader = Reader(
        model,
        np.tile(ids, (len(seeds), 1)),
        cache=cache,
        slide=slide)
    generators = [generator(seed, "sampling") for seed in seeds]
    texts = [Text(
        tokenizer.stream(ids),
        ends=tokenizer.ends,
        stop=stop,
        hidden=tokenizer.hidden) for _ in seeds]
    return continue_texts(
        reader,
        generators,
        texts,
        max_new_tokens,
        drawing)


def _check_count(name, value):
    """Refuse what is no whole number of at least 0."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise ValueError(f"{name} {takes(int, value)}")
    if value < 0:
        raise ValueError(f"{name} is at least 0, not {shown(str(value))}")


def continue_texts(reader: Reader, generators: Sequence[np.random.Generator],
                   texts: Sequence["Text"], count: int, drawing: Drawing) -> Iterator[list[str]]:
    """Draw at most `count` ids for each text, and yield the pieces that can be shown after each;
    then what was held back, unless all texts have ended before."""
    remaining = count
    while remaining:
        n = min(remaining, reader.room())
        u = np.array([rng.random(n) for rng in generators])                     # (B, n)
        drawn = reader.draw(u, drawing)
        if drawn.min() < 0:
            raise ValueError(USELESS)
        for ids in drawn.T.tolist():
            yield [text.add(id) for text, id in zip(texts, ids)]
            if all([text.ended for text in texts]):
                return
        remaining -= n
    yield [text.add(None) for text in texts]


def generate(
        model: Transformer,
        tokenizer: Tokenizer,
        prompt: str = "",
        max_new_tokens: int = 500,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        stop: str | None = None,
        cache: bool = True,
        slide: bool = False) -> str:
    """Return the prompt and its continuation; the settings are those of `stream_many`."""
    pieces = stream_many(
        model,
        tokenizer,
        prompt,
        [seed],
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        stop=stop,
        cache=cache,
        slide=slide)
    return prompt + "".join(piece for piece, in pieces)


def beginning(tokenizer: Tokenizer, prompt: str) -> np.ndarray:
    """Return the ids of a prompt.  For an empty one: the token that begins every text, if the
    tokenizer has one; else the token that ends a text; else a line break; else the first id."""
    if len(ids := tokenizer.encode(prompt)):
        return ids
    if tokenizer.end is not None:
        return np.array([tokenizer.end])
    vocabulary = tokenizer.vocabulary
    return np.array([vocabulary.index("\n") if "\n" in vocabulary else 0])


class Text:
    """A text that grows id by id; it holds back what may become `stop`.

    Parameters
    ----------
    stream : decodes the ids.
    ends : the ids that end the text.
    stop : the characters before which the text ends, or None.
    hidden : the names of ids that are not shown; `stop` may have them.
    """

    def __init__(
            self,
            stream: Stream,
            ends: Sequence[int],
            stop: str | None,
            hidden: Mapping[int, str]) -> None:
        self.stream = stream
        self.ends = ends
        self.stop = stop
        self.hidden = hidden
        self.held = []          # pairs: a character, and the same or "" as it is shown
        self.ended = False

    def add(self, id: int | None) -> str:
        """Add an id, or end the text with None; return what can be shown now."""
        if self.ended:
            return ""
        self.ended = id is None or id in self.ends
        text = self.stream.rest() if self.ended else self.stream.add(id)
        return self._before_stop(text, self.hidden.get(id, "")) if self.stop else text

    def _before_stop(self, text, hidden):
        held = self.held + [(c, c) for c in text] + [(c, "") for c in hidden]
        whole = "".join(c for c, _ in held)
        ready = whole.find(self.stop)
        if ready >= 0:
            self.ended = True
        else:
            ready = len(whole)
            if not self.ended:
                ready -= max(n for n in range(len(self.stop)) if whole.endswith(self.stop[:n]))
        self.held = held[ready:]
        return "".join(visible for _, visible in held[:ready])
