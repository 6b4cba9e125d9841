"""Where kernels are kept: whatever has become of a file, its kernel is compiled again and kept."""
import errno
import functools
import os
import pathlib
import pickle
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from minigrad.kernels.compiler import cache, compiling
from minigrad.kernels.compiler.compiling import C1
from tests.kit import compiled_only, python
from tests.minigrad.kernels.newly import doubled

pytestmark = compiled_only
CONTENT = bytes(range(256)) * 4


def flipped(content, at):
    return content[:at] + bytes([content[at] ^ 1]) + content[at:][1:]


def put(change):
    """Damage that changes the bytes of a file."""
    return lambda path: path.write_bytes(change(path.read_bytes()))


def moved(name):
    """Damage: a whole file that was kept under another name, or in another folder."""
    def damage(path):
        other = path.parent / name
        other.parent.mkdir(exist_ok=True)
        cache.write(other, cache.read(path))
        os.replace(other, path)
    return damage


def read_only(damage):
    def make(path):
        damage(path)
        path.chmod(0o400)
    return make


def replaced(make):
    """Damage: something else stands where the file was."""
    def damage(path):
        path.unlink()
        make(path)
    return damage


def folder_with_a_file(path):
    path.mkdir()
    (path / "file").touch()


EMPTY = put(lambda content: b"")
HALF = put(lambda content: content[:len(content) // 2])
JUNK = put(lambda content: np.random.default_rng(0).bytes(len(content)))
DAMAGES = {
    "empty": EMPTY, "half": HALF, "junk": JUNK,
    **{f"cut at {n}": put(lambda content, n=n: content[:n]) for n in (1, 16, 31, 32, 33, 64, -1)},
    **{f"flipped at {n}": put(lambda content, n=n: flipped(content, n))
       for n in (0, 31, 32, 33, 100, 500, -2, -1)},
    "longer": put(lambda content: content + b"\0"),
    "zeros": put(lambda content: bytes(len(content))),
    "without its seal": put(lambda content: content[32:]),
    "another kernel's": moved("other.float32.0"), "of another Python": moved("../other/one"),
    "a folder": replaced(pathlib.Path.mkdir), "a full folder": replaced(folder_with_a_file),
    "read-only and empty": read_only(EMPTY), "read-only and half": read_only(HALF),
    "read-only and junk": read_only(JUNK)}
if hasattr(os, "symlink") and os.name != "nt":
    DAMAGES |= {"a link to nothing": replaced(lambda path: path.symlink_to(path.parent / "none")),
                "a link to itself": replaced(lambda path: path.symlink_to(path)),
                "a link to a folder": replaced(lambda path: path.symlink_to(path.parent))}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_read_takes_no_damaged_file_and_makes_way_for_a_new_one(folder, damage):
    path = folder / "one"
    for _ in range(2):
        cache.write(path, CONTENT)
        assert cache.read(path) == CONTENT
        damage(path)
        assert cache.read(path) == b""
    cache.write(path, CONTENT)
    assert cache.read(path) == CONTENT and path.is_file()
    assert [*folder.iterdir()] == [path] or damage is DAMAGES["a full folder"]


def test_read_takes_a_file_that_is_read_only(folder):
    cache.write(folder / "one", CONTENT)
    (folder / "one").chmod(0o400)
    assert cache.read(folder / "one") == CONTENT and cache.removed == []
    assert cache.read(folder / "two") == cache.read(None) == b"" and cache.removed == []


def test_write_leaves_the_old_file_or_nothing_when_it_fails(folder, monkeypatch):
    cache.write(folder / "one", CONTENT)

    def full(path, content):
        path.touch()
        raise OSError(errno.ENOSPC, "no space left on device")
    monkeypatch.setattr(pathlib.Path, "write_bytes", full)
    for name in ("one", "two"):
        cache.write(folder / name, b"new")
    assert [*folder.iterdir()] == [folder / "one"] and cache.read(folder / "one") == CONTENT


def sealed(content):
    return lambda path: cache.write(path, content)


@pytest.mark.parametrize("damage, seen", [
    (EMPTY, True), (HALF, True), (JUNK, True), (DAMAGES["a folder"], True),
    (DAMAGES["of another Python"], True), (DAMAGES["read-only and half"], True),
    (sealed(b"no pickle"), False), (sealed(pickle.dumps(("no", "kernel"))), False)])
def test_a_kernel_whose_file_is_damaged_is_compiled_and_kept_again(folder, capsys, damage, seen):
    doubled()[0](np.ones(3), 1)
    path, = folder.glob("double.*")
    damage(path)
    capsys.readouterr()
    compiling.announce("compiling")
    double, known = doubled()
    assert known.on_disk(np.float64) != seen
    double(x := np.ones(3), 1)
    assert list(x) == [2, 2, 2]
    said = ("compiling double, and other kernels as they are needed, for this machine, since "
            f"damaged files were removed from {folder}\n")
    assert capsys.readouterr().out == said * seen
    assert doubled()[1].on_disk(np.float64)
    cache.removed.clear()
    doubled()[0](x, 1)
    assert list(x) == [4, 4, 4] and not cache.removed
    assert known.versions[np.dtype(np.float64)].stats.cache_misses


def test_a_file_half_written_by_a_process_that_was_killed_is_in_nobodys_way(folder):
    double, known = doubled()
    path = known._file(np.dtype(np.float64))
    for process in (1, os.getpid()):
        path.with_name(f"{path.name}.{process}").write_bytes(CONTENT)
    double(x := np.ones(3), 1)
    assert list(x) == [2, 2, 2] and known.on_disk(np.float64) and not cache.removed


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="no safe fork")
def test_eight_first_runs_at_once_that_are_killed_leave_a_cache_that_works(folder):
    """Each is killed a little later than the one before, so that some have written."""
    children = []
    for n in range(8):
        if child := os.fork():
            children.append(child)
            continue
        try:
            while True:
                compiling.announce(None)
                doubled()[0](np.ones(3), 1)
                cache.remove(doubled()[1]._file(np.dtype(np.float64)))
        finally:
            os._exit(1)
    for child in children:
        time.sleep(0.05)
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
    for _ in range(2):
        doubled()[0](x := np.ones(3), 1)
        assert list(x) == [2, 2, 2]
    assert doubled()[1].on_disk(np.float64) and not cache.removed


def test_a_function_of_no_file_is_compiled_and_not_kept(folder):
    known = {"kernel": compiling.kernel, "C1": C1}
    exec(compile("@kernel\ndef typed(x: C1):\n    x[0] = 7\n", "<a prompt>", "exec"), known)
    known["typed"](x := np.ones(2))
    assert list(x) == [7, 1] and not compiling.KERNELS["typed"].on_disk(np.float64)


# The folder

@pytest.fixture
def anew(monkeypatch):
    """A function that finds the folder as a new process does."""
    def find():
        for name in ("_digests", "_may_write"):
            function = getattr(cache, name).__wrapped__
            monkeypatch.setattr(cache, name, functools.cache(function))
        return cache.cache_folder()
    return find


SOURCES = "kernels/rows.py", "kernels/compiler/lanes.py", "formulas.py", "packed.py"


@pytest.mark.parametrize("changed", SOURCES)
def test_cache_folder_is_another_when_a_file_that_kernels_are_made_of_changes(
        monkeypatch, tmp_path, anew, changed):
    (tmp_path / "kernels/compiler").mkdir(parents=True)
    for name in SOURCES:
        (tmp_path / name).write_text("power = 2")
    monkeypatch.setattr(cache, "places", lambda: [tmp_path])
    monkeypatch.setattr(cache, "_HERE", tmp_path / "kernels")
    before = anew()
    foreign = tmp_path / "minigrad-users"
    foreign.mkdir()
    assert anew() == before and before.is_dir()
    (tmp_path / changed).write_text("power = 3")
    after = anew()
    assert after != before and after.is_dir() and foreign.is_dir()
    assert not before.exists()      # what is made of older sources is removed


@pytest.mark.parametrize("where, name, value", [
    (sys, "version", "3.99.0"), (cache.numba, "__version__", "0.99"),
    (cache.llvmlite, "__version__", "0.99"),
    (cache.processor, "name_and_features", lambda: ("other", ""))])
def test_cache_folder_is_another_for_another_python_compiler_or_processor(
        folder, monkeypatch, anew, where, name, value):
    doubled()[0](np.ones(3), 1)
    monkeypatch.setattr(where, name, value)
    assert anew() != folder and folder.is_dir()             # which others still use
    assert not doubled()[1].on_disk(np.float64)


CODE = """
from minigrad.kernels.compiler.cache import cache_folder
print(cache_folder().name)
"""


@pytest.mark.parametrize("name, value", [
    ("OPT", 1), ("LOOP_VECTORIZE", 0), ("SLP_VECTORIZE", 1), ("BOUNDSCHECK", 1),
    ("DEBUGINFO_DEFAULT", 1), ("LLVM_REFPRUNE_PASS", 0), ("LLVM_REFPRUNE_FLAGS", "diamond"),
    ("EXTEND_VARIABLE_LIFETIMES", 1), ("CPU_NAME", "generic"), ("CPU_FEATURES", "+sse2")])
def test_cache_folder_is_another_for_other_settings_of_the_compiler(
        folder, monkeypatch, anew, name, value):
    usual = anew()
    assert usual == anew()
    monkeypatch.setattr(cache.numba.config, name, value)
    assert anew() != usual and usual.is_dir()               # which others still use


def test_cache_folder_is_that_of_the_settings_in_the_environment(tmp_path):
    place = {"NUMBA_CACHE_DIR": str(tmp_path)}
    settings = [{}, {"NUMBA_LOOP_VECTORIZE": "0"}, {"NUMBA_OPT": "0"}, {"NUMBA_NUM_THREADS": "1"}]
    with ThreadPoolExecutor(2) as at_once:
        usual, *others, again = at_once.map(
            lambda words: python("-c", CODE, **place, **words).stdout, settings)
    assert usual == again and len({usual, *others}) == 3


def test_a_kernel_of_another_file_is_compiled_again_when_that_file_changes(folder, tmp_path):
    source = tmp_path / "one.py"
    for factor in (2, 3, 3):
        source.write_text(f"def times(x: C1):\n    x[0] *= {factor}\n")
        known = {"C1": C1}
        exec(compile(source.read_text(), str(source), "exec"), known)
        compiling.kernel(known["times"])(x := np.ones(1))
        assert x[0] == factor


@pytest.mark.parametrize("usable", ["user", "nowhere"])
def test_cache_folder_is_the_next_place_where_one_does_not_take_a_file(
        monkeypatch, tmp_path, capsys, usable):
    """As Windows does where a path is too long; the rights alone do not say so."""
    touch = pathlib.Path.touch
    asked = []

    def refused(path, *how):
        asked.append(path.name)
        if not path.is_relative_to(tmp_path / usable):
            raise OSError(errno.ENOENT, "no such file or directory")
        touch(path)
    sources = tmp_path / "sources"
    user = tmp_path / "user"
    monkeypatch.setattr(pathlib.Path, "touch", refused)
    monkeypatch.setattr(cache, "places", lambda: [sources, user])
    monkeypatch.setattr(compiling, "KERNELS", {})
    compiling.announce("compiling")
    double, known = doubled()
    double(x := np.ones(3), 1)
    assert list(x) == [2, 2, 2] and known.on_disk(np.float64) == (usable == "user")
    why = f"since {sources} cannot be written to or is too long a path"
    assert capsys.readouterr().out == (
        "compiling double, and other kernels as they are needed, for this machine, "
        + (f"to be kept in {user}, {why}\n" if usable == "user" else
           f"and again at each start, {why}; name a folder that would keep them with "
           "NUMBA_CACHE_DIR\n"))
    assert min(map(len, asked)) == cache.LONGEST


def test_no_files_name_is_longer_than_what_is_tried():
    names = [known._file(np.dtype(dtype)).name for known in compiling.KERNELS.values()
             for dtype in (np.float32, np.float64)]
    assert len(names) >= 40 and max(map(len, names)) + len(".4194304") < cache.LONGEST


def test_a_place_that_is_a_file_keeps_nothing_and_harms_nothing(tmp_path):
    (tmp_path / "file").touch()
    done = python("-c", "import numpy, minigrad; from minigrad.kernels.compiler import cache; "
                  "print(minigrad.COMPILED, cache.cache_folder())",
                  NUMBA_CACHE_DIR=str(tmp_path / "file"))
    assert done.stdout == "True None\n" and done.stderr == ""
