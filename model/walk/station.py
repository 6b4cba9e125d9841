"""The parts of a station: paragraphs, tables with the line of source that made their numbers, and a
question."""
import functools
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from minigrad.core import Tensor
from minigrad.watch.events import Watcher
from minigrad.watch.source import Line, callers, line_of


class Table(NamedTuple):
    """A matrix with words beside its rows and above its columns."""
    title: str
    values: np.ndarray              # (R, S)
    rows: Sequence[str]
    columns: Sequence[str]
    line: Line | None = None        # the line of source that made the values
    digits: int = 4
    axes: tuple[str, str] | None = None     # the words for a row and a column of a map on a page


class Question(NamedTuple):
    """The question at the end of a station, and the answer that the next one begins with."""
    text: str
    answer: str


class Station(NamedTuple):
    """A station: `parts` returns its paragraphs and tables, and last its question."""
    title: str
    short: str                      # its name in a row of links
    minutes: int                    # that a reader needs
    read: str                       # what to read next: "name in file"
    parts: Callable[[], list[str | Table | Question]]


def station(title: str, short: str, minutes: int, read: str) -> Callable[[Callable], Station]:
    """Make a station of the function that yields its parts."""
    def make(parts: Callable[[], Iterator[str | Table | Question]]) -> Station:
        return Station(title, short, minutes, read, functools.cache(lambda: list(parts())))
    return make


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a text, each in one line; those that are indented as they are."""
    return [paragraph if paragraph.startswith(" ") else " ".join(paragraph.split())
            for paragraph in textwrap.dedent(text).strip("\n").split("\n\n")]


def code(line: Line) -> str:
    """Return the text of a line of source without its comment."""
    return line.text.partition(" # ")[0]


class Trace(Watcher):
    """Remembers the line of source that made each tensor inside `with`."""

    def __init__(self) -> None:
        self.made = []              # (op, value, line), in the order in which they ran

    def _note_forward(self, event):
        self.made += [(event.op, out.data, line_of(next(callers()))) for out in event.outputs]

    def by(self, op: str, nth: int = -1) -> np.ndarray:
        """Return the value that an op made, the last by default."""
        return [value for name, value, _ in self.made if name == op][nth]

    def table(self, title: str, made: Tensor | np.ndarray, rows: Sequence[str],
              columns: Sequence[str], axes: tuple[str, str] | None = None, digits: int = 4
              ) -> Table:
        """Return a table of a matrix, or a row, that was made inside `with`."""
        value = made.data if isinstance(made, Tensor) else made
        line = next(line for _, other, line in self.made if other is value)
        return Table(title, np.atleast_2d(value), rows, columns, line, digits, axes)
