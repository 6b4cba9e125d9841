"""The live page in a browser: its engine computes what NumPy computes from the same rounded
weights, and each part of the page answers."""
import csv
import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

import minigrad as mg
from data.ngrams import ngram_probabilities
from data.tokenizer import CharTokenizer
from minigrad import random
from model import Transformer, TransformerConfig, generate, load_checkpoint
from model.checkpoint import Checkpoint
from model.generation import window_start
from model.live import page as live
from model.live import weights
from model.score.text import text_losses, training_text
from tests.browser import of, opened, prefer, press, resize
from tests.kit import written

pytestmark = pytest.mark.needs("browser")
LETTERS = "\n abcdefghijklmnopqrstuvwxyz.</script>&'\""
MODERN = {"position": "rotary", "norm": "rms", "qk_norm": True, "activation": "relu2", "ngrams": 4,
          "ngram_rows": 50}
KINDS = {
    "modern": MODERN, "gpt2": {"bias": True},
    "llama": {"position": "rotary", "norm": "rms_gain", "activation": "swiglu", "n_kv_head": 2,
              "n_inner": 24, "tied": False, "rotary_base": 500.0, "norm_eps": 1e-6},
    "one key": {"n_kv_head": 1, "activation": "gelu_tanh"},
    "sinusoidal": {"position": "sinusoidal", "attention_bias": True},
    "biases of the MLP": {"mlp_bias": True},
}


def of_kind(options, block_size=12, seed=0):
    """A model with large random weights, so that every part of it counts."""
    tokenizer = CharTokenizer(LETTERS)
    model = Transformer(TransformerConfig(tokenizer.vocab_size, block_size, 2, 4, 16, **options),
                        seed)
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.data += rng.normal(0, 0.3, p.shape).astype(np.float32)
    return model, tokenizer


def opened_page(driver, folder, model, tokenizer, text, training=None):
    """The page, which has drawn itself without a complaint."""
    checkpoint = Checkpoint(model, tokenizer, training or {}, {})
    page = opened(driver, written(folder / "live.html", live.html(checkpoint, text, folder)))
    assert of(page, "$('#trouble').hidden") and page.get_log("browser") == []
    return page


def typed(page, text):
    """Put a text into the field, as a paste does, and wait until it is read."""
    page.execute_script("""const input = byId('input'); input.value = arguments[0];
        input.setSelectionRange(input.value.length, input.value.length);
        input.dispatchEvent(new Event('input')); for (const _ of job);""", text)


def logits_of(page, ids):
    return np.array(page.execute_script("""const cache = new Cache(facts.config);
        while (model.read(cache, arguments[0]));
        return arguments[0].map((_, row) => [...cache.logitsOf(row)]);""", ids))


@pytest.fixture(scope="module")
def run(trained):
    return load_checkpoint(trained / "ckpt.npz")


@pytest.fixture
def page(driver, run, tmp_path):
    """The page of a trained model."""
    return opened_page(driver, tmp_path, *run[:2], "the quick brown", run.training)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_its_logits_and_texts_are_those_of_numpy(driver, tmp_path, monkeypatch, kind, exact):
    if not exact:
        monkeypatch.setattr(weights, "SMALL", 0)
    model, tokenizer = of_kind(KINDS[kind])
    page = opened_page(driver, tmp_path, model, tokenizer, "abc")
    same = weights.rounded(model)
    ids = tokenizer.encode("hello <world").tolist()
    with mg.no_grad():
        expected = same(np.array(ids)).data
        assert abs(expected - model(np.array(ids)).data).max() > (0 if exact else 1e-3) - exact
    assert abs(expected).max() > 1 and abs(logits_of(page, ids) - expected).max() < 1e-4
    page.execute_script("state.temperature = 0; write(500);")
    assert of(page, "$('#input').value") == generate(same, tokenizer, "abc", 500, temperature=0)


def test_what_is_typed_after_a_change_is_what_is_read_at_once(page, run):
    for text in ("the quick brown fox", "the quack brown fox", "the qu", "fox the quick brown"):
        typed(page, text)
        start = of(page, "start")
        with mg.no_grad():
            expected = run.model(run.tokenizer.encode(text)[start:]).data[-1]
        found = np.array(of(page, "[...plain.logitsOf(plain.ids.length - 1)]"))
        assert abs(found - expected).max() < 1e-4
        loss = text_losses(run.model, np.array(of(page, "seen"))).mean()
        assert of(page, "$('#mean').textContent").startswith(f"{loss:.3f} nats a character on ")


