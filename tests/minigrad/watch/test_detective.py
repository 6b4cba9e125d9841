"""The first op that made a nan or an inf is named, with its direction, its line and the cause."""
import functools
import linecache
import math

import numpy as np
import pytest

import minigrad as mg
from minigrad.module import Module
from minigrad.watch.detective import Detective
from model import Transformer, TransformerConfig
from model.replay.nan import advice
from tests.kit import forward_backward, leaf

HERE = "tests/minigrad/watch/test_detective.py"
SETTINGS = dict(learning_rate=0.01, warmup_iters=5, grad_clip=0.0)
# Where NumPy stands in for the kernels, it warns of what these tests make.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


class Weight(Module):
    """A model of one weight, for a loss that a test makes of it."""

    def __init__(self, values, dtype=np.float32):
        self.weight = leaf(values, dtype)


def found(f, values, dtype=np.float32):
    """What the detective finds in f(weight), forward and back."""
    model = Weight(values, dtype)
    with Detective(model) as detective:
        f(model.weight).backward()
    detective.look_at_gradients()
    return detective.finding


def brief(finding):
    """The op, its direction and the cause."""
    return f"{finding.op} {finding.direction} {finding.cause}"


def text_of(line):
    """The text of a line of this file that a finding names."""
    assert line.file == HERE
    return linecache.getline(__file__, line.number).strip()


@pytest.fixture
def custom():
    """Makes ops that are gone after the test."""
    before = dict(mg.OPS)
    yield mg.op
    mg.OPS.clear(), mg.OPS.update(before)


def test_nothing_is_found_where_all_is_finite():
    model = Transformer(TransformerConfig(9, 8, 2, 2, 8), seed=1)
    batches = np.random.default_rng(0).integers(9, size=(2, 2, 3, 8))
    with Detective(model) as detective:
        forward_backward(model, batches, np.random.default_rng(0))
    detective.look_at_gradients()
    assert detective.finding is None


@pytest.mark.parametrize("f, values, expected, why", [
    (lambda w: (1.0 / w).sum(), [1, 0], "divide forward zero", "division by 0"),
    (lambda w: mg.sqrt(w).sum(), [1, -1], "sqrt forward domain", "not defined"),
    (lambda w: mg.sqrt(w).sum(), [0, 4], "sqrt backward zero", ""),
    (lambda w: (w * np.array([1, np.nan])).sum(), [1, 2], "multiply forward input", "as y"),
    (lambda w: (w * 2.0).sum(), [1, math.nan], "multiply forward weight", "1 of its 2 numbers"),
    (lambda w: (w[np.array([1, 1])] * 3e38).sum(), [[1e-10]] * 3, "take backward overflow", ""),
    (lambda w: ((y := w * 1.0) * 3e38 + y * 3e38).sum() * 1.0, [1e-10], "sum backward overflow",
     "the value of multiply"),
    # -inf from a mask is no cause.
    (lambda w: mg.log(mg.softmax(w + np.array([0, -np.inf], np.float32))).sum(), [1, 2],
     "log forward zero", "the log of 0")])
def test_the_op_its_direction_and_the_cause_are_named(f, values, expected, why):
    finding = found(f, values)
    assert brief(finding) == expected and why in finding.why


def test_numpys_warnings_are_heard_inside_an_op_but_not_those_of_an_earlier_op(custom):
    @custom
    def log_of_all(x):
        return np.log(x).sum(), (lambda g: g / x,)

    @custom
    def logistic(x):
        return 1 / (1 + np.exp(-x)), (lambda g: g,)     # e^1000 is inf, and 1 / inf is 0
    finding = found(lambda weight: log_of_all(weight) * 2, [1, 0, 2])
    assert brief(finding) == "log_of_all forward zero"
    assert "the log of 0" in finding.why and text_of(finding.line).startswith("finding = found(")
    finding = found(lambda weight: mg.log(logistic(weight)).sum(), [-1000])
    assert brief(finding) == "log forward zero"


