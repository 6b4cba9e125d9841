"""Files are whole or absent; arrays come back as they were written, and no file is believed beyond
what it holds; one process at a time has a folder."""
import errno
import io
import itertools
import os
import pathlib
import pickle
import random
import re
import subprocess
import sys
import zipfile
from unittest.mock import Mock

import numpy as np
import pytest

from data import files
from data.files import claimed, read_arrays, replacing, write_arrays
from minigrad.words import shown
from tests.kit import ROOT, memory, open_elsewhere, refusal, sealed, written
from tests.reliability.damage import mutated
from tests.reliability.writes import halving

ARRAYS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b/c": np.array("é\n漢"),
          "d": np.array(7), "e": np.array([1, 2], np.uint32)}
HOLD = """
import pathlib, sys, time
from data.files import claimed
with claimed(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


# Whole or absent

def test_a_file_has_its_name_once_all_of_it_is_on_the_disk(tmp_path, monkeypatch):
    calls = []
    sync = os.fsync
    rename = os.replace
    monkeypatch.setattr(os, "fsync", lambda number: (calls.append("fsync"), sync(number)))
    monkeypatch.setattr(os, "replace", lambda *names: (calls.append("rename"), rename(*names)))
    with replacing(tmp_path / "file") as file:
        file.write(b"one")
        assert not (tmp_path / "file").exists()
    assert calls == ["fsync", "rename", "fsync"][:2 if os.name == "nt" else 3]
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"one"


@pytest.mark.parametrize("size", [1, 100_000])
def test_replacing_waits_for_the_disk_when_the_file_has_all_its_bytes(tmp_path, monkeypatch, size):
    seen = []

    def to_disk(number):
        part, = tmp_path.glob("*.part")
        seen.append(part.read_bytes())      # by another handle: what Python holds back is missing
    monkeypatch.setattr(files, "_to_disk", to_disk)
    with replacing(tmp_path / "file") as file:
        file.write(size * b"x")
        file.write(b"the seal")
    assert seen == [size * b"x" + b"the seal"]


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), MemoryError(),
                                   OSError(28, "No space")])
@pytest.mark.parametrize("where", ["in the body", "fsync", "replace"])
def test_whatever_happens_the_old_file_alone_is_left(tmp_path, monkeypatch, error, where):
    def fail(*_):
        raise error
    path = written(tmp_path / "a.txt", "old")
    if where != "in the body":
        monkeypatch.setattr(os, where, fail)
    with pytest.raises(type(error)) as caught, replacing(path) as file:
        file.write(b"half")
        if where == "in the body":
            fail()
    assert caught.value is error
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]
    assert getattr(error, "filename", str(path)) == str(path)
    path = tmp_path / "nowhere" / "a.txt"
    with pytest.raises(OSError) as caught, replacing(path):
        pass
    assert caught.value.filename == str(path)


def test_what_went_wrong_is_said_and_not_that_its_traces_cannot_be_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(pathlib.Path, "unlink", lambda path: os.stat(""))
    with pytest.raises(KeyError), replacing(tmp_path / "file"):
        raise KeyError


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="it tells files from folders there")
def test_a_folder_need_not_be_synchronised_where_the_system_cannot(tmp_path, monkeypatch):
    def fsync(file):
        if os.path.isdir(f"/proc/self/fd/{file}"):
            raise OSError(errno.EINVAL, "Invalid argument")
    monkeypatch.setattr(os, "fsync", fsync)
    with replacing(tmp_path / "file") as file:
        file.write(b"one")
    assert (tmp_path / "file").read_bytes() == b"one"


@pytest.mark.parametrize("winerror", [5, 32, 33])
def test_replacing_waits_up_to_two_seconds_for_a_program_that_has_the_file_open(
        tmp_path, monkeypatch, winerror):
    path = tmp_path / "a.txt"
    for attempts in (1, len(files.PAUSES)):
        with open_elsewhere(monkeypatch, ["a.txt"], attempts, winerror) as refused:
            with replacing(path) as file:
                file.write(b"new %d" % attempts)
        assert len(refused) == attempts
        assert path.read_bytes() == b"new %d" % attempts
    assert sum(files.PAUSES) == pytest.approx(2)


@pytest.mark.parametrize("winerror, attempts", [(5, 7), (None, 1), (3, 1)])
@pytest.mark.parametrize("before", [None, "before.txt"])
def test_replacing_leaves_the_old_file_if_its_name_is_refused_for_good(
        tmp_path, monkeypatch, before, winerror, attempts):
    path = written(tmp_path / "a.txt", "old")
    rename = os.replace
    tried = []
    error = PermissionError(13, "Access is denied")
    error.winerror = winerror

    def replace(source, target):
        if source.name.endswith(".part"):
            tried.append(source)
            raise error
        rename(source, target)
    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(files, "PAUSES", (0,) * len(files.PAUSES))
    with pytest.raises(PermissionError) as caught:
        with replacing(path, before and tmp_path / before) as file:
            file.write(b"new")
    assert caught.value.filename == str(path)
    assert len(tried) == attempts
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_every_file_of_the_project_is_renamed_by_rename():
    kernels = ROOT / "minigrad/kernels/compiler/cache.py"       # which is made again, if it must
    for folder in ("minigrad", "model", "data"):
        for source in (ROOT / folder).rglob("*.py"):
            calls = re.findall(r"\bos\.(?:replace|rename)\b", source.read_text(encoding="utf-8"))
            assert not calls or source in (pathlib.Path(files.__file__), kernels), source


@pytest.mark.skipif(os.name == "nt", reason="there is no fcntl")
@pytest.mark.parametrize("refused", [False, True])
def test_replacing_waits_for_the_disk_itself_on_macos(tmp_path, monkeypatch, refused):
    calls = []
    sync = os.fsync

    def fcntl(number, what):
        calls.append(what)
        if refused:
            raise OSError(errno.ENOTSUP, "Operation not supported")
    monkeypatch.setattr(files.fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(files.fcntl, "fcntl", fcntl)
    monkeypatch.setattr(os, "fsync", lambda number: (calls.append("fsync"), sync(number)))
    with replacing(tmp_path / "file") as file:
        file.write(b"one")
    assert calls == [51, "fsync", "fsync"] if refused else calls == [51, "fsync"]


# Arrays in a sealed file

def content_of(arrays, deflated=False):
    file = io.BytesIO()
    write_arrays(file, arrays.items(), deflated)
    return file.getvalue()


@pytest.fixture
def path(tmp_path):
    return written(tmp_path / "a.npz", content_of(ARRAYS))


@pytest.mark.parametrize("deflated", [False, True])
@pytest.mark.parametrize("a", [
    np.zeros((2, 0, 3)), np.float64(0.1), np.arange(3, dtype=">i2"), np.array(""),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.array([["ab", "c"]]),
    np.arange(24, dtype=np.uint8).reshape(2, 3, 4)[:, ::2], np.arange(9, dtype=">f4")[::2],
    np.ones((2, 3), [("d", "<f2"), ("q", "u1", 16)]),
    np.ones(1, [("rows0", [("d", "<f2")], (2, 3)), ("rows1", [("h", "<u2", (2,))], (1, 3))])],
    ids=repr)
def test_an_array_of_any_shape_order_and_plain_dtype_comes_back(path, a, deflated):
    with read_arrays(written(path, content_of({"a": a}, deflated))) as arrays:
        assert [*arrays] == ["a"]
        found = arrays["a"]
    assert found.shape == np.shape(a)
    assert found.flags.writeable
    assert np.array_equal(found, a)
    assert found.dtype == np.asarray(a).dtype


def test_a_deflated_file_of_floats_is_smaller_as_their_exponents_are_alike(path):
    numbers = np.random.default_rng(0).normal(size=(300, 500)).astype(np.float32)
    plain, deflated = (len(content_of({"a": numbers}, how)) for how in (False, True))
    assert 0.8 * plain < deflated < 0.88 * plain
    with np.load(io.BytesIO(content_of({"a": numbers}, True)), allow_pickle=False) as found:
        assert (found["a"] == np.moveaxis(numbers.view(np.uint8).reshape(300, 500, 4), 2, 0)).all()


def test_without_its_seal_a_file_is_what_savez_writes():
    file = io.BytesIO()
    np.savez(file, **ARRAYS)
    content = content_of(ARRAYS)
    assert content[:-files.SEAL - 2] == file.getvalue()[:-2]
    assert content == sealed(content[:-64])
    with np.load(io.BytesIO(content), allow_pickle=False) as found:
        assert all(np.array_equal(found[name], a) for name, a in ARRAYS.items())


@pytest.mark.parametrize("deflated", [False, True])
def test_arrays_are_made_one_at_a_time_to_be_written_and_to_be_read(tmp_path, deflated):
    numbers = np.random.default_rng(0).random(500_000, np.float32)
    with memory() as taken:
        with open(tmp_path / "a.npz", "w+b") as file:
            write_arrays(file, ((f"{i}", i + numbers) for i in range(9)), deflated)
        with read_arrays(tmp_path / "a.npz") as found:
            assert list(found) == [f"{i}" for i in range(9)]
            assert all((found[name] == int(name) + numbers).all() for name in found)
    assert taken[0] < (6 if deflated else 3.5) * 2_000_000


@pytest.mark.parametrize("deflated", [False, True])
def test_a_kill_or_a_full_disk_at_any_write_of_arrays_leaves_the_old_file(path, deflated,
                                                                          monkeypatch):
    before = path.read_bytes()
    half = path.with_name("half")
    arrays = {name: np.random.default_rng(0).random((40, 50)) for name in "abc"}

    def here(_):
        part, = path.parent.glob("*.part")
        places.append(written(half, part.read_bytes()))     # what a kill would leave
        assert path.read_bytes() == before
        assert "its seal is missing" in refusal(ValueError, read_arrays, half)
        if len(places) >= full:
            raise OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(files, "open", halving(here), raising=False)
    for full in itertools.count(1):
        places = []
        try:
            with replacing(path) as file:
                write_arrays(file, arrays.items(), deflated)
            break
        except OSError as error:
            assert error.errno == errno.ENOSPC and error.filename == str(path)
        assert path.read_bytes() == before
        assert {*os.listdir(path.parent)} == {"a.npz", "half"}
    assert full > 9
    with read_arrays(path) as found:
        assert all((found[name] == arrays[name]).all() for name in "abc")


OTHER = [b"ROMEO: what is it?\n" * 30, b"PK\5\6" + bytes(18),
         b"PK\3\4" + np.random.default_rng(0).bytes(10_000)]


def test_each_changed_byte_each_cut_and_other_content_are_noticed_when_a_file_is_opened(path):
    whole = path.read_bytes()
    places = (*range(0, len(whole), 16), *range(len(whole) - 70, len(whole)))
    spoilt = (whole[:i] + bytes([whole[i] ^ 0xff]) + whole[i + 1:] for i in places)
    zeroed = (whole[:-n] + bytes(n) for n in (1, files.SEAL, 512, 4096, len(whole)))
    for content in (*spoilt, *(whole[:i] for i in places), *zeroed, *OTHER):
        path.write_bytes(content)
        assert "its seal is missing or does not match" in refusal(ValueError, read_arrays, path)


@pytest.mark.skipif(os.name == "nt", reason="there no other has the name of a file that is open")
def test_a_file_that_is_replaced_is_read_as_it_was_opened_and_one_that_is_written_is_refused(path):
    zeros = content_of({"a": np.zeros(9999)})
    ones = content_of({"a": np.ones(9999)})
    with read_arrays(written(path, zeros)) as found:
        os.replace(written(path.with_name("b.npz"), ones), path)
        assert not found["a"].any()
    with read_arrays(path) as found:
        written(path, zeros)
        said = refusal(ValueError, found.__getitem__, "a")
        assert said == ("its array a cannot be read, though the seal was right, so somebody has "
                        "changed it meanwhile, or sealed it again")


def test_a_file_that_is_refused_is_closed(path, monkeypatch):
    opened = []
    monkeypatch.setattr(files, "open", lambda *how: opened.append(open(*how)) or opened[-1],
                        raising=False)
    for content in (b"no seal", sealed(b"no zip"), LIES["a bomb"]):
        path.write_bytes(content)
        with pytest.raises(ValueError):
            read_arrays(path)
        assert opened.pop().closed


def with_seal(file):
    """The zip in a BytesIO as if it had been written so."""
    return sealed(file.getvalue()[:-2] + files.SEAL.to_bytes(2, "little"))


def with_member(header, body=b"", **options):
    """A sealed file of one array, of which its header may lie."""
    header = header.encode().ljust(117) + b"\n"
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", **options) as archive:
        archive.writestr("a.npy", b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little")
                         + header + body)
    return with_seal(file)


def claim(shape, dtype="<f4"):
    return f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"


def shared():
    """1,000 names for the same megabyte."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        with archive.open("a.npy", "w") as member:
            np.save(member, np.zeros(250_000, np.float32))
        archive.filelist += 999 * archive.filelist
    return with_seal(file)


