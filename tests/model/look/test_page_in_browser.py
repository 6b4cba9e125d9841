"""The page in a browser: it draws without an error, answers pointer and keyboard, and shows the
numbers that Python computes.
"""
import json

import numpy as np
import pytest

from model.convert.tokens import TokenTokenizer
from model import CharTokenizer, Transformer, TransformerConfig, load_checkpoint
from model.look.page import gather, html, shown
from model.look.reading import read
from model.checkpoint import Checkpoint
from tests.browser import of, opened, prefer, press, resize
from tests.kit import written
from token_files import byte_level

pytestmark = pytest.mark.needs("browser")
TEXT = "the quick brown fox runs\nover the green wood"


@pytest.fixture(scope="module")
def run(trained, tmp_path_factory):
    """A checkpoint of a run, what the page of TEXT shows, and its file."""
    checkpoint, path = load_checkpoint(trained / "ckpt.npz"), tmp_path_factory.mktemp("page")
    facts, weights = gather(checkpoint, TEXT, "", trained)
    return checkpoint, facts, written(path / "l.html", html(facts, weights))


@pytest.fixture
def page(driver, run):
    """The page of TEXT, freshly opened, wide and light."""
    return opened(driver, run[2])


def shown_page(driver, folder, model, tokenizer, text, training=None, source=""):
    """The page of a text, opened, which has drawn itself without a complaint."""
    checkpoint = Checkpoint(model, tokenizer, training or {}, {})
    page = opened(driver, written(folder / "p.html", html(*gather(
        checkpoint, text, source, folder / "<b id=injected>&'\""))))
    assert of(page, "$('#trouble').hidden") and page.get_log("browser") == []
    return page


def plain(text):
    return text.replace("\u00a0", " ")


def test_it_draws_without_an_error_and_fetches_nothing_even_if_told_to(page, run):
    assert of(page, "$('#trouble').hidden") and page.get_log("browser") == []
    itself = run[2].resolve().as_uri()
    said = [json.loads(line["message"])["message"] for line in page.get_log("performance")]
    assert [event["params"]["request"]["url"] for event in said
            if event["method"] == "Network.requestWillBeSent"
            and event["params"]["documentURL"] == itself] == [itself]
    assert [len(points.split()) for points in of(
        page, "$$('#charts polyline').map((x) => x.getAttribute('points'))")] == [5, 4, 5, 4]
    assert of(page, "$$('#charts svg')[0].querySelectorAll('.yardstick').length") == 5
    assert of(page, "$$('#log tbody tr').length") == 5
    assert of(page, "$$('#sizes dt').map((x) => x.textContent)") == [
        "B = 1", "T = 16", "C = 16", "H = 2", "D = 8", f"V = {run[0].model.config.vocab_size}"]
    of(page, "document.body.append(Object.assign(new Image(), {src: 'file:///none.png'}))")
    assert "Content Security Policy" in page.get_log("browser")[0]["message"]


def test_hostile_text_stays_text(driver, tmp_path, hostile_text):
    tokenizer = CharTokenizer(hostile_text)
    model = Transformer(TransformerConfig(tokenizer.vocab_size, 1, 1, 1, 4))    # the smallest
    page = shown_page(driver, tmp_path, model, tokenizer, hostile_text,
                      {"settings": {"data": hostile_text}}, "<b id=injected>")
    assert of(page, "$$('#letters [role=option] > span').map((x) => x.textContent)") == [
        shown(character)[0] for character in hostile_text]
    assert of(page, "$$('#injected').length") == 0
    assert "<b id=injected>" in of(page, "$('#about').textContent + $('#source').textContent")
    assert of(page, "$('#run-intro').textContent").startswith("There are no curves here, because ")


def test_a_click_or_an_arrow_key_selects_a_head(page):
    def selected():
        return of(page, "$$('#heads [role=radio]').map((x) => x.ariaChecked === 'true')")
    page.find_elements("css selector", "#heads [role=radio]")[1].click()
    assert selected() == [False, True]
    assert of(page, "$('#head-title').textContent").startswith("Layer 1, head 2 ")
    for key in ("left", "left", "up", "down", "home"):
        press(page, key)
        assert selected() == [True, False]
    assert of(page, "document.activeElement === $$('#heads [role=radio]')[0]")
    assert of(page, "$('#status').textContent").startswith("Layer 1, head 1 ")
    press(page, "end")
    assert selected() == [False, True]


def percent(units):
    return f"{units / 100:.2f} %" if units else "< 0.01 %"


def test_every_heads_numbers_are_those_of_python(page, run):
    facts = run[1]
    for i, fact in enumerate(sum(facts["heads"], [])):
        page.find_elements("css selector", "#heads [role=radio]")[i].click()
        n, even = fact["numbers"], fact["even"]
        favourite = f"On its favourite, ‘{facts['vocabulary'][fact['favourite']][0]}’"
        assert of(page, "$('#numbers').textContent").count(favourite) == 1
        assert [plain(x) for x in of(page, "$$('#numbers b').map((x) => x.textContent)")] == [
            f"{n['entropy']:.2f} bits", f"{n['distance']:.2f} characters",
            *(percent(n[name]) for name in ("previous", "itself", "first", "favourite"))]
        said = of(page, "$$('#numbers small').map((x) => x.textContent)")
        assert f"{even['entropy']:.2f}" in said[0] and percent(even["previous"]) in plain(said[2])
        assert of(page, "$('#head-title').textContent").endswith(fact["does"])


