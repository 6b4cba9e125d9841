"""How kernels are compiled: into which folder, with which words, and that Ctrl-C ends it."""
import ctypes
import pathlib
import sys

import numba.core.caching
import numpy as np
import pytest

from minigrad.kernels.compiler import compiling
from minigrad.kernels.compiler.compiling import C1
from minigrad.kernels.compiler.parallel import share
from tests.kit import compiled_only

pytestmark = compiled_only
FLAGS = {"reassoc", "contract", "fast", "arcp", "afn", "nnan", "ninf", "nsz"}


def doubled():
    """A kernel that nobody has compiled, and what is known of it."""
    @compiling.kernel
    def double(thread, threads, x: C1):
        for i in share(x.size, thread, threads):
            x[i] *= 2
    return double, compiling.KERNELS["double"]


@pytest.fixture
def kept_in(monkeypatch, tmp_path):
    """Where kernels are kept in this test, of which none is on disk; compiling is announced."""
    monkeypatch.setattr(compiling, "_places", lambda: [tmp_path])
    monkeypatch.setattr(compiling, "KERNELS", {})
    compiling.announce("compiling")
    return tmp_path


def test_compiling_is_announced_once_and_only_where_a_kernel_is_not_on_disk(kept_in, capsys):
    double, known = doubled()
    assert not known.on_disk(np.float64)
    double(np.ones(3), 1)
    compiling.say_compiling("another")
    assert capsys.readouterr().out == (
        "compiling double, and other kernels as they are needed, for this machine\n")
    assert known.on_disk(np.float64) and not known.on_disk(np.float32)
    compiling.announce("compiling")
    doubled()[0](np.ones(3), 1)
    assert capsys.readouterr().out == ""
    doubled()[0](np.ones(3, np.float32), 1)
    assert capsys.readouterr().out.startswith("compiling double, ")


@pytest.mark.parametrize("writable, end", [
    ("user", "for this machine\n"), ("nowhere", "; name one with NUMBA_CACHE_DIR\n")])
def test_a_kernel_is_kept_where_it_can_be_written_to_or_else_compiled_at_each_start(
        kept_in, monkeypatch, capsys, writable, end):
    monkeypatch.setattr(compiling, "_places", lambda: [kept_in / "sources", kept_in / "user"])
    monkeypatch.setattr(compiling.os, "access",
                        lambda path, kind: pathlib.Path(path).is_relative_to(kept_in / writable))
    double, known = doubled()
    double(x := np.ones(3), 1)
    assert list(x) == [2, 2, 2] and known.on_disk(np.float64) == (writable == "user")
    assert writable != "user" or compiling.cache_folder().is_relative_to(kept_in / "user")
    assert capsys.readouterr().out.endswith(end)


def test_a_kernel_that_cannot_be_kept_runs_all_the_same(kept_in, monkeypatch):
    def full(*arguments):
        raise OSError("no space left on device")
    monkeypatch.setattr(numba.core.caching.IndexDataCacheFile, "save", full)
    doubled()[0](x := np.ones(3), 1)
    assert list(x) == [2, 2, 2]


@pytest.mark.parametrize("changed", ["kernels/rows.py", "kernels/compiler/lanes.py", "formulas.py"])
def test_kernels_are_compiled_again_when_a_file_that_they_are_made_of_changes(
        kept_in, monkeypatch, changed):
    (kept_in / "kernels/compiler").mkdir(parents=True)
    for name in ("kernels/rows.py", "kernels/compiler/lanes.py", "formulas.py"):
        (kept_in / name).write_text("power = 2")
    monkeypatch.setattr(compiling, "_HERE", kept_in / "kernels")
    monkeypatch.setattr(compiling.formulas, "__file__", str(kept_in / "formulas.py"))

    def folder():
        compiling._digests.cache_clear()
        return compiling.cache_folder()
    try:
        before, foreign = folder(), kept_in / "minigrad-users"
        foreign.mkdir()
        assert folder() == before and before.is_dir()
        (kept_in / changed).write_text("power = 3")
        after = folder()
        assert after != before and after.is_dir() and foreign.is_dir()
        assert not before.exists()      # what is made of older sources is removed
    finally:
        compiling._digests.cache_clear()


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
        doubled()[0](np.ones(3), 1)
    assert sys.unraisablehook is hook and capsys.readouterr().err == ""


NEWLY_COMPILED = """
import os
os.environ["NUMBA_CACHE_DIR"] = "/dev/null"
import minigrad
from minigrad.kernels.compiler.compiling import KERNELS
from tests.minigrad.kernels.test_linking import code_of
for name in ("norm_vjp", "softmax"):
    print(code_of(KERNELS[name]))
"""


@pytest.mark.meanwhile("-c", NEWLY_COMPILED)
def test_the_compiler_is_given_no_leave_to_change_bits(ended):
    assert ended.returncode == 0, ended.stderr
    operations = [line.split() for line in ended.stdout.splitlines()
                  if any(f" {name} " in line for name in ("fadd", "fsub", "fmul", "fdiv", "fcmp"))]
    assert len(operations) > 50
    assert not [words for words in operations if FLAGS & set(words)]
