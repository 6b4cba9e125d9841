"""A model that lives in its page: its weights, and what a reader needs of its tokenizer.

static/engine.js computes the model in the browser.  Shapes: N ids, V vocabulary.
"""
import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

from data import Text
from minigrad.words import any_of
from model.checkpoint import Checkpoint
from model.config import PAGE, unknown_options
from model.look import weights
from model.score.text import text_losses
from model.transformer import Transformer

LARGEST = 30_000_000        # bytes of a page
MOST_CHARACTERS = 100_000   # of its text, which it goes through at each key
MEASURED = 50_000           # ids of the validation text on which the cost of rounding is measured
NEUTRAL = " \n"             # what stands in for a character, and for itself the next one


def reason_against(checkpoint: Checkpoint) -> str | None:
    """Return why a page cannot hold a model and compute it, or None if it can."""
    model, tokenizer, *_ = checkpoint
    if tokenizer.unit != "character":
        return "its model has tokens, and what is typed are characters"
    if unknown := unknown_options(model.config, PAGE):
        return f"it does not know how to compute {any_of(unknown)}"
    if (size := weights.size_in_page(model)) > LARGEST:
        return (f"with its model it would have {size / 1e6:,.1f} MB, and a browser should open at "
                f"most {LARGEST / 1e6:.0f} MB")
    return None


def check_length(text: str) -> None:
    """Refuse a text that is too long to be typed into."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"the text has {len(text):,} characters, and a page to type into takes at "
                         f"most {MOST_CHARACTERS:,}; give a shorter --text")


def unknown_letters(vocabulary: list[str], text: Iterable[str]) -> list[str]:
    """Return the characters of a text that a model does not know, each once, in their order."""
    return [character for character in dict.fromkeys(text) if character not in vocabulary]


def encode(vocabulary: list[str], text: str, known: Text | None) -> np.ndarray:
    """Return the ids of a text, (N,), as the page reads them, with what stands in for a character
    that the model does not know; `known` is the text of the run."""
    stand_in, *_ = neutral(vocabulary, known)
    ids = {character: i for i, character in enumerate(vocabulary)}
    return np.array([ids.get(character, stand_in) for character in text], np.int64)


def gather(checkpoint: Checkpoint, text: Text | None,
           beside: Transformer | None = None) -> tuple[dict[str, Any], bytes]:
    """Return what a page needs to compute a model: facts, and its weights, and those of one beside
    it; `text` is the run's."""
    model, tokenizer, *_ = checkpoint
    tensors, numbers = weights.packed(model, beside)
    return {
        "tensors": tensors,
        "characters": list(tokenizer.vocabulary),
        "neutral": neutral(tokenizer.vocabulary, text)}, numbers


def config_of(model: Transformer) -> dict[str, Any]:
    """Return the configuration of a model, with what follows from it."""
    config = model.config
    return {"kv_heads": config.kv_heads, "d_head": config.d_head, **vars(config)}


def rounding_cost(model: Transformer, text: Text | None) -> str:
    """Return in words what the rounding of the weights adds to the loss of the validation part of
    the text of its run."""
    if weights.fits_unrounded(model):
        return "No weight is rounded in this page."
    rounded = "Each weight is rounded to a byte in this page"
    if text is None or len(text.val) < 2:
        return f"{rounded}; what that costs was not measured, without the text of the run."
    exact, found = (float(text_losses(each, text.val[:MEASURED]).mean())
                    for each in (model, weights.rounded(model)))
    cost = found - exact
    said = f"{cost:+.4f}" if abs(cost) >= 5e-5 else "less than 0.0001"
    return f"{rounded}, which costs {said} nats a character ({exact:.4f} without)."


def neutral(vocabulary: list[str], text: Text | None = None) -> list[int]:
    """Return the two ids that stand in for a character: a space and a line break if the model knows
    them, then what is most frequent in the text of its run."""
    wanted = [vocabulary.index(c) for c in NEUTRAL if c in vocabulary]
    ids = text.train if text else []
    frequent = np.argsort(-np.bincount(ids, minlength=len(vocabulary)), kind="stable").tolist()
    return list(dict.fromkeys(itertools.chain(wanted, frequent)))[:2]
