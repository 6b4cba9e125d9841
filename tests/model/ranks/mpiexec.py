"""Start ranks, where an MPI is there to do it:

    python -m tests.model.ranks.mpiexec SIZE [words of Python's command line]
"""
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests.extras import program

ROOT = pathlib.Path(__file__).parents[3]
LONGEST = 120       # seconds, after which ranks are taken to hang
MPIEXEC = program("mpiexec")
# Open MPI starts no more ranks than processors, and none for root, unless it is told to.
OPEN_MPI = dict(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                OMPI_MCA_rmaps_base_oversubscribe="1",
                PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe")


def started(size, *words):
    """Python in `size` ranks, with these words on its command line."""
    environment = os.environ | OPEN_MPI | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen([MPIEXEC, "-n", str(size), sys.executable, *map(str, words)], cwd=ROOT,
                            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, encoding="utf-8")


def meanwhile(size, *words):
    """Mark a test with ranks that run beside the tests before it."""
    return pytest.mark.meanwhile("-m", "tests.model.ranks.mpiexec", str(size), *map(str, words))


def ranks(size, *words):
    """The end of ranks."""
    return ended(started(size, *words))


def ended(process):
    """The end of ranks that were started.  Those that hang are stopped, and fail the test."""
    with process:
        try:
            out, err = process.communicate(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


if __name__ == "__main__":
    end = ranks(int(sys.argv[1]), *sys.argv[2:])
    print(end.stdout, end="")
    print(end.stderr, end="", file=sys.stderr)
    sys.exit(end.returncode)
