"""Models of random configurations, with each optimiser, are saved, loaded, trained and sampled."""
import numpy as np
import pytest

import minigrad as mg
from model import CharTokenizer, Transformer, generate, load_checkpoint, run, save_checkpoint
from model.checkpoint import restore_optimizer
from model.settings import Settings
from tests.kit import random_config


def make_optimizer(model, kind):
    """An optimiser of this kind; Muon has AdamW beside it."""
    return (mg.SGD(model.parameters(), momentum=0.5) if kind == "sgd" else
            run.make_optimizer(model, Settings(optimizer=kind)))


@pytest.mark.parametrize("kind", ["adamw", "sgd", "muon"])
@pytest.mark.parametrize("seed", range(4))
def test_a_model_of_a_random_configuration_is_saved_loaded_trained_and_sampled(
        tmp_path, seed, kind):
    rng, path = np.random.default_rng([seed, len(kind)]), tmp_path / "ckpt.npz"
    model = Transformer(random_config(rng), seed, rng.choice([np.float32, np.float64]))
    config, optimizer = model.config, make_optimizer(model, kind)
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
    resumed = make_optimizer(found, kind)
    restore_optimizer(resumed, found, state, steps=1)
    step(model, optimizer)
    step(found, resumed)
    for name, a in model.state_dict().items():
        assert a.tobytes() == found.state_dict()[name].tobytes(), name
    assert generate(model, tokenizer, "d", 20, seed=1) == generate(found, tokenizer, "d", 20,
                                                                   seed=1)
