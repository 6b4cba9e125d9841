"""A second model in the page of a first one, in a browser: the losses of both are NumPy's, and what
is compared with is said, kept by the address, and given back by a link."""
import json
import re

import numpy as np
import pytest

import minigrad as mg
from data.tokenizer import CharTokenizer
from model.look import weights
from model.score.text import text_losses
from tests.browser import load, of, press, resize
from tests.model.look.pages import (LETTERS, MODERN, after, assert_pair_keeps_its_colours, of_kind,
                                    opened_page, plain, typed, without)

pytestmark = pytest.mark.needs("browser")
TEXT = "the quick brow"
FEWER = LETTERS.replace("w", "").replace("k", "")
LEARNT = {"bias": True, "norm": "layer", "position": "learned"}
SMALLER = {"heads": 2, "channels": 8, "block_size": 20}
BESIDE = {"off": [], "drag": None, "beside": True}


def changed(page, news):
    page.execute_script(f"update({news}); for (const _ of job);")


def finish(page):
    """Wait until the page has no work left."""
    page.execute_script("for (const _ of job);")


def losses(page, is_now):
    return of(page, f"seen.map((_, row) => source.loss(row, {is_now}))")


def words(page, *ids):
    return [plain(text) for text in of(page, f"{[*ids]}.map((id) => byId(id).textContent)")]


def both(driver, folder, **others):
    """The page of a model of all letters beside a smaller one of another kind, and both models."""
    before = CharTokenizer(FEWER)
    tokenizer = CharTokenizer.of(before.vocabulary + "wk")
    model, _ = of_kind(MODERN, 16, characters=LETTERS)
    second, _ = of_kind(LEARNT, seed=1, characters=FEWER, **SMALLER)
    beside = (others.pop("name", "old"), second, before)
    page = opened_page(driver, folder, model, tokenizer, TEXT, beside=beside, **others)
    finish(page)
    return page, model, second, tokenizer, before


@pytest.fixture
def two(driver, tmp_path):
    return both(driver, tmp_path)


def test_both_models_have_the_losses_and_the_first_other_letter_of_numpy(two, tmp_path):
    page, model, second, tokenizer, before = two
    for text, start in ((TEXT, 0), ("wake up quick fox", 8), ("a jolly bog", 0)):
        typed(page, text)
        assert of(page, "start") == start
        known = np.array([character in FEWER for character in text])[start:]
        ids = tokenizer.encode(text)[start:]
        read = before.encode(re.sub("[wk]", " ", text))[start:]
        expected = [text_losses(second, read), text_losses(model, ids)]
        assert abs(expected[0] - expected[1]).max() > 0.1
        for side, name, numbers in (("pinned", "old", expected[0]),
                                    ("now", str(tmp_path), expected[1])):
            found = losses(page, "true" if side == "now" else "false")
            assert [loss is None for loss in found] == [True, *~known[1:]]
            numbers = numbers[known[1:]]
            assert abs(np.array([x for x in found if x is not None]) - numbers).max() < 1e-5
            assert words(page, f"{side}-title", f"{side}-loss") == [
                f"Model ‘{name}’: all parts on", f"{numbers.mean():.3f} nats a character"]
        rise = (expected[1] - expected[0])[known[1:]]
        said, = words(page, "cost")
        assert said.startswith(f"{rise.sum():+.2f} nats on {len(rise)} char".replace("-", "−"))
        times = np.exp(abs(rise.mean()))
        assert f"{times:.2f} times l" in said and " than in model ‘old’ (" in said
        with mg.no_grad():
            p, q = mg.softmax(second(read)).data, mg.softmax(model(ids)).data
        row = int(np.flatnonzero(p.argmax(-1) != q.argmax(-1))[0])
        names = of(page, f"[{p[row].argmax()}, {q[row].argmax()}].map(quoted)")
        parting, = words(page, "parting")
        assert (f": model ‘old’ would go on with {names[0]} ({100 * p[row].max():.1f} %), model "
                f"‘{tmp_path}’ with {names[1]} ({100 * q[row].max():.1f} %).") in parting
        assert of(page, "$$('#pinned-letters span').findIndex((x) => x.className === 'chosen')"
                  ) == row + 1


