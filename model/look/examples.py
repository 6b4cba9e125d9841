"""Things to try on a page that computes: each is an address, which holds the state of the page."""
import collections
import json
import re
from typing import Any
from urllib.parse import quote

import numpy as np

from model.generation import window_start

LONGEST = 2000          # characters of a text that an address holds, as in static/begin.js
SHUFFLED = 60           # characters of nonsense


def examples(text: str, block_size: int, best: tuple[int, int],
             training: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the words of each link and the state of the page that it leads to.

    Parameters
    ----------
    text : the one that the page begins with.
    best : layer and number of the head that the text needs most.
    training : the text that the model was trained on.
    """
    text = text[:LONGEST]
    if len(text) < 2:
        return []
    layer, head = best
    name = frequent_name(training)
    first = window_start(len(text), block_size)
    looks = {"layer": layer, "head": head, "row": len(text) - 1, "column": first, "weight": 1}
    shuffled = "".join(np.random.default_rng(0).permutation(list(text[:SHUFFLED])))
    return [
        (f"Switch off head {layer + 1}.{head + 1}",
         {"text": text, "off": [f"{layer}.{head}"], "pin": None}),
        *([("A name that it knows", {"text": name})] if name else []),
        ("Nonsense", {"text": shuffled}),
        ("A head that must look at one letter",
         {"text": text, "layer": layer, "head": head, "drag": looks, "pin": None,
          "colours": "attention"})]


def frequent_name(text: str) -> str:
    """Return the most frequent word of five letters or more that always has a capital, or ""."""
    words = collections.Counter(re.findall(r"[^\W\d_]{5,}", text))
    names = {word: count for word, count in words.items()
             if word[0].isupper() and word.lower() not in words}
    return max(names, key=names.get, default="")


def link_to(state: dict[str, Any]) -> str:
    """Return the address of a state, without that of the page."""
    return "#" + quote(json.dumps(state, ensure_ascii=False), errors="replace")
