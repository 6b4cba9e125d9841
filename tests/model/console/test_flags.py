"""Settings as flags: both spellings, defaults in --help, and answers to mistakes."""
import dataclasses
import math

import numpy as np
import pytest

import train
from model import sample, settings
from model.convert import __main__ as convert
from model.count import __main__ as count
from model.look import __main__ as look
from model.reverse import __main__ as reverse
from model.command import (NO_FLAG, OTHER_NAMES, Parser, Words, answering, as_flags, flag, mistyped,
                           problems, text_or_file)
from model.walk import __main__ as walk


@dataclasses.dataclass
class Settings:
    max_iters: int = flag(10, "how many, 100 % of them", at_least=0)
    fast: bool = flag(False, "no waiting")
    rate: float = flag(None, "how much", unset="a tenth of it")
    table: int = flag(0, "after so many", alone=50)
    output: str = flag("a.html", "where to", short="-o")
    data: Words = flag(("a", "b"), "what to read")


def given(*argv):
    return Parser("python -m some.command", "What it does.", Settings).given(list(argv))


def test_only_what_is_given_is_given():
    assert given() == {}
    assert given("--max_iters", "3", "--rate=1e-2") == {"max_iters": 3, "rate": 0.01}


def test_flags_take_underscores_and_hyphens_and_booleans_a_no():
    assert given("--max-iters", "3", "--fast") == {"max_iters": 3, "fast": True}
    assert given("--no-fast") == {"fast": False}


def test_a_flag_may_stand_alone_where_that_has_a_meaning():
    assert given("--table") == {"table": 50} and given("--table", "3") == {"table": 3}


def test_a_flag_of_words_takes_one_or_more_up_to_the_next_flag():
    assert given("--data", "x.txt") == given("--data=x.txt") == {"data": ("x.txt",)}
    assert given("--data", "x", "y z", "--fast", "--max_iters", "3") == {
        "data": ("x", "y z"), "fast": True, "max_iters": 3}
    assert given("--data", "x", "--data", "y") == {"data": ("y",)}


def test_a_flag_may_have_a_short_spelling():
    assert given("-o", "b") == given("--output", "b") == {"output": "b"} and given("-ob") == given(
        "-o", "b")


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
    ("rate", -math.inf, "is at least 0, not -inf"), ("clip", math.inf, None),
    ("fast", 1, "takes True or False, not 1"), ("fast", True, None),
    ("size", "x" * 10_000, f"takes a whole number, not '{'x' * 79}..."),
    ("kind", "x" * 10_000, f"is one, two or three, not {'x' * 80}..."),
    ("kind", "three", None), ("kind", "six", "is one, two or three, not six"),
    ("kind", "tow", "is one, two or three, not tow; did you mean two?"),
    ("text", 3, "takes a text, not 3"), ("text", "anything", None)])
def test_a_value_is_held_to_the_type_the_bounds_and_the_choices_of_its_setting(name, value, says):
    assert problems(Checked(**{name: value})) == ([f"--{name} {says}"] if says else [])


def test_every_setting_that_cannot_be_used_has_its_line():
    assert [line.split()[0] for line in problems(Checked(size=0, fast=None, kind="x"))] == [
        "--size", "--fast", "--kind"]


def test_settings_as_flags_are_read_back_as_what_they_were():
    settings = dict(max_iters=3, fast=False, rate=1e-05, table=0, output="b")
    words = [word for flag in as_flags(settings | {"absent": None}) for word in flag.split(" ")]
    assert given(*words) == settings
    assert as_flags(dict(rate=3.0, fast=True)) == ["--rate 3", "--fast"]


def test_a_text_is_itself_or_what_a_file_holds(tmp_path, monkeypatch):
    (tmp_path / "lantern").write_bytes(b"a\r\nb")
    monkeypatch.chdir(tmp_path)
    assert text_or_file("lantern") == "lantern" and text_or_file("FILE:lantern") == "a\nb"


