"""Why this letter, in a browser: what each part adds to its log p is what NumPy computes without
that part, and so are the sum, what all parts at once add, and the remainder."""
import functools
import json
import re

import numpy as np
import pytest

from model.score.text import text_losses
from tests.browser import load, of, resize
from tests.model.look.pages import MODERN, after, of_kind, opened_page, plain, typed, without

pytestmark = pytest.mark.needs("browser")
TEXT = "the quick brow"
PARTS = ["ngrams", *(f"{layer}.{part}" for layer in (0, 1) for part in (0, 1, 2, 3, "mlp"))]
OPEN = "byId('why').open = true; update({}); for (const _ of job);"


def said(page):
    return plain(of(page, "$('#effects-words').textContent"))


def number(words):
    return float(words.replace("−", "-"))


@pytest.fixture
def random_page(driver, tmp_path):
    """The page of a model with large random weights, and the model."""
    model, tokenizer = of_kind(MODERN, 16)
    return opened_page(driver, tmp_path, model, tokenizer, TEXT), model, tokenizer


@pytest.mark.parametrize("off, at", [([], 9), (["0.2", "1.mlp"], 5), (["1.attention"], 14)])
def test_effects_sum_all_at_once_and_remainder_are_those_of_numpy(random_page, off, at):
    page, model, tokenizer = random_page
    page.execute_script("update({off: arguments[0], at: arguments[1]});" + OPEN, off, at)
    likeliest = of(page, "facts.characters[source.expected(queryRow(), 1)[0][0]]")
    ids = tokenizer.encode((TEXT + likeliest)[:at + 1])

    def loss(parts):
        return text_losses(functools.reduce(without, [*off, *parts], model), ids)[-1]

    parts = [part for part in PARTS if part not in off]
    expected = {part: loss([part]) - loss([]) for part in parts}
    if "1.attention" in off:
        assert all(expected[f"1.{head}"] == 0 for head in range(4))
    names = dict(zip(parts, page.execute_script("return arguments[0].map(partName)", parts)))
    found = dict(of(page, "[...effects.found]"))
    all_at_once = found.pop("all")
    assert abs(all_at_once - (loss(parts) - loss([]))) < 1e-5 and abs(all_at_once) > 0.1
    assert found.keys() == {*names.values()}
    assert max(abs(found[names[part]] - expected[part]) for part in parts) < 1e-5
    total = sum(expected.values())
    numbers = [*map(number, re.findall(r"[+−]?\d+\.\d\d", said(page)))]
    assert np.allclose(numbers, [total, all_at_once, all_at_once - total], atol=0.0051)
    letter = of(page, f"quoted({ids[-1]})")
    assert said(page).startswith(f"By how many nats each part makes {letter} likelier after ‘")
    largest = sorted(found, key=lambda name: -abs(found[name]))
    rows = of(page, """$$('#effects li').map((x) => [x.firstChild.textContent,
        x.querySelector('.value').textContent, ...['left', 'width'].map((side) =>
            parseFloat(x.querySelector('.fill').style[side]))])""")
    assert [name for name, *_ in rows] == largest
    for name, value, left, width in rows:
        assert value == f"{found[name]:+.2f}".replace("-", "−") or abs(found[name]) < 0.005
        end = 50 + 50 * found[name] / abs(found[largest[0]])
        assert (left, left + width) == pytest.approx(sorted((50, end)), abs=1e-3)


def test_nothing_is_measured_while_it_is_closed_and_then_in_pieces(random_page):
    page, *_ = random_page
    assert of(page, "[effects.found.size, $('#why').open]") == [0, False]
    reads = page.execute_async_script("""const done = arguments[0], {read} = model, reads = [0];
        byId('why').open = true;
        setTimeout(() => {
          model.read = (...all) => { reads[reads.length - 1]++; return read.apply(model, all); };
          performance.now = (() => { let n = 0; return () => n += 1000; })();    // a slow machine
          update({at: 9});
          for (const _ of job) { reads.push(0); if (effects.found.size === 3) break; }
          done(reads);
        }, 100);""")
    assert max(reads) == 1 and sum(reads) > 5
    assert "Measuring: 3 of 12 so far." in said(page) and of(page, "$$('#effects li').length") == 0
    page.execute_script("update({}); for (const _ of job);")
    assert "Measuring" not in said(page) and of(page, "effects.found.size") == 12
    first = of(page, "[...effects.found]")
    page.execute_script("byId('why').open = false; update({at: 5}); for (const _ of job);")
    assert of(page, "[...effects.found]") == first
    page.execute_script("byId('why').open = true; update({}); for (const _ of job);")
    assert of(page, "[...effects.found]") != first


