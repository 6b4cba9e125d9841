"""Optimisers against their formulas, clipping, and the learning rate's schedule."""
import copy
import functools
import itertools
import math
import pickle

import numpy as np
import pytest

import minigrad as mg
from minigrad import formulas
from minigrad.core import Tensor
from minigrad.gradients import Rows
from minigrad.optim import cosine, linear_decay, warm_up
from tests.kit import both_types, leaf, normal, refusal


def parameter(*shape, seed=0, dtype=np.float64):
    return leaf(normal(*shape, seed=seed, dtype=dtype))


of_each = pytest.mark.parametrize("make", [mg.AdamW, mg.SGD, mg.Muon])
by_all = pytest.mark.usefixtures("by_every_way")


def newton_schulz(x):
    """The published one, of one matrix."""
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x - 4.7750 * gram @ x + 2.0315 * gram @ gram @ x
    return x


# The published steps: what is subtracted from p after t steps, of p, g, their settings and a dict.

def adamw(p, g, t, s, state):
    (beta1, beta2), decay = s["betas"], s["weight_decay"]
    m = beta1 * state.get("m", 0) + (1 - beta1) * g
    v = beta2 * state.get("v", 0) + (1 - beta2) * g * g
    state.update(m=m, v=v)
    m_hat = m / (1 - beta1 ** t)
    v_hat = v / (1 - beta2 ** t)
    step = m_hat / (np.sqrt(v_hat) + s["eps"])
    return s["lr"] * (decay * p + step)


def sgd(p, g, t, s, state):
    m = state["m"] = s["momentum"] * state.get("m", 0) + g + s["weight_decay"] * p
    return s["lr"] * m


def muon(p, g, t, s, state):
    m = state["m"] = s["momentum"] * state.get("m", 0) + g
    z = g + s["momentum"] * m
    cuts = np.cumsum([0, *(s["sections"] or [len(p)])])
    steps = []
    for start, end in itertools.pairwise(cuts):
        length = math.sqrt(max(1, (end - start) / p.shape[1]))
        step = newton_schulz(z[start:end])
        if s.get("equal_rows"):
            lengths = np.linalg.norm(step, axis=1, keepdims=True)
            step *= np.linalg.norm(lengths) / math.sqrt(len(step)) / (lengths + 1e-7)
        steps.append(length * step)
    return s["lr"] * (s["weight_decay"] * p + np.concatenate(steps))


@pytest.mark.parametrize("make, formula, settings, groups", [
    (mg.AdamW, adamw, dict(lr=1e-2, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1),
     [([(3, 4)], {}), ([(5,)], dict(weight_decay=0.0, lr=1e-3))]),
    (mg.SGD, sgd, dict(lr=0.1, momentum=0.9, weight_decay=0.01), [([(3,)], {})]),
    (mg.Muon, muon, dict(lr=0.01, momentum=0.95, weight_decay=0.0, sections=None),
     [([(20, 8)], dict(sections=(10, 4, 6), weight_decay=0.1)),
      ([(12, 5), (5, 12)], dict(lr=0.03, momentum=0.8))]),
    (functools.partial(mg.Muon, equal_rows=True), muon,
     dict(lr=0.01, momentum=0.95, weight_decay=0.1, sections=None, equal_rows=True),
     [([(20, 8)], dict(sections=(10, 4, 6))),
      ([(12, 5), (5, 12)], {})])])
def test_Optimizer_follows_its_formula_by_group_and_section(make, formula, settings, groups):
    groups = [([parameter(*shape) for shape in shapes], own) for shapes, own in groups]
    optimizer = make([{"params": ps, **own} for ps, own in groups],
                     **{name: value for name, value in settings.items()
                        if name not in ("sections", "equal_rows")})
    of = [(p, p.data.copy(), settings | own, {}) for ps, own in groups for p in ps]
    rng = np.random.default_rng(3)
    for t in range(1, 6):
        for p, expected, s, state in of:
            p.grad = rng.standard_normal(p.shape)
            expected -= formula(expected, p.grad, t, s, state)
        optimizer.step()
    for p, expected, *_ in of:
        assert np.allclose(p.data, expected, rtol=1e-12, atol=1e-12)


@of_each
@both_types
@pytest.mark.parametrize("V, C", [
    (700, 64),
    (90, 384),
    (2000, 16),
    (3, 20_000),
    (5, 0)])
