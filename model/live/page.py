"""A live page of a model: its weights, what a reader needs of its tokenizer, and counted 5-grams.

static/engine.js computes the model in the browser.  Shapes: N ids, V vocabulary.
"""
import base64
import inspect
import itertools
import pathlib
import textwrap

import numpy as np

from data.tokenizer import UnknownCharacterError
from minigrad.words import any_of
from model.attention import MultiHeadAttention
from model.checkpoint import Checkpoint
from model.command import unknown_options
from model.kv_cache import OPTIONS
from model.layers import MLP
from model.live import counts, weights
from model.look.page import about, shown
from model.look.shell import shell
from model.score.text import text_losses, training_text
from model.transformer import Block, Transformer

STATIC = pathlib.Path(__file__).with_name("static")
FILES = ["lists.js", *(str(STATIC / name) for name in (
    "live.css", "engine.js", "state.js", "text.js", "parts.js", "why.js", "write.js", "keep.js",
    "live.js"))]
NAV = {"text": "Type", "parts": "Take apart", "why": "Why", "write": "Write", "engine": "Engine"}
LARGEST = 30_000_000        # bytes of a page
MOST_CHARACTERS = 100_000   # of its text, which it goes through at each key
MEASURED = 50_000           # ids of the validation text on which the cost of rounding is measured
NEUTRAL = " \n"             # what stands in for a character, and for itself the next one
# What the page shows side by side: a name in static/engine.js, and the Python that it mirrors.
SOURCES = {"Transformer": (Transformer.states, Transformer.embed, Transformer.output),
           "Block": (Block,), "MultiHeadAttention": (
               MultiHeadAttention.__call__, MultiHeadAttention.project,
               MultiHeadAttention.weights),
           "MLP": (MLP.__call__,)}


def check(checkpoint: Checkpoint) -> None:
    """Refuse a model that the page cannot compute, or that makes it too large."""
    model, tokenizer, *_ = checkpoint
    if not isinstance(model, Transformer):
        raise ValueError("a live page shows a model that continues texts, and not one that "
                         "answers, as those of model.reverse do; leave out --live")
    if tokenizer.unit != "character":
        raise ValueError("a live page is typed into character by character, and this model has "
                         "tokens; leave out --live")
    if unknown := unknown_options(model.config, OPTIONS):
        raise ValueError(f"the live page does not know {any_of(unknown)}; leave out --live")
    if (size := weights.size_in_page(model)) > LARGEST:
        raise ValueError(f"the live page of this model would have {size / 1e6:,.1f} MB, and a "
                         f"browser should open at most {LARGEST / 1e6:.0f} MB; train a smaller "
                         "one, or leave out --live")


def check_length(text: str) -> None:
    """Refuse a text that is too long to be typed into."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"the text has {len(text):,} characters, and a live page takes at most "
                         f"{MOST_CHARACTERS:,}; give a shorter --text")


def html(checkpoint: Checkpoint, text: str, out_dir: pathlib.Path) -> str:
    """Return the page, which begins with a text.

    Raises
    ------
    ValueError : see `check` and `check_length`; or the text has characters that the model does not
        know.
    """
    check(checkpoint)
    check_length(text)
    model, tokenizer, *_ = checkpoint
    tokenizer.encode(text)
    tensors, numbers = weights.packed(model)
    config, known = model.config, _training_ids(checkpoint)
    kept, share, table = counts.table(known["train"], tokenizer.vocab_size)
    facts = {
        "about": [*about(checkpoint, out_dir),
                  ("rounding costs", rounding_cost(model, known["val"]))],
        "config": {"kv_heads": config.kv_heads, "d_head": config.d_head, **vars(config)},
        "tensors": tensors,
        "characters": list(tokenizer.vocabulary),
        "vocabulary": [shown(c) for c in tokenizer.vocabulary],
        "text": text,
        "neutral": neutral(tokenizer.vocabulary, known["train"]),
        "grams": {"kept": kept, "share": share, "missing": known["missing"]},
        "python": {name: "\n".join(textwrap.dedent(inspect.getsource(part)) for part in parts)
                   for name, parts in SOURCES.items()},
    }
    body = (STATIC / "live.html").read_text(encoding="utf-8")
    for name, data in (("weights", numbers), ("grams", table)):
        body = body.replace("{{" + name + "}}", base64.b64encode(data).decode("ascii"))
    return shell("A live model", NAV, body, facts, FILES, "python -m model.look --live")


def _training_ids(checkpoint):
    """Return the ids of both parts of the text of the run, or none and why they are missing."""
    try:
        text = training_text(checkpoint.training, checkpoint.tokenizer)
        return {"train": text.train, "val": text.val, "missing": None}
    except (ValueError, UnknownCharacterError) as error:
        nothing = np.empty(0, np.int64)
        return {"train": nothing, "val": nothing, "missing": str(error)}


def rounding_cost(model: Transformer, ids: np.ndarray) -> str:
    """Return in words what the rounding of the weights adds to the loss of the validation text."""
    if weights.fits_unrounded(model):
        return "nothing: no weight is rounded"
    if len(ids) < 2:
        return "not measured: the text of the run is not at hand"
    ids = ids[:MEASURED]
    exact, found = (float(text_losses(each, ids).mean())
                    for each in (model, weights.rounded(model)))
    return f"{found - exact:+.4f} nats a character ({exact:.4f} without, {len(ids):,} characters)"


def neutral(vocabulary: list[str], ids: np.ndarray) -> list[int]:
    """Return the two ids that stand in for a character: a space and a line break if the model knows
    them, then what is most frequent in the text."""
    wanted = [vocabulary.index(c) for c in NEUTRAL if c in vocabulary]
    frequent = np.argsort(-np.bincount(ids, minlength=len(vocabulary)), kind="stable").tolist()
    return list(dict.fromkeys(itertools.chain(wanted, frequent)))[:2]