class Trap:
    """Leaves a mark where it is unpickled."""
    sprung = False

    @staticmethod
    def spring():
        Trap.sprung = True

    def __reduce__(self):
        return Trap.spring, ()


def objects():
    """A pickle of as many bytes as the array has that it claims to be."""
    pickled = pickle.dumps(np.array([Trap()], object))
    pickled += bytes(-len(pickled) % 8)
    return with_member(claim(f"({len(pickled) // 8},)", "|O"), pickled)


LIES = {
    "10^12 elements": with_member(claim("(1000000000000,)"), bytes(16)),
    "sizes whose product overflows": with_member(claim(f"({2 ** 32}, {2 ** 32})"), bytes(16)),
    "10^12 elements of no bytes": with_member(claim("(1000000000000,)", "<U0")),
    "fewer elements than bytes": with_member(claim("(3,)"), bytes(16)),
    "a negative size": with_member(claim("(-4,)"), bytes(16)),
    "objects": objects(),
    "code": with_member("{'descr': '<f4', 'fortran_order': False, 'shape': (print(1),), }"),
    "a bomb": with_member(claim("(25000000,)"), bytes(100_000_000),
                          compression=zipfile.ZIP_DEFLATED),
    "compressed": with_member(claim("(4,)"), bytes(16), compression=zipfile.ZIP_LZMA),
    "10^12 elements of a few bytes that are deflated": with_member(
        claim("(1000000000000,)"), bytes(16), compression=zipfile.ZIP_DEFLATED),
    "one megabyte as a thousand": shared()}


