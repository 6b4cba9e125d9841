"""A step that is not finite is repeated, the same bit for bit, from memory or from its file."""
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

import minigrad as mg
from minigrad.watch.source import definition
from model import CharTokenizer, CheckpointError, Transformer, TransformerConfig, save_checkpoint
from model.settings import MODERN
from model.replay.nan import advice, find_op, record, repeat, replay, restore_step, sentence
from model.run import Evaluation, State, Step
from tests.kit import refusal

SETTINGS = dict(learning_rate=0.01, warmup_iters=5, grad_clip=0.0, batch_size=2)
# Where NumPy stands in for the kernels, it warns of what these tests make.
pytestmark = [
    pytest.mark.late,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]


def small(dropout=0.0, **options):
    return Transformer(TransformerConfig(9, 8, 2, 2, 8, dropout=dropout, **options), seed=1)


def batches(n=1):
    rng = np.random.default_rng(0)
    return [tuple(rng.integers(9, size=(3, 8)) for _ in range(2)) for _ in range(n)]


def bad_step(loss=math.nan, norm=math.nan, n=1):
    return Step(12, State(seed=0).before_step(), batches(n), loss, norm)


def nan_file(path, model, training, optimizer=None):
    save_checkpoint(path, model, CharTokenizer("abcdefghi"), dict(settings=SETTINGS) | training,
                    optimizer, finite=False)
    return path


@pytest.mark.parametrize("activation, name, op, met", [
    ("gelu", "down.weight", "mlp", ""),
    ("swiglu", "gate.weight", "linear", ".gate"),
    ("swiglu", "gate.bias", "linear", ".gate")])
def test_a_weight_that_is_nan_is_named_with_the_part_of_the_model_that_met_it(
        activation, name, op, met):
    model = small(activation=activation, mlp_bias=True)
    weight = dict(model.named_parameters())[f"blocks.1.mlp.{name}"]
    weight.data[2] = math.nan
    _, finding = repeat(bad_step(), model)
    assert (finding.op, finding.direction, finding.cause) == (op, "forward", "weight")
    assert finding.module == f"blocks.1.mlp{met}"
    assert finding.line.file == ("minigrad/nn.py" if met else "model/layers.py")
    assert f".{op}(" in finding.line.text
    assert (f"the weight blocks.1.mlp.{name} is not finite before the step: "
            in str(finding).replace("\n" + 16 * " ", " "))
    assert "--learning_rate" in advice(finding, SETTINGS)
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("ahead", [0.0, 0.4])
def test_a_step_repeated_from_its_file_is_the_same_bit_for_bit(tmp_path, capsys, ahead):
    model = small(dropout=0.3)
    if ahead:
        model.look_ahead(2, seed=1)
    state = State(seed=4)
    step = batches(2)
    state.dropout.random(5)
    before = state.before_step()
    losses = [model.loss(x, y, state.dropout, ahead) / len(step) for x, y in step]
    for loss in losses:
        loss.backward()
    loss = sum(loss.item() for loss in losses)
    norm = mg.clip_grad_norm_(model.parameters(), math.inf)
    then = Step(12, before, step, loss, norm, ahead=ahead)
    for p in model.parameters():
        p.grad = None
    for _ in range(2):
        now, _ = repeat(then, model)
        assert (now.loss, now.norm) == (loss, norm)
    same = record(then, State(seed=4))
    other = same | {"state": state.saved()}
    for training, said in ((same, "the same bit for bit"), (other, "not the same")):
        path = nan_file(tmp_path / "nan.npz", model, training, mg.AdamW(model.parameters()))
        assert "every value of the step in" in refusal(ValueError, replay, path)
        assert said in capsys.readouterr().out


@pytest.mark.parametrize("kept, change", [
    *(({"nan", "state"}, change) for change in (
        {"batches": 3}, {"batches": [[[[1]]]]}, {"batches": [[[[1, 2], [3]], [[1], [2]]]]},
        {"batches": [[[[9]], [[1]]]]}, {"batches": [[[[2 ** 70]], [[1]]]]},
        {"batches": [[[[0] * 9], [[0] * 9]]]}, {"loss": None})),
    (set(), {}),
    ({"nan"}, {}),
    ({"state"}, {}),
    ({"nan", "state", "settings"}, {})], ids=str)
def test_what_holds_no_step_that_can_be_repeated_is_refused_in_a_line(tmp_path, kept, change):
    path = tmp_path / "nan.npz"
    whole = record(bad_step(norm=1.0, loss=1.0), State(seed=0))
    assert "is no file; give the out_dir/nan.npz" in refusal(ValueError, replay, path)
    whole |= {"nan": whole["nan"] | change, "settings": {}}
    nan_file(path, small(), {name: whole[name] for name in kept})
    assert "holds no step that can be repeated" in refusal(CheckpointError, replay, path)


