"""The frame of every page: one HTML file that needs no other, in a light and a dark theme."""
import json
import pathlib
import re
from collections.abc import Sequence
from html import escape
from typing import Any


def shell(title: str, nav: dict[str, str], body: str, facts: Any,
          files: Sequence[str | pathlib.Path], command: str = "python -m model.look") -> str:
    """Return a page.

    Parameters
    ----------
    nav : the words of a link to each section, by the section's id.
    body : HTML.
    facts : what goes into the page as JSON, without nan and inf, for its scripts.
    files : style sheets and scripts, by their names in static/ or as paths, in their order, after
        page.css and elements.js.
    command : what wrote the page.
    """
    parts = {"title": escape(title), "command": escape(command), "body": body,
             "nav": "\n".join(f'      <a href="#{name}">{escape(words)}</a>'
                              for name, words in nav.items()),
             # Without a <, nothing in the JSON can end the element that contains it.
             "facts": json.dumps(facts, allow_nan=False, separators=(",", ":")).replace(
                 "<", "\\u003c")}
    for suffix in ("css", "js"):
        parts[suffix] = "\n".join(static(name) for name in ("page.css", "elements.js", *files)
                                  if str(name).endswith(suffix))
    return filled("shell.html", parts)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in HTML, from the words of its head and of its rows."""
    names = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    lines = "\n".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
                      for row in rows)
    return f"<table><thead><tr>{names}</tr></thead>\n<tbody>{lines}</tbody></table>"


def filled(name: str, parts: dict[str, str]) -> str:
    """Return a file in static/ with a part in place of each {{name}}."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], static(name))


def static(name: str | pathlib.Path) -> str:
    """Return a file in static/, or one of another folder."""
    return pathlib.Path(__file__).with_name("static").joinpath(name).read_text(encoding="utf-8")