@pytest.mark.parametrize("content", LIES.values(), ids=LIES)
def test_a_file_that_lies_is_refused_before_memory_is_taken_or_an_object_made(path, content):
    path.write_bytes(content)
    with memory() as taken, pytest.raises(ValueError), read_arrays(path) as arrays:
        dict(arrays)
    assert taken[0] < 1_500_000
    assert not Trap.sprung


@pytest.mark.parametrize("dtypes", [
    *[repr({"a": dtype}) for dtype in (
        "|O", "<f8", "<i2", "|V0", [("a", "|O")], "none", 7, None, [1], ("<f4", -1), b"x")],
    "", "[", "[1]", "{[]: 1}", "{'a': open('x')}", "9" * 5000, "-" * 100_000], ids=shown)
def test_a_deflated_file_whose_dtypes_lie_gives_no_array_and_says_which(path, dtypes):
    arrays = {"a": np.ones((4, 6), np.uint8), files.BY_BYTES: np.array(dtypes)}
    written(path, content_of(arrays))
    with pytest.raises(ValueError) as caught, read_arrays(path) as arrays:
        assert [*arrays] == ["a"]
        arrays["a"]
    part, _, why = str(caught.value).partition(" cannot be read, though the seal was right, ")
    assert part in ("its list of dtypes", "its array a")
    assert why == "so somebody has changed it meanwhile, or sealed it again"


