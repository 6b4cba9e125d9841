"""The page of a model that lives in it, in a browser: its engine computes what NumPy computes from
the same rounded weights, and each part of the page answers."""
import csv
import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

import minigrad as mg
from data.tokenizer import CharTokenizer
from minigrad import random
from model import Transformer, TransformerConfig, generate
from model.generation import window_start
from model.look import weights
from model.score.text import text_losses
from tests.browser import asked, load, of, prefer, press, resize
from tests.model.look.pages import (LETTERS, MODERN, ON_PAPER, after, dragged, maps_of, of_kind,
                                    opened_page, plain, typed, without)

pytestmark = pytest.mark.needs("browser")
KINDS = {
    "modern": MODERN, "gpt2": {"bias": True},
    "llama": {"position": "rotary", "norm": "rms_gain", "activation": "swiglu", "n_kv_head": 2,
              "n_inner": 24, "tied": False, "rotary_base": 500.0, "norm_eps": 1e-6},
    "one key": {"n_kv_head": 1, "activation": "gelu_tanh", "head_dim": 6, "qk_norm": True,
                "norm_eps": 0.1},
    "sinusoidal": {"position": "sinusoidal", "attention_bias": True},
    "biases of the MLP": {"mlp_bias": True},
}


def wrote(page, count):
    """Let the model write, at once, and wait until the text is read again."""
    page.execute_script("write(arguments[0]); for (const _ of job); for (const _ of job);", count)


def logits_of(page, ids):
    return np.array(page.execute_script("""const cache = new Cache(facts.config);
        while (model.read(cache, arguments[0]));
        return arguments[0].map((_, row) => [...cache.logitsOf(row)]);""", ids))


@pytest.mark.parametrize("kind, exact, characters, heads, channels", [
    *[(kind, exact, LETTERS, 4, 16) for kind in KINDS for exact in (True, False)],
    # The bytes of a matrix are no multiple of 4.
    *[(kind, False, LETTERS[:-1], 3, 15) for kind in ("gpt2", "sinusoidal")],
    ("modern", False, LETTERS, 3, 18)])
def test_its_logits_and_texts_are_those_of_numpy(driver, tmp_path, monkeypatch, kind, exact,
                                                 characters, heads, channels):
    if not exact:
        monkeypatch.setattr(weights, "SMALL", 0)
    model, tokenizer = of_kind(KINDS[kind], 12, 0, characters, heads, channels)
    page = opened_page(driver, tmp_path, model, tokenizer, "abc")
    same = weights.rounded(model)
    ids = tokenizer.encode("hello <world").tolist()
    with mg.no_grad():
        expected = same(np.array(ids)).data
        assert abs(expected - model(np.array(ids)).data).max() > (0 if exact else 1e-3) - exact
    assert abs(expected).max() > 1 and abs(logits_of(page, ids) - expected).max() < 1e-5
    page.execute_script("state.temperature = 0;")
    wrote(page, 200)
    assert of(page, "$('#input').value") == generate(same, tokenizer, "abc", 200, temperature=0)


def test_what_is_typed_after_a_change_is_what_is_read_at_once(page, run):
    for text in ("the quick brown fox", "the quack brown fox", "the qu", "fox the quick brown"):
        typed(page, text)
        start = of(page, "start")
        with mg.no_grad():
            expected = run.model(run.tokenizer.encode(text)[start:]).data[-1]
        found = np.array(of(page, "[...reference.logitsOf(reference.ids.length - 1)]"))
        assert abs(found - expected).max() < 1e-5
        loss = text_losses(run.model, np.array(of(page, "seen"))).mean()
        assert plain(of(page, "$('#cost').textContent")).startswith(f"{loss:.3f} nats a character")
    assert plain(of(page, """[2, 4].map((x) => {
        source.loss = () => x; showCost(); return $('#cost').innerText; }).join()""")) == (
        "2.000 nats a character, on 11 characters: as a choice among 7.4 of 28 characters,"
        "4.000 nats a character, on 11 characters: worse than a blind guess among 28 characters")


@pytest.mark.parametrize("u", [0.0, 0.25, 0.5, 0.75, 0.9, 1 - 2.0 ** -53])
@pytest.mark.parametrize("settings", [
    (1.0, None, None), (0.0, None, None), (1.0, 3, None), (1.0, None, 0.5), (0.5, 3, 0.75),
    (1.3, None, 0.25)], ids=str)
def test_draw_takes_what_python_does_of_equal_logits_too(page, settings, u):
    for logits in (np.random.default_rng(int(8 * u)).normal(0, 2, 9).tolist(), [1.0] * 4,
                   [0.0, 2.0, 2.0, 0.0, 2.0], [-900.0, 5.0, 5.0, -900.0], [3.0]):
        (drawn,), (p,) = random.draw(np.array([logits]), np.array([u]), *settings)
        found = page.execute_script("""const [logits, u, t, k, p] = arguments;
            const {drawn, probabilities} = draw(Float64Array.from(logits), u, t, k ?? 9, p ?? 1);
            return [drawn, [...probabilities]];""", logits, u, *settings)
        assert found[0] == drawn and np.allclose(found[1], p, atol=1e-12), logits


@pytest.mark.parametrize("part", ["1.1", "1.attention", "1.mlp", "ngrams"])
def test_a_part_that_is_off_adds_nothing_and_the_card_says_what_it_costs(driver, tmp_path, part):
    model, tokenizer = of_kind(MODERN)
    page = opened_page(driver, tmp_path, model, tokenizer, "hello world")
    for other in ("0.mlp", "0.mlp", part):
        page.execute_script("""document.querySelector(`[data-part="${arguments[0]}"]`).click();
            for (const _ of job);""", other)
    ids = tokenizer.encode("hello world")
    before, after = (text_losses(m, ids) for m in (model, without(model, part)))
    assert abs(after.sum() - before.sum()) > 0.01
    assert f"{after.sum() - before.sum():+.2f} nats".replace("-", "−") in plain(
        of(page, "$('#cost').textContent"))
    for changed, losses in (("true", after), ("false", before)):
        found = of(page, f"seen.map((_, row) => source.loss(row, {changed}))")
        assert found[0] is None and abs(np.array(found[1:]) - losses).max() < 1e-5
    assert of(page, """$('#cost .unseen').textContent.split(': ').slice(1).join(': ').split('; ')
        .map((x) => x.split(/ after | at /)[0]).join() === seen
        .map((id, row) => [named(id), source.loss(row, true) - source.loss(row, false)])
        .filter((x) => x[1] >= 0.005).sort((a, b) => b[1] - a[1]).slice(0, 3)
        .map((x) => x[0]).join()""")
    assert len(of(page, "$$('#changes button')")) == 1
    page.execute_script("document.querySelector('#changes button').click(); for (const _ of job);")
    assert of(page, "!$('#changes button') && edit === null")


def test_a_dragged_weight_is_set_and_the_rest_shared_out(page):
    typed(page, "the quick")
    look = "[...source.weights(state.layer, state.head, queryRow(), 1)]"
    before = np.array(of(page, look))
    dragged(page, 2, 0.75)
    expected = before * 0.25 / (1 - before[2])
    expected[2] = 0.75
    assert np.allclose(of(page, look), expected, atol=1e-6) and abs(before[2] - 0.75) > 0.01
    assert "weight of ‘k’ on ‘e’ 75.0 %" in plain(of(page, "$('#changes').textContent"))
    # Nothing so far costs more: only the next letter is expected otherwise, and this is shown.
    assert of(page, "$('#cost').textContent").startswith("No letter so far costs more or less.")
    assert of(page, "$$('#next .ghost').length") == 8
    assert of(page, """['0.0', '0.attention', '0.mlp'].map((part) => {
        update({layer: 0, head: 0, off: [part]}); for (const _ of job);
        return byId('weight').disabled; }).join()""") == "true,true,false"
    assert re.search(r"[+−]\d", of(page, "$('#next').textContent"))


