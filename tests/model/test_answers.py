"""What commands say: how they answer mistakes, and which lines they print to be typed."""
import errno
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from unittest.mock import Mock

import pytest

from model import answers, start
from model.answers import (announced_if_slow, answering, command_line, install_command, reading,
                           tell, text_or_file)
from tests.kit import ROOT, nobody_reads, refusal


def test_answering_makes_ctrl_c_an_exception_again():
    for before, then in ((start.quit_at_once, signal.default_int_handler),
                         (signal.SIG_IGN, signal.SIG_IGN)):
        signal.signal(signal.SIGINT, before)
        with answering("a.command"):
            assert signal.getsignal(signal.SIGINT) is then


@pytest.mark.parametrize("error, code", [
    (ValueError("what\nand why"), r"a.command: what\nand why"), (KeyboardInterrupt(), 130),
    (MemoryError("14.6 TiB"), "a.command: there is not enough memory (14.6 TiB); take a smaller "
                              "model, batch or text, or end other programs"),
    (OSError(28, "No space left"), "a.command: cannot use standard output: No space left; first "
                                   "make room there; all is kept"),
    (OSError(errno.EDQUOT, "Quota exceeded", "x"), "a.command: cannot use x: Quota exceeded; first "
                                                   "make room there; all is kept"),
    (OSError(errno.EFBIG, "File too large", "x"),
     "a.command: cannot use x: File too large; first allow larger files (ulimit -f), or give a "
     "folder on another disk; all is kept"),
    (FileNotFoundError(2, "No such file", "no/x.txt"),
     "a.command: cannot use no/x.txt: No such file; first make the folder no, or give another; all "
     "is kept"),
    (FileNotFoundError(2, "No such file", "x.txt"),
     "a.command: cannot use x.txt: No such file; all is kept"),
    (OSError(30, "Read-only file system", "x"), "a.command: cannot use x: Read-only file system; "
                                                "first get the right to read and write there; all "
                                                "is kept"),
    (PermissionError(13, "Permission denied", "x"),
     "a.command: cannot use x: Permission denied; first get the right to read and write there; all "
     "is kept")])
def test_answering_says_in_a_line_what_goes_wrong(error, code, capsys, monkeypatch):
    def fail(*kept):
        with answering("a.command", *kept):
            raise error
    assert refusal(SystemExit, fail, lambda: "all is kept") == str(code)
    said = "\nstopped at once; all is kept\n" if code == 130 else ""
    assert capsys.readouterr().err == said
    monkeypatch.setattr(sys, "stdout", Mock(flush=Mock(side_effect=[error, None])))  # or at its end
    assert refusal(SystemExit, answering("a.command")(print)) == str(code).removesuffix(
        "; all is kept")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("error, platform, code", [
    (BrokenPipeError(32, "Broken pipe"), "linux", "0"), (OSError(22, "Invalid"), "win32", "0"),
    (OSError(22, "Invalid", "x.txt"), "win32", "a: cannot use x.txt: Invalid"),
    (OSError(22, "Invalid"), "linux", "a: cannot use standard output: Invalid")])
def test_answering_a_closed_pipe_is_quiet(error, platform, code, monkeypatch):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(sys, "stdout", Mock(**{"flush.side_effect": error}))
    monkeypatch.setattr(os, "dup2", Mock())
    assert refusal(SystemExit, answering("a", unread=0)(id), 0) == code
    assert os.dup2.called == (code == "0")


@pytest.mark.parametrize("error, code, says", [
    (SystemExit(130), 130, ""), (KeyboardInterrupt(), 130, "\nstopped at once; all is kept\n"),
    (None, 1, "\nnobody reads the output any more; all is kept\n")], ids=repr)
def test_answering_discards_what_nobody_reads_at_every_end(error, code, says, monkeypatch, capsys):
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", encoding="utf-8") as out:
        monkeypatch.setattr(sys, "stdout", out)
        with pytest.raises(SystemExit) as end, answering("a.command", lambda: "all is kept"):
            print("unread")
            if error:
                raise error
        out.flush()                 # as Python does at its end
    assert end.value.code == code
    assert capsys.readouterr().err == says


