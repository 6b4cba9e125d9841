"""This checkout beside another commit's: whose code is measured, and what the table says."""
import subprocess

import numba
import pytest

from tests.benchmarks import __main__ as command
from tests.benchmarks import against, side
from tests.benchmarks.against import ROOT, Side, checkouts, rows_of_counts, rows_of_times
from tests.kit import refusal

in_a_clone = pytest.mark.skipif(
    subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True).returncode != 0,
    reason="there is no git, or no commit here")


def test_rows_of_times_have_medians_their_ratio_and_its_spread():
    found = {"here": [{"add": 1e-6, "new": 1.0}, {"add": 2e-6, "new": 1.0}, {"add": 4e-6}],
             "there": [{"add": 3e-6}, {"add": 3e-6}, {"add": 3e-6}]}
    assert rows_of_times(found) == [["add", "2.00 us", "3.00 us", pytest.approx(1.5),
                                     pytest.approx(0.75), pytest.approx(3.0)]]


def test_rows_of_times_end_with_the_geometric_mean_of_the_ratios():
    found = {"here": [{"b": 1e-3, "a": 1.0}], "there": [{"a": 4.0, "b": 1e-3}]}
    rows = rows_of_times(found)
    assert [row[:4] for row in rows] == [
        ["b", "1.00 ms", "1.00 ms", pytest.approx(1)], ["a", "1.00 s", "4.00 s", pytest.approx(4)],
        ["geometric mean", "", "", pytest.approx(2)]]


def test_rows_of_counts_name_what_both_sides_count():
    counts = {"here": {"add": 25, "new": 3}, "there": {"add": 32, "old": 1}}
    assert rows_of_counts(counts) == [["add", 25, 32]]


def test_calls_count_the_same_twice():
    assert dict(side.calls()) == dict(side.calls())


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="formulas call more functions than kernels")
@pytest.mark.parametrize("op, most", [
    ("add", 22), ("layer_norm", 42), ("linear", 42), ("cross_entropy", 50)])
def test_calls_of_a_small_op_are_few(op, most):
    assert dict(side.calls())[f"{op}, forward"] <= most


@in_a_clone
def test_checkouts_lend_the_code_of_the_commit_and_leave_nothing(tmp_path):
    listed = subprocess.check_output(["git", "worktree", "list"], cwd=ROOT)
    with checkouts("HEAD") as sides:
        there = sides["there"].folder
        assert sides["here"].folder == ROOT != there
        assert (there / "minigrad/core.py").exists()
        assert subprocess.check_output(["git", "worktree", "list"], cwd=ROOT) != listed
    assert not there.exists()
    assert subprocess.check_output(["git", "worktree", "list"], cwd=ROOT) == listed


def test_checkouts_refuse_what_is_no_commit():
    said = refusal(SystemExit, checkouts("no-such-commit").__enter__)
    assert said.startswith("tests.benchmarks: git has no worktree of no-such-commit: ")
    assert said.endswith("; name a commit that `git log` shows")


def test_measured_runs_the_code_of_its_folder(tmp_path, monkeypatch):
    (tmp_path / "minigrad.py").write_text("PLACE = 'there'\n", encoding="utf-8")
    script = tmp_path / "side.py"
    script.write_text("import json, sys, minigrad\n"
                      "print(json.dumps([minigrad.PLACE, *sys.argv[1:]]))", encoding="utf-8")
    monkeypatch.setattr(against, "SIDE", script)
    assert Side(tmp_path, tmp_path / "kernels").measured("calls", 1) == ["there", "calls"]


def test_measured_says_why_a_side_cannot_be_measured(tmp_path, monkeypatch):
    script = tmp_path / "side.py"
    script.write_text("raise SystemExit('no such op')", encoding="utf-8")
    monkeypatch.setattr(against, "SIDE", script)
    said = refusal(SystemExit, Side(tmp_path, tmp_path).measured, "small", 1)
    assert said == f"tests.benchmarks: small cannot be measured in {tmp_path}: no such op"


@pytest.mark.parametrize("words", [["against"], ["against", "a", "b"], ["step", "against", "a"]])
def test_parse_takes_one_commit_after_against(words, capsys):
    assert command.parse(["against", "HEAD~1"]).commit == "HEAD~1"
    refusal(SystemExit, command.parse, words)
    assert "python -m tests.benchmarks against COMMIT" in capsys.readouterr().err