def test_an_overflow_of_a_product_is_named_with_the_ranges_of_what_was_multiplied():
    x = leaf([[3e20, -2e20]], np.float32)
    finding = found(lambda weight: (x @ weight).sum(), [[1e20], [-1e19]])
    assert brief(finding) == "matmul forward overflow"
    assert [(n.name, n.bad) for n in finding.given] == [("x", 0), ("weight", 0)]
    assert np.allclose([(n.low, n.high) for n in finding.given], [(-2e20, 3e20), (-1e19, 1e20)])
    assert finding.made.bad == 1 and "beyond the largest float32" in finding.why
    assert all(part in str(finding) for part in (f"{HERE}:{finding.line.number}", finding.why,
                                                 str(finding.given[1]), str(finding.made)))
    said = advice(finding, SETTINGS)
    assert all(flag in said for flag in ("--learning_rate", "--warmup_iters", "--grad_clip 1"))


@pytest.mark.parametrize("op", [mg.op, functools.partial(mg.op, register=False)])
@pytest.mark.parametrize("wrong, cause", [(lambda g, x: g / (x - x), "zero"),
                                          (lambda g, x: np.full_like(g, np.inf), "op")])
def test_a_wrong_backward_is_named_with_the_line_that_ran_its_op(custom, op, wrong, cause):
    @op
    def twice(x):
        return 2 * x, (lambda g: wrong(g, x),)

    def f(weight):
        y = weight * 3.0
        z = twice(y)
        return z.sum()
    finding = found(f, [1, 2])
    assert brief(finding) == f"twice backward {cause}"
    assert text_of(finding.line) == "z = twice(y)"
    assert [(n.low, n.high) for n in finding.given] == [(3, 6), (1, 1)]
    assert (f"{HERE}:" in advice(finding, SETTINGS)) == ("twice" in mg.OPS)


@pytest.mark.parametrize("f, values, op", [
    (mg.sqrt, [-1, 0, 4], "sqrt"), (lambda x: 3 * mg.sqrt(x) + 1, [0, 4], "sqrt"),
    (mg.log, [0, 4], "log"), (lambda x: mg.exp(-1000 * x), [-1, 1], "exp")])
def test_a_branch_that_where_does_not_take_is_named_with_the_remedy(f, values, op):
    def unsafe(weight):
        y = mg.where(weight.data > 0, f(weight), 0)
        return (2 * y).sum()

    def remedied(weight):
        return (2 * mg.where(weight.data > 0, f(mg.where(weight.data > 0, weight, 1)), 0)).sum()
    finding = found(unsafe, values)
    assert finding.op == op
    assert text_of(finding.left_out) == "y = mg.where(weight.data > 0, f(weight), 0)"
    said = advice(finding, SETTINGS)
    assert finding.left_out.place in said
    assert "mg.where(c, mg.sqrt(mg.where(c, x, 1)), 0) with c = x.data > 0" in said
    assert found(remedied, values) is None


@pytest.mark.parametrize("f, values", [
    (lambda w: mg.where(w.data > -1, mg.sqrt(w), 0), [0, 4]),
    (lambda w: mg.where(w.data > 9, mg.sqrt(w), mg.log(w)), [-1, 4]),
    (lambda w: mg.sqrt(mg.where(w.data > 0, w, 0)), [0, 4]),
    (lambda w: mg.sqrt(w) * mg.where(w.data > 1, w, 0), [0, 4]),
    (lambda w: mg.where(w.data > 0, mg.sqrt(w), 0), [math.nan, 4])])
def test_a_branch_that_where_takes_is_not_said_to_be_left_out(f, values):
    finding = found(lambda weight: f(weight).sum(), values)
    assert finding.left_out is None and "mg.where" not in advice(finding, SETTINGS)


def test_finite_gradients_whose_sum_or_squares_overflow_are_named():
    def twice(weight):
        (weight * 3e38).sum().backward()
        return (weight * 3e38).sum()
    finding = found(twice, [1e-10])
    assert finding.op == "sum" and "the gradient of weight" in str(finding)
    assert "is beyond the largest float32" in finding.why
    model = Weight([1e-10], np.float64)
    model.empty = leaf(np.zeros((0, 2)))        # which has no largest gradient
    with Detective(model) as detective:
        ((model.weight * 1e200).sum() + model.empty.sum()).backward()
    detective.look_at_gradients()
    assert detective.finding.op == "clip_grad_norm_"
    assert detective.finding.why.endswith("is beyond the largest float64")
    assert "the gradient of weight" in str(detective.finding)