def test_a_draw_is_that_of_python(page):
    rng = np.random.default_rng(0)
    for settings in ((1.0, None, None), (0.7, 3, None), (1.3, None, 0.6), (0.0, None, None),
                     (0.9, 5, 0.5)) * 8:
        logits, u = rng.normal(0, 2, (1, 9)), rng.random(1)
        (drawn,), (p,) = random.draw(logits, u, *settings)
        found = page.execute_script("""const [logits, u, t, k, p] = arguments;
            const {drawn, probabilities} = draw(Float64Array.from(logits), u, t, k ?? 9, p ?? 1);
            return [drawn, [...probabilities]];""", logits[0].tolist(), u[0], *settings)
        assert found[0] == drawn and np.allclose(found[1], p, atol=1e-12)


@pytest.mark.parametrize("u", [0.0, 0.25, 0.5, 0.75, 1 - 2.0 ** -53])
@pytest.mark.parametrize("settings", [(1.0, None, None), (0.0, None, None), (1.0, 3, None),
                                      (1.0, None, 0.5), (0.5, 3, 0.75), (1.0, None, 0.25)], ids=str)
def test_draw_takes_equal_logits_as_python_does(page, settings, u):
    for logits in ([1.0] * 4, [0.0, 2.0, 2.0, 0.0, 2.0], [-900.0, 5.0, 5.0, -900.0], [3.0]):
        (drawn,), (p,) = random.draw(np.array([logits]), np.array([u]), *settings)
        found = page.execute_script("""const [logits, u, t, k, p] = arguments;
            const {drawn, probabilities} = draw(Float64Array.from(logits), u, t, k ?? 9, p ?? 1);
            return [drawn, [...probabilities]];""", logits, u, *settings)
        assert found[0] == drawn and np.allclose(found[1], p, atol=1e-12), logits


def without(model, part):
    """The model without a part, by weights that are 0."""
    same = Transformer(model.config)
    same.load_state_dict({name: p.data.copy() for name, p in model.named_parameters()})
    layer, _, what = part.partition(".")
    if part == "ngrams":
        same.ngram_embedding.weight.data[:] = 0
    elif what == "mlp":
        same.blocks[int(layer)].mlp.down.weight.data[:] = 0
    else:
        columns = same.blocks[int(layer)].attention.out.weight.data.reshape(
            model.config.n_embd, model.config.n_head, -1)
        columns[:, slice(None) if what == "attention" else int(what)] = 0
    return same


@pytest.mark.parametrize("part", ["1.1", "1.attention", "1.mlp", "ngrams"])
def test_a_part_that_is_off_adds_nothing_and_its_cost_is_told(driver, tmp_path, part):
    model, tokenizer = of_kind(MODERN)
    page = opened_page(driver, tmp_path, model, tokenizer, "hello world")
    for other, off in (("0.mlp", True), ("0.mlp", False), (part, True)):
        page.execute_script("""setOff(...arguments); for (const _ of job);""",
                            other, off)
    ids = tokenizer.encode("hello world")
    before, after = (text_losses(m, ids).sum() for m in (model, without(model, part)))
    assert abs(after - before) > 0.01
    assert f"cost {after - before:.3f} nats".replace("-", "−") in of(page, "$('#cost').textContent")
    page.execute_script("byId('reset').click()")
    assert of(page, "$('#cost').textContent").startswith("Nothing is changed")


def test_a_dragged_weight_is_set_and_the_rest_shared_out(page):
    typed(page, "the quick")
    before = of(page, "[...lookedAt()]")
    page.execute_script("""state.column = 2; byId('weight').value = 0.75;
        byId('weight').dispatchEvent(new Event('input')); for (const _ of job);""")
    after = of(page, "[...lookedAt()]")
    expected = np.array(before) * 0.25 / (1 - before[2])
    expected[2] = 0.75
    assert np.allclose(after, expected, atol=1e-9) and abs(before[2] - 0.75) > 0.01


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
    assert np.allclose([np.inf if x is None else x for x in found[2]],
                       [np.inf if x == 0 else -np.log(x) for x in p], rtol=1e-12)


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "relu2", "swiglu"])
def test_activations_are_those_of_the_ops_far_from_0_too(page, name):
    x = np.array([-800.0, -90.0, -6.0, -1.0, -0.0, 0.0, 1e-3, 1.0, 6.0, 90.0, 800.0])
    one = np.ones((1, 1))
    expected = mg.mlp(x[:, None], one, one, activation=name, **(
        {"gate": one} if name == "swiglu" else {})).data[:, 0]
    if name == "swiglu":
        expected = expected / np.where(x == 0, 1, x) * 2        # by an `up` of 2
    found = page.execute_script("return arguments[0].map((x) => ACTIVATIONS[arguments[1]](x, 2))",
                                x.tolist(), name)
    assert np.allclose(np.array(found, float), expected, rtol=1e-6, atol=1e-6)