def test_help_shows_the_defaults(capsys):
    with pytest.raises(SystemExit):
        given("--help")
    said = " ".join(capsys.readouterr().out.split())
    assert "how many, 100 % of them (default: 10)" in said and "What it does." in said
    assert "how much (default: a tenth of it)" in said
    assert "what to read (default: a b)" in said
    Parser("python -m some.command", "", Settings(max_iters=7, rate=2.0)).print_help()
    said = " ".join(capsys.readouterr().out.split())
    assert "how many, 100 % of them (default: 7)" in said and "how much (default: 2.0)" in said
    assert "a tenth" not in said


@pytest.mark.parametrize("argv,says", [
    (("--max_itres", "3"), "there is no flag --max_itres; did you mean --max_iters?"),
    (("--zzz",), "there is no flag --zzz; see --help"),
    (("--max", "3"), "there is no flag --max"),
    (("--max_iters", "x"), "--max_iters takes a whole number, not 'x'"),
    (("--output=--",), "--output takes a value, not '--'"),
    (("--rate", "fast"), "--rate takes a number, not 'fast'"),
    (("--fast", "true"), "no flag stands before 'true', or one that takes nothing; see --help"),
    (("--fast=true",),
     "--fast is on or off, and takes no value such as 'true'; write --fast or --no-fast"),
    (("--no-fast=",),
     "--fast is on or off, and takes no value such as ''; write --fast or --no-fast"),
    (("--rate",), "--rate takes a value, and none was given; one that begins with a hyphen follows "
                  "an equals sign, as in --rate=-value"),
    (("--rate", "--fast"), "--rate takes a value, and none was given"),
    (("--max_iters", "-1"), "--max_iters is at least 0, not -1"),
    (("--output=",), "--output takes a value, and an empty one was given"),
    (("--data", "x", ""), "--data takes a value, and an empty one was given"),
    (("-o",), "-o takes a value, and none was given"),
    (("--data", "--fast"), "--data takes a value, and none was given"),
    (("--data=x", "y"), "no flag stands before 'y', or one that takes nothing; see --help")])
def test_a_mistake_is_answered_in_one_line(capsys, argv, says):
    with pytest.raises(SystemExit) as caught:
        given(*argv)
    line, = capsys.readouterr().err.splitlines()
    assert caught.value.code == 2 and line.startswith("some.command: error: ") and says in line


@pytest.mark.parametrize("command, name, words", [
    (walk, "--exercise", ()), (walk, "--page", ()), (walk, "--check", ()),
    (reverse, "--out_dir", ("--max_iters=0",)), (convert, "--tokenizer", ("a", "b")),
    (look, "--output", ()), (look, "--out_dir", ()), (sample, "--out_dir", ()),
    (sample, "--score", ()), (count, "--out_dir", ()), (train, "--replay", ()),
    (train, "--out_dir", ("--explain",))])
