"""README and docs: their commands parse, their snippets run, and what they name exists."""
import configparser
import dataclasses
import functools
import importlib
import pathlib
import re
import shlex

import pytest

import minigrad as mg
from data.tokenizer import CharTokenizer
from model import Transformer, TransformerConfig
from model.command import Parser, problems
from model.checkpoint import save_checkpoint
from tests.kit import ROOT, python, refusal
from tests.test_house import CHAPTERS, ROOMS

PAGES = {path.name: path for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")))}
TEXTS = {name: path.read_text(encoding="utf-8") for name, path in PAGES.items()}
COMMANDS = ("train.py model.sample model.look model.count model.convert model.reverse model.same "
            "model.walk tests.benchmarks tests.reliability tests.browser").split()
SOURCES = [path for folder in ("minigrad", "model", "data", "tests")
           for path in (ROOT / folder).rglob("*.py") if path != pathlib.Path(__file__)]
of_each_page = pytest.mark.parametrize("page", PAGES)


def parts(text):
    """The code blocks of a page, each as (language, code), and its inline code."""
    prose, *rest = re.split(r"^```(.*)\n", text, flags=re.M)    # language, block, "", prose, ...
    inline = re.findall(r"`([^`]+)`", "\n".join([prose, *rest[3::4]]))
    return list(zip(rest[::4], rest[1::4])), [" ".join(code.split()) for code in inline]


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
        elif name not in ("pip", "venv"):
            parse(name, [word for word in words if word != "--help"], monkeypatch)


def test_each_flag_that_stands_alone_is_one_of_a_command(monkeypatch, capsys):
    for name in COMMANDS:
        refusal(SystemExit, parse, name, ["--help"], monkeypatch)
    known = set(re.findall(r"--[\w-]+", capsys.readouterr().out))
    for text in TEXTS.values():
        for code in parts(text)[1]:
            assert not code.startswith("--") or set(re.findall(r"--[\w-]+", code)) <= known, code


def test_the_extras_of_setup_cfg_are_those_that_the_pages_name():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    named = re.findall(r"\.\[([\w,]+)\]", "".join(TEXTS.values()))
    assert set(",".join(named).split(",")) == {*setup["options.extras_require"]}


def test_each_python_snippet_runs(tmp_path):
    snippets = [code for text in TEXTS.values() for language, code in parts(text)[0] if language]
    tokenizer = CharTokenizer(" :AMR")
    (tmp_path / "out").mkdir()
    save_checkpoint(tmp_path / "out/ckpt.npz",
                    Transformer(TransformerConfig(tokenizer.vocab_size, 16, 1, 1, 8)), tokenizer)
    program = "import sys\nfor code in sys.argv[1:]: exec(code, {'__name__': '__main__'})"
    done = python("-c", program, *snippets, cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert done.returncode == 0 and len(snippets) >= 3, done.stderr


@of_each_page
def test_each_file_that_is_named_exists(page):
    path = re.compile(r"[\w/]+\.(py|md)|(minigrad|model|data|docs|tests)/[\w./]*")
    for name in filter(path.fullmatch, parts(TEXTS[page])[1]):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"\]\(([^)#]+)", TEXTS[page]):
        assert (PAGES[page].parent / name).exists(), name


@functools.cache
def words_of_the_code():
    blocks = [block for text in TEXTS.values() for _, block in parts(text)[0]]
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
def test_each_figure_has_the_command_that_draws_it_in_its_section(page):
    for section in TEXTS[page].split("\n## "):
        drawn = [word for _, words in commands(section) for word in words]
        for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", section):
            assert f"docs/{pathlib.Path(picture).name}" in drawn


def drawn_in_the_readme():
    drawing = next(block for _, block in parts(TEXTS["README.md"])[0] if "\nminigrad/\n" in block)
    folders = []
    for names in (row[:25] for row in drawing.splitlines()):    # what they are stands beside them
        for name in re.findall(r"\w+", names.replace(".py", "")):
            folders[re.match(" *", names).end() // 2:] = [name]
            yield ".".join(folders)


def test_the_drawing_in_the_readme_has_every_room_and_each_file_that_it_names():
    drawn = set(drawn_in_the_readme())
    for name in drawn:
        path = ROOT.joinpath(*name.split("."))
        assert path.is_dir() or path.with_suffix(".py").exists(), path
    assert {*ROOMS, *CHAPTERS} <= drawn


def test_the_table_in_the_readme_says_which_room_imports_which():
    said = {}
    for rooms, imports in re.findall(r"^\| (`m[\w/`, ]+) \| (`m[\w/`, ]+) \|$", TEXTS["README.md"],
                                     re.M):
        names = [[path.strip("/").replace("/", ".") for path in re.findall(r"`([^`]+)`", cell)]
                 for cell in (rooms, imports)]
        said |= dict.fromkeys(names[0], names[1])
    assert said == {room: to.split() for room, to in ROOMS.items() if to}
