"""The command line: flags of a table of options, and mistakes."""
import dataclasses
import re

import pytest

from model.command import Parser
from model.options import Words, as_flags, flag
from tests.kit import refusal


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
    assert parser().parse(argv.split()) == given


@pytest.mark.parametrize("argv, given, warned", [
    ("--max_iters 3 --rate 1 --max-iters=4", dict(max_iters=4, rate=1.0), dict(max_iters=2)),
    ("--fast --no-fast -o a -ob -o c", dict(fast=False, output="c"), dict(fast=2, output=3)),
    ("--data x --data y --rate 1", dict(data=("x", "y"), rate=1.0), dict())])
def test_of_a_flag_given_twice_the_last_counts_and_that_is_said(argv, given, warned, capsys):
    assert parser().parse(argv.split()) == given
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
    assert refusal(SystemExit, parser().parse, argv) == "2"
    lines = capsys.readouterr().err.splitlines()
    expected = mistakes.split("\n")
    assert len(lines) == len(expected)
    for line, says in zip(lines, expected):
        assert line.startswith("some.command: error: ")
        assert line.isprintable()
        assert all(part in line for part in says.split(" ... ")), line
        assert re.findall(r"; write \d+$", line) == re.findall(r"; write \d+$", says)


def test_read_returns_no_text_that_is_a_mistake_so_that_it_is_not_looked_for():
    settings, mistakes = parser().read(["--data", "x", "", "--output", "", "--max_iters", "-1"])
    assert settings == dict(max_iters=-1)
    assert [mistake.split()[0] for mistake in mistakes] == ["--data", "--output", "--max_iters"]


def test_what_is_right_is_read_beside_mistakes_and_each_line_is_said_once(capsys):
    given, mistakes = parser().read(["--max_iters", "x", "--fats", "--table", "3"])
    assert given == {"table": 3}
    assert len(mistakes) == 2
    parser().refuse([])
    refusal(SystemExit, parser().refuse, ["one", "one"])
    assert capsys.readouterr().err == "some.command: error: one\n"


def test_help_shows_the_defaults(capsys):
    refusal(SystemExit, parser().parse, ["--help"])
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
    refusal(SystemExit, parser().parse, ["-h"])
    said = capsys.readouterr().out
    lines = [line.split("  ")[1] for line in said.splitlines() if line.startswith("  -")]
    assert lines == ["-h, --help", "--max_iters N", "--fast, --no-fast", "--rate X", "--table [N]",
                     "--output, -o OUTPUT", "--kind KIND", "--data DATA [DATA ...]"]
    assert said.endswith("\nA flag may have hyphens in place of underscores.\n")
    for flags in ("--max_iters 3", "--max-iters 3"):
        assert parser().parse(flags.split()) == {"max_iters": 3}


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
    assert parser().parse(words) == settings
    assert as_flags(dict(rate=3.0, fast=True)) == ["--rate 3", "--fast"]
