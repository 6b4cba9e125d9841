"""What a run keeps: its state exactly, its log without double lines; and what it evaluates."""
import csv
import json
import math
import os
import signal
import threading

import numpy as np
import pytest

import data
from data import IGNORE
from model import Transformer, TransformerConfig
from model.training.state import (Interrupts, Log, State, decayed_and_other, evaluate,
                                  packed_and_other_matrices, read_log)


def test_an_evaluation_is_the_mean_over_every_target_once():
    ids = np.random.default_rng(0).integers(9, size=200)
    model = Transformer(TransformerConfig(9, 16, 1, 1, 8, dropout=0.5), dtype=np.float64)
    x, y = data.windows(ids, 16)
    logits = model(x).data
    log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    counted = y != IGNORE
    chosen = np.take_along_axis(log_p, np.where(counted, y, 0)[..., None], axis=-1)[..., 0]
    expected = -chosen[counted].mean()
    assert counted.sum() == 199
    for batch_size in (1, 5, 100):
        assert np.isclose(evaluate(model, x, y, batch_size), expected, rtol=1e-10)


def test_a_state_survives_json_exactly():
    state = State(seed=3)
    for i in range(5):
        state.note_step(1 / (i + 3), 0.1)
        state.batches.random(7), state.dropout.random()
    assert state.note_evaluation(2.0) and not state.note_evaluation(2.5)
    state.note_step(0.1 + 0.2, 1e-3)
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


def test_a_resumed_log_has_no_line_twice_and_keeps_the_earlier_ones(tmp_path):
    path = tmp_path / "log.csv"
    log = Log(path, start=None)
    for i in (0, 10, 20):
        log.write(i, None if i == 0 else 2.0, 2.5, 1e-3, 1000.0, 1.0)
    Log(path, start=10).write(20, 1.0, 1.5, 1e-3, 1000.0, 2.0)
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert [row[0] for row in rows] == ["iter", "0", "10", "20"]
    assert rows[1][1] == "" and rows[3] == ["20", "1.000000", "1.500000", "0.001", "1000", "2.00"]
    Log(path, start=0)
    assert len(path.read_text(encoding="utf-8").splitlines()) == 2
    Log(path, start=None)
    assert len(path.read_text(encoding="utf-8").splitlines()) == 1


def test_a_log_is_read_as_it_was_written(tmp_path):
    log = Log(tmp_path / "log.csv", start=None)
    assert read_log(log.path) == []
    log.write(0, None, 4.5, 1e-5, 0.0, 0.0), log.write(10, 2.25, 2.5, 1e-3, 1000.0, 1.25)
    assert read_log(log.path) == [[0, None, 4.5, 1e-5, 0, 0], [10, 2.25, 2.5, 1e-3, 1000, 1.25]]


@pytest.mark.parametrize("cut", ["20,1.0", "20,1,1.5,1e-3,1000,2", "2"])
def test_a_line_that_was_cut_is_dropped_without_a_word(tmp_path, capsys, cut):
    log = Log(tmp_path / "log.csv", start=None)
    log.write(0, None, 4.5, 1e-5, 0.0, 0.0), log.write(10, 2.25, 2.5, 1e-3, 1000.0, 1.25)
    whole = log.path.read_bytes()
    log.path.write_bytes(whole + cut.encode())
    Log(log.path, start=10)
    assert log.path.read_bytes() == whole and not capsys.readouterr().err


@pytest.mark.parametrize("damage", [
    lambda whole: None, lambda whole: b"", lambda whole: whole.replace(b"10,", b"1x,"),
    lambda whole: whole[:-40], lambda whole: b"\xff" * 50,
    lambda whole: whole.replace(b"4.5", b"4,5"),
    lambda whole: whole.replace(b"10,", b"9" * 5000 + b",")])
def test_a_log_that_lacks_lines_is_said_to_and_the_others_are_kept(tmp_path, capsys, damage):
    log = Log(tmp_path / "log.csv", start=None)
    log.write(0, None, 4.5, 1e-5, 0.0, 0.0), log.write(10, 2.25, 2.5, 1e-3, 1000.0, 1.25)
    damaged = damage(log.path.read_bytes())
    log.path.unlink() if damaged is None else log.path.write_bytes(damaged)
    Log(log.path, start=10).write(20, 1.0, 1.5, 1e-3, 1000.0, 2.0)
    what = "not there" if damaged is None else "damaged"
    assert f"warning: {log.path} is {what}; of its lines " in capsys.readouterr().err
    lines = read_log(log.path)
    assert len(lines) in (1, 2) and lines[-1] == [20, 1, 1.5, 1e-3, 1000, 2]


