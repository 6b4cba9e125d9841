"""A station as text for a terminal of 80 columns, in which names of code need no `quotes`."""
import textwrap
from collections.abc import Iterator, Sequence

import numpy as np

from minigrad.watch.text import aligned
from minigrad.words import number_of
from model.answers import command_line
from model.walk.station import Question, Station, Table, code, paragraphs

WIDTH = 78
MARGIN = " " * 4
END = """
    That was the walk.  To write its parts yourself, and have them checked:

        """


def screen(stations: Sequence[Station], number: int) -> str:
    """Return the text of a station, after the answer to the question of the station before."""
    station = stations[number - 1]
    head = f"{number}. {station.title}"
    minutes = f"about {number_of(station.minutes, 'minute')}"
    lines = [f"{head:{WIDTH - len(minutes)}}{minutes}", "-" * WIDTH, ""]
    if number > 1:
        lines += [*answer(stations, number - 1), ""]
    for part in station.parts():
        text = f"Question: {part.text}" if isinstance(part, Question) else part
        lines += [*(table(part) if isinstance(part, Table) else prose(text)), ""]
    lines += [f"To read next: {station.read}", ""]
    return "\n".join(lines)


def closing(stations: Sequence[Station], number: int) -> str:
    """Return the text after the last station that is shown."""
    if number < len(stations):
        return "The answer:  " + command_line("model.walk", str(number + 1))
    end = END + command_line("model.walk", "--exercise")
    return "\n".join([*answer(stations, number), "", *prose(end)])


def answer(stations: Sequence[Station], number: int) -> Iterator[str]:
    """Yield the lines of the answer to a station's question."""
    return prose(f"Answer to question {number}: {stations[number - 1].parts()[-1].answer}")


def prose(text: str) -> Iterator[str]:
    """Yield the lines of paragraphs, filled; those that are indented stay as they are."""
    for i, paragraph in enumerate(paragraphs(text.replace("`", ""))):
        yield from [""] * (i > 0)
        yield from (paragraph.split("\n") if paragraph.startswith(" ") else
                    textwrap.wrap(paragraph, WIDTH, break_on_hyphens=False))


def table(table: Table) -> Iterator[str]:
    """Yield the lines of a table, below the line of source that made it."""
    yield from textwrap.wrap(table.title.replace("`", "") + ":", WIDTH)
    if table.line:
        yield from textwrap.wrap(f"{code(table.line)}    {table.line.place}", WIDTH,
                                 initial_indent=MARGIN, subsequent_indent=2 * MARGIN)
    cells = [["", *(name.replace("`", "") for name in table.columns)],
             *([name, *(number(x, table.digits) for x in row)]
               for name, row in zip(table.rows, table.values))]
    yield from (MARGIN + line for line in aligned(cells, "<" + ">" * len(table.columns)))


def number(x: float, digits: int) -> str:
    """Return a number as it stands in a table."""
    x = np.round(x, digits) + 0.0                           # + 0.0: no -0
    return f"{x:,.{digits}f}" if x and np.isfinite(x) else f"{x:g}"
