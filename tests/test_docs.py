"""README and docs: their commands parse, their snippets run, and what they name exists."""
import configparser
import contextlib
import dataclasses
import functools
import importlib
import itertools
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest

import minigrad as mg
from model.command import Parser
from model.options import problems
from tests.kit import ROOT, refusal, written

PAGES = {path.name: path for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md",
                                      *sorted(ROOT.glob("docs/*.md")))}
TEXTS = {name: path.read_text(encoding="utf-8") for name, path in PAGES.items()}
ALL = "\n".join(TEXTS.values())
COMMANDS = ("train.py model.sample model.look model.explain model.count model.convert "
            "model.reverse model.same model.walk tests.benchmarks tests.reliability tests.browser"
            ).split()
# What a shell takes for something else than itself: outside of double quotes, and inside.
SPECIAL = {"bash": ("&|;<>(){}$`'*?[]!\\", "$`!\\"), "zsh": ("&|;<>(){}$`'*?[]!^\\", "$`!\\"),
           "cmd": ("&|<>()%'*?^", "%"), "PowerShell": ("&|;<>(){}$`'*?,", "$`")}
# The language of a code block, the shells that it is for, and programs that are there.
PASTED = {"shell": (SPECIAL, ["python", "git", "cd", "mpiexec"]),
          "sh": (["bash", "zsh"], ["python", "python3", "."]),
          "bat": (["cmd", "PowerShell"], ["py", r".venv\Scripts\python"])}
SOURCES = [path for folder in ("minigrad", "model", "data", "tests")
           for path in (ROOT / folder).rglob("*.py") if path != pathlib.Path(__file__)]
of_each_page = pytest.mark.parametrize("page", PAGES)


def parts(text):
    """The code blocks of a page, each as (language, code), and its inline code."""
    prose, *rest = re.split(r"^```(.*)\n", text, flags=re.M)    # language, block, "", prose, ...
    inline = re.findall(r"`([^`]+)`", "\n".join([prose, *rest[3::4]]))
    return list(zip(rest[::4], rest[1::4])), [" ".join(code.split()) for code in inline]


def blocks_of(language, text=ALL):
    """The code blocks in a language."""
    return [block for kind, block in parts(text)[0] if kind == language]


def commands(text):
    """Each command line of Python in a page: the name of its program, and the words after it."""
    blocks, inline = parts(text)
    lines = [line for _, block in blocks for line in block.replace("\\\n", "").splitlines()]
    for line in "&&".join(lines + inline).split("&&"):
        if found := re.search(r"\bpython (?:-m ([\w.]+)|(\w+\.py))(.*)", line):
            yield found[1] or found[2], shlex.split(found[3], comments=True)


def parse(name, words, monkeypatch):
    """Let a command parse its words and stop there."""
    module = importlib.import_module(name.removesuffix(".py"))
    if hasattr(module, "__path__"):
        module = importlib.import_module(f"{name}.__main__")
    if name.startswith("tests."):
        return parse("train.py", getattr(module.parse(words), "train", []), monkeypatch)
    read, parsed = Parser.read, []

    def read_only(self, argv):
        parsed[:] = read(self, argv)
        raise InterruptedError
    with monkeypatch.context() as patch, pytest.raises(InterruptedError):
        patch.setattr(Parser, "read", read_only)
        module.main(words)
    given, mistakes = parsed
    names = given.keys() & {field.name for field in dataclasses.fields(module.Settings)}
    assert not mistakes + problems(module.Settings(**{name: given[name] for name in names}))


@of_each_page
def test_each_command_line_is_one_that_its_command_takes(page, monkeypatch):
    for name, words in commands(TEXTS[page]):
        print(name, *words)     # shown if it is refused
        if name == "pytest":
            assert all((ROOT / word).exists() for word in words if "/" in word)
        elif name not in ("pip", "venv", "flake8"):
            parse(name, [word for word in words if word != "--help"], monkeypatch)


def typed(line, shell):
    """The words of a line, if this shell takes each of them as it stands."""
    outside, inside = SPECIAL[shell]
    pieces = line.split('"')
    assert len(pieces) % 2, f"{shell} waits for the end of a quote: {line}"
    wrong = [c for n, piece in enumerate(pieces) for c in piece if c in (outside, inside)[n % 2]]
    words = re.findall(r'(?:"[^"]*"|[^"\s])+', line)
    wrong += [word for word in words if word[0] in "#~@="]
    assert not wrong, f"{shell} takes {wrong} for something else: {line}"
    return [word.replace('"', "") for word in words]