def test_step_takes_rows_of_a_gradient_as_all_of_it_bit_for_bit(V, C, dtype, make):
    def stepped(whole):
        rng = np.random.default_rng(0)
        table = parameter(V, C, dtype=dtype)
        other = parameter(9, dtype=dtype)
        optimizer = make([table] if make is mg.Muon else [table, other])
        norms = []
        for _ in range(3):
            ids = rng.integers(V, size=max(1, V // 5))
            g = rng.standard_normal((max(1, V // 5), C))
            mg.embedding(ids, table).backward(g)
            other.grad = rng.standard_normal(9).astype(dtype)
            assert isinstance(table.node.grad, Rows)
            if whole:
                table.grad
            norms.append(mg.clip_grad_norm_([table, other], 1.0))
            optimizer.step()
            optimizer.zero_grad()
        return norms, table.data, *(array for *_, array in optimizer.state())
    for rows, whole in zip(stepped(False), stepped(True), strict=True):
        assert np.array_equal(rows, whole)


@pytest.mark.parametrize("steps, least", [
    (5, 0.0015),
    (3, 0.018),
    (2, 0.062)])
@pytest.mark.parametrize("rows, columns", [(30, 30), (40, 30), (30, 60)])
def test_Muon_keeps_directions_and_makes_those_from_some_length_on_about_as_long(rows, columns,
                                                                                 steps, least):
    rng = np.random.default_rng(0)
    U, V = (np.linalg.qr(rng.standard_normal((n, 30)))[0] for n in (rows, columns))
    S = np.geomspace(1, 1e-4, 30)
    S = S / np.linalg.norm(S)
    p = np.zeros((rows, columns))
    g = (U * S) @ V.T
    lr = -1 / math.sqrt(max(1, rows / columns))
    settings = dict(lr=lr, momentum=0.0, weight_decay=0.0, ns_steps=steps)
    formulas.muon_of_each([(p, g, p.copy(), settings)])
    along = U.T @ p @ V                             # as diagonal as the rounding leaves it
    assert np.abs(along - np.diag(np.diag(along))).max() < 1e-11
    assert np.array_equal(np.diag(along) > 0.68, S > least)
    assert np.diag(along).max() < 1.21


@both_types
@of_each
def test_step_is_taken_in_place_and_leaves_a_parameter_without_a_gradient(make, dtype):
    p = parameter(2, 3, dtype=dtype)
    q = parameter(2, 3, seed=1, dtype=dtype)
    held = p.data
    first = p.data.copy()
    before = q.data.copy()
    optimizer = make([p, q], weight_decay=0.5)
    (p * p).sum().backward()
    optimizer.step()
    assert p.data is held
    assert p.dtype == dtype
    assert (p.data != first).all()
    assert np.array_equal(q.data, before)
    assert not any(array.any() for _, of, array in optimizer.state() if of is q)
    optimizer.zero_grad()
    assert p.grad is None
    before = p.data.copy()
    optimizer.step()
    assert np.array_equal(p.data, before)       # nor is anything else there to step


def test_Optimizers_of_different_parameters_step_as_one():
    def stepped(joined):
        p = parameter(3, 4)
        q = parameter(5, seed=1)
        optimizers = joined([mg.Muon([p], weight_decay=0.1), mg.AdamW([q])])
        for _ in range(3):
            for optimizer in optimizers:
                optimizer.zero_grad()
            ((p * p).sum() + (q * q).sum()).backward()
            for optimizer in optimizers:
                optimizer.step()
                for group in optimizer.param_groups:
                    group["lr"] *= 0.5
        return p.data, q.data, optimizers
    *together, [optimizer] = stepped(lambda parts: [mg.Optimizers(parts)])
    *apart, _ = stepped(list)
    assert all(map(np.array_equal, together, apart))
    assert [kind for kind, *_ in optimizer.state()] == ["momentum", "m", "v"]
    optimizer.zero_grad()
    optimizer.step()        # which is none without a gradient
    assert optimizer.parts[1].steps == 3


def group_of(optimizer, p):
    return next(group for group in optimizer.param_groups if any(q is p for q in group["params"]))


def taken_out(optimizer, p, _):
    group = group_of(optimizer, p)
    group["params"] = [q for q in group["params"] if q is not p]


def given_back(optimizer, p, new):
    taken_out(optimizer, p, new)
    yield
    optimizer.param_groups[-1]["params"].append(p)


def moved(optimizer, p, new):
    to = next(group for group in optimizer.param_groups if group is not group_of(optimizer, p))
    taken_out(optimizer, p, new)
    to["params"].insert(0, p)


def reversed_in_group(optimizer, p, _):
    group_of(optimizer, p)["params"].reverse()


def reversed_groups(optimizer, *_):
    optimizer.param_groups.reverse()


def without_group(optimizer, p, _):
    optimizer.param_groups.remove(group_of(optimizer, p))


def without_groups_of_parts(optimizer, p, _):
    without = group_of(optimizer, p)
    for part in optimizer.parts:
        part.param_groups[:] = [group for group in part.param_groups if group is not without]


def appended(optimizer, p, new):
    group_of(optimizer, p)["params"].append(new)


def added(optimizer, _, new):
    optimizer.parts[0].add_param_group({"params": new})


def given_as_a_group(optimizer, _, new):
    optimizer.parts[0].param_groups.append({"params": (new,)})


GROUP_CHANGES = (taken_out, given_back, moved, reversed_in_group, reversed_groups, without_group,
                 without_groups_of_parts, appended, added, given_as_a_group)


@by_all
@pytest.mark.parametrize("change", GROUP_CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("make", [
    lambda groups: mg.SGD(groups, 0.1, 0.9),
    lambda groups: mg.AdamW(groups, 0.1, weight_decay=0.1),
    lambda groups: mg.Muon(groups, 0.1),
    lambda groups: mg.Optimizers([mg.AdamW(groups, 0.1)])],
    ids=["SGD", "AdamW", "Muon", "Optimizers"])
def test_step_gives_each_parameter_its_own_state_however_the_groups_change(make, change):
    """It equals that of optimisers of a single parameter, which step while a group has it."""
    ps = [parameter(3, 4, seed=seed) for seed in range(5)]
    alone = {p: leaf(p.data) for p in ps}
    of_one = {p: make([{"params": [alone[p]]}]) for p in ps}
    optimizer = make([{"params": ps[:3]}, {"params": ps[3:4]}])
    changes = iter(())
    for seed in range(6):
        if seed == 2:
            changes = iter(change(optimizer, ps[1], ps[4]) or ())
        if seed >= 2:
            next(changes, None)
        for n, p in enumerate(ps):
            p.grad = normal(3, 4, seed=100 * seed + n)
            alone[p].grad = p.grad.copy()
        optimizer.step()
        inside = {p for group in optimizer.param_groups for p in group["params"]}
        for p in ps:
            if p in inside:
                of_one[p].step()
            assert np.array_equal(p.data, alone[p].data)
    state = {(kind, p): a for kind, p, a in optimizer.state()}
    assert {p for _, p in state} == inside
    for (kind, p), a in state.items():
        expected, = [array for other, _, array in of_one[p].state() if other == kind]
        assert np.array_equal(a, expected)


def test_Optimizers_step_a_group_by_its_part_and_refuse_one_of_none():
    p, q, r = (parameter(2, 2, seed=seed) for seed in range(3))
    muon = mg.Muon([p])
    both = mg.Optimizers([muon, mg.AdamW([q])])
    both.param_groups.reverse()
    muon.add_param_group({"params": [r]})
    for each in (p, q, r):
        each.grad = np.ones((2, 2))
    both.step()
    assert [kind for kind, *_ in both.state()] == ["momentum", "momentum", "m", "v"]
    assert [group["params"] for group in both.param_groups] == [[q], [p], [r]]
    before = [each.data.copy() for each in (p, q, r)]
    new = {"params": [parameter(2, 2)]}
    for given in (both.add_param_group, both.param_groups.append):
        assert "optimizers.parts[0].add_param_group(group)" in refusal(
            ValueError, lambda: (given(new), both.step()))
    both.param_groups.pop()
    both.parts[1].param_groups[0]["params"].append(p)
    assert "parameter 3 is parameter 0 again" in refusal(ValueError, both.step)
    assert all(map(np.array_equal, before, [each.data for each in (p, q, r)]))


@pytest.mark.parametrize("make, group, says", [
    (mg.SGD, {"params": parameter(2) * 2}, "requires_grad=True; parameter 1 is Tensor"),
    (mg.AdamW, {"params": [parameter(2, dtype=np.float32)]}, "of one float type"),
    (mg.AdamW, {"params": [parameter(2)], "lr": -1}, "lr is a finite number of at least 0"),
    (mg.SGD, {"lr": 1.0}, 'a group is a dict with its parameters as "params"'),
    (mg.SGD, [parameter(2)], 'as "params", beside settings; this is a list'),
    (mg.Muon, {"params": parameter(2)}, "Muon steps matrices"),
    (mg.Muon, {"params": [parameter(4, 2)], "sections": (2, 3)}, "sections of (2, 3) rows")])
def test_a_group_that_cannot_be_stepped_is_refused_and_nothing_is_stepped(make, group, says):
    p = parameter(3, 3)
    optimizer = make([p])
    assert says in refusal(ValueError, optimizer.add_param_group, group)
    assert len(optimizer.param_groups) == 1
    before = p.data.copy()
    p.grad = np.ones((3, 3))
    optimizer.param_groups.append(group)
    for _ in range(2):
        assert says in refusal(ValueError, optimizer.step)
    assert np.array_equal(p.data, before)
    if says != "lr is a finite number of at least 0":
        return
    group["lr"] = 1
    optimizer.step()
    assert not np.array_equal(p.data, before)


def test_Muon_refuses_sections_that_are_changed_to_other_rows():
    p = parameter(6, 2)
    optimizer = mg.Muon([{"params": [p], "sections": (2, 4)}])
    optimizer.param_groups[0]["sections"] = (2, 3)
    p.grad = np.ones((6, 2))
    before = p.data.copy()
    assert "sections of (2, 3) rows" in refusal(ValueError, optimizer.step)
    assert np.array_equal(p.data, before)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))],
                         ids=["deepcopy", "pickle"])
def test_Optimizer_that_is_copied_with_its_model_steps_the_copy_as_the_original(again):
    model = [parameter(3, 3, seed=seed) for seed in range(3)]
    optimizer = mg.Optimizers([mg.AdamW(model[:1]), mg.Muon(model[1:])])
    for p in model:
        p.grad = np.ones((3, 3))
    optimizer.step()
    copied, its = again((model, optimizer))
    before = [p.data.copy() for p in model]
    for q in copied:
        q.grad = np.ones((3, 3))
    its.param_groups.reverse()
    its.step()
    assert all(map(np.array_equal, before, [p.data for p in model]))
    optimizer.step()
    for p, q in zip(model, copied):
        assert np.array_equal(p.data, q.data)
        assert p is not q
    assert {p for _, p, _ in its.state()} == set(copied)


MAKERS = {
    "SGD": lambda ps, **lr: mg.SGD(ps, momentum=0.9, weight_decay=0.1, **lr),
    "AdamW": mg.AdamW,
    "Muon": mg.Muon,
    "Optimizers": lambda ps, **lr: mg.Optimizers([mg.AdamW(ps[:1], **lr), mg.Muon(ps[1:], **lr)])}
of_every_kind = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


def stepped(optimizer, parameters, steps):
    """Take some steps, each with gradients of its own."""
    for step in steps:
        for n, p in enumerate(parameters):
            if p.requires_grad:
                p.grad = normal(*p.shape, seed=10 * step + n)
        optimizer.step()


@by_all
@of_every_kind
def test_load_state_dict_goes_on_to_the_bit_as_without_it(make):
    ps = [parameter(4, 3, seed=seed) for seed in range(4)]
    optimizer = make(ps[:3], lr=0.1)
    stepped(optimizer, ps[:3], range(2))
    optimizer.parts[-1].add_param_group({"params": ps[3:], "lr": 0.5})      # it missed two steps
    stepped(optimizer, ps, range(2, 4))
    optimizer.param_groups[0]["lr"] = 0.25
    state = optimizer.state_dict()
    saved = pickle.dumps(state)
    again = [leaf(p.data) for p in ps]
    other = make(again[:3], lr=0.3)
    other.parts[-1].add_param_group({"params": again[3:]})
    stepped(other, [leaf(p.data) for p in ps], [7])     # of which nothing is left
    other.load_state_dict(state)
    for each, parameters in ((optimizer, ps), (other, again)):
        stepped(each, parameters, range(4, 7))
    for p, q in zip(ps, again):
        assert p.data.tobytes() == q.data.tobytes()
    arrays = [a for *_, a in optimizer.state()]
    assert len(arrays) == len([*other.state()]) >= 4
    for a, (_, _, b) in zip(arrays, other.state()):
        assert a.tobytes() == b.tobytes()
    assert pickle.dumps(state) == saved


def test_load_state_dict_finds_parameters_by_their_names_else_by_their_order():
    first, second = parameter(2, 3, seed=1), parameter(2, 3, seed=2)
    optimizer = mg.AdamW([("a", first), ("b", second)])
    stepped(optimizer, [first, second], range(3))
    state = optimizer.state_dict()
    assert state["param_groups"][0]["param_names"] == ["a", "b"]
    assert state["param_groups"][0]["params"] == [0, 1]
    by_name = mg.AdamW(iter([("b", leaf(second.data)), ("a", leaf(first.data))]))
    by_order = mg.AdamW([leaf(second.data), leaf(first.data)])
    for other, order in ((by_name, "ba"), (by_order, "ab")):
        other.load_state_dict(state)
        for p, name in zip(other.param_groups[0]["params"], order):
            assert np.array_equal(other.m[p], optimizer.m[first if name == "a" else second])
    other = mg.AdamW({"params": [("a", parameter(2, 3)), ("c", parameter(2, 3))]}
                     for _ in range(1))
    assert refusal(ValueError, other.load_state_dict, state) == (
        "group 0 of the state does not have c; it has a, b")


def without_m(state):
    del state["state"][1]["m"]


@pytest.mark.parametrize("change, says", [
    (lambda s: s.update(extra=1),
     "the state of AdamW has steps, param_groups, state, and this has steps, param_groups, state, "
     "extra; it is made by state_dict()"),
    (lambda s: s.update(steps=-1), "steps are a whole number of at least 0, not -1"),
    (lambda s: s["param_groups"].append({}), "the state has 2 groups of parameters, and this AdamW "
                                             "1"),
    (lambda s: s["param_groups"][0]["params"].pop(),
     "group 0 has 2 parameters, and 1 in the state"),
    (lambda s: s["param_groups"][0].update(lr=-1.0), "lr is a finite number of at least 0, not -1"),
    (without_m, "the state of parameter 1 has m, v, missed, and this has v, missed; it is made by"),
    (lambda s: s["state"][1].update(v=np.ones((3, 2))),
     "parameter 1 is float64[2, 3], and its v in the state is float64[3, 2]"),
    (lambda s: s["state"][1].update(v=np.ones((2, 3), complex)),
     "parameter 1 is float64[2, 3], and its v in the state is complex128[2, 3]")])
def test_load_state_dict_names_what_does_not_fit_and_changes_nothing(change, says):
    ps = [parameter(2, 3, seed=seed) for seed in range(2)]
    optimizer = mg.AdamW(ps)
    stepped(optimizer, ps, range(2))
    state = optimizer.state_dict()
    change(state)
    ps = [parameter(2, 3, seed=seed) for seed in range(2)]
    other = mg.AdamW(ps)
    assert says in refusal(ValueError, other.load_state_dict, state)
    assert other.steps == 0 and not any(a.any() for *_, a in other.state())
    assert other.param_groups[0]["lr"] == 1e-3


def test_load_state_dict_refuses_the_state_of_another_optimiser():
    ps = [parameter(2, 3), parameter(2, 3)]
    one, two = mg.AdamW(ps), mg.Optimizers([mg.SGD(ps[:1]), mg.Muon(ps[1:])])
    assert "the state of parameter 0 has m, v, missed, and this has momentum, missed" in refusal(
        ValueError, one.load_state_dict, mg.Muon(ps).state_dict())
    assert "the state of Optimizers has parts, and this has steps" in refusal(
        ValueError, two.load_state_dict, one.state_dict())
    assert "the state is that of 1 optimiser, and these are 2" in refusal(
        ValueError, two.load_state_dict, mg.Optimizers([mg.SGD(ps)]).state_dict())
    assert "and this has float64[3]" in refusal(ValueError, one.load_state_dict, np.ones(3))


@by_all
@of_every_kind
def test_step_leaves_a_frozen_parameter_as_it_is_until_it_is_thawed(make):
    ps = [parameter(4, 3, seed=seed) for seed in range(3)]
    frozen, always = ps[1:]
    always.requires_grad = False
    optimizer = make(ps, lr=0.1)
    stepped(optimizer, ps, range(2))
    state = {kind: a.copy() for kind, p, a in optimizer.state() if p is frozen}
    assert state
    frozen.requires_grad = False
    before = [p.data.copy() for p in ps]
    mg.clip_grad_norm_(ps, 1.0)
    stepped(optimizer, ps, range(2, 4))
    optimizer.zero_grad()
    assert not np.array_equal(ps[0].data, before[0])
    assert all(np.array_equal(p.data, a) for p, a in zip(ps[1:], before[1:]))
    assert all(np.array_equal(a, state[kind]) for kind, p, a in optimizer.state() if p is frozen)
    assert not [p for _, p, _ in optimizer.state() if p is always]
    make([leaf(ps[0].data), *ps[1:]], lr=0.1).load_state_dict(optimizer.state_dict())
    for p in ps[1:]:
        p.requires_grad = True
        stepped(optimizer, ps, [5])
        assert not np.array_equal(p.data, before[1 if p is frozen else 2])


def test_step_of_SGD_goes_on_with_the_momentum_that_a_thawed_parameter_had():
    p, alone = parameter(2, 3), parameter(2, 3)
    optimizer, expected = mg.SGD([p], 0.1, 0.9), mg.SGD([alone], 0.1, 0.9)
    for step in range(4):
        p.requires_grad = step != 1
        stepped(optimizer, [p], [step])
        if step != 1:
            stepped(expected, [alone], [step])
    assert np.array_equal(p.data, alone.data)


P = parameter(3, 3)
FROZEN = parameter(3, 3)
FROZEN.requires_grad = False
WIDER = parameter(6, 4)
CHANGED = parameter(2, 2)
CHANGED._data = CHANGED.data.astype(np.float32)


@pytest.mark.parametrize("make, parameters, says", [
    (mg.AdamW, [], "no parameter to optimise"),
    (mg.SGD, [P, Tensor(np.ones(2))], r"; parameter 1 is Tensor\(float64\[2\], constant\)"),
    (mg.AdamW, [P, np.ones(2)], r"requires_grad=True; parameter 1 is float64\[2\]"),
    (mg.AdamW, [P * 2], r"requires_grad=True; parameter 0 is Tensor\(float64\[3, 3\], multiply\)"),
    (mg.AdamW, P, r"requires_grad=True; parameter 0 is Tensor\(float64\[3\], take\)"),
    (mg.AdamW, [P, WIDER, P], "parameter 2 is parameter 0 again, and would be stepped twice"),
    (mg.Muon, [{"params": [P]}, {"params": [WIDER, P]}], "parameter 2 is parameter 0 again"),
    (mg.SGD, [P, copy.copy(P)], "parameter 1 is parameter 0 again"),
    (mg.SGD, [P, FROZEN, FROZEN], "parameter 2 is parameter 1 again"),
    (mg.AdamW, [P, parameter(2, dtype=np.float32)],
     "of one float type; parameter 0 is float64, and parameter 1 float32; make an optimiser for"),
    (mg.AdamW, [P, CHANGED],
     r"1 was made as float64\[2, 2\], and its data is float32\[2, 2\]; give"),
    (mg.Muon, [parameter(3)], r"steps matrices, and this has the shape \[3\]; give it"),
    (mg.Muon, [{"params": [WIDER], "sections": (2, 3)}],
     r"sections of \(2, 3\) rows .* the shape \[6, 4\]")])
def test_Optimizer_refuses_what_it_cannot_step(make, parameters, says):
    with pytest.raises(ValueError, match=says):
        make(parameters)


BAD_NUMBERS = -1e-9, math.nan, math.inf, "0.1", None, np.ones(1), 1j
BAD_BETAS = (0.9, (0.9,), (0.9, 1.0), (-0.1, 0.9), (math.nan, 0.9), "12", (0.9, "x"),
             (0.9, 0.99, 0.999), None)


@pytest.mark.parametrize("make, names, bad_ones, says", [
    (mg.SGD, ("lr", "momentum", "weight_decay"), BAD_NUMBERS, "is a finite number of at least 0"),
    (mg.AdamW, ("lr", "eps", "weight_decay"), BAD_NUMBERS, "is a finite number of at least 0"),
    (mg.Muon, ("lr", "momentum", "weight_decay"), BAD_NUMBERS, "is a finite number of at least 0"),
    (mg.AdamW, ["betas"], BAD_BETAS, "are two numbers of at least 0 and below 1")])
def test_Optimizer_refuses_settings_that_are_no_numbers_from_0_on(make, names, bad_ones, says):
    for name, bad in itertools.product(names, bad_ones):
        message = f"{name} {says}, not {bad!r}"
        assert message == refusal(ValueError, make, [P], **{name: bad})
        assert message == refusal(ValueError, make, [{"params": [P], name: bad}])
        p = parameter(3, 3)
        optimizer = make([p])
        optimizer.param_groups[0][name] = bad           # as a schedule might
        before = p.data.copy()
        p.grad = np.ones((3, 3))
        assert message == refusal(ValueError, optimizer.step)
        assert np.array_equal(p.data, before)
        assert optimizer.steps == 0


@pytest.mark.parametrize("f, name, says, bad_ones", [
    (mg.Muon, "ns_steps", "whole number of at least 1", (0, -1, 2.5, math.nan, "3")),
    (mg.clip_grad_norm_, "max_norm", "number of at least 0", (-1.0, math.nan, "1", None))])
def test_a_setting_that_is_no_number_of_its_range_is_refused(f, name, says, bad_ones):
    p = parameter(3, 3)
    p.grad = np.ones((3, 3))
    for bad in bad_ones:
        assert refusal(ValueError, f, [p], **{name: bad}) == f"{name} is a {says}, not {bad!r}"
    assert (p.grad == 1).all()


def in_the_other_type(a):
    return a.astype(np.float32 if a.itemsize == 8 else np.float64)


@by_all
@both_types
@of_each
@pytest.mark.parametrize("part, change", [
    ("data", in_the_other_type),
    ("data", lambda a: np.concatenate([a, a, a])),
    ("data", lambda a: a[:-1]),
    ("data", lambda a: a[0]),
    ("data", lambda a: a.astype(int)),
    ("data", lambda a: a.tolist()[0]),
    ("data", lambda a: a.astype(a.dtype.newbyteorder())),
    ("state", in_the_other_type),
    ("state", lambda a: a[:2])])
def test_step_refuses_data_and_state_that_have_not_the_shape_and_type_of_their_parameter(
        part, change, make, dtype):
    first = parameter(4, 5, dtype=dtype)
    p = parameter(300, 80, dtype=dtype)
    optimizer = make([first, p])
    (p.sum() + first.sum()).backward()
    if part == "data":
        p._data = np.asarray(change(p.data))        # as no setter allows
    else:
        arrays = getattr(optimizer, optimizer.STATE[-1])
        arrays[p] = change(arrays[p])
    before = first.data.copy()
    says = refusal(ValueError, optimizer.step)
    kind = optimizer.STATE[-1] if part == "state" else part
    assert f"parameter 1 was made as {first.dtype}[300, 80], and its {kind} is " in says
    assert f"array.astype(np.{first.dtype})" in says
    assert np.array_equal(first.data, before)
    assert optimizer.steps == 0      # nothing is stepped


def strided(a):
    room = np.zeros((2 * a.shape[0], 3 * a.shape[1]), a.dtype)
    room[::2, ::3] = a
    return room[::2, ::3]


def read_only(a):
    a = a.copy()
    a.flags.writeable = False
    return a


def reversed_rows(a):
    return a[::-1].copy()[::-1]


@by_all
@both_types
@of_each
def test_step_takes_data_gradient_and_state_that_lie_in_memory_in_any_way(make, dtype):

    def stepped(prepare):
        p = parameter(30, 8, dtype=dtype)
        optimizer = make([p], lr=0.1)
        for seed in range(3):
            p.data = prepare(p.data)
            p.grad = prepare(normal(30, 8, seed=seed, dtype=dtype))
            for kind in optimizer.STATE:
                arrays = getattr(optimizer, kind)
                arrays[p] = prepare(arrays[p])
            mg.clip_grad_norm_([p], 0.5)
            optimizer.step()
        return p.data
    expected = stepped(np.array)
    for prepare in (np.asfortranarray, strided, read_only, reversed_rows):
        assert np.allclose(stepped(prepare), expected, rtol=20 * np.finfo(dtype).eps, atol=0)


def locked(p, _):
    p.data.flags.writeable = False


def replaced(prepare):
    def change(p, optimizer):
        p.data = prepare(p.data)
        for kind in optimizer.STATE:
            arrays = getattr(optimizer, kind)
            arrays[p] = prepare(arrays[p])
    return change


@by_all
@of_each
@pytest.mark.parametrize("change", [
    locked,
    replaced(np.copy),
    replaced(strided),
    replaced(read_only),
    replaced(np.asfortranarray),
    replaced(lambda a: np.stack([a, a])[1])])
def test_step_takes_arrays_that_were_replaced_since_the_last_step(change, make):
    def stepped(change):
        p = parameter(30, 8)
        q = parameter(8, 4, seed=1)
        optimizer = make([p, q], lr=0.1)
        first = p.data
        for seed in range(3):
            p.grad = normal(30, 8, seed=seed)
            q.grad = normal(8, 4, seed=seed)
            optimizer.step()
            if seed == 0:
                before = first.copy()
                change(p, optimizer)
        return p.data, q.data, np.array_equal(first, before)
    *expected, _ = stepped(lambda *_: None)
    *changed, first_stays = stepped(change)
    assert first_stays                  # what was replaced is written into no more
    for x, y in zip(changed, expected):
        assert np.allclose(x, y, rtol=1e-13, atol=0)


@by_all
@of_each
@pytest.mark.parametrize("change", [
    in_the_other_type,
    lambda a: a[:-1],
    lambda a: a.reshape(8, 30),
    lambda a: a.reshape(-1)])
@pytest.mark.parametrize("part", ["data", "state"])
def test_step_refuses_arrays_that_were_replaced_since_the_last_step(part, change, make):
    first = parameter(4, 5)
    p = parameter(30, 8)
    optimizer = make([first, p])
    for seed in range(2):
        first.grad = normal(4, 5, seed=seed)
        p.grad = normal(30, 8, seed=seed)
        optimizer.step()
    steps = optimizer.steps
    if part == "data":
        p._data = change(p.data)        # as no setter allows
    else:
        arrays = getattr(optimizer, optimizer.STATE[-1])
        arrays[p] = change(arrays[p])
    before = [array.copy() for array in (first.data, p.data)]
    assert "parameter 1 was made as float64[30, 8], and its " in refusal(ValueError, optimizer.step)
    assert all(map(np.array_equal, before, [first.data, p.data]))
    assert optimizer.steps == steps


def test_Optimizers_step_nothing_where_one_of_them_refuses():
    p = parameter(3, 3)
    q = parameter(2, 2)
    both = mg.Optimizers([mg.Muon([p]), mg.Optimizers([mg.AdamW([q])])])
    p.grad = np.ones((3, 3))
    q.grad = np.ones((2, 2))
    both.step()
    before = p.data.copy()
    loss = (p * p).sum()
    q._data = q.data[0]
    assert "and its data is float64[2]" in refusal(ValueError, both.step)
    assert np.array_equal(p.data, before)
    loss.backward()                     # as nothing that it has read was changed
    assert [kind for kind, *_ in both.state()] == ["momentum", "m", "v"]


@by_all
@pytest.mark.parametrize("make", [mg.AdamW, mg.SGD])
def test_step_takes_a_number_that_numpy_has_made_no_array(make):
    p = parameter()
    optimizer = make([p], lr=0.25, weight_decay=0)
    p.data = p.data * 0 + 1.0
    assert type(p.data) is np.ndarray
    p.sum().backward()
    optimizer.step()
    assert math.isclose(p.item(), 0.75, rel_tol=1e-7)


@by_all
@pytest.mark.parametrize("lr, betas, moved", [
    (1, (0, 0), 2),         # each step is lr in size; all settings are whole numbers
    (0.01, (0.9, 0.0), 0.01 + 0.01 * (0.09 + 1e-5) / 0.19 / 1e-4)])
def test_AdamW_forgets_a_gradient_where_a_beta_is_0(lr, betas, moved):
    """Also one beside which the next is lost in rounding."""
    p = leaf([0.0], np.float32)
    optimizer = mg.AdamW([p], lr=lr, betas=betas, eps=0, weight_decay=0)
    for g in (1.0, 1e-4):
        p.grad = np.float32([g])
        optimizer.step()
    assert math.isclose(p.data[0], -moved, rel_tol=1e-6)


def test_AdamW_corrects_a_late_first_gradient_by_the_steps_of_all():
    """As its docstring says."""
    early = leaf([0.0])
    late = leaf([0.0])
    optimizer = mg.AdamW([early, late], lr=0.1, betas=(0.9, 0.99), eps=0, weight_decay=0)
    for step in range(11):
        early.grad = np.array([2.0])
        late.grad = np.array([2.0]) if step == 10 else None
        optimizer.step()
    assert math.isclose(early.data[0], -1.1, rel_tol=1e-9)
    m = 0.1 * 2
    v = 0.01 * 4
    expected = 0.1 * m / (1 - 0.9 ** 11) / math.sqrt(v / (1 - 0.99 ** 11))
    assert math.isclose(late.data[0], -expected, rel_tol=1e-9)
    assert "steps`, which are counted for all parameters together" in mg.AdamW.__doc__


@pytest.mark.parametrize("first, norm, scaled", [
    (3.0, 5, [0.6, 0]),
    (np.inf, np.inf, [np.inf, 0]),
    (np.nan, np.nan, [np.nan, 0])])
def test_clip_grad_norm_scales_all_gradients_together_if_their_norm_is_finite(first, norm, scaled):
    p = parameter(2)
    q = parameter(1)
    idle = parameter(1)
    p.grad, q.grad = np.array([first, 0.0]), np.array([4.0])
    np.testing.assert_allclose(mg.clip_grad_norm_([p, q, idle], 1.0), norm)
    np.testing.assert_allclose(p.grad, scaled)
    assert np.allclose(q.grad, 0.8 if norm == 5 else 4)
    if norm == 5:           # a norm below the limit changes nothing
        assert math.isclose(mg.clip_grad_norm_([p, q], 2.0), 1)
        assert np.allclose(p.grad, scaled)


@pytest.mark.parametrize("size", [2, 500_000])
def test_clip_grad_norm_scales_a_gradient_once_that_two_parameters_share(size):
    p, q = leaf(np.zeros(size)), leaf(np.zeros(size))
    p.grad = q.grad = np.full(size, 3.0)
    norm = mg.clip_grad_norm_([p, q], 1.0)
    np.testing.assert_allclose(norm, 3 * math.sqrt(2 * size))
    np.testing.assert_allclose(p.grad, 3 / norm)
    assert p.grad is q.grad


def test_clip_grad_norm_counts_a_parameter_once_and_scales_a_gradient_that_was_read_only():
    p = parameter(2)
    given = read_only(np.array([3.0, 4.0]))
    p.grad = given
    assert mg.clip_grad_norm_([p, p], 1.0) == 5
    assert np.allclose(p.grad, [0.6, 0.8])
    assert np.array_equal(given, [3, 4])


def test_warm_up_rises_by_equal_parts_and_stays_at_1():
    assert np.allclose([warm_up(i, 3) for i in range(6)], [0.25, 0.5, 0.75, 1, 1, 1], rtol=1e-15)
    assert warm_up(0, 0) == 1


def test_cosine_falls_by_half_a_cosine_from_the_end_of_the_warm_up():
    assert [cosine(at, 0.25) for at in (0, 0.25, 1, 1.5)] == [1, 1, 0, 0]
    assert np.allclose([cosine(at, 0.25) for at in (0.5, 0.625)], [0.75, 0.5], rtol=1e-15)
    assert cosine(0.5) == 0.5
    assert cosine(0.9, 1.0) == 1
    assert cosine(1.0, 1.0) == 0


def test_linear_decay_stays_at_1_and_falls_over_its_last_share():
    assert np.allclose([linear_decay(at, 0.25) for at in (0, 0.75, 0.8, 0.875, 1, 1.5)],
                       [1, 1, 0.8, 0.5, 0, 0], rtol=1e-15)
    assert linear_decay(0.25) == 0.75


class SignDescent(mg.optim.Optimizer):
    """One without state."""

    def __init__(self, parameters):
        super().__init__(parameters, dict(lr=0.5))

    def update(self, with_gradients):
        for group, p in with_gradients:
            p.data -= group["lr"] * np.sign(p.grad)


def test_an_optimizer_without_state_begins_each_parameter_once_and_loads_what_it_has_saved(
        monkeypatch):
    begun = []
    begin = SignDescent._begin
    monkeypatch.setattr(SignDescent, "_begin", lambda self, p: begun.append(p) or begin(self, p))
    ps = [parameter(2, 3), parameter(3, seed=1)]
    ps[1].requires_grad = False
    optimizer = SignDescent(ps)
    stepped(optimizer, ps, range(3))
    ps[1].requires_grad = True
    stepped(optimizer, ps, range(3, 6))
    assert begun == ps
    other = SignDescent([leaf(p.data) for p in ps])
    other.load_state_dict(optimizer.state_dict())
    assert other.state_dict() == optimizer.state_dict()
