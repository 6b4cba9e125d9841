"""A pinned state of the page beside the one of now, in a browser: the losses of both are NumPy's,
and where they part is said."""
import json

import numpy as np
import pytest

import minigrad as mg
from model.score.text import text_losses
from tests.browser import load, of, resize
from tests.model.look.pages import (MODERN, after, assert_pair_keeps_its_colours, dragged, of_kind,
                                    opened_page, plain, typed, without)

pytestmark = pytest.mark.needs("browser")
TEXT = "the quick brow"
WHOLE = "{off: [], drag: null}"


def changed(page, news):
    page.execute_script(f"update({news}); for (const _ of job);")


def said(page):
    return plain(of(page, "$('#parting').textContent"))


def share(p):
    return f"{100 * p:.1f} %"


@pytest.fixture
def random_page(driver, tmp_path):
    """The page of a model with large random weights, and the model."""
    model, tokenizer = of_kind(MODERN, 16)
    return opened_page(driver, tmp_path, model, tokenizer, TEXT), model, tokenizer


@pytest.mark.parametrize("pinned, now", [("1.mlp", "0.2"), ("", "ngrams"), ("1.attention", "")])
def test_both_states_have_the_losses_and_the_first_other_letter_of_numpy(random_page, pinned, now):
    page, model, tokenizer = random_page
    changed(page, f"{{pin: {{off: {[pinned][:len(pinned)]}, drag: null}}, "
                  f"off: {[now][:len(now)]}}}")
    ids = tokenizer.encode(TEXT)
    models = [without(model, part) if part else model for part in (pinned, now)]
    losses = [text_losses(each, ids) for each in models]
    assert abs(losses[0] - losses[1]).max() > 0.1
    for is_now, name, expected in (("false", "pinned", losses[0]), ("true", "now", losses[1])):
        found = of(page, f"seen.map((_, row) => source.loss(row, {is_now}))")
        assert found[0] is None and abs(np.array(found[1:]) - expected).max() < 1e-5
        assert f"{expected.mean():.3f} nats a character" in plain(
            of(page, f"$('#{name}-loss').textContent"))
        steps = of(page, f"""$$('#{name}-letters span').map((x) => orange.findIndex((c) =>
            css(c).replaceAll(' ', ', ') === x.style.backgroundColor))""")
        shades = 255 * np.minimum(1, expected / np.log(model.config.vocab_size))
        assert steps[0] == -1 and abs(np.array(steps[1:]) - shades).max() < 1.5
    worse = losses[1].sum() - losses[0].sum()
    assert plain(of(page, "$('#cost').textContent")).startswith(
        f"{worse:+.2f} nats on 13 characters".replace("-", "−"))
    assert " likely than pinned (" in of(page, "$('#cost').textContent") or worse < 0
    with mg.no_grad():
        p, q = (mg.softmax(each(ids)).data for each in models)
    row = int(np.flatnonzero(p.argmax(-1) != q.argmax(-1))[0])
    names = of(page, f"[{p[row].argmax()}, {q[row].argmax()}].map(quoted)")
    assert said(page) == (
        f"They first differ after ‘{TEXT[:row + 1]}’: pinned would go on with {names[0]} "
        f"({share(p[row].max())}), now with {names[1]} ({share(q[row].max())}).  The text has "
        f"{of(page, f'nameOf({row + 1})')} there.")
    for name in ("pinned", "now"):
        assert of(page, f"$$('#{name}-letters span').findIndex((x) => x.className === 'chosen')"
                  ) == row + 1


def test_the_field_the_card_and_the_bars_compare_with_what_is_pinned(random_page):
    page, *_ = random_page
    for off in ("[]", "['0.2']"):
        changed(page, f"{{pin: {{off: ['1.mlp'], drag: null}}, off: {off}, at: 9}}")
        shades = of(page, "spans.slice(1).map((x) => x.style.backgroundColor)")
        assert len({*shades}) > 5 and shades == of(page, """seen
            .map((_, row) => shadeOf((source.loss(row, true) - source.loss(row, false)) / 2))
            .slice(1).map((x) => css(x).replaceAll(' ', ', '))""")
    ghosts = of(page, "$$('#next .ghost').map((x) => parseFloat(x.style.left))")
    changed(page, "{pin: null, off: ['1.mlp']}")
    wide = "[...softmax(Float64Array.from(cacheOf(true).logitsOf(8)))]"
    pinned = of(page, wide)
    changed(page, "{off: ['0.2']}")
    shown = of(page, "source.expected(8, 8, ids[9]).map(([id]) => id)")
    assert ghosts == pytest.approx([100 * pinned[id] for id in shown], abs=1e-3)
    assert "than pinned" not in of(page, "document.body.innerText")
    changed(page, "{pin: {off: ['1.mlp'], drag: null}}")
    page.execute_script("glance.hidden = false; showGlance();")
    assert of(page, "glanceWords.textContent") == "Orange: worse than pinned.  Blue: better."
    assert "foreseen now than pinned" in of(page, "$('#colour-words').textContent")