def pasted(language, text):
    """The lines of a page's blocks for some shells."""
    return "".join(blocks_of(language, text)).splitlines()


@of_each_page
def test_each_line_of_a_block_can_be_pasted_into_every_shell_that_it_is_for(page):
    blocks, inline = parts(TEXTS[page])
    assert {kind for kind, _ in blocks} <= {*PASTED, "", "python", "bash"}
    for language, (shells, programs) in PASTED.items():
        lines = pasted(language, TEXTS[page])
        if language == "shell":     # so are commands within a sentence
            lines += [code for code in inline
                      if re.match(r"(\w+=\S+ )?(python|mpiexec) ", code)]
        for line, shell in itertools.product(lines, shells):
            if language == "sh":
                line = re.sub(r"^\w+=\S+ ", "", line)
            assert typed(line, shell)[0] in programs, f"{shell} may have no such program: {line}"


@of_each_page
def test_no_command_stands_in_a_block_that_is_not_for_a_shell_or_has_single_quotes(page):
    for block in blocks_of("", TEXTS[page]):
        assert not re.search(r"^\$? ?(python|git|cd|mpiexec|pip) ", block, re.M), block
    assert "'.[" not in TEXTS[page]


@pytest.mark.parametrize("line, refused_by", [
    ("python train.py", ""), ('python -m pip install -e ".[test]"', ""),
    ("cd minigrad     # a comment", "bash zsh cmd PowerShell"),
    ("cd a && python b", "bash zsh cmd PowerShell"),
    ("python -m pip install '.[test]'", "bash zsh cmd PowerShell"),
    ("python -m pip install .[test]", "bash zsh"), ("python train.py \\", "bash zsh"),
    ("python a --texts b*", "bash zsh cmd PowerShell"), ('python -c "print(%a%)"', "cmd"),
    ('python -c "print($a)"', "bash zsh PowerShell"), ('python -c "a!"', "bash zsh"),
    ('python "a', "bash zsh cmd PowerShell"), ("python -e .[a,b]", "bash zsh PowerShell")])
def test_typed_refuses_what_a_shell_takes_for_something_else(line, refused_by):
    for shell in SPECIAL:
        refused = contextlib.nullcontext()
        if shell in refused_by:
            refused = pytest.raises(AssertionError)
        with refused:
            typed(line, shell)


@pytest.mark.skipif(os.name == "nt", reason="these shells run elsewhere")
@pytest.mark.parametrize("shell", [["zsh", "-f", "-i"], ["bash", "--norc", "-i"]])
def test_what_is_pasted_from_the_readme_into_a_shell_runs_as_it_stands(tmp_path, shell):
    if not shutil.which(shell[0]):
        pytest.skip(f"{shell[0]} is not installed")
    (tmp_path / "minigrad/.venv/bin").mkdir(parents=True)
    written(tmp_path / "minigrad/.venv/bin/activate", "")
    (tmp_path / "bin").mkdir()
    for name in ("python", "python3", "git", "mpiexec"):
        stub = written(tmp_path / "bin" / name, '#!/bin/sh\n{ printf %s "${0##*/}"; '
                       'printf "\\t%s" "$@"; echo; } >> "$LOG"\n')
        stub.chmod(0o755)
    lines = pasted("shell", TEXTS["README.md"]) + pasted("sh", TEXTS["README.md"])
    done = subprocess.run([shutil.which(shell[0]), *shell[1:]], input="\n".join(lines) + "\n",
                          cwd=tmp_path, env={"PATH": f"{tmp_path}/bin", "HOME": str(tmp_path),
                                             "LOG": f"{tmp_path}/log"},
                          capture_output=True, text=True, encoding="utf-8", timeout=60)
    expected = [typed(line, shell[0]) for line in lines]
    ran = (tmp_path / "log").read_text(encoding="utf-8").splitlines()
    assert [line.split("\t") for line in ran] == [
        words for words in expected if words[0] not in ("cd", ".")]
    assert not re.search("not found|no such|no matches|too many|error", done.stderr, re.I)


