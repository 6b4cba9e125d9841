"""docs/one.py, the whole system in one file: its losses and gradients are the engine's."""
import operator
import os
import re
import runpy
import shutil

import numpy as np
import pytest
from numpy.random import default_rng

import minigrad as mg
from model import Transformer, TransformerConfig
from tests.kit import ROOT, python, written

pytestmark = pytest.mark.late       # it computes in float64

SOURCE = (ROOT / "docs" / "one.py").read_text(encoding="utf-8")
COMPANION = runpy.run_path(ROOT / "docs/companion.py")
SIZES = {"B": 3, "T": 5, "C": 12, "H": 3, "D": 4, "LAYERS": 2, "V": 7, "FLOAT": np.float64}
CONFIG = TransformerConfig(vocab_size=7, block_size=5, n_layer=2, n_head=3, n_embd=12, norm="rms",
                           activation="relu2")
IDS = default_rng(0).integers(7, size=40)
STARTS = np.array([0, 11, 34])
PLACES = STARTS[:, None] + np.arange(SIZES["T"])
BATCH = IDS[PLACES], IDS[PLACES + 1]
RATES = [0.003, 0.01, 0.002] * 4
# Ten slips in derivatives, and two in what adds them up.
SLIPS = [
    ("(other, lambda g: g)", "(other, lambda g: -g)"),
    ("(self, lambda g: g * b)", "(self, lambda g: g * a)"),
    ("(self, lambda g: g @ turn(b))", "(self, lambda g: g @ turn(b) / 2)"),
    ("(other, lambda g: turn(a) @ g)", "(other, lambda g: turn(a) @ g / len(a))"),
    ("np.add.at(rows, ids, g)", "rows[ids] = g"),
    ("g - y * total(g * y) / C", "g - total(g) / C"),
    ("p * (g - total(g * p))", "p * (g - total(g))"),
    ("p * (g - total(g * p))", "p * (1 - p) * g"),
    ("g * (expected - came) / targets.size", "g * (expected - came) / len(targets)"),
    ("lambda g: g * 2 * positive", "lambda g: g * positive"),
    ("source.grad = source.grad + arrives", "source.grad = arrives"),
    ("arrives = arrives.sum(axis=0)", "arrives = arrives[0]"),
]


def one(source=SOURCE, **sizes):
    """Return the file as a module, with other sizes."""
    return COMPANION["load"](source, **SIZES | sizes)


def weights_for(transformer, of=operator.attrgetter("data")):
    """What the weights of one.py are in the engine, or what another function gives of them, in the
    order and shapes of one.py."""
    letters, places, *matrices = map(of, transformer.parameters())
    found = [letters, places]
    for matrix in matrices:
        parts = 3 if len(matrix) == 36 else 1       # query, key and value are one in the engine
        found += [part.T for part in np.split(matrix, parts)]
    return found


def both(module):
    """A model of one.py and one of the engine, with the same weights, far from uniform."""
    transformer = Transformer(CONFIG, dtype=np.float64)
    rng = default_rng(1)
    for p in transformer.parameters():
        p.data[...] = rng.normal(0, 0.4, p.shape)
    model = module.new_model(rng)
    for weight, data in zip(model["weights"], weights_for(transformer), strict=True):
        assert weight.data.shape == data.shape
        weight.data = data.copy()
    return model, transformer


def differences(module):
    """The loss's difference from the engine's, and the largest of all gradients'."""
    model, transformer = both(module)
    loss = module.loss_on(model, IDS, STARTS)
    module.backward(loss)
    engines = mg.cross_entropy(transformer(BATCH[0]), BATCH[1])
    engines.backward()
    gradients = weights_for(transformer, operator.attrgetter("grad"))
    return (abs(loss.data - engines.data),
            np.max([np.abs(weight.grad - g).max()
                    for weight, g in zip(model["weights"], gradients, strict=True)]))


def test_backward_of_one_gives_the_gradients_of_the_engine():
    loss, gradients = differences(one())
    assert loss < 1e-12
    assert gradients < 1e-12