def test_a_dragged_weight_stays_while_its_row_reads_the_same_or_is_set_back_with_a_word(page):
    for lost in ("thx quick b", "a the quick", "the quic", ""):
        typed(page, "the quick")
        dragged(page, 2, 0.75)
        for text, at in (("the quick b", 11), ("the quick fox b", 13)):
            typed(page, text, at)
            assert of(page, "[state.drag.row, state.drag.column]") == [8, 2]
            assert of(page, "$('#released').hidden")
        typed(page, lost, 3)
        assert of(page, "state.drag") is None and of(page, "$('#changes').textContent") == ""
        assert "is set back" in of(page, "$('#released').textContent")


def test_a_dragged_weight_is_left_out_where_the_next_letter_has_another_window(page, run):
    text = "the quick brown fox "
    typed(page, text, 12)
    dragged(page, 3, 1)
    assert of(page, "[start, edit.drag.row]") == [0, 11]
    page.execute_script("update({at: 20}); for (const _ of job);")
    assert of(page, "[start, edit, state.drag.row]") == [8, None, 11]
    found = of(page, "[...drawAtCursor(0).probabilities]")
    with mg.no_grad():
        logits = run.model(run.tokenizer.encode(text)[8:]).data[-1]     # 11 is its last row, too
    assert np.allclose(found, mg.softmax(logits / 0.8).data, atol=1e-5)


@pytest.mark.parametrize("shares, column, weight, expected", [
    ([0.5, 0.25, 0.25], 0, 1, [1, 0, 0]), ([0.5, 0.125, 0.375], 0, 0, [0, 0.25, 0.75]),
    ([1, 0, 0], 0, 0.5, [0.5, 0.25, 0.25]), ([0, 1, 0], 1, 0, [0.5, 0, 0.5]),
    ([0, 1, 0], 1, 1, [0, 1, 0]), ([0, 1, 0], 0, 0.25, [0.25, 0.75, 0]),
    ([0.25, 0.25, 0.5], 2, 0.5, [0.25, 0.25, 0.5]), ([1], 0, 0.5, [1])])
def test_share_out_keeps_a_sum_of_1_at_weights_of_0_and_1_too(page, shares, column, weight,
                                                              expected):
    found = page.execute_script("""const row = Float32Array.from(arguments[0]);
        shareOut(row, arguments[1], arguments[2]); return [...row];""", shares, column, weight)
    assert found == expected


@pytest.mark.parametrize("values", [
    [-300.0, -301.5, -299.0], [-1e4, -1e4, -1e4], [1e4, 1e4 - 1, -1e4], [0.0, -800.0, 800.0],
    [5.0]])
def test_softmax_and_losses_of_values_far_from_0_are_those_of_numpy(page, values):
    found = page.execute_script("""const [x] = arguments, more = [...x, 7, NaN];
        return [[...softmax(Float64Array.from(x))],
                [...softmax(Float64Array.from(more), x.length)],
                x.map((_, id) => lossOf(x, id))];""", values)
    shifted = np.array(values) - max(values)
    p = np.exp(shifted) / np.exp(shifted).sum()
    assert np.allclose(found[0], p, rtol=1e-12, atol=0)
    assert found[1] == [*found[0], 0, 0]
    assert np.allclose(found[2], np.log(np.exp(shifted).sum()) - shifted, rtol=1e-12)


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "relu2", "swiglu"])
def test_activations_are_those_of_the_ops_far_from_0_too(page, name):
    x = np.array([-800.0, -90.0, -6.0, -1.0, -0.0, 0.0, 1e-3, 1.0, 6.0, 90.0, 800.0])
    one = np.ones((1, 1))
    if name == "swiglu":
        expected = mg.swiglu(x, np.full(x.shape, 2.0)).data
    else:
        expected = mg.mlp(x[:, None], one, None, one, None, name).data[:, 0]
    found = page.execute_script("return arguments[0].map((x) => ACTIVATIONS[arguments[1]](x, 2))",
                                x.tolist(), name)
    assert np.allclose(np.array(found, float), expected, rtol=1e-6, atol=1e-6)


def test_window_start_is_that_of_python(page):
    for block in (1, 2, 7, 8):
        found = page.execute_script("""const [block, most] = arguments;
            return Array.from({length: most}, (_, n) => windowStart(n, block));""", block, 40)
        assert found == [window_start(n, block) for n in range(40)]


def test_a_click_on_the_map_chooses_the_row_and_the_column_below_it(page):
    typed(page, "the quick")
    page.execute_script("""const {left, top} = canvas.getBoundingClientRect();
        canvas.dispatchEvent(new MouseEvent("click", {
            clientX: left + plot.left + 2.5 * plot.cell, clientY: top + plot.top + 5.5 * plot.cell
        })); for (const _ of job);""")
    assert of(page, "[queryRow(), state.column - start]") == [5, 2]


def test_each_heads_worth_and_each_letters_reason_are_found_in_idle_time(page, run):
    typed(page, "the quick")
    found = dict(of(page, "[...worths.found]"))
    ids = run.tokenizer.encode("the quick")
    before = text_losses(run.model, ids).sum()
    for name in ("0.0", "0.1"):
        cost = text_losses(without(run.model, name), ids).sum() - before
        assert abs(found.pop(name) - cost) < 1e-5
    assert not found
    page.execute_script("update({colours: 'reasons'}); for (const _ of job);")
    reasons = dict(of(page, "[...reasons.found]"))
    other = ids.copy()
    other[-1] = of(page, "facts.neutral[0]")
    with mg.no_grad():
        logp = [mg.log_softmax(run.model(x)).data[-1] for x in (ids, other)]
    best = logp[0].argmax()
    assert abs(reasons[8] - (logp[0][best] - logp[1][best])) < 1e-5
    assert [*reasons] == [*range(8, -1, -1)]
    assert of(page, "spans.every((x) => x.style.backgroundColor)")


def test_reasons_are_coloured_once_found_in_the_card_too_and_none_of_another_place(page):
    page.execute_script("""update({colours: 'reasons'}); for (const _ of job);
        glance.hidden = false;
        update({at: 9});
        for (const _ of job) if (reasons.found.size === 3) break;""")
    found = of(page, "[...reasons.found.keys()]")
    assert found == [8, 7, 6]
    for letters in ("spans", "[...glance.children]"):
        coloured = of(page, f"{letters}.flatMap((x, i) => x.style.backgroundColor ? [i] : [])")
        assert coloured == sorted(found), letters


def test_heads_are_measured_with_what_is_off_and_a_head_that_is_off_by_putting_it_back(page, run):
    page.execute_script("update({off: ['0.1', '0.mlp']}); for (const _ of job);")
    found = dict(of(page, "[...worths.found]"))
    model, ids = without(run.model, "0.mlp"), run.tokenizer.encode("the quick brown")
    with_both, without_0, without_1, without_any = (
        text_losses(other, ids).sum() for other in (
            model, without(model, "0.0"), without(model, "0.1"),
            without(without(model, "0.0"), "0.1")))
    assert abs(found["0.0"] - (without_any - without_1)) < 1e-5
    assert abs(found["0.1"] - (without_1 - with_both)) < 1e-5
    assert abs(found["0.0"] - (without_0 - with_both)) > 1e-3
    assert "without it, with head 1.2 off and MLP of block 1 off.  " in of(
        page, "$('#worth-words').textContent")
    shown = of(page, "tiles.map(({ worth }) => worth.textContent)")
    assert [plain(text) for text in shown] == [
        f"{'worth' if x > 0 else 'harms'} {abs(x):.1f} nats" for x in found.values()]
    page.execute_script("update({off: ['0.1']}); for (const _ of job);")
    assert "than without it, with head 1.2 off.  " in of(page, "$('#worth-words').textContent")
    # What has no attention at all is not measured, and has no number.
    page.execute_script("update({off: ['0.attention']}); for (const _ of job);")
    assert of(page, "worths.found.size") == 0
    assert of(page, "tiles.every(({ worth, track }) => !worth.textContent && track.hidden)")
    assert "Measuring" not in of(page, "$('#worth-words').textContent")


