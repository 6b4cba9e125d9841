"""Models and runs with random settings are saved, loaded, resumed and sampled."""
import contextlib
import dataclasses
import math

import numpy as np
import pytest

import minigrad as mg
import train
from model import (CharTokenizer, Transformer, TransformerConfig, generate, load_checkpoint, sample,
                   save_checkpoint)
from model.checkpoint import restore_optimizer
from model.run import packed_and_other_matrices
from model.settings import Settings
from tests.kit import written

TEXT = "the quick brown fox\njumps over the lazy dog. " * 60
# The largest value of a field, where its bounds allow larger ones.
SMALL = {"vocab_size": 40, "block_size": 12, "n_layer": 2, "n_head": 4, "n_embd": 24, "ngrams": 4,
         "ngram_rows": 50, "n_inner": 9, "n_kv_head": 4, "batch_size": 3, "eval_interval": 2,
         "gradient_accumulation_steps": 2, "max_iters": 2, "eval_iters": 2, "threads": 1}
ENDLESS = 10 ** 12      # the block of a model whose positions are not learned
# Settings that a case sets itself, or with which there is no run to resume.
SET = {"data", "out_dir", "init_from", "max_iters", "minutes", "replay", "explain", "profile"}


def drawn(field, rng):
    """A random value of a field, also as a NumPy scalar."""
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


def config_of(rng):
    """A random configuration that is valid."""
    while True:
        given = {field.name: drawn(field, rng) for field in dataclasses.fields(TransformerConfig)}
        if given["position"] != "learned" and rng.random() < 0.3:
            given["block_size"] = ENDLESS
        with contextlib.suppress(ValueError):
            return TransformerConfig(**given)


def optimizer_of(model, kind):
    """An optimiser of this kind, with SGD for what Muon does not take."""
    if kind == "Muon":
        groups = packed_and_other_matrices(model)
        taken = {id(p) for group in groups for p in group["params"]}
        others = [p for p in model.parameters() if id(p) not in taken]
        return mg.Optimizers([mg.Muon(groups), mg.SGD(others, momentum=0.5)])
    settings = {"momentum": 0.9} if kind == "SGD" else {}
    return getattr(mg, kind)(model.parameters(), **settings)


@pytest.mark.parametrize("seed", range(12))
def test_a_model_of_random_settings_is_saved_loaded_resumed_and_sampled(tmp_path, seed):
    rng, path = np.random.default_rng(seed), tmp_path / "ckpt.npz"
    config, dtype = config_of(rng), rng.choice([np.float32, np.float64])
    kind = str(rng.choice(["AdamW", "SGD", "Muon"]))
    model = Transformer(config, int(rng.integers(9)), dtype)
    optimizer = optimizer_of(model, kind)
    characters = "".join(map(chr, rng.choice(0xd000, config.vocab_size, replace=False)))
    tokenizer = CharTokenizer.of(characters)
    ids = rng.integers(config.vocab_size, size=(2, min(config.block_size, 10)))

    def step(model, optimizer):
        mg.cross_entropy(model(ids), ids).backward()
        optimizer.step()
        optimizer.zero_grad()
    step(model, optimizer)
    training = {"settings": {"learning_rate": np.float32(0.25)}}
    save_checkpoint(path, model, tokenizer, training, optimizer)

    found, known, record, state = load_checkpoint(path)
    assert found.config == config and known.vocabulary == characters and record == training
    resumed = optimizer_of(found, kind)
    restore_optimizer(resumed, found, state, optimizer.parts[0].steps)
    for one, its in ((model, optimizer), (found, resumed)):
        step(one, its)
    texts = [generate(one, tokenizer, characters[:1], 20, seed=1) for one in (model, found)]
    assert texts[0] == texts[1] and len(texts[0]) == 21
    for name, a in model.state_dict().items():
        assert a.dtype == dtype and a.tobytes() == found.state_dict()[name].tobytes(), name


@pytest.mark.parametrize("seed", range(3))
def test_a_run_of_random_settings_is_resumed_and_sampled(tmp_path, seed):
    rng = np.random.default_rng(seed)
    text = written(tmp_path / "text.txt", TEXT)
    settings = None
    while settings is None or settings.problems():
        given = {field.name: drawn(field, rng) for field in dataclasses.fields(Settings)
                 if field.name not in SET}
        settings = Settings(**given, max_iters=int(rng.integers(3)))
    words = [f"--{'' if value else 'no-'}{name}" if isinstance(value, bool) else f"--{name}={value}"
             for name, value in given.items() if value is not None]
    out_dir = ["--out_dir", str(tmp_path / "out")]
    train.main(["--data", str(text), *words, *out_dir, "--max_iters", str(settings.max_iters)])
    train.main(["--init_from", "resume", *out_dir, "--max_iters", str(settings.max_iters + 2)])
    sample.main([*out_dir, "--max_new_tokens", "20"])
    last = load_checkpoint(tmp_path / "out" / "last.npz").training
    assert last["state"]["iteration"] == settings.max_iters + 2
    assert math.isfinite(last["state"]["best"])
