"""What is settled when kernels are loaded, in processes of their own: that Numba can take what is
in the environment, what the processor has, and that memory which is freed is used again."""
import platform

import pytest
from numba.core import config

from minigrad.kernels.compiler import problem, processor
from tests.kit import python

on_x86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="no x86-64")


@pytest.mark.parametrize("value, fits", [("0", False), ("-1", False), ("1.5", False),
                                         ("many", False), ("", False), ("64", True), (" 2 ", True)])
def test_what_is_no_number_of_threads_is_named_with_the_remedy(value, fits):
    assert problem({}) == "" and problem({"NUMBA_NUM_THREADS": value}) == ("" if fits else (
        f"NUMBA_NUM_THREADS is a whole number of at least 1, not {value!r}; set it to the number "
        "of threads to use, or unset it"))


@pytest.mark.parametrize("program", ["train.py", "-m model.sample", "-m model.count",
                                     "-m model.look", "-m model.reverse"])
def test_a_program_without_threads_ends_in_a_line(program):
    done = python(*program.split(), NUMBA_NUM_THREADS="0")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == problem({"NUMBA_NUM_THREADS": "0"}) + "\n"


@pytest.mark.parametrize("package", ["minigrad", "model"])
def test_whoever_imports_a_package_gets_an_error_that_can_be_caught(package):
    done = python("-c", f"try: import {package}\nexcept ValueError as error: print(error)",
                  NUMBA_NUM_THREADS="0")
    assert done.stdout == problem({"NUMBA_NUM_THREADS": "0"}) + "\n" and done.stderr == ""


# Vectors: their bytes, their number, and whether a product and a sum are rounded once.
@on_x86
@pytest.mark.parametrize("cpu, found", [
    ("nehalem", (16, 16, False)), ("sandybridge", (32, 16, False)), ("haswell", (32, 16, True)),
    ("znver3", (32, 16, True)), ("skylake-avx512", (64, 32, True)), ("znver4", (64, 32, True))])
def test_the_processor_that_numba_is_told_of_decides_on_vectors(monkeypatch, cpu, found):
    monkeypatch.setattr(config, "CPU_NAME", cpu)
    monkeypatch.setattr(config, "CPU_FEATURES", "")
    monkeypatch.setattr(processor, "_probe", processor._probe.__wrapped__)
    assert (processor.vector_bytes(), processor.vector_registers(), processor.fuses()) == found


LOOP = """
import minigrad.kernels, numba
@numba.njit("void(float32[::1], float32[::1])")
def square(x, y):
    for i in range(x.size):
        y[i] = x[i] * x[i]
print(*square.inspect_asm().values())
"""


@on_x86
def test_a_plain_loop_takes_whole_vectors_where_llvm_would_take_half_of_them():
    code = python("-c", LOOP, NUMBA_CPU_NAME="sapphirerapids", NUMBA_CPU_FEATURES="",
                  NUMBA_DISABLE_JIT="0").stdout
    assert any("vmulps" in line and "zmm" in line for line in code.splitlines())


FAULTS = """
import resource
import numpy as np
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
np.ones(8_000_000)
before = faults()
for _ in range(5):
    np.ones(8_000_000)
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only GNU's C library can be told so")
def test_arrays_made_again_after_being_freed_cost_no_new_pages():
    assert int(python("-c", "import minigrad.kernels" + FAULTS).stdout) < 100
    assert int(python("-c", FAULTS).stdout) > 100                   # so that the count can tell