def test_what_is_not_measured_yet_says_so_and_goes_on(page):
    """No time limit ends it, and the numbers of another text are not shown."""
    page.execute_script("update({colours: 'reasons'}); for (const _ of job);"
                        "performance.now = (() => { let n = 0; return () => n += 4000; })();")
    for text in ("the brown", "the brown fox"):
        page.execute_script("input.value = arguments[0]; typed();", text)
        assert of(page, """(() => { for (const _ of job) if (reasons.found.size === 2) break;
            return $('#tried').textContent; })()""") == (
                f"Replaced so far: 2 of {len(text)} characters, from the cursor back.")
        assert of(page, "tiles.every(({ worth }) => !worth.textContent)")
        page.execute_script("update({}); for (const _ of job) if (worths.found.size === 1) break;")
        assert "Measuring: 1 of 2 heads so far." in of(page, "$('#worth-words').textContent")
        page.execute_script("update({}); for (const _ of job);")
        assert of(page, "[worths.found.size, reasons.found.size]") == [2, len(text)]
        assert of(page, "$('#tried').hidden")
        assert "Measuring" not in of(page, "$('#worth-words').textContent")


def test_what_is_read_at_once_takes_as_long_on_a_slow_machine(page):
    typed(page, "the quick brown")
    for milliseconds, pace in ((1, 12), (0.1, 32), (100, 4)):
        page.execute_script("""const [each] = arguments, cache = new Cache(facts.config);
            let calls = 0;
            model.pace = 15;
            performance.now = () => calls++ ? 15 * each : 0;
            model.read(cache, seen);""", milliseconds)
        assert of(page, "model.pace") == pace


def test_letters_that_stay_are_the_same_elements_in_the_next_text(page):
    """The browser lays out no more than what is new."""
    typed(page, "the quick")
    page.execute_script("window.before = [...spans];")
    for text, same in (("the quick b", 9), ("the quack b", 6), ("the q", 5), ("a", 0)):
        typed(page, text)
        assert of(page, "spans.findIndex((span, i) => span !== before[i])") in (same, -1)
        assert of(page, "spans.filter((span, i) => span === before[i]).length") == same
        assert of(page, "letters.textContent") == text + "\u200b"
        assert of(page, "[...$$('#letters .chosen')].length") == 1
        page.execute_script("update({at: 1}); for (const _ of job);")
        assert of(page, "chosenLetter() === (spans[1] ?? letters.lastChild)")


def test_each_map_is_drawn_once_for_a_text_in_the_scale_of_all(page):
    page.execute_script("""for (const _ of job);       // those of the text before
        window.scales = [];
        const before = paintHead;
        paintHead = (canvas, weights) => {
          if (tiles.some((tile) => tile.canvas === canvas)) scales.push(largest);
          before(canvas, weights);
        };""")
    first = of(page, "largest")
    typed(page, "xyz, the fox")
    assert of(page, "largest") != first
    assert of(page, "scales.length === tiles.length && scales.every((x) => x === largest)")


def test_a_head_has_its_worth_in_its_tile_and_harm_in_another_colour(page):
    page.execute_script("""Object.assign(worths, { key: measuredKey(),
        found: new Map([['0.0', -2.85], ['0.1', 1234.56]]) }); showWorths();""")
    assert [plain(x) for x in of(page, "tiles.map(({ worth }) => worth.textContent)")] == [
        "harms 2.9 nats", "worth 1,235 nats"]
    widths = of(page, "tiles.map(({ track: { firstChild: x } }) => parseFloat(x.style.width))")
    assert widths == pytest.approx([100 * 2.85 / 1234.56, 100], rel=1e-4)
    assert of(page, """new Set($$('.head .fill').map((x) =>
        getComputedStyle(x).backgroundColor)).size""") == 2
    assert of(page, "$$('.head .called').every((x) => x.textContent === "
                    "facts.heads.flat()[$$('.head .called').indexOf(x)].name)")
    assert of(page, "$$('.head .fill').every((x) => x.offsetHeight === "
                    "x.parentNode.offsetHeight)")
    page.execute_script("worths.found.set('0.0', -0.01); showWorths();")
    assert plain(of(page, "tiles[0].worth.textContent")) == "worth 0.0 nats"


