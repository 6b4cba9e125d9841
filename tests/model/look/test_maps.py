"""Maps of attention in a browser: every cell has its number, in words and in colour."""
import re

import numpy as np
import pytest

from model.look.crossed import FILES
from model.look.shell import shell
from tests.browser import chosen, facts_of, of, opened, press, resize
from tests.kit import written

NAMES = {"row": "word", "column": "channel"}
CLOSED = NAMES | {"across": 1, "chosen": 0, "rows": ["the", "<b>cat"], "columns": ["x", "y", "z"],
                  "maps": [[[0.5, 1.0, 0.1234], [0.0, 0.25, None]]]}
DIAGONALS = [np.roll(np.eye(9), i, axis=1) for i in range(4)]
NINE = NAMES | {"across": 2, "chosen": 1, "rows": [*"abcdefghi"], "columns": [*"abcdefghi"],
                "maps": [diagonal.tolist() for diagonal in DIAGONALS]}


def test_every_text_of_a_page_stays_text(hostile_text):
    hostile = hostile_text.replace("\ud800", "")
    page = shell(hostile, {"part": hostile}, "", {"rows": hostile}, FILES, hostile)
    assert len(re.findall("<script", page)) == 2 and "{{facts}}" in page
    assert facts_of(page) == {"rows": hostile}
    assert "default-src 'none'" in page and "<!--<script>" not in page
    assert not re.search(r"https?:(?!//www\.w3\.org/2000/svg)|@import|url\(|innerHTML", page)


@pytest.fixture
def maps(driver, tmp_path):
    """A page of one map with a closed cell and of a choice of four, freshly opened, wide, light."""
    body = '<h1>Maps</h1><div class="maps" id="maps-1"></div><div class="maps" id="maps-2"></div>'
    page = shell("Maps", {}, body, [CLOSED, NINE], FILES)
    return opened(driver, written(tmp_path / "m.html", page))


@pytest.mark.needs("browser")
def test_the_page_draws_every_cell_with_its_number_and_its_shade(maps):
    assert of(maps, "$('#trouble').hidden") and maps.get_log("browser") == []
    cells = of(maps, "$$('#maps-1 tbody')[0].innerText.trim().split(/\\s+/)")
    assert cells == ["the", "0.50", "1.00", "0.12", "<b>cat", "0.00", "0.25"]
    blue = of(maps, "blue")
    colours = of(maps, "$$('#maps-1 tbody td').slice(0, 5).map((x) => x.style.backgroundColor)")
    assert colours == ["rgb({}, {}, {})".format(*blue[i]) for i in (128, 255, 31, 0, 64)]
    assert of(maps, "$$('#maps-1 td.closed').map((x) => x.ariaLabel)") == [
        "Word 2, ‘<b>cat’; channel 3, ‘z’: closed"]
    assert of(maps, "$$('#maps-1 td').every((x) => !x.ariaLabel || "
                    "x.ariaLabel.includes(x.textContent))")     # for who speaks what is seen
    assert "closed by a mask" in of(maps, "$('#maps-1 .large').innerText")
    pixels = of(maps, "[...$('#maps-1 canvas').getContext('2d').getImageData(0, 0, 3, 2).data]")
    assert pixels == [*blue[128], 255, *blue[255], 255, *blue[31], 255, *blue[0], 255, *blue[64],
                      255, 0, 0, 0, 0]


@pytest.mark.needs("browser")
def test_pointing_and_arrow_keys_say_a_cell_in_words(maps):
    from selenium.webdriver import ActionChains

    def said():
        return of(maps, "$('#maps-1 .readout').textContent")
    cell, title = of(maps, "[$$('#maps-1 tbody td')[1], $('h1')]")
    for element, words, marked in (
            (cell, "Word 1, ‘the’; channel 2, ‘y’: 1.0000", ["1.00", "the", "y"]), (title, "", [])):
        ActionChains(maps, 0).move_to_element(element).perform()
        assert said() == words
        assert sorted(of(maps, "$$('.marked').map((x) => x.textContent)")) == marked
    of(maps, "$('#maps-1 td[tabindex=\"0\"]').focus()")          # as by the tab key
    assert said() == "Word 1, ‘the’; channel 1, ‘x’: 0.5000"
    cell.click()
    the, cat = "Word 1, ‘the’; channel", "Word 2, ‘<b>cat’; channel"
    for key, words in (("right", f"{the} 3, ‘z’: 0.1234"), ("down", f"{cat} 3, ‘z’: closed"),
                       ("down", f"{cat} 3, ‘z’: closed"), ("home", f"{cat} 1, ‘x’: 0.0000"),
                       ("left", f"{cat} 1, ‘x’: 0.0000"), ("up", f"{the} 1, ‘x’: 0.5000"),
                       ("end", f"{the} 3, ‘z’: 0.1234")):
        press(maps, key)
        heard = of(maps, "document.activeElement.ariaLabel")       # with the digits of the cell
        assert said() == words and heard in (words, words[:-2])
    assert of(maps, "$$('#maps-1 td[tabindex=\"0\"]').length") == 1


@pytest.mark.needs("browser")
def test_the_chosen_map_is_large_and_keeps_the_chosen_cell(maps):
    def shown():
        return of(maps, "[$('#maps-2 figcaption').firstChild.data,"
                        "$('#maps-2 .readout').textContent,"
                        "$$('#maps-2 label:has(:checked)').map((x) => x.textContent).join()]")
    of(maps, "$$('#maps-2 tbody td')[3]").click()
    for i, value in ((1, "0.0000"), (3, "1.0000")):
        of(maps, f"$$('#maps-2 [type=radio]')[{i}].click()")
        title = f"layer {i // 2 + 1}, head {i % 2 + 1}"
        assert shown() == [title, f"Word 1, ‘a’; channel 4, ‘d’: {value}", title]
    of(maps, "$('#maps-2 :checked').focus()")
    for key, i in (("up", 2), ("left", 1), ("left", 0), ("down", 1), ("right", 2)):
        press(maps, key)
        title = f"layer {i // 2 + 1}, head {i % 2 + 1}"
        assert shown()[::2] == [title, title]
        assert of(maps, "document.activeElement.parentNode.textContent") == title
    pixels = np.array(of(maps, """$$('#maps-2 canvas').map((x) => [...x.getContext('2d')
        .getImageData(0, 0, 9, 9).data])""")).reshape(4, 9, 9, 4)
    dark = (pixels[..., :3] == of(maps, "blue")[255]).all(-1)
    assert np.array_equal(dark, DIAGONALS)
    assert of(maps, "$$('#maps-2 tbody td').every((x) => x.textContent === '')")


@pytest.mark.needs("browser")
@pytest.mark.parametrize("width", [360, 1280])
def test_it_fits_a_telephone_and_the_dark(maps, width):
    of(maps, "$$('#maps-2 [type=radio]')[2].click()")
    light = of(maps, "$('#maps-1 tbody td').style.backgroundColor")
    chosen(maps, "dark")
    assert of(maps, "$('#maps-1 tbody td').style.backgroundColor") != light
    assert of(maps, "$('#maps-2 figcaption').firstChild.data") == "layer 2, head 1"
    resize(maps, width, 800)
    assert of(maps, "document.documentElement.scrollWidth") <= width
