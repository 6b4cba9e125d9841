"""Files are whole or not there; one process at a time has a folder, and no longer than it lives."""
import errno
import os
import pathlib
import subprocess
import sys

import pytest

from model import files
from model.files import FolderInUse, claimed, replacing

ROOT = pathlib.Path(__file__).parents[3]
HOLD = """
import pathlib, sys, time
from model.files import claimed
with claimed(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_file_has_its_name_once_all_of_it_is_on_the_disk(tmp_path, monkeypatch):
    calls, sync, rename = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda number: (calls.append("fsync"), sync(number)))
    monkeypatch.setattr(os, "replace", lambda *names: (calls.append("rename"), rename(*names)))
    with replacing(tmp_path / "file") as file:
        file.write(b"one")
        assert not (tmp_path / "file").exists()
    assert calls == ["fsync", "rename", "fsync"][:2 if os.name == "nt" else 3]
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"one"


def test_the_file_before_is_kept_where_that_is_asked_for(tmp_path):
    for content in (b"one", b"two", b"three"):
        with replacing(tmp_path / "new", tmp_path / "old") as file:
            file.write(content)
    assert (tmp_path / "new").read_bytes() == b"three"
    assert (tmp_path / "old").read_bytes() == b"two"


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), OSError(28, "No space")])
def test_whatever_happens_the_old_file_is_whole_and_nothing_else_is_left(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(type(error)) as caught:
        with replacing(path, tmp_path / "before") as file:
            file.write(b"half")
            raise error
    assert caught.value is error
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.txt"]
    assert getattr(error, "filename", str(path)) == str(path)


def test_a_file_that_cannot_be_made_is_named_as_the_user_named_it(tmp_path):
    with pytest.raises(OSError) as caught:
        with replacing(tmp_path / "nowhere" / "a.txt"):
            pass
    assert caught.value.filename == str(tmp_path / "nowhere" / "a.txt")


def test_a_folder_that_cannot_be_synchronised_is_left_at_that(tmp_path, monkeypatch):
    def fsync(number):
        if os.path.isdir(f"/proc/self/fd/{number}"):
            raise OSError(error, os.strerror(error))
    monkeypatch.setattr(os, "fsync", fsync)
    error = errno.EINVAL
    with replacing(tmp_path / "file") as file:
        file.write(b"one")
    assert (tmp_path / "file").read_bytes() == b"one"
    error = errno.EIO
    if os.path.isdir("/proc/self/fd"):
        with pytest.raises(OSError, match="Input/output"), replacing(tmp_path / "file"):
            pass


def test_a_folder_is_had_by_one_process_at_a_time_and_the_second_is_told_by_which(tmp_path):
    with claimed(tmp_path):
        with pytest.raises(FolderInUse) as caught, claimed(tmp_path):
            pass
    assert str(caught.value).startswith(f"another run writes into {tmp_path} (process "
                                        f"{os.getpid()}, since 2")
    assert "--out_dir" in str(caught.value) and "\n" not in str(caught.value)
    with claimed(tmp_path):
        pass


def test_a_process_that_is_killed_holds_nothing_any_more(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE,
                          cwd=ROOT) as process:
        try:
            assert process.stdout.readline().strip() == b"held"
            with pytest.raises(FolderInUse, match=f"process {process.pid}, "), claimed(tmp_path):
                pass
            part = tmp_path / f"last.npz.{process.pid}.part"
            part.write_bytes(b"half")
            (tmp_path / "mine.part").write_bytes(b"of something else")
            assert files._is_alive(process.pid) or os.name == "nt"
        finally:
            process.kill()
    with claimed(tmp_path):
        assert not part.exists() and (tmp_path / "mine.part").exists()


@pytest.mark.skipif(os.name == "nt", reason="there a file that is open cannot be removed")
def test_what_a_living_process_writes_is_left_alone(tmp_path):
    living, own = (tmp_path / f"last.npz.{number}.part" for number in (os.getppid(), os.getpid()))
    living.write_bytes(b"half"), own.write_bytes(b"of a dead process with this one's number")
    (tmp_path / f"x.{10**30}.part").write_bytes(b"")
    with claimed(tmp_path):
        assert set(os.listdir(tmp_path)) == {".lock", living.name}


def test_what_a_lock_file_says_of_its_holder_is_not_trusted(tmp_path):
    with claimed(tmp_path):
        (tmp_path / ".lock").write_bytes(b"\xff" * 5000)
        with pytest.raises(FolderInUse) as caught, claimed(tmp_path):
            pass
        assert len(str(caught.value)) < 500 and "\n" not in str(caught.value)


@pytest.mark.skipif(files.fcntl is None, reason="Windows has locks everywhere")
def test_a_file_system_without_locks_is_said_to_be_one(tmp_path, monkeypatch, capsys):
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")
    monkeypatch.setattr(files.fcntl, "flock", flock)
    with claimed(tmp_path):
        pass
    said = capsys.readouterr().err
    assert "has no locks (No locks available); see to it that no other run writes there" in said
