"""The judge's process: whatever a file does, it ends, is answered, and leaves nothing behind."""
import contextlib
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numba.core.dispatcher
import pytest

from model.walk import process
from model.walk.practice import exercises
from tests.kit import written

SOFTMAX = exercises()[1].source
LEAVES = """
import atexit, subprocess, threading, time, helper
threading.Thread(target=time.sleep, args=(1000,)).start()
atexit.register(time.sleep, 1000)
subprocess.Popen("sleep 20; echo late", shell=True, stdout=open(r"{fifo}", "w"))
"""
ANSWERS = """
import os
for number in range(50):
    try:
        os.write(number, b'[true, ["Right."]]\\n["verdict", [true, ["Right."]]]\\n')
    except OSError:
        pass
"""
# What stands before and after a right answer, the patience, and words of the verdict.
FILES = {
    "leaves": ("", LEAVES, 1, ["Right."]),
    "answers": (ANSWERS + "os._exit(0)\n", "", 1, ["before it was judged", "os._exit()"]),
    "closes": (ANSWERS + "os.closerange(3, 256)\n", "", 1, ["closed", "os.closerange()"]),
    "kills": ("import os\nos.kill(os.getpid(), 9)\n", "", 1, ["SIGKILL", "before it was judged"]),
    "loops": ("while True:\n    pass\n", "", 0.05, ["did not end in time", "in line "]),
    "cancels": ("import faulthandler\nfaulthandler.cancel_dump_traceback_later()\n"
                "while True:\n    pass\n", "", 0.05, ["did not end in time"])}
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
        patch.setattr(process, "GRACE", 0.5)
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        verdicts = dict(zip(FILES, at_once.map(check, FILES)))
    os.set_blocking(reader, True)
    yield verdicts, os.read(reader, 10), folder
    os.close(reader)


@pytest.mark.parametrize("name", FILES)
def test_whatever_a_file_does_to_its_process_is_answered(name, checked):
    verdict = checked[0][name]
    assert all(words in verdict.text().replace("\n", " ") for words in FILES[name][-1])
    assert verdict.right == (name == "leaves")


def test_a_child_that_a_file_starts_is_ended_and_nothing_is_left_in_its_folder(checked):
    _, written_by_child, folder = checked
    assert written_by_child == b""
    assert sorted(os.listdir(folder / "leaves")) == ["e1_softmax.py", "helper.py"]


def test_started_ends_a_file_and_its_children_even_if_this_process_is_killed(tmp_path):
    """The system then closes the pipe to its standard input."""
    os.mkfifo(fifo := tmp_path / "fifo")
    path = written(tmp_path / "e1_softmax.py", f"""
import subprocess
subprocess.Popen(["sleep", "1000"], stdout=open(r"{fifo}", "w"))
while True:
    pass
""" + SOFTMAX)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)

    def is_open():
        try:
            return os.read(reader, 1) != b""
        except BlockingIOError:         # somebody may yet write
            return True
    with process.started(str(path), "0", 100) as (child, _):
        while not is_open():
            assert child.poll() is None
            time.sleep(0.05)
        child.stdin.close()
        assert child.wait(timeout=100) == -signal.SIGKILL
        while is_open():                # until the sleeping child has ended, too
            time.sleep(0.05)
    os.close(reader)


def test_a_named_pipe_and_a_device_are_not_read(tmp_path):
    os.mkfifo(fifo := tmp_path / "e1_softmax.py")
    for path in (os.devnull, fifo):
        (line,) = process.judge(path).said
        assert line.startswith(f"{path} cannot be read: it is no regular file.")


def ended(monkeypatch, folder, output):
    """Have processes end after they have written this; return the patience each is started with."""
    patiences, answer = [], written(folder / "answer", output)

    @contextlib.contextmanager
    def started(path, nonce, patience):
        patiences.append(patience)
        yield SimpleNamespace(poll=lambda: 1), answer
    monkeypatch.setattr(process, "started", started)
    return patiences


def test_a_file_that_has_to_wait_for_the_compiler_gets_more_time_and_not_for_ever(monkeypatch,
                                                                                  tmp_path):
    frame = f'  File "{numba.core.dispatcher.__file__}", line 1 in compile\n'
    patiences = ended(monkeypatch, tmp_path, frame)
    (line,) = process.check("e1_softmax.py").said
    assert line.startswith("It did not end in time") and patiences == [1, 2, 4, 8, 16]


def test_the_line_of_a_loop_is_shown_where_it_is_the_student_s(monkeypatch, tmp_path):
    (tmp_path / "é").mkdir()
    part = written(tmp_path / "é" / "e4_heads.py", "\nwhile True:\n")
    in_ascii = str(part).replace("é", r"\xe9")
    ended(monkeypatch, tmp_path, 'Thread 1 (most recent call first):\n'
          f'  File "/other/core.py", line 1 in call\n  File "{in_ascii}", line 2 in f\n')
    for path, says in ((part.with_name("e7_block.py"), "in line 2 of e4_heads.py: while True:"),
                       (part, "in line 2: while True:")):
        (line,) = process.check(path).said
        assert line.endswith(f"It was {says}")


def test_what_the_process_tells_is_said_and_only_its_random_word_makes_a_verdict(
        monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(process.secrets, "token_hex", lambda: "abc")
    monkeypatch.setattr(process, "announced_if_slow",
                        lambda what: contextlib.nullcontext(print(what)))
    ended(monkeypatch, tmp_path, '["verdict", [true, ["Wrong."]]]\nabc["seconds", 5]\n'
          'abc["said", "step 1\\u001b[31m"]\nabc["verdict", [true, ["Right."]]]\n')
    assert process.check("my\n.py") == (True, ["Right."])
    out, err = capsys.readouterr()
    assert out.startswith(r"judging my\n.py; this takes longer the first time")
    assert err == "step 1\\x1b[31m\n"