def test_the_weights_of_a_query_and_of_a_key_are_those_of_python(page, run):
    model, tokenizer, *_ = run[0]
    ids = tokenizer.encode(TEXT)
    windows = read(model, ids)
    # Every head, all windows, every row and then every column, as the listbox says them.
    spoken = of(page, """facts.windows.map((_, w) => [0, 1].map((head) => {
        chooseCharacter(1 + facts.characters.findIndex((x) => x.window === w));
        chooseHead(0, head);
        return ['query', 'key'].map((follow) => {
            $(`[name=follow][value=${follow}]`).click();
            return $$('#looks [role=option]').map((_, i) => {
                $$('#looks [role=option]')[i].click();
                return $$('#looks [role=option]').map((x) => x.getAttribute('aria-label'));
            });
        });
    }))""")
    for window, of_window in zip(windows, spoken, strict=True):
        maps = window.maps[0].astype(np.float64)
        for map, (rows, columns) in zip(maps, of_window, strict=True):
            for i in range(len(window.ids)):
                for k, (in_row, in_column) in enumerate(zip(rows[i], columns[i], strict=True)):
                    place = f"character {window.start + k + 1}, "
                    assert in_row.startswith(place) and in_column.startswith(place)
                    assert (f"{100 * map[i, k]:.2f}\u00a0%" in in_row) == (k <= i)
                    assert (f"{100 * map[k, i]:.2f}\u00a0%" in in_column) == (k >= i)


@pytest.mark.parametrize("scale", [np.sqrt, np.abs])
def test_maps_are_drawn_in_the_shades_of_their_weights(page, run, scale):
    model, tokenizer, *_ = run[0]
    maps = model.attention_maps(tokenizer.encode(TEXT)[:16])[0]
    if scale is np.abs:
        of(page, "$('[name=shade][value=linear]').click()")
    of(page, "chooseHead(0, 1), letGo()")
    ramp = np.array(of(page, "blue"))
    assert ramp.shape == (256, 3) and (np.diff(ramp.sum(-1)) <= 0).all()    # darker and darker
    steps = np.rint(255 * scale(np.rint(1e4 * maps.astype(np.float64)) / 1e4)).astype(int)
    small = np.array(of(page, """$$('#heads canvas').map((x) => [...x.getContext('2d')
        .getImageData(0, 0, 16, 16).data])""")).reshape(2, 16, 16, 4)
    large = np.array(of(page, """[...Array(256).keys()].map((i) => [...$('#map canvas')
        .getContext('2d').getImageData(plot.left + (i % 16 + 0.5) * plot.cell,
            plot.top + (Math.floor(i / 16) + 0.5) * plot.cell, 1, 1).data])""")).reshape(16, 16, 4)
    past = np.tril(np.ones((16, 16), bool))
    for drawn, expected in ((small[0], steps[0]), (small[1], steps[1]), (large, steps[1])):
        assert np.array_equal(drawn[past][:, :3], ramp[expected][past])
        assert (drawn[past][:, 3] == 255).all()
    assert not small[:, ~past].any()


def test_the_prediction_of_every_character_is_that_of_python(page, run):
    facts = run[1]
    seen = of(page, """$$('#letters [role=option]').slice(1).map((letter) => {
        letter.click();
        const texts = (x) => $$(x).map((x) => x.textContent.replaceAll('\u00a0', ' '));
        return [texts('#expected .value'), texts('#expected .symbol'), texts('#outcome b'),
            texts('#outcome small'), letter.getAttribute('aria-label')];
    })""")
    for fact, (values, symbols, outcome, meaning, label) in zip(facts["characters"], seen):
        assert symbols == [facts["vocabulary"][i][0] for i, _ in fact["top"]]
        assert values == [percent(units) for _, units in fact["top"]]
        if "came" not in fact:          # after the text
            assert outcome == [f"‘{symbols[0]}’"]
            continue
        assert outcome == [percent(fact["came"]),
                           f"{fact['loss']:.3f} nats = {fact['bits']:.3f} bits"]
        assert label.endswith(f"loss {fact['loss']:.3f} nats")
        assert (f"number {fact['rank']} of 28; it would have written ‘{symbols[0]}’" == meaning[0]
                if fact["rank"] > 1 else "the highest of all" in meaning[0])


