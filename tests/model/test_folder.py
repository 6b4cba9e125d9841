"""The folder of a run and its log, and what is refused before anything is read or written."""
import os

import pytest

from model.folder import Folder, Log, folder_problems, read_log
from model.replay import __main__ as replay
from model.settings import Settings
from tests.kit import at_home, open_elsewhere, refused, written


def test_folder_problems_names_what_cannot_be_written_unless_nothing_is(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    for path in (tmp_path, tmp_path / "new" / "out"):
        says, = folder_problems(Settings(out_dir=str(path)))
        assert says.startswith(f"--out_dir {path} cannot be written: {tmp_path} does not allow it")
        assert folder_problems(Settings(out_dir=str(path), explain=True)) == []


@pytest.mark.skipif(os.name == "nt", reason="a link needs a right, and there is no /dev/null")
def test_folder_problems_says_what_stands_in_the_place_of_a_folder(tmp_path):
    def says(path):
        said, = folder_problems(Settings(out_dir=str(path)))
        return said.removeprefix(f"--out_dir {path} cannot be written: ")
    loop, dangling, file, good = (tmp_path / name for name in ("loop", "dangling", "file", "good"))
    loop.symlink_to(loop)
    dangling.symlink_to("nothing")
    written(file, "")
    good.symlink_to(tmp_path)
    other = "give another folder"
    assert says(loop) == f"{loop} is a link to {loop}, which leads nowhere; {other}"
    for path in (dangling, dangling / "out"):
        assert says(path) == f"{dangling} is a link to nothing, which leads nowhere; {other}"
    for path in (file, file / "out"):
        assert says(path) == f"{file} is a file; give a folder, such as {tmp_path}"
    assert says(os.devnull) == f"{os.devnull} is no folder; {other}"
    assert says(tmp_path / (300 * "a")) == f"File name too long; {other}"
    assert folder_problems(Settings(out_dir=str(good / "out"))) == []


@pytest.mark.parametrize("command", ["train.py", "--explain", "replay", "replay of the file"])
def test_a_folder_that_may_not_be_read_is_named_in_one_line(tmp_path, monkeypatch, capsys, command):
    real = os.stat

    def stat(path, *args, **settings):
        if isinstance(path, (str, os.PathLike)) and os.path.dirname(path) == str(tmp_path):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *args, **settings)
    monkeypatch.setattr(os, "stat", stat)
    if command.startswith("replay"):
        path = tmp_path / "nan.npz" if "file" in command else tmp_path
        said = refused(capsys, "--out_dir", path, main=replay.main)
        assert f"cannot read {tmp_path / 'nan.npz'}: Permission denied" in said
        return
    more = [command] if command == "--explain" else []
    said = refused(capsys, "--init_from resume --out_dir", tmp_path, *more)
    assert f"cannot use {tmp_path / 'last.npz'}: Permission denied" in said
    kept = f"what is saved in {tmp_path} cannot be told: Permission denied"
    assert said.endswith(kept) == (not more)
    assert Folder(tmp_path).describe_saved() == kept


# Log

LINES = [[0, None, 4.5, 1e-5, 0.0, 0.0], [10, 2.25, 2.5, 1e-3, 1000.0, 1.25]]


def log_of(path, lines=LINES, **settings):
    log = Log(path, **settings)
    for line in lines:
        log.write(*line)
    return log


def test_read_log_returns_what_was_written_and_whole_lines_at_any_moment(tmp_path, monkeypatch):
    path = tmp_path / "log.csv"
    real = os.fsync
    seen = []
    assert read_log(Log(path).path) == ([], "")
    monkeypatch.setattr(os, "fsync", lambda number: (seen.append(read_log(path)[0]), real(number)))
    log_of(path)
    assert read_log(path) == (LINES, "")
    assert [len(lines) for lines in seen[::2]] == [0, 0, 1]
    whole = path.read_bytes()
    assert Log(path, start=10).lines == LINES
    assert path.read_bytes() == whole
    assert Log(path, start=9).lines == LINES[:1]


def test_log_that_is_open_elsewhere_costs_a_warning_and_writes_its_lines_later(
        tmp_path, monkeypatch, capsys):
    log = log_of(tmp_path / "log.csv", LINES[:1])
    with open_elsewhere(monkeypatch, ["log.csv"], 99):
        log.write(*LINES[1])
    said = capsys.readouterr().err
    assert said.startswith(f"warning: another program has {log.path} open")
    assert said.count("\n") == 1
    assert read_log(log.path) == (LINES[:1], "")
    log.write(*LINES[1])
    assert read_log(log.path) == ([*LINES, LINES[1]], "")