def test_window_start_is_that_of_python(page):
    for block in (1, 2, 7, 8):
        found = page.execute_script("""const [block, most] = arguments;
            return Array.from({length: most}, (_, n) => windowStart(n, block));""", block, 40)
        assert found == [window_start(n, block) for n in range(40)]


def test_each_heads_worth_and_each_letters_reason_are_found_in_idle_time(page, run):
    typed(page, "the quick")
    ranking = of(page, "$$('#ranking li').map((row) => row.innerText.split(/\\s+/))")
    assert len(ranking) == run.model.config.n_layer * run.model.config.n_head
    ids = run.tokenizer.encode("the quick")
    before = text_losses(run.model, ids).sum()
    for name, said, _ in ranking:
        layer, head = (int(number) - 1 for number in name.split("."))
        cost = text_losses(without(run.model, f"{layer}.{head}"), ids).sum() - before
        assert abs(float(said.replace("−", "-")) - cost) < 0.006
    reasons = of(page, "$$('#reasons [role=option]').map((x) => x.title)")
    other = ids.copy()
    other[-1] = of(page, "facts.neutral[0]")
    with mg.no_grad():
        logp = [mg.log_softmax(run.model(x)).data[-1] for x in (ids, other)]
    best = logp[0].argmax()
    assert reasons[-1] == f"{logp[0][best] - logp[1][best]:.2f} nats".replace("-", "−")
    assert len(reasons) == of(page, "seen.length") and all("nats" in x for x in reasons)


def test_counts_expect_nearly_what_python_counts(page, run):
    """The page counts all orders in windows of five, which begin at other places in the text."""
    text = training_text(run.training, run.tokenizer)
    ids, V = text.val[:60], run.tokenizer.vocab_size
    found = page.execute_script("""const [ids] = arguments;
        return ids.map((id, at) => counts(ids.slice(Math.max(0, at - 4), at))[id]);""",
                                ids.tolist())
    assert of(page, "facts.grams.share") == 1 and of(page, "facts.grams.missing") is None
    assert abs(of(page, "counts([1, 2, 3]).reduce((a, b) => a + b)") - 1) < 1e-12
    *_, expected = ngram_probabilities(text.train, ids, V, 5)
    assert abs(np.log(found) - np.log(expected)).mean() < 1e-4 and np.std(expected) > 0.1


def test_an_unknown_character_is_named_and_not_dropped(page):
    typed(page, "the Ж x")
    assert of(page, "$('#unknown').textContent") == (
        "The model does not know ‘Ж’ (U+0416), and reads it as space.")
    assert len(of(page, "$$('#letters [role=option]')")) == len("the Ж x") + 1
    assert of(page, "$$('#letters .unknown').map((x) => x.textContent)") == ["U+0416"]
    assert of(page, "ids[4] === idOf.get(' ')")
    typed(page, "the x")
    assert of(page, "$('#unknown').textContent") == ""


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
    assert abs(expected[-1] - of(page, "[...plain.logitsOf(seen.length - 1)]")).max() < 1e-4
    assert ends == 1


def test_another_letter_begins_a_branch(page):
    typed(page, "the")
    page.execute_script("""write(1); [...byId('drawn').querySelectorAll('button')].find(
        (x) => x.ariaLabel !== `take ${named(ids.at(-1))}`).click();""")
    assert len(of(page, "$$('#tree button')")) == 3
    u, low, high = map(float, re.findall(r"\d\.\d+", of(page, "$('#drawn-title').textContent")))
    assert low <= u <= high and low < high
    page.execute_script("byId('tree').querySelector('button').click()")
    assert of(page, "$('#input').value") == "the"


def after(page, action):
    """Do something, and wait until the address holds what it changed."""
    page.execute_script(action)
    page.execute_async_script("setTimeout(arguments[0], 300)")


def test_back_and_forward_go_through_what_was_chosen(page):
    typed(page, "the quick")
    after(page, "")
    after(page, "setOff('0.mlp', true)")
    assert json.loads(of(page, "decodeURIComponent(location.hash.slice(1))"))["off"] == ["0.mlp"]
    after(page, "document.querySelector('nav a').click()")      # a section is a step, too
    seen = []
    for step in ("back", "back", "forward"):
        getattr(page, step)()
        after(page, "")
        seen.append(of(page, "[state.off.length, $('[data-part=\"0.mlp\"]').checked]"))
    assert seen == [[1, False], [0, True], [1, False]]
    assert of(page, "$('#input').value") == "the quick"