def test_bars_of_before_stay_pale_until_the_new_ones_are_measured(random_page):
    page, *_ = random_page
    page.execute_script("update({at: 9});" + OPEN)
    height, opacity = "$('#effects').offsetHeight", "getComputedStyle($('#effects')).opacity"
    before, shown = of(page, height), of(page, "$('#effects').innerHTML")
    page.execute_script(
        "update({at: 5}); for (const _ of job) if (effects.found.size === 3) break;")
    assert "Measuring: 3 of 12 so far." in said(page)
    assert [of(page, height), of(page, "$('#effects').innerHTML")] == [before, shown]
    assert of(page, opacity) == "0.65"
    page.execute_script("update({}); for (const _ of job);")
    assert of(page, "$('#effects').innerHTML") != shown
    assert [of(page, height), of(page, opacity)] == [before, "1"]


def test_that_it_is_open_is_kept_by_the_address(random_page, driver):
    page, *_ = random_page
    after(page, "byId('why').firstElementChild.click();")
    kept = json.loads(of(page, "decodeURIComponent(location.hash.slice(1))"))
    assert kept["why"] is True
    load(driver, driver.current_url)
    after(page, "for (const _ of job);")
    assert of(page, "[$('#why').open, state.why, $$('#effects li').length]") == [True, True, 11]
    after(page, "byId('why').firstElementChild.click();")
    assert of(page, "[$('#why').open, state.why]") == [False, False]


def test_texts_without_a_letter_before_or_a_part_that_is_on_have_no_effects(random_page):
    page, *_ = random_page
    for news in ("{at: 0}", "{text: ''}"):
        page.execute_script(f"update({news});" + OPEN)
        assert said(page) == "Nothing comes before the first character."
        assert of(page, "$$('#effects li').length") == 0
    typed(page, TEXT)
    page.execute_script("update({off: arguments[0]});" + OPEN, PARTS)
    assert "Their sum is 0.00; all at once come to 0.00.  The remainder, 0.00, is" in said(page)


def test_of_many_parts_the_largest_have_bars_in_two_colours_that_fit(driver, tmp_path):
    model, tokenizer = of_kind(MODERN, 16, heads=8)
    page = opened_page(driver, tmp_path, model, tokenizer, TEXT)
    page.execute_script("update({at: 9});" + OPEN)
    assert said(page).endswith("  Below are the 12 largest.")
    values = [*map(number, of(page, "$$('#effects .value').map((x) => x.textContent)"))]
    assert len(values) == 12 and [*np.abs(values)] == sorted(np.abs(values), reverse=True)
    shades = of(page, """$$('#effects .fill').map((x) => getComputedStyle(x).backgroundColor)""")
    assert len({*shades}) == 2
    assert {(shade, x > 0) for shade, x in zip(shades, values)} == {
        (shades[0], values[0] > 0), (*{*shades} - {shades[0]}, values[0] < 0)}
    for width in (320, 375, 1280):
        resize(page, width, 800)
        assert of(page, f"$$('#why *').every((x) => x.getBoundingClientRect().right < {width})")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
        {"name": "forced-colors", "value": "active"}]})
    assert of(page, "getComputedStyle($('#effects .fill')).backgroundColor") == shades[0]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_page_that_does_not_compute_does_not_ask_why(driver, tmp_path):
    page = opened_page(driver, tmp_path, *of_kind(MODERN), "the quick", live=False)
    assert not of(page, "$('#why').checkVisibility()")
