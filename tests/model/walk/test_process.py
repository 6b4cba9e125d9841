"""The judge's process: whatever a file does, it ends, is answered, and leaves nothing behind."""
import contextlib
import os
import queue
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from model.walk import process
from model.walk.practice import exercises

SOFTMAX = exercises()[0].source
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


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """The verdicts, by the file, what a child that a file has left writes, and what is in the
    folder of that file."""
    folder = tmp_path_factory.mktemp("ü")
    os.mkfifo(fifo := folder / "fifo")
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)

    def check(name):
        before, after, patience, _ = FILES[name]
        path = folder / name / "e1_softmax.py"
        path.parent.mkdir()
        (path.parent / "helper.py").touch()
        path.write_text(before + SOFTMAX + after.format(fifo=fifo), encoding="utf-8")
        return process.check(path, patience)
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(3) as at_once:
        patch.setattr(process, "GRACE", 0.5)
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        verdicts = dict(zip(FILES, at_once.map(check, FILES)))
    os.set_blocking(reader, True)
    yield SimpleNamespace(verdicts=verdicts, written=os.read(reader, 10),
                          left=sorted(os.listdir(folder / "leaves")))
    os.close(reader)


needs_fifo = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")


@needs_fifo
@pytest.mark.parametrize("name", FILES)
def test_whatever_a_file_does_to_its_process_is_answered(name, checked):
    verdict = checked.verdicts[name]
    assert all(words in verdict.text().replace("\n", " ") for words in FILES[name][-1])
    assert verdict.right == (name == "leaves")


@needs_fifo
def test_a_child_that_a_file_starts_is_ended_and_nothing_is_left_in_its_folder(checked):
    assert checked.written == b"" and checked.left == ["e1_softmax.py", "helper.py"]


@needs_fifo
def test_a_named_pipe_and_a_device_are_not_read(tmp_path):
    os.mkfifo(fifo := tmp_path / "e1_softmax.py")
    for path in (os.devnull, fifo):
        (line,) = process.judge(path).said
        assert line.startswith(f"{path} cannot be read: it is no regular file.")


def ended(monkeypatch, *stack):
    """Have processes end with these lines, and return the list of what each is given."""
    given = []

    @contextlib.contextmanager
    def started(task):
        lines = queue.Queue()
        for line in stack:
            lines.put(line)
        given.append(task)
        yield SimpleNamespace(poll=lambda: 1), lines
    monkeypatch.setattr(process, "started", started)
    monkeypatch.setattr(process, "TICK", 0)
    return given


def test_a_file_that_has_to_wait_for_the_compiler_gets_more_time_and_not_for_ever(monkeypatch):
    given = ended(monkeypatch, f'File "{process.compiling.__file__}", line 1 in compile_version\n')
    (line,) = process.check("e1_softmax.py").said
    assert line.startswith("It did not end in time")
    assert [patience for _, _, patience in given] == [1, 2, 4, 8, 16]


def test_the_line_of_a_loop_is_shown_where_it_is_the_student_s(monkeypatch, tmp_path):
    folder = tmp_path / "é"
    folder.mkdir()
    part = folder / "e4_heads.py"
    part.write_text("\nwhile True:\n", encoding="utf-8")
    written = str(part).replace("é", r"\xe9")
    ended(monkeypatch, 'File "/other/core.py", line 1 in call\n',
          f'File "{written}", line 2 in f\n')
    (line,) = process.check(folder / "e7_block.py").said
    assert line.endswith("It was in line 2 of e4_heads.py: while True:")
    (line,) = process.check(part).said
    assert line.endswith("It was in line 2: while True:")


def test_what_takes_long_is_said_once_and_with_what_the_process_tells(monkeypatch, capsys):
    monkeypatch.setattr(process, "SILENT", -1)
    monkeypatch.setattr(process.secrets, "token_hex", lambda: "abc")
    ended(monkeypatch, 'abc["said", "step 1\\u001b[31m"]\n', 'abc["seconds", 5]\n',
          'abc["verdict", [true, ["Right."]]]\n')
    assert process.check("e1_softmax.py") == (True, ["Right."])
    assert capsys.readouterr().err.split("\n") == [
        r"step 1\x1b[31m", "judging e1_softmax.py; this takes longer the first time, when parts of "
        "the engine are compiled", ""]
