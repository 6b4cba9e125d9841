"""A trained model at work on a text, as one HTML file that needs no other file.

`gather` computes all that the page shows, rounded to the digits that it shows; `html` writes it
into static/page.html, which `model.look.shell` makes a whole file.

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

from minigrad import OPS
from model.command import number_of
from model.look import heads
from model.look.reading import Step, Window, lens, log_probabilities, read
from model.look.shell import shell, static
from model.generation import USELESS, window_start, window_step
from model.scoring import text_losses, training_text, yardstick
from model.checkpoint import Checkpoint, texts_of
from model.run import read_log
from model.transformer import Transformer, TransformerConfig

MOST_CHARACTERS = 1000      # or tokens
MOST_WEIGHTS = 10_000_000   # about as many bytes
LONGEST = 16                # characters shown of a token
SPECIAL = {" ": ("␣", "space"), "\n": ("⏎", "line break"), "\t": ("⇥", "tab")}
SCRIPTS = ("basics.js", "text.js", "attention.js", "steps.js", "run.js", "page.js")
NAV = {"text": "Text", "attention": "Attention", "steps": "Steps", "run": "Run"}
LIKELIEST = 8               # predictions shown of each character
LENS = 3                    # and of each block
LONG = 40                   # characters that do not occur in a text by chance
CHANNELS = 4                # numbers shown of the residual stream
THROUGH = {"gelu": "through GELU", "gelu_tanh": "through GELU (by tanh)",
           "relu2": "through ReLU and a square",
           "swiglu": "twice, the one through SiLU as a gate that multiplies the other"}


def words_of(config: TransformerConfig) -> dict[str, str]:
    """Return what a step of this model does, by its op, or by the op and the layer whose parameters
    it uses; other steps are described by the op's own docstring."""
    grouped = config.kv_heads < config.n_head
    shift = " and shifted by another" if config.bias else ""
    hidden = ("four times the channels" if config.inner == 4 * config.n_embd else
              number_of(config.inner, "channel"))
    bias = " − slope of the head · distance" if config.position == "alibi" else ""
    of_two = "  (Of two sums, the first one adds the rows of the n-grams.)" * (config.ngrams > 1)
    return {
        "embedding token_embedding":
            "Each character becomes its row of the token table: C learnt numbers.",
        "embedding_bag ngram_embedding":
            f"The 2 to {config.ngrams} characters that it ends have rows of learnt numbers as "
            "well, which a hash finds; here they are added up.",
        "embedding position_embedding":
            "Each place in the window has C learnt numbers too, so that order counts.",
        "add": ("Sines and cosines of the place are added, which nothing learns, so that order "
                f"counts.{of_two}" if config.position == "sinusoidal" else
                "The sum of these, number by number."),
        "layer_norm": "The C numbers of each character are brought to mean 0 and variance 1; each "
                      f"channel is then scaled by a learnt factor{shift}.",
        "rms_norm": "The C numbers of each character are divided by their root mean square; "
                    + ("nothing is learnt." if config.norm == "rms" else
                       "each channel is then scaled by a learnt factor."),
        "linear qkv":
            "One product makes what a character looks for (its queries), what it offers (keys) and "
            "what it hands over (values), D numbers each, side by side: "
            + ("queries for H heads, keys and values for G, each of which serves H / G of them."
               if grouped else "for all heads."),
        "rotary": "Queries and keys are turned by angles that grow with their place, so that their "
                  "products tell how far apart they are.",
        "qk_norm": "Each head's query and key are divided by their root mean square, so that only "
                   "their directions count" + (
                       "; then they are turned by angles that grow with their place, so that their "
                       "products tell how far apart they are." if config.position == "rotary" else
                       "."),
        "self_attention":
            f"The heads at work.  softmax(query · key / √D{bias}) over the characters so far gives "
            "the weights shown above, T × T of them in each of H heads; what a head brings back is "
            "the mean of the values, weighted by them.",
        "linear out": "What the heads brought back is mixed, and added to the stream.",
        "mlp": f"Each character by itself: up to {hidden}, {THROUGH[config.activation]}, and down "
               "again; added to the stream.",
        "linear token_embedding":
            "Compared with every row of the token table: a score (logit) for each of V characters."
            "  Softmax makes them the probabilities above.",
        "linear lm_head":
            "Compared with a row of C learnt numbers for every character, which is not that of the "
            "token table: a score (logit) for each of V characters.  Softmax makes them the "
            "probabilities above.",
    }


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
    expected = predictions(model, ids, windows)
    symbols = {i: shown(tokenizer.vocabulary[i]) for i in used(ids, described, expected)}
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
        "heads": [[head_facts(head, symbols, unit) for head in layer] for layer in described],
        "rules": [{"does": in_units(does.format("its favourite character"), unit),
                   "when": in_units(when, unit)} for _, does, _, when in heads.RULES],
        "sizes": sizes(model.config, len(windows[0].ids), unit),
        "steps": step_facts(windows[0].steps, model.config, unit),
        **yardsticks(checkpoint, text, ids),
        **log_facts(out_dir),
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
                    if field.name not in said
                    and (value := getattr(config, field.name)) != field.default]


