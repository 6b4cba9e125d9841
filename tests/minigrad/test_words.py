"""Words of messages: counts with nouns, lists, and any value in one short line."""
import pytest

from minigrad.words import any_of, first_of, in_a_line, number_of, scaled, shown


@pytest.mark.parametrize("said, results", [
    (lambda n: number_of(n, "minute"), {
        0: "0 minutes", 1.0: "1 minute", 0.1: "0.1 minutes", 3.0: "3 minutes",
        2000: "2,000 minutes"}),
    (lambda words: any_of(list(words)), {"a": "a", "ab": "a or b", "abc": "a, b or c"}),
    (lambda words: first_of(list(words), 2), {
        "a": "a", "ab": "a, b", "abc": "a, b and 1 more", "a" * 1_002: "a, a and 1,000 more"}),
    (lambda n: scaled(n, "B"), {
        0: "0.000 B", 7: "7.000 B", 999.94: "999.9 B", 1000: "1.000 kB", 65_536: "65.54 kB",
        999_949: "999.9 kB", 999_960: "1.000 MB", 1.5e9: "1.500 GB", 2e12: "2.000 TB",
        3e15: "3.000 PB", 4e19: "4.000e+04 PB"}),
    (in_a_line, {"no file a\nb\x1b\ud800, é 漢": "no file a\\nb\\x1b\\ud800, é 漢"}),
    (shown, {"a\n": "a\\n", "x" * 80: "x" * 80, "x" * 10_000: "x" * 80 + "...",
             "\n" * 80: "\\n" * 40 + "...", ValueError("x"): "x",
             ValueError("x" * 10_000): "x" * 200 + "..."}),
    (lambda size: shown([7] * size), {1: "[7]", 10_000: "[" + "7, " * 26 + "7..."})],
    ids=["numbers", "alternatives", "the first", "four digits", "a line", "values", "lists"])
def test_numbers_lists_and_values_are_said_in_words_of_one_short_line(said, results):
    assert {value: said(value) for value in results} == results