def test_where_both_expect_the_same_or_are_the_same_they_do_not_differ(random_page):
    page, *_ = random_page
    changed(page, f"{{pin: {WHOLE}}}")
    assert said(page) == ("Pinned: all parts on.  Now change something, and see here where the two "
                          "differ.")
    page.execute_script("""const {expected} = source;
        source.expected = (row, count, also) => expected(row, count, also, true);""")
    changed(page, "{off: ['0.1', '1.1']}")
    for text, words in ((TEXT, "Both would go on with the same character everywhere."), ("", "")):
        typed(page, text)
        assert said(page) == words
        assert of(page, "$$('#pair .chosen').length") == 0
    assert of(page, "[$('#pinned-title'), $('#pinned-loss')].map((x) => x.textContent)") == [
        "Pinned: all parts on", ""]
    # The same parts in another order are the same model.
    typed(page, TEXT)
    changed(page, "{pin: {off: ['1.1', '0.1'], drag: null}}")
    assert not of(page, "isOther()") and said(page).startswith("Pinned: head 2.2 off and head 1.2 ")


def test_what_is_pinned_is_kept_by_the_address_undone_and_announced(random_page, driver):
    page, *_ = random_page
    after(page, "setOff('0.1', true); byId('pin').focus();")
    page.switch_to.active_element.send_keys("\ue007")                       # Enter
    after(page, "")
    assert of(page, "[document.activeElement.id, $('#pin').textContent, $('#pair').hidden]") == [
        "pin", "Unpin", False]
    assert "Pinned: head 1.2 off.  Now change something" in of(page, "$('#status').textContent")
    after(page, "byId('reset').click();")
    assert of(page, "$('#status').textContent") == of(
        page, "`${$('#cost').textContent}  ${$('#parting').textContent}`")
    address = driver.current_url
    kept = json.loads(of(page, "decodeURIComponent(location.hash.slice(1))"))
    assert [kept["pin"], kept["off"]] == [{"off": ["0.1"], "drag": None}, []]
    for steps, expected in ((1, [["0.1"], True]), (1, [["0.1"], False])):
        driver.back()
        after(page, "")
        assert of(page, "[state.off, Boolean(state.pin)]") == expected
        assert of(page, "$('#pair').hidden") == (not expected[1])
    load(driver, address)
    after(page, "for (const _ of job);")
    assert of(page, "[$('#pinned-title').firstChild, $('#now-title').firstChild]"
                    ".map((x) => x.data)") == ["Pinned: head 1.2 off", "Now: all parts on"]
    chip = of(page, "$('#changes button')")
    assert plain(of(page, "$('#changes button').textContent")) == "pinned ✕, set it back"
    chip.send_keys("\ue007")
    page.execute_script("for (const _ of job);")
    assert of(page, "[state.pin, $('#pair').hidden, $$('#changes li').length]") == [None, True, 0]
    assert of(page, "byId('heads').contains(document.activeElement)")


def test_a_pinned_weight_stays_pinned_while_its_row_reads_the_same(random_page):
    page, *_ = random_page
    typed(page, TEXT, 9)
    dragged(page, 2, 0.75)
    page.execute_script("byId('pin').click(); byId('reset').click(); for (const _ of job);")
    assert of(page, "$('#pinned-title').firstChild.data") == "Pinned: a weight moved"
    losses = "seen.map((_, row) => source.loss(row, false))"
    pinned = of(page, losses)
    changed(page, "{drag: state.pin.drag, pin: null}")
    assert of(page, losses.replace("false", "true")) == pinned and of(page, losses) != pinned
    changed(page, "{pin: {off: [], drag: state.drag}, drag: null}")
    typed(page, f"{TEXT}n")
    assert of(page, "[state.pin.drag.row, $('#released').hidden]") == [8, True]
    typed(page, f"x{TEXT}")
    assert of(page, "state.pin") == {"off": [], "drag": None}
    assert "is set back" in of(page, "$('#released').textContent")


def test_both_texts_are_printed_light_and_keep_their_colours_where_colours_are_forced(random_page):
    page, *_ = random_page
    changed(page, f"{{pin: {WHOLE}, off: ['0.1']}}")
    assert_pair_keeps_its_colours(page, "last-child")


@pytest.mark.parametrize("width", [320, 375, 768, 1280])
def test_both_texts_fit_and_stand_beside_each_other_where_there_is_room(random_page, width):
    page, *_ = random_page
    changed(page, f"{{pin: {WHOLE}, off: ['0.1']}}")
    resize(page, width, 800)
    assert of(page, "document.documentElement.scrollWidth") == width
    assert of(page, f"$$('body *').every((x) => x.getBoundingClientRect().right <= {width + 1})")
    pinned, now = of(page, "$$('#pair .letters').map((x) => x.getBoundingClientRect())")
    assert (pinned["top"] == now["top"]) == (width > 800) and pinned["width"] > 280


def test_a_page_that_does_not_compute_has_no_pin(driver, tmp_path):
    page = opened_page(driver, tmp_path, *of_kind(MODERN), "the quick", live=False)
    assert not of(page, "$('#pin').checkVisibility() || $('#pair').checkVisibility()")


@pytest.mark.parametrize("width", [375, 481, 520, 640])
def test_what_a_pin_costs_is_cut_where_a_narrow_card_ends(random_page, width):
    page, *_ = random_page
    changed(page, "{off: ['0.1'], pin: {off: ['1.mlp'], drag: null}}")
    resize(page, width, 800)
    assert of(page, "document.documentElement.scrollWidth") == width
