"""The command: what it writes and prints, and its exit status."""
import pytest

from model.walk import __main__ as command
from model.walk import judge
from model.walk.practice import exercises


def test_it_writes_the_exercises_and_says_what_comes_next(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command.main(["--exercise"])
    assert capsys.readouterr().out == (
        "exercises: 8 new files.  Read the text in e1_softmax.py, write its function, then:\n"
        "    python -m model.walk --check exercises/e1_softmax.py\n")
    command.main(["--exercise", "exercises"])
    assert capsys.readouterr().out.startswith("exercises: 0 new files; 8 were there and stay as ")
    assert len(list((tmp_path / "exercises").iterdir())) == len(exercises())


def test_its_status_says_whether_a_file_is_right(monkeypatch, capsys):
    for right in (True, False):
        monkeypatch.setattr(judge, "check", lambda path: judge.Verdict(right, [f"{path}.", "So."]))
        with pytest.raises(SystemExit) as ended:
            command.main(["--check", "file"])
        assert ended.value.code == (not right) and capsys.readouterr().out == "file.\nSo.\n"


def test_it_needs_one_of_its_flags(capsys):
    for argv in ([], ["--exercise", "--check", "file"]):
        with pytest.raises(SystemExit) as ended:
            command.main(argv)
        assert ended.value.code == 2
        assert "give --exercise for the files, or --check and a file" in capsys.readouterr().err
