"""A process alone loads no MPI; ranks that cannot join, or that differ, are refused."""
import sys
from types import SimpleNamespace

import pytest

from model import start
from model.processes import Ranks
from model.run import join
from model.ranks import launch, mpi
from model.start import launcher_rank


@pytest.fixture
def launcher(monkeypatch):
    """Have no launcher, or one that tells what it is given."""
    for names in start.LAUNCHERS:
        for name in names:
            monkeypatch.delenv(name, raising=False)
    return lambda **told: [monkeypatch.setenv(name, value) for name, value in told.items()]


@pytest.mark.parametrize("environment, expected", [
    ({}, None), ({"PMI_RANK": "2", "PMI_SIZE": "4"}, (2, 4)), ({"PMIX_RANK": "1"}, (1, None)),
    ({"PMIX_RANK": "1", "SLURM_STEP_NUM_TASKS": "2"}, (1, 2)),
    ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "3", "PMIX_RANK": "0"}, (0, 3)),
    ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, None)])
def test_a_launcher_tells_the_rank_and_an_allocation_does_not(launcher, environment, expected):
    launcher(**environment)
    assert launcher_rank() == expected


@pytest.mark.parametrize("environment", [{}, {"PMI_RANK": "0", "PMI_SIZE": "1"}])
def test_a_process_alone_imports_no_mpi4py(launcher, environment, monkeypatch):
    launcher(**environment)
    monkeypatch.setitem(sys.modules, "mpi4py", None)        # an import would fail
    with join("train.py") as ranks:
        assert (ranks.number, ranks.size, ranks.threads, ranks.first) == (0, 1, 0, True)


LOADED = """
import os
os.environ |= {"PMI_RANK": "0", "PMI_SIZE": "1"}
import sys, train
assert not {"mpi4py", "model.ranks", "model.replay", "model.look"} & sys.modules.keys()
"""


@pytest.mark.meanwhile("-c", LOADED)
def test_train_is_loaded_without_a_room_that_its_flags_may_need(ended):
    assert ended.returncode == 0, ended.stderr


ALONE = SimpleNamespace(COMM_WORLD=SimpleNamespace(Get_rank=lambda: 0, Get_size=lambda: 1))


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("mpi4py, says", [
    (None, "this is one of several ranks, and mpi4py or its MPI cannot be used"),
    (SimpleNamespace(rc=SimpleNamespace(), MPI=ALONE),
     "the launcher has started 2 ranks, and mpi4py finds 1")])
def test_where_a_rank_cannot_join_it_says_why_and_ends_all(launcher, monkeypatch, number, mpi4py,
                                                           says):
    def end(*words):
        raise SystemExit(words)
    launcher(PMI_RANK=str(number), PMI_SIZE="2")
    monkeypatch.setitem(sys.modules, "mpi4py", mpi4py)
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", getattr(mpi4py, "MPI", None))
    monkeypatch.setattr(launch, "end_all_ranks", end)
    with pytest.raises(SystemExit) as caught, join("train.py"):
        raise AssertionError("it goes on")
    who, said = caught.value.code
    assert who == number
    assert said.startswith(f"train.py: {says}") and "'.[mpi]'" in said


class Pair(Ranks):
    """The first of two ranks, where the other has what it is made with."""
    size = 2

    def __init__(self, **other):
        self.other = other

    def gather(self, value):
        return [value, value | self.other]


def test_ranks_that_are_alike_pass_wherever_their_files_are():
    Ranks().check_alike({"beta1": 0.5})
    pair = Pair()
    sent = []
    pair.gather = lambda value: sent.append(value) or [value, value]
    mpi.MPIRanks.check_alike(pair, {"beta1": 0.5, "threads": 3, "out_dir": "a", "data": "b"})
    assert "--beta1" in sent[0]
    assert not {"--threads", "--out_dir", "--data"} & sent[0].keys()


@pytest.mark.parametrize("other, says", [
    ({"--beta1": 0.6}, "rank 1 has --beta1 0.6, where the first rank has 0.5"),
    ({"--beta2": 0.6}, "rank 1 has --beta2 0.6, where the first rank has left out"),
    ({"NumPy": "1.0"}, "rank 1 has NumPy 1.0, where the first rank has "),
    ({"the program with the digest": "0"}, "rank 1 has the program with the digest 0, ")])
def test_other_settings_and_other_software_are_named_with_the_rank(other, says):
    with pytest.raises(ValueError, match=f"^{says}"):
        mpi.MPIRanks.check_alike(Pair(**other), {"beta1": 0.5})


def test_the_digest_is_of_every_file_of_the_program(tmp_path, monkeypatch):
    monkeypatch.setattr(mpi, "ROOT", str(tmp_path))
    names = ("train.py", "data/a.py", "minigrad/deep/b.py", "model/c.py", "tests/d.py")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    digests = [mpi.program()]
    for name in names:
        (tmp_path / name).write_text("2")
        digests.append(mpi.program())
    assert [a != b for a, b in zip(digests, digests[1:])] == [True] * 4 + [False]
