"""A trained model at work on a text, as one HTML file that needs no other file.

`gather` computes what the page shows, rounded to the digits that it shows; `html` puts it into
static/page.html, which `model.look.shell` makes a whole file.

Shapes: N ids of the text, T of a window, L layers, H heads, C channels, V vocabulary.
"""
import base64
import dataclasses
import math
import pathlib
import unicodedata
import zlib
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.watch.source import meaning
from minigrad.words import number_of
from model.checkpoint import Checkpoint, texts_of
from model.folder import read_log
from model.generation import USELESS, window_start, window_step
from model.look import heads
from model.look.reading import Step, Window, lens, read
from model.look.shell import shell, static
from model.score.text import text_losses, training_text
from model.scoring import yardstick
from model.transformer import TransformerConfig

MOST_CHARACTERS = 1000      # or tokens
MOST_WEIGHTS = 10_000_000   # about as many bytes
LONGEST = 16                # characters shown of a token
SPECIAL = {" ": ("␣", "space"), "\n": ("⏎", "line break"), "\t": ("⇥", "tab")}
SCRIPTS = ("lists.js", "basics.js", "text.js", "attention.js", "steps.js", "run.js", "page.js")
NAV = {"text": "Text", "attention": "Attention", "steps": "Steps", "run": "Run"}
LIKELIEST = 8               # predictions shown of each character
LENS = 3                    # and of each block
LONG = 40                   # characters that do not occur in a text by chance
CHANNELS = 4                # numbers shown of the residual stream


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


def gather(checkpoint: Checkpoint, text: str, source: str, out_dir: pathlib.Path
           ) -> tuple[dict[str, Any], bytes]:
    """Return what a page shows of a text from `source`: the facts that go into it as JSON, and the
    attention weights as `pack` returns them.

    Raises
    ------
    ValueError : the text is too short or too long, or has characters that the model does not know;
        or the model is of no use.
    """
    model, tokenizer, *_ = checkpoint
    ids, unit = tokenizer.encode(text), tokenizer.unit
    check_length(model.config, len(ids), unit)
    windows = read(model, ids)
    if not all(np.isfinite(window.logits).all() for window in windows):
        raise ValueError(USELESS)
    described = heads.describe([(w.ids, w.maps, w.fresh) for w in windows])
    expected = _predictions(model, windows, ids)
    symbols = {i: shown(tokenizer.vocabulary[i])
               for i in sorted(_used(ids, described, expected))}
    return {
        "source": source,
        "about": about(checkpoint, out_dir),
        "unit": unit,
        "ids": ids.tolist(),
        "vocab_size": tokenizer.vocab_size,
        "vocabulary": symbols,
        "windows": [{"start": w.start, "length": len(w.ids)} for w in windows],
        "characters": expected,
        "even_loss": round(math.log(tokenizer.vocab_size), 3),
        "heads": [[_head_facts(head, symbols, unit) for head in layer] for layer in described],
        "rules": [{"does": _in_units(does.format("its favourite character"), unit),
                   "when": _in_units(when, unit)} for _, does, _, when in heads.RULES],
        "sizes": sizes(model.config, len(windows[0].ids)),
        "steps": step_facts(windows[0].steps, model.config, unit),
        **_yardsticks(checkpoint, text, ids),
        **_log(out_dir),
    }, pack(windows)


def about(checkpoint: Checkpoint, out_dir: pathlib.Path) -> list[tuple[str, str]]:
    """Return names and values that describe the model."""
    model, tokenizer, training, _ = checkpoint
    config, texts = model.config, texts_of(training)
    said = {"n_layer", "n_head", "n_embd", "block_size", "vocab_size"}
    found = [("folder", str(out_dir)),
             ("layers × heads", f"{config.n_layer} × {config.n_head}"),
             ("channels", f"{config.n_embd:,}"),
             ("parameters", f"{sum(p.size for p in model.parameters()):,}"),
             ("window", number_of(config.block_size, tokenizer.unit)),
             ("vocabulary", number_of(config.vocab_size, tokenizer.unit))]
    steps = training.get("state", {}).get("iteration")
    if texts and steps is not None:
        on = number_of(len(texts), "file") if texts[1:] else pathlib.Path(*texts).name
        found.append(("trained", f"{number_of(steps, 'step')} on {on}"))
    return found + [(field.name, str(value)) for field in dataclasses.fields(config)
                    if (value := getattr(config, field.name)) != field.default
                    and field.name not in said]