def test_an_address_brings_back_all_but_a_long_text(page, driver):
    typed(page, "the green wood")
    after(page, "update({ head: 1, off: ['1.0'], temperature: 1.5, at: 3 })")
    address = driver.current_url
    driver.get("about:blank")
    driver.get(address)
    after(page, "")
    assert of(page, "[state.text, state.at, state.head, state.off, state.temperature]") == [
        "the green wood", 3, 1, ["1.0"], 1.5]
    assert of(page, "$('#long').textContent") == ""
    typed(page, "the " * 501)
    after(page, "")
    assert "no text of more than 2,000 characters" in of(page, "$('#long').textContent")
    kept = json.loads(of(page, "decodeURIComponent(location.hash.slice(1))"))
    assert "text" not in kept and kept["head"] == 1


@pytest.mark.parametrize("ending", ["parts", "%", "5", '{"off":5,"layer":99,"at":"x"}'])
def test_an_address_that_holds_no_state_is_none(page, driver, ending):
    address = driver.current_url.split("#")[0]
    driver.get("about:blank")
    driver.get(f"{address}#{ending}")
    after(page, "")
    assert of(page, "$('#trouble').hidden") and page.get_log("browser") == []
    assert of(page, "[state.text, state.off.length]") == ["the quick brown", 0]
    assert of(page, "state.layer") == (0 if ending[0] != "{" else of(page, "layers - 1"))


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


@pytest.mark.parametrize("layer, head", [(0, 0), (1, 2)])
def test_a_map_is_saved_with_the_weights_that_numpy_computes(driver, tmp_path, layer, head):
    model, tokenizer = of_kind(MODERN)
    page = opened_page(driver, tmp_path, model, tokenizer, "hello <wo&r")
    page.execute_script("update({layer: arguments[0], head: arguments[1]})", layer, head)
    svg = saved(page, tmp_path, "byId('keep-map')", f"layer-{layer + 1}-head-{head + 1}.svg")
    found = np.zeros((11, 11))
    for rect in parts(svg, "rect"):
        row, column = int(rect.get("y")) // 10, (int(rect.get("x")) - 12) // 10
        found[row, column] = float(rect[0].text)
    expected = model.attention_maps(tokenizer.encode("hello <wo&r"))[layer, head]
    assert abs(found - expected).max() < 1e-4 and expected.std() > 0.05
    assert "".join(x.text for x in parts(svg, "text")[::2]) == "hello␣<wo&r"


def test_every_chart_is_saved_as_it_stands(page, tmp_path, run):
    typed(page, "the quick")
    page.execute_script("write(2); for (const _ of job);")
    charts = of(page, "$$('.bars').map((list) => [list.id, list.ariaLabel])")
    assert {name for name, _ in charts} == {"expected", "ranking", "rival", "drawn"}
    for name, words in charts:
        svg = saved(page, tmp_path, f"byId('{name}').nextElementSibling", f"{name}.svg")
        bars = of(page, f"$$('#{name} .fill').map((fill) => parseFloat(fill.style.width))")
        assert np.allclose([float(x.get("width")) / 2 for x in parts(svg, "rect")], bars)
        shown = of(page, f"$$('#{name} li').map((row) => [0, 2].map((i) =>"
                         "row.children[i].textContent)).flat()")
        assert [x.text for x in parts(svg, "text")] == shown and len(bars) > 1, words
    ids = run.tokenizer.encode(of(page, "state.text"))[of(page, "start"):]
    with mg.no_grad():
        p = np.sort(mg.softmax(run.model(ids)).data[-1])[::-1]
    svg = (tmp_path / "expected.svg").read_text(encoding="utf-8")
    assert np.allclose([float(x.get("width")) / 200 for x in parts(svg, "rect")], p[:8], atol=1e-4)


def test_the_text_is_saved_with_the_probabilities_of_numpy(driver, tmp_path):
    model, tokenizer = of_kind(MODERN)
    text = 'a,"b"\n\'c\' <d'
    page = opened_page(driver, tmp_path, model, tokenizer, "abc")
    typed(page, text.replace(",", "Ж"))
    head, *rows = csv.reader(saved(page, tmp_path, "byId('keep-text')", "text.csv")
                             .splitlines(keepends=True))
    losses = text_losses(model, tokenizer.encode(text.replace(",", " ")))
    assert head == ["place", "character", "probability", "loss"]
    assert [row[1] for row in rows] == [*text.replace(",", "Ж")[1:]]
    assert [int(row[0]) for row in rows] == [*range(2, len(text) + 1)]
    found = np.array([row[2:] for row in rows], float)
    assert np.allclose(found, np.stack([np.exp(-losses), losses], axis=1), atol=1e-4)


