"""Where the time goes: every op and part of a step is counted, and nothing outside."""
import time

import numpy as np

import minigrad as mg
from minigrad.plug import Event
from tests.kit import leaf


def square_sum():
    x = leaf(np.ones(3))
    (x * x).sum().backward()
    return x


def test_every_op_is_counted_forward_and_backward_and_no_gradient_changes():
    profile = mg.Profile()
    begun = time.perf_counter()
    for _ in range(3):
        with profile:
            assert np.array_equal(square_sum().grad, [2, 2, 2])
            square_sum()
    square_sum()            # outside
    assert profile.steps == 3 and profile.calls == {"multiply": 6, "sum": 6}
    assert profile.seconds.keys() == {(op, way) for op in ("multiply", "sum")
                                      for way in ("forward", "backward")}
    assert 0 < sum(profile.seconds.values()) < profile.total < time.perf_counter() - begun


def test_clipping_and_every_optimiser_are_parts_of_their_own():
    p, q = [leaf(np.ones((2, 2)), np.float32) for _ in range(2)]
    optimizers = mg.Optimizers([mg.AdamW([p]), mg.Muon([q])]), mg.SGD([p])
    with mg.Profile() as profile:
        (p + q).sum().backward()
        mg.clip_grad_norm_([p, q], 1.0)
        for optimizer in optimizers:
            optimizer.step()
        assert "sum" in profile.table()         # also before the first step ends
    assert [name for name, way in profile.seconds if way == "part"] == [
        "clipping", "AdamW", "Muon", "SGD"]
    assert profile.calls == {"add": 1, "sum": 1}


def test_the_table_has_a_line_for_each_op_the_costliest_first_and_adds_up():
    profile = mg.Profile()
    profile.steps = 2
    profile.total = 0.010
    for event in (("add", "forward", 0.001), ("gelu", "forward", 0.002),
                  ("gelu", "backward", 0.004), ("made before", "backward", 0.0002),
                  ("clipping", "part", 0.0005),
                  ("AdamW", "part", 0.001)):
        profile._note(Event(*event, None, [], []))
    assert [line.split() for line in profile.table().splitlines()] == [line.split() for line in (
        "ms a step, of 2 calls forward backward both share", "gelu 0.5 1.00 2.00 3.00 60%",
        "add 0.5 0.50 - 0.50 10%", "made before - - 0.10 0.10 2%",
        "all ops 1.50 2.10 3.60 72%", "clipping 0.25 5%", "AdamW 0.50 10%",
        "between ops and parts 0.65 13%", "a step 5.00 100%")]
