"""Runs that are killed and gone on with end as if nothing had happened: the short form of
python -m tests.reliability, which kills more often and at more moments."""
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
from unittest import mock

import numba
import pytest

from model import CheckpointError
from tests.reliability import damage, mutations
from tests.reliability.outcome import differences

ROOT = pathlib.Path(__file__).parents[1]
TINY = ["--n_layer", "1", "--n_head", "2", "--n_embd", "16", "--block_size", "16",
        "--batch_size", "4", "--ngram_rows", "100", "--threads", "1"]


def reliability(*arguments):
    """Its last lines, if it says that all is well."""
    done = subprocess.run([sys.executable, "-m", "tests.reliability", *arguments], cwd=ROOT,
                          capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system copies no process")
def test_a_run_killed_at_any_write_rename_or_fsync_ends_as_if_left_alone():
    (line,) = reliability("writes", "--every", "2")
    places, *rest = line.split(" ")
    assert int(places) > 20 and " ".join(rest) == "places to die, by kill; none ended differently"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system copies no process")
def test_a_second_signal_at_any_of_these_does_no_harm():
    (line,) = reliability("writes", "--how", "two signals", "--every", "8")
    assert line.endswith(" places to die, by two signals; none ended differently")


def test_a_run_killed_at_random_moments_ends_as_if_left_alone(small_text):
    kills, _, lost, equal = reliability("kills", "--count", "3", "--steps", "300", "--interval",
                                        "0.1", "--data", str(small_text), *TINY)
    assert kills.split()[1] == "3," and equal.endswith("1 of 1 runs")


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="Numba is told not to compile")
def test_sums_over_rows_have_the_same_bits_however_they_are_compiled():
    first, *others = reliability("bits", "--rounds", "0", "--only", "softmax", "norm",
                                 "cross_entropy")
    assert int(first.split()[0]) > 100
    assert [line.rpartition(": ")[0] for line in others] == ["compiled without vectorisers",
                                                             "loaded without vectorisers"]


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is read from /proc")
def test_training_on_takes_no_more_memory(small_text):
    # In so short a time, 1 % is no more than the two arenas that Python may take at any moment.
    flat = reliability("soak", "--seconds", "3", "--period", "1", "--within", "2",
                       "--eval_interval", "100", "--data", str(small_text), *TINY)[2]
    assert flat.startswith("farthest from the second")


def test_a_damaged_checkpoint_is_refused_whatever_the_damage(tmp_path):
    damage.save_small(tmp_path / "small.npz")
    whole, draw = (tmp_path / "small.npz").read_bytes(), random.Random(0)
    spoilt = [whole[:size] for size in range(0, len(whole), 29)]
    spoilt += [mutations.mutated(whole, draw) for _ in range(500)]
    changed = list(damage.changed_bytes(whole, draw))
    assert len(changed) == 2 * len(whole)
    for content in spoilt + changed[::53]:
        (tmp_path / "spoilt.npz").write_bytes(content)
        assert damage.fault(tmp_path / "spoilt.npz") == ""


def test_an_accepted_file_another_error_and_a_second_line_are_faults(tmp_path, monkeypatch):
    damage.save_small(tmp_path / "small.npz")
    assert damage.fault(tmp_path / "small.npz") == "accepted"
    for error, found in ((KeyError("config"), "KeyError('config')"),
                         (CheckpointError("a\nb"), "more than a line: a\nb")):
        monkeypatch.setattr(damage, "load_checkpoint", mock.Mock(side_effect=error))
        assert damage.fault(tmp_path / "small.npz") == found


@pytest.mark.parametrize("target", ["checkpoint", "tokenizer", "data", "flags"])
def test_what_was_never_meant_for_the_program_has_a_plain_answer(target):
    (line,) = reliability("fuzz", "--plain", "--target", target, "--count", "1000")
    assert re.fullmatch(rf"{target} +1,000 inputs at random, .*: .*accepted, .* refused", line)


def test_the_comparison_finds_what_differs(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "other")
    assert differences(trained, tmp_path / "other") == []
    (tmp_path / "other" / "last.npz").write_bytes((trained / "previous.npz").read_bytes())
    log = (trained / "log.csv").read_text(encoding="utf-8")
    (tmp_path / "other" / "log.csv").write_text(log + log.splitlines()[-1], encoding="utf-8")
    found = " ".join(differences(trained, tmp_path / "other"))
    for what in ("log.csv: ", "last.npz: model/", "last.npz: optimizer/m/", "last.npz: optimizer/v",
                 "last.npz: state/batches", "last.npz: state/iteration"):
        assert what in found
    assert "ckpt.npz" not in found
