"""A trained model that reverses strings, and where its last layer looks."""
import sys
from typing import Any

import numba

from model.encoder_decoder import EncoderDecoder
from model.looking.crossed import answer_and_maps
from model.reverse import VOCABULARY, Settings, new_model, train, unseen_strings
from model.storage.checkpoint import Checkpoint

TEXT = "minigrad"
SETTINGS = Settings(block_size=len(TEXT), max_iters=400, warmup_iters=50, eval_interval=100)


def trained() -> EncoderDecoder:
    """Train a model that reverses strings as long as TEXT, in some ten seconds."""
    print("training a model that reverses strings, for the maps of station 10", file=sys.stderr)
    numba.set_num_threads(SETTINGS.threads)
    model = new_model(SETTINGS)
    train(SETTINGS, model, unseen_strings(SETTINGS))
    return model


def pictures(model: EncoderDecoder, text: str = TEXT) -> list[dict[str, Any]]:
    """Return a map of the sharpest head each: the answer looks at the text, the text at itself, and
    the answer at itself."""
    answer, sections = answer_and_maps(Checkpoint(model, VOCABULARY, {}, {}), text)
    return [section.maps[section.chosen] | {"title": f"{section.heading}: {text}, {answer}"}
            for section in sections]