def in_units(words: str, unit: str) -> str:
    """Return words about characters as those about the ids of a model."""
    return words.replace("character", unit)


def used(ids: np.ndarray, described: list[list[heads.Head]], expected: list[dict[str, Any]]
         ) -> list[int]:
    """Return the ids of which a page shows something; of many tokens, they are few."""
    tops = [*(fact["top"] for fact in expected),
            *(block["top"] for fact in expected for block in fact["blocks"])]
    return sorted({*ids.tolist(), *(head.favourite_id for layer in described for head in layer),
                   *(i for top in tops for i, _ in top)})


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


def predictions(model: Transformer, ids: np.ndarray, windows: list[Window]
                ) -> list[dict[str, Any]]:
    """Return the model's predictions for each id but the first, and after the last."""
    facts = []
    for number, window in enumerate(windows):
        came = ids[window.start + 1:][:len(window.ids)]     # of the last there may be none
        log_p = log_probabilities(window.logits)                                    # (T, V)
        rows = range(window.fresh, len(window.ids))
        # One depth after the other, since each has T V numbers.
        depths = [block_facts(x, log_probabilities(lens(model, x)), came, rows)
                  for x in window.stream]                                           # (T, C) each
        for row, blocks in zip(rows, zip(*depths)):
            p = np.exp(log_p[row].astype(np.float64))
            fact = {"window": number, "top": top(p, LIKELIEST), "blocks": list(blocks)}
            if row < len(came):
                loss, of_it = -float(log_p[row, came[row]]), p[came[row]]
                fact |= {"came": units(of_it), "loss": round(loss, 3),
                         "bits": round(loss / math.log(2), 3), "rank": int((p > of_it).sum()) + 1}
            facts.append(fact)
    return facts


def block_facts(x: np.ndarray, log_q: np.ndarray, came: np.ndarray, rows: range
                ) -> list[dict[str, Any]]:
    """Return what stands in the residual stream, (T, C), at each of these rows, and what would be
    predicted from it, (T, V)."""
    facts = []
    for row in rows:
        q = np.exp(log_q[row].astype(np.float64))
        facts.append({"norm": round(float(np.linalg.norm(x[row].astype(np.float64))), 2),
                      "channels": [round(float(c), 3) + 0.0 for c in x[row, :CHANNELS]],
                      "top": top(q, LENS),
                      "came": units(q[came[row]]) if row < len(came) else None})
    return facts


def top(p: np.ndarray, count: int) -> list[tuple[int, int]]:
    """Return the likeliest ids and their probabilities, the likeliest first."""
    count = min(count, len(p))
    likely = np.flatnonzero(p >= np.partition(p, -count)[-count])   # sorting all would take long
    return [(int(i), units(p[i])) for i in likely[np.argsort(-p[likely], kind="stable")[:count]]]


def units(share: float) -> int | None:
    """Return a share of 1 in units of 0.01 %, as the page shows it; None for nan."""
    return None if math.isnan(share) else round(1e4 * float(share))


