"""A station as text: paragraphs, tables and lines of source in 80 columns."""
import numpy as np
import pytest

from minigrad.watch.source import Line
from model.walk.screen import closing, number, prose, screen, table
from model.walk.station import Table
from model.walk.stations import STATIONS


@pytest.mark.parametrize("n", range(1, len(STATIONS) + 1))
def test_a_screen_fits_80_columns_of_ascii_and_begins_with_the_answer_to_the_one_before(n):
    text = screen(STATIONS, n)
    assert text.isascii() and max(map(len, text.splitlines())) <= 79
    assert "`" not in text + closing(STATIONS, n)       # marks code, for the page
    assert text.startswith(f"{n}. {STATIONS[n - 1].title} ")
    assert text.endswith(f"\nTo read next: {STATIONS[n - 1].read}\n")
    assert (f"\n\nAnswer to question {n - 1}: " in text) == (n > 1) == ("Answer" in text)
    end = closing(STATIONS, n)
    assert end == f"The answer:  python -m model.walk {n + 1}" or n == len(STATIONS) and (
        end.startswith(f"Answer to question {n}: "))


def test_paragraphs_are_filled_and_indented_ones_kept():
    text = """
        One line
        and another one.

            kept   as it is

        The end."""
    assert list(prose(text)) == ["One line and another one.", "", "    kept   as it is", "",
                                 "The end."]


def test_a_table_has_its_words_aligned_and_its_line_of_source_with_the_place():
    assert [number(x, 2) for x in (0.006, -0.001, 1234.5)] == ["0.01", "0", "1,234.50"]
    shown = Table("Weights", np.array([[0.5, -1.25], [0.0, -np.inf]]), ["a", "long"], ["x", "yy"],
                  Line("model/attention.py", 7, "weights = mg.softmax(scores) # (..., T, S)"), 2)
    assert list(table(shown)) == [
        "Weights:",
        "    weights = mg.softmax(scores)    model/attention.py:7",
        "             x     yy",
        "    a     0.50  -1.25",
        "    long     0   -inf"]


def test_a_long_line_of_source_goes_on_below_and_ends_with_its_place():
    source = "out = " + " + ".join(["something"] * 8)
    first, *below = list(table(Table("Sum", np.ones((1, 1)), ["a"], ["x"],
                                     Line("a/long/file.py", 1, source))))[1:-2]
    assert len(first) <= 78 and below and all(line.startswith(" " * 8) for line in below)
    assert " ".join(" ".join([first, *below]).split()) == f"{source} a/long/file.py:1"