def test_tell_goes_on_if_nobody_reads_and_not_on_a_full_disk(monkeypatch):
    with nobody_reads(monkeypatch):
        for line in ("one", "two"):
            tell(line, "more")
    monkeypatch.setattr(sys, "stdout", Mock(**{"flush.side_effect": OSError(28, "No space left")}))
    with pytest.raises(OSError, match="No space left"):
        tell("one")


def test_answering_raises_an_exit_alone_as_a_notebook_shows_what_it_was_raised_from():
    with pytest.raises(SystemExit) as end, answering("a.command"):
        raise ValueError("what and why")
    assert end.value.__suppress_context__ and end.value.__cause__ is None


@pytest.mark.parametrize("slow", [False, True])
def test_announced_if_slow_says_a_line_only_if_it_takes_long(slow, monkeypatch, capsys):
    timers = []

    class Timer(threading.Timer):
        def start(self):
            timers.append(self)
    monkeypatch.setattr(answers.threading, "Timer", Timer)
    with announced_if_slow("reading x"):
        timer, = timers
        assert timer.interval == answers.PATIENCE
        assert timer.daemon
        if slow:
            timer.function()
    assert timer.finished.is_set()      # it is cancelled
    assert capsys.readouterr() == ("", "reading x ...\n" * slow)


# Commands to type

HERE = ROOT
ABOVE = ROOT.parent
ELSEWHERE = pathlib.Path(ROOT.anchor)
OUT = "--out_dir", pathlib.Path("my out")


@pytest.mark.parametrize("typed, argv, folder, words, line", [
    ("python train.py", "train.py", HERE, ["train", *OUT], "python train.py --out_dir 'my out'"),
    ("python3 -X dev ./train.py --seed 3", "./train.py --seed 3", HERE, ["train", *OUT],
     "python3 ./train.py --out_dir 'my out'"),
    ("bin/python -m train -a", "ROOT/train.py -a", ELSEWHERE, ["train", *OUT],
     "bin/python -m train --out_dir 'my out'"),
    ("python -mmodel.sample -a", "ROOT/model/sample.py -a", ELSEWHERE, ["train", *OUT],
     "python -m train --out_dir 'my out'"),
    ("python -m model.look", "ROOT/model/look/__main__.py", HERE, ["train", *OUT],
     "python train.py --out_dir 'my out'"),
    ("python3 FILE -a b", "FILE -a b", ABOVE, ["train", *OUT],
     "python3 FILE --out_dir 'my out'"),
    ("python3 FILE -a b", "FILE -a b", ABOVE, ["model.sample", *OUT, "--start", "a"],
     "cd ROOT && python3 -m model.sample --out_dir 'ABOVE/my out' --start a"),
    ("bin/python FILE", "FILE", ABOVE, ["model.look"],
     "cd ROOT && ABOVE/bin/python -m model.look"),
    ("python3 train.py", "train.py", HERE, ["model.look"], "python3 -m model.look"),
    # Started by another program, as by IPython's %run.
    ("bin/python", "train.py --seed 3", HERE, ["train", *OUT],
     "bin/python train.py --out_dir 'my out'"),
    ("python", "train.py", HERE, ["model.sample"], "python -m model.sample"),
    ("python -m ipykernel_launcher -f a.json", "train.py --seed 3", HERE, ["train", *OUT],
     "python train.py --out_dir 'my out'"),
    ("python ipython", "FILE --seed 3", ABOVE, ["train", *OUT],
     "python FILE --out_dir 'my out'"),
    ("python ipython", "FILE --seed 3", ABOVE, ["model.look"],
     "cd ROOT && python -m model.look"),
    ("python ipython", "ROOT/model/sample.py --seed 3", HERE, ["train", *OUT],
     "python train.py --out_dir 'my out'"),
    ("python", "ROOT/model/sample.py a b c d", ELSEWHERE, ["model.look"],
     "python -m model.look"),
    ("python3 -m pytest", "x/pytest/__main__.py", ELSEWHERE, ["train", *OUT],
     "python train.py --out_dir 'my out'"),
    ("python3 -c pass", "-c", ELSEWHERE, ["model.look"], "python -m model.look"),
    ("python", "", HERE, ["train", pathlib.Path("-a b"), pathlib.Path("~"), "-c", "~"],
     "python train.py './-a b' './~' -c '~'")])
