"""The stations as one HTML page, with the numbers of a matrix on colours."""
import pathlib
import re
from collections.abc import Iterator, Sequence
from html import escape

import numpy as np

from minigrad.words import number_of
from model.look.shell import shell
from model.walk.screen import END, number
from model.walk.station import Question, Station, Table, code, paragraphs

STATIC = pathlib.Path(__file__).with_name("static")
SHORT = 300         # characters of prose that leave room for two tables beside them


def page(stations: Sequence[Station], trained: dict[Station, list[Table]]) -> str:
    """Return the page; `trained` has further tables for the end of some stations."""
    nav = {}
    body = [(STATIC / "begin.html").read_text(encoding="utf-8")]
    for n, station in enumerate(stations, 1):
        nav[f"station-{n}"] = f"{n} {station.short}"
        body += _station(n, station, trained.get(station, []))
    body += _beat([END + "python -m model.walk --exercise"], [])
    return shell("A walk through attention", nav, "\n".join(body), None,
                 (STATIC / "walk.css", STATIC / "walk.js"), "python -m model.walk --page")


def _station(n: int, station: Station, trained: Sequence[Table]) -> Iterator[str]:
    minutes = number_of(station.minutes, "minute")
    yield f'<section id="station-{n}" aria-labelledby="title-{n}">'
    yield f'<h2 id="title-{n}">{n}. {typeset(station.title)}</h2>'
    yield (f'<p class="hint"><span>about {minutes}</span> '
           f"<span>To read next: {typeset(station.read)}</span></p>")
    texts = []
    tables = []
    for part in [*station.parts()[:-1], *trained]:
        if isinstance(part, Table):
            tables.append(part)
            continue
        if tables:                          # a text after tables begins anew
            yield from _beat(texts, tables)
            texts = []
            tables = []
        texts.append(part)
    yield from _beat(texts, tables)
    yield from _question(station.parts()[-1])
    yield "</section>"


def _beat(texts: Sequence[str], tables: Sequence[Table]) -> Iterator[str]:
    """Yield texts, and beside them their tables."""
    size = "say short" if sum(map(len, texts)) < SHORT else "say"
    yield f'<div class="beat"><div class="{size}">'
    for text in texts:
        yield from _prose(text)
    yield '</div><div class="tables">'
    for table in tables:
        yield from _figure(table)
    yield "</div></div>"


def _question(question: Question) -> Iterator[str]:
    yield f"<details><summary>{typeset(' '.join(paragraphs(question.text)))}</summary>"
    yield '<div class="say">'
    yield from _prose(question.answer)
    yield "</div></details>"


def _figure(table: Table) -> Iterator[str]:
    """Yield a table below its title and its line of source.  One whose rows and columns are each of
    a kind is coloured."""
    kind = ""
    caption = typeset(table.title)
    if table.axes:
        row, column = table.axes
        kind = ' class="map"'
        caption += f" <small>{row} × {column}</small>"
    yield f"<figure><figcaption>{caption}</figcaption>"
    if table.line:
        folder, slash, file = table.line.place.rpartition("/")
        yield (f'<pre class="source">{escape(code(table.line))}    '
               f'<span class="folder">{escape(folder + slash)}</span>'
               f'<span class="file">{escape(file)}</span></pre>')
    yield f"<table{kind}><thead><tr><td></td>"
    for name in table.columns:
        yield f'<th scope="col">{typeset(name)}</th>'
    yield "</tr></thead><tbody>"
    finite = table.values[np.isfinite(table.values)]
    most = np.abs(finite).max(initial=0) or 1.0
    for name, row in zip(table.rows, table.values):
        cells = "".join(_cell(x, table, most) for x in row)
        yield f'<tr><th scope="row">{typeset(name)}</th>{cells}</tr>'
    yield "</tbody></table></figure>"


def _cell(x: float, table: Table, most: float) -> str:
    """Return a number as a cell; `most` is the absolute value that has the full colour."""
    if np.isnan(x):                         # it cannot be
        return '<td class="closed"></td>'
    shown = typeset(number(x, table.digits))
    if not table.axes:
        return f"<td>{shown}</td>"
    if np.isinf(x):
        return f'<td class="closed">{shown}</td>'
    below = ' class="below"' if x < 0 else ""
    return f'<td{below} style="--share:{100 * abs(x) / most:.0f}">{shown}</td>'


def _prose(text: str) -> Iterator[str]:
    for paragraph in paragraphs(text):
        if paragraph.startswith(" "):
            yield f"<pre>{_minus(escape(paragraph, quote=False))}</pre>"
        else:
            yield f"<p>{typeset(paragraph)}</p>"


def typeset(text: str) -> str:
    """Return a text as HTML, with the quotes and the minus of a book, and `code` in its font."""
    html = []
    for i, piece in enumerate(_minus(escape(text, quote=False)).split("`")):
        if i % 2:
            html.append(f"<code>{piece}</code>")
        else:
            piece = re.sub(r'(?<![\w.,?)])"(?=\w)', "“", piece)
            html.append(piece.replace('"', "”").replace("'", "’"))
    return "".join(html)


def _minus(text: str) -> str:
    """Write a minus, which is before a number or between spaces, as one."""
    return re.sub(r"(?<![\w-])-(?=\d|inf)|(?<= )-(?= )", "−", text).replace("−inf", "−∞")
