"""What all commands share: how they are interrupted, read flags and answer mistakes."""
import contextlib
import dataclasses
import math
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
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import numpy as np
import pytest

from model import command, start
from model.command import (Interrupts, Parser, Words, announced_if_slow, answering, as_flags,
                           command_line, flag, install_command, problems, tell, text_or_file)
from tests.kit import ROOT, nobody_reads, refusal


# Answers

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
    (OSError(28, "No space left"), "a.command: cannot use standard output: No space left; all is "
                                   "kept"),
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
    assert capsys.readouterr().err == "\nstopped at once; all is kept\n" * (code == 130)
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
    monkeypatch.setattr(command.threading, "Timer", Timer)
    with announced_if_slow("reading x"):
        timer, = timers
        assert timer.interval == command.PATIENCE
        assert timer.daemon
        if slow:
            timer.function()
    assert timer.finished.is_set()      # it is cancelled
    assert capsys.readouterr() == ("", "reading x ...\n" * slow)


@pytest.mark.parametrize("name", [name for name in Interrupts.NAMES if hasattr(signal, name)])
def test_a_signal_is_recorded_the_second_one_stops_and_an_ignored_one_stays_ignored(name):
    number = getattr(signal, name)
    before = signal.getsignal(number)
    try:
        with pytest.raises(KeyboardInterrupt):
            with Interrupts() as interrupts:
                assert not interrupts.came
                signal.raise_signal(number)
                assert interrupts.came
                signal.raise_signal(number)
        assert signal.getsignal(number) is before
        signal.signal(number, signal.SIG_IGN)
        with Interrupts() as interrupts:
            signal.raise_signal(number)
            assert not interrupts.came
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("signals, at_once", [(2, False), (1, True)])
def test_interrupts_come_again_where_an_exception_was_swallowed(signals, at_once, monkeypatch):
    monkeypatch.setattr(command, "AGAIN", 0.02)
    with pytest.raises(KeyboardInterrupt), Interrupts(at_once) as interrupts:
        for _ in range(signals):
            with contextlib.suppress(KeyboardInterrupt):        # as a callback from C does
                signal.raise_signal(signal.SIGINT)
        time.sleep(20)
    interrupts.again.join()
    time.sleep(0.05)            # and not once the body has ended


def test_interrupts_come_to_the_main_thread_alone():
    def seen():
        with Interrupts() as interrupts:
            return interrupts.came, signal.getsignal(signal.SIGINT)
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(seen).result() == (False, signal.getsignal(signal.SIGINT))


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
    monkeypatch.setattr(command, "SYSTEM", "posix")
    assert command_line(*words) == placed(line)


def test_command_line_is_written_for_the_shell_of_the_system(monkeypatch):
    path = pathlib.PureWindowsPath(r"runs\my out")
    for system, line in (("nt", r'python -m model.look -o "runs\my out"'),
                         ("posix", r"python -m model.look -o 'runs\my out'")):
        monkeypatch.setattr(command, "SYSTEM", system)
        assert command_line("model.look", "-o", path) == line


def test_install_command_names_the_folder_of_the_project(monkeypatch):
    assert install_command("mpi") == "python -m pip install -e '.[mpi]'"
    monkeypatch.chdir(ABOVE)
    monkeypatch.setattr(sys, "orig_argv", ["python3", "-m", "model.convert"])
    monkeypatch.setattr(sys, "argv", [str(ROOT / "model" / "convert" / "__main__.py")])
    assert shlex.split(install_command("mpi"))[1:] == ["-m", "pip", "install", "-e",
                                                       f"{ROOT}[mpi]"]


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
    monkeypatch.setattr(command, "PATIENCE", 0)
    with command.reading(words):
        time.sleep(0.2 * bool(says))
    assert capsys.readouterr().err == says


# Flags

@dataclasses.dataclass
class Settings:
    max_iters: int = flag(10, "how many, 100 % of them", at_least=0)
    fast: bool = flag(False, "no waiting")
    rate: float = flag(None, "how much", unset="a tenth of it")
    table: int = flag(0, "after so many", alone=50)
    output: str = flag("a.html", "where to", short="-o")
    kind: str = flag("one", "which", choices=("one", "two"))
    data: Words = flag(("a", "b"), "what to read")


def parser(settings=Settings):
    return Parser("python -m some.command", "What it does.", settings)


@pytest.mark.parametrize("argv, given", [
    ("", dict()), ("--max_iters 3 --rate=1e-2", dict(max_iters=3, rate=0.01)),
    ("--rate -1.5", dict(rate=-1.5)), ("--max-iters 3 --fast", dict(max_iters=3, fast=True)),
    ("--no-fast", dict(fast=False)), ("--table", dict(table=50)), ("--table 3", dict(table=3)),
    ("--data x.txt", dict(data=("x.txt",))), ("--data=x.txt", dict(data=("x.txt",))),
    ("--data x y --fast", dict(data=("x", "y"), fast=True)),
    ("--data x --fast --data y z", dict(data=("x", "y", "z"), fast=True)),
    ("--output=-- --data=--", dict(output="--", data=("--",))),
    ("-o b", dict(output="b")), ("-ob", dict(output="b")), ("--output=-b", dict(output="-b"))])