def test_command_line_begins_as_what_was_typed(typed, argv, folder, words, line, monkeypatch):
    places = {"FILE": f"{ROOT.name}/train.py", "ROOT": str(ROOT), "ABOVE": str(ABOVE)}

    def placed(text):
        for name, place in places.items():
            text = text.replace(name, place)
        return text
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "orig_argv", placed(typed).split())
    monkeypatch.setattr(sys, "argv", placed(argv).split())
    monkeypatch.setattr(answers, "SYSTEM", "posix")
    assert command_line(*words) == placed(line)


def test_command_line_is_written_for_the_shell_of_the_system(monkeypatch):
    path = pathlib.PureWindowsPath(r"runs\my out")
    for system, line in (("nt", r'python -m model.look -o "runs\my out"'),
                         ("posix", r"python -m model.look -o 'runs\my out'")):
        monkeypatch.setattr(answers, "SYSTEM", system)
        assert command_line("model.look", "-o", path) == line


def test_install_command_names_the_folder_of_the_project(monkeypatch):
    assert install_command("mpi") == "python -m pip install -e '.[mpi]'"
    monkeypatch.chdir(ABOVE)
    monkeypatch.setattr(sys, "orig_argv", ["python3", "-m", "model.convert"])
    monkeypatch.setattr(sys, "argv", [str(ROOT / "model" / "convert" / "__main__.py")])
    assert shlex.split(install_command("mpi"))[1:] == ["-m", "pip", "install", "-e",
                                                       f"{ROOT}[mpi]"]


@pytest.mark.late
@pytest.mark.skipif(os.name == "nt", reason="this shell is not that of Windows")
def test_command_line_is_run_by_the_shell_from_where_the_user_is(tmp_path, trained):
    """Each line that is printed, from one typed in another folder to the next."""
    folder = tmp_path / "-my 'dear' runs"
    shutil.copytree(trained, folder / "-out")
    typed = [sys.executable, os.path.relpath(ROOT / "train.py", folder), "--init_from", "resume",
             "--out_dir=-out"]
    done = subprocess.run(typed, cwd=folder, capture_output=True, text=True, encoding="utf-8")
    go_on, sample = re.findall("^    (.+)", done.stdout, re.M)
    assert go_on == f"{shlex.join(typed[:4])} --out_dir ./-out --max_iters 80"
    for line in (go_on.removesuffix("80") + "41", sample + " --max_new_tokens 9"):
        done = subprocess.run(line, cwd=folder, shell=True, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert len(done.stdout.strip("\n")) == 9


def test_a_text_is_itself_or_what_a_file_holds(tmp_path, monkeypatch):
    (tmp_path / "lantern").write_bytes(b"a\r\nb")
    monkeypatch.chdir(tmp_path)
    assert text_or_file("lantern") == "lantern"
    assert text_or_file("FILE:lantern") == "a\nb"
    for file in ("none.txt", "shakespeare", ""):
        assert refusal(ValueError, text_or_file, f"FILE:{file}") == (
            f"there is no file {file!r}; give a UTF-8 text file as FILE:path, or a text that does "
            "not begin with FILE:")


@pytest.mark.parametrize("words, says", [
    (["lantern"], ""), (["a.txt"], "reading a.txt ...\n"), (["none"], "reading none ...\n"),
    (["lantern", "a.txt"], "reading a.txt ...\n"),
    *[(["a.txt", "pipe"], "waiting for pipe ...\n")] * hasattr(os, "mkfifo")])
def test_reading_says_what_it_waits_for(words, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").touch()
    if "pipe" in words:
        os.mkfifo("pipe")
    monkeypatch.setattr(answers, "PATIENCE", 0)
    with reading(words):
        if says:
            time.sleep(0.2)
    assert capsys.readouterr().err == says