def test_shades_of_weights_end_at_the_largest_after_the_first_rows(page, run):
    typed(page, "the quick brown")
    page.execute_script("update({colours: 'attention'}); for (const _ of job);")
    maps = maps_of(run.model, run.tokenizer.encode("the quick brown"))
    expected = maps[:, :, 15 // 2:].max()
    assert maps[:, :, :7].max() == 1 and expected < 0.9
    assert abs(of(page, "largest") - expected) < 1e-6
    said = f"{100 * expected:.0f} % or more"
    assert of(page, f"""['legend', 'shades'].map((id) => byId(id).textContent).every((x) =>
        x.startsWith('0 %') && x.endsWith('{said}'))""")
    assert of(page, """(() => { const x = largest; return [0, x / 4, x, 1].map((w) =>
        blue.indexOf(shadeOfWeight(w))).join() })()""") == "0,128,255,255"
    row = maps[0, 0, 14]
    page.execute_script("update({layer: 0, head: 0, at: 15}); for (const _ of job);")
    steps = of(page, "spans.map((x) => blue.findIndex((c) => css(c).replaceAll(' ', ', ') === "
                     "x.style.backgroundColor))")
    assert abs(np.array(steps) - 255 * np.sqrt(np.minimum(1, row / expected))).max() < 3
    # A weight that is dragged does not make all others pale.
    dragged(page, 2, 1)
    assert abs(of(page, "largest") - expected) < 1e-6


@pytest.mark.parametrize("off", ["[]", "['0.mlp', '0.1']"])
def test_texts_of_0_1_and_2_letters_empty_what_they_do_not_fill(page, off, tmp_path):
    page.execute_script(f"update({{off: {off}}})")
    for text in ("the quick", "", "t", "th", ""):
        typed(page, text)
        said = of(page, "document.body.innerText")
        assert str(tmp_path) in said        # the folder of the model, whose name has a number
        assert not re.search(r"NaN|Infinity|undefined|-1", said.replace(str(tmp_path), ""))
        assert len(of(page, "$$('#next li, #most li, #line button')")) == (0 if not text else of(
            page, "8 + Math.min(6, seen.length) + $$('#line button').length"))
    assert page.get_log("browser") == [] and of(page, "$('#one').disabled")
    assert of(page, """['cost', 'place', 'context'].every((id) => !byId(id).textContent)
        && ['next-title', 'worth-words'].every((id) => byId(id).textContent.startsWith('Type'))""")


def test_all_bars_of_a_chart_have_one_scale(page):
    typed(page, "the quick brown")
    page.execute_script("setOff('0.1', true); for (const _ of job);"
                        "update({at: 9}); for (const _ of job);")
    for name in ("next", "most"):
        tracks = of(page, f"$$('#{name} .track').map((x) => x.getBoundingClientRect())"
                          ".map(({left, width}) => `${left} ${width}`)")
        assert len(tracks) > 1 and len(set(tracks)) == 1, name
    shares = of(page, "source.expected(queryRow(), 8, ids[state.at]).map(([, p]) => p)")
    widths = of(page, "$$('#next .fill').map((x) => parseFloat(x.style.width))")
    assert np.allclose(widths, 100 * np.array(shares), atol=1e-3)


def test_a_text_longer_than_the_window_says_what_is_coloured_and_moves(page, run, tmp_path):
    text = "the quick brown fox runs over the green wood"
    typed(page, text)
    assert of(page, "[start, spans.length]") == [32, 12] and not of(page, "$('#window').hidden")
    assert "characters 33 to 44 of 44" in of(page, "$('#window').textContent")
    page.execute_script("update({at: 33}); for (const _ of job);")
    rows = [*csv.reader(saved(page, tmp_path, "byId('keep-text')", "text.csv").splitlines())][1:]
    assert [row[1] for row in rows] == [*text[1:]]
    expected = text_losses(run.model, run.tokenizer.encode(text))
    assert abs(np.array([row[3] for row in rows], float) - expected).max() < 1e-5
    assert of(page, "[state.at, start]") == [33, 24]
    page.execute_script("input.focus(); input.setSelectionRange(3, 3);")
    page.execute_async_script("setTimeout(arguments[0], 100)")
    assert of(page, "[state.at, start]") == [3, 0]
    said = plain(of(page, "$('#status').textContent"))
    assert said.startswith("Place 4, space: ") and " which is a loss of " in said
    assert of(page, "letters.textContent") == text + "\u200b"
    typed(page, "the fox")
    assert of(page, "$('#window').hidden")


def test_an_unknown_character_is_named_and_has_no_loss(page, run, tmp_path):
    typed(page, "the Ж x")
    assert of(page, "$('#unknown').textContent") == (
        "The model does not know ‘Ж’ (U+0416).  It reads ‘␣’ instead, and gives no loss there.")
    assert of(page, "$$('#letters .unknown').map((x) => x.textContent)") == ["Ж"]
    assert of(page, "ids[4] === idOf.get(' ') && source.loss(4, true) === null")
    losses = np.delete(text_losses(run.model, run.tokenizer.encode("the   x")), 3)
    assert plain(of(page, "$('#cost').textContent")).startswith(
        f"{losses.mean():.3f} nats a character, on 5 ")
    rows = [*csv.reader(saved(page, tmp_path, "byId('keep-text')", "text.csv").splitlines())][1:]
    assert rows[3] == ["5", "Ж", "", ""] and "" not in rows[4]
    page.execute_script("update({at: 4}); for (const _ of job);")
    assert "has no loss" in of(page, "$('#place').textContent")
    assert of(page, "$('#context').textContent") == "the Ж"
    typed(page, "the x")
    assert of(page, "$('#unknown').hidden")


def test_a_key_puts_an_end_to_what_was_done_for_the_one_before(page, run):
    ends = page.execute_async_script("""const done = arguments[0], text = "the quick brown ";
        const input = byId("input"), cost = showCost;
        let ends = 0;
        showCost = () => { ends++; cost(); };
        for (let n = 1; n <= text.length; n++) {
          input.value = text.slice(0, n);
          input.dispatchEvent(new Event("input"));
        }
        setTimeout(() => done(ends), 1000);""")
    with mg.no_grad():
        expected = run.model(run.tokenizer.encode("the quick brown ")[of(page, "start"):]).data
    assert abs(expected[-1] - of(page, "[...reference.logitsOf(seen.length - 1)]")).max() < 1e-5
    assert ends == 1


def test_a_timer_that_is_due_does_not_wait_for_work_in_pieces(page):
    """As a key, a request of DevTools or a drawing would wait with it."""
    place = page.execute_async_script("""const done = arguments[0];
        let pieces = 0, place;
        function* busy() {
          for (; pieces < 100; pieces++) {
            for (const end = performance.now() + 2; performance.now() < end;);
            yield;
          }
        }
        setTimeout(() => { place = pieces; });
        work(busy()).then(() => done(place ?? pieces));""")
    assert place < 20


def test_a_letter_is_drawn_and_taken_instead_and_undo_takes_it_back(page):
    typed(page, "the")
    wrote(page, 1)
    u, low, high = map(float, re.findall(r"\d\.\d+", of(page, "$('#drawn-words').textContent")))
    assert low <= u <= high and low < high
    needle, left, right = of(page, """(([box, needle, drawn]) => [
        needle.left, drawn.left, drawn.right].map((x) => (x - box.left) / box.width))([$('#line'),
            $('.needle'), $('#line .drawn')].map((x) => x.getBoundingClientRect()))""")
    assert needle == pytest.approx(u, abs=1e-3) and left - 1e-3 <= needle <= right + 1e-3
    chosen = of(page, "$$('#line button:not(.drawn)')[0]")
    chosen.send_keys("\ue007")                                      # Enter, as at a keyboard
    page.execute_script("for (const _ of job);")
    taken = of(page, "state.text")
    assert len(taken) == 4 and taken[-1] == of(page, "facts.characters[last.taken]")
    page.execute_script("takeInstead(last.taken)")                  # which changes nothing
    assert of(page, "byId('line').contains(document.activeElement)")
    page.execute_script("byId('input').focus();")
    page.find_element("id", "input").send_keys("\ue009zz")         # Ctrl + Z, twice
    assert of(page, "[input.value, state.text]") == ["the", "the"]


def test_the_pieces_of_the_line_are_one_tab_stop_and_are_taken_by_keys(page):
    typed(page, "the")
    pieces = "$$('#line button').map((x) => x.ariaLabel)"
    assert of(page, pieces) == of(page, """source.expected(2, V).sort((a, b) => a[0] - b[0])
        .map(([id]) => `${named(id)} ${share(draw(reference.logitsOf(2), 0, 0.8, V, 1)
            .probabilities[id])}`)""")
    stops = of(page, "$$('#line [tabindex=\"0\"]').map((x) => x.ariaLabel)")
    assert stops == of(page, """[...$$('#line button')].sort((a, b) =>
        parseFloat(b.style.width) - parseFloat(a.style.width)).slice(0, 1).map((x) => x.ariaLabel)
        """)
    page.execute_script("document.querySelector('#line button').focus()")
    for key, place in (("end", -1), ("left", -2), ("home", 0), ("left", 0), ("right", 1)):
        press(page, key)
        assert of(page, "document.activeElement.ariaLabel") == of(page, pieces)[place]
    press(page, "enter")
    page.execute_script("for (const _ of job);")
    assert of(page, "state.text") == "the" + of(page, "facts.characters[1]")
    assert of(page, "document.activeElement === $('#line [tabindex=\"0\"]')")


def test_it_writes_at_the_cursor_and_shows_the_line_of_each_change(page):
    typed(page, "the sea", 3)
    likeliest = of(page, "facts.characters[source.expected(queryRow(), 1)[0][0]]")
    page.execute_script("update({temperature: 0});")
    wrote(page, 2)
    text = of(page, "state.text")
    assert re.fullmatch(f"the{re.escape(likeliest)}. sea", text)
    assert of(page, """[{temperature: 1}, {temperature: 0}, {off: ["0.mlp"]}].map((change) => {
        const before = $("#line").innerHTML; update(change); for (const _ of job);
        return $("#line").innerHTML !== before; }).join()""") == "true,true,true"


def moving(page):
    """Let the page move, as most readers have it."""
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
        {"name": "prefers-reduced-motion", "value": "no-preference"}]})


def until(page, condition):
    from selenium.webdriver.support.wait import WebDriverWait
    WebDriverWait(page, 60, 0.02).until(lambda page: of(page, condition))


