"""The losses of several runs in one chart, and the page of a run that goes on."""
import contextlib
import re
import shutil
import time

import pytest

import data
from model import save_checkpoint
from model.convert.tokens import TokenTokenizer
from model.folder import PAGE, Log
from model.look import __main__ as look
from model.look import runs
from model.look.runs import (MOST_RUNS, RENEWED, Record, compare, describe_mismatch,
                             describe_windows, differing_settings, read_record)
from model.scoring import yardstick
from tests.browser import facts_of, of, opened, resize
from tests.kit import open_elsewhere, refused, rows, run, written
from tests.token_files import byte_level


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def two(trained, folder):
    """The names of two runs of the same text: `a`, and `b`, with other settings and losses."""
    shutil.copytree(trained, folder / "a")
    checkpoint = read_record("a")
    model = look.load_checkpoint("a/ckpt.npz").model
    settings = checkpoint.settings | {"n_layer": 3, "min_lr": 1e-3, "out_dir": "b", "page": True}
    (folder / "b").mkdir()
    save_checkpoint("b/ckpt.npz", model, checkpoint.tokenizer,
                    checkpoint.training | {"settings": settings})
    log = Log(folder / "b" / "log.csv")
    for step, loss in ((0, 3.0), (20, 1.5), (60, 1.25)):
        log.write(step, None, loss, 0.1, 100, step)
    return "a", "b"


def table_in(page, name):
    """The cells of the table in a section or a box of a page."""
    element = page[page.index(f'id="{name}"'):]
    table = element[element.index("<table>"):element.index("</table>")]
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line) for line in table.split("<tr>")[1:]]


def test_compare_shows_the_losses_of_each_run_and_what_differs(two, trained, small_text):
    page, lines = compare(two)
    facts = facts_of(page)
    ours = [[float(row[0]), float(row[2])] for row in rows(trained)[1:]]
    assert facts["series"] == [{"name": "a", "points": ours},
                               {"name": "b", "points": [[0, 3], [20, 1.5], [60, 1.25]]}]
    assert table_in(page, "settings") == [["flag", "a", "b"], ["--n_layer", "1", "3"],
                                          ["--min_lr", "a tenth of it", "0.001"]]
    record = read_record("a")
    train, val = data.split(record.tokenizer.encode(small_text.read_text(encoding="utf-8")))
    counted = yardstick(train, val, record.tokenizer.vocab_size)
    assert facts["counted"] == [[name, round(loss, 3)] for name, loss in counted.items()]
    lowest = min(loss for _, loss in ours)
    assert lines == [f"b has the lowest loss, 1.250; a {lowest:.3f}.  At step 20, where all were "
                     f"evaluated: a {dict(ours)[20]:.3f}, b 1.500.",
                     "what differs in their settings:", "    --n_layer: 1 | 3",
                     "    --min_lr: a tenth of it | 0.001"]
    assert "b has the lowest loss, 1.250" in page.partition("<script")[0]


def test_look_writes_the_page_of_folders_that_stand_first_or_after_their_flag(two, capsys, folder):
    for words in (["a", "b"], ["--out_dir", "a", "b"], ["a", "b", "-o", "c.html"],
                  ["-o", "c.html", "--out_dir", "a", "b"]):
        look.main(words)
        name = "c.html" if "-o" in words else "look.html"
        out = capsys.readouterr().out
        assert out.startswith(f"{name}: the losses of 2 runs; open it in a browser\nb has the low")
        page = folder / name
        assert len(facts_of(page.read_text(encoding="utf-8"))["series"]) == 2
        page.unlink()
    look.main(["a", "--text", "the lazy dog"])      # a single one is the page of a model
    assert "12 characters" in capsys.readouterr().out


def test_runs_of_the_same_settings_are_said_to_have_the_same(trained, folder):
    for name in ("a", "b"):
        shutil.copytree(trained, folder / name)
    page, lines = compare(["a", "b"])
    assert table_in(page, "settings") == [["flag"]] and lines[1:] == ["their settings are the same"]
    assert "All of them reach the same loss" in lines[0]


@pytest.mark.parametrize("words, says", [
    ("a no", "no is not there; give the folders of runs"),
    ("a file", "file is no folder; give the folders"),
    ("a empty", "empty holds no log.csv"),
    ("a begun", "the run in begun has no evaluation yet; look again after its first one"),
    ("a torn", "torn/log.csv is damaged"),
    ("a bare", "there is no checkpoint bare/ckpt.npz"),
    ("a a", "a is given twice; give each run once"),
    ("a ./b/../a", "./b/../a is given twice, as a and as ./b/../a; give each run once"),
    ("a b --text the", "--text is for one run, and --out_dir names 2; leave out"),
    ("a b --no-live", "--live is for one run"),
    ("a b -o x.svg", "ends in .html"),
    ("a b " + "c " * MOST_RUNS, f"at most {MOST_RUNS} runs can be told apart")])
