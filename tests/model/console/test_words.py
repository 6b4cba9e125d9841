"""Numbers, lists and messages as users read them."""
import pytest

from model.command import any_of, first_of, in_a_line, number_of, scaled, shown


def test_one_of_a_thing_is_no_plural():
    assert [number_of(n, "minute") for n in (0, 1, 1.0, 0.1, 3.0, 2000)] == [
        "0 minutes", "1 minute", "1 minute", "0.1 minutes", "3 minutes", "2,000 minutes"]


@pytest.mark.parametrize("n, expected", [
    (0, "0.000 B"), (7, "7.000 B"), (999.94, "999.9 B"), (1000, "1.000 kB"), (65_536, "65.54 kB"),
    (999_949, "999.9 kB"), (999_960, "1.000 MB"), (1.5e9, "1.500 GB"), (2e12, "2.000 TB"),
    (3e15, "3.000 PB"), (4e19, "4.000e+04 PB")])
def test_a_number_is_said_in_four_digits_and_a_prefix(n, expected):
    assert scaled(n, "B") == expected


def test_words_are_joined_by_commas_and_the_last_by_or():
    assert [any_of(words) for words in (["a"], ["a", "b"], ["a", "b", "c"])] == [
        "a", "a or b", "a, b or c"]


def test_of_many_words_the_first_are_said_and_how_many_more():
    assert first_of(["a"]) == "a" and first_of(["a", "b"], 2) == "a, b"
    assert first_of([*"abc"], 2) == "a, b and 1 more"
    assert first_of(["a"] * 1_003, 3) == "a, a, a and 1,000 more"


def test_a_message_is_one_line_and_shows_what_would_break_it():
    assert in_a_line("no file a\nb\x1b\ud800, é 漢") == "no file a\\nb\\x1b\\ud800, é 漢"


@pytest.mark.parametrize("value, says", [
    ("a\n", "a\\n"), ([1], "[1]"), (ValueError("x"), "x"), ("x" * 80, "x" * 80),
    ("x" * 10_000, "x" * 80 + "..."), ([7] * 10_000, "[" + "7, " * 26 + "7..."),
    ("\n" * 80, "\\n" * 40 + "..."), (ValueError("x" * 10_000), "x" * 200 + "...")])
def test_a_value_of_a_file_is_shown_in_a_short_line(value, says):
    assert shown(value) == says