def test_an_empty_name_is_refused_before_anything_is_written(
        command, name, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        command.main([*words, name, ""])
    assert caught.value.code == 2 and not list(tmp_path.iterdir())
    assert f"error: {name} takes a value, and an empty one was given\n" in capsys.readouterr().err


@pytest.mark.parametrize("command, word, says", [
    (settings, "--resume", "did you mean --init_from resume?"),
    (settings, "--lr=1e-3", "did you mean --learning_rate?"),
    (settings, "--epochs", "did you mean --max_iters or --minutes?"),
    (reverse, "--epochs", "did you mean --max_iters?"),
    (settings, "--LAYERS", "did you mean --n_layer?"),
    (count, "--context-length", "did you mean --block_size?"),
    (settings, "--text", "did you mean --data?"), (sample, "--text", "did you mean --start?"),
    (look, "--prompt", "did you mean --text?"), (sample, "-n",
                                                 "did you mean --num_samples or --max_new_tokens?"),
    (settings, "--device=cuda", "everything is computed on the processor (CPU); leave it out"),
    (sample, "--compile", "kernels are always compiled; leave it out"),
    (settings, "--prompt",
     "it is python -m model.sample that writes text, going on from its --start"),
    (settings, "--no-bais", "did you mean --no-bias?"),
    (settings, "--gradclip", "did you mean --grad_clip?"),
    *[(settings, f"--{word}", "see --help") for word in ("eps", "verbose", "name", "test")],
    *[(sample, f"--{word}", "see --help") for word in ("batch", "context", "optim", "style")]])
def test_a_flag_of_another_program_is_answered_with_what_it_is_here(command, word, says):
    parser = Parser("python -m some.command", "", command.Settings)
    assert parser.read([word]) == ({}, [f"there is no flag {word.split('=')[0]}; {says}"])


def test_every_line_of_the_other_names_has_flags_that_one_command_has():
    known = [{f"--{field.name}" for field in dataclasses.fields(command.Settings)}
             for command in (settings, sample, look, count, reverse)]
    for line in OTHER_NAMES:
        flags = {word for word in line.split() if word.startswith("--")}
        assert any(flags <= of_one for of_one in known), line
    for names in (*OTHER_NAMES.values(), *NO_FLAG.values()):
        assert all(name.isidentifier() and name.islower() for name in names.split()), names


def test_every_mistake_has_its_line_and_what_is_right_is_read():
    parser = Parser("python -m some.command", "What it does.", Settings)
    assert parser.read(["--max_iters", "x", "--fats", "--table", "3", "--rate", "1,5"]) == (
        {"table": 3}, ["--max_iters takes a whole number, not 'x'",
                       "--rate takes a number, not '1,5'",
                       "there is no flag --fats; did you mean --fast?"])
    assert parser.read(["--fast=1", "--no-fast=0", "--max_iters", "x", "--table"]) == (
        {"table": 50}, [f"--fast is on or off, and takes no value such as '{value}'; write --fast "
                        "or --no-fast" for value in (1, 0)]
        + ["--max_iters takes a whole number, not 'x'"])
    assert parser.read(["--rate", "--fast", "--output=--", "--max_iters=x", "-o", "--", "a"]) == (
        {"fast": True}, [f"{name} takes a value, and none was given; one that begins with a hyphen "
                         f"follows an equals sign, as in {name}=-value" for name in ("--rate",)]
        + ["--output takes a value, not '--'"]
        + ["-o takes a value, and none was given; one that begins with a hyphen follows an equals "
           "sign, as in -o=-value", "--max_iters takes a whole number, not 'x'",
           "there is no flag --; see --help"])
    assert parser.read(["--rate", "-1.5", "--output", "-1", "-o", "a b"]) == (
        {"rate": -1.5, "output": "a b"}, [])
    parser.refuse([])
    with pytest.raises(SystemExit):
        parser.refuse(["one"])


@pytest.mark.parametrize("error, code", [
    (ValueError("what and why"), "a.command: what and why"), (KeyboardInterrupt(), 130),
    (MemoryError("14.6 TiB"), "a.command: there is not enough memory (14.6 TiB); end other "
                              "programs, or take a smaller model or text"),
    (OSError(28, "No space left"),
     "a.command: cannot write what it has to say: No space left; name another file"),
    (FileNotFoundError(2, "No such file or directory", "no/x.txt"),
     "a.command: cannot use no/x.txt: No such file or directory; name another file")])
def test_what_goes_wrong_in_a_command_is_answered_in_a_line(error, code):
    with pytest.raises(SystemExit) as caught:
        with answering("a.command"):
            raise error
    assert caught.value.code == code


@pytest.mark.parametrize("argv", [("--a\nb",), ("--max_iters", "1\n2"), ("a\nb",), ("--\x1b",)])
def test_what_stands_on_the_command_line_cannot_break_the_line(argv, capsys):
    with pytest.raises(SystemExit):
        given(*argv)
    error, = capsys.readouterr().err.split("\n")[:-1]
    assert error.startswith("some.command: error: ") and error.isprintable()


def test_settings_from_a_file_are_held_to_the_types_of_their_flags():
    assert mistyped(Settings, {}) == mistyped(Settings, dataclasses.asdict(Settings())) == []
    assert mistyped(Settings, {"max_iters": "3", "fast": 0, "rate": True, "table": True,
                               "output": None, "data": ["a"], "unknown": []}) == [
        "max_iters", "fast", "rate", "table", "output", "data"]
    assert mistyped(Settings, {"rate": 1.0}) == mistyped(Settings, {"rate": None}) == []
    assert mistyped(Settings, {"rate": 1}) == []        # as Python may have given it
    assert mistyped(Settings, {"rate": 10 ** 400}) == ["rate"]
