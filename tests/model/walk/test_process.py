"""The judge's process: whatever a file does, it ends, is answered, and leaves nothing behind."""
import contextlib
import os
import pathlib
from concurrent.futures import ThreadPoolExecutor

import numba.core.dispatcher
import pytest

from model.walk import judge, process
from model.walk.judge import Verdict
from model.walk.practice import exercises
from tests.kit import written

SOFTMAX = exercises()[1].source
LEAVES = """
import atexit, subprocess, threading, time, helper
threading.Thread(target=time.sleep, args=(1000,)).start()
atexit.register(time.sleep, 1000)
subprocess.Popen("sleep 20; echo late", shell=True, stdout=open(r"{fifo}", "w"))
"""
# What stands before and after a right answer, the patience, and words of the verdict.
FILES = {
    "leaves": ("", LEAVES, 1, ["Right."]),
    "exits": ("import os\nos._exit(0)\n", "", 1, ["before it was judged", "os._exit()"]),
    "kills": ("import os\nos.kill(os.getpid(), 9)\n", "", 1, ["SIGKILL", "before it was judged"]),
    "asks": ("input()\n", "", 1, ["line 1: input()", "EOFError"]),
    "loops": ("while True: pass\n", "", 0.05, ["did not end in time",
              "in line 1: while True: pass"])}
pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """The verdicts, by the file; what a child that a file has left writes; the folder of files."""
    folder = tmp_path_factory.mktemp("ü")
    os.mkfifo(fifo := folder / "fifo")
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)

    def check(name):
        before, after, patience, _ = FILES[name]
        (folder / name).mkdir()
        written(folder / name / "helper.py", "")
        path = written(folder / name / "e1_softmax.py", before + SOFTMAX + after.format(fifo=fifo))
        return process.check(path, patience)
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(3) as at_once:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        verdicts = dict(zip(FILES, at_once.map(check, FILES)))
    os.set_blocking(reader, True)
    yield verdicts, os.read(reader, 10), folder
    os.close(reader)


@pytest.mark.parametrize("name", FILES)
def test_whatever_a_file_does_to_its_process_is_answered(name, checked):
    verdict = checked[0][name]
    assert all(words in verdict.text().replace("\n", " ") for words in FILES[name][-1])
    assert verdict.right == ("Right." in FILES[name][-1])


def test_a_child_that_a_file_starts_is_ended_and_nothing_is_left_in_its_folder(checked):
    _, written_by_child, folder = checked
    assert written_by_child == b""
    assert sorted(os.listdir(folder / "leaves")) == ["e1_softmax.py", "helper.py"]


def test_what_a_file_prints_goes_to_standard_error(tmp_path, capfd):
    assert "SystemExit" in process.check(
        written(tmp_path / "e1_softmax.py", "print('so far')\nexit()\n" + SOFTMAX)).text()
    out, err = capfd.readouterr()
    assert "so far" in err and out == ""


def test_a_named_pipe_and_a_device_are_not_read(tmp_path):
    os.mkfifo(fifo := tmp_path / "e1_softmax.py")
    for path in (os.devnull, fifo):
        (line,) = judge.judge(path).said
        assert line.startswith(f"{path} cannot be read: it is no regular file.")


@pytest.mark.parametrize("status, words", [
    (0, "os._exit()"), (1, "os._exit()"), (-11, "(SIGSEGV)"), (0xC0000005, "(0xC0000005)")])
def test_ended_tells_a_crash_from_an_exit_on_windows_too(status, words):
    said = process.ended(status)
    assert words in said and ("fill the memory" in said) == ("exit" not in words)


def test_end_group_sends_ctrl_break_on_windows(monkeypatch):
    sent = []
    monkeypatch.delattr(process.os, "killpg")
    monkeypatch.setattr(process.signal, "CTRL_BREAK_EVENT", "break", raising=False)
    monkeypatch.setattr(process.os, "kill", lambda pid, event: sent.append((pid, event)))
    process.end_group(5)
    assert sent == [(5, "break")]


def leaving(monkeypatch, status, **files):
    """Have processes leave these files, and this status; return the patience of each."""
    patiences = []

    def run(words):
        _, patience, folder = words
        patiences.append(float(patience))
        for name, text in files.items():
            written(pathlib.Path(folder, name), text)
        return status
    monkeypatch.setattr(process, "run", run)
    return patiences


def test_a_file_that_has_to_wait_for_the_compiler_gets_more_time_and_not_for_ever(monkeypatch):
    frame = f'  File "{numba.core.dispatcher.__file__}", line 1 in compile\n'
    patiences = leaving(monkeypatch, 1, stack=frame)
    (line,) = process.check("e1_softmax.py").said
    assert line.startswith("It did not end in time") and patiences == [1, 2, 4, 8, 16]


def test_the_line_of_a_loop_is_shown_where_it_is_the_student_s(monkeypatch, tmp_path):
    (tmp_path / "é").mkdir()
    part = written(tmp_path / "é" / "e4_heads.py", "\nwhile True:\n")
    in_ascii = str(part).replace("é", r"\xe9")
    leaving(monkeypatch, 1, stack='Thread 1 (most recent call first):\n'
            f'  File "/other/core.py", line 1 in call\n  File "{in_ascii}", line 2 in f\n')
    for path, says in ((part.with_name("e7_block.py"), "in line 2 of e4_heads.py: while True:"),
                       (part, "in line 2: while True:")):
        (line,) = process.check(path).said
        assert line.endswith(f"It was {says}")


def test_check_returns_the_verdict_that_the_process_leaves_and_says_if_that_takes_long(
        monkeypatch, capsys):
    monkeypatch.setattr(process, "announced_if_slow",
                        lambda what: contextlib.nullcontext(print(what)))
    leaving(monkeypatch, 0, verdict='[true, ["Right."]]', stack="")
    assert process.check("my\n.py") == (True, ["Right."])
    assert capsys.readouterr().out.startswith(r"judging my\n.py; this takes longer the first time")


def test_main_has_patience_and_shows_a_training_on_standard_error(monkeypatch, tmp_path, capsys):
    limits = []

    def judged(path, limit, report):
        with limit(100):
            report("step 25")
        return Verdict(True, [path])
    monkeypatch.setattr(process.faulthandler, "dump_traceback_later",
                        lambda seconds, exit, file: limits.append((seconds, exit)))
    monkeypatch.setattr(process, "judge", judged)
    monkeypatch.setattr(process.os, "_exit", lambda status: None)
    monkeypatch.setattr(process.sys, "dont_write_bytecode", False)
    monkeypatch.setattr(process.sys, "argv", ["", "a.py", "2.5", str(tmp_path)])
    process.main()
    assert limits == [(250, True)]
    assert capsys.readouterr().err == "step 25\n"
    assert (tmp_path / "verdict").read_text() == '[true, ["a.py"]]'
