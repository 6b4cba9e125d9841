"""Maps: what goes into them, in plain JSON and in a browser."""
import re

import numpy as np
import pytest

from model.look.maps import FILES, labelled
from model.look.shell import shell
from tests.browser import facts_of, of, opened, press, resize
from tests.kit import refusal, written

SCORES = np.array([[0.5, -2.0, 0.12339], [-0.00001, 1.0, -np.inf]])
MAPS = [labelled("Scores <&>", SCORES, ["the", "<b>cat"], [1, 2, 3], "word", "channel"),
        labelled("Weights", np.eye(4) / 2, "abba", "abba", most=1)]
NINE = [labelled(f"layer {i}", np.roll(np.eye(9), i, axis=1), range(9), range(9))
        for i in range(4)]


def test_a_map_has_the_numbers_to_four_digits_and_null_where_it_is_closed():
    assert MAPS[0] == {
        "title": "Scores <&>", "rows": ["the", "<b>cat"], "columns": ["1", "2", "3"],
        "row": "word", "column": "channel", "most": 2.0,
        "values": [[0.5, -2.0, 0.1234], [0.0, 1.0, None]]}
    assert str(MAPS[0]["values"][1][0]) == "0.0"                # and no -0.0
    assert (MAPS[1]["row"], MAPS[1]["column"], MAPS[1]["most"]) == ("query", "key", 1)
    closed = labelled("closed", [[np.nan, np.inf]], "a", "bc")
    assert closed["values"] == [[None, None]] and closed["most"] == 1


@pytest.mark.parametrize("rows, columns", [("ab", "ab"), ("abc", "abc")])
def test_labels_that_are_not_as_many_as_rows_and_columns_are_refused(rows, columns):
    said = refusal(ValueError, labelled, "Scores", SCORES, rows, columns)
    assert f"{len(rows)} labels of rows and {len(columns)} of columns" in said and "[2, 3]" in said


def test_every_text_of_a_page_stays_text(hostile_text):
    hostile = hostile_text.replace("\ud800", "")
    table = labelled(hostile, [[1.0]], [hostile], [hostile], hostile, hostile)
    page = shell(hostile, {"part": hostile}, "", [table], FILES, hostile)
    assert len(re.findall("<script", page)) == 2 and "{{facts}}" in page
    assert facts_of(page) == [table]
    assert "default-src 'none'" in page and "<!--<script>" not in page
    assert not re.search(r"https?:(?!//www\.w3\.org/2000/svg)|@import|url\(|innerHTML", page)


@pytest.fixture
def maps(driver, tmp_path):
    """A page of two large maps and of a choice of four, freshly opened, wide and light."""
    views = [{"maps": MAPS, "across": 0, "chosen": 0}, {"maps": NINE, "across": 2, "chosen": 1}]
    body = '<h1>Maps</h1><div class="maps" id="maps-1"></div><div class="maps" id="maps-2"></div>'
    return opened(driver, written(tmp_path / "m.html", shell("Maps", {}, body, views, FILES)))


@pytest.mark.needs("browser")
def test_the_page_draws_every_cell_with_its_number_and_its_shade(maps):
    assert of(maps, "$('#trouble').hidden") and maps.get_log("browser") == []
    assert of(maps, "$$('#maps-1 .large figcaption').map((x) => x.firstChild.data)") == [
        "Scores <&>", "Weights"]
    cells = of(maps, "$$('#maps-1 tbody')[0].innerText.trim().split(/\\s+/)")
    assert cells == ["the", "0.50", "−2.00", "0.12", "<b>cat", "0.00", "1.00"]
    blue, orange = of(maps, "[blue, orange]")
    colours = of(maps, "$$('#maps-1 tbody td').slice(0, 5).map((x) => x.style.backgroundColor)")
    assert colours == ["rgb({}, {}, {})".format(*colour) for colour in (
        blue[64], orange[255], blue[16], blue[0], blue[128])]           # of 255, by value / 2
    assert of(maps, "$$('#maps-1 td.closed').map((x) => x.ariaLabel)") == [
        "Word 2, ‘<b>cat’; channel 3: closed"]
    assert "closed by a mask" in of(maps, "$('#maps-1 .large').innerText")


