"""How a program starts: Ctrl-C ends it quietly, and no file of the user's hides a package."""
import ast
import configparser
import importlib
import importlib.machinery
import importlib.util
import json
import os
import runpy
import shlex
import signal
import sys

import pytest

from model import start
from tests.kit import ROOT, python, refusal
from tests.model.notebook import SAID as PROGRAMS_IN_A_NOTEBOOK

PROGRAMS = [["train.py"], *[["-m", f"model.{name}"] for name in ("sample", "look", "count",
                                                                 "reverse")]]
# In Numba's place: Ctrl-C comes while it is loaded, in an import that catches every exception.
INTERRUPTED = """
import signal
import sys
try:
    signal.raise_signal(signal.SIGINT)
except BaseException:
    raise SystemExit("caught")
raise SystemExit("ignored")
"""


@pytest.fixture
def interrupted(tmp_path):
    """A folder with such a numba, and with a program of another package."""
    (tmp_path / "numba.py").write_text(INTERRUPTED)
    (tmp_path / "tool").mkdir()
    for name in ("__init__.py", "train.py"):
        (tmp_path / "tool" / name).write_text("import model")
    return tmp_path


def ignoring():
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.parametrize("words, more, status, says", [
    *((program, {}, 130, "") for program in PROGRAMS),
    *((words, {}, 1, "caught\n") for words in (["-c", "import model"], ["-m", "tool.train"],
                                               ["FOLDER/tool/train.py"])),
    pytest.param(["train.py"], dict(preexec_fn=ignoring), 1, "ignored\n",
                 marks=pytest.mark.skipif(os.name == "nt", reason="no preexec_fn"))], ids=str)
def test_ctrl_c_ends_quietly_what_is_loaded_as_a_program(words, more, status, says, interrupted):
    words = [word.replace("FOLDER", str(interrupted)) for word in words]
    done = python(*words, PYTHONPATH=f"{interrupted}{os.pathsep}{ROOT}", **more)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", says)


@pytest.mark.meanwhile("-m", "tests.model.notebook", "SMALL_TEXT")
@pytest.mark.parametrize("words, says", PROGRAMS_IN_A_NOTEBOOK.items())
def test_each_program_runs_in_a_notebook(words, says, ended):
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)[words]
    assert says in said
    assert "Traceback" not in said


def test_an_older_python_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 1))
    said = refusal(SystemExit, runpy.run_path, start.__file__)
    assert said.startswith("minigrad needs Python 3.11 or newer, and this is 3.10 (")
    assert said.endswith("start it with a newer one (docs/install.md)")
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert setup["options"]["python_requires"] == ">=3.11" and start.OLDEST == (3, 11)


@pytest.mark.parametrize("file", ["train.py", "model/__init__.py", "model/start.py"])
def test_what_is_loaded_first_is_in_words_that_python_3_6_reads(file):
    """So that it can say that it is too old.  Annotations are words for it, too."""
    ast.parse((ROOT / file).read_text(encoding="utf-8"), feature_version=(3, 6))
    # The parser takes parentheses around contexts for those of a tuple.
    assert "with (" not in (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("words", ["train.py", "-m train", "-m model.sample", "-m model.walk 3"])
@pytest.mark.parametrize("module, error, says", [
    ("numpy", "ModuleNotFoundError('No module named numpy', name='numpy')",
     "a library cannot be loaded (No module named numpy) by this Python ("),
    ("numpy", "ImportError('it is for\\n\\nanother Python')",
     "a library cannot be loaded (it is for another Python) by this Python (")])
def test_a_library_that_cannot_be_loaded_is_named(words, module, error, says, tmp_path):
    (tmp_path / f"{module}.py").write_text(f"raise {error}")
    done = python(*words.split(), PYTHONPATH=str(tmp_path))
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith(says)
    assert done.stderr.endswith(f"or type: {shlex.quote(sys.executable)} -m pip install -e .\n")
    assert done.stderr.count("\n") == 1


def test_without_numpy_or_tqdm_one_line_says_what_is_not_installed(tmp_path, monkeypatch):
    done = python("-S", "train.py", cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert "can't open file" in done.stderr
    done = python("-S", str(ROOT / "train.py"), cwd=tmp_path, PYTHONPATH="")
    assert done.stderr.startswith("numpy is not installed for this Python (")
    assert done.stderr.endswith(f"-m pip install -e {shlex.quote(str(ROOT))}\n")
    find = importlib.util.find_spec
    assert start.find_missing_library() == ""
    monkeypatch.setattr(importlib.util, "find_spec",
                        lambda name: None if name == "tqdm" else find(name))
    assert start.find_missing_library().startswith("tqdm is not installed for this Python (")


def test_end_all_ranks_says_who_it_is_and_ends_by_a_signal(monkeypatch, capsys):
    sent = []
    slept = []
    monkeypatch.setattr(os, "kill", lambda *words: sent.append(words))
    monkeypatch.setattr(os, "_exit", lambda status: None)
    monkeypatch.setattr(start.time, "sleep", slept.append)
    start.end_all_ranks(0, "what and why")
    start.end_all_ranks(2, "what and why")
    assert sent == [(os.getpid(), signal.SIGTERM)] * 2
    assert slept == [0, 1]      # the first one comes first
    first, second = capsys.readouterr().err.splitlines()
    assert first == "what and why"
    assert second.startswith("rank 2 on ") and second.endswith(": what and why")


@pytest.mark.parametrize("name", ["train", "model.sample", "model.look.__main__",
                                  "model.count.__main__", "model.reverse.__main__"])
def test_every_program_answers_ctrl_c_itself_once_it_is_loaded(name, monkeypatch):
    def getsignal(number):
        raise KeyboardInterrupt
    module = importlib.import_module(name)
    monkeypatch.setattr(signal, "getsignal", getsignal)
    assert refusal(SystemExit, module.main, []) == "130"


@pytest.mark.parametrize("program", [["-m", "train"], ["-m", "model.sample"]], ids=" ".join)
def test_a_users_own_data_py_is_in_no_programs_way(program, tmp_path):
    for name in ("data", "minigrad", "numpy", "random"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong file')")
    done = python(*program, "--help", cwd=tmp_path, PYTHONPATH="")
    assert done.returncode == 0
    assert done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("file", ["data/__init__.py", "minigrad.py"])
def test_what_hides_a_package_is_named_with_the_remedy(file, tmp_path):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("raise SystemExit('the wrong file')")
    name = file.removesuffix(".py").split("/")[0]
    says = f"{tmp_path / file} hides this project's package {name}; rename it, or take its folder"
    done = python("-m", "model.count", cwd=tmp_path.parent,
                  PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(says)
    assert done.stderr.count("\n") == 1
    done = python("-c", "try: import model\nexcept ImportError as error: print(error)",
                  cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert done.stdout.startswith(says)
    assert done.stderr == ""


def test_find_hiding_file_names_a_folder_too_and_never_the_packages_themselves(monkeypatch):
    assert start.find_hiding_file() == ""
    spec = importlib.machinery.ModuleSpec("data", None, is_package=True)
    spec.submodule_search_locations.append("texts/data")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    assert start.find_hiding_file().startswith("texts/data hides this project's package data")


def test_pip_installs_this_folder_as_one_of_the_path_before_which_no_users_folder_comes():
    """Not as a list of packages, which Python looks at after a folder named data anywhere."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert setup["options"]["package_dir"].split() == ["=", "."]
