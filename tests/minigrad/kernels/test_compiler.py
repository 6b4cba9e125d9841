"""What Numba cannot take from the environment is answered in a line, before Numba is loaded."""
import os
import pathlib
import subprocess
import sys

import pytest

from minigrad.kernels.compiler import problem


def started(*words):
    """The end of a process that is told to have no thread."""
    return subprocess.run([sys.executable, *words], cwd=pathlib.Path(__file__).parents[3],
                          env=os.environ | {"NUMBA_NUM_THREADS": "0"}, capture_output=True,
                          text=True)


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many", ""])
def test_what_is_no_number_of_threads_is_named_with_the_remedy(value):
    assert problem({"NUMBA_NUM_THREADS": value}) == (
        f"NUMBA_NUM_THREADS is a whole number of at least 1, not {value!r}; set it to the number "
        "of threads to use, or unset it")


def test_a_number_of_threads_or_none_is_no_problem():
    for environment in ({}, {"NUMBA_NUM_THREADS": "64"}, {"NUMBA_NUM_THREADS": " 2 "}):
        assert problem(environment) == ""


@pytest.mark.parametrize("program", ["train.py", "-m model.sample", "-m model.count",
                                     "-m model.look", "-m model.reverse"])
def test_a_program_without_threads_ends_in_a_line(program):
    done = started(*program.split())
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == problem({"NUMBA_NUM_THREADS": "0"}) + "\n"


@pytest.mark.parametrize("package", ["minigrad", "model"])
def test_whoever_imports_a_package_gets_an_error_that_can_be_caught(package):
    done = started("-c", f"try: import {package}\nexcept ValueError as error: print(error)")
    assert done.stdout == problem({"NUMBA_NUM_THREADS": "0"}) + "\n" and done.stderr == ""
