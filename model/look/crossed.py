"""An encoder-decoder at work on a string: the attention maps of all its heads, on one page."""
from html import escape

from minigrad.words import number_of
from model.checkpoint import Checkpoint
from model.look.shell import filled, shell
from model.reverse.maps import answer_and_maps

EXAMPLE = "backwards"
FILES = ("maps.css", "maps.js")         # in static/
NAV = {"across": "From the answer back to the string", "string": "The string, read both ways",
       "written": "The answer, written from left to right"}
TITLES = {"reverse": "A model that reverses strings", "sort": "A model that sorts letters"}
LEARNT = {
    "reverse": "Once it can reverse, the diagonal runs the wrong way: for its first letter a head "
               "looks at the last of the string, and for its last at the first.",
    "sort": "Once it can sort, a head looks at the letter that it writes, wherever that stands, or "
            "at neighbours of it in the alphabet."}


def html(checkpoint: Checkpoint, text: str) -> str:
    """Return the page of a string and its answer; errors are those of `answer_and_maps`."""
    model, _, training, _ = checkpoint
    answer, views = answer_and_maps(checkpoint, text)
    task = training.get("settings", {}).get("task")
    about = (f"{number_of(model.config.n_layer, 'layer')} to read and as many to write, "
             f"{number_of(model.config.n_head, 'head')} in each, "
             f"{number_of(model.config.n_embd, 'channel')}, "
             f"{number_of(sum(p.size for p in model.parameters()), 'parameter')}.")
    if "right" in training and "judged" in training:
        about += (f"  After its training, {training['right']:,} of {training['judged']:,} strings "
                  "that it had not seen were right.")
    title = TITLES.get(task, "An encoder-decoder at work")
    words = NAV | {"title": title, "text": text, "answer": answer, "learnt": LEARNT.get(task, ""),
                   "about": about}
    body = filled("crossed.html", {name: escape(said) for name, said in words.items()})
    return shell(title, NAV, body, views, FILES)