def test_the_line_may_be_left_out_while_out_of_view_and_its_needle_is_not_cut_off(page):
    """A key press makes its many pieces anew."""
    wrote(page, 1)
    may, margin, above = of(page, """[getComputedStyle($('#line')).contentVisibility,
        getComputedStyle($('#line')).overflowClipMargin,
        $('#line').getBoundingClientRect().top - $('.needle').getBoundingClientRect().top
        - parseFloat(getComputedStyle($('.needle'), '::before').top)]""")
    assert may == "auto" and 20 < above < float(margin.removesuffix("px"))


def test_it_writes_letter_by_letter_pauses_and_what_follows_is_one_step_to_undo(page):
    moving(page)
    typed(page, "the quick")
    # Each number of letters that is seen under the field, and the pauses between them.
    page.execute_script("""window.lengths = new Set(); window.pauses = [];
        rest = ((before) => (pause) => {
          if (pause > 1) pauses.push(pause);
          if (letters.textContent.startsWith(state.text)) lengths.add(state.text.length);
          return before(Math.min(pause, 5));
        })(rest);
        performance.now = () => 0;
        byId('many').click();""")
    until(page, "state.text.length > 12")
    assert of(page, "byId('many').textContent") == "Pause"
    assert of(page, "byId('drawn-words').ariaLive") == "off"        # nobody can listen to that
    page.execute_script("byId('many').click(); for (const _ of job);")
    after = of(page, "state.text")
    assert of(page, "[input.value, byId('many').textContent, isWriting()]") == [
        after, "Go on", False]
    assert of(page, "byId('status').textContent") == f"Written: {after[9:]}"
    page.execute_script("setOff('0.1', true); for (const _ of job);")    # which changes no text
    assert of(page, "[state.text, byId('many').textContent]") == [after, "Go on"]
    page.execute_script("byId('many').click();")
    until(page, "state.text.length === 59 && byId('many').textContent === 'Write 50'")
    assert sorted(of(page, "[...lengths]")) == [*range(9, 60)]
    beats = [pause for pause in of(page, "pauses") if pause != 400]
    assert beats[:4] == [250] * 4 and beats[-1] == 50 and beats == sorted(beats, reverse=True)
    assert of(page, "byId('drawn-words').ariaLive") == "polite"
    assert after[9:] not in of(page, "byId('status').textContent")      # that was told before
    page.find_element("id", "input").send_keys("\ue009z")      # Ctrl + Z
    assert of(page, "[state.text, input.value]") == ["the quick", "the quick"]
    page.find_element("id", "input").send_keys("\ue009y")      # Ctrl + Y
    assert len(of(page, "state.text")) == 59


def test_undo_goes_back_behind_what_was_written_even_if_the_field_was_touched_meanwhile(page):
    moving(page)
    field = page.find_element("id", "input")
    field.send_keys(" fox")
    page.execute_script("setText('the', 3); byId('many').click();")     # two steps of the undo
    until(page, "state.text.length > 6")
    assert of(page, "input.value") == "the"             # only its letters are there
    field.send_keys("z")
    assert of(page, "[isWriting(), input.value === state.text, state.text.length > 6]") == [
        False, True, True]
    assert of(page, "state.text").endswith("z")
    for text in (None, "the", "the quick brown fox"):
        field.send_keys("\ue009z")      # Ctrl + Z
        assert text in (None, of(page, "state.text"))
        assert of(page, "input.value === state.text")


def test_letters_that_are_written_one_by_one_are_taken_back_one_by_one(page):
    moving(page)
    page.execute_script("input.focus();")
    typed(page, "the quick")
    for length in (10, 11, 12):
        page.execute_script("byId('one').click();")
        until(page, f"state.text.length === {length} && input.value === state.text")
    for length in (11, 10, 9):
        page.find_element("id", "input").send_keys("\ue009z")      # Ctrl + Z
        assert of(page, "[state.text.length, input.value.length]") == [length, length]


def test_work_is_cut_so_that_no_piece_shows_two_parts_of_the_page(page):
    shown = page.execute_script("""window.shownIn = [[]];
        for (const name of ['fillLetters', 'showLegend', 'showNext', 'showWrite', 'showCost',
                            'showSwitches', 'fillSide', 'showHead', 'showMap', 'showWorths']) {
          const before = window[name];
          window[name] = (...words) => { shownIn.at(-1).push(name); return before(...words); };
        }
        update({off: ['0.1'], pin: {off: [], drag: null}});
        shownIn.push([]);
        for (const _ of job) shownIn.push([]);
        return shownIn.filter((piece) => piece.length);     // before what observes sizes is called
        """)
    assert len(shown) > 10 and all(len(piece) == 1 for piece in shown), shown


def test_a_reader_who_types_or_moves_ends_what_is_written_and_one_who_switches_does_not(page):
    moving(page)
    for change, goes_on in (("typed()", False), ("update({at: 3})", False),
                            ("setOff('0.1', true)", True)):
        typed(page, "the quick")
        page.execute_script("byId('many').click();")
        until(page, "state.text.length > 10")
        page.execute_script(f"input.value += '{'' if goes_on else 'x'}'; {change};")
        assert of(page, "isWriting()") == goes_on, change
    until(page, "state.text.length > 20")
    assert of(page, "state.off") == ["0.1"]
    page.execute_script("byId('many').click();")


def test_between_two_letters_that_are_written_at_once_the_browser_can_answer(page):
    typed(page, "the quick brown fox ")
    assert of(page, """(() => { const lengths = []; write(40);
        for (const _ of job) lengths.push(state.text.length);
        return lengths.every((x, i) => !i || x - lengths[i - 1] <= 1) && lengths.at(-1); })()
        """) == 60
    assert of(page, "[input.value, letters.textContent.slice(0, -1)]") == 2 * [
        of(page, "state.text")]


def test_a_long_text_is_saved_in_pieces_while_one_goes_on(page, tmp_path):
    text = "the quick brown fox " * 20
    typed(page, text)
    assert page.execute_script("""window.rests = 0;
        rest = ((before) => (pause) => { rests++; return before(pause); })(rest);
        byId('keep-text').addEventListener('click', () => { input.value = 'the'; typed(); });
        byId('keep-text').focus();
        return byId('keep-text').ariaBusy;""") in (None, "false")
    rows = [*csv.reader(saved(page, tmp_path, "byId('keep-text')", "text.csv").splitlines())]
    assert len(rows) == len(text) and [row[1] for row in rows[1:]] == [*text[1:]]
    assert of(page, "[rests > 20, state.text, document.activeElement.id]") == [
        True, "the", "keep-text"]
    assert of(page, "[keep.textContent, keep.ariaBusy]".replace("keep", "byId('keep-text')")) == [
        "Save as CSV", "false"]


def test_what_is_told_is_what_is_shown_after_it(page):
    typed(page, "the quick brown fox runs")
    for told, action in (
            ("look", "byId('map').dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowUp'}))"),
            ("cost", "byId('reset').click()"),
            ("cost", "setOff('0.mlp', true)"),
            ("look cost", "const slider = byId('weight'); slider.value = 1; "
                          "slider.dispatchEvent(new Event('change'))")):
        page.execute_script(f"{action}; for (const _ of job);")
        shown = of(page, f"'{told}'.split(' ').map((id) => byId(id).textContent).join('  ')")
        assert of(page, "byId('status').textContent") == shown


def test_focus_stays_where_something_was_set_back(page):
    typed(page, "the quick")
    assert of(page, """['0.0', '0.1', '0.mlp', '0.attention'].map((_, n, all) => {
        update({off: all.slice(0, n + 1)}); for (const _ of job);
        return $$('#changes button').length; }).join()""") == "1,2,3,1"
    of(page, "$('#changes button').click()")
    page.execute_script("update({off: ['0.mlp', '0.1']}); for (const _ of job);")
    for said in ("head 1.2 off", ""):
        of(page, "$('#changes button')").send_keys("\ue007")
        page.execute_script("for (const _ of job);")
        assert of(page, "document.activeElement.textContent").startswith(said)
    assert of(page, "byId('heads').contains(document.activeElement)")
    of(page, "tiles[1].tile").send_keys("\ue007")
    page.execute_script("for (const _ of job);")
    assert of(page, "tiles[1].tile === document.activeElement && state.head") == 1