@pytest.mark.parametrize("deflated", [False, True])
def test_of_a_file_that_was_changed_and_sealed_again_no_error_is_in_words_of_python(path, deflated):
    draw, said = random.Random(0), set()
    content = content_of(ARRAYS, deflated)[:-files.SEAL]
    for _ in range(150):
        written(path, sealed(mutated(content, draw)))
        try:
            with read_arrays(path) as arrays:
                dict(arrays)
        except ValueError as error:
            said.add(re.sub("its array .* cannot", "its array cannot", str(error)))
    assert said >= {f"its {part} cannot be read, though the seal was right, so somebody has "
                    "changed it meanwhile, or sealed it again" for part in ("array",
                                                                            "list of arrays")}
    assert all(line.startswith(("its array", "one of its arrays claims")) or "list of" in line
               for line in said), said


def test_an_error_of_the_disk_or_of_memory_is_none_of_a_changed_file(path, monkeypatch):
    for error in (OSError(errno.EIO, "Input/output error"), MemoryError()):
        with read_arrays(path) as arrays:
            monkeypatch.setattr(arrays.zip, "open", Mock(side_effect=error))
            with pytest.raises(type(error)) as caught:
                arrays["a"]
        assert caught.value is error


def test_a_careless_reader_would_have_made_the_object(path, monkeypatch):
    monkeypatch.setattr(Trap, "sprung", False)
    path.write_bytes(LIES["objects"])
    with np.load(path, allow_pickle=True) as file:
        assert file["a"].shape == (1,)
        assert Trap.sprung