def test_flags_give_the_settings_and_nothing_else(argv, given):
    assert parser().given(argv.split()) == given


@pytest.mark.parametrize("argv, given, warned", [
    ("--max_iters 3 --rate 1 --max-iters=4", dict(max_iters=4, rate=1.0), dict(max_iters=2)),
    ("--fast --no-fast -o a -ob -o c", dict(fast=False, output="c"), dict(fast=2, output=3)),
    ("--data x --data y --rate 1", dict(data=("x", "y"), rate=1.0), dict())])
def test_of_a_flag_given_twice_the_last_counts_and_that_is_said(argv, given, warned, capsys):
    assert parser().given(argv.split()) == given
    assert capsys.readouterr().err == "".join(
        f"warning: --{name} is given {n} times; the last one counts\n"
        for name, n in warned.items())


@pytest.mark.parametrize("argv, mistakes", [
    ("--max_itres 3", "there is no flag --max_itres; did you mean --max_iters?"),
    ("--zzz a", "there is no flag --zzz; see --help"), ("--max 3", "there is no flag --max; "),
    ("--steps", "there is no flag --steps; did you mean --max_iters?"),
    ("--lr", "there is no flag --lr; see --help"),       # it has no --learning_rate
    ("--no-fats --FAST", "there is no flag --no-fats; did you mean --no-fast?\n"
                         "there is no flag --FAST; did you mean --fast?"),
    ("my.txt", "no flag takes 'my.txt'; give a text as --data my.txt"),
    ("LICENSE", "no flag takes 'LICENSE'; give a text as --data LICENSE"),
    ("--fast lantern", "no flag takes 'lantern'; give a text as --data lantern"),
    ("resume x", "no flag takes 'resume'; see --help\nno flag takes 'x'; see --help"),
    ("a.html", "no flag takes 'a.html'; did you mean --output a.html?"),
    ("two", "no flag takes 'two'; did you mean --kind two?"),
    ("--max_iters 3 -4", "there is no flag -4; see --help"), ([""], "no flag takes ''; see --help"),
    ("--max_iters 1e3", "--max_iters takes a whole number, not '1e3'; write 1000"),
    ("--max_iters 1,000", "--max_iters takes a whole number, not '1,000'; write 1000"),
    ("--max_iters 5.0", "--max_iters takes a whole number, not '5.0'; write 5"),
    *[(f"--max_iters {word}", f"--max_iters takes a whole number, not '{word}'")
      for word in ("ten", "1.5", "inf", "nan", "1e999")],
    ("--max_iters x --rate 1,5", "--max_iters takes a whole number, not 'x'\n"
                                 "--rate takes a number, not '1,5'"),
    ("--rate=-- --max_iters=--", "--rate takes a number, not '--'\n"
                                 "--max_iters takes a whole number, not '--'"),
    ("--fast true", "--fast takes no value; give --fast alone, or --no-fast, without 'true'"),
    ("--no-fast 0", "--no-fast takes no value; give --fast alone, or --no-fast, without '0'"),
    ("--data=x y", "no flag takes 'y'; see --help"),
    ("--fast=false", "--fast takes no value; give --fast alone, or --no-fast, without 'false'"),
    ("--no-fast=x", "--fast takes no value; give --fast alone, or --no-fast, without 'x'"),
    ("-h=3", "-h takes no value; give -h alone, without "),
    ("--rate", "--rate takes a value, and none was given; one that starts with a hyphen is written "
               "as --rate=-value"),
    ("--rate --fast", "--rate takes a value, and none was given"),
    ("--max-iters", "--max_iters takes a value, and none was given"),
    ("--data --fast", "--data takes a value, and none was given"),
    ("-o", "--output takes a value, and none was given"),
    ("--max_iters -1", "--max_iters is at least 0, not -1"),
    ("--max_iters 1\x1b2 --a\x1b", r"--max_iters takes a whole number, not '1\x1b2'"
                                   "\n" r"there is no flag --a\x1b; "),
    ("--fast a\x1b", r"--fast takes no value; give --fast alone, or --no-fast, without 'a\x1b'"),
    ("--output=", "--output takes a value, and an empty one was given")])
def test_each_mistake_is_answered_in_a_line_of_its_own(argv, mistakes, capsys):
    argv = argv.split() if isinstance(argv, str) else argv
    assert refusal(SystemExit, parser().given, argv) == "2"
    lines = capsys.readouterr().err.splitlines()
    expected = mistakes.split("\n")
    assert len(lines) == len(expected)
    for line, says in zip(lines, expected):
        assert line.startswith("some.command: error: ")
        assert line.isprintable()
        assert all(part in line for part in says.split(" ... ")), line
        assert re.findall(r"; write \d+$", line) == re.findall(r"; write \d+$", says)


