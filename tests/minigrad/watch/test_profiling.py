"""Where the time goes: every op and part of a step counted, and nothing outside."""
import numpy as np
import pytest

import minigrad as mg
from minigrad.core import Event


def square_sum(n=1):
    x = mg.Tensor(np.ones(3), requires_grad=True)
    for _ in range(n):
        y = (x * x).sum()
        y.backward()
    return x


def test_every_op_is_counted_forward_and_backward():
    profile = mg.Profile()
    for _ in range(3):
        with profile:
            square_sum(2)
    assert profile.steps == 3
    assert profile.calls == {"multiply": 6, "sum": 6}
    assert profile.seconds.keys() == {(op, way) for op in ("multiply", "sum")
                                      for way in ("forward", "backward")}
    assert 0 < sum(profile.seconds.values()) < profile.total


def test_nothing_is_noted_outside_even_after_an_error():
    profile = mg.Profile()
    with pytest.raises(ValueError), profile:
        mg.matmul(np.ones((2, 3)), np.ones((2, 3)))
    noted = dict(profile.seconds)
    square_sum()
    assert profile.seconds == noted


def test_clipping_and_every_optimiser_are_parts_of_their_own():
    p = mg.Tensor(np.ones((2, 2)), requires_grad=True)
    optimizers = mg.Optimizers([mg.AdamW([p]), mg.Muon([p])]), mg.SGD([p])
    with mg.Profile() as profile:
        p.sum().backward()
        mg.clip_grad_norm_([p], 1.0)
        for optimizer in optimizers:
            optimizer.step()
    assert [name for name, way in profile.seconds if way == "part"] == [
        "clipping", "AdamW", "Muon", "SGD"]
    assert profile.calls == {"sum": 1}


def test_a_table_may_be_asked_for_before_the_first_step_ends():
    profile = mg.Profile()
    with profile:
        mg.Tensor(np.ones(3)).exp()
        assert "exp" in profile.table()


def test_a_profile_changes_no_gradient():
    with mg.Profile():
        inside = square_sum()
    assert np.array_equal(inside.grad, square_sum().grad)


def test_the_table_has_a_line_for_each_op_the_costliest_first_and_adds_up():
    profile = mg.Profile()
    profile.steps, profile.total = 2, 0.010
    for op, direction, seconds in (("add", "forward", 0.001), ("gelu", "forward", 0.002),
                                   ("gelu", "backward", 0.004)):
        profile._note(Event(op, direction, seconds, None, [], []))
    for part, seconds in ("clipping", 0.0005), ("AdamW", 0.001):
        profile._note(Event(part, "part", seconds, None, [], []))
    lines = [line.split() for line in profile.table().splitlines()]
    assert lines[0] == "ms a step, of 2 calls forward backward both share".split()
    assert lines[1] == ["gelu", "0.5", "1.00", "2.00", "3.00", "60%"]
    assert lines[2] == ["add", "0.5", "0.50", "-", "0.50", "10%"]
    assert [line[-2:] for line in lines[3:7]] == [
        ["3.50", "70%"], ["0.25", "5%"], ["0.50", "10%"], ["0.75", "15%"]]
    assert lines[3][:4] == ["all", "ops", "1.50", "2.00"] and lines[4][0] == "clipping"
    assert lines[5][0] == "AdamW" and lines[7] == ["a", "step", "5.00", "100%"]