@pytest.mark.parametrize("right, wrong", SLIPS)
def test_backward_of_one_with_a_slip_differs_from_the_engine(right, wrong):
    assert SOURCE.count(right) == 1
    loss, gradients = differences(one(SOURCE.replace(right, wrong)))
    assert loss < 1e-12
    assert gradients > 1e-4


def test_multiply_of_one_sends_each_factor_the_other():
    module = one()
    a = module.Tensor([2.0, 3.0])
    b = module.Tensor([5.0, 7.0])
    module.backward(a * b)
    assert a.grad.tolist() == [5.0, 7.0]
    assert b.grad.tolist() == [2.0, 3.0]


def test_backward_of_one_agrees_with_central_differences():
    module = one()
    model, _ = both(module)
    rng = default_rng(2)
    directions = [rng.standard_normal(w.data.shape) for w in model["weights"]]
    module.backward(module.loss_on(model, IDS, STARTS))
    slope = sum(np.vdot(w.grad, d) for w, d in zip(model["weights"], directions))

    def loss_after(step):
        for w, d in zip(model["weights"], directions):
            w.data += step * d
        return module.loss_on(model, IDS, STARTS).data
    above = loss_after(1e-6)
    below = loss_after(-2e-6)       # from above
    assert (above - below) / 2e-6 == pytest.approx(slope, rel=1e-6)


def test_adamw_of_one_takes_the_steps_of_the_engine():
    module = one()
    model, transformer = both(module)
    optimizer = mg.AdamW(transformer.parameters(), lr=0.0, betas=(module.BETA1, module.BETA2),
                         eps=1e-8, weight_decay=module.DECAY)
    first = module.loss_on(model, IDS, STARTS).data
    for step, rate in enumerate(RATES, 1):
        loss = module.loss_on(model, IDS, STARTS)
        module.backward(loss)
        module.adamw(model["weights"], step, rate)
        engines = mg.cross_entropy(transformer(BATCH[0]), BATCH[1])
        assert abs(loss.data - engines.data) < 1e-10
        engines.backward()
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
    assert loss.data < first - 0.1


def test_train_of_one_moves_the_weights_in_its_last_step_too():
    rates = []
    module = one(STEPS=150, adamw=lambda weights, step, rate: rates.append(rate))
    module.train(module.new_model(default_rng(0)), IDS, default_rng(0))
    assert [rates[0], rates[-1]] == pytest.approx([module.RATE / 100, module.RATE / 150])


def test_train_of_one_reads_each_place_of_its_ids_and_none_beyond_them():
    read = []
    module = one(STEPS=200, adamw=lambda *_: None, backward=lambda loss: None)
    loss_on = module.loss_on
    module.loss_on = lambda model, ids, starts: read.append(starts) or loss_on(model, ids, starts)
    module.train(module.new_model(default_rng(0)), IDS[:11], default_rng(0))
    assert all(len(starts) == module.B for starts in read)
    assert {*np.concatenate(read).tolist()} == {*range(6)}      # with 5 letters, and the next


@pytest.mark.parametrize("letters, batches", [
    (16, 1), (18, 1), (30, 1), (31, 2), (45, 2), (46, 3)])
def test_validation_loss_of_one_is_the_engines_over_all_whole_batches(letters, batches):
    module = one()
    model, transformer = both(module)
    ids = default_rng(3).integers(7, size=letters)
    x = ids[:15 * batches].reshape(-1, 5)           # 3 texts of 5 letters in a batch
    y = ids[1:15 * batches + 1].reshape(-1, 5)
    expected = mg.cross_entropy(transformer(x), y).item()
    assert module.validation_loss(model, ids) == pytest.approx(expected)


def test_write_of_one_draws_by_the_probabilities_after_as_many_letters_as_it_can_read():
    module = one(V=62)
    model = module.new_model(default_rng(0))
    read = []
    drawn = []
    transformer = module.transformer

    class Draws:
        def choice(self, letters, p):
            drawn.append(p)
            return letters[5]
    module.transformer = lambda model, ids: read.append(ids) or transformer(model, ids)
    text = module.write(model, "KING", 3, Draws())
    assert text == "KING" + 3 * module.ALPHABET[5]
    assert [ids.shape for ids in read] == [(1, 4), (1, 5), (1, 5)]
    for n, (ids, p) in enumerate(zip(read, drawn)):
        assert ids[0].tolist() == module.encode(text[max(0, n - 1):4 + n]).tolist()
        assert np.array_equal(p, module.softmax(transformer(model, ids)).data[0, -1])


