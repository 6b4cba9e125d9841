"""Values that change between forward and backward: a right gradient, or a refusal."""
import copy
import functools
import gc
import pickle
from collections import deque
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

import minigrad as mg
from minigrad import changes
from minigrad.core import Tensor
from minigrad.module import Module
from minigrad.packed import hold
from tests.kit import blocks, leaf, refusal


@pytest.fixture
def w():
    return leaf([[1.0, 2.0], [3.0, 4.0]])


class Holder(Module):
    def __init__(self, w):
        self.w = w


def step(make):
    def change(w):
        w.grad = np.ones(w.shape)
        make([w]).step()
        w.grad = None
    return change


def subtract(w):
    w.data -= 1


def subtract_from_view(w):
    w.reshape(4).data -= 1


def subtract_from_detached(w):
    w.detach().data -= 1


def subtract_from_itself(w):
    data = w.data.reshape(4)
    data -= 1
    w.data = data.reshape(2, 2)


def load(w):
    Holder(w).load_state_dict({"w": np.zeros((2, 2))})


STEP, SETTER = "by a step of", "as .data was set"
CHANGES = [
    (step(mg.SGD), f"{STEP} SGD"),
    (step(mg.AdamW), f"{STEP} AdamW"),
    (step(mg.Muon), f"{STEP} Muon"),
    (step(lambda parameters: mg.Optimizers([mg.SGD(parameters)])), f"{STEP} SGD"),
    (subtract, SETTER),
    (subtract_from_view, SETTER),
    (subtract_from_detached, SETTER),
    (subtract_from_itself, SETTER),
    (load, "by load_state_dict")]
of_each_change = pytest.mark.parametrize("change, how", CHANGES)


@of_each_change
@pytest.mark.parametrize("use", [
    lambda w: w * w,
    lambda w: w.reshape(4) * 3 * w.reshape(4),
    lambda w: w.T @ w,
    lambda w: leaf(np.ones((2, 2))) * w.detach(),
    lambda w: leaf(np.ones((2, 2))) * w.data])
def test_backward_refuses_what_was_read_before_a_change(use, change, how, w):
    loss = use(w).sum()
    change(w)
    says = refusal(RuntimeError, loss.backward)
    assert says.startswith("float64[")
    assert f" was changed {how} after " in says
    assert "call backward() before the change, or compute the loss again" in says
    assert w.grad is None
    use(w).sum().backward()             # what is computed after it is right


@of_each_change
@pytest.mark.parametrize("use, expected", [
    (lambda w: w + w, [[2, 2], [2, 2]]),
    (lambda w: np.array([[1.0, 2.0]]) @ w, [[1, 1], [2, 2]]),
    (lambda w: np.ones((1, 2, 2)) @ w, [[2, 2], [2, 2]]),
    (lambda w: mg.linear([[1.0, 2.0]], w), [[1, 2], [1, 2]]),
    (lambda w: mg.embedding(np.array([1]), w) * 3, [[0, 0], [3, 3]]),
    (lambda w: mg.relu(w) + mg.concatenate([w, w])[1], [[1, 1], [3, 3]])])
def test_backward_goes_on_where_no_changed_number_is_read(use, expected, change, how, w):
    loss = use(w).sum()
    change(w)
    loss.backward()
    assert w.grad.tolist() == expected


def test_backward_names_what_was_changed_and_the_op_that_read_it():
    x = leaf([1.0, 2.0])
    z = x * 3
    loss = mg.exp(z * z).sum()
    z.data += 1
    assert refusal(RuntimeError, loss.backward).startswith(
        "float64[2] (multiply) was changed as .data was set after multiply had read it")
    constant = Tensor([1.0, 2.0])
    loss = (x * constant).sum()
    constant.data *= 0
    assert refusal(RuntimeError, loss.backward).startswith("float64[2] (constant) was changed")


@pytest.mark.parametrize("read", [
    lambda w: w.grad,
    lambda w: w.grad.T,
    lambda w: w.grad[:],
    lambda w: Tensor(w.grad).reshape(4).reshape(2, 2)])
@pytest.mark.parametrize("prepare", [
    lambda w: None,
    lambda w: setattr(w, "grad", w.grad[:]),
    lambda w: setattr(w, "grad", np.stack([w.grad, w.grad])[0])])
def test_backward_refuses_a_gradient_that_was_read_before_it_was_clipped(prepare, read, w):
    (w * w).sum().backward()
    prepare(w)
    loss = (w * read(w)).sum()
    mg.clip_grad_norm_([w], 1.0)
    assert "float64[2, 2] (gradient) was changed by clip_grad_norm_ after multiply" in refusal(
        RuntimeError, loss.backward)


def test_backward_refuses_an_array_of_which_a_clipped_gradient_is_a_part(w):
    both = np.ones((2, 2, 2))
    w.grad = both[0]
    losses = [(w * Tensor(x)).sum() for x in (both, both[0], both.reshape(4, 2)[:2])]
    del both
    mg.clip_grad_norm_([w], 1.0)
    for loss in losses:
        assert "was changed by clip_grad_norm_ after multiply" in refusal(
            RuntimeError, loss.backward)