@pytest.mark.needs("browser")
def test_pointing_and_arrow_keys_say_a_cell_in_words(maps):
    from selenium.webdriver import ActionChains
    first = "$('#maps-1 .large')"

    def said():
        return of(maps, f"{first}.querySelector('.readout').textContent")
    cell = of(maps, f"{first}.querySelectorAll('tbody td')[1]")
    ActionChains(maps, 0).move_to_element(cell).perform()
    assert said() == "Word 1, ‘the’; channel 2: −2.0000"
    assert of(maps, "$$('.marked').map((x) => x.textContent)") == ["2", "the", "−2.00"]
    ActionChains(maps, 0).move_to_element(of(maps, "$('h1')")).perform()
    assert said() == "" and of(maps, "$$('.marked').length") == 0
    of(maps, f"{first}.querySelector('[tabindex=\"0\"]').focus()")          # as by the tab key
    assert said() == "Word 1, ‘the’; channel 1: 0.5000"
    cell.click()
    the, cat = "Word 1, ‘the’; channel", "Word 2, ‘<b>cat’; channel"
    for key, words in (("right", f"{the} 3: 0.1234"), ("down", f"{cat} 3: closed"),
                       ("down", f"{cat} 3: closed"), ("home", f"{cat} 1: 0.0000"),
                       ("left", f"{cat} 1: 0.0000"), ("up", f"{the} 1: 0.5000"),
                       ("end", f"{the} 3: 0.1234")):
        press(maps, key)
        assert said() == words == of(maps, "document.activeElement.ariaLabel")
    assert of(maps, f"{first}.querySelectorAll('[tabindex=\"0\"]').length") == 1


@pytest.mark.needs("browser")
def test_the_chosen_map_is_large_and_keeps_the_chosen_cell(maps):
    def shown():
        return of(maps, "[$('#maps-2 figcaption').firstChild.data,"
                        "$('#maps-2 .readout').textContent,"
                        "$$('#maps-2 [aria-checked=true]').map((x) => x.ariaLabel).join()]")
    of(maps, "$$('#maps-2 tbody td')[3].click()")
    assert shown() == ["layer 1", "Query 1, ‘0’; key 4, ‘3’: 0.0000", "layer 1"]
    of(maps, "$$('#maps-2 [role=radio]')[3].click()")
    assert shown() == ["layer 3", "Query 1, ‘0’; key 4, ‘3’: 1.0000", "layer 3"]
    for key, title in (("up", "layer 1"), ("left", "layer 0"), ("left", "layer 0"),
                       ("down", "layer 2"), ("home", "layer 0"), ("end", "layer 3")):
        press(maps, key)
        assert shown()[::2] == [title, title]
        assert of(maps, "document.activeElement.ariaLabel") == title
    pixels = np.array(of(maps, """$$('#maps-2 canvas').map((x) => [...x.getContext('2d')
        .getImageData(0, 0, 9, 9).data])""")).reshape(4, 9, 9, 4)
    dark = (pixels[..., :3] == of(maps, "blue")[255]).all(-1)
    assert np.array_equal(dark, [np.roll(np.eye(9), i, axis=1) for i in range(4)])
    assert of(maps, "$$('#maps-2 tbody td').every((x) => x.textContent === '')")


@pytest.mark.needs("browser")
@pytest.mark.parametrize("width", [360, 1280])
def test_it_fits_a_telephone_and_the_dark(maps, width):
    of(maps, "$$('#maps-2 [role=radio]')[2].click()")
    light = of(maps, "$('#maps-1 tbody td').style.backgroundColor")
    of(maps, "$('#theme [value=dark]').click()")
    assert of(maps, "$('#maps-1 tbody td').style.backgroundColor") != light
    assert of(maps, "$('#maps-2 figcaption').firstChild.data") == "layer 2"
    resize(maps, width, 800)
    assert of(maps, "document.documentElement.scrollWidth") <= width
