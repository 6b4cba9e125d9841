"""A trained model at work on a text, as one HTML file that needs no other file.

A character model that fits is put in (model/look/living.py), and the page computes while one types;
of others it holds one text's numbers, rounded to the digits that it shows.  `gather` computes what
goes into static/look.html, which `model.look.shell` makes a whole file.

Shapes: N ids of the text, T of a window, L layers, H heads, C channels, V vocabulary.
"""
import base64
import math
import pathlib
import unicodedata
import zlib
from html import escape
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.words import number_of
from model.checkpoint import Checkpoint, recorded_texts
from model.folder import read_log
from model.generation import USELESS, window_start, window_step
from model.look import heads, living
from model.look.beside import Side
from model.look.curves import counted_losses, describe_counts, describe_finding, log_table
from model.look.examples import examples, link_to
from model.look.reading import Window, lens, read
from model.look.shell import filled, shell
from model.score.text import text_losses, training_text
from model.transformer import Transformer, TransformerConfig

MOST_CHARACTERS = 1000      # or tokens, of which a page has names, losses and weights
MOST_WEIGHTS = 10_000_000   # about as many bytes
MOST_HEADS = 64             # that are tried one by one
LONGEST = 16                # characters shown of a token
SPECIAL = {" ": ("␣", "space"), "\n": ("⏎", "line break"), "\t": ("⇥", "tab")}
FILES = ("look.css", "curves.css", "engine.js", "numbers.js", "field.js", "card.js", "flow.js",
         "head.js", "pin.js", "worth.js", "write.js", "keep.js", "curves.js", "begin.js")
NAV = {"text": "Text", "flow": "Parts", "head": "Head", "write": "Write", "run": "Training",
       "about": "About"}
LIKELIEST = 8               # predictions shown of each character
LIVE = ("Type into the coloured letters.  After each one, this small language model says what it "
        "expects next.  The stronger a colour, the more that letter surprised it.  Surprise is "
        "counted in nats: one nat more, and the letter was 2.7 times less likely.")
BOTH = ("Type into the coloured letters.  Blue ones surprise the model of ‘{beside[now]}’ less "
        "than that of ‘{beside[pinned]}’, orange ones more.  Surprise is counted in nats: one nat "
        "more, and the letter was 2.7 times less likely.")
STILL = ("This small language model reads a text from left to right, and says after each {unit} "
         "what it expects next.  The stronger a colour, the more that {unit} surprised it.  "
         "Surprise is counted in nats: one nat more, and the {unit} was 2.7 times less likely.  "
         "The page shows one text, and cannot be typed into: {reason}.")


def check_length(config: TransformerConfig, N: int, unit: str = "character") -> None:
    """Refuse a text with nothing to predict, or one whose page would be too large for a browser."""
    if N < 2:
        raise ValueError(f"a text needs two {unit}s to have one to predict, and this has {N}")
    most = max(n for n in range(2, MOST_CHARACTERS + 1)
               if n == 2 or count_weights(config, n) <= MOST_WEIGHTS)
    if N > most:
        raise ValueError(f"the text has {N:,} {unit}s, and a page of this model shows at most "
                         f"{most:,}, to stay light enough for a browser; give a shorter --text")