def test_back_and_forward_go_through_what_was_chosen(page):
    from selenium.webdriver.support.wait import WebDriverWait
    typed(page, "the quick")
    after(page, "")
    after(page, "setOff('0.mlp', true)")
    after(page, "document.querySelector('nav [href=\"#head\"]').click()")   # the address stays
    assert json.loads(of(page, "decodeURIComponent(location.hash.slice(1))"))["off"] == ["0.mlp"]
    assert of(page, "document.activeElement.id") == "head" and of(page, "scrollY") > 100
    for step, expected in (("back", [0, "true"]), ("forward", [1, "false"])):
        getattr(page, step)()
        after(page, "")
        WebDriverWait(page, 10).until(lambda page: expected == of(
            page, "[state.off.length, $('[data-part=\"0.mlp\"]').ariaChecked]"))
    assert of(page, "$('#input').value") == "the quick"


def test_an_address_brings_back_all_but_a_long_text(page, driver):
    typed(page, "the green wood")
    after(page, "update({ head: 1, off: ['0.0'], temperature: 1.5, at: 3 })")
    address = driver.current_url
    load(driver, address)
    after(page, "")
    assert of(page, """[state.text, state.at, input.selectionEnd, state.head, state.off,
        state.temperature]""") == ["the green wood", 3, 3, 1, ["0.0"], 1.5]
    assert of(page, """(() => { const shown = () => $('#heads').textContent;
        for (const _ of job); const before = shown();
        Object.assign(worths, nothing()); for (const _ of measureHeads());
        return before === shown() && before.includes('nats') && !$('#address').textContent; })()""")
    typed(page, "the " * 501)
    after(page, "")
    assert "no text of more than 2,000 characters" in of(page, "$('#address').textContent")
    assert of(page, """((kept) => !("text" in kept) && kept.head === 1)(
        JSON.parse(decodeURIComponent(location.hash.slice(1))))""")


@pytest.mark.parametrize("ending, bad", [
    ("flow", ""), ("", ""), *((text, "all of it") for text in (
        "%", "5", "null", '"x"', '{"off":["0.1"')),
    ('{"off":null}', "off"), ('{"off":["00.00"]}', "off"),
    ('{"off":{"length":4e9}}', "off"), ('{"off":["9.mlp"]}', "off"), ('{"off":["0.7"]}', "off"),
    ('{"off":"ngrams"}', "off"), ('{"off":["0.1","0.1"]}', "off"),
    ('{"text":{"toString":1}}', "text"), ('{"at":2.5}', "at"),
    ('{"at":"x","layer":99}', "at, layer"), ('{"at":16}', "at"), ('{"at":1e300}', "at"),
    ('{"text":"the quick brown","at":15,"column":15}', "column"),
    ('{"drag":{"layer":0,"head":0,"row":15,"column":1,"weight":1}}', "drag"),
    ('{"at":15,"column":14}', ""), ('{"top_k":"abc","top_p":0}', "top_k, top_p"),
    ('{"drag":{"layer":0,"head":0,"row":5}}', "drag"),
    ('{"drag":{"layer":0,"head":0,"row":5,"column":1,"weight":5}}', "drag"),
    ('{"pin":{"off":[]}}', "pin"), ('{"pin":{"off":["9.mlp"],"drag":null},"at":3.5}', "pin, at"),
    ('{"pin":["0.1"]}', "pin"),
    ('{"pin":{"off":[],"drag":{"layer":0,"head":0,"row":15,"column":1,"weight":1}}}', "pin"),
    ('{"colours":"red","__proto__":{"a":1},"top_p":null}', "colours, __proto__, top_p")])
def test_an_address_is_checked_field_by_field_and_what_is_bad_is_named(page, driver, ending, bad):
    address = driver.current_url.split("#")[0]
    load(driver, f"{address}#{ending}")
    after(page, "")
    assert of(page, "$('#trouble').hidden") and page.get_log("browser") == []
    assert of(page, "[state.text, state.off, state.drag, state.pin, state.at]") == [
        "the quick brown", [], None, None, 15]
    assert of(page, "$('#address').hidden") == (not bad)
    assert f"({bad})" in of(page, "$('#address').textContent") or not bad
    wrote(page, 1)
    assert len(of(page, "state.text")) == 16


def test_back_to_the_address_without_a_state_shows_the_page_as_it_began(page, driver):
    load(driver, driver.current_url.split("#")[0])
    after(page, "setOff('0.1', true);")
    after(page, "update({text: 'the end', colours: 'attention'}, false);")
    assert "#" in driver.current_url and of(page, "[state.off, state.text]") == [["0.1"], "the end"]
    page.back()
    after(page, "")
    assert "#" not in driver.current_url
    assert of(page, "[state.off, state.text, state.colours]") == [
        [], "the quick brown", "surprise"]


def test_a_drag_with_pauses_is_one_step_of_the_history(page):
    typed(page, "the quick")
    after(page, "")
    page.execute_script("""history.steps = 0; history.pushState = (...all) => {
        history.steps++; History.prototype.pushState.apply(history, all); };""")
    for weight in (0.2, 0.4, 0.6):
        after(page, f"byId('weight').value = {weight};"
                    "byId('weight').dispatchEvent(new Event('input'))")
    after(page, "byId('weight').dispatchEvent(new Event('change'))")
    assert of(page, "[history.steps, state.drag.weight]") == [1, 0.6]
    page.back()
    after(page, "")
    assert of(page, "state.drag") is None


def saved(page, folder, button, name):
    """The file that a button saves, by a download of the browser."""
    from selenium.webdriver.support.wait import WebDriverWait
    page.execute_cdp_cmd("Browser.setDownloadBehavior",
                         {"behavior": "allow", "downloadPath": str(folder)})
    page.execute_script(f"{button}.click()")
    WebDriverWait(page, 20, 0.02).until(    # it may be there before what is in it
        lambda _: (folder / name).exists() and (folder / name).stat().st_size)
    return (folder / name).read_bytes().decode("utf-8")


def parts(svg, name):
    return [*ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}" + name)]


@pytest.mark.parametrize("layer, head, theme", [(0, 0, "light"), (1, 2, "dark")])
def test_a_map_is_saved_light_with_a_title_and_the_weights_of_numpy(driver, tmp_path, layer, head,
                                                                    theme):
    model, tokenizer = of_kind(MODERN)
    page = opened_page(driver, tmp_path, model, tokenizer, "hello <wo&r")
    prefer(page, theme)
    page.execute_script("update({layer: arguments[0], head: arguments[1]})", layer, head)
    svg = saved(page, tmp_path, "byId('keep-map')", f"layer-{layer + 1}-head-{head + 1}.svg")
    ground, *cells = parts(svg, "rect")
    assert ground.get("fill") == "#ffffff" and parts(svg, "title")[0].text.startswith(
        f"Head {layer + 1}.{head + 1} ")
    found = np.zeros((11, 11))
    for rect in cells:
        row, column = (int(rect.get("y")) - 26) // 10, (int(rect.get("x")) - 12) // 10
        found[row, column] = float(rect[0].text)
    expected = maps_of(model, tokenizer.encode("hello <wo&r"))[layer, head]
    assert abs(found - expected).max() < 5.1e-5 and expected.std() > 0.05
    light = of(page, "ramp(BLUE, false)[255]")
    assert "rgb({} {} {})".format(*light) in svg and parts(svg, "circle")[-1].get("r") == "5"
    assert "".join(x.text for x in parts(svg, "text")[1:23:2]) == "hello␣<wo&r"


