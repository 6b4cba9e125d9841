"""The stations as one HTML page, with matrices as maps to point into."""
import textwrap
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from typing import Any

from minigrad.words import number_of
from model.look.maps import FILES, HINT, labelled
from model.look.shell import shell
from model.walk.screen import END, number
from model.walk.station import Station, Table, code, paragraphs

TITLE = "A walk through attention"
LEDE = ("How words look at each other, from six words with three numbers each to a block of a "
        "transformer.  Every number is computed by the code that is shown beside it.")


def page(stations: Sequence[Station], trained: dict[Station, list[dict[str, Any]]]) -> str:
    """Return the page; `trained` has further maps for the end of some stations."""
    nav, views, body = {}, [], [f"<h1>{TITLE}</h1>", f'<p class="lede">{LEDE}</p>',
                                f'<p class="hint">{HINT}</p>']

    def draw(maps):
        views.append({"maps": maps, "across": 0, "chosen": 0})
        body.append(f'<div class="maps" id="maps-{len(views)}"></div>')
    for n, station in enumerate(stations, 1):
        nav[f"station-{n}"] = f"{n} {station.short}"
        body += [f'<section id="station-{n}" aria-labelledby="title-{n}">',
                 f'<h2 id="title-{n}">{n}. {escape(station.title)}</h2>',
                 f'<p class="hint">about {number_of(station.minutes, "minute")}</p>']
        *parts, question = station.parts()
        for is_map, some in groupby(parts, lambda part: bool(getattr(part, "axes", None))):
            if is_map:
                tables = list(some)
                body += _code(tables)
                draw([labelled(*table[:4], *table.axes) for table in tables])
            else:
                for part in some:
                    body += _table(part) if isinstance(part, Table) else _prose(part)
        if station in trained:
            draw(trained[station])
        body += ['<details class="question"><summary>',
                 f"{escape(' '.join(paragraphs(question.text)))}</summary>",
                 *_prose(question.answer), "</details>",
                 f'<p class="hint">To read next: {escape(station.read)}</p>', "</section>"]
    body += _prose(END)
    return shell(TITLE, nav, "\n".join(body) + "\n", views, FILES, "python -m model.walk --page")


def _code(tables: Sequence[Table]) -> Iterator[str]:
    """Yield the lines of source that made some tables, each once."""
    lines = dict.fromkeys(table.line for table in tables if table.line)
    if lines:
        shown = "\n".join(f"{code(line)}    # {line.place}" for line in lines)
        yield f"<pre>{escape(shown)}</pre>"


def _table(table: Table) -> Iterator[str]:
    """Yield a table whose rows or columns are of different kinds, as numbers alone."""
    yield from _code([table])
    yield f"<figure><figcaption>{escape(table.title)}</figcaption>"
    yield '<div class="scroll"><table class="plain"><thead><tr><td></td>'
    yield "".join(f'<th scope="col">{escape(name)}</th>' for name in table.columns)
    yield "</tr></thead><tbody>"
    for name, row in zip(table.rows, table.values):
        yield (f'<tr><th scope="row">{escape(name)}</th>'
               + "".join(f"<td>{number(x, table.digits)}</td>" for x in row) + "</tr>")
    yield "</tbody></table></div></figure>"


def _prose(text: str) -> Iterator[str]:
    for paragraph in paragraphs(text):
        yield (f"<pre>{escape(textwrap.dedent(paragraph))}</pre>" if paragraph.startswith(" ") else
               f'<p class="say">{escape(paragraph)}</p>')