def _in_units(words, unit):
    """Return words about characters as words about the ids of a model."""
    return words.replace("character", unit)


def _used(ids, described, expected):
    """Return the ids of which a page shows something; of many tokens, they are few."""
    tops = [top for fact in expected for top in (fact["top"], *(b["top"] for b in fact["blocks"]))]
    return {*ids.tolist(), *(head.favourite_id for layer in described for head in layer),
            *(i for top in tops for i, _ in top)}


def shown(text: str) -> tuple[str, str]:
    """Return a character or a token as a visible symbol, and in words."""
    if len(text) == 1:
        return shown_character(text)
    symbols = [shown_character(character)[0] for character in text]
    cut = symbols[:LONGEST - 1] + ["…"] if len(symbols) > LONGEST else symbols
    spoken = "".join(f" {SPECIAL[c][1]} " if c in SPECIAL else c if c.isprintable() else " "
                     for c in text)
    return "".join(cut), " ".join(spoken.split())


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


def _predictions(model, windows, ids):
    """Return the model's predictions for each id but the first, and after the last."""
    facts = []
    for number, window in enumerate(windows):
        came = ids[window.start + 1:][:len(window.ids)]     # (T,), or after the last window T - 1
        log_p = mg.log_softmax(window.logits).data                                  # (T, V)
        rows = range(window.fresh, len(window.ids))
        # One depth after the other, since each has T V numbers.
        depths = [_block_facts(x, mg.log_softmax(lens(model, x)).data, came, rows)
                  for x in window.stream]                                           # (T, C) each
        for row, blocks in zip(rows, zip(*depths)):
            p = np.exp(log_p[row].astype(np.float64))
            fact = {"window": number, "top": _top(p, LIKELIEST), "blocks": list(blocks)}
            if row < len(came):
                loss, probability = -float(log_p[row, came[row]]), p[came[row]]
                fact |= {"came": _units(probability), "loss": round(loss, 3),
                         "bits": round(loss / math.log(2), 3),
                         "rank": int((p > probability).sum()) + 1}
            facts.append(fact)
    return facts


def _block_facts(x, log_q, came, rows):
    """Return what stands in the residual stream, (T, C), at each of these rows, and what would be
    predicted from it, (T, V)."""
    facts = []
    for row in rows:
        q = np.exp(log_q[row].astype(np.float64))
        facts.append({"norm": round(float(np.linalg.norm(x[row].astype(np.float64))), 2),
                      "channels": [round(float(c), 3) + 0.0 for c in x[row, :CHANNELS]],
                      "top": _top(q, LENS),
                      "came": _units(q[came[row]]) if row < len(came) else None})
    return facts


def _top(p, count):
    """Return the likeliest ids and their probabilities, the likeliest first."""
    count = min(count, len(p))
    likely = np.flatnonzero(p >= np.partition(p, -count)[-count])   # sorting all would take long
    return [(int(i), _units(p[i])) for i in likely[np.argsort(-p[likely], kind="stable")[:count]]]


def _units(share):
    """Return a share of 1 in units of 0.01 %, as the page shows it; None for nan."""
    return None if math.isnan(share) else round(1e4 * float(share))


def _head_facts(head, symbols, unit):
    """Return a head's numbers as the page shows them, and its description."""
    def rounded(numbers):
        return {name: (None if math.isnan(x) else round(x, 2)) if name in ("entropy", "distance")
                else _units(x) for name, x in numbers.items()}
    favourite = f"‘{symbols[head.favourite_id][0]}’"
    label, does = (_in_units(words, unit).format(favourite) for words in heads.kind(head))
    return {"numbers": rounded(head.numbers), "even": rounded(head.even),
            "favourite": head.favourite_id, "label": label, "does": does}


def sizes(config: TransformerConfig, T: int) -> dict[str, int]:
    """Return the letters of shapes, which static/page.html explains, and their values."""
    grouped = {"G": config.kv_heads} if config.kv_heads < config.n_head else {}
    return {"B": 1, "T": T, "C": config.n_embd, "H": config.n_head, **grouped, "D": config.d_head,
            "V": config.vocab_size}