def test_clip_grad_norm_notes_no_gradient_that_only_its_leaf_holds(w):
    b = leaf([1.0, 2.0])
    (w * w + b).sum().backward()
    before = len(changes._changes)
    mg.clip_grad_norm_([w, b], 1.0)
    assert len(changes._changes) == before
    held = b.grad
    mg.clip_grad_norm_([w, b], 0.5)
    assert len(changes._changes) == before + 1
    assert np.linalg.norm([*w.grad.flat, *held]) == pytest.approx(0.5)


def test_backward_refuses_a_second_loss_after_a_step_as_of_a_gan():
    D, G = leaf([3.0]), leaf([5.0])
    steps = mg.SGD([D], lr=1.0)

    def losses():
        fake = G * 2
        return (D * fake.detach()).sum(), -(D * fake).sum()
    of_D, of_G = losses()
    of_D.backward()
    steps.step()
    assert "float64[1] (leaf) was changed by a step of SGD after multiply had read it" in refusal(
        RuntimeError, of_G.backward)
    assert G.grad is None
    D.data = [3.0]
    of_D, of_G = losses()               # in the right order
    of_G.backward()
    steps.step()
    assert G.grad == [-6]


def test_backward_is_right_where_data_are_replaced_and_the_old_array_stays(w):
    loss = (w * w).sum()
    w.data = np.zeros((2, 2))
    w.data -= 1
    loss.backward()
    assert w.grad.tolist() == [[2, 4], [6, 8]]


def test_backward_goes_on_after_what_changes_nothing_that_it_needs(w):
    average = Tensor(w.data.copy())
    other = leaf([[0.0, 0.0]])
    for _ in range(2):                  # several losses are added up
        loss = (w * w).sum()
        steps = mg.AdamW([w, other])
        average.data *= 0.9
        average.data += 0.1 * w.data
        other.data -= 1
        with mg.no_grad():
            (w * average).sum()
        copies = copy.deepcopy([w, Holder(w)]) + [pickle.loads(pickle.dumps(w))]
        copies[0].data -= 1
        copies[1].w.data -= 1
        copies[2].data -= 1
        loss.backward()
    assert w.grad.tolist() == [[4, 8], [12, 16]]
    steps.step()


class Slope:
    def __init__(self, x):
        self.x = x

    def __call__(self, g):
        return 2 * g * self.x

    def method(self, g):
        return self(g)


@dataclass(slots=True)
class Kept:
    x: object

    def __call__(self, g):
        return 2 * g * self.x


def kept_by(holder):
    return lambda g: 2 * g * holder.x


def with_attribute(x):
    def vjp(g):
        return 2 * g * vjp.x
    vjp.x = x
    return vjp,


def from_tensor(x):
    tensor = Tensor(x)
    return lambda g: 2 * g * tensor.data,


def shared(x):
    def vjp(g):
        return 2 * g * x, vjp
    return lambda g: vjp(g)[:1]


@pytest.mark.parametrize("vjps", [
    lambda x: (lambda g: 2 * g * x,),
    lambda x: (lambda g, x=x: 2 * g * x,),
    lambda x: (lambda g, *, x=x: 2 * g * x,),
    lambda x: (functools.partial(lambda x, g: 2 * g * x, x),),
    lambda x: (functools.partial(lambda g, *, kept: 2 * g * kept["x"], kept={"x": x}),),
    lambda x: (Slope(x),),
    lambda x: (Slope(x).method,),
    lambda x: (Kept(x),),
    lambda x: (kept_by(Kept(x)),),
    lambda x: (kept_by(SimpleNamespace(x=x)),),
    lambda x: (kept_by(SimpleNamespace(x=x[:])),),
    lambda x: (functools.partial(lambda kept, g: 2 * g * kept[0], deque([x])),),
    with_attribute,
    from_tensor,
    shared])
def test_backward_finds_what_a_vjp_keeps_in_any_way(vjps, w):
    square = mg.op(lambda x: (x * x, vjps(x)), register=False)
    square(w).sum().backward()
    assert w.grad.tolist() == [[2, 4], [6, 8]]
    loss = square(w).sum()
    subtract(w)
    assert "was changed" in refusal(RuntimeError, loss.backward)


def test_a_packed_parameter_that_is_changed_after_it_was_read_is_refused():
    p = leaf(np.zeros((7, 64), np.float32))
    hold(p, blocks("Q8_0", 7, 2))
    loss = (p * p).sum()
    p.data *= 2
    assert "float32[7, 64] (leaf) was changed" in refusal(RuntimeError, loss.backward)
    p.grad = None
    (p * 2).sum().backward()
    mg.AdamW([p]).step()


def test_note_is_forgotten_when_the_array_is_freed():
    gc.collect()
    before = len(changes._changes)
    x = Tensor(np.ones(3))
    for _ in range(3):
        x.data += 1
        x[1:].data += 1
    assert len(changes._changes) == before + 1
    del x
    assert len(changes._changes) == before