def test_the_program_of_one_trains_on_nine_tenths_and_measures_on_the_last(capsys):
    text = "to be, or not to be: that is the question"
    module = one(__name__="__main__", TEXT=text, ALPHABET=sorted(set(text)), V=len(set(text)))
    trained = []
    measured = []
    module.train = lambda model, ids, rng: trained.append(ids)
    module.validation_loss = lambda model, ids: measured.append(ids) or 1.23456
    module.write = lambda model, text, count, rng: f"{text!r} and {count}"
    exec(SOURCE[SOURCE.rindex("\nif __name__"):], module.__dict__)
    assert len(trained[0]) == len(text) * 9 // 10
    assert np.concatenate(trained + measured).tolist() == module.encode(text).tolist()
    assert capsys.readouterr().out == "\nloss on the last tenth: 1.235\n'\\n' and 500\n"


THREADS = """
import os
source = open("docs/one.py", encoding="utf-8").read()
head = source[:source.index("# The text.")]
exec(head)
print(os.environ["OMP_NUM_THREADS"])
"""


@pytest.mark.parametrize("given, taken", [({}, "1"), ({"OMP_NUM_THREADS": "2"}, "2")])
def test_the_program_of_one_takes_one_thread_unless_another_number_is_set(given, taken,
                                                                          monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert python("-c", THREADS, **given).stdout == taken + "\n"
    monkeypatch.setattr(os, "environ", {})
    one()
    assert os.environ == {}         # only the program does it, not its import


def test_the_program_of_one_says_in_a_line_that_there_is_no_numpy():
    done = python("-S", "docs/one.py", PYTHONPATH="")
    assert done.returncode == 1
    assert done.stderr == ("No module named 'numpy'; activate your environment, or: pip install "
                           "numpy\n")


def test_write_of_one_appends_letters_of_the_alphabet():
    module = one(V=62)
    model = module.new_model(default_rng(0))
    text = module.write(model, "KING", 9, default_rng(0))
    assert text.startswith("KING") and len(text) == 13
    assert set(text) <= set(module.ALPHABET)


def test_one_has_at_most_250_lines_of_at_most_90_characters():
    lines = SOURCE.splitlines()
    assert len(lines) <= 250
    assert max(map(len, lines)) <= 90


def test_one_imports_nothing_but_numpy_and_the_standard_library():
    imported = re.findall(r"^\s*(?:import|from) (\w+)", SOURCE, re.M)
    assert imported == ["os", "pathlib", "numpy"]
    assert "argv" not in SOURCE


def test_the_companion_of_one_is_made_of_the_file_as_it_stands():
    assert COMPANION["page"]() == (ROOT / "docs/one.html").read_text(encoding="utf-8")


def test_the_companion_writes_its_page_beside_one(tmp_path):
    for name in ("docs/companion.py", "docs/one.py", "data/lantern_plays.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    runpy.run_path(tmp_path / "docs/companion.py", run_name="__main__")
    page = (tmp_path / "docs/one.html").read_text(encoding="utf-8")
    assert page == (ROOT / "docs/one.html").read_text(encoding="utf-8")


def test_the_companion_of_one_points_to_what_there_is():
    for part in COMPANION["PARTS"]:
        for file, name in part.house:
            defined = re.search(rf"^ *(def|class) {name}\b", (ROOT / file).read_text("utf-8"), re.M)
            assert defined, f"{name} in {file}"


def companion_sections():
    """The sections of docs/one.html, by their ids."""
    page = COMPANION["page"]()
    return dict(re.findall(r"<section id='([^']+)'>(.*?)</section>", page, re.S))


def test_the_companion_needs_no_script_and_has_no_empty_head_of_a_row_or_column():
    page = COMPANION["page"]()
    assert "<script" not in page
    assert page.count("<th scope=") > 100
    assert not re.search(r"<th[^>]*></th>", page)


def test_each_link_of_the_companion_leads_to_a_place_on_it():
    page = COMPANION["page"]()
    ids = re.findall(r" id='([^']+)'", page)
    assert len(set(ids)) == len(ids) > 30
    links = re.findall(r"href='#([^']+)'", page)
    assert len(links) > 100
    assert set(links) <= set(ids)


def test_each_name_that_has_a_table_is_a_link_to_it_wherever_its_part_says_it_in_code():
    sections = companion_sections()
    slug = COMPANION["slug"]
    for title, tables in COMPANION["NAMES"].items():
        section = sections[slug(title)]
        code = section.partition("</pre>")[0]
        plain = re.sub("<[^>]+>", "", re.sub(r"<a class='name.*?</a>", "", code))
        plain = re.sub("#.*", "", plain)        # without comments
        for number, names in enumerate(tables, 1):
            figure, = re.findall(rf"<figure id='{slug(title)}-{number}' class='([^']*)'", section)
            for name in names:
                assert f"t-{name}" in figure.split()
                assert f"<a class='name n-{name}' href='#{slug(title)}-" in code, (title, name)
                assert not re.search(rf"\b{name}\b", plain), (title, name)


@pytest.mark.parametrize("part, here", [
    ("embeddings", ["x"]), ("the-norm", ["norm"]), ("attention", ["heads", "shares"]),
    ("the-transformer", ["+"]), ("the-mlp", ["MLP"]), ("the-loss", ["scores"])])
def test_the_row_of_boxes_of_the_companion_marks_those_of_each_part(part, here):
    section = companion_sections()[part]
    boxes = re.findall(r"<li data-arrow='→'><a href='#([\w-]+)'( aria-current='true')?>(.*?)</a>",
                       section)
    assert [name for *_, name in boxes] == [*COMPANION["BOXES"]]
    assert [name for _, current, name in boxes if current] == here
    assert dict((name, place) for place, _, name in boxes)[here[-1]] == part
    assert section.count("you are here") == 1


def test_bars_of_the_companion_are_as_high_as_their_numbers_on_one_scale():
    sections = companion_sections()
    for part, count in (("training", 4), ("the-loss", 12), ("softmax", 4), ("writing", 5)):
        bars = re.findall(r"<td class='bar' style='--p:([\d.]+)'>([\d.]+)</td>", sections[part])
        assert len(bars) == count
        shares, numbers = np.array(bars, float).T
        assert np.allclose(shares, numbers / numbers.max(), atol=0.02)
        assert numbers.max() > 1.5 * numbers.min() or part == "writing"


def test_numbers_of_the_companion_have_a_colour_for_each_sign():
    page = COMPANION["page"]()
    signed = re.findall(r"<td class='(plus|minus)'>(−?)", page)
    assert len(signed) > 60
    assert all((kind == "minus") == bool(minus) for kind, minus in signed)
    assert not re.search("<td>−", page)


@pytest.mark.late
@pytest.mark.needs("browser")
def test_a_name_in_the_companion_and_its_tables_light_up_together(tmp_path):
    from selenium.webdriver import ActionChains
    from tests.browser import browser, resize
    page = written(tmp_path / "one.html", COMPANION["page"]())
    with browser() as driver:
        resize(driver, 1280, 900)
        driver.get(page.as_uri())

        def lit(pointed, *others):
            """Which elements have another ground while one of them is pointed at."""
            element = driver.find_element("css selector", pointed)
            driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
            ActionChains(driver).move_to_element(element).perform()
            return [driver.execute_script(
                "return getComputedStyle(document.querySelector(arguments[0])).backgroundColor",
                other) != "rgba(0, 0, 0, 0)" for other in others]
        attention = "#attention-1", "#attention-2", "#attention .n-shares"
        assert lit("#attention .n-shares", *attention) == [True, True, False]
        assert lit("#attention-1", *attention) == [False, False, True]
        assert lit("#attention h2", *attention) == [False, False, False]
        for width in (320, 375, 1280, 1440):
            resize(driver, width, 800)
            assert driver.execute_script("return document.documentElement.scrollWidth") == width
