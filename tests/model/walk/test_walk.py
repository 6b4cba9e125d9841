"""python -m model.walk: the stations at a terminal and in a file, the exercises, the answers to
mistakes."""
import io
import os
import signal
import sys

import pytest

from model.walk import __main__ as command
from model.walk import process
from model.walk.judge import Verdict
from model.walk.practice import Exercise
from model.walk.stations import STATIONS
from tests.kit import nobody_reads

HEADS = [f"{n}. {station.title}" for n, station in enumerate(STATIONS, 1)]


def heads(text):
    return [head for head in HEADS if f"{head} " in text]


def status(*words):
    """With which the command ends."""
    with pytest.raises(SystemExit) as ended:
        command.main([*words])
    return ended.value.code


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("words, stations, end", [
    ([], HEADS, "python -m model.walk --exercise\n"), (["5"], HEADS[4:5], "model.walk 6\n")])
def test_it_shows_the_whole_walk_or_a_station(words, stations, end, capsys):
    assert status(*words) == 0
    said = capsys.readouterr().out
    assert heads(said) == stations and said.endswith(end) and "Enter" not in said


@pytest.mark.parametrize("typed, shown", [("\n\nq\n", 3), ("\n", 2), ("q\n", 1), ("\n" * 20, 13)])
def test_a_terminal_waits_for_the_reader(typed, shown, monkeypatch):
    out = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    monkeypatch.setattr(sys, "stdout", out)
    command.walk(None)
    assert heads(out.getvalue()) == HEADS[:shown]
    assert ("That was the walk" in out.getvalue()) == (shown == len(HEADS))


def test_its_exercises_are_there_if_nobody_reads_what_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with nobody_reads(monkeypatch):
        assert status("--exercise") == 0
    assert [*tmp_path.iterdir()]


def test_it_writes_the_exercises_and_says_what_comes_next(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert status("--exercise") == 0
    count = len(list((tmp_path / "exercises").iterdir()))
    assert capsys.readouterr().out == (
        f"exercises: {count} new files.  Read the text in e0_scalars.py, "
        "fill it in, then:\n    python -m model.walk --check exercises/e0_scalars.py\n")
    assert status("--exercise", "exercises") == status("--exercise", "my ex") == 0
    said = capsys.readouterr().out
    assert said.startswith(f"exercises: 0 new files; {count} already there, not ")
    assert "--check 'my ex/e0_scalars.py'\n" in said


@pytest.mark.parametrize("right", [True, False])
def test_its_status_says_whether_a_file_is_right(right, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    monkeypatch.setattr(process, "check", lambda path: Verdict(right, [f"{path}.", "So."]))
    assert status("--check", "file") == (not right) and capsys.readouterr().out == "file.\nSo.\n"


@pytest.mark.parametrize("name, why", [
    ("none.py", "No such file or directory"), ("folder", "it is no regular file"),
    *[("pipe", "it is no regular file")] * hasattr(os, "mkfifo")])
def test_what_cannot_be_read_is_said_before_a_process_is_started(name, why, tmp_path, monkeypatch,
                                                                 capsys):
    (tmp_path / "folder").mkdir()
    if name == "pipe":
        os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(process, "check", None)     # not to be called
    assert status("--check", str(tmp_path / name)) == 1
    said, announced = capsys.readouterr()
    said = " ".join(said.split())
    assert said == (f"{tmp_path / name} cannot be read: {why}. Name one of the files that python "
                    "-m model.walk --exercise writes.")
    assert announced == ""


def test_exercises_are_not_written_where_a_file_is(tmp_path):
    (tmp_path / "file").touch()
    assert status("--exercise", str(tmp_path / "file")) == (
        f"model.walk: --exercise is a folder, and {str(tmp_path / 'file')!r} is none; give another "
        "name")


@pytest.mark.parametrize("words, says", [
    ("5 6", "give the number of one station, not 5 or 6; all are shown without a number"),
    ("abc", "--station takes a whole number, not 'abc'"),
    ("3.0", "--station takes a whole number, not '3.0'; write 3"),
    ("0", "--station is at least 1 and at most 13, not 0"),
    ("-1", "--station is at least 1 and at most 13, not -1"),
    ("mine.py", "no flag takes 'mine.py'; did you mean --check mine.py?"),
    ("5 --page", "--station and --page do different things; give one of them"),
    ("--page a.html b", "no flag takes 'b'; see --help")])
def test_words_without_a_flag_are_numbers_of_stations_or_answered(words, says, capsys):
    assert status(*words.split()) == 2
    assert capsys.readouterr().err == f"model.walk: error: {says}\n"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize("words", [["--page", "a.html"], ["--exercise", "."]])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_leaves_no_file_half_written(words, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def signalled(*_):
        signal.raise_signal(getattr(signal, name))
    monkeypatch.setattr(command, "pictures", signalled)     # for which it trains a model
    monkeypatch.setattr(Exercise, "task", signalled)
    before = signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        signal.signal(getattr(signal, name), lambda *_: None)       # or it would end the tests
        assert status(*words) == 130
    finally:
        signal.signal(getattr(signal, name), before)
    assert list(tmp_path.iterdir()) == []
