"""The first op that made a nan or an inf is named, with its direction, its line and the cause."""
import math
import pathlib

import numpy as np
import pytest

import minigrad as mg
from minigrad.core import op
from minigrad.module import Module
from minigrad.watch.detective import Detective
from model import Transformer, TransformerConfig
from model.replay.nan import advice
from tests.kit import forward_backward

HERE = "tests/minigrad/watch/test_detective.py"
SETTINGS = dict(learning_rate=0.01, warmup_iters=5, grad_clip=0.0)
# Where NumPy stands in for the kernels, it warns of what these tests make.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


class Weight(Module):
    """A model of one weight, for a loss that a test makes of it."""

    def __init__(self, values, dtype=np.float32):
        self.weight = mg.Tensor(np.asarray(values, dtype), requires_grad=True)


def found(f, model, *arguments):
    """What the detective finds in f(weight), forward and back."""
    with Detective(model) as detective:
        f(model.weight, *arguments).backward()
    detective.look_at_gradients()
    return detective.finding


def text_of(line):
    """A line of this file that a finding names."""
    assert line.file == HERE
    return pathlib.Path(__file__).read_text(encoding="utf-8").splitlines()[line.number - 1].strip()


@pytest.fixture
def custom():
    """Makes ops that are gone after the test."""
    before = dict(mg.OPS)
    yield op
    mg.OPS.clear(), mg.OPS.update(before)


def test_nothing_is_found_where_all_is_finite():
    model = Transformer(TransformerConfig(9, 8, 2, 2, 8), seed=1)
    batches = np.random.default_rng(0).integers(9, size=(2, 2, 3, 8))
    with Detective(model) as detective:
        forward_backward(model, batches, np.random.default_rng(0))
    detective.look_at_gradients()
    assert detective.finding is None


def test_an_overflow_of_a_product_is_named_with_the_ranges_of_what_was_multiplied():
    x = mg.Tensor(np.array([[3e20, -2e20]], np.float32))

    def f(weight):
        y = x * 1.0
        return (y @ weight).sum()
    finding = found(f, Weight([[1e20], [-1e19]]))
    assert (finding.op, finding.direction, finding.cause) == ("matmul", "forward", "overflow")
    assert text_of(finding.line) == "return (y @ weight).sum()"
    assert [(n.name, n.bad) for n in finding.given] == [("x", 0), ("weight", 0)]
    assert np.allclose([(n.low, n.high) for n in finding.given], [(-2e20, 3e20), (-1e19, 1e20)])
    assert finding.made.bad == 1 and "beyond the largest float32" in finding.why
    said = advice(finding, SETTINGS)
    assert all(flag in said for flag in ("--learning_rate", "--warmup_iters", "--grad_clip 1"))


def test_a_log_of_zero_inside_an_op_of_ones_own_is_seen(custom):
    @custom
    def log_of_all(x):
        return np.log(x).sum(), (lambda g: g / x,)
    finding = found(lambda weight: log_of_all(weight) * 2, Weight([1, 0, 2]))
    assert (finding.op, finding.direction, finding.cause) == ("log_of_all", "forward", "zero")
    assert "the log of 0" in finding.why and text_of(finding.line).startswith("finding = found(")
    assert (finding.given[0].low, finding.given[0].high) == (0, 2)
    assert f"{HERE}:" in advice(finding, SETTINGS)


def test_an_earlier_overflow_that_left_no_trace_is_not_taken_for_the_cause(custom):
    @custom
    def logistic(x):
        return 1 / (1 + np.exp(-x)), (lambda g: g,)     # e^1000 is inf, and 1 / inf is 0
    finding = found(lambda weight: mg.log(logistic(weight)).sum(), Weight([-1000]))
    assert (finding.op, finding.cause) == ("log", "zero")


def test_a_gradient_that_is_mostly_zero_and_overflows_is_named():
    def f(weight):
        rows = mg.embedding(np.array([1, 1]), weight)
        return (rows * 3e38).sum()
    finding = found(f, Weight([[1e-10], [1e-10], [1e-10]]))
    assert (finding.op, finding.direction, finding.cause) == ("embedding", "backward", "overflow")
    assert (finding.made.name, finding.made.bad, finding.made.size) == ("the gradient of weight",
                                                                        1, 3)


def test_a_division_by_zero_and_a_root_of_a_negative_number_are_told_apart():
    finding = found(lambda weight: (1.0 / weight).sum(), Weight([1, 0]))
    assert (finding.op, finding.cause) == ("divide", "zero") and "division by 0" in finding.why
    assert [n.name for n in finding.given] == ["x", "weight"]
    finding = found(lambda weight: mg.sqrt(weight).sum(), Weight([1, -1]))
    assert (finding.op, finding.cause) == ("sqrt", "domain")


@pytest.mark.parametrize("wrong, cause", [(lambda g, x: g / (x - x), "zero"),
                                          (lambda g, x: np.full_like(g, np.inf), "op")])