def head_facts(head: heads.Head, symbols: dict[int, tuple[str, str]], unit: str = "character"
               ) -> dict[str, Any]:
    """Return a head's numbers as the page shows them, and its description."""
    def rounded(numbers):
        return {name: (None if math.isnan(x) else round(x, 2)) if name in ("entropy", "distance")
                else units(x) for name, x in numbers.items()}
    favourite = f"‘{symbols[head.favourite_id][0]}’"
    label, does = (in_units(words, unit).format(favourite) for words in heads.kind(head))
    return {"numbers": rounded(head.numbers), "even": rounded(head.even),
            "favourite": head.favourite_id, "label": label, "does": does}


def sizes(config: TransformerConfig, T: int, unit: str = "character") -> list[tuple[str, int, str]]:
    """Return the letters of shapes, their values in this model, and what they mean."""
    return [("B", 1, "texts read at once (batch)"),
            ("T", T, f"{unit}s of the window (time)"),
            ("C", config.n_embd, f"numbers that stand for a {unit} inside (channels)"),
            ("H", config.n_head, "heads in each layer"),
            *([("G", config.kv_heads, "heads of keys and values in each layer")]
              if config.kv_heads < config.n_head else []),
            ("D", config.d_head, "channels of a head, C / H"),
            ("V", config.vocab_size, f"different {unit}s (vocabulary)")]


def step_facts(steps: list[Step], config: TransformerConfig, unit: str = "character"
               ) -> list[dict[str, Any]]:
    """Return every step from ids to logits, in the order in which they ran."""
    T, known = steps[0].shape[-2], words_of(config)
    facts, seen = [{"op": "encode", "block": None, "shape": (1, T), "letters": ["B", "T"],
                    "words": f"Each {unit} becomes its number in the vocabulary, its id.",
                    "parameters": [], "count": 0}], set()
    for i, step in enumerate(steps):
        layer = step.parameters[0][0].split(".")[-2:][0] if step.parameters else ""
        words = (known.get(f"{step.op} {layer}") or known.get(step.op)
                 or (OPS[step.op].__doc__ or step.op).split("\n\n")[0])
        new = [(name, shape) for name, shape in step.parameters if name not in seen]
        seen.update(name for name, _ in new)
        facts.append({
            "op": step.op, "block": step.block, "words": in_units(words, unit),
            "shape": step.shape,
            "letters": letters(step.shape, config, i == len(steps) - 1),
            "parameters": [{"name": name, "shape": shape} for name, shape in step.parameters],
            "count": sum(math.prod(shape) for _, shape in new)})
    return facts


def letters(shape: tuple[int, ...], config: TransformerConfig, logits: bool) -> list[str]:
    """Return the letters of an activation's axes, from the last back: channels, time, batch."""
    C, H, G = config.n_embd, config.n_head, config.kv_heads
    packed = "3 C" if G == H else "(H + 2 G) D"
    known = {C: "C", C + 2 * G * config.d_head: packed}
    last = "V" if logits else known.get(shape[-1], str(shape[-1]))
    before = {2: ["T"], 3: ["B", "T"]}.get(len(shape), [str(n) for n in shape[:-1]])
    return [*before, last]


def yardsticks(checkpoint: Checkpoint, text: str, ids: np.ndarray) -> dict[str, Any]:
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


def log_facts(out_dir: pathlib.Path) -> dict[str, Any]:
    """Return the lines of the run's log, or the reason why there are none."""
    try:
        return {"log": read_log(out_dir / "log.csv")}
    except ValueError as error:
        return {"log": None, "no_log": str(error)}


def pack(windows: list[Window]) -> bytes:
    """Pack the lower triangles of all maps, row by row, in the order window, layer, head, query,
    key: in units of 0.01 %, first the low bytes of all, then the high bytes, deflated."""
    shares = np.concatenate([w.maps[..., *np.tril_indices(len(w.ids))].ravel() for w in windows])
    whole = np.rint(1e4 * shares.astype(np.float64)).astype("<u2")
    return zlib.compress(whole.view(np.uint8).reshape(-1, 2).T.tobytes(), 9)


def html(facts: dict[str, Any], weights: bytes) -> str:
    """Return the page."""
    body = in_units(static("page.html"), facts["unit"]).replace(
        "{{weights}}", base64.b64encode(weights).decode("ascii"))
    return shell("A look inside a trained model", NAV, body, facts, SCRIPTS)
