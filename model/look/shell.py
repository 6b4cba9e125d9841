"""What every page has around its contents: one HTML file that needs no other, in light and dark."""
import json
import pathlib
import re
from collections.abc import Sequence
from html import escape
from typing import Any


def shell(title: str, nav: dict[str, str], body: str, facts: Any, files: Sequence[str],
          command: str = "python -m model.look") -> str:
    """Return a page.

    Parameters
    ----------
    nav : the words of a link to each section, by the section's id.
    body : HTML.
    facts : what goes into the page as JSON, without nan and inf, for its scripts.
    files : style sheets and scripts in static/, in their order, after page.css and elements.js.
    command : what wrote the page.
    """
    def joined(suffix, *before):
        return "".join(static(name) for name in (*before, *files) if name.endswith(suffix))
    parts = {"title": escape(title), "command": escape(command), "body": body,
             "nav": "\n".join(f'      <a href="#{name}">{escape(words)}</a>'
                              for name, words in nav.items()),
             "css": joined(".css", "page.css"), "js": joined(".js", "elements.js"),
             # Without a <, nothing in the JSON can end the element that contains it.
             "facts": json.dumps(facts, allow_nan=False, separators=(",", ":")).replace(
                 "<", "\\u003c")}
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], static("shell.html"))


def static(name: str) -> str:
    """Return a file in static/."""
    return pathlib.Path(__file__).with_name("static").joinpath(name).read_text(encoding="utf-8")
