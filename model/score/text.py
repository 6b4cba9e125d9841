"""The loss of a model on a text, beside that of counted n-grams; bits a character, and perplexity.

    python -m model.sample --score FILE

Losses are in nats per id (character or token); perplexity is exp(loss).  Shapes: B windows, T ids,
N ids of a text, V vocabulary.
"""
import math
import sys

import numpy as np
from tqdm import tqdm

import data
from data.tokenizer import CharTokenizer, Tokenizer, UnknownCharacterError
from minigrad.words import first_of, in_a_line
from model.answers import reading
from model.checkpoint import Checkpoint, recorded_texts
from model.generation import USELESS
from model.score import colours
from model.score.windows import log_probabilities, text_windows
from model.scoring import ladder, yardstick
from model.transformer import Transformer


def score(checkpoint: Checkpoint, file: str, slide: bool = False, skip_unknown: bool = False,
          proven: bool = False) -> None:
    """Print how well the model predicts a text, beside n-grams counted on its training text; and,
    if wanted, a proof that the probabilities are probabilities."""
    model, tokenizer, training, _ = checkpoint
    with reading([file]):
        text = data.read_text(file)
    unit = tokenizer.unit
    if skip_unknown:
        text = leave_out_unknown(text, tokenizer)
    try:
        ids = tokenizer.encode(text)
    except UnknownCharacterError as error:
        if unit == "token":     # --skip_unknown does not help
            raise
        raise ValueError(f"{error}; --skip_unknown leaves such characters out") from error
    losses = text_losses(model, ids, slide, bar=True)
    loss = losses.mean()
    if not math.isfinite(loss):
        raise ValueError(USELESS)
    in_tokens = f" in {len(ids):,} tokens" if unit == "token" else ""
    print(f"{file}: {len(text):,} characters{in_tokens}, each but the first predicted from "
          f"earlier ones\n\n    {loss:.4f}  nats a {unit}")
    for bits, what in bits_per_unit(loss, text, ids, tokenizer):
        print(f"    {bits:.4f}  bits a {what}")
    print(f"    {math.exp(loss) if loss < 700 else math.inf:.4f}  perplexity\n")
    show_coloured(ids, losses, tokenizer)
    if proven:
        from model.score.proof import prove
        print(f"the proof:\n{prove(model, tokenizer, ids, loss * (len(ids) - 1), slide)}\n")
    try:
        trained_on = training_text(training, tokenizer)
    except ValueError as error:
        print(f"without counted n-grams beside it, because {in_a_line(error)}", file=sys.stderr)
        return
    print(f"nats a {unit}, beside n-grams counted on what the model was trained on:")
    counted = yardstick(trained_on.train, ids, tokenizer.vocab_size)
    print(ladder(loss, counted, getattr(model, "name", "this model")))
    train, _ = trained_on.parts()
    if text in train or train in text:
        print("this very text, or most of it, was trained on and counted", file=sys.stderr)


def show_coloured(ids: np.ndarray, losses: np.ndarray, tokenizer: Tokenizer) -> None:
    """Print the beginning of a text on a terminal that has colours: the darker a letter, the less
    the model expected it."""
    depth = colours.depth_of(sys.stdout)
    if not depth:
        return
    stream = tokenizer.stream()
    pieces = [stream.add(id) for id in ids[:colours.MOST].tolist()]
    most = math.log(tokenizer.vocab_size)
    shares = [0.0, *np.minimum(losses[:len(pieces) - 1] / most, 1)]     # nothing predicts the first
    print(colours.coloured(pieces, shares, depth))
    scale = "".join(colours.coloured([f" {share * most:.1f} "], [share], depth)
                    for share in np.linspace(0, 1, 5))
    more = len(ids) - len(pieces)
    rest = f"; {more:,} {tokenizer.unit}s more" if more else ""
    print(f"\n{scale} nats or more of each {tokenizer.unit}{rest}\n")


def bits_per_unit(loss: float, text: str, ids: np.ndarray, tokenizer: Tokenizer
                  ) -> list[tuple[float, str]]:
    """Return a mean loss in bits a character and, for tokens, also in bits a byte of UTF-8.  The
    first id is not counted, as nothing predicts it."""
    bits = loss / math.log(2) * (len(ids) - 1)
    first = tokenizer.decode(ids[:1])
    units = [(bits / max(1, len(text) - len(first)), "character")]
    if tokenizer.unit == "token":
        units.insert(0, (bits / max(1, len(text.encode()) - len(first.encode())), "byte"))
    return units


def leave_out_unknown(text: str, tokenizer: Tokenizer) -> str:
    """Return the text without the characters that the model does not know; print which they are."""
    known, unknown = tokenizer.without_unknown(text)
    if unknown:
        named = [f"{c!r} ({count:,})" for c, count in unknown.items()]
        print(f"left out {len(text) - len(known):,} of {len(text):,} characters, which the model "
              f"does not know: {first_of(named)}", file=sys.stderr)
    return known


def text_losses(model: Transformer, ids: np.ndarray, slide: bool = False, bar: bool = False
                ) -> np.ndarray:
    """Return -log p of each id of a text but the first, (N,) -> (N - 1,), given the window that
    sampling would use (see `generation.window_start`)."""
    if len(ids) < 2:
        raise ValueError("a text needs two characters or tokens to have one to predict, and this "
                         f"has {len(ids)}")
    losses = np.empty(len(ids) - 1)
    groups = [*text_windows(model, ids, slide)]
    for at, new in tqdm(groups, "scoring", leave=False, disable=None if bar else True):
        window_losses = np.empty(at.shape)
        for part, logp in log_probabilities(model, ids[at]):
            targets = ids[at[:, part] + 1]
            window_losses[:, part] = -np.take_along_axis(logp, targets[..., None], axis=-1)[..., 0]
        losses[at[:, new:]] = window_losses[:, new:]
    return losses


def training_text(training: dict, tokenizer: CharTokenizer) -> data.Text:
    """Return the text on which a run was trained, with the ids of its model.

    Raises
    ------
    ValueError : the checkpoint does not name the text, or it is gone, or it has changed.
    """
    names = recorded_texts(training)
    if not names or "text" not in training:
        raise ValueError("the checkpoint does not say which text it was trained on")
    texts = data.read_texts(names)
    if data.digest(texts.characters) != training["text"]:
        raise ValueError(f"the text {texts.name} is no longer the one that the model was trained "
                         "on")
    return data.Text(texts.characters, texts.name, tokenizer)
