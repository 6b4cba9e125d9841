"""Models of random configurations, with each optimiser, are saved, loaded, trained and sampled."""
import contextlib
import dataclasses

import numpy as np
import pytest

import minigrad as mg
from model import (CharTokenizer, Transformer, TransformerConfig, generate, load_checkpoint,
                   save_checkpoint)
from model.checkpoint import restore_optimizer
from model.run import packed_and_other_matrices

# The largest value of a field; 5 if it is not here.
SMALL = {"vocab_size": 40, "block_size": 12, "n_layer": 2, "n_head": 4, "n_embd": 24, "ngrams": 4,
         "ngram_rows": 50, "n_inner": 9, "n_kv_head": 4}


def drawn(field, rng):
    """A random value of a field; its default if it is a number with a fraction."""
    if field.metadata["choices"]:
        return str(rng.choice(field.metadata["choices"]))
    if field.type is bool:
        return bool(rng.integers(2))
    if field.type is int and (field.default is not None or rng.random() < 0.5):
        return int(rng.integers(1, SMALL.get(field.name, 5) + 1))
    return field.default


def config_of(rng):
    """A random configuration that is valid."""
    while True:
        with contextlib.suppress(ValueError):
            return TransformerConfig(**{field.name: drawn(field, rng)
                                        for field in dataclasses.fields(TransformerConfig)})


def optimizer_of(model, kind):
    """An optimiser of this kind, with SGD for what Muon does not take."""
    if kind == "AdamW":
        return mg.AdamW(model.parameters())
    groups = packed_and_other_matrices(model) if kind == "Muon" else []
    taken = {id(p) for group in groups for p in group["params"]}
    others = [p for p in model.parameters() if id(p) not in taken]
    sgd = mg.SGD(others, momentum=0.5)
    return mg.Optimizers([mg.Muon(groups), sgd]) if groups else sgd


@pytest.mark.parametrize("kind", ["AdamW", "SGD", "Muon"])
@pytest.mark.parametrize("seed", range(4))
def test_a_model_of_a_random_configuration_is_saved_loaded_trained_and_sampled(
        tmp_path, seed, kind):
    rng, path = np.random.default_rng([seed, len(kind)]), tmp_path / "ckpt.npz"
    model = Transformer(config_of(rng), seed, rng.choice([np.float32, np.float64]))
    config, optimizer = model.config, optimizer_of(model, kind)
    tokenizer = CharTokenizer("".join(map(chr, range(100, 100 + config.vocab_size))))
    ids = rng.integers(config.vocab_size, size=(2, min(config.block_size, 10)))

    def step(model, optimizer):
        mg.cross_entropy(model(ids), ids).backward()
        optimizer.step()
        optimizer.zero_grad()
    step(model, optimizer)
    save_checkpoint(path, model, tokenizer, None, optimizer)
    found, _, _, state = load_checkpoint(path)
    assert found.config == config
    resumed = optimizer_of(found, kind)
    restore_optimizer(resumed, found, state, optimizer.steps)
    step(model, optimizer)
    step(found, resumed)
    for name, a in model.state_dict().items():
        assert a.tobytes() == found.state_dict()[name].tobytes(), name
    assert generate(model, tokenizer, "d", 20, seed=1) == generate(found, tokenizer, "d", 20,
                                                                   seed=1)
