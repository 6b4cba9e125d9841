"""What an encoder-decoder writes, and where each of its heads looks meanwhile."""
from typing import Any

import numpy as np

from minigrad.words import shown
from model.checkpoint import Checkpoint
from model.generation import USELESS
from model.reverse.encoder_decoder import BEGIN, END, PAD

MOST_LETTERS = 100      # of which a page stays light enough for a browser
DIGITS = 4          # of a weight, after the point
MARKS = {PAD: "·", BEGIN: "▸", END: "■"}        # of tokens that are no letters


def answer_and_maps(checkpoint: Checkpoint, text: str) -> tuple[str, list[dict[str, Any]]]:
    """Return what the model writes for a string, and three views, each with the maps of all heads:
    of the answer on the string, within the string, and within the answer.  A view is plain JSON:
    row and column, what one of them is;  rows and columns, their letters;  maps, layer after layer,
    by rows, null where a cell is closed;  across, the heads of a layer;  chosen, the sharpest map.

    Raises
    ------
    ValueError : the string is empty or too long, or has characters that the model does not know; or
        the model is of no use.
    """
    model, tokenizer, *_ = checkpoint
    longest = min(model.config.block_size - 1, MOST_LETTERS)            # END takes a place
    read = tokenizer.encode(text)
    if not 1 <= len(read) <= longest or (read <= END).any():
        raise ValueError(f"this model reads a string of 1 to {longest} letters, and --text is "
                         f"{shown(repr(text))}; give another --text")
    source, written = read[None], model.write(read[None])[0]
    written = written[:[*written, END].index(END) + 1]                      # (T,)
    target = np.append(BEGIN, written[:-1])
    within_source, within_target, across = (
        maps[:, 0] for maps in model.attention_maps(source, target[None]))  # (L, H, T, S)
    if not np.isfinite(across).all():
        raise ValueError(USELESS)
    within_target = np.where(np.tri(len(target)) > 0, within_target, np.nan)
    letters, so_far, answer = ([MARKS.get(i) or tokenizer.vocabulary[i] for i in ids]
                               for ids in (read, target, written))
    return "".join(answer).removesuffix(MARKS[END]), [
        _view(across, answer, letters, "letter written", "letter read"),
        _view(within_source, letters, letters, "letter", "letter it looks at"),
        _view(within_target, answer, so_far, "letter written", "letter before it")]


def _view(maps, rows, columns, row, column):
    """Return a view of the maps of all heads, (L, H, T, S); the sharpest one is chosen."""
    sharpness = np.nanmax(maps, axis=-1).mean(axis=-1)                              # (L, H)
    numbers = np.where(np.isnan(maps), None, np.round(maps.astype(np.float64), DIGITS))
    return {"across": maps.shape[1], "chosen": int(sharpness.argmax()), "rows": rows,
            "columns": columns, "row": row, "column": column,
            "maps": numbers.reshape(-1, *maps.shape[2:]).tolist()}
