"""The page of one text in a browser: the same page, with numbers that Python has computed."""
import re

import numpy as np
import pytest

from model.convert.tokens import TokenTokenizer
from model import Transformer, TransformerConfig, load_checkpoint
from model.look.curves import describe_finding
from model.look.page import gather, html, shown
from model.look.reading import read
from model.generation import window_start
from model.score.text import text_losses
from tests.browser import asked, chosen, of, opened, prefer, resize
from tests.kit import written
from tests.model.look.pages import ON_PAPER, maps_of, opened_page
from tests.token_files import byte_level

pytestmark = [
    pytest.mark.late,
    pytest.mark.needs("browser"),
]
TEXT = "the quick brown fox runs\nover the green wood"


@pytest.fixture(scope="module")
def run(trained, tmp_path_factory):
    """A checkpoint of a run, what the page of TEXT shows, and its file."""
    checkpoint, path = load_checkpoint(trained / "ckpt.npz"), tmp_path_factory.mktemp("page")
    facts, weights = gather(checkpoint, TEXT, "", trained, live=False)
    return checkpoint, facts, written(path / "l.html", html(facts, weights))


@pytest.fixture
def page(driver, run):
    """The page of TEXT, freshly opened, wide and light."""
    return opened(driver, run[2])


def test_it_draws_without_an_error_and_fetches_nothing_even_if_told_to(page, run):
    assert of(page, "$('#trouble').hidden && !$('main').inert") and page.get_log("browser") == []
    itself = run[2].resolve().as_uri()
    assert [x["request"]["url"] for x in asked(page) if x["documentURL"] == itself] == [itself]
    assert of(page, "$$('#charts svg').length") == 1
    assert of(page, "$$('#log tbody tr').length") == 5
    assert "learning rate" in of(page, "$('#log thead').textContent")
    assert of(page, "apart([['a', 12], ['b', 10], ['c', 50]]).map((x) => x[2])") == [4, 18, 50]
    of(page, "document.body.append(Object.assign(new Image(), {src: 'file:///none.png'}))")
    assert "Content Security Policy" in page.get_log("browser")[0]["message"]


def drawn_lines(page):
    """The points of each line of the chart, [x, y] in pixels; the labels of its ticks with their
    places; and the height of each n-gram's line."""
    page.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    lines = of(page, "$$('#charts polyline').map((x) => x.getAttribute('points'))")
    points = [[[float(x) for x in point.split(",")] for point in line.split()] for line in lines]
    texts = of(page, """$$('#charts text').filter((x) => /^[0-9.,]+$/.test(x.textContent))
        .map((x) => [x.textContent, +x.getAttribute('x'), +x.getAttribute('y'),
            x.getAttribute('text-anchor')])""")
    steps = {int(name.replace(",", "")): x for name, x, _, anchor in texts if anchor == "middle"}
    losses = {float(name): y for name, _, y, anchor in texts if anchor == "end"}
    yardsticks = of(page, "$$('#charts .yardstick').map((x) => +x.getAttribute('y1'))")
    return points, steps, losses, yardsticks


def test_losses_stand_on_a_logarithmic_axis_of_steps_and_n_grams_at_their_heights(page, run):
    facts = run[1]
    (validation, training), steps, losses, yardsticks = drawn_lines(page)
    log = facts["log"][1:]              # the start is told in words
    assert [line[0] for line in log] == [10, 20, 30, 40]
    expected = np.log([line[0] for line in log])
    places = np.array(validation)[:, 0]
    assert np.ptp(places) > 300
    assert np.allclose(np.diff(places) / np.ptp(places), np.diff(expected) / np.ptp(expected))
    assert steps.keys() == {10, 20, 40} and [steps[10], steps[40]] == pytest.approx(
        [places[0], places[-1]])
    (low, y_low), *_, (high, y_high) = sorted(losses.items())

    def height(loss):
        return y_low + (loss - low) / (high - low) * (y_high - y_low)
    for points, column in ((validation, 2), (training, 1)):
        assert [y for _, y in points] == pytest.approx([height(line[column]) for line in log])
    counted = dict(facts["counted"])
    drawn = {name for name, loss in counted.items() if height(loss) >= 8}     # not above the top
    assert sorted(yardsticks) == pytest.approx(sorted(height(counted[name]) for name in drawn))
    assert min(map(len, (drawn, losses))) > 2 and max(losses.values()) <= 300
    note = of(page, "$('#charts small').textContent")
    assert f"Before the first step: validation {facts['log'][0][2]:.3f}." in note
    for name, loss in counted.items():
        assert (name not in drawn) == (f"{name} {loss:.3f}" in note)
    assert of(page, "$('.finding').textContent") == describe_finding(
        facts["log"], counted)


def test_what_was_not_measured_is_not_drawn_and_a_start_without_more_is(page):
    for log, lines, ticks, start in (
            ("[0, null, 3, 0, 0], [5, 2, 1, 0.1, 9]", [2, 1], {0, 5}, ""),
            ("[0, null, 3, 0, 0]", [1, 0], {0}, ""),
            ("[0, null, 3, 0, 0], [1, 2, 1, 0, 9], [1000, 2, 1, 0, 9]", [2, 2],
             {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}, "Before the first step: validation 3.000."
             )):
        page.execute_script(f"byId('charts').replaceChildren(lossChart(ofRun([{log}]), "
                            "facts.counted))")
        points, steps, _, yardsticks = drawn_lines(page)
        assert [len(line) for line in points] == lines and steps.keys() == ticks
        assert yardsticks and min(yardsticks) >= 8      # those above are not drawn
        assert of(page, "$('#charts small').textContent").startswith(start)
        assert np.isfinite([place for line in points for point in line for place in point]).all()
    assert "Above the picture: unigram " in of(page, "$('#charts small').textContent")
    resize(page, 320, 800)
    _, steps, *_ = drawn_lines(page)
    assert min(np.diff(sorted(steps.values()))) >= 44 and {1, 1000} <= steps.keys()