@pytest.mark.parametrize("lines, kept", [
    ("", 0),
    ("iter,train_loss\n1,2\n", 0),
    ("{}\n0,,4.1,4e-5,0", 0),
    ("{}\n0,,4.1,4e-5,0,0,0\n", 0),
    ("{}\n,,4,4e-5,0,0\n", 0),
    ("{}\n0,,nan,4e-5,0,0\n", 0),
    ("{}\n0,,4.1,inf,0,0\n", 0),
    ("{}\n0,,4.1,x,0,0\n5,1,4,1,0,0\n", 1),
    ("{}\n0,,4.1,1,0,0\n\n5,1,4,1,0,0\n9,,4", 2),
    ("\0", 0),
    (b"\xff\xfe", 0),
    ("{}\n5,1,4,1,0,0\n\xff", 1),
    (None, 0)])
def test_read_log_keeps_the_whole_lines_of_a_damaged_or_lost_log(tmp_path, capsys, lines, kept):
    path = tmp_path / "log.csv"
    if lines is not None:
        written(path, lines.format(",".join(Log.COLUMNS)) if isinstance(lines, str) else lines)
    assert str(path) in read_log(path)[1]
    Log(path, start=10).write(20, 1.0, 1.5, 1e-3, 1000.0, 2.0)
    said = capsys.readouterr().err
    assert said.startswith(f"warning: {path} ")
    assert said.endswith(f"; of its lines {kept} are whole and kept\n")
    assert [row[0] for row in read_log(path)[0]] == [*[0, 5][2 - kept:], 20]


def test_log_of_skipped_steps_goes_on_from_one_without(tmp_path):
    path = tmp_path / "log.csv"
    log_of(path, LINES[:1])
    log_of(path, [[10, None, 4.25, 1e-3, 0.0, 0.5, 10]], start=0, may_skip=True)
    assert read_log(path)[0] == [[*LINES[0], 0], [10, None, 4.25, 1e-3, 0, 0.5, 10]]
    Log(path, start=10)
    assert read_log(path)[0] == [LINES[0], [10, None, 4.25, 1e-3, 0, 0.5]]


# The folder

@pytest.mark.parametrize("text, more", [
    ("", ""),
    ("lantern", ""),
    ("my texts/a.txt", ""),
    ("/dev/stdin", " --data FILE"),
    ("/dev/../dev/fd/3", " --data FILE"),
    ("/proc/self/fd/0", " --data FILE")])
def test_folder_at_home_is_found_and_a_piped_text_asked_for(monkeypatch, tmp_path, text, more):
    command = "python train.py --init_from resume --out_dir 'my run'"
    assert Folder("my run").resume_command(["lantern", text]) == command + more
    at_home(monkeypatch, tmp_path)
    home = Folder("~/out")
    assert home.path == tmp_path / "out"
    assert home.describe_saved() == "nothing had been saved yet"


def test_describe_saved_says_of_a_folder_that_was_renamed_meanwhile_what_to_do(tmp_path):
    with Folder(tmp_path / "out") as folder:
        folder.begin()
        folder.path.rename(tmp_path / "moved")
        assert "out was renamed or removed; resume with the name" in folder.describe_saved()


@pytest.mark.parametrize("names, kept", [
    (["ckpt.npz", "log.csv"], False),
    (["last.npz"], True),
    (["previous.npz"], True)], ids=str)
def test_describe_saved_names_the_command_if_there_is_a_file_to_resume_from(tmp_path, names, kept):
    for name in names:
        written(tmp_path / name, "")
    assert kept == Folder(str(tmp_path)).describe_saved().endswith(
        f"python train.py --init_from resume --out_dir {tmp_path}")


def test_begin_leaves_no_file_of_an_earlier_run_in_the_folder(tmp_path):
    names = ["ckpt.npz", "last.npz", "previous.npz", "last.damaged.npz", "log.csv", "nan.npz",
             "run.html"]
    for number in (1, 2):
        for name in names:
            written(tmp_path / name, f"{number} {name}")
        written(tmp_path / "notes.txt", "mine")
        with Folder(tmp_path) as folder:
            assert folder.begin() == tmp_path / f"earlier.{number}"
        assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {
            ".lock", "notes.txt"}
        assert {path.name: path.read_text() for path in folder.path.glob(f"earlier.{number}/*")
                } == {name: f"{number} {name}" for name in names}


def test_begin_says_what_earlier_runs_take_once_that_is_much(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("model.folder.MUCH", 2500)
    written(tmp_path / "earlier.txt", bytes(9000))
    for number in (1, 2, 3):
        written(tmp_path / "last.npz", bytes(1000))
        with Folder(tmp_path) as folder:
            folder.begin()
        said = capsys.readouterr().out
        assert ("take" in said) == (number == 3)
    assert "its 3 earlier runs take 3.000 kB; delete those of the folders earlier.1" in said
