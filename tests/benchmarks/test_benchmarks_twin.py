"""PyTorch's twin of each recipe computes what the model does, and trains to the same weights."""
import dataclasses

import numpy as np
import pytest

import minigrad as mg
from tests.kit import TINY, take_step, written
from model import Transformer, TransformerConfig
from model.run import make_optimizer
from model.settings import Settings, complete_settings
from tests.benchmarks import board
from tests.benchmarks.remote import pytorch, training_of
from tests.extras import lacking

pytestmark = pytest.mark.needs("interop")
if not lacking("interop"):
    import torch
SMALL = dict(n_layer=2, n_head=2, n_embd=32, block_size=16, ngram_rows=97, batch_size=4,
             dropout=0.0, ngram_dropout=0.0)        # which would not be the same numbers
STEPS = 3
AHEAD = 0.5, 0.3, 0.0       # of the steps


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)        # which do not wait for those of minigrad
    yield
    torch.set_num_threads(before)


def peers(recipe):
    """A small model of a recipe with its optimiser, and their twin; no weight is 0."""
    from tests.benchmarks.twin import PyTorch
    s = Settings(**complete_settings({"recipe": recipe, **SMALL}, 10**6))
    model, rng = Transformer(s.model_config(vocab_size=11)), np.random.default_rng(1)
    model.look_ahead(s.ahead, seed=2)
    for p in model.parameters():
        p.data += 0.1 * rng.standard_normal(p.shape, np.float32)
    twin = PyTorch(dataclasses.asdict(model.config), "eager",
                   {name: w.copy() for name, w in model.state_dict().items()}, **training_of(s))
    return s, model, make_optimizer(model, s), twin


def batches(count):
    return np.random.default_rng(0).integers(11, size=(count, 2, 4, 16))


@pytest.mark.filterwarnings("ignore")       # PyTorch looks at what it warns of
@pytest.mark.parametrize("recipe", ["modern", "gpt2"])
def test_the_twin_can_be_compiled(recipe):
    _, _, _, twin = peers(recipe)
    ids, targets = map(torch.from_numpy, batches(1)[0])
    traced = torch.compile(twin.twin, backend="eager")      # no code is made of what was traced
    assert traced(ids, targets, 0.5).item() == twin.twin(ids, targets, 0.5).item()


@pytest.mark.parametrize("recipe", ["modern", "gpt2"])
def test_the_twin_has_the_logits_of_the_model_and_steps_take_it_to_the_same_weights(recipe):
    s, model, optimizer, twin = peers(recipe)
    ids, targets = batches(1)[0]
    last = twin.twin(torch.from_numpy(ids)).detach().numpy()
    assert np.allclose(last[:, 0], model(ids).data[:, -1], atol=1e-5)
    assert abs(twin.evaluate(ids, targets, 3) - mg.cross_entropy(model(ids), targets).item()) < 1e-5
    before = {name: w.copy() for name, w in model.state_dict().items()}
    highest = [group["lr"] for group in optimizer.param_groups]
    for step, (ids, targets) in enumerate(batches(STEPS), start=1):
        rates = [rate / step for rate in highest]
        ahead = AHEAD[step - 1]
        loss = take_step(model, optimizer, (ids, targets), s.grad_clip, rates, ahead)
        theirs = twin.step(ids, targets, s.learning_rate / step, s.muon_lr / step, ahead)
        assert abs(theirs - loss) < 1e-4
    for name, w in twin.twin.state_dict().items():
        assert np.allclose(w, model.state_dict()[name], atol=1e-4), name
        assert not np.allclose(w, before[name], atol=1e-3), f"{name} has hardly moved"


def test_the_twin_goes_back_to_its_best_weights():
    s, _, _, twin = peers("gpt2")
    x, y = batches(1)[0]
    twin.step(x, y, 0.01, 0.0)
    best = twin.evaluate(x, y, 4)
    twin.keep()
    twin.step(x, y, 1.0, 0.0)
    assert twin.evaluate(x, y, 4) != best
    twin.go_back()
    assert twin.evaluate(x, y, 4) == best


@pytest.mark.parametrize("option, value", [
    ("position", "sinusoidal"),
    ("n_kv_head", 2),
    ("norm", "rms_gain"),
    ("activation", "swiglu"),
    ("norm_eps", 1e-6),
    ("n_inner", 40),
    ("attention_bias", True),
    ("mlp_bias", True),
    ("rotary_base", 500.0),
    ("tied", False)])
def test_pytorch_refuses_what_the_twin_has_not(option, value):
    model = Transformer(TransformerConfig(11, **{option: value}), dtype=None)
    with pytest.raises(RuntimeError, match=f"^the twin on PyTorch does not know .*{option}"):
        pytorch(model, Settings())


def test_the_twin_leaves_out_ngrams_as_a_whole_while_it_trains():
    from tests.benchmarks.twin import NGramEmbedding
    layer, ids = NGramEmbedding(3, 97, 2, 0.25), torch.randint(11, (8, 500))
    layer.weight.data.fill_(3.0)
    found, counts = torch.unique(layer(ids)[..., 0], return_counts=True)
    assert found.tolist() == [0, 4, 8]
    assert np.allclose(counts / ids.numel(), [1 / 16, 6 / 16, 9 / 16], atol=0.04)
    assert (layer.eval()(ids) == 6).all()


@pytest.mark.parametrize("different", [0, 257])
def test_a_run_of_the_twin_ends_as_the_run_of_train_does(small_text, tmp_path, monkeypatch,
                                                         different):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    path = small_text
    if different:       # so long that a run would look ahead, if fewer characters were different
        characters = (chr(0x4e00 + i % different) for i in range(300_000))
        path = written(tmp_path / "long.txt", "".join(characters))
    text = board.read_text(str(path))
    flags = ("--recipe modern --max_iters 12 --eval_interval 5 --threads 1 --dropout 0 "
             "--ngram_dropout 0 --data")
    flags = [*TINY, *flags.split(), str(path)]
    ours, theirs = board.train(flags, text), board.train_twin(flags, text)
    assert ours["steps"] == theirs["steps"] == 12
    assert abs(ours["loss"] - theirs["loss"]) < 1e-4
