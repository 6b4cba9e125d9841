"""A step that went wrong is run again, the same bit for bit, from memory or from its file."""
import json
import math
import re

import numpy as np
import pytest

import minigrad as mg
from minigrad import compiled
from minigrad.kernels.compiler import compiling
from model import CharTokenizer, CheckpointError, Transformer, TransformerConfig, save_checkpoint
from model.replay.nan import advice, again, replay
from model.run import Case, State
from tests.kit import forward_backward, run

SETTINGS = dict(learning_rate=0.01, warmup_iters=5, grad_clip=0.0)
# Where NumPy stands in for the kernels, it warns of what these tests make.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def small(dropout=0.0, **options):
    return Transformer(TransformerConfig(9, 8, 2, 2, 8, dropout=dropout, **options), seed=1)


def batches(n=1):
    rng = np.random.default_rng(0)
    return [tuple(rng.integers(9, size=(3, 8)) for _ in range(2)) for _ in range(n)]


@pytest.mark.parametrize("activation, name", [
    ("gelu", "down.weight"), ("swiglu", "gate.weight"), ("swiglu", "gate.bias")])
def test_a_weight_that_is_nan_is_named_with_the_part_of_the_model_that_met_it(activation, name):
    model = small(activation=activation, mlp_bias=True)
    weight = dict(model.named_parameters())[f"blocks.1.mlp.{name}"]
    weight.data[2] = math.nan
    _, finding = again(Case("training", 7, math.nan, math.nan, batches()), model,
                       np.random.default_rng(0))
    assert (finding.op, finding.direction, finding.cause) == ("mlp", "forward", "weight")
    assert finding.module == "blocks.1.mlp" and finding.line.file == "model/layers.py"
    assert "mg.mlp(" in finding.line.text
    assert (f"the weight blocks.1.mlp.{name} is not finite before the step: "
            in str(finding).replace("\n" + 16 * " ", " "))
    assert "--learning_rate" in advice(finding, SETTINGS)
    assert all(p.grad is None for p in model.parameters())


def nan_file(path, model, case, state):
    training = dict(settings=SETTINGS, state=state.saved(), nan=case.saved())
    save_checkpoint(path, model, CharTokenizer("abcdefghi"), training)


def test_a_case_taken_again_from_its_file_is_the_same_bit_for_bit(tmp_path, capsys):
    model, state, step = small(dropout=0.3), State(seed=4), batches(2)
    state.dropout.random(5)
    before = state.saved()
    loss = forward_backward(model, step, state.dropout)
    norm = mg.clip_grad_norm_(model.parameters(), math.inf)
    state.restore(before)
    case = Case("training", 12, loss, norm, step)
    now, _ = again(case, model, state.dropout)
    assert now[:4] == case[:4] and state.saved() == before
    for moved, said in ((0, "the same bit for bit"), (1, "not the same")):
        state.dropout.random(moved)
        nan_file(tmp_path / "nan.npz", model, case, state)
        with pytest.raises(ValueError, match="every value of the step in .* is finite here"):
            replay(tmp_path / "nan.npz")
        assert said in capsys.readouterr().out


@pytest.mark.parametrize("change", [
    {"part": "test"}, {"step": "12"}, {"loss": None}, {"norm": [1.0]}, {"batches": []},
    {"batches": 3}, {"batches": [[[[1]]]]}, {"batches": [[[[1, 2], [3]], [[1], [2]]]]},
    {"batches": [[[1], [1]]]}, {"batches": [[[[1]], [[1, 2]]]]}, {"batches": [[[[9]], [[1]]]]},
    {"batches": [[[[2 ** 70]], [[1]]]]}, {"batches": [[[[1]], [[-7]]]]},
    {"batches": [[[[0] * 9], [[0] * 9]]]}, {"more": 1}], ids=str)
def test_a_step_that_cannot_be_taken_again_is_refused_in_a_line(tmp_path, change):
    saved = Case("training", 12, math.nan, 1.0, batches()).saved() | change
    training = dict(settings=SETTINGS, state=State(seed=0).saved(), nan=saved)
    save_checkpoint(tmp_path / "nan.npz", small(), CharTokenizer("abcdefghi"), training)
    with pytest.raises(CheckpointError, match="holds no step that can be taken again") as caught:
        replay(tmp_path / "nan.npz")
    assert "\n" not in str(caught.value)


