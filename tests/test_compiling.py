"""How kernels are compiled: into which folder, with which words, and that Ctrl-C ends it."""
import ctypes
import pathlib
import subprocess
import sys

import numba
import numpy as np
import pytest
from numba.core.codegen import JITCodeLibrary

from minigrad.kernels.build import compiling
from minigrad.kernels.build.parallel import on_threads, share

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
def said(monkeypatch):
    """What is announced in this test."""
    lines = []
    monkeypatch.setattr(compiling, "_say", None)
    compiling.announce(lines.append)
    return lines


def test_compiling_is_announced_once_and_only_where_a_kernel_is_not_on_disk(
        said, tmp_path, monkeypatch):
    monkeypatch.setattr(compiling, "_places", lambda: [tmp_path])
    kernel = doubled()
    assert not kernel.on_disk()
    kernel(np.ones(3), 1)
    kernel(np.ones(3), 2)
    assert said == ["kernels for this machine, this once; up to half a minute"]
    assert kernel.on_disk()
    compiling.announce(said.append)
    doubled()(np.ones(3), 1)
    assert len(said) == 1


def test_a_kernel_is_kept_in_another_folder_where_that_beside_the_sources_is_read_only(
        said, tmp_path, monkeypatch):
    monkeypatch.setattr(compiling, "_places", lambda: [tmp_path / "sources", tmp_path / "user"])
    monkeypatch.setattr(compiling.os, "access",
                        lambda path, kind: pathlib.Path(path).is_relative_to(tmp_path / "user"))
    doubled()(np.ones(3), 1)
    assert doubled().on_disk()
    assert compiling.folder().is_relative_to(tmp_path / "user")
    assert said == ["kernels for this machine, this once; up to half a minute"]


def test_where_no_folder_can_be_written_to_it_says_that_kernels_are_compiled_at_each_start(
        said, tmp_path, monkeypatch):
    monkeypatch.setattr(compiling, "_places", lambda: [tmp_path])
    monkeypatch.setattr(compiling.os, "access", lambda path, kind: False)
    x = np.ones(3)
    kernel = doubled()
    kernel(x, 1)
    assert list(x) == [2, 2, 2] and not kernel.on_disk()
    assert [line.rpartition("; ")[2] for line in said] == ["name one with NUMBA_CACHE_DIR"]


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


def test_the_compiler_is_given_no_leave_to_change_bits():
    code = """
import sys, numpy as np, minigrad
from minigrad.kernels.norm import norm_vjp_kernel
from minigrad.kernels.softmax import softmax_kernel
for kernel in (norm_vjp_kernel, softmax_kernel):
    kernel.compile(np.dtype(np.float32))
    print(*kernel.versions[np.dtype(np.float32)].inspect_llvm().values())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          env=compiling.os.environ | {"NUMBA_CACHE_DIR": "/dev/null"})
    operations = [line.split() for line in done.stdout.splitlines()
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
