"""The page of the walk: it has all that the stations say and show, and draws it."""
import html
import re

import numpy as np
import pytest

from model.walk import __main__ as command
from model.walk.page import page, typeset
from model.walk.screen import number
from model.walk.station import Table, code, paragraphs
from model.walk.stations import STATIONS
from model.walk.stations.forms import crossed
from tests.browser import resize

EXTRA = Table("more", np.array([[0.25, np.nan], [-0.5, -np.inf]]), ["a", "b"], ["c", "d"], None, 2,
              ("letter", "letter"))


@pytest.fixture(scope="module")
def written():
    return page(STATIONS, {crossed: [EXTRA]})


def test_page_has_every_text_question_answer_and_line_of_source(written):
    for n, station in enumerate(STATIONS, 1):
        *parts, question = station.parts()
        for text in (station.title, *question, *(x for x in parts if isinstance(x, str)),
                     station.read):
            for paragraph in paragraphs(text):
                if not paragraph.startswith(" "):
                    assert typeset(paragraph) in written
        assert f'<a href="#station-{n}">{n} {station.short}</a>' in written
    said = html.unescape(re.sub(r"<[^>]+>", "", written))
    for station in STATIONS:
        for part in station.parts():
            if isinstance(part, Table) and part.line:
                assert f"{code(part.line)}    {part.line.place}" in said


def test_page_writes_each_table_in_its_station_and_colours_those_with_axes(written):
    for station in STATIONS:
        own = [part for part in station.parts() if isinstance(part, Table)]
        if station is crossed:
            own.append(EXTRA)
        section = re.search(f'<section id="station-{STATIONS.index(station) + 1}".*?</section>',
                            written, re.DOTALL)[0]
        found = re.findall(r"<table(.*?)>(.*?)</table>", section, re.DOTALL)
        for (kind, cells), table in zip(found, own, strict=True):
            assert (kind == ' class="map"') == bool(table.axes)
            numbers = re.findall("<td[^>]*>([^<]+)</td>", cells)
            values = table.values[~np.isnan(table.values)]
            assert numbers == [typeset(number(x, table.digits)) for x in values]


@pytest.mark.parametrize("text, expected", [
    ('"a" is -1.5, not - 2 or x-y', "“a” is −1.5, not − 2 or x-y"), ("it's", "it’s"),
    ("row `i` < `j`", "row <code>i</code> &lt; <code>j</code>"), ("-inf", "−∞")])
def test_typeset_writes_quotes_and_minus_as_in_a_book_and_code_in_its_font(text, expected):
    assert typeset(text) == expected


def test_a_larger_number_has_more_colour_and_one_below_zero_another(written):
    assert '<td style="--share:50">0.25</td><td class="closed"></td>' in written
    assert '<td class="below" style="--share:100">−0.50</td><td class="closed">−∞</td>' in written


@pytest.mark.needs("browser")
def test_a_browser_shows_the_contents_beside_the_station_that_is_read(written, driver, tmp_path):
    (tmp_path / "walk.html").write_text(written, encoding="utf-8")
    driver.get((tmp_path / "walk.html").as_uri())

    from selenium.webdriver.support.ui import WebDriverWait

    def of(expression):
        return driver.execute_script(f"return {expression}")
    for width, height in ((1280, 13_850), (375, 19_350)):
        resize(driver, width, 900)
        assert of("document.documentElement.scrollWidth <= innerWidth")
        assert of("document.documentElement.scrollHeight") <= height
        driver.execute_script("document.querySelector('#station-7').scrollIntoView()")
        WebDriverWait(driver, 20, 0.02).until(lambda driver: of(
            "document.querySelector('nav [aria-current]').textContent") == "7 Rank")
        assert of("document.querySelector('nav [aria-current]').getBoundingClientRect().top") < 900
        assert of("""[...document.querySelectorAll('a:not(.skip), input, summary')].filter((x) => {
            const box = (x.closest('label') ?? x).getBoundingClientRect();
            return box.width && box.height < 24;}).map((x) => x.outerHTML)""") == []
        assert of("[...document.querySelectorAll('.file')].every((x) => !x.getClientRects()[1])")
        named = of("""[...document.querySelectorAll('.tables[tabindex]')].map((x) =>
            `${x.getAttribute('role')} ${x.ariaLabel}`)""")
        assert len(set(named)) == len(named) and all(x.startswith("region T") for x in named)
        assert bool(named) == (width == 375)
    assert of("[...document.querySelectorAll('details')].every((x) => !x.open)")
    driver.execute_script("document.querySelector('summary').click()")
    assert of("document.querySelector('details').open")
    assert driver.get_log("browser") == []


def test_the_command_writes_the_page_and_says_where(tmp_path, monkeypatch, capsys, written):
    monkeypatch.setattr(command, "pictures", lambda: [EXTRA])
    command.write_page(str(tmp_path / "w.html"))
    assert (tmp_path / "w.html").read_text(encoding="utf-8") == written
    assert f"{tmp_path / 'w.html'}: " in capsys.readouterr().out
