"""How kernels are compiled: into which folder, with which words, and that Ctrl-C ends it."""
import ast
import ctypes
import pathlib
import re
import sys

import numba
import numba.core.caching
import numpy as np
import pytest
from numba.core.codegen import JITCodeLibrary

from minigrad.kernels.compiler import compiling
from minigrad.kernels.compiler.parallel import on_threads, share

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="Numba is told not to compile")
FLAGS = {"reassoc", "contract", "fast", "arcp", "afn", "nnan", "ninf", "nsz"}


@compiling.serial
def double_share(thread, threads, x):
    for i in share(x.size, thread, threads):
        x[i] *= 2


def doubled():
    """A kernel that nobody has compiled."""
    @compiling.kernel("C1 threads")
    def double(x, threads):
        on_threads(threads, double_share, x)
    return double


@pytest.fixture
def kept_in(monkeypatch, tmp_path):
    """Where kernels are kept in this test, of which none is on disk; compiling is announced."""
    monkeypatch.setattr(compiling, "_places", lambda: [tmp_path])
    monkeypatch.setattr(compiling, "_compiled", None)
    compiling.announce("compiling")
    return tmp_path


def test_compiling_is_announced_once_and_only_where_a_kernel_is_not_on_disk(kept_in, capsys):
    kernel = doubled()
    assert not kernel.on_disk(np.float64)
    kernel(np.ones(3), 1)
    compiling.say_compiling("another")
    assert capsys.readouterr().out == (
        "compiling double, and other kernels as they are needed, for this machine\n")
    assert kernel.on_disk(np.float64) and not kernel.on_disk(np.float32)
    compiling.announce("compiling")
    doubled()(np.ones(3), 1)
    assert capsys.readouterr().out == ""
    doubled()(np.ones(3, np.float32), 1)
    assert capsys.readouterr().out.startswith("compiling double, ")


def test_how_long_compiling_took_is_said_from_the_second_time_on(kept_in, capsys, monkeypatch):
    monkeypatch.setattr(compiling, "seconds", 40.0)
    monkeypatch.setattr(compiling.time, "perf_counter", lambda: 1.0)
    kernel = doubled()
    kernel(np.ones(3), 1)
    kernel(np.ones(3, np.float32), 1)
    capsys.readouterr()
    compiling.announce("compiling")
    compiling.say_compiling("7 kernels")
    assert capsys.readouterr().out == (
        "compiling 7 kernels for this machine; 2 took 40 s the last time\n")


def test_a_kernel_is_kept_in_another_folder_where_that_beside_the_sources_is_read_only(
        kept_in, monkeypatch, capsys):
    monkeypatch.setattr(compiling, "_places", lambda: [kept_in / "sources", kept_in / "user"])
    monkeypatch.setattr(compiling.os, "access",
                        lambda path, kind: pathlib.Path(path).is_relative_to(kept_in / "user"))
    doubled()(np.ones(3), 1)
    assert doubled().on_disk(np.float64)
    assert compiling.cache_folder().is_relative_to(kept_in / "user")
    assert capsys.readouterr().out.endswith("for this machine\n")


def test_where_no_folder_can_be_written_to_it_says_that_kernels_are_compiled_at_each_start(
        kept_in, monkeypatch, capsys):
    monkeypatch.setattr(compiling.os, "access", lambda path, kind: False)
    x = np.ones(3)
    kernel = doubled()
    kernel(x, 1)
    assert list(x) == [2, 2, 2] and not kernel.on_disk(np.float64)
    assert capsys.readouterr().out.endswith("; name one with NUMBA_CACHE_DIR\n")


def test_a_kernel_that_cannot_be_kept_runs_all_the_same(kept_in, monkeypatch):
    def full(*arguments):
        raise OSError("no space left on device")
    monkeypatch.setattr(numba.core.caching.IndexDataCacheFile, "save", full)
    doubled()(x := np.ones(3), 1)
    assert list(x) == [2, 2, 2]


