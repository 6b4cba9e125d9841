"""The command that writes the page: what it reads, what it says, and which file it leaves."""
import os
import pathlib
import signal
from types import SimpleNamespace

import pytest

import data
from model import generate, load_checkpoint, save_checkpoint
from model.look import __main__ as look
from model.look.__main__ import PASSAGE
from tests.browser import facts_of
from tests.kit import nobody_reads, refused, written


def read(path):
    """What a page holds, and the text that it is of."""
    facts = facts_of(path.read_text(encoding="utf-8"))
    return facts, facts["text"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_writes_one_file_and_says_how_large_it_is(trained, capsys, folder):
    look.main(["--out_dir", str(trained), "--text", "the lazy dog"])
    page = folder / "look.html"
    assert list(folder.iterdir()) == [page] and read(page)[1] == "the lazy dog"
    assert capsys.readouterr() == (f"look.html: {page.stat().st_size:,} bytes, 12 characters; "
                                   "open it in a browser\n", "")
    written(folder / "t.txt", b"the fox\r\nruns")
    for flag, name in (("-o", "a.html"), ("--output", "b.html")):
        look.main(["--out_dir", str(trained), "--text", "FILE:t.txt", flag, name])
        facts, text = read(folder / name)
        assert text == "the fox\nruns" and "--text" in facts["about_words"]


def test_the_page_is_there_if_nobody_reads_what_it_says(trained, folder, monkeypatch):
    with nobody_reads(monkeypatch):
        look.main(["--out_dir", str(trained), "--text", "ab", "--no-live"])
    assert {path.name for path in folder.iterdir()} == {"look.html"}


def test_without_a_text_it_takes_a_passage_that_was_not_trained_on(trained, folder, small_text):
    look.main(["--out_dir", str(trained)])
    facts, text = read(folder / "look.html")
    train, val = data.split(small_text.read_text(encoding="utf-8"))
    assert PASSAGE - 9 < len(text) <= PASSAGE and text.endswith(" ")
    assert text in val and val[val.index(text) - 1] == "\n"
    assert "not trained on" in facts["about_words"]


@pytest.mark.parametrize("val, start", [
    ("ab\nc\n\nd" + "e" * 300, 6), ("ab\nc" + "e" * 300, 3), ("e" * 300 + "\n\nab", 0)])
def test_a_passage_begins_with_a_paragraph_or_line_if_enough_follows(trained, folder, val, start):
    text = ("abcde\n" * (9 * len(val)) + val)[-len(val) * 10:]      # val is the last tenth
    written(folder / "t.txt", text)
    training = {"settings": {"data": "t.txt"}, "text": data.Text(text).digest}
    checkpoint = load_checkpoint(trained / "ckpt.npz")._replace(training=training)
    assert look.passage(checkpoint)[0] == val[start:start + PASSAGE]


def test_if_that_text_is_gone_the_model_writes_one_itself(trained, folder, monkeypatch):
    model, tokenizer, *_ = load_checkpoint(trained / "ckpt.npz")
    save_checkpoint(folder / "ckpt.npz", model, tokenizer)
    look.main(["--out_dir", "."])
    facts, text = read(folder / "look.html")
    assert text == generate(model, tokenizer, "", PASSAGE, 0.8, seed=1337)
    assert "written by the model itself" in facts["about_words"]
    # Of tokens, as many as make about such a passage.
    monkeypatch.setattr(look, "generate", lambda model, tokenizer, start, count, **_: count)
    checkpoint = load_checkpoint(folder / "ckpt.npz")
    assert look.passage(checkpoint._replace(tokenizer=SimpleNamespace(unit="token")))[0] == 32


def test_what_cannot_be_written_is_refused_first(trained, capsys, folder, monkeypatch):
    monkeypatch.setattr(look, "load_checkpoint", None)      # not to be called
    (folder / "folder.html").mkdir()
    missing = "No such file or directory; first make the folder none, or give another"
    for name, why in (("folder", "Is a directory"), ("none/l", missing)):
        output = f"{name}.html"
        said = refused(capsys, "--out_dir", trained, "-o", output, main=look.main)
        assert f"cannot use {pathlib.Path(output)}: " in said and said.endswith(why)
    assert {path.name for path in folder.iterdir()} == {"folder.html"}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_leaves_no_page_half_written(name, trained, folder, monkeypatch):
    number = getattr(signal, name)

    def signalled(*_, **__):
        signal.raise_signal(number)
    monkeypatch.setattr(look, "load_checkpoint", signalled)
    before = signal.signal(number, lambda *_: None)         # or it would end the tests
    try:
        with pytest.raises(SystemExit) as end:
            look.main(["--out_dir", str(trained)])
    finally:
        signal.signal(number, before)
    assert end.value.code == 130
    assert list(folder.iterdir()) == []


def test_a_page_that_cannot_be_written_leaves_the_one_before(trained, capsys, folder, full_disk):
    page = written(folder / "look.html", "good")
    said = refused(capsys, "--out_dir", trained, "--text", "the", main=look.main)
    assert "cannot use look.html: No space left on device" in said
    assert page.read_text() == "good" and list(folder.iterdir()) == [page]


def test_a_text_with_unknown_letters_is_shown_as_the_page_reads_what_is_typed(
        trained, folder, capsys):
    look.main(["--out_dir", str(trained), "--text", "the Ж fox, the Ö"])
    assert capsys.readouterr().out.endswith(
        "open it in a browser\nThe model does not know 'Ж', ',', 'Ö': the page marks them, reads "
        "another character instead, and gives no loss there.\n")
    facts, text = read(folder / "look.html")
    assert text == "the Ж fox, the Ö" and facts["live"]
    # What the model read in their place is no part of the text's loss.
    assert facts["worths"] is None and len(facts["losses"]) == 15
    said = refused(capsys, "--out_dir", trained, "--text", "the Ж", "--no-live", main=look.main)
    assert "'Ж'" in said
