"""A trained model that reverses strings, and where its last layer looks."""
import sys

import numpy as np

from minigrad import compiled
from model.look.crossed import NAV
from model.reverse.__main__ import VOCABULARY, Settings, new_model, train, unseen_strings
from model.reverse.maps import answer_and_maps
from model.checkpoint import Checkpoint
from model.walk.station import Table

TEXT = "minigrad"
SETTINGS = Settings(block_size=len(TEXT), max_iters=400, warmup_iters=50, eval_interval=100)


def pictures(s: Settings = SETTINGS, text: str = TEXT) -> list[Table]:
    """Train a model to reverse strings, in some ten seconds.  Return the weights of the sharpest
    head each: the answer looks at the text, the text at itself, and the answer at itself."""
    print("training a model that reverses strings, for the maps of station 10", file=sys.stderr)
    compiled.set_threads(s.threads)
    model = new_model(s)
    train(s, model, unseen_strings(s))
    answer, views = answer_and_maps(Checkpoint(model, VOCABULARY, {}, {}), text)
    tables = []
    for heading, view in zip(NAV.values(), views):
        sharpest = np.array(view["maps"][view["chosen"]], float)    # nan where it cannot look
        tables.append(Table(f"{heading}: {text}, {answer}", sharpest, view["rows"],
                            view["columns"], None, 2, (view["row"], view["column"])))
    return tables