def test_the_losses_are_those_of_weights_that_were_rounded(driver, tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "SMALL", 0)
    page, model, second, tokenizer, before = both(driver, tmp_path)
    typed(page, "the fox")
    for is_now, each, ids in (("true", model, tokenizer), ("false", second, before)):
        ids = ids.encode("the fox")
        exact, expected = (text_losses(of, ids) for of in (each, weights.rounded(each)))
        assert abs(np.array(losses(page, is_now)[1:]) - expected).max() < 1e-5
        assert abs(exact - expected).max() > 1e-4


def test_parts_of_the_first_are_switched_off_while_the_second_stays_whole(two):
    page, model, _, tokenizer, _ = two
    pinned = losses(page, "false")
    changed(page, "{off: ['1.mlp']}")
    expected = text_losses(without(model, "1.mlp"), tokenizer.encode(TEXT))
    found = losses(page, "true")
    assert losses(page, "false") == pinned and found[-1] is None
    assert abs(np.array(found[1:8]) - expected[:7]).max() < 1e-5
    assert words(page, "now-title")[0].endswith(": MLP of block 2 off")
    assert words(page, "pinned-title") == ["Model ‘old’: all parts on"]


def test_letters_that_only_the_first_knows_are_named_and_have_no_share_before(two, tmp_path):
    page, *_ = two
    assert words(page, "unknown") == [
        "Model ‘old’ does not know ‘k’ (U+006B), ‘w’ (U+0077).  It reads ‘␣’ instead, and gives no "
        "loss there."]
    typed(page, "thЖ k")
    assert words(page, "unknown") == [
        f"Model ‘{tmp_path}’ does not know ‘Ж’ (U+0416).  It reads ‘␣’ instead, and gives no loss "
        "there.  Model ‘old’ does not know ‘k’ (U+006B).  It reads ‘␣’ instead, and gives no loss "
        "there."]
    typed(page, "the k", 4)
    rows = of(page, """$$('#next li').map((x) => [x.querySelector('.unseen').textContent,
        x.querySelector('.ghost').style.left, x.querySelector('.value').innerText])""")
    assert [left for name, left, _ in rows if name == "k"] == ["0%"]
    assert not any("NaN" in value for *_, value in rows)
    typed(page, "the")
    assert of(page, "byId('unknown').hidden")
    # Where a letter has no loss, no colour pretends one.
    typed(page, "the k")
    assert of(page, "[spans, $$('#now-letters span'), $$('#pinned-letters span')].map((all) => "
                    "all.map((x) => Boolean(x.style.backgroundColor)))") == 3 * [
        [False, True, True, True, False]]


def test_it_is_taken_away_given_back_by_the_link_and_kept_by_the_address(two, driver):
    page, *_ = two
    assert "now than in model ‘old’." in words(page, "colour-words")[0]
    assert of(page, "(glance.hidden = false, showGlance(), glanceWords.textContent)") == (
        "Orange: worse than in model ‘old’.  Blue: better.")
    assert words(page, "changes") == ["beside model ‘old’ ✕, stop comparing"]
    after(page, "document.querySelector('#changes button').focus();")
    press(page, "enter")
    after(page, "for (const _ of job);")
    assert of(page, "[state.pin, isOther(), $('#pair').hidden]") == [None, False, True]
    assert of(page, "document.activeElement.id") == "input"         # which is in view
    assert "model ‘old’" not in of(page, "$('#text').innerText + $('#card').innerText")
    typed(page, "the fox")
    after(page, "byId('pin').click(); for (const _ of job);")       # a state of the first itself
    assert words(page, "pinned-title") == ["Pinned: all parts on"] and not of(page, "isOther()")
    after(page, "document.querySelector('.examples a').click();")
    after(page, "for (const _ of job);")
    assert of(page, "[state.pin, state.text]") == [BESIDE, "the fox"]
    after(page, "setOff('0.1', true); for (const _ of job);")
    assert words(page, "status")[0].endswith(words(page, "parting")[0])
    address, found = driver.current_url, losses(page, "false")
    assert json.loads(of(page, "decodeURIComponent(location.hash.slice(1))"))["pin"] == BESIDE
    load(driver, address)
    finish(page)
    assert losses(page, "false") == found and of(page, "$('#address').hidden")
    assert of(page, "[state.pin, state.off]") == [BESIDE, ["0.1"]]


