"""Runs of train.py on ranks: resumed on others, stopped, and with a fault of one rank."""
import re
import signal
import sys
import time

import numpy as np
import pytest

import train
from model import load_checkpoint
from tests.kit import TINY, arrays, losses, run
from tests.model.ranks import mpiexec
from tests.model.ranks.mpiexec import meanwhile, ranks, started

pytestmark = pytest.mark.needs("mpi")
FAULTY = "tests/model/ranks/faulty.py"


def flags(small_text, out_dir, *more):
    tiny = [word for name, value in zip(TINY[::2], TINY[1::2]) if name not in more
            for word in (name, value)]
    return ["--data", small_text, "--out_dir", out_dir, *tiny, "--dropout", "0.1", *more]


def steps_kept(out_dir):
    return load_checkpoint(out_dir / "last.npz").training["state"]["iteration"]


def test_a_run_on_three_ranks_is_resumed_on_two_and_on_one(small_text, tmp_path, capsys):
    cut = tmp_path / "cut"
    whole = tmp_path / "whole"
    end = ("--lr_decay_iters", "30")
    first = ranks(3, "train.py", *flags(small_text, cut, "--max_iters", "10", *end))
    assert first.returncode == 0
    assert first.stderr == ""
    assert first.stdout.count("recipe  ") == first.stdout.count("a sample:") == 1
    assert re.search(r"on \d+ threads? of each of 3 ranks", first.stdout)
    second = ranks(2, "train.py", "--init_from", "resume", "--out_dir", cut, "--max_iters", "20")
    assert second.returncode == 0
    assert "resumed after step 10" in second.stdout
    train.main(["--init_from", "resume", "--out_dir", str(cut), "--max_iters", "30"])
    run(small_text, whole, "--dropout", "0.1", "--max_iters", "30", *end)
    assert {path.name for path in cut.iterdir()} == {path.name for path in whole.iterdir()}
    a = arrays(cut / "last.npz")
    b = arrays(whole / "last.npz")
    for name in a.keys() - {"config", "vocabulary", "version", "training"}:
        assert np.allclose(a[name], b[name], rtol=0, atol=1e-5), name
    heads, *lines = zip(losses(cut), losses(whole), strict=True)
    assert heads[0] == heads[1]
    assert len(lines) == 4
    for ours, theirs in lines:
        assert np.allclose([float(x or 0) for x in ours], [float(x or 0) for x in theirs],
                           rtol=0, atol=2e-6)


WITHOUT_JOINING = """
import os, sys
number, name, value, *words = sys.argv[1:]
if os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK")) == number:
    os.environ[name] = value
os.execv(sys.executable, [sys.executable, "train.py", *words])
"""


@pytest.mark.parametrize("number", ["0", "1"])
@pytest.mark.parametrize("name, value, says", [
    ("NUMBA_NUM_THREADS", "x", "NUMBA_NUM_THREADS is a whole number of at least 1, not 'x'"),
    ("PYTHONPATH", "MISSING", "mpi4py or its MPI cannot be used (not here)")])
def test_a_rank_that_fails_before_it_joins_ends_the_others(small_text, tmp_path, number, name,
                                                           value, says):
    (tmp_path / "mpi4py.py").write_text("raise ImportError('not here')")
    end = ranks(2, "-c", WITHOUT_JOINING, number, name, value.replace("MISSING", str(tmp_path)),
                *flags(small_text, tmp_path / "out", "--max_iters", "3"))
    assert end.returncode != 0
    assert says in end.stderr
    assert end.stderr.count(says) == 1
    assert not (tmp_path / "out").exists()


def test_a_batch_systems_signal_stops_all_ranks_after_a_step_and_saves(small_text, tmp_path):
    process = started(2, "train.py", *flags(small_text, tmp_path, "--max_iters", "1000000"))
    deadline = time.monotonic() + 60
    while not (tmp_path / "ckpt.npz").exists() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    end = mpiexec.ended(process)
    kept, = re.findall(r"stopped after ([\d,]+) steps?; all is kept", end.stderr)
    assert end.returncode == 130
    assert steps_kept(tmp_path) == int(kept.replace(",", ""))
    assert end.stderr.count("stopping after this step") == 1


def fault(number, name, status, says):
    """Parameters of a test of two ranks of which one meets a fault, and which run meanwhile."""
    return pytest.param(name, status, says, id=name, marks=meanwhile(
        2, FAULTY, number, name, *flags("SMALL_TEXT", f"FOLDER/{name}", "--max_iters", "1000000",
                                        "--eval_interval", "5")))


@pytest.mark.parametrize("name, status, says", [
    fault(1, "raises", 1, "rank 1 on .*: Traceback"),
    fault(1, "nan", 1, "train.py: the loss of step 7 is .*, but the norm of its gradient is nan"),
    fault(1, "interrupted_twice", 130, "rank 1 on .*: stopping after this step"),
    fault(0, "full_disk", 1, "train.py: cannot use .*: No space left on device"),
    fault(1, "killed", 9, "")])
def test_a_fault_of_one_rank_ends_all_with_one_message(ended, small_text, name, status, says):
    assert ended.returncode == status
    assert steps_kept(small_text.parent / name) == 5
    assert len(re.findall(says, ended.stderr)) == 1


@pytest.mark.parametrize("more, status, says", [
    (["--beta1", "0.5"], 1, "train.py: rank 1 has --beta1 0.5, where the first rank has left out; "
                            "give all ranks the same settings and software"),
    (["--bogus", "1"], 2, "rank 1 on .*: train.py: error: there is no flag --bogus; see --help"),
    (["--beta1", "x"], 2, "rank 1 on .*: train.py: error: --beta1 takes a number, not 'x'"),
    (["--help"], 2, "rank 1 on .*: train.py: --help is for all ranks or none; leave it out")])
def test_a_rank_of_other_flags_is_refused_at_once(small_text, tmp_path, more, status, says):
    words = [*map(str, flags(small_text, tmp_path / "out"))]
    end = ranks(1, "train.py", *words, ":", "-n", "1", sys.executable, "train.py", *words, *more)
    assert end.returncode == status
    assert end.stdout == ""
    assert not (tmp_path / "out").exists()
    assert re.fullmatch(f"{says}\n", end.stderr)