def test_a_log_is_whole_whenever_it_is_read(tmp_path, monkeypatch):
    log, seen = Log(tmp_path / "log.csv", start=None), []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: (seen.append(read_log(log.path)), real(number)))
    log.write(0, None, 4.5, 1e-5, 0.0, 0.0), log.write(10, 2.25, 2.5, 1e-3, 1000.0, 1.25)
    assert [len(lines) for lines in seen[::len(seen) // 2]] == [0, 1]


@pytest.mark.parametrize("lines", [
    "", "iter,train_loss\n1,2\n", "{}\n0,,4.1,4e-5,0", "{}\n0,,4.1,4e-5,0,0,0", "{}\n,,4,4e-5,0,0",
    "{}\n0,,nan,4e-5,0,0", "{}\n0,,4.1,inf,0,0", "{}\n0,,4.1,x,0,0", "{}\n\n", "\0", b"\xff\xfe"])
def test_a_damaged_log_is_refused(tmp_path, lines):
    path = tmp_path / "log.csv"
    lines = lines if isinstance(lines, bytes) else lines.format(",".join(Log.COLUMNS)).encode()
    path.write_bytes(lines)
    with pytest.raises(ValueError, match="log.csv is damaged, or no log of this program"):
        read_log(path)


def test_a_log_of_skipped_steps_is_read_and_goes_on_from_one_without(tmp_path):
    path = tmp_path / "log.csv"
    Log(path, start=None).write(0, None, 4.5, 1e-5, 0.0, 0.0)
    Log(path, start=0, skips=True).write(10, None, 4.25, 1e-3, 0.0, 0.5, 10)
    assert read_log(path) == [[0, None, 4.5, 1e-5, 0, 0, 0], [10, None, 4.25, 1e-3, 0, 0.5, 10]]
    Log(path, start=10)
    assert read_log(path) == [[0, None, 4.5, 1e-5, 0, 0], [10, None, 4.25, 1e-3, 0, 0.5]]


def test_a_log_that_is_not_there_is_said_to_be_so(tmp_path):
    with pytest.raises(ValueError, match="log.csv cannot be read: No such file"):
        read_log(tmp_path / "log.csv")


def test_an_interrupt_is_remembered_and_a_second_one_stops_at_once():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        with Interrupts() as interrupts:
            assert not interrupts.came
            signal.raise_signal(signal.SIGINT)
            assert interrupts.came
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("name", [name for name in Interrupts.NAMES if hasattr(signal, name)])
def test_every_way_to_be_asked_to_stop_is_remembered_and_one_that_is_ignored_stays_so(name):
    number = getattr(signal, name)
    before = signal.getsignal(number)
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(number)
            assert interrupts.came
        signal.signal(number, signal.SIG_IGN)
        with Interrupts() as interrupts:
            signal.raise_signal(number)
            assert not interrupts.came
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_interrupts_come_to_the_main_thread_alone_and_other_threads_run_on_without():
    before, seen = signal.getsignal(signal.SIGINT), []

    def run():
        with Interrupts() as interrupts:
            seen.append((interrupts.came, signal.getsignal(signal.SIGINT)))
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [(False, before)]


def test_weight_decay_falls_on_matrices_only():
    model = Transformer(TransformerConfig(9, 8, 1, 1, 8, bias=True))
    decayed, other = decayed_and_other(model)
    assert all(p.ndim == 2 for p in decayed["params"]) and "weight_decay" not in decayed
    assert all(p.ndim == 1 for p in other["params"]) and other["weight_decay"] == 0
    assert len(decayed["params"]) + len(other["params"]) == len(model.parameters())


@pytest.mark.parametrize("groups", [None, 1])
def test_muon_gets_the_matrices_of_the_blocks_and_adamw_the_rest(groups):
    model = Transformer(TransformerConfig(9, 8, 2, 2, 8, bias=True, n_kv_head=groups))
    packed, other = matrices = packed_and_other_matrices(model)
    names = {id(p): name for name, p in model.named_parameters()}
    stepped = [names[id(p)] for group in matrices for p in group["params"]]
    assert sorted(stepped) == sorted(
        f"blocks.{i}.{name}.weight" for i in (0, 1)
        for name in ("attention.qkv", "attention.out", "mlp.up", "mlp.down"))
    assert packed["params"] == [block.attention.qkv.weight for block in model.blocks]
    assert packed["sections"] == ((8, 8, 8) if groups is None else (8, 4, 4))
    assert "sections" not in other
    rest = [names[id(p)] for group in decayed_and_other(model, matrices) for p in group["params"]]
    assert sorted(rest + stepped) == sorted(names.values())