def test_it_cannot_be_typed_into_and_has_no_switch(page):
    assert of(page, "input.getAttribute('aria-readonly')") == "true"
    page.find_element("id", "input").send_keys("x")
    assert of(page, "input.value") == TEXT
    assert of(page, "!$('[role=switch]') && $$('.live').every((x) => !x.checkVisibility())")
    assert of(page, "/The parts of[^]*likelier the first part of the text is/.test("
                    "$('#flow').textContent)")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    resize(page, 700, 900)
    assert of(page, ON_PAPER)
    prefer(page, "light")
    assert "cannot be typed into: --no-live asked for this." in of(page, "$('#lede').textContent")


def test_its_predictions_losses_and_weights_are_those_of_python(page, run):
    (model, tokenizer, *_), facts, _ = run
    ids = tokenizer.encode(TEXT)
    losses, windows = text_losses(model, ids), read(model, ids)
    found = of(page, """ids.map((_, i) => { update({at: i + 1}); for (const _ of job);
        return [source.expected(queryRow(), 8), source.loss(queryRow() + 1),
                start, [...source.weights(0, 1, 0, seen.length)], source.depths(queryRow())]; })""")
    for n, (expected, loss, start, shares, depths) in enumerate(found, 1):
        fact = facts["predictions"][n - 1]
        assert expected == [[i, units / 1e4] for i, units in fact["top"]]
        assert depths == [[i, units / 1e4] for i, units in fact["blocks"]]
        assert n == len(ids) or abs(loss - losses[n - 1]) < 1e-5
        window = next(w for w in windows if w.start == start)
        assert start == window_start(n, model.config.block_size)
        assert abs(np.reshape(shares, window.maps[0, 1].shape) - window.maps[0, 1]).max() < 5.1e-5


def test_maps_are_drawn_in_the_shades_of_their_weights(page, run):
    model, tokenizer, *_ = run[0]
    page.execute_script("update({at: 5}); for (const _ of job);")
    maps = maps_of(model, tokenizer.encode(TEXT)[:16])[0]
    page.execute_script("update({colours: 'attention'}); for (const _ of job);")
    largest = of(page, "largest")
    assert 0.05 < largest < 0.5
    ramp = np.array(of(page, "blue"))
    assert ramp.shape == (256, 3) and (np.diff(ramp.sum(-1)) <= 0).all()    # darker and darker
    steps = np.rint(255 * np.sqrt(np.minimum(
        1, np.rint(1e4 * maps.astype(np.float64)) / 1e4 / largest))).astype(int)
    drawn = np.array(of(page, """$$('#heads canvas').map((x) => [...x.getContext('2d')
        .getImageData(0, 0, 16, 16).data])""")).reshape(2, 16, 16, 4)
    past = np.tril(np.ones((16, 16), bool))
    for head in range(2):
        assert abs(drawn[head][past][:, :3] - ramp[steps[head]][past]).max() <= 3
        assert (drawn[head][past][:, 3] == 255).all()
    assert not drawn[:, ~past].any()


CONTRASTS = """['#letters'].flatMap((list) => $$(`${list} span`)
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
                        "spans.at(-1).style.backgroundColor]")

    def changed(theme):
        chosen(page, theme)
        page.execute_async_script(
            "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
        page.execute_script("for (const _ of job);")
        return paper()
    light = paper()
    assert min(of(page, CONTRASTS)) >= 4.5 and len(of(page, CONTRASTS)) > 10
    dark = changed("dark")
    assert all(a != b for a, b in zip(light, dark)) and min(of(page, CONTRASTS)) >= 4.5
    assert changed("") == light
    prefer(page, "dark")
    assert changed("") == dark
    of(page, "$$('details').forEach((x) => { x.open = true; })")
    for width in (320, 1280):
        resize(page, width, 800)
        assert of(page, "document.documentElement.scrollWidth") == width


@pytest.mark.needs("browser", "convert")
def test_a_page_of_tokens_draws_them_in_words_and_speaks_of_tokens(driver, tmp_path):
    tokenizer = TokenTokenizer(byte_level(), None, 500)
    model = Transformer(TransformerConfig(500, 16, n_layer=2, n_head=2, n_embd=8))
    text = "the in\n\nthe 🙂 there the character"
    page = opened_page(driver, tmp_path, model, tokenizer, text)
    symbols = [shown(tokenizer.vocabulary[i])[0] for i in tokenizer.encode(text)]
    pieces = [x.replace("␣", " ").replace("⏎", "\n") for x in symbols]
    assert of(page, "spans.map((x) => x.textContent)") == pieces[-of(page, "spans.length"):]
    assert of(page, "input.value") == "".join(pieces)
    page.execute_script("update({at: 1}); for (const _ of job);")
    assert of(page, "$('#next-title').textContent") == "Expected in place 2"
    said = of(page, "document.body.innerText").replace("typed are characters", "")
    said = re.sub(r"(the|␣|space)\W*character", "", said)
    assert "its model has tokens" in said and re.findall(".*character.*", said) == []


def test_what_cannot_be_drawn_is_said_in_a_sentence(driver, run, tmp_path):
    damaged = run[2].read_text(encoding="utf-8").replace('id="weights">', 'id="weights">AAAA')
    page = opened(driver, written(tmp_path / "d.html", damaged))
    said = page.find_element("id", "trouble")
    assert said.is_displayed() and said.text.startswith("This page could not be drawn (")
    assert of(page, "$('main').inert")      # nobody types into what is not there