def test_what_is_no_run_or_no_other_one_is_refused_in_a_line(two, folder, capsys, words, says):
    written(folder / "file", "")
    for name in ("empty", "begun", "torn", "bare"):
        (folder / name).mkdir()
    Log(folder / "begun" / "log.csv")
    written(folder / "torn" / "log.csv", "iter,train_loss\n1,2")
    shutil.copy("a/log.csv", "bare/log.csv")
    before = sorted(folder.rglob("*"))
    said = refused(capsys, *words.split(), main=look.main)
    assert says in said and said.startswith("model.look: ")
    assert sorted(folder.rglob("*")) == before


def record(name, log=((0, None, 3.0),), **more):
    """The record of a run with a tokenizer of these characters."""
    tokenizer = more.pop("tokenizer", None) or data.Text("abc" * 20).tokenizer
    training = {"settings": more.pop("settings", {"data": f"/texts/{name}.txt"}), "text": "1"}
    return Record(name, [list(line) for line in log], training | more, tokenizer)


@pytest.mark.needs("convert")
def test_describe_mismatch_says_why_losses_cannot_be_compared():
    one = record("one")
    tokens = TokenTokenizer(byte_level(), None, 300)
    assert describe_mismatch([one, record("two"), record("three")]) == ""
    assert describe_mismatch([one, record("two"), record("far", text="2")]) == (
        "The losses cannot be compared: one and far read different texts, one.txt and far.txt.")
    assert describe_mismatch([one, record("two", tokenizer=data.Text("abcd" * 20).tokenizer)]) == (
        "The losses cannot be compared: one and two have different tokenizers.")
    assert describe_mismatch([one, record("two", tokenizer=tokens)]) == (
        "The losses cannot be compared: those of one are nats a character, those of two nats a "
        "token.")


def test_losses_that_cannot_be_compared_have_no_winner_and_no_n_grams(two, monkeypatch):
    read = runs.read_record
    monkeypatch.setattr(runs, "read_record", lambda name: read(name)._replace(
        training=read(name).training | {"text": name}))
    page, lines = compare(two)
    assert facts_of(page)["counted"] is None
    assert "read different texts" in lines[0] and "lowest" not in "\n".join(lines)
    assert '<p class="trouble" id="warning">The losses cannot be compared: a and b' in page


@pytest.mark.parametrize("settings, says", [
    ({}, False), ({"eval_iters": 5}, True), ({"block_size": 9}, True),
    ({"batch_size": 6, "eval_iters": 40}, False)])
def test_describe_windows_says_if_the_runs_were_evaluated_on_others(settings, says):
    both = [record("a"), record("b", settings=settings)]
    assert bool(describe_windows(both)) == says


def test_differing_settings_leave_out_what_changes_no_loss_and_know_defaults():
    both = [record("a", settings={"out_dir": "a", "bias": True, "dropout": 0.0, "profile": 5}),
            record("b", settings={"out_dir": "b", "dropout": 0.25, "data": ["x.txt", "y.txt"]})]
    assert differing_settings(both) == [
        ("--data", ["lantern", "x.txt y.txt"]), ("--dropout", ["0", "0.25"]),
        ("--bias", ["yes", "no"])]


@pytest.fixture
def run_with_page(small_text, folder, monkeypatch, capsys):
    """The folder of a run with --page; what its page held whenever it was written, and the output
    of the run."""
    held = []
    write = runs.write_page

    def write_and_keep(*args, **settings):
        write(*args, **settings)
        held.append((folder / "out" / PAGE).read_text(encoding="utf-8"))
    monkeypatch.setattr(runs, "write_page", write_and_keep)
    run(small_text, folder / "out", "--max_iters 20 --page")
    return folder / "out", held, capsys.readouterr().out


def test_write_page_is_called_at_each_evaluation_and_at_the_end(run_with_page):
    out, held, said = run_with_page
    facts = [facts_of(page) for page in held]
    assert [len(each["log"]) for each in facts] == [1, 2, 3, 3]
    assert [each["renewed"] for each in facts] == [RENEWED] * 3 + [None]
    assert [(line[0], f"{line[2]:.6f}") for line in facts[-1]["log"]] == [
        (float(row[0]), row[2]) for row in rows(out)[1:]]
    assert f"page        {out / PAGE} from the first evaluation on" in said
    yardsticks = dict(re.findall(r"(\S+) (\d\.\d{3})", re.search("yardstick.*", said)[0]))
    assert {name: f"{loss:.3f}" for name, loss in facts[0]["counted"]} == yardsticks
    assert "One evaluation so far" in held[0]
    assert "The run goes on, and has taken 0 steps" in held[0]
    assert "The run has ended after 20 steps." in held[-1] and "model.look --out_dir" in held[-1]


def test_a_run_writes_no_page_unless_it_is_asked_for_and_moves_that_of_an_earlier_one(
        small_text, run_with_page):
    out, held, _ = run_with_page
    run(small_text, out, "--max_iters 0")
    assert not (out / PAGE).exists() and (out / "earlier.1" / PAGE).exists()
    assert len(held) == 4