def test_words_and_place_are_those_of_one_model_while_the_second_is_taken_away(two):
    page, *_ = two
    beside = "surprise the model of ‘"
    for news, has, home in (("{}", True, "text"), ("{pin: null}", False, "flow"),
                            ("{pin: {off: ['0.1'], drag: null}}", False, "flow"),
                            ("{pin: {off: [], drag: null, beside: true}}", True, "text")):
        changed(page, news)
        assert (beside in words(page, "lede")[0]) == has
        assert of(page, f"$('#{home} #pair').parentElement.id") == home
    assert of(page, "$('#pair').previousElementSibling.id") == "tried"
    changed(page, "{text: ''}")
    assert words(page, "parting") == [""]
    load(page, page.current_url.split("#")[0] + '#{"pin":null}')
    finish(page)
    assert beside not in words(page, "lede")[0]


def test_the_second_model_is_named_first_among_the_changes(two):
    page, *_ = two
    for off in ("['0.1']", "['0.0', '0.1', '1.0', '1.1']"):
        changed(page, f"{{off: {off}}}")
        assert of(page, "$('#changes button').textContent").startswith("beside model ‘old’")
        assert of(page, "$$('#changes li').length") == 2


@pytest.mark.parametrize("width", [375, 700, 1280])
def test_no_level_of_the_headings_is_left_out_before_another(two, width):
    page, *_ = two
    resize(page, width, 800)
    levels = of(page, """$$('h1, h2, h3').filter((x) => x.checkVisibility())
        .map((x) => Number(x.tagName[1]))""")
    assert levels[0] == 1 and len(levels) > 7
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:]))


def test_a_second_model_with_parts_off_or_in_a_page_of_one_is_not_understood(two, driver,
                                                                             tmp_path):
    page, model, _, tokenizer, _ = two

    def bad(pin):
        load(driver, (tmp_path / "live.html").as_uri() + "#" + json.dumps({"pin": pin}))
        return "not understood (pin)" in of(page, "$('#address').textContent")
    assert not bad(BESIDE) and not bad(None)
    assert bad(BESIDE | {"off": ["1.mlp"]})
    assert bad(BESIDE | {"drag": {"layer": 0, "head": 0, "row": 1, "column": 0, "weight": 1}})
    opened_page(driver, tmp_path, model, tokenizer, TEXT)
    assert bad(BESIDE) and not of(page, "isBeside()")
    assert not bad({"off": ["1.mlp"], "drag": None})


def test_both_texts_are_printed_light_and_keep_their_colours_where_colours_are_forced(two):
    page, *_ = two
    assert_pair_keeps_its_colours(page, "nth-child(3)")


@pytest.mark.parametrize("width", [320, 375, 768, 1280])
def test_both_texts_stand_below_the_field_and_fit_however_long_their_names_are(
        driver, tmp_path, width):
    page, *_ = both(driver, tmp_path, name="out_" + 60 * "x")
    resize(page, width, 800)
    assert of(page, "document.documentElement.scrollWidth") == width
    assert of(page, f"$$('#text *').every((x) => x.getBoundingClientRect().right <= {width + 1})")
    pinned, now = of(page, "$$('#text #pair .letters').map((x) => x.getBoundingClientRect())")
    assert (pinned["top"] == now["top"]) == (width > 800) and pinned["width"] > 280
    below = of(page, """$$('#pair .columns > div').every((side) => [...side.children].every(
        (x, i, all) => !i || x.offsetTop >= all[i - 1].offsetTop + all[i - 1].offsetHeight))""")
    assert below
    flow, = of(page, "[byId('flow').getBoundingClientRect().top]")
    assert now["bottom"] < flow


@pytest.mark.parametrize("width, height", [(375, 700), (1280, 900)])
def test_hardly_anything_moves_while_both_are_drawn(two, width, height):
    page, *_ = two
    resize(page, width, height)
    load(page, page.current_url)
    finish(page)
    shifts = page.execute_async_script("""const done = arguments[0], shifts = [];
        new PerformanceObserver((list) => shifts.push(...list.getEntries())).observe(
            {type: 'layout-shift', buffered: true});
        setTimeout(() => done(shifts.map((x) => x.value)), 100);""")
    assert sum(shifts) < 0.1
