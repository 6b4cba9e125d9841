"""python -m model.walk: the stations at a terminal and in a file, the exercises, the answers to
mistakes."""
import io
import sys

import pytest

from model.walk import __main__ as command
from model.walk import process
from model.walk.judge import Verdict
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
def test_its_status_says_whether_a_file_is_right(right, monkeypatch, capsys):
    monkeypatch.setattr(process, "check", lambda path: Verdict(right, [f"{path}.", "So."]))
    assert status("--check", "file") == (not right) and capsys.readouterr().out == "file.\nSo.\n"