def count_weights(config: TransformerConfig, N: int) -> int:
    """Return how many attention weights the windows of N ids have."""
    last = window_start(N, config.block_size)
    lengths = [config.block_size] * (last // window_step(config.block_size)) + [N - last]
    return config.n_layer * config.n_head * sum(T * (T + 1) // 2 for T in lengths)


def gather(checkpoint: Checkpoint, text: str, source: str, out_dir: pathlib.Path,
           live: bool = True, second: Side | None = None) -> tuple[dict[str, Any], bytes]:
    """Return what a page shows, which begins with a text from `source`: the facts that go into it
    as JSON, and numbers: the weights of the model, or those of attention as `pack` returns them.
    A second model stands beside it in a page that computes.

    Raises
    ------
    ValueError : the text is too short, too long or not of the model's; or the model is of no use.
    """
    model, tokenizer, *_ = checkpoint
    config, unit = model.config, tokenizer.unit
    reason = living.reason_against(checkpoint) if live else "--no-live asked for this"
    known, unknown = _text_of_the_run(checkpoint)
    if reason is None:
        living.check_length(text)
        ids = living.encode(tokenizer.vocabulary, text, known)
    else:
        ids = tokenizer.encode(text)
        check_length(config, len(ids), unit)
    some = ids[:MOST_CHARACTERS] if len(ids) else np.zeros(1, np.int64)
    windows = read(model, some)
    if not all(np.isfinite(window.logits).all() for window in windows):
        raise ValueError(USELESS)
    log, no_log = read_log(out_dir / "log.csv")
    described = heads.describe([(window.maps, window.fresh) for window in windows])
    facts = {
        "live": reason is None, "reason": reason, "unit": unit, "text": text,
        "config": living.config_of(model),
        "about_words": f"{about(checkpoint, out_dir)}  {source}",
        "log": None if no_log else log, "no_log": no_log,
        "counted": counted_losses(known) if known else None, "no_counts": unknown}
    if reason is None:
        more, data = living.gather(checkpoint, known, second and second.checkpoint.model)
        used = range(config.vocab_size)
        facts["about_words"] += f"  {living.rounding_cost(model, known)}"
    else:
        more, data = _table(model, windows, ids), pack(windows)
        used = {*ids.tolist(), *(i for fact in more["predictions"] for i, _ in
                                 fact["top"] + fact["blocks"])}
    worth = worths(living.weights.rounded(model) if reason is None else model, some)
    if reason is None and living.unknown_letters(tokenizer.vocabulary, text):
        worth = None        # it would be of what the model read instead, too
    sharpest = [-np.nan_to_num(head.numbers["entropy"]) for layer in described for head in layer]
    best = int(np.argmax(sharpest if worth is None else worth))
    best = divmod(best, config.n_head)
    if reason is None:
        facts["losses"] = _window_losses(windows[-1]) if len(ids) <= MOST_CHARACTERS else []
        training = known.parts()[0] if known else text
        facts["examples"] = examples(text, config.block_size, best, training)
    if second:
        _put_beside(facts, second, out_dir)
    return facts | more | {
        "vocabulary": {i: shown(tokenizer.vocabulary[i]) for i in sorted(used)},
        "heads": _describe_heads(described, unit),
        "worths": worth, "best": best}, data


def _put_beside(facts, second, out_dir):
    """Put a second model beside the one in out_dir, but for its weights."""
    folder, checkpoint = second
    known, _ = _text_of_the_run(checkpoint)
    facts["beside"] = {
        "now": str(out_dir), "pinned": folder, "lede_of_one": LIVE,
        "config": living.config_of(checkpoint.model),
        "neutral": living.neutral(checkpoint.tokenizer.vocabulary)}
    facts["losses"] = []        # the colours are those of both
    facts["examples"].insert(0, (f"Beside {folder}", {}))
    facts["about_words"] += (f"  {about(checkpoint, folder, 'The other model')}  "
                             f"{living.rounding_cost(checkpoint.model, known)}")


def _text_of_the_run(checkpoint):
    """Return the text that a model was trained on, or None, and why it is not known."""
    try:
        return training_text(checkpoint.training, checkpoint.tokenizer), ""
    except ValueError as error:
        return None, str(error)


def worths(model: Transformer, ids: np.ndarray) -> list[float] | None:
    """Return by how much the loss of the first window of a text, ids (N,), rises without each head,
    L H numbers of nats; None if there are too many heads, or nothing to predict."""
    config, ids = model.config, ids[:model.config.block_size]
    if len(ids) < 2 or config.n_layer * config.n_head > MOST_HEADS:
        return None
    found, before = [], text_losses(model, ids).sum()
    for block in model.blocks:
        out = block.attention.out.weight
        kept = out.data.copy()                                                  # (C, H D)
        for head in np.split(np.arange(kept.shape[1]), config.n_head):
            out.data[:, head] = 0
            found.append(round(float(text_losses(model, ids).sum() - before), 4))
            out.data[:] = kept
    return found


def about(checkpoint: Checkpoint, out_dir: pathlib.Path, name: str = "The model") -> str:
    """Return in words what the model is."""
    model, tokenizer, training, _ = checkpoint
    config, unit, texts = model.config, tokenizer.unit, recorded_texts(training)
    count = number_of(sum(p.size for p in model.parameters()), "parameter")
    words = (f"{name} has {count} in {number_of(config.n_layer, 'block')}, each with "
             f"{number_of(config.n_head, 'head')}, and {number_of(config.n_embd, 'number')} for "
             f"every {unit}.  It knows {number_of(config.vocab_size, f'different {unit}')}, and "
             f"reads at most {number_of(config.block_size, unit)} at once.")
    steps = training.get("state", {}).get("iteration")
    if texts and steps is not None:
        on = number_of(len(texts), "file") if texts[1:] else pathlib.Path(*texts).name
        words += f"  It was trained for {number_of(steps, 'step')} on {on}."
    return f"{words}  It came from the folder {out_dir}."


def shown(text: str) -> tuple[str, str]:
    """Return a character or a token as a visible symbol, and in words."""
    if len(text) == 1:
        return shown_character(text)
    symbols = [shown_character(character)[0] for character in text]
    if len(symbols) > LONGEST:
        symbols[LONGEST - 1:] = "…"
    words = {character: f" {name} " for character, (_, name) in SPECIAL.items()}
    spoken = "".join(words.get(c, c if c.isprintable() else " ") for c in text)
    return "".join(symbols), " ".join(spoken.split())


def shown_character(character: str) -> tuple[str, str]:
    """Return a character as a visible symbol, and in words."""
    point, category = ord(character), unicodedata.category(character)
    code = f"U+{point:04X}"
    name = unicodedata.name(character, "").lower() or code
    if character in SPECIAL:
        return SPECIAL[character]
    if category[0] == "M":                          # an accent or similar, which needs a carrier
        return "◌" + character, name
    if category[0] in "CZ":                         # control characters, separators and similar
        return chr(0x2400 + point) if point < 32 else code, name
    if character.isalnum():
        return character, f"capital {character}" if character.isupper() else character
    return character, name


def _table(model, windows, ids):
    """Return the ids, and the model's predictions for each but the first, and after the last."""
    facts = []
    for window in windows:
        fresh = slice(window.fresh, None)
        log_p = mg.log_softmax(window.logits[fresh]).data                           # (R, V)
        came = ids[window.start + 1:][fresh]        # (R,) or more, or after the last window R - 1
        # One depth after the other, since each has R V numbers.
        depths = [_tops(mg.log_softmax(lens(model, x[fresh])).data, 1) for x in window.stream]
        for row, top in enumerate(_tops(log_p, LIKELIEST)):
            fact = {"top": top, "blocks": [depth[row][0] for depth in depths]}
            if row < len(came):
                logp = float(log_p[row, came[row]])
                fact |= {"came": round(1e4 * math.exp(logp)), "loss": round(-logp, 6)}
            facts.append(fact)
    return {"ids": ids.tolist(), "predictions": facts}


def _tops(log_p, count):
    """Return the likeliest ids of each row, (R, V), in order, and their probabilities in 0.01 %."""
    tops = []
    count = min(count, log_p.shape[1])
    for row in log_p:
        least = np.partition(row, -count)[-count]       # sorting all would take long
        likely = np.flatnonzero(row >= least)
        order = np.argsort(-row[likely], kind="stable")[:count]
        tops.append([(int(i), round(1e4 * math.exp(row[i]))) for i in likely[order]])
    return tops


def _describe_heads(described, unit):
    """Return for each head what it does, and its name, empty where that distinguishes it from few
    others."""
    names = heads.distinguishing(described)

    def describe(head):
        name, does = heads.kind(head)
        return {"name": name.replace("character", unit) if name in names else "",
                "does": does.replace("character", unit)}
    return [[describe(head) for head in layer] for layer in described]


def pack(windows: list[Window]) -> bytes:
    """Pack the lower triangles of all maps, row by row, in the order window, layer, head, query,
    key: in units of 0.01 %, first the low bytes of all, then the high bytes, deflated."""
    shares = np.concatenate([w.maps[..., *np.tril_indices(len(w.ids))].ravel() for w in windows])
    whole = np.rint(1e4 * shares.astype(np.float64)).astype("<u2")
    return zlib.compress(whole.view(np.uint8).reshape(-1, 2).T.tobytes(), 9)


def _window_losses(window):
    """Return the loss of each id of a window but the first."""
    log_p = mg.log_softmax(window.logits[:-1]).data                                 # (T - 1, V)
    losses = -np.take_along_axis(log_p, window.ids[1:, None], axis=1)
    return [round(float(loss), 3) for loss in losses[:, 0]]


def _opening(text):
    """Return the beginning of the text as HTML, which is there before the scripts are."""
    beginning = escape(text[:MOST_CHARACTERS].encode("utf-8", "replace").decode("utf-8"))
    return beginning.replace("{", "&#123;")         # no mark of a template


def _about_curves(facts):
    """Return what stands beside the curves of the run, or why there are none."""
    if not facts["log"]:
        why = facts["no_log"] or "the log of the run has no lines"
        return f"There are no curves here, because {why}."
    return describe_counts(facts["counted"], facts["no_counts"])


def html(facts: dict[str, Any], data: bytes) -> str:
    """Return the page."""
    unit, live = facts["unit"], facts["live"]
    headline, lede = (("A model to type into", LIVE) if live
                      else ("A look inside a trained model", STILL))
    it, of_it, these = "it", "", "this model"
    if "beside" in facts:
        headline, lede = "Two models to type into", BOTH
        it = f"‘{escape(facts['beside']['now'])}’"
        of_it = f" of {it}"
        these = "these models"
    log, counted = facts["log"] or [], facts["counted"]
    links = [f'<a href="{escape(link_to(state))}">{escape(words)}</a>'
             for words, state in facts.get("examples", ())]
    parts = {"weights": base64.b64encode(data).decode("ascii"), "unit": unit,
             "headline": headline, "lede": escape(lede.format(**facts)),
             "it": it, "of_it": of_it, "these": these,
             "finding": escape(describe_finding(log, dict(counted or []), unit)),
             "curves": escape(_about_curves(facts)), "log": log_table(log, unit),
             "examples": "\n    ".join(links), "opening": _opening(facts["text"])}
    nav = {name: words for name, words in NAV.items() if live or name != "write"}
    return shell(headline, nav, filled("look.html", parts), facts, FILES)