def words_of(step: Step, config: TransformerConfig) -> str:
    """Return what a step does: as static/steps.txt says it of the op and its layer, of the op and
    an option of the model, or of the op; else as the op's docstring says it."""
    known = dict(part.split(": ", 1) for part in static("steps.txt").split("\n\n"))
    layer = [name.split(".")[-2] for name in step.parameters][:1]
    kinds = *layer, config.position, config.norm, config.activation
    keys = [*(f"{step.op} {kind}" for kind in kinds), step.op]
    words = next((known[key] for key in keys if key in known), f"{meaning(step.op)}.")
    return " ".join(words.replace("INNER", f"{config.inner:,}").split())


def step_facts(steps: list[Step], config: TransformerConfig, unit: str = "character"
               ) -> list[dict[str, Any]]:
    """Return every step from ids to logits, in the order in which they ran."""
    facts, seen = [{"op": "encode", "block": None, "shape": (1, steps[0].shape[-2]),
                    "letters": ["B", "T"], "parameters": [], "count": 0,
                    "words": f"Each {unit} becomes its number in the vocabulary, its id."}], set()
    for step in steps:
        facts.append({
            "op": step.op, "block": step.block, "shape": step.shape,
            "words": _in_units(words_of(step, config), unit),
            "letters": letters(step.shape, config, step is steps[-1]),
            "parameters": [{"name": name, "shape": shape}
                           for name, shape in step.parameters.items()],
            "count": sum(math.prod(shape) for name, shape in step.parameters.items()
                         if name not in seen)})
        seen.update(step.parameters)
    return facts


def letters(shape: tuple[int, ...], config: TransformerConfig, logits: bool) -> list[str]:
    """Return the letters of an activation's axes, from the last back: channels, time, batch."""
    C, H, G = config.n_embd, config.n_head, config.kv_heads
    packed = "3 C" if G == H else "(H + 2 G) D"
    known = {C: "C", C + 2 * G * config.d_head: packed}
    last = "V" if logits else known.get(shape[-1], str(shape[-1]))
    before = {2: ["T"], 3: ["B", "T"]}.get(len(shape), [str(n) for n in shape[:-1]])
    return [*before, last]


def _yardsticks(checkpoint, text, ids):
    """Return the mean loss of the text, and the losses of counted n-grams on it and on the run's
    validation split, if the text of the run is at hand."""
    mean = float(text_losses(checkpoint.model, ids).mean())
    score = {"loss": round(mean, 4), "bits": round(mean / math.log(2), 4),
             "ladder": [("this model", round(mean, 3))]}
    try:
        known = training_text(checkpoint.training, checkpoint.tokenizer)
    except ValueError as error:
        return {"score": score, "counted": None, "no_counts": str(error)}
    train, val, V = known.train, known.val, known.tokenizer.vocab_size
    score["seen"] = len(text) >= LONG and text in known.parts()[0]  # short ones are in every text
    score["ladder"] += [(name, round(x, 3)) for name, x in yardstick(train, ids, V).items()]
    return {"score": score,
            "counted": [(name, round(x, 3)) for name, x in yardstick(train, val, V).items()]}


def _log(out_dir):
    """Return the lines of the run's log, or the reason why there are none."""
    rows, problem = read_log(out_dir / "log.csv")
    return {"log": None, "no_log": problem} if problem else {"log": rows}


def pack(windows: list[Window]) -> bytes:
    """Pack the lower triangles of all maps, row by row, in the order window, layer, head, query,
    key: in units of 0.01 %, first the low bytes of all, then the high bytes, deflated."""
    shares = np.concatenate([w.maps[..., *np.tril_indices(len(w.ids))].ravel() for w in windows])
    whole = np.rint(1e4 * shares.astype(np.float64)).astype("<u2")
    return zlib.compress(whole.view(np.uint8).reshape(-1, 2).T.tobytes(), 9)


def html(facts: dict[str, Any], weights: bytes) -> str:
    """Return the page."""
    body = _in_units(static("page.html"), facts["unit"]).replace(
        "{{weights}}", base64.b64encode(weights).decode("ascii"))
    return shell("A look inside a trained model", NAV, body, facts, SCRIPTS)
