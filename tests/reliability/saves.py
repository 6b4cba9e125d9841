"""Save, load, resume and sample models and runs with random settings."""
import argparse
import contextlib
import dataclasses
import io
import math
import pathlib

import numpy as np

import minigrad as mg
import train
from model import (CharTokenizer, Transformer, TransformerConfig, generate, load_checkpoint, sample,
                   save_checkpoint)
from model.checkpoint import restore_optimizer
from model.run import packed_and_other_matrices
from model.settings import Settings
from tests import flags

FLAGS = {"count": (flags.whole, 300, "models, and a fourth as many runs"),
         "inputs": (flags.count, 0, "seed of the settings")}
TEXT = "the quick brown fox\njumps over the lazy dog. " * 60
# The largest value of a field, where its bounds allow larger ones.
SMALL = {"vocab_size": 40, "block_size": 12, "n_layer": 2, "n_head": 4, "n_embd": 24, "ngrams": 4,
         "ngram_rows": 50, "n_inner": 9, "n_kv_head": 4, "batch_size": 3, "eval_interval": 2,
         "gradient_accumulation_steps": 2, "max_iters": 2, "eval_iters": 2, "threads": 1}
ENDLESS = 10 ** 12      # the block of a model whose positions are not learned
# Settings that a case sets itself, or with which there is no run to resume.
SET = {"data", "out_dir", "init_from", "max_iters", "minutes", "replay", "explain", "profile"}


def run(options: argparse.Namespace, folder: pathlib.Path) -> bool:
    """Return whether each model and run came back as it was saved."""
    wrong = []
    for check, count in ((check_model, options.count), (check_run, options.count // 4)):
        for seed in range(options.inputs, options.inputs + count):
            try:
                check(seed, folder / f"{check.__name__}.{seed}")
            except BaseException as error:
                wrong.append(f"{check.__name__}({seed}): {error!r}\n")
        print(f"{check.__name__:12}{count:,} cases")
    print("".join(wrong) + f"{len(wrong)} did not come back")
    return not wrong


def drawn(field: dataclasses.Field, rng: np.random.Generator) -> object:
    """Return a random value of a field, also as a NumPy scalar."""
    bounds = field.metadata["bounds"]
    if field.default is None and rng.random() < 0.5:
        return None
    if field.metadata["choices"]:
        return str(rng.choice(field.metadata["choices"]))
    if field.type is bool:
        return bool(rng.integers(2))
    low = bounds.get("at_least", bounds.get("above", 0))
    if field.type is int:
        n = int(rng.integers(low, SMALL.get(field.name, 5) + 1))
        return np.int64(n) if rng.random() < 0.2 else n
    if "below" in bounds or "at_most" in bounds:
        return float(rng.choice([0.0, 0.1, 0.5]) if "at_least" in bounds else rng.uniform(0.1, 1))
    if field.name == "rotary_base":
        return [10_000.0, 500, 7.5][rng.integers(3)]
    return [1e-5, 1, 0.01, np.float32(0.25)][rng.integers(4)]


def config_of(rng: np.random.Generator) -> TransformerConfig:
    """Return a random configuration that is valid."""
    while True:
        given = {field.name: drawn(field, rng) for field in dataclasses.fields(TransformerConfig)}
        if given["position"] != "learned" and rng.random() < 0.3:
            given["block_size"] = ENDLESS
        with contextlib.suppress(ValueError):
            return TransformerConfig(**given)


def optimizer_of(model: Transformer, kind: str) -> mg.optim.Optimizer:
    """Return an optimiser of this kind, with SGD for what Muon does not take."""
    if kind == "Muon":
        groups = packed_and_other_matrices(model)
        taken = {id(p) for group in groups for p in group["params"]}
        others = [p for p in model.parameters() if id(p) not in taken]
        return mg.Optimizers([mg.Muon(groups), mg.SGD(others, momentum=0.5)])
    settings = {"momentum": 0.9} if kind == "SGD" else {}
    return getattr(mg, kind)(model.parameters(), **settings)


def step(model: Transformer, optimizer: mg.optim.Optimizer, ids: np.ndarray) -> None:
    """Take a training step."""
    mg.cross_entropy(model(ids), ids).backward()
    optimizer.step()
    optimizer.zero_grad()


def check_model(seed: int, folder: pathlib.Path) -> None:
    """Check that a random model and its optimiser, loaded, train and sample like the saved ones."""
    rng, path = np.random.default_rng(seed), folder / "ckpt.npz"
    config, dtype = config_of(rng), rng.choice([np.float32, np.float64])
    kind = str(rng.choice(["AdamW", "SGD", "Muon"]))
    model = Transformer(config, int(rng.integers(9)), dtype)
    optimizer = optimizer_of(model, kind)
    characters = "".join(map(chr, rng.choice(0xd000, config.vocab_size, replace=False)))
    tokenizer = CharTokenizer.of(characters)
    ids = rng.integers(config.vocab_size, size=(2, min(config.block_size, 10)))
    step(model, optimizer, ids)
    training = {"settings": {"learning_rate": drawn(fields(Settings)["learning_rate"], rng)}}
    save_checkpoint(path, model, tokenizer, training, optimizer)

    found, known, record, state = load_checkpoint(path)
    assert found.config == config and known.vocabulary == characters and record == training
    resumed = optimizer_of(found, kind)
    restore_optimizer(resumed, found, state, optimizer.parts[0].steps)
    for one, its in ((model, optimizer), (found, resumed)):
        step(one, its, ids)
    texts = [generate(one, tokenizer, characters[:1], 20, seed=1) for one in (model, found)]
    assert texts[0] == texts[1] and len(texts[0]) == 21
    for name, a in model.state_dict().items():
        assert a.dtype == dtype and a.tobytes() == found.state_dict()[name].tobytes(), name


def check_run(seed: int, folder: pathlib.Path) -> None:
    """Check that a run with random settings ends, is resumed, and is sampled from."""
    rng = np.random.default_rng(seed)
    folder.mkdir()
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    while True:
        given = {name: drawn(field, rng) for name, field in fields(Settings).items()
                 if name not in SET}
        settings = Settings(**given, max_iters=int(rng.integers(3)))
        if not settings.problems():
            break
    words = [word for name, value in given.items() if value is not None
             for word in ([f"--{'' if value else 'no-'}{name}"] if isinstance(value, bool) else
                          [f"--{name}", str(value)])]
    aside = io.TextIOWrapper(io.BytesIO())
    out_dir = ["--out_dir", str(folder / "out")]
    with contextlib.redirect_stdout(aside), contextlib.redirect_stderr(aside):
        train.main(["--data", str(folder / "text.txt"), *words, *out_dir,
                    "--max_iters", str(settings.max_iters)])
        train.main(["--init_from", "resume", *out_dir, "--max_iters", str(settings.max_iters + 2)])
        sample.main([*out_dir, "--max_new_tokens", "20"])
    last = load_checkpoint(folder / "out" / "last.npz").training
    assert last["state"]["iteration"] == settings.max_iters + 2
    assert math.isfinite(last["state"]["best"])


def fields(settings: type) -> dict[str, dataclasses.Field]:
    """Return the fields of a dataclass by name."""
    return {field.name: field for field in dataclasses.fields(settings)}
