"""Matrices as maps to point into, with labels on their rows and columns, and a page of them.

A map is plain JSON, which static/maps.js draws:  title;  rows and columns, their labels;  row and
column, what one of them is;  values, by rows, null where a cell is closed;  most, the absolute
value that has the full colour: blue, or orange below 0.
"""
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from model.look.shell import shell

FILES = ("maps.css", "maps.js")         # in static/
DIGITS = 4      # after the point
MOST_NAMED = 5  # sections with links of their names; of more, the links are numbers
HINT = "Point at a cell of a map to see its number, or choose one and use the arrow keys."


class Section(NamedTuple):
    """A part of a page.  Its texts are plain; what HTML might take for something else is escaped.

    With `across`, maps are small, so many side by side, and the one that the reader chooses, at
    first the one numbered `chosen`, is large; else all are.
    """
    heading: str
    paragraphs: Sequence[str] = ()
    code: str = ""
    maps: Sequence[dict[str, Any]] = ()
    across: int = 0
    chosen: int = 0


def labelled(title: str, values: np.ndarray, rows: Sequence[object], columns: Sequence[object],
             row: str = "query", column: str = "key", most: float | None = None) -> dict[str, Any]:
    """Return a matrix, (R, C), as a map.  nan and inf, such as those of a mask, are closed cells.

    Parameters
    ----------
    rows, columns : R and C labels: words, letters, numbers.
    row, column : what a row and a column is, in the singular.
    most : the absolute value that has the full colour; by default the largest of the map.
    """
    values = np.asarray(values, np.float64)
    if values.shape != (len(rows), len(columns)):
        raise ValueError(f"{title!r} has {len(rows)} labels of rows and {len(columns)} of columns, "
                         f"and values of the shape {list(values.shape)}")
    open_ = np.isfinite(values)
    if most is None:
        most = float(np.abs(values[open_]).max(initial=0)) or 1.0
    return {"title": title, "rows": [str(x) for x in rows], "columns": [str(x) for x in columns],
            "row": row, "column": column, "most": round(most, DIGITS),
            "values": [[round(float(x), DIGITS) + 0.0 if np.isfinite(x) else None for x in line]
                       for line in values]}


def page(title: str, lede: str, sections: Sequence[Section],
         command: str = "python -m model.look") -> str:
    """Return a page: its title, a sentence or two in large print, and its sections."""
    body = [f"<h1>{escape(title)}</h1>", f'<p class="lede">{escape(lede)}</p>',
            f'<p class="hint">{HINT}</p>']
    for n, section in enumerate(sections, 1):
        body += [f'<section id="part-{n}" aria-labelledby="title-{n}">',
                 f'<h2 id="title-{n}">{escape(section.heading)}</h2>',
                 *(f'<p class="intro">{escape(text)}</p>' for text in section.paragraphs),
                 *([f"<pre>{escape(section.code)}</pre>"] if section.code else []),
                 f'<div class="maps" id="maps-{n}"></div>', "</section>"]
    facts = [{"maps": section.maps, "across": section.across, "chosen": section.chosen}
             for section in sections]
    nav = {f"part-{n}": section.heading if len(sections) <= MOST_NAMED else str(n)
           for n, section in enumerate(sections, 1)}
    return shell(title, nav, "\n".join(body) + "\n", facts, FILES, command)