def test_every_control_has_a_name_for_those_who_hear_it(page):
    typed(page, "the Ж quick")
    page.execute_script("write(2); for (const _ of job);")
    found = {}
    for node in page.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]:
        properties = {x["name"]: x["value"].get("value") for x in node.get("properties", [])}
        if properties.get("focusable"):
            found.setdefault(node["role"]["value"], []).append(node["name"]["value"].strip())
    assert {"button", "checkbox", "slider", "textbox", "option", "link"} <= found.keys()
    assert [role for role, names in found.items() if "" in names] == []
    for role in ("checkbox", "slider"):
        assert len(set(found[role])) == len(found[role])
    assert "character 5, unknown U+0416, loss" in " ".join(found["option"])


def test_all_of_it_is_reached_and_moved_by_keys(page):
    typed(page, "the quick")
    page.execute_script("write(1); for (const _ of job); byId('input').focus();")
    reached = set()
    for _ in range(100):
        page.switch_to.active_element.send_keys("\ue004")        # Tab
        reached.add(of(page, "document.activeElement.closest('[id]')?.id"))
    assert {"letters", "keep-text", "heads", "keep-map", "keys", "weight", "alone",
            "reasons", "one", "temperature", "drawn", "tree"} <= reached
    page.execute_script("strip.options[4].focus()")
    press(page, "left")
    assert of(page, "[state.at, document.activeElement === strip.options[3]]") == [3, True]
    page.execute_script("for (const _ of job); keys.options[2].focus();")
    press(page, "left")
    assert of(page, "[state.column, document.activeElement === keys.options[1]]") == [1, True]
    before = of(page, "lookedAt()[1]")
    page.execute_script("byId('weight').focus()")
    press(page, "right")
    assert of(page, "state.drag.column") == 1 and of(page, "lookedAt()[1]") != before


def test_notes_that_were_dismissed_stay_away(page, driver):
    page.execute_script("localStorage.clear(); location.reload();")
    after(page, "")
    assert of(page, "$$('#notes li a').length") == 5 and not of(page, "$('#notes').hidden")
    assert of(page, "$$('#notes a').every((a) => document.querySelector(a.hash))")
    page.execute_script("byId('dismiss').click(); location.reload();")
    after(page, "")
    assert of(page, "$('#notes').hidden")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_narrow_page_has_no_overflow_in_either_theme(page, theme):
    resize(page, 375, 800)
    prefer(page, theme)
    page.execute_script("write(30); for (const _ of job);")
    assert of(page, "[innerWidth, document.documentElement.scrollWidth]") == [375, 375]
    for ramp in of(page, "[blue, orange]"):         # even who sees no hue tells its shades apart
        falls = np.diff(np.array(ramp) ** 2.2 @ [0.2126, 0.7152, 0.0722]) < 0
        assert falls.mean() == (theme == "light")
    assert of(page, "getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    tints = of(page, "strip.options.slice(1, -1).map(({ style }) => "
                     "[style.color, style.backgroundColor])")
    assert {ink for ink, _ in tints} <= {"rgb(0, 0, 0)", "rgb(255, 255, 255)"}
    assert all(shade for _, shade in tints) and len(tints) > 1
    assert of(page, "strip.options[0].style.backgroundColor") == ""      # it is not predicted


def test_it_needs_no_eval(page):
    refused = page.execute_async_script("""const done = arguments[0];
        setTimeout(() => { try { done((0, eval)("1")); } catch (e) { done(e.name); } });""")
    assert refused == "EvalError"


def test_a_page_of_text_that_is_pasted_does_not_freeze_it(page):
    text = "the quick brown fox runs over the green wood " * 230
    typed(page, text)
    assert of(page, "[ids.length, strip.coloured - seen.length]") == [len(text), -1]


def test_hostile_text_changes_nothing_and_nothing_is_fetched(driver, tmp_path, hostile_text):
    tokenizer = CharTokenizer(hostile_text + LETTERS)
    model = Transformer(TransformerConfig(tokenizer.vocab_size, 8, 1, 1, 4))
    page = opened_page(driver, tmp_path, model, tokenizer, hostile_text)
    assert of(page, "characters.map((c) => c.codePointAt(0))") == [*map(ord, hostile_text)]
    assert of(page, "$$('#injected').length") == 0
    said = [json.loads(line["message"])["message"] for line in page.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in said
             if event["method"] == "Network.requestWillBeSent"]
    assert all(url.startswith((tmp_path / "live.html").as_uri()) for url in asked)