# A folder for one process

def test_a_folder_is_had_by_one_process_at_a_time_and_the_second_is_told_by_which(tmp_path):
    with claimed(tmp_path):
        said = refusal(ValueError, claimed(tmp_path).__enter__)
        assert said.startswith(f"another run writes into {tmp_path} (process {os.getpid()}, since")
        assert "--out_dir" in said
        (tmp_path / ".lock").write_bytes(b"\xff" * 5000)        # which is not trusted
        assert len(refusal(ValueError, claimed(tmp_path).__enter__)) < 500
    with claimed(tmp_path):
        pass


def test_claimed_names_the_folder_of_a_full_disk(tmp_path, monkeypatch):
    def full():                 # when it is about to write
        raise OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(files.time, "ctime", full)
    assert str(tmp_path) in refusal(OSError, claimed(tmp_path).__enter__)


@pytest.mark.skipif(os.name == "nt", reason="there a file that is open cannot be removed")
def test_what_a_killed_process_held_and_wrote_is_in_the_way_of_none(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE,
                          cwd=ROOT) as process:
        try:
            assert process.stdout.readline().strip() == b"held"
            assert f"process {process.pid}, " in refusal(ValueError, claimed(tmp_path).__enter__)
        finally:
            process.kill()
    names = [f"last.npz.{number}.part" for number in (process.pid, os.getpid(), os.getppid())]
    for name in (*names, f"x.{10**30}.part", "mine.part"):
        written(tmp_path / name, "half")
    with replacing(tmp_path / "last.npz"):
        assert not (tmp_path / names[0]).exists()
    with claimed(tmp_path):         # what a living process writes, and something else, are left
        assert {*os.listdir(tmp_path)} == {".lock", "last.npz", names[2], "mine.part"}


@pytest.mark.skipif(os.name == "nt", reason="there no process is asked")
@pytest.mark.parametrize("error, left", [(PermissionError(1, "Operation not permitted"), True),
                                         (ProcessLookupError(3, "No such process"), False)])
def test_remove_left_spares_what_a_process_of_another_user_writes(
        tmp_path, monkeypatch, error, left):
    def kill(process, number):
        assert (process, number) == (1234, 0)
        raise error
    monkeypatch.setattr(os, "kill", kill)
    written(tmp_path / "a.1234.part", "half")
    files.remove_left(tmp_path, "*.part")
    assert [*tmp_path.iterdir()] == left * [tmp_path / "a.1234.part"]


@pytest.mark.skipif(files.fcntl is None, reason="Windows has locks everywhere")
def test_a_file_system_without_locks_is_said_to_be_one(tmp_path, monkeypatch, capsys):
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")
    monkeypatch.setattr(files.fcntl, "flock", flock)
    with claimed(pathlib.Path(tmp_path)):
        pass
    assert "cannot be locked (No locks available); make sure that no" in capsys.readouterr().err
