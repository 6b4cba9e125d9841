"""Predict the next character of growing sequences, from a window of the text, cached or not.

Shapes: B sequences, T characters, V vocabulary.
"""
import numpy as np

import minigrad as mg
from minigrad import random
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