def test_every_control_has_a_name_a_target_of_24_pixels_and_few_tab_stops(page):
    typed(page, "the Ж quick")
    wrote(page, 2)
    page.execute_script("update({off: ['0.1']}); for (const _ of job);")
    found = {}
    for node in page.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]:
        properties = {x["name"]: x["value"].get("value") for x in node.get("properties", [])}
        if properties.get("focusable"):
            found.setdefault(node["role"]["value"], []).append(node["name"]["value"].strip())
    assert {"button", "switch", "slider", "textbox", "link"} <= found.keys()
    assert [role for role, names in found.items() if "" in names] == []
    for role in ("switch", "slider"):
        assert len(set(found[role])) == len(found[role])
    # But not the pieces of the line, of which the likeliest is the tab stop.
    assert of(page, """$$('button:not(#line [tabindex="-1"]), summary, input[type=range]')
        .filter((x) => { const {width, height} = x.getBoundingClientRect();
            return x.checkVisibility() && (width < 24 || height < 24); }).map((x) => x.outerHTML)
        """) == []
    assert of(page, "$$('#heads [tabindex=\"0\"]').length") == 1
    for name in ("next", "most"):      # with separators, and in words
        said = of(page, f"$$('#{name} li')[0].textContent")
        assert "space" in said or "␣" not in said


def test_all_of_it_is_reached_and_moved_by_keys(page):
    typed(page, "the quick")
    wrote(page, 1)
    page.execute_script("byId('input').focus();")
    reached = set()
    for _ in range(60):
        page.switch_to.active_element.send_keys("\ue004")        # Tab
        reached.add(of(page, "document.activeElement.closest('[id]')?.id"))
    assert {"keep-text", "heads", "map", "keep-map", "most", "weight", "reset", "one",
            "temperature", "line"} <= reached
    page.execute_script("tiles[0].tile.focus()")
    for key, part in (("down", "0.0"), ("right", "0.1"), ("right", "0.mlp"), ("left", "0.1"),
                      ("home", None), ("end", "0.mlp")):
        press(page, key)
        assert of(page, "document.activeElement.dataset.part ?? null") == part or key == "home"
    page.execute_script("tiles[1].power.focus()")
    press(page, "enter")
    assert of(page, "state.off") == ["0.1"]
    page.execute_script("for (const _ of job); byId('map').focus();")
    row, column = of(page, "[queryRow(), lookedAt(lookOf(queryRow()))]")
    press(page, "up")
    assert of(page, "queryRow()") == row - 1
    press(page, "left")
    assert of(page, "state.column - start") == max(0, min(column, row - 1) - 1)


WIDTHS = (375, 768, 1280, 2560)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_width_has_overflow_and_handle_and_effect_share_a_screen(page, theme):
    prefer(page, theme)
    wrote(page, 30)
    page.execute_script("update({off: ['0.1', '0.mlp']}); for (const _ of job);")
    for width in WIDTHS:
        resize(page, width, 800)
        assert of(page, f"$$('body *').filter((x) => x.getBoundingClientRect().right > {width + 1})"
                        ".map((x) => x.outerHTML.slice(0, 99))") == []
        assert of(page, "document.documentElement.scrollWidth") == width
        assert of(page, """$$('.depth, .bars .symbol, .part').every((x) =>
            x.scrollWidth <= x.clientWidth || !x.clientWidth)""")
        for handle in ("heads", "weight", "one"):
            page.execute_script(f"byId('{handle}').scrollIntoView({{block: 'center'}})")
            assert of(page, """['cost', 'next', 'changes'].every((id) => { const {top, bottom} =
                byId(id).getBoundingClientRect(); return top >= 0 && bottom <= 800 })""")
    for ramp in of(page, "[blue, orange]"):         # even who sees no hue tells its shades apart
        falls = np.diff(np.array(ramp) ** 2.2 @ [0.2126, 0.7152, 0.0722]) < 0
        assert falls.mean() == (theme == "light")
    assert of(page, "getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    page.execute_script("update({off: []}); for (const _ of job);")
    tints = of(page, "spans.slice(1).map(({ style }) => [style.color, style.backgroundColor])")
    assert {ink for ink, _ in tints} <= {"rgb(0, 0, 0)", "rgb(255, 255, 255)"}
    assert all(shade for _, shade in tints) and len(tints) > 1
    assert of(page, "spans[0].style.backgroundColor") == "" or of(page, "start") > 0


@pytest.mark.parametrize("off, lost, expected", [
    ([], False, ["next-title", "next", "cost"]), ([], True, ["next-title", "next", "released"]),
    (["0.1", "0.mlp", "0.attention"], False, ["next", "cost", "changes"]),
    (["0.1"], True, ["next", "changes", "released"])])
def test_the_card_of_a_phone_has_three_lines(page, off, lost, expected):
    typed(page, "the quick")
    if lost:                    # a dragged weight, with its letter
        dragged(page, 2, 0.75)
        typed(page, "thx quick", 3)
    page.execute_script("update({off: arguments[0]}); for (const _ of job);", off)
    resize(page, 375, 812)
    lines = of(page, """[...byId('card').children].filter((x) => x.checkVisibility()
        && x.clientHeight > 1).map((x) => [x.id, x.clientHeight, x.scrollWidth > x.clientWidth])""")
    assert [name for name, *_ in lines] == expected
    for name, height, is_cut in lines:
        assert height < 32 and (not is_cut or name == "changes")
    page.execute_script("fillBars([0, 1, 2].map((id) => [id, 1]), 0, new Map([[0, 0.004],"
                        "[1, 0.004], [2, 0.004]]))")
    assert of(page, """[byId('next'), ...$$('#next li')].map((x) => x.getBoundingClientRect())
        .every((x, i, [box]) => x.right < box.right + 1 || x.top >= box.bottom)""")


def test_a_low_screen_shows_the_field_and_the_prediction_first(page):
    typed(page, "the quick brown fox runs over the green wood " * 3)
    for width, height in ((375, 470), (640, 450), (853, 600)):
        resize(page, width, height)
        page.execute_script("scrollTo(0, 0)")
        assert of(page, f"{height} - $('.field').getBoundingClientRect().top") > 150
        links, next_, field, lede = of(page, """['.examples', '#next', '.field', '#lede'].map((x) =>
            document.querySelector(x).getBoundingClientRect().top)""")
        assert 0 < links < next_ < field < lede
        assert of(page, "document.documentElement.scrollWidth") == width


def test_the_first_screen_of_a_laptop_and_of_a_phone_has_text_and_prediction(page):
    for width, height in ((1280, 720), (375, 812)):
        resize(page, width, height)
        page.execute_script("scrollTo(0, 0)")
        assert of(page, f"""['title', 'lede', 'input', 'next', 'cost'].every((id) => {{
            const {{top, bottom}} = byId(id).getBoundingClientRect();
            return top >= 0 && bottom <= {height} && bottom > top; }})""")


def test_letters_lie_where_the_field_has_them_from_right_to_left_too(page):
    """The field and the letters under it are one text in one box, in one font and direction."""
    for text in ("the quick\n" * 20, "שלום the \n\nسلام", "\t\u202e\0x"):
        typed(page, text)
        assert len(set(of(page, """[input, letters].map((x) => getComputedStyle(x)).map((x) => [
            x.width, x.fontSize, x.fontFamily, x.lineHeight, x.letterSpacing, x.whiteSpace,
            x.paddingLeft, x.direction, x.unicodeBidi, x.overflowWrap, x.tabSize, x.wordBreak]
            .join())"""))) == 1
        assert of(page, """letters.textContent === input.value + '\u200b'
            && input.scrollHeight === letters.scrollHeight && letters.lastChild
            .getBoundingClientRect().bottom <= $('.field').getBoundingClientRect().bottom
            && ['scrollHeight', 'clientHeight'].every((x) => input[x] === letters.clientHeight)
            """), text
    assert of(page, "input.dir + letters.dir") == "autoauto"


@pytest.mark.parametrize("media, features", [
    ("print", []), ("print", [("prefers-color-scheme", "dark")]),
    ("", [("forced-colors", "active")])])
def test_paper_and_forced_colours_keep_the_colours(page, media, features):
    light = of(page, "getComputedStyle(spans[3]).backgroundColor")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": [
        {"name": name, "value": value} for name, value in features]})
    page.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    page.execute_script("for (const _ of job);")
    if media:       # a bar keeps its name, and a part its own
        assert of(page, "$$('.bars button, .part').every((x) => x.checkVisibility())")
        assert of(page, ON_PAPER)
        assert not of(page, "$('#reset').checkVisibility()")
    for part in ("spans[3]", "byId('next').querySelector('.fill')",
                 "byId('line').querySelector('button')", "tiles[0].track.firstChild"):
        colour, adjust, forced = of(page, f"""[getComputedStyle({part})].flatMap((x) =>
            [x.backgroundColor, x.printColorAdjust, x.forcedColorAdjust])""")
        assert colour not in ("rgb(255, 255, 255)", "rgba(0, 0, 0, 0)")
        assert adjust == "exact" if media else forced == "none"
    assert of(page, "getComputedStyle(spans[3]).backgroundColor") == light
    assert of(page, "getComputedStyle(input).color") == "rgba(0, 0, 0, 0)"      # it hides no letter
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


