"""How a program starts: Ctrl-C ends it quietly, and no file of the user's hides a package."""
import configparser
import importlib
import importlib.machinery
import importlib.util
import os
import signal

import pytest

from model import start
from tests.kit import ROOT, python, refusal

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
    *[(["train.py"], dict(preexec_fn=ignoring), 1, "ignored\n")] * (os.name != "nt")], ids=str)
def test_ctrl_c_ends_quietly_what_is_loaded_as_a_program(words, more, status, says, interrupted):
    words = [word.replace("FOLDER", str(interrupted)) for word in words]
    done = python(*words, PYTHONPATH=f"{interrupted}{os.pathsep}{ROOT}", **more)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", says)


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


def test_in_the_way_names_a_folder_too_and_never_the_packages_themselves(monkeypatch):
    assert start.in_the_way() == ""
    spec = importlib.machinery.ModuleSpec("data", None, is_package=True)
    spec.submodule_search_locations.append("texts/data")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    assert start.in_the_way().startswith("texts/data hides this project's package data")


def test_pip_installs_this_folder_as_one_of_the_path_before_which_no_users_folder_comes():
    """Not as a list of packages, which Python looks at after a folder named data anywhere."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert setup["options"]["package_dir"].split() == ["=", "."]