def test_what_is_right_is_read_beside_mistakes_and_each_line_is_said_once(capsys):
    given, mistakes = parser().read(["--max_iters", "x", "--fats", "--table", "3"])
    assert given == {"table": 3}
    assert len(mistakes) == 2
    parser().refuse([])
    refusal(SystemExit, parser().refuse, ["one", "one"])
    assert capsys.readouterr().err == "some.command: error: one\n"


def test_help_shows_the_defaults(capsys):
    refusal(SystemExit, parser().given, ["--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "how many, 100 % of them (default: 10)" in said
    assert "What it does." in said
    assert "how much (default: a tenth of it)" in said
    assert "what to read (default: a b)" in said
    said = " ".join(parser(Settings(max_iters=7, rate=2.0)).format_help().split())
    assert "how many, 100 % of them (default: 7)" in said
    assert "how much (default: 2.0)" in said
    assert "a tenth" not in said


def test_help_shows_each_flag_once_with_what_it_takes(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    refusal(SystemExit, parser().given, ["-h"])
    said = capsys.readouterr().out
    lines = [line.split("  ")[1] for line in said.splitlines() if line.startswith("  -")]
    assert lines == ["-h, --help", "--max_iters N", "--fast, --no-fast", "--rate X", "--table [N]",
                     "--output, -o OUTPUT", "--kind KIND", "--data DATA [DATA ...]"]
    assert said.endswith("\nA flag may have hyphens in place of underscores.\n")
    for flags in ("--max_iters 3", "--max-iters 3"):
        assert parser().given(flags.split()) == {"max_iters": 3}


@dataclasses.dataclass
class OfATable:
    """What is read: and more."""
    size: int = flag(3, "")


@dataclasses.dataclass
class Tables(OfATable):
    as_: str = flag("a", "")


@pytest.mark.parametrize("doc, title", [
    (OfATable.__doc__, "What is read:"), ("OfATable(size: int = 3) -> None", "Of atable:")])
def test_help_has_a_title_for_each_table_without_docstrings_too(doc, title, capsys, monkeypatch):
    monkeypatch.setattr(OfATable, "__doc__", doc)
    said = parser(Tables).format_help()
    assert title in said.splitlines()
    assert "size: int" not in said
    assert "--as AS " in said
    assert "hyphens" not in said        # no name has any


def test_settings_as_flags_are_read_back_as_what_they_were():
    settings = dict(max_iters=3, fast=False, rate=1e-05, table=0, output="b")
    words = [word for flag in as_flags(settings | {"absent": None}) for word in flag.split(" ")]
    assert parser().given(words) == settings
    assert as_flags(dict(rate=3.0, fast=True)) == ["--rate 3", "--fast"]


@dataclasses.dataclass
class Checked:
    size: int = flag(3, "at least 1", at_least=1)
    share: float = flag(0.5, "", above=0, at_most=1)
    beta: float = flag(0.5, "", at_least=0, below=1)
    clip: float = flag(1.0, "", at_least=0, finite=False)
    rate: float = flag(None, "", at_least=0)
    fast: bool = flag(False, "")
    kind: str = flag("one", "", choices=("one", "two", "three"))
    text: str = flag("", "")
    data: Words = flag(("a",), "")


@pytest.mark.parametrize("name, value, says", [
    ("size", 0, "is at least 1, not 0"), ("size", 2.0, "takes a whole number, not 2.0"),
    ("size", True, "takes a whole number, not True"), ("size", np.int64(1), None),
    ("size", "3", "takes a whole number, not '3'"),
    ("size", None, "takes a whole number, not None"),
    ("share", 0, "is above 0 and at most 1, not 0"), ("share", 1, None),
    ("share", math.nan, "is above 0 and at most 1, not nan"),
    ("beta", 1.0, "is at least 0 and below 1, not 1.0"), ("beta", np.float32(0), None),
    ("beta", "x", "takes a number, not 'x'"), ("beta", False, "takes a number, not False"),
    ("rate", math.inf, "is a finite number, not inf"), ("rate", None, None),
    ("rate", 10 ** 400, f"takes a number, not 1{79 * '0'}..."),
    ("rate", -math.inf, "is at least 0, not -inf"), ("clip", math.inf, None),
    ("fast", 1, "takes True or False, not 1"), ("fast", True, None),
    ("size", "x" * 10_000, f"takes a whole number, not '{'x' * 79}..."),
    ("kind", "x" * 10_000, f"is one, two or three, not {'x' * 80}..."),
    ("kind", "three", None), ("kind", "six", "is one, two or three, not six"),
    ("kind", "tow", "is one, two or three, not tow; did you mean two?"),
    ("text", 3, "takes a text, not 3"), ("text", "anything", None), ("text", "", None),
    ("data", ["a"], "takes texts, not ['a']"),
    ("data", ("a", ""), "takes a value, and an empty one was given")])
def test_a_value_is_held_to_the_type_the_bounds_and_the_choices_of_its_setting(name, value, says):
    assert problems(Checked(**{name: value})) == ([f"{name} {says}"] if says else [])