def test_a_vocabulary_of_200_with_codes_shows_every_name_in_full(driver, tmp_path):
    tokenizer = CharTokenizer("".join(map(chr, range(32, 226))) + "\ufeff\u202e\u2028\0")
    model = Transformer(TransformerConfig(tokenizer.vocab_size, 8, 1, 1, 4))
    page = opened_page(driver, tmp_path, model, tokenizer, "ab\ufeff\u202e\u2028\0c")
    page.execute_script("""fillBars(['\\ufeff', '\\u202e', 'a'].map((c) =>
        [idOf.get(c), 0.1]))""")
    assert of(page, "$$('#next .symbol > :first-child').map((x) => x.textContent)") == [
        "U+FEFF", "U+202E", "a"]
    assert of(page, "$$('#next .symbol').every((x) => x.scrollWidth <= x.parentNode.clientWidth)")


def test_negative_numbers_have_a_minus_and_none_is_minus_0(page):
    page.execute_script("update({off: ['0.mlp']}); for (const _ of job);")
    assert of(page, "fixed(-1234.5, 1) + brief(65536.4)") == "−1,234.565,536"
    assert not re.search(r"-\d|−0\.0+\b(?!\d)", of(
        page, "$$('section:not(#about, #run), aside').map((x) => x.innerText).join()"))


def test_it_needs_no_eval(page):
    refused = page.execute_async_script("""const done = arguments[0];
        setTimeout(() => { try { done((0, eval)("1")); } catch (e) { done(e.name); } });""")
    assert refused == "EvalError"


def test_a_page_of_text_that_is_pasted_does_not_freeze_it(page):
    text = "the quick brown fox runs over the green wood " * 230
    typed(page, text)
    assert of(page, "[ids.length, spans.coloured - seen.length]") == [len(text), 0]


@pytest.mark.parametrize("live", [True, False])
def test_hostile_text_stays_text_and_nothing_is_fetched(driver, tmp_path, hostile_text, live):
    tokenizer = CharTokenizer(hostile_text + LETTERS)
    model = Transformer(TransformerConfig(tokenizer.vocab_size, 8 if live else 1, 1, 1, 4))
    page = opened_page(driver, tmp_path, model, tokenizer, hostile_text,
                       {"settings": {"data": hostile_text}}, live, "<b id=injected>")
    if live:
        assert of(page, "pieces.map((c) => c.codePointAt(0))") == [*map(ord, hostile_text)]
    assert of(page, "[pieces.length, facts.text.length]") == [
        len(hostile_text), len(hostile_text.encode("utf-16", "surrogatepass")) // 2 - 1]
    assert of(page, "$$('#injected').length") == 0
    assert "<b id=injected>" in of(page, "$('#about-words').textContent")
    assert "There are no curves here, because " in of(page, "$('#run-intro').textContent")
    itself = (tmp_path / "live.html").as_uri()
    assert all(x["request"]["url"].startswith(itself) for x in asked(page))


def test_things_to_try_are_addresses_that_each_show_one_thing(page, run):
    typed(page, "")
    links = of(page, "$$('.examples a').map((x) => x.textContent)")
    assert len(links) == 3 and of(page, "facts.best") == [0, 0]        # this text has no names
    shown = []
    for i, link in enumerate(links):
        page.execute_script("""location.hash = document.querySelectorAll('.examples a')[
            arguments[0]].hash;""", i)
        after(page, "for (const _ of job);")
        assert of(page, "$('#address').hidden")
        shown.append(of(page, "[state.text, state.off, state.drag, state.colours]"))
        assert of(page, "$('#status').textContent") == of(page, "$('#cost').textContent") != ""
    (text, off, *_), (nonsense, *_), (same, none, drag, colours) = shown
    assert [text, off] == ["the quick brown", ["0.0"]] and "head 1.1" in links[0]
    assert nonsense != text and sorted(nonsense) == sorted(text)
    assert [same, none, colours] == ["the quick brown", [], "attention"]
    assert drag == {"layer": 0, "head": 0, "row": 14, "column": 0, "weight": 1}
    assert of(page, "[...lookOf(queryRow())].map(Math.round).join('')") == "1" + 14 * "0"
    assert of(page, "$('.examples').getBoundingClientRect().bottom") < of(
        page, "$('.field').getBoundingClientRect().top + 1")


def test_the_opening_text_has_its_colours_before_the_weights_are_unpacked(driver, run, tmp_path):
    text = "\nthe quick <b>\nbrown & fox\n"
    page = opened_page(driver, tmp_path, *run[:2], text, run.training)
    assert "does not know" in of(page, "$('#unknown').textContent")
    shown = """[input.value, letters.textContent.replace('\u200b', ''),
        $('#flow').getBoundingClientRect().top, spans.map((x) => orange.findIndex((c) =>
            css(c).replaceAll(' ', ', ') === x.style.backgroundColor))]"""
    *expected, top, colours = of(page, shown)
    script = page.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {
        "source": "DecompressionStream = class { readable = new ReadableStream();"
                  "writable = new WritableStream(); };"})       # so that no weight arrives
    try:
        page.refresh()
    finally:
        page.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)
    *found, early_top, early_colours = of(page, shown)
    assert found == expected == [text, text] and abs(early_top - top) < 2
    assert len(colours) == of(page, "seen.length") > 10 and max(colours) > 100
    assert np.abs(np.subtract(colours, early_colours)).max() <= 1
    assert of(page, "$('main').inert")
    assert re.fullmatch(r"Unpacking [\d,]+ weights …", of(page, "$('#next-title').textContent"))


def test_the_first_box_says_nothing_and_the_page_says_first_what_a_nat_is(page):
    said = of(page, "$$('.depth').map((x) => x.textContent)")
    assert said[0] == "" and said[1].startswith("says ")
    assert "expect next if it ended there" in of(page, "$('#flow .intro').innerText")
    assert of(page, "$('main').innerText").index("nat") == of(
        page, "$('main').innerText").index("nats: one nat more")
