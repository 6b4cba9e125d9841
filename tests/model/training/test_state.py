"""The state of a run: kept exactly, and what it counts."""
import json
import math

import pytest

from model.run import State


def test_a_state_survives_json_exactly():
    state = State(seed=3)
    for i in range(5):
        state.note_step(1 / (i + 3), 0.1)
        state.batches.random(7), state.dropout.random()
    assert state.note_evaluation(2.0) and not state.note_evaluation(2.5)
    state.note_step(0.1 + 0.2, 1e-3)
    state.note_step(1e17, 1e-3)         # above all whole numbers that a float has
    other = State(seed=4)
    other.restore(json.loads(json.dumps(state.saved())))
    assert other.saved() == state.saved()
    assert other.batches.random() == state.batches.random()
    assert other.dropout.random() == state.dropout.random()
    assert State(seed=3).batches.random() != State(seed=3).dropout.random()


@pytest.mark.parametrize("change", [
    {"iteration": "7"}, {"iteration": True}, {"iteration": 1.0}, {"iteration": -1},
    {"iteration": 10 ** 400}, {"best": None}, {"best": math.nan}, {"losses": 3}, {"losses": ["a"]},
    {"skipped": 1}, {"skipped": -1}, {"note_step": 1}, {"more": 1}, {"batches": None},
    {"batches": {}}, {"dropout": {"bit_generator": "MT19937"}}, {"dropout": []}], ids=str)
def test_a_state_of_another_kind_is_refused_in_a_line(change):
    state = State(seed=0)
    with pytest.raises(ValueError, match="^no run can go on (from|after) .*train anew") as caught:
        state.restore(state.saved() | change)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


@pytest.mark.parametrize("change", [
    {"state": {"state": 10 ** 400, "inc": 1}}, {"state": {"state": -1, "inc": 1}}, {"state": 3},
    {"has_uint32": "a"}, {"uinteger": 2 ** 80}, {"bit_generator": "PCG65"}], ids=str)
def test_a_generator_that_cannot_be_is_refused_in_a_line(change):
    saved = State(seed=0).saved()
    with pytest.raises(ValueError, match="^no run can go on from 'batches'"):
        State(seed=0).restore(saved | {"batches": saved["batches"] | change})


def test_speed_is_0_where_no_time_has_passed():
    state = State(seed=0)
    state.note_step(1.0, 0.0)
    assert state.since_evaluation(10) == (1.0, 0.0)


def spikes(losses):
    """The steps at which a state says that a loss is far above the usual."""
    state, said = State(seed=0), []
    for step, loss in enumerate(losses, 1):
        usual = state.spike(loss)
        state.note_step(loss, 0.1)
        if usual is not None:
            said.append((step, usual))
    return said


def test_a_spike_is_what_lies_far_above_the_usual_losses_and_is_said_once():
    usual = [1.9, 2.0, 2.1] * 40                    # a deviation of 0.15
    assert spikes([4.0, *usual]) == [] and spikes(usual[:49] + [9.0]) == []
    assert spikes(usual[:50] + [9.0]) == [(51, 2.0)]
    assert spikes([*usual, 3.1]) == [] and spikes([*usual, 3.3]) == [(121, 2.0)]
    calm = [2.0] * 120
    assert spikes([*calm, 2.59]) == [] and spikes([*calm, 2.61]) == [(121, 2.0)]
    assert spikes([*usual, 5.0, 2.0, 5.0, *usual[:18], 5.0, 5.0]) == [(121, 2.0)]
    assert spikes([*usual, 5.0, *usual[:20], 5.0]) == [(121, 2.0), (142, 2.0)]
    assert len(spikes(calm + [4.0] * 300)) == 1     # what stays is the new usual


def test_a_state_remembers_the_usual_losses_and_counts_skipped_steps():
    state = State(seed=0)
    for i in range(150):
        state.note_step(float(i), 0.1)
    assert state.recent == [float(i) for i in range(50, 150)]
    state.note_skip(0.5), state.note_skip(0.5)
    assert (state.iteration, state.skipped, state.skipped_in_row) == (152, 2, 2)
    state.note_step(1.0, 0.1), state.note_skip(0.5)
    assert (state.iteration, state.skipped, state.skipped_in_row) == (154, 3, 1)


def test_a_state_averages_what_came_since_the_last_evaluation():
    state = State(seed=0)
    assert state.since_evaluation(100) == (None, 0.0)
    state.note_step(3.0, 1.0)
    state.note_evaluation(2.0)
    state.note_step(2.0, 0.5)
    state.note_step(1.0, 1.5)
    assert state.since_evaluation(100) == (1.5, 100.0) and state.seconds == 3
