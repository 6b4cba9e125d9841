"""A scored text on a terminal: darker letters where the model is surprised, and none in a pipe."""
import io
import math
import re
import sys

import numpy as np
import pytest

from model import load_checkpoint, sample
from model.score import colours
from model.score.text import text_losses
from tests.kit import Terminal

TRUE = {"COLORTERM": "truecolor"}
WINDOWS = {"WT_SESSION": "a"}
OF_256 = {"TERM": "xterm-256color"}


@pytest.mark.parametrize("environment, depth", [
    (TRUE, 24), ({"COLORTERM": "24bit", "TERM": "xterm"}, 24), (WINDOWS, 24), (OF_256, 8),
    ({"TERM": "screen-256color"}, 8), ({"TERM": "dumb"}, 0), ({}, 0), (TRUE | {"TERM": "dumb"}, 0),
    (TRUE | {"NO_COLOR": "1"}, 0), (TRUE | {"NO_COLOR": ""}, 24)], ids=str)
def test_depth_of_is_what_the_terminal_says_and_no_color_is_respected(environment, depth):
    assert colours.depth_of(Terminal(), environment) == depth
    assert colours.depth_of(io.StringIO(), environment) == 0


def test_orange_goes_from_pale_to_dark_in_even_steps():
    shades = [colours.orange(share) for share in np.linspace(0, 1, 11)]
    assert all(min(shade) >= 0 and max(shade) <= 255 for shade in shades)
    lights = [colours.brightness(*shade) ** (1 / 3) for shade in shades]    # as the eye sees it
    steps = -np.diff(lights)
    assert (steps > 0).all() and steps.max() < 1.5 * steps.min()


@pytest.mark.parametrize("share", np.linspace(0, 1, 21))
@pytest.mark.parametrize("depth", [24, 8])
def test_letters_stand_out_from_their_colour(share, depth):
    text = colours.coloured(["a"], [share], depth)
    ground, ink = re.fullmatch(r"\x1b\[48;([\d;]+);(30|97)ma\x1b\[0m", text).groups()
    numbers = [int(number) for number in ground.split(";")][1:]
    if depth == 8:
        cube = numbers[0] - 16
        numbers = [colours.LEVELS[cube // 6 ** power % 6] for power in (2, 1, 0)]
    light = colours.brightness(*numbers)
    of_ink = 0 if ink == "30" else 1
    assert (max(light, of_ink) + 0.05) / (min(light, of_ink) + 0.05) > 4.4


def plain(text):
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def test_coloured_shows_a_line_break_as_a_space_and_no_character_that_moves_the_cursor():
    text = colours.coloured(["a", "\n\n", "\x1b[2J\u202e\r", "\t"], [0, 1, 0.5, 0], 24)
    assert plain(text) == "a \n \n\\x1b[2J\\u202e\\r    "
    dark = ";".join(map(str, colours.orange(1)))
    assert text.count(f"48;2;{dark};97m ") == 2


def scored(trained, tmp_path, monkeypatch, stdout, text, **environment):
    (tmp_path / "text.txt").write_text(text)
    for name in ("NO_COLOR", "COLORTERM", "TERM", "WT_SESSION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", stdout)
    sample.main(["--out_dir", str(trained), "--score", str(tmp_path / "text.txt")])
    return stdout.getvalue()


def test_score_colours_each_letter_by_its_loss(trained, tmp_path, monkeypatch):
    text = "the quick\nxqz"
    said = scored(trained, tmp_path, monkeypatch, Terminal(), text, **TRUE)
    model, tokenizer, *_ = load_checkpoint(trained / "ckpt.npz")
    losses = text_losses(model, tokenizer.encode(text)) / math.log(tokenizer.vocab_size)
    assert colours.coloured([*text], [0, *losses.clip(max=1)], 24) in said
    assert "nats or more of each character" in said


def test_score_shows_the_beginning_of_a_long_text(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(colours, "MOST", 9)
    said = scored(trained, tmp_path, monkeypatch, Terminal(), "the quick brown fox", **OF_256)
    assert "\nthe quick\n" in plain(said) and "; 10 characters more\n" in said


@pytest.mark.parametrize("stdout, environment", [
    (io.StringIO(), TRUE), (Terminal(), TRUE | {"NO_COLOR": "1"})], ids=["a pipe", "NO_COLOR"])
def test_score_shows_no_text_where_it_has_no_colours(trained, tmp_path, monkeypatch, stdout,
                                                     environment):
    said = scored(trained, tmp_path, monkeypatch, stdout, "the quick", **environment)
    assert "\x1b" not in said and "\nthe quick\n" not in said and "nats a character" in said