def test_a_wrong_backward_is_named_with_the_line_that_ran_its_op(custom, wrong, cause):
    @custom
    def twice(x):
        return 2 * x, (lambda g: wrong(g, x),)

    def f(weight):
        y = weight * 3.0
        z = twice(y)
        return z.sum()
    finding = found(f, Weight([1, 2]))
    assert (finding.op, finding.direction, finding.cause) == ("twice", "backward", cause)
    assert text_of(finding.line) == "z = twice(y)"
    assert [(n.low, n.high) for n in finding.given] == [(3, 6), (1, 1)]
    assert f"{HERE}:" in advice(finding, SETTINGS)


def test_a_root_at_zero_is_finite_going_forward_and_named_going_back():
    finding = found(lambda weight: mg.sqrt(weight).sum(), Weight([0, 4]))
    assert (finding.op, finding.direction, finding.cause) == ("sqrt", "backward", "zero")


@pytest.mark.parametrize("f, safe, values, op", [
    (mg.sqrt, 1.0, [-1, 0, 4], "sqrt"), (mg.sqrt, 1.0, [0, 4], "sqrt"),
    (lambda x: 3 * mg.sqrt(x) + 1, 1.0, [0, 4], "sqrt"), (mg.log, 1.0, [0, 4], "log"),
    (lambda x: mg.exp(-1000 * x), 1.0, [-1, 1], "exp"), (lambda x: 1 / x, 1.0, [0, 4], "divide")],
    ids=["root", "root of 0", "within more", "log", "exp", "divide"])
def test_a_branch_that_where_does_not_take_is_named_with_the_remedy(f, safe, values, op):
    def unsafe(weight):
        y = mg.where(weight.data > 0, f(weight), 0)
        return (2 * y).sum()

    def remedied(weight):
        return (2 * mg.where(weight.data > 0, f(mg.where(weight.data > 0, weight, safe)), 0)).sum()
    finding = found(unsafe, Weight(values))
    assert finding.op == op
    assert text_of(finding.left_out) == "y = mg.where(weight.data > 0, f(weight), 0)"
    said = advice(finding, SETTINGS)
    assert f"left out by mg.where at {finding.left_out.place}, and its gradient there" in said
    assert "mg.where(c, mg.sqrt(mg.where(c, x, 1)), 0) with c = x.data > 0" in said
    assert found(remedied, Weight(values)) is None


def test_a_branch_that_where_takes_is_not_told_to_be_left_out():
    for f, values in ((lambda w: mg.where(w.data > -1, mg.sqrt(w), 0), [0, 4]),
                      (lambda w: mg.where(w.data > 9, mg.sqrt(w), mg.log(w)), [-1, 4]),
                      (lambda w: mg.sqrt(mg.where(w.data > 0, w, 0)), [0, 4]),
                      (lambda w: mg.sqrt(w) * mg.where(w.data > 1, w, 0), [0, 4]),
                      (lambda w: mg.where(w.data > 0, mg.sqrt(w), 0), [math.nan, 4])):
        finding = found(lambda weight: f(weight).sum(), Weight(values))
        assert finding.left_out is None and "mg.where" not in advice(finding, SETTINGS)


def test_sums_of_finite_gradients_that_overflow_are_named():
    def on_the_way(weight):
        y = weight * 1.0
        return (y * 3e38 + y * 3e38).sum() * 1.0
    finding = found(on_the_way, Weight([1e-10]))
    assert (finding.op, finding.direction, finding.cause) == ("sum", "backward", "overflow")
    assert "the value of multiply" in finding.why
    model = Weight([1e-10])
    with Detective(model) as detective:
        for _ in range(2):
            (model.weight * 3e38).sum().backward()
    detective.look_at_gradients()
    assert detective.finding.op == "sum" and "the gradient of weight" in str(detective.finding)
    finding = found(lambda weight: (weight * 1e200).sum(), Weight([1e-10], np.float64))
    assert finding.op == "clip_grad_norm_" and "sum of their squares" in finding.why


def test_a_parameter_of_no_numbers_is_not_named():
    model = Weight([1e-10], np.float64)
    model.empty = mg.Tensor(np.zeros((0, 2)), requires_grad=True)
    with Detective(model) as detective:
        ((model.weight * 1e200).sum() + model.empty.sum()).backward()
    detective.look_at_gradients()
    assert "the gradient of weight" in str(detective.finding)


def test_minus_inf_from_a_mask_is_not_taken_for_the_cause():
    def f(weight):
        y = mg.softmax(weight + np.array([0, -np.inf], np.float32))
        return mg.log(y).sum()
    finding = found(f, Weight([1, 2]))
    assert (finding.op, finding.cause) == ("log", "zero")


def test_an_input_that_is_nan_is_told_from_what_an_op_made():
    finding = found(lambda weight: (weight * np.array([1, np.nan])).sum(), Weight([1, 2]))
    assert (finding.op, finding.cause) == ("multiply", "input") and "as y" in finding.why
    assert f"{HERE}:" in advice(finding, SETTINGS)