def test_the_page_of_a_run_that_ends_with_an_error_says_that_it_has_ended(
        small_text, folder, monkeypatch, capsys):
    import train

    def fail(*_):
        raise ValueError("no more")
    monkeypatch.setattr(train, "steps", fail)
    refused(capsys, "--data", small_text, "--out_dir", folder / "out", "--max_iters", "9", "--page",
            "--block_size", "16", "--n_embd", "16", "--n_layer", "1")
    page = (folder / "out" / PAGE).read_text(encoding="utf-8")
    assert "The run has ended after 0 steps" in page and facts_of(page)["renewed"] is None


def test_a_page_that_another_program_has_open_ends_no_run(small_text, folder, monkeypatch, capsys):
    with open_elsewhere(monkeypatch, [PAGE], attempts=99) as refusals:
        run(small_text, folder / "out", "--max_iters 10 --page")
    err = capsys.readouterr().err
    assert err.count(f"another program has {folder / 'out' / PAGE} open") == 3 and refusals
    assert len(rows(folder / "out")) == 3 and not (folder / "out" / PAGE).exists()


def test_explain_speaks_of_no_page_as_it_writes_none(small_text, folder, capsys):
    run(small_text, folder / "out", "--page --explain")
    assert PAGE not in capsys.readouterr().out and not (folder / "out").exists()


@pytest.mark.late
@pytest.mark.needs("browser")
def test_the_page_of_runs_draws_a_line_for_each_and_tells_them_apart(two, driver, folder):
    look.main([*two])
    page = opened(driver, folder / "look.html")
    assert of(page, "$('#trouble').hidden") and page.get_log("browser") == []
    resize(page, 1280, 900)
    page.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    assert of(page, "$$('#charts polyline').map((x) => x.getAttribute('points').split(' ').length)"
              ) == [4, 2]
    styles = of(page, "$$('#charts polyline').map((x) => [getComputedStyle(x).stroke, "
                      "getComputedStyle(x).strokeDasharray])")
    assert styles[0][0] != styles[1][0] and styles[0][1] != styles[1][1]
    labels = of(page, "$$('#charts text.run').map((x) => x.textContent)")
    assert sorted(label.split()[0] for label in labels) == ["a", "b"] and "b 1.250" in labels
    assert of(page, "$('#settings tbody').textContent") == "--n_layer13\n--min_lra tenth of it0.001"
    table = of(page, "$$('#log tbody tr').map((x) => [...x.cells].map((y) => y.textContent))")
    assert [row[0] for row in table] == ["0", "10", "20", "30", "40", "60"]
    assert table[-1] == ["60", "–", "1.250"]
    for width in (320, 1280):
        resize(page, width, 800)
        assert of(page, "document.documentElement.scrollWidth") == width
    assert of(page, "$('#warning').hidden && !$('#settings').hidden")


@pytest.mark.late
@pytest.mark.needs("browser")
def test_an_open_page_shows_the_next_evaluation_and_keeps_its_place(run_with_page, driver, folder):
    from selenium.common.exceptions import WebDriverException
    _, held, _ = run_with_page
    often = [page.replace(f'"renewed":{RENEWED}', '"renewed":1') for page in held]
    path = written(folder / "live.html", held[1])
    page = opened(driver, path)
    resize(page, 700, 500)
    page.execute_script("""document.querySelector('details').open = true;
        byId('theme').value = 'dark'; byId('theme').focus(); scrollTo({top: 300, behavior:
        'instant'}); getSelection().selectAllChildren(byId('title')); renew()""")
    assert of(page, "$$('#log tbody tr').length") == 2

    def wait_for(condition):
        end = time.monotonic() + 20
        while True:
            with contextlib.suppress(WebDriverException):       # the page is just loaded anew
                if of(page, "'ready' in document.documentElement.dataset && " + condition):
                    return
            assert time.monotonic() < end, condition
            time.sleep(0.02)
    written(path, often[2])
    page.execute_script("renew()")                      # not while somebody selects a text
    time.sleep(0.2)
    assert of(page, "$$('#log tbody tr').length") == 2
    page.execute_script("getSelection().removeAllRanges(); renew()")
    wait_for("$$('#log tbody tr').length === 3 && scrollY === 300")
    wait_for("$('details').open && byId('theme').value === 'dark'")
    wait_for("document.activeElement.id === 'theme'")
    assert "shows the next evaluation by itself" in of(page, "$('#renewal').textContent")
    written(path, often[3])                             # the run ends, and nobody calls `renew`
    wait_for("$('#state').textContent.startsWith('The run has ended')")
    wait_for("$('details').open && scrollY === 300")
    page.execute_script("document.title = 'kept'")
    time.sleep(1.5)
    assert page.title == "kept" and of(page, "$('#renewal').textContent") == ""
    assert page.get_log("browser") == []
