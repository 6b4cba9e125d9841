"""Short runs whose draws and results are published, in published.json, to compare machines with.

The first run is in float64, with dropout, on the beginning of the built-in text.  What it draws is
the same everywhere.  What it computes is rounded for its digest, because exponentials come from the
C library, and sums from NumPy where Numba does not compile.  The runs in float32, of train.py's
recipes, have digests of all bits: there, compiled kernels take nothing from the C library, and add
in a fixed order.  In the file:

    weights     sha256 of the initial weights, as float32: of the normal distribution, one number in
                4,000 comes from the C library's log1p, which may differ in float64's last digit
    batches     sha256 of what is read in every step
    masks       sha256 of what dropout keeps of activations and of attention weights
    sample      a text drawn where all characters are equally likely
    losses      of every step, nats a character
    run         sha256 of the losses and of the weights after the last step, rounded
    float32     for each recipe the loss of every step, `marks`, and sha256 of all bits of the
                losses and weights, from compiled kernels on a processor that rounds a product and
                a sum once

The marks of a step are four digits for what each op returns and then for what each op sends back,
and four for the weights after the step.
"""
import hashlib
import pathlib
import zlib

import numpy as np

import data
import minigrad as mg
import train
from minigrad.plug import Event, watch_ops
from minigrad.random import generator
from minigrad.watch.events import gradients
from model import CharTokenizer, Transformer, TransformerConfig, generate
from model.run import Run, State, adamw_groups, make_optimizer
from model.settings import RECIPES, Settings

FILE = pathlib.Path(__file__).with_name("published.json")
SEED = 1337
STEPS = 30
BATCH = 4
SIZE = dict(block_size=32, n_layer=2, n_head=2, n_embd=32, dropout=0.1)
SMALL = dict(n_layer=2, n_head=2, n_embd=64, block_size=64, batch_size=12, dropout=0.1,
             max_iters=20, warmup_iters=5, seed=SEED)


def short_run() -> dict:
    """Compute what is published of the run in float64."""
    text = data.read_text("lantern")[:20_000]
    tokenizer = CharTokenizer(text)
    ids = tokenizer.encode(text)
    model = Transformer(TransformerConfig(tokenizer.vocab_size, **SIZE), SEED, np.float64)
    optimizer = mg.AdamW(adamw_groups(model), lr=3e-3, betas=(0.9, 0.99), weight_decay=0.1)
    state = State(SEED)
    initial = digest("<f4", *model.state_dict().values())
    read = []
    losses = []
    for _ in range(STEPS):
        x, y = data.random_batch(ids, BATCH, model.config.block_size, state.batches)
        loss = mg.cross_entropy(model(x, rng=state.dropout), y)
        loss.backward()
        mg.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        read.append(x)
        losses.append(loss.item())
    rounded = [np.rint(np.array(losses) * 1e7)]
    rounded += [np.rint(p.data * 1e4) for p in model.parameters()]
    return {"weights": initial, "batches": digest("<i8", *read), "masks": digest("u1", *masks()),
            "sample": sample(), "losses": losses, "run": digest("<i8", *rounded)}


def float32_run(recipe: str) -> tuple[dict, list[list[str]]]:
    """Train a small model by a recipe.  Return what is published of it, and for each step what its
    marks stand for."""
    text = data.Text(data.read_text("lantern")[:20_000])
    s = Settings(**RECIPES[recipe] | SMALL)
    text.train = text.tokenizer.encode(text.characters)     # all of it
    model = Transformer(s.model_config(text.tokenizer.vocab_size), s.seed)
    model.look_ahead(s.ahead, s.seed)
    losses = []
    marks = []
    names = []
    seen = []

    def note(event: Event) -> None:
        if event.direction == "forward":
            seen.append((event.op, [out.data for out in event.outputs]))
        elif event.direction == "backward":
            seen.append((f"the gradient of {event.op}", [part for _, part in gradients(event)]))
    with watch_ops(note):
        for step in train.steps(Run(s, text, model, make_optimizer(model, s))):
            seen.append(("the update of the weights", model.state_dict().values()))
            names.append([name for name, _ in seen])
            losses.append(step.loss)
            marks.append(" ".join(mark(arrays) for _, arrays in seen))
            seen.clear()
    bits = digest("<f4", np.array(losses), *model.state_dict().values())
    return dict(losses=losses, marks=marks, bits=bits), names


def masks(dtype: type = np.float64) -> list[np.ndarray]:
    """Return what dropout keeps of arrays that are large enough for several threads."""
    rng = generator(SEED, "dropout")
    masks = [mg.dropout(np.ones((50, 1000), dtype), p, rng).data > 0 for p in (0.1, 0.5, 0.9)]
    even = np.zeros((4, 4, 60, 8), dtype)       # (B, H, T, D): all scores 0, all weights the same
    one_hot = np.broadcast_to(np.eye(60, dtype=dtype), (4, 4, 60, 60))      # shows the weights
    weights = mg.scaled_dot_product_attention(even, even, one_hot, dropout_p=0.1, rng=rng)
    return [*masks, weights.data > 0]


def sample() -> str:
    """Return characters drawn from 64 that all have the same probability."""
    tokenizer = CharTokenizer("".join(map(chr, range(ord("0"), ord("0") + 64))))
    model = Transformer(TransformerConfig(64, **SIZE))
    for p in model.parameters():
        p.data[...] = 0
    return generate(model, tokenizer, "0", 80, seed=SEED)


def digest(dtype: str, *arrays: np.ndarray) -> str:
    """Return the sha256 of the numbers of arrays, as a type with a fixed order of bytes."""
    return hashlib.sha256(b"".join(a.astype(dtype).tobytes() for a in arrays)).hexdigest()


def mark(arrays: list[np.ndarray]) -> str:
    """Return four digits that other numbers rarely have."""
    crc = 0
    for array in arrays:
        crc = zlib.crc32(array.astype("<f4").tobytes(), crc)
    return f"{crc & 0xffff:04x}"