# A kernel of four files: the second is what it calls, the third has its formula, and the fourth is
# in nobody's way.
SOURCES = {"kernels/of_tests.py": """
from minigrad.formulas_of_tests import power
from minigrad.kernels.compiler.compiling import kernel
from minigrad.kernels.called_of_tests import factor
@kernel("C1")
def scale_kernel(x):
    x[0] = factor() * x[0] ** power
""", "formulas_of_tests.py": """
power = 2
""", "kernels/called_of_tests.py": """
from minigrad.kernels.compiler.compiling import serial
@serial
def factor():
    return 2
""", "kernels/other_of_tests.py": "pass"}


def test_a_kernel_is_compiled_again_if_and_only_if_a_file_that_it_is_made_of_changes(
        kept_in, monkeypatch):
    monkeypatch.setattr(compiling, "_HERE", kept_in / "kernels")
    (kept_in / "kernels").mkdir()
    for name, source in SOURCES.items():
        (kept_in / name).write_text(source)

    def folder():
        compiling._sources.cache_clear()

        def scale_kernel():
            pass
        scale_kernel.__code__ = scale_kernel.__code__.replace(
            co_filename=str(kept_in / "kernels/of_tests.py"))
        return compiling.folder(scale_kernel)
    second, foreign = folder(), kept_in / "minigrad-users"
    foreign.mkdir()
    (kept_in / "kernels/other_of_tests.py").write_text("# changed")
    assert folder() == second and second.is_dir()
    for changed in ("kernels/called_of_tests.py", "formulas_of_tests.py"):
        (kept_in / changed).write_text(SOURCES[changed].replace("2", "3"))
        first, second = second, folder()
        assert second != first and second.is_dir() and foreign.is_dir()
        assert not first.exists()       # what is made of older sources is removed


def test_every_import_of_a_kernels_file_is_found_as_the_parser_finds_it():
    for path in compiling._HERE.rglob("*.py"):
        source, found = path.read_text(encoding="utf-8"), set()
        for module, names in compiling.IMPORT.findall(source):
            found |= {(module, name) for name in re.findall(r"\w+", names)}
        assert found == {(node.module, alias.name) for node in ast.walk(ast.parse(source))
                         if isinstance(node, ast.ImportFrom)
                         and str(node.module).startswith("minigrad")
                         for alias in node.names}, path


def test_ctrl_c_in_a_callback_of_the_compiler_ends_it(monkeypatch, capsys):
    @ctypes.CFUNCTYPE(None)
    def callback():
        raise KeyboardInterrupt

    class Interrupted:
        def __init__(self, *arguments):
            pass

        def compile(self, signature):
            callback()
    monkeypatch.setattr(compiling, "_njit", Interrupted)
    hook = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt):
        doubled()(np.ones(3), 1)
    assert sys.unraisablehook is hook and capsys.readouterr().err == ""


NEWLY_COMPILED = """
import os
os.environ["NUMBA_CACHE_DIR"] = "/dev/null"
import numpy as np, minigrad
from minigrad.kernels.norm import norm_vjp_kernel
from minigrad.kernels.softmax import softmax_kernel
for kernel in (norm_vjp_kernel, softmax_kernel):
    kernel.compile(np.dtype(np.float32))
    print(*kernel.versions[np.dtype(np.float32)].inspect_llvm().values())
"""


@pytest.mark.meanwhile("-c", NEWLY_COMPILED)
def test_the_compiler_is_given_no_leave_to_change_bits(ended):
    assert ended.returncode == 0, ended.stderr
    operations = [line.split() for line in ended.stdout.splitlines()
                  if any(f" {name} " in line for name in ("fadd", "fsub", "fmul", "fdiv", "fcmp"))]
    assert len(operations) > 50
    assert not [words for words in operations if FLAGS & set(words)]


def test_a_function_that_only_kernels_call_is_no_machine_code_of_its_own(monkeypatch):
    translated, translate = [], JITCodeLibrary._finalize_specific
    monkeypatch.setattr(JITCodeLibrary, "_finalize_specific",
                        lambda library: (translated.append(library.name), translate(library)))

    @compiling.serial
    def inner(x):
        return x * 3

    @compiling.serial
    def outer(x):
        return inner(x) + inner(x)

    @compiling.kernel("C1")
    def six_times(x):
        x[0] = outer(x[0])
    six_times(x := np.ones(1))
    assert x[0] == 6 and len(translated) == 1 and "six_times" in translated[0]
