"""What is read from events of ops: whole gradients, ops that return their input; and the end."""
import numpy as np
import pytest

import minigrad as mg
from minigrad.watch.events import Watcher, gradients, passes_on
from tests.kit import leaf


class Seen(Watcher):
    """Keeps what `read` returns of each event."""

    def __init__(self, read, direction="forward"):
        self.kept = []
        self._read = read
        self._direction = direction

    def _note(self, event):
        if event.direction == self._direction:
            self.kept.append(self._read(event))


def test_a_gradient_that_an_op_adds_in_place_is_whole():
    x = leaf([1.0, 2.0, 3.0])
    with Seen(lambda event: list(gradients(event)), "backward") as seen:
        (3.0 * x[np.array([2, 2, 0])]).sum().backward()
    node, part = seen.kept[-1][0]
    assert node is x.node and np.array_equal(part, [3, 0, 6]) and np.array_equal(part, x.grad)


def test_an_op_that_returns_its_input_is_known():
    x = leaf([1.0, 2.0])
    with Seen(passes_on) as seen:
        mg.dropout(x, 0.5)
        mg.dropout(x, 0.5, np.random.default_rng(0))
        x * 1.0
    assert seen.kept == [True, False, False]


def test_watching_ends_with_the_block_also_after_an_error_and_does_not_end_another_watch():
    with Seen(lambda event: event.op) as outer:
        with pytest.raises(ZeroDivisionError), Seen(lambda event: event.op) as inner:
            mg.exp(np.ones(1))
            1 / 0
        mg.log(np.ones(1))
    mg.sqrt(np.ones(1))
    assert inner.kept == ["exp"] and outer.kept == ["exp", "log"]