def test_a_step_survives_json_exactly_and_says_what_is_not_finite():
    step = bad_step(math.inf, n=2)
    state = State(seed=0)
    written = record(step, state)
    other = restore_step(json.loads(json.dumps(written)))
    assert record(other, state)["nan"] | {"norm": 0} == written["nan"] | {"norm": 0}
    assert written["state"] == state.saved()
    assert math.isnan(other.norm)
    assert sentence(step) == "the loss of step 12 is inf"
    assert sentence(bad_step(2.0)).endswith("12 is 2, but the norm of its gradient is nan")


def test_an_evaluation_survives_json_and_is_repeated_as_one(tmp_path, capsys):
    model = small(tied=False)
    model.token_embedding.weight.data[:] = math.nan
    then = Evaluation(12, State(seed=0).before_step(), batches(), math.nan)
    written = record(then, State(seed=0))
    other = restore_step(json.loads(json.dumps(written)))
    assert isinstance(other, Evaluation)
    assert other.number == 12 and math.isnan(other.loss)
    replay(nan_file(tmp_path / "nan.npz", model, written))
    said = capsys.readouterr().out
    assert said.count("the validation loss after step 12 is nan") == 2
    assert "the same bit for bit" in said and "first in   embedding" in said


def test_of_an_evaluation_the_first_bad_batch_is_kept(capsys):
    model = small(tied=False)
    x = np.zeros((5, 8), int)
    y = np.ones((5, 8), int)
    model.token_embedding.weight.data[7] = math.nan
    x[3, 4] = 7
    step = Evaluation(12, State(seed=0).before_step(), [(x, y)], math.nan)
    what, _ = find_op(step, model, SETTINGS)
    (ids, targets), = step.batches
    assert np.array_equal(ids, x[2:4])
    assert np.array_equal(targets, y[2:4])
    assert what == "the validation loss after step 12 is nan"
    assert "first in   embedding" in capsys.readouterr().err


@pytest.mark.parametrize("settings, told", [
    ({}, ["a lower --learning_rate (it was 0.004)"]),
    (dict(muon_lr=1e10), ["a lower --muon_lr (it was 1e+10, and 0.01 is usual)"]),
    (dict(muon_lr=0.1), ["a lower --learning_rate (it was 0.004)"]),
    (dict(muon_lr=1e10, optimizer="adamw"), ["a lower --learning_rate (it was 0.004)"]),
    (dict(weight_decay=1e30, learning_rate=1e3),
     ["a lower --weight_decay (it was 1e+30, and 0.1 is usual)",
      "a lower --learning_rate (it was 1000, and 0.004 is usual)"]),
    (dict(min_lr=1.0), ["a lower --min_lr (it was 1, and 0.004 is usual)"]),
    (dict(ngram_decay=11.0), ["a lower --ngram_decay (it was 11, and 1 is usual)"]),
    (dict(ngram_decay=11.0, recipe="gpt2"),
     ["a lower --ngram_decay (it was 11, and 0.1 is usual)"]),
    (dict(ngram_decay=None, min_lr=None), ["a lower --learning_rate (it was 0.004)"]),
    (dict(dropout=0.99), ["a lower --dropout (it was 0.99, and 0 is usual)"]),
    (dict(beta1=0.999), ["a lower --beta1 (it was 0.999, and 0.9 is usual)"]),
    (dict(grad_clip=math.inf), ["a lower --grad_clip (it was inf, and 1 is usual)"]),
    (dict(grad_clip=0.0), ["a lower --learning_rate (it was 0.004)",
                           "or --grad_clip 1 (nothing was clipped)"])], ids=str)
def test_advice_names_the_flags_that_are_far_from_usual(settings, told):
    settings = MODERN | dict(recipe="modern", warmup_iters=100) | settings
    assert advice(None, settings) == "Train with " + ", ".join(told)


@pytest.mark.parametrize("cause, told", [
    ("zero", "Keep the arguments of {} away from there, or look at the op{}"),
    ("domain", "Keep the arguments of {} away from there, or look at the op{}"),
    ("op", "Look at the op{1}; mg.gradcheck compares its gradient with differences")])
def test_advice_says_where_an_op_is_defined_if_it_is_one_of_minigrads(cause, told):
    for op in ("exp", "of_a_user"):
        where = f", at {definition(mg.exp).place}" if op == "exp" else ""
        assert advice(SimpleNamespace(op=op, cause=cause, left_out=None), SETTINGS) == told.format(
            op, where)