def test_a_character_brings_its_window_its_query_and_its_stream(page):
    letters = page.find_elements("css selector", "#letters [role=option]")
    assert len(letters) == len(TEXT) + 1 and of(page, "$$('#window option').length") == 5
    letters[30].click()                 # from the window that begins at 16
    assert of(page, "$('#window').value") == "2"
    assert of(page, "[state.row, state.column]") == [30 - 1 - 16, None]
    assert "character 30" in of(page, "$('#stream-title').textContent")
    press(page, "right")
    assert letters[31].get_attribute("aria-selected") == "true"
    press(page, "home")
    assert of(page, "[state.character, state.window, state.row]") == [1, 0, 0]
    letters[4].click()
    for key, character in (("down", len("the quick brown fox runs\n") + 4), ("up", 4), ("up", 4)):
        press(page, key)
        assert of(page, "state.character") == character
    of(page, "$('#window').value = '3', $('#window').dispatchEvent(new Event('change'))")
    assert of(page, "[state.window, state.character]") == [3, 24 + 16 // 2 + 1]


def test_the_map_follows_pointer_and_keys_and_escape_lets_go(page):
    from selenium.webdriver import ActionChains
    of(page, "$('#map').scrollIntoView()")
    canvas = page.find_element("css selector", "#map canvas")
    x, y = of(page, "[plot.left + 3.5 * plot.cell - canvas.clientWidth / 2,"
                    "plot.top + 9.5 * plot.cell - canvas.clientHeight / 2]")
    ActionChains(page, 0).move_to_element_with_offset(canvas, round(x), round(y)).perform()
    assert of(page, "pointed") == {"row": 9, "column": 3}
    units = of(page, "weight(triangle(state.layer, state.head), 9, 3)")
    assert f"gives {units / 100:.2f} % of its attention" in plain(
        of(page, "$('#readout').textContent"))
    ActionChains(page, 0).click().perform()
    assert of(page, "[state.row, state.column, pointed]") == [9, 3, None]
    for key, place in (("up", [8, 3]), ("left", [8, 2]), ("down", [9, 2]), ("right", [9, 3])):
        of(page, "$('#map').focus()"), press(page, key)
        assert of(page, "[state.row, state.column]") == place
    press(page, "enter")
    assert of(page, "state.follow") == "key" and "Of the attention of" in of(
        page, "$('#status').textContent")
    press(page, "escape")
    assert of(page, "[state.row, state.column]") == [None, None]
    assert of(page, "$('#status').textContent").startswith("No key is followed")
    assert of(page, "$$('#looks [role=option]').every((x) => !x.style.backgroundColor)")


CONTRASTS = """['#letters', '#looks'].flatMap((list) => $$(`${list} [role=option]`)
    .filter((x) => x.style.backgroundColor).map((x) => {
        const [a, b] = ['color', 'backgroundColor'].map((name) => {
            const [r, g, b] = getComputedStyle(x)[name].match(/[0-9]+/g).map((v) => v / 255)
                .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
        });
        return Math.max(a / b, b / a);
    }))"""


def test_light_and_dark_differ_in_both_every_character_can_be_read_and_nothing_is_too_wide(page):
    def paper():
        return of(page, "[getComputedStyle(document.body).backgroundColor, "
                        "$$('#letters [role=option]')[3].style.backgroundColor]")
    light = paper()
    assert min(of(page, CONTRASTS)) >= 4.5 and len(of(page, CONTRASTS)) > 50
    of(page, "$('#theme [value=dark]').click()")
    dark = paper()
    assert all(a != b for a, b in zip(light, dark)) and min(of(page, CONTRASTS)) >= 4.5
    of(page, "$('#theme [value=\"\"]').click()")
    assert paper() == light
    prefer(page, "dark")
    page.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    assert paper() == dark
    of(page, "$$('details').forEach((x) => { x.open = true; })")
    for width in (320, 1280):
        resize(page, width, 800)
        assert of(page, "document.documentElement.scrollWidth") == width


@pytest.mark.needs("browser", "convert")
def test_a_page_of_tokens_draws_them_in_words_and_speaks_of_tokens(driver, tmp_path):
    tokenizer = TokenTokenizer(byte_level(), None, 500)
    model = Transformer(TransformerConfig(500, 16, n_layer=2, n_head=2, n_embd=8))
    text = "the in\n\nthe 🙂 there the character"
    page = shown_page(driver, tmp_path, model, tokenizer, text)
    symbols = [shown(tokenizer.vocabulary[i])[0] for i in tokenizer.encode(text)]
    assert of(page, "$$('#letters [role=option]').map((x) => x.textContent)") == [*symbols, "▸"]
    words = of(page, "$$('#letters .word').map((x) => x.textContent)")
    assert [word for word in words if word][:4] == ["the␣", "in⏎", "⏎", "the␣"]
    page.execute_script("chooseCharacter(1)")
    assert of(page, "$('#prediction-title').textContent") == (
        "In place of token 2 the model expected")
    assert "of 500;" in of(page, "$('#outcome').textContent")
    said = of(page, "document.body.innerText").replace("␣character", "")
    assert "character" not in said


def test_what_cannot_be_drawn_is_said_in_a_sentence(driver, run, tmp_path):
    damaged = run[2].read_text(encoding="utf-8").replace('id="weights">', 'id="weights">AAAA')
    page = opened(driver, written(tmp_path / "d.html", damaged))
    said = page.find_element("id", "trouble")
    assert said.is_displayed() and said.text.startswith("This page could not be drawn (")
