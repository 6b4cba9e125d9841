"""docs/one.py, the whole system in one file: its losses and gradients are the engine's."""
import importlib.util
import operator
import re

import numpy as np
import pytest

import minigrad as mg
from model import Transformer, TransformerConfig
from model.transformer import loss_of
from tests.kit import ROOT

SOURCE = (ROOT / "docs" / "one.py").read_text(encoding="utf-8")
SIZES = {"B": 3, "T": 5, "C": 12, "H": 3, "D": 4, "LAYERS": 2, "V": 7, "FLOAT": np.float64}
CONFIG = TransformerConfig(vocab_size=7, block_size=5, n_layer=2, n_head=3, n_embd=12, norm="rms",
                           activation="relu2")
IDS = np.random.default_rng(0).integers(7, size=40)
STARTS = np.array([0, 11, 34])
PLACES = STARTS[:, None] + np.arange(SIZES["T"])
BATCH = IDS[PLACES], IDS[PLACES + 1]
RATES = [0.003, 0.01, 0.002] * 4
# Ten slips in derivatives, and two in what adds them up.
SLIPS = [
    ("(other, lambda g: g)", "(other, lambda g: -g)"),
    ("(self, lambda g: g * b)", "(self, lambda g: g * a)"),
    ("(self, lambda g: g @ turn(b))", "(self, lambda g: g @ turn(b) / 2)"),
    ("(other, lambda g: turn(a) @ g)", "(other, lambda g: turn(a) @ g / len(a))"),
    ("np.add.at(dx, ids, g)", "dx[ids] = g"),
    ("g - y * total(g * y) / C", "g - total(g) / C"),
    ("y * (g - total(g * y))", "y * (g - total(g))"),
    ("y * (g - total(g * y))", "y * (1 - y) * g"),
    ("g * (expected - came) / targets.size", "g * (expected - came) / len(targets)"),
    ("lambda g: g * 2 * positive", "lambda g: g * positive"),
    ("source.grad = source.grad + dx", "source.grad = dx"),
    ("dx = dx.sum(axis=0)", "dx = dx[0]"),
]


def companion():
    spec = importlib.util.spec_from_file_location("companion", ROOT / "docs/companion.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def one(source=SOURCE, **sizes):
    """Return the file as a module, with other sizes."""
    return companion().load(source, **SIZES | sizes)


def weights_for(transformer, of=operator.attrgetter("data")):
    """What the weights of one.py are in the engine, or what another function gives of them, in the
    order and shapes of one.py."""
    found = [of(transformer.token_embedding.weight), of(transformer.position_embedding.weight)]
    for block in transformer.blocks:
        rows = [*np.split(of(block.attention.qkv.weight), 3), of(block.attention.out.weight),
                of(block.mlp.up.weight), of(block.mlp.down.weight)]
        found += [matrix.T for matrix in rows]
    return found


def both(module):
    """A model of one.py and one of the engine, with the same weights, far from uniform."""
    transformer = Transformer(CONFIG, dtype=np.float64)
    rng = np.random.default_rng(1)
    for p in transformer.parameters():
        p.data[...] = rng.normal(0, 0.4, p.shape)
    model = module.new_model(rng)
    for weight, data in zip(model["weights"], weights_for(transformer), strict=True):
        assert weight.data.shape == data.shape
        weight.data = data.copy()
    return model, transformer


def differences(module):
    """The loss's difference from the engine's, and the largest of all gradients'."""
    model, transformer = both(module)
    loss = module.loss_on(model, IDS, STARTS)
    loss.backward()
    engines = loss_of(transformer, *BATCH)
    engines.backward()
    gradients = weights_for(transformer, operator.attrgetter("grad"))
    return (abs(loss.data - engines.data),
            max(np.abs(weight.grad - g).max()
                for weight, g in zip(model["weights"], gradients, strict=True)))


def test_backward_of_one_gives_the_gradients_of_the_engine():
    loss, gradients = differences(one())
    assert loss < 1e-12
    assert gradients < 1e-12


@pytest.mark.parametrize("right, wrong", SLIPS)
def test_backward_of_one_with_a_slip_differs_from_the_engine(right, wrong):
    assert SOURCE.count(right) == 1
    loss, gradients = differences(one(SOURCE.replace(right, wrong)))
    assert loss < 1e-12
    assert gradients > 1e-4


def test_multiply_of_one_sends_each_factor_the_other():
    module = one()
    a = module.Tensor([2.0, 3.0])
    b = module.Tensor([5.0, 7.0])
    (a * b).backward()
    assert a.grad.tolist() == [5.0, 7.0]
    assert b.grad.tolist() == [2.0, 3.0]


def test_backward_of_one_agrees_with_central_differences():
    module = one()
    model, _ = both(module)
    rng = np.random.default_rng(2)
    directions = [rng.standard_normal(w.data.shape) for w in model["weights"]]
    module.loss_on(model, IDS, STARTS).backward()
    slope = sum(np.vdot(w.grad, d) for w, d in zip(model["weights"], directions))

    def loss_after(step):
        for w, d in zip(model["weights"], directions):
            w.data += step * d
        return module.loss_on(model, IDS, STARTS).data
    above = loss_after(1e-6)
    below = loss_after(-2e-6)       # from above
    assert (above - below) / 2e-6 == pytest.approx(slope, rel=1e-6)


def test_adamw_of_one_takes_the_steps_of_the_engine():
    module = one()
    model, transformer = both(module)
    optimizer = mg.AdamW(transformer.parameters(), lr=0.0, betas=(module.BETA1, module.BETA2),
                         eps=1e-8, weight_decay=module.DECAY)
    losses = []
    for step, rate in enumerate(RATES, 1):
        loss = module.loss_on(model, IDS, STARTS)
        loss.backward()
        module.adamw(model["weights"], step, rate)
        engines = loss_of(transformer, *BATCH)
        engines.backward()
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
        losses.append((loss.data, engines.data))
    ours, theirs = np.array(losses).T
    assert ours == pytest.approx(theirs, rel=0, abs=1e-10)
    assert ours[-1] < ours[0] - 0.1


def test_write_of_one_appends_letters_of_the_alphabet():
    module = one(V=62)
    model = module.new_model(np.random.default_rng(0))
    text = module.write(model, "KING", 9, np.random.default_rng(0))
    assert text.startswith("KING") and len(text) == 13
    assert set(text) <= set(module.ALPHABET)


def test_one_imports_nothing_but_numpy_and_the_standard_library():
    assert re.findall(r"^\s*(?:import|from) (\w+)", SOURCE, re.M) == ["pathlib", "numpy"]
    assert "argv" not in SOURCE


def test_the_companion_of_one_is_made_of_the_file_as_it_stands():
    assert companion().page() == (ROOT / "docs/one.html").read_text(encoding="utf-8")


def test_the_companion_of_one_points_to_what_there_is():
    for part in companion().PARTS:
        for file, name in part.house:
            defined = re.search(rf"^ *(def|class) {name}\b", (ROOT / file).read_text("utf-8"), re.M)
            assert defined, f"{name} in {file}"
