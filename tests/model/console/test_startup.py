"""How programs of this project start, beside how those of others do that import its packages."""
import configparser
import importlib.machinery
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys

import pytest

import train
from model import sample, startup
from model.count import __main__ as count
from model.look import __main__ as look
from model.reverse import __main__ as reverse
from model.command import answering

ROOT = pathlib.Path(__file__).parents[3]
PROGRAMS = [["train.py"], ["-m", "model.sample"], ["-m", "model.look"], ["-m", "model.count"],
            ["-m", "model.reverse"]]
# In Numba's place: Ctrl-C comes while it is loaded, in an import that has an answer to everything.
INTERRUPTED = """
import signal
try:
    signal.raise_signal(signal.SIGINT)
except BaseException:
    raise SystemExit("caught")
raise SystemExit("ignored")
"""


def started(words, folder=ROOT, path=(), **more):
    """The end of a process that looks for modules in these folders too."""
    path = os.pathsep.join(map(str, path))
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True,
                          env=os.environ | {"PYTHONPATH": path}, **more)


@pytest.fixture
def interrupted(tmp_path):
    (tmp_path / "numba.py").write_text(INTERRUPTED)
    return tmp_path


@pytest.mark.parametrize("program", PROGRAMS, ids=" ".join)
def test_ctrl_c_ends_a_program_quietly_while_it_is_loaded(program, interrupted):
    done = started(program, path=[interrupted])
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_is_an_exception_for_whoever_imports_the_packages(interrupted):
    tool = interrupted / "tool"
    tool.mkdir()
    (tool / "__init__.py").write_text("import model")
    (tool / "train.py").write_text("import model")
    for words in (["-c", "import model"], ["-m", "tool.train"], [tool / "train.py"]):
        done = started(words, path=[interrupted, ROOT])
        assert done.stderr == "caught\n", words


@pytest.mark.skipif(os.name == "nt", reason="there is no preexec_fn")
def test_ctrl_c_stays_ignored_where_a_shell_starts_a_program_in_the_background(interrupted):
    done = started(["train.py"], path=[interrupted],
                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    assert done.stderr == "ignored\n"


@pytest.mark.parametrize("command", [train, sample, look, count, reverse])
def test_every_program_answers_ctrl_c_itself_once_it_is_loaded(command, monkeypatch):
    def main_begins():
        raise KeyboardInterrupt
    monkeypatch.setattr(startup, "main_begins", main_begins)
    with pytest.raises(SystemExit) as caught:
        command.main([])
    assert caught.value.code == 130


def test_ctrl_c_is_an_exception_again_once_mistakes_are_answered():
    signal.signal(signal.SIGINT, startup._quit)
    with answering("a.command"):
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with answering("a.command"):
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


@pytest.mark.parametrize("program", [["-m", "train"], ["-m", "model.sample"]], ids=" ".join)
def test_a_users_own_data_py_is_in_no_programs_way(program, tmp_path):
    for name in ("data", "minigrad", "numpy", "random"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong file')")
    done = started([*program, "--help"], tmp_path)
    assert done.returncode == 0 and done.stdout and done.stderr == ""


@pytest.mark.parametrize("file", ["data/__init__.py", "minigrad.py"])
def test_what_is_in_the_way_of_a_package_is_named_with_the_remedy(file, tmp_path):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("raise SystemExit('the wrong file')")
    says = (f"{tmp_path / file} is in the way of this project's package "
            f"{file.removesuffix('.py').split('/')[0]}; rename it, or move it ")
    done = started(["-m", "model.count"], tmp_path.parent, path=[tmp_path, ROOT])
    assert done.returncode == 1 and done.stdout == "" and done.stderr.startswith(says)
    assert done.stderr.count("\n") == 1
    done = started(["-c", "try: import model\nexcept ImportError as error: print(error)"], tmp_path,
                   path=[ROOT])
    assert done.stdout.startswith(says) and done.stderr == ""


def test_a_folder_in_the_way_is_named_too(monkeypatch):
    spec = importlib.machinery.ModuleSpec("data", None, is_package=True)
    spec.submodule_search_locations.append("texts/data")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    assert startup.in_the_way().startswith("texts/data is in the way of this project")


def test_the_packages_of_this_project_are_in_nobodys_way():
    assert startup.in_the_way() == ""


def test_pip_installs_this_folder_as_one_of_the_path_before_which_no_users_folder_comes():
    """Not as a list of packages, which Python looks at after a folder named data anywhere."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert setup["options"]["package_dir"].split() == ["=", "."]