def test_a_replay_needs_the_whole_record(tmp_path):
    whole = dict(settings=SETTINGS, state=State(seed=0).saved(),
                 nan=Case("training", 12, math.nan, 1.0, batches()).saved())
    for training in (*({k: v for k, v in whole.items() if k != name} for name in whole),
                     whole | {"settings": {}}):
        save_checkpoint(tmp_path / "nan.npz", small(), CharTokenizer("abcdefghi"), training)
        with pytest.raises(CheckpointError, match="holds no step that went wrong"):
            replay(tmp_path / "nan.npz")


def test_a_replay_shows_the_finding_and_what_to_do(tmp_path, capsys):
    model = small()
    model.blocks[0].norm1.weight.data[0] = 1e30
    case, finding = again(Case("training", 12, 0.0, 0.0, batches(2)), model,
                          np.random.default_rng(0))
    assert finding.cause == "overflow" and finding.module == "blocks.0.attention"
    nan_file(tmp_path / "nan.npz", model, case, State(seed=0))
    replay(tmp_path / "nan.npz")
    said = capsys.readouterr().out
    assert said.count("the loss of step 12 is nan") == 2 and "the same bit for bit" in said
    assert str(finding) in said and advice(finding, SETTINGS) in said


def test_compiling_is_announced_in_the_words_of_a_run_and_done_as_for_one(
        small_text, tmp_path, monkeypatch, capsys):
    asked = []

    def compile_ahead(*step, **parts):
        asked.append((*step, *parts.values()))
        compiling.say_compiling("3 kernels")
    monkeypatch.setattr(compiled, "compile_ahead", compile_ahead)
    run(small_text, tmp_path / "out", "--max_iters", "0", "--activation", "swiglu")
    words = re.search("^compiling [^;\n]*", capsys.readouterr().out, re.M).group()
    nan_file(tmp_path / "nan.npz", small(activation="swiglu"),
             Case("training", 12, 0.0, 0.0, batches()), State(seed=0))
    with pytest.raises(ValueError, match="is finite here"):
        replay(tmp_path / "nan.npz")
    assert capsys.readouterr().out.startswith(words)    # the last time may be another by now
    assert asked == [(False, False, False, True, True), (False, False, True)]


def test_a_case_survives_json_exactly():
    case = Case("training", 3, math.inf, math.nan, batches(2))
    other = Case.restored(json.loads(json.dumps(case.saved())))
    assert other[:3] == case[:3] and math.isnan(other.norm)
    assert all(np.array_equal(a, b) and a.dtype == b.dtype
               for one, two in zip(case.batches, other.batches) for a, b in zip(one, two))
    assert str(case) == "the loss of step 3 is inf"
    assert str(case._replace(loss=2.0)) == ("the loss of step 3 is 2, but the norm of its gradient "
                                            "is nan")


def test_the_bad_batch_of_an_evaluation_is_found():
    def model(ids):
        return mg.Tensor(np.where(ids[..., None] == 7, math.nan, np.zeros(9)))
    x, y = np.zeros((5, 8), int), np.ones((5, 8), int)
    x[3, 4] = 7
    case = Case.of_validation(10, model, x, y, batch_size=2)
    (ids, targets), = case.batches
    assert np.array_equal(ids, x[2:4]) and np.array_equal(targets, y[2:4])
    assert str(case) == "the validation loss after step 10 is nan"


def test_what_is_no_such_file_is_refused_in_a_line(tmp_path):
    with pytest.raises(ValueError, match="is no file; give the out_dir/nan.npz"):
        replay(tmp_path / "nan.npz")
    save_checkpoint(tmp_path / "ckpt.npz", small(), CharTokenizer("abcdefghi"))
    with pytest.raises(ValueError, match="holds no step that went wrong"):
        replay(tmp_path / "ckpt.npz")
