"""The page of the walk: it has all that the stations say and show, and draws it."""
import html
import re

import numpy as np
import pytest

from model.walk import __main__ as command
from model.walk.page import page
from model.walk.screen import number
from model.walk.station import Table, code, paragraphs
from model.walk.stations import STATIONS
from model.walk.stations.forms import crossed
from tests.browser import facts_of, of, opened, resize

EXTRA = {"title": "more", "rows": ["a"], "columns": ["b"], "row": "letter", "column": "letter",
         "most": 1.0, "values": [[0.25]]}
TABLES = [part for station in STATIONS for part in station.parts() if isinstance(part, Table)]


@pytest.fixture(scope="module")
def written():
    return page(STATIONS, {crossed: [EXTRA]})


def test_the_page_has_every_text_question_answer_and_line_of_source(written):
    said = html.unescape(re.sub(r"</?(p|pre|summary|h2)[^>]*>", " ", written))
    said = " ".join(said.split())
    for n, station in enumerate(STATIONS, 1):
        *parts, question = station.parts()
        for text in (station.title, *question, *(x for x in parts if isinstance(x, str)),
                     f"To read next: {station.read}",
                     f'<a href="#station-{n}">{n} {station.short}</a>'):
            for paragraph in paragraphs(text):
                assert " ".join(paragraph.split()) in said
    for table in TABLES:
        assert not table.line or f"{code(table.line)} # {table.line.place}" in said


def test_a_table_with_axes_is_a_map_in_its_station_and_any_other_stands_as_numbers(written):
    views = facts_of(written)
    n, = [i for i, view in enumerate(views, 1) if EXTRA in view["maps"]]
    station = f'<section id="station-{STATIONS.index(crossed) + 1}".*?</section>'
    assert f'id="maps-{n}"' in re.search(station, written, re.DOTALL)[0]
    maps = [m for view in views for m in view["maps"] if m != EXTRA]
    for m, table in zip(maps, [table for table in TABLES if table.axes], strict=True):
        values = np.array([[-np.inf if x is None else x for x in row] for row in m["values"]])
        assert np.allclose(values, table.values, atol=5.1e-5)
        assert m["most"] == abs(values[np.isfinite(values)]).max()      # has the full colour
        assert (m["title"], m["row"], m["column"]) == (table.title, *table.axes)
    for table in (table for table in TABLES if not table.axes):
        assert f"<figcaption>{html.escape(table.title)}</figcaption>" in written
        row = "".join(f"<td>{number(x, table.digits)}</td>" for x in table.values[-1])
        assert f"{html.escape(table.rows[-1])}</th>{row}</tr>" in written


@pytest.mark.needs("browser")
def test_a_browser_draws_all_of_it_without_an_error(written, driver, tmp_path):
    (tmp_path / "walk.html").write_text(written, encoding="utf-8")
    shown = opened(driver, tmp_path / "walk.html")
    assert of(shown, "$('#trouble').hidden") and shown.get_log("browser") == []
    assert of(shown, "$$('.matrix').length") == sum(bool(t.axes) for t in TABLES) + 1
    assert of(shown, "$$('details').every((x) => !x.open)")
    of(shown, "$$('summary')[0].click()")
    assert of(shown, "$$('details')[0].open")
    for width in (1280, 375):
        resize(driver, width, 900)
        assert of(shown, "document.documentElement.scrollWidth <= innerWidth")


def test_the_command_writes_the_page_and_says_where(tmp_path, monkeypatch, capsys, written):
    monkeypatch.setattr(command, "pictures", lambda: [EXTRA])
    command.write_page(str(tmp_path / "w.html"))
    assert (tmp_path / "w.html").read_text(encoding="utf-8") == written
    assert f"{tmp_path / 'w.html'}: " in capsys.readouterr().out