def test_the_workflow_runs_the_first_commands_of_the_readme():
    workflow = (ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8")
    _, begin, *_ = TEXTS["README.md"].split("\n## ")
    install, train, install_tests, test = [
        line for line in pasted("shell", begin) if line.startswith("python ")]
    assert re.findall(r"^      - run: (.*)$", workflow, re.M) == [
        install, train, "python -m model.same", install_tests, test]


def test_each_flag_that_stands_alone_is_one_of_a_command(monkeypatch, capsys):
    for name in COMMANDS:
        refusal(SystemExit, parse, name, ["--help"], monkeypatch)
    known = set(re.findall(r"--[\w-]+", capsys.readouterr().out))
    for code in parts(ALL)[1]:
        assert not code.startswith("--") or set(re.findall(r"--[\w-]+", code)) <= known, code


def test_the_extras_of_setup_cfg_are_those_that_the_pages_name():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    named = re.findall(r"\.\[([\w,]+)\]", ALL)
    assert set(",".join(named).split(",")) == {*setup["options.extras_require"]}


SNIPPETS = blocks_of("python")
# Beside a checkpoint, as readers have one.
RUN_SNIPPETS = """
import os, sys
from data.tokenizer import CharTokenizer
from model import Transformer, TransformerConfig
from model.checkpoint import save_checkpoint
folder, *snippets = sys.argv[1:]
os.makedirs(folder + "/out")
os.chdir(folder)
tokenizer = CharTokenizer(" :AMR")
model = Transformer(TransformerConfig(tokenizer.vocab_size, 16, 1, 1, 8))
save_checkpoint("out/ckpt.npz", model, tokenizer)
for code in snippets:
    exec(code, {"__name__": "__main__"})
"""


@pytest.mark.meanwhile("-c", RUN_SNIPPETS, "FOLDER/snippets", *SNIPPETS)
def test_each_python_snippet_runs(ended):
    assert ended.returncode == 0 and len(SNIPPETS) >= 3, ended.stderr


@of_each_page
def test_each_file_that_is_named_exists(page):
    path = re.compile(r"[\w/]+\.(py|md)|(minigrad|model|data|docs|tests)/[\w./]*")
    for name in filter(path.fullmatch, parts(TEXTS[page])[1]):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"\]\((?!https:)([^)#]+)", TEXTS[page]):
        assert (PAGES[page].parent / name).exists(), name


@of_each_page
def test_each_link_to_a_section_leads_to_one(page):
    for name, section in re.findall(r"\]\((?!https:)([^)#]*)#([^)]+)\)", TEXTS[page]):
        path = PAGES[page].parent / name if name else PAGES[page]
        titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.M)
        assert section in [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
                           for title in titles], f"{name}#{section}"


@functools.cache
def words_of_the_code():
    blocks = [block for _, block in parts(ALL)[0]]
    sources = [path.read_text(encoding="utf-8") for path in SOURCES]
    return set(re.findall(r"\w+", "\n".join(sources + blocks)))


@of_each_page
def test_each_name_of_python_is_in_the_code_or_where_the_page_says(page):
    for code in parts(TEXTS[page])[1]:
        if re.fullmatch(r"[A-Za-z_][\w.]*(\(.*\))?", code):
            assert set(re.findall(r"\w+", code)) <= words_of_the_code(), code
        if name := re.match(r"mg\.(\w+)", code):
            assert hasattr(mg, name[1]), code
    for names, path in re.findall(r"((?:`\w+`(?:,|\s|and)+)+)in\s+`([\w/]+\.py)`", TEXTS[page]):
        words = re.findall(r"\w+", (ROOT / path).read_text(encoding="utf-8"))
        assert set(re.findall(r"`(\w+)`", names)) <= set(words), f"{names} in {path}"


@of_each_page
def test_each_figure_has_the_command_that_draws_it_in_its_section_or_in_the_map(page):
    for section in TEXTS[page].split("\n## "):
        drawn = [word for text in (section, TEXTS["map.md"]) for _, words in commands(text)
                 for word in words]
        for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", section):
            assert f"docs/{pathlib.Path(picture).name}" in drawn
