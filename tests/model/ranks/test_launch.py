"""A process alone has nothing to do with MPI; one of several that cannot join is told why."""
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.kit import ROOT
from model import processes
from model.processes import joined, told


@pytest.fixture
def launcher(monkeypatch):
    """Have no launcher, or one that tells what it is given."""
    for names in processes.TOLD:
        for name in names:
            monkeypatch.delenv(name, raising=False)
    return lambda **told: [monkeypatch.setenv(name, value) for name, value in told.items()]


@pytest.mark.parametrize("environment, expected", [
    ({}, None), ({"PMI_RANK": "2", "PMI_SIZE": "4"}, (2, 4)), ({"PMIX_RANK": "1"}, (1, None)),
    ({"PMIX_RANK": "1", "SLURM_STEP_NUM_TASKS": "2"}, (1, 2)),
    ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "3", "PMIX_RANK": "0"}, (0, 3)),
    ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, None)])
def test_a_launcher_tells_the_rank_and_an_allocation_without_one_does_not(launcher, environment,
                                                                          expected):
    launcher(**environment)
    assert told() == expected


@pytest.mark.parametrize("environment", [{}, {"PMI_RANK": "0", "PMI_SIZE": "1"}])
def test_a_process_alone_imports_no_mpi4py(launcher, environment, monkeypatch):
    launcher(**environment)
    monkeypatch.setitem(sys.modules, "mpi4py", None)        # an import would fail
    with joined("train.py") as ranks:
        assert (ranks.number, ranks.size, ranks.threads, ranks.first) == (0, 1, 0, True)
    loaded = ("import sys, train; sys.exit(bool({'mpi4py', 'model.ranks', 'model.replay', "
              "'model.look'} & sys.modules.keys()))")
    assert subprocess.run([sys.executable, "-c", loaded], cwd=ROOT).returncode == 0


@pytest.mark.parametrize("number, says", [(0, "train.py: this is one of several ranks"), (1, "")])
def test_without_mpi4py_the_first_rank_says_what_to_install(launcher, monkeypatch, number, says):
    launcher(PMI_RANK=str(number), PMI_SIZE="2")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(SystemExit) as caught, joined("train.py"):
        raise AssertionError("it goes on")
    if says:
        assert caught.value.code.startswith(says) and "'.[mpi]'" in caught.value.code
    else:
        assert caught.value.code == 1


def test_a_launcher_of_another_mpi_is_noticed(launcher, monkeypatch):
    launcher(PMI_RANK="0", PMI_SIZE="2")
    alone = SimpleNamespace(Get_rank=lambda: 0, Get_size=lambda: 1)
    mpi4py = SimpleNamespace(rc=SimpleNamespace(), MPI=SimpleNamespace(COMM_WORLD=alone))
    monkeypatch.setitem(sys.modules, "mpi4py", mpi4py)
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", mpi4py.MPI)
    with pytest.raises(SystemExit) as caught, joined("train.py"):
        raise AssertionError("it goes on")
    assert "has started 2 ranks, and mpi4py finds 1" in caught.value.code
