"""The trial of the last exercise: is the model causal, and how low is its loss in a minute?"""
import textwrap
import time
from collections.abc import Callable, Iterator

import numpy as np

import minigrad as mg
from data.batches import random_batch
from data.ngrams import ngram_losses
from data.text import Text
from minigrad.optim import linear_decay, warm_up
from model.scoring import CausalityError, prove_causality
from model.walk.exercises import e8_model
from model.walk.practice import map_leaves

SECONDS = 60                # of training, compiling not counted
STEPS = 300                 # of training
EVERY = 25                  # steps between two evaluations of the loss
B, T, C, H, BLOCKS = 32, 64, 64, 4, 2
WINDOWS = 256               # of the validation part, on which the loss is measured
RATE = 0.012                # the highest that AdamW gets
SAMPLE = 240                # characters that the model writes at the end


def run(model: Callable, report: Callable[[str], object]) -> tuple[bool, list[str]]:
    """Train a model, `model(ids, weights, heads) -> logits`, until its loss is below that of the
    counted trigram, for up to SECONDS; `report` gets a line with each loss.  Return whether it got
    there, and paragraphs that say so."""
    text = Text.read("lantern")
    rng = np.random.default_rng(0)
    V = text.tokenizer.vocab_size
    drawn = e8_model.weights(rng, V, T, C, BLOCKS)
    try:
        w, _ = tensors(drawn, mixing=1.0)
        prove_causality(lambda ids: model(ids, w, H), V, T)
    except CausalityError as error:
        return False, [f"{error}."]
    _, bigram, trigram = ngram_losses(text.train, text.val, V, 3)
    above = {"bigram": bigram, "trigram": trigram}
    w, parameters = tensors(drawn, mixing=0.0)
    said = [f"The model is causal: a changed future left every logit before it as it was, bit for "
            f"bit.  Trained on the Lantern plays, {sum(p.size for p in parameters):,} numbers:"]
    for step, seconds, loss in train(model, w, parameters, text, rng):
        report(f"step {step} of {STEPS}: loss {loss:.3f}")
        for name in [name for name, counted in above.items() if loss < counted]:
            said.append(f"After {seconds:.0f} seconds, step {step}: loss {loss:.3f}, below the "
                        f"counted {name} ({above.pop(name):.3f}).")
        if not above:
            return True, [*said, "It writes:\n" + textwrap.indent(written(model, w, text), "    "),
                          "That is a transformer.  python train.py trains a larger one."]
    why = ("The computer is slow, or a loop in the model." if step < STEPS else
           "The values are right; look at what the gradients pass through.")
    return False, [*said, f"After {seconds:.0f} seconds, step {step} of {STEPS}, the loss is "
                   f"{loss:.3f}, not below the counted {' and '.join(above)}.  {why}"]


def train(model: Callable, w: dict, parameters: list[mg.Tensor], text: Text,
          rng: np.random.Generator) -> Iterator[tuple[int, float, float]]:
    """Train for up to SECONDS; every EVERY steps yield the step, the seconds and the validation
    loss."""
    ids, targets = text.windows(T, WINDOWS)
    optimizer = mg.AdamW(parameters, RATE, betas=(0.9, 0.99))
    for step in range(STEPS):
        if step == 1:               # the first one compiles
            started = time.perf_counter()
        optimizer.param_groups[0]["lr"] = RATE * warm_up(step, 20) * linear_decay(step / STEPS, 0.7)
        x, y = random_batch(text.train, B, T, rng)
        mg.cross_entropy(model(x, w, H), y).backward()
        mg.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % EVERY == 0:
            seconds = time.perf_counter() - started
            with mg.no_grad():
                loss = mg.cross_entropy(model(ids, w, H), targets).item()
            yield step + 1, seconds, loss
            if seconds > SECONDS:
                return


def tensors(drawn: dict, mixing: float) -> tuple[dict, list[mg.Tensor]]:
    """Return weights as Tensors of the sizes with which training begins, and a list of them.  The
    matrices at the end of attention and of the MLP are multiplied by `mixing`; with 0, nothing
    passes between words."""
    made = []

    def tensor(a, path):
        if "gain" in path or "bias" in path:
            a = np.full(a.shape, "gain" in path)
        else:
            a = a * len(a) ** -0.5 * (mixing if '"out"' in path or '"down"' in path else 1)
        made.append(mg.Tensor(a.astype(np.float32), requires_grad=True))
        return made[-1]
    return map_leaves(tensor, drawn, "w"), made


def written(model: Callable, w: dict, text: Text) -> str:
    """Return what the model writes, a character at a time, after an empty line."""
    ids = list(text.tokenizer.encode("\n\n"))
    rng = np.random.default_rng(0)
    with mg.no_grad():
        for _ in range(SAMPLE):
            logits = model(np.array(ids[-T:]), w, H).data[-1]
            ids.append((logits / 0.8 + rng.gumbel(size=len(logits))).argmax())
    return text.tokenizer.decode(ids).strip()
