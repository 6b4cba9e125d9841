"""What is settled when kernels are loaded, in processes of their own: that Numba can take what is
in the environment, and what the processor has."""
import contextlib
import platform

import pytest
from numba.core import config

from minigrad.compiled import problem
from minigrad.kernels.compiler import check_version, processor
from tests.kit import TINY, python

on_x86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="no x86-64")


@pytest.mark.parametrize("value, fits", [("0", False), ("-1", False), ("1.5", False),
                                         ("many", False), ("", False), ("64", True), (" 2 ", True)])
def test_what_is_no_number_of_threads_is_named_with_the_remedy(value, fits):
    assert problem({}) == "" and problem({"NUMBA_NUM_THREADS": value}) == ("" if fits else (
        f"NUMBA_NUM_THREADS is a whole number of at least 1, not {value!r}; set it to the number "
        "of threads to use, or unset it"))


def test_what_does_not_say_whether_to_compile_is_named_with_the_remedy():
    assert problem({"NUMBA_DISABLE_JIT": "0"}) == ""
    assert "at least 0, not 'yes'; set it to 1 for plain" in problem({"NUMBA_DISABLE_JIT": "yes"})


def without_threads(*words):
    """Parameters of a test of a process that is told to have no threads."""
    mark = pytest.mark.meanwhile(*words, NUMBA_NUM_THREADS="0")
    return pytest.param(marks=mark, id=words[-1])


@pytest.mark.parametrize((), [
    without_threads("train.py"),
    *(without_threads("-m", f"model.{name}") for name in ("sample", "count", "look", "reverse"))])
def test_a_program_without_threads_ends_in_a_line(ended):
    assert ended.returncode == 1 and ended.stdout == ""
    assert ended.stderr == problem({"NUMBA_NUM_THREADS": "0"}) + "\n"


@pytest.mark.parametrize((), [
    without_threads("-c", f"try: import {package}\nexcept ValueError as error: print(error)")
    for package in ("minigrad", "model")])
def test_whoever_imports_a_package_gets_an_error_that_can_be_caught(ended):
    assert ended.stdout == problem({"NUMBA_NUM_THREADS": "0"}) + "\n" and ended.stderr == ""


# A Numba that is there and cannot be used

LOSS = """
import sys
import numpy as np, minigrad as mg
x = mg.Tensor(np.array([[1., 2.]]), requires_grad=True)
mg.softmax(mg.rms_norm(x)).sum().backward()
print(mg.COMPILED, x.grad.shape)
"""
BROKEN = {
    "a NumPy too new": ("numba", "raise ImportError('Numba needs NumPy 2.4 or less. Got 2.9.')",
                        "ImportError: Numba needs NumPy 2.4 or less. Got 2.9."),
    "another NumPy": ("numba", "raise ValueError('numpy.dtype size changed,\\nperhaps')",
                      "ValueError: numpy.dtype size changed, perhaps"),
    "many lines": ("numba", "raise ImportError('A module ' * 300)", "[...]"),
    "no runtime library": ("numba", "raise OSError('Could not load shared object file')",
                           "OSError: Could not load shared object file"),
    "no llvmlite": ("llvmlite", "raise ImportError('libllvmlite.so is missing')",
                    "libllvmlite.so is missing"),
    "a broken llvmlite": ("llvmlite", "raise RuntimeError('no executable memory')",
                          "RuntimeError: no executable memory"),
    "empty": ("numba", "", "AttributeError: module 'numba' has no attribute '__version__'"),
    "too old": ("numba", "__version__ = '0.61.2'",
                "ImportError: it is 0.61.2, and kernels need 0.62 or newer, but not 0.66"),
    "the one that is excluded": ("numba", "__version__ = '0.66.0'",
                                 "it is 0.66.0, and kernels need 0.62 or newer, but not 0.66")}


# Before LOSS: in a new folder, a package of this name, of this code.
PACKAGE = """
import pathlib, sys
folder, name, code = pathlib.Path(sys.argv[1]), *sys.argv[2:]
(folder / name).mkdir(parents=True)
(folder / name / "__init__.py").write_text(code)
sys.path.insert(0, str(folder))
"""


@pytest.mark.parametrize("said", [
    pytest.param(said, id=case, marks=pytest.mark.meanwhile(
        "-c", PACKAGE + LOSS, f"FOLDER/{case}", name, code, NUMBA_DISABLE_JIT="0"))
    for case, (name, code, said) in BROKEN.items()])
def test_a_numba_that_cannot_be_used_leaves_plain_numpy_and_one_warning(said, ended):
    assert ended.stdout == "False (1, 2)\n" and ended.stderr.count("Warning") == 1, ended.stderr
    first, source = ended.stderr.splitlines()
    assert ": RuntimeWarning: minigrad computes in plain NumPy" in first and first.endswith(said)
    assert "COMPILED" in source and len(first) < 600


def without(module, private):
    """Parameters of a test of a process in which a module of Numba lacks a name."""
    gone = ("import os; os.environ['NUMBA_DISABLE_JIT'] = '0'; "
            f"import numba.core.{module} as module; del module.{private}\n")
    return pytest.param(private, marks=pytest.mark.meanwhile("-c", gone + LOSS))


@pytest.mark.parametrize("private", [
    without("codegen", "JITCodeLibrary"), without("typed_passes", "NativeLowering"),
    without("caching", "NullCache"), without("compiler", "DefaultPassBuilder"),
    without("cgutils", "alloca_once")])
def test_a_numba_without_what_kernels_take_from_it_leaves_plain_numpy(private, ended):
    assert ended.stdout == "False (1, 2)\n" and ended.stderr.count("Warning") == 1, ended.stderr
    assert private in ended.stderr


def test_a_program_trains_where_numba_cannot_be_used(tmp_path, small_text):
    (tmp_path / "numba.py").write_text("raise ImportError('Numba needs NumPy 2.4 or less')")
    done = python("train.py", "--data", str(small_text), "--out_dir", str(tmp_path / "out"),
                  "--max_iters", "2", *TINY, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0 and (tmp_path / "out/last.npz").exists()
    assert done.stderr.count("Numba needs NumPy") == 1 and "Traceback" not in done.stderr


@pytest.mark.parametrize("version, fits", [
    ("0.61.2", False), ("0.62.0", True), ("0.62.0rc1", True), ("0.65.1", True), ("0.66.0", False),
    ("0.66.1", False), ("0.67.0", True), ("0.68.1", True), ("1.0", True), ("0.660.0", True),
    ("0+unknown", True), ("0+untagged.1.g4e4e4e", True), ("0.70.0dev0+3.gabc", True)])
def test_check_version_refuses_what_is_too_old_and_0_66(version, fits):
    with contextlib.nullcontext() if fits else pytest.raises(ImportError, match=version):
        check_version(version)


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
import os
os.environ |= dict(NUMBA_CPU_NAME="sapphirerapids", NUMBA_CPU_FEATURES="", NUMBA_DISABLE_JIT="0")
import minigrad.kernels, numba
@numba.njit("void(float32[::1], float32[::1])")
def square(x, y):
    for i in range(x.size):
        y[i] = x[i] * x[i]
print(*square.inspect_asm().values())
"""


@on_x86
@pytest.mark.meanwhile("-c", LOOP)
def test_a_plain_loop_takes_whole_vectors_where_llvm_would_take_half_of_them(ended):
    assert any("vmulps" in line and "zmm" in line for line in ended.stdout.splitlines())
