"""The command that writes the page: what it reads, what it says, and one-line mistakes."""
import json
import re
from types import SimpleNamespace

import pytest

import data
from model import generate, load_checkpoint, save_checkpoint
from model.look import __main__ as look
from model.look.__main__ import PASSAGE
from model.look.graphs import GRAPHS


def written(path):
    """What a page holds, and the text that it is of."""
    found = re.search(r'id="facts">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)
    facts = json.loads(found[1])
    characters = {"␣": " ", "⏎": "\n"}
    symbols = (facts["vocabulary"][str(i)][0] for i in facts["ids"])
    return facts, "".join(characters.get(symbol, symbol) for symbol in symbols)


def refused(capsys, *flags):
    """What is said of a mistake, on standard error or to be put there, and nothing else."""
    with pytest.raises(SystemExit) as caught:
        look.main(list(flags))
    out, err = capsys.readouterr()
    said = err if isinstance(caught.value.code, int) else caught.value.code
    assert out == "" and caught.value.code != 0 and "Traceback" not in said
    return said


def test_it_writes_one_file_and_says_how_large_it_is(trained, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    look.main(["--out_dir", str(trained), "--text", "the lazy dog"])
    page = tmp_path / "look.html"
    assert [path.name for path in tmp_path.iterdir()] == ["look.html"]
    out, err = capsys.readouterr()
    assert err == "" and out == (f"look.html: {page.stat().st_size:,} bytes, 12 characters; "
                                 "open it in a browser\n")
    assert written(page)[1] == "the lazy dog"
    for spelling in ("-o", "--output"):
        look.main(["--out_dir", str(trained), "--text", "the lazy dog", spelling, "other.html"])
        assert (tmp_path / "other.html").read_bytes() == page.read_bytes()


def test_the_text_may_come_from_a_file(trained, tmp_path):
    (tmp_path / "t.txt").write_bytes(b"the fox\r\nruns")
    look.main(["--out_dir", str(trained), "--text", f"FILE:{tmp_path / 't.txt'}",
               "-o", str(tmp_path / "l.html")])
    facts, text = written(tmp_path / "l.html")
    assert text == "the fox\nruns" and "--text" in facts["source"]


def test_without_a_text_it_takes_a_passage_that_was_not_trained_on(trained, tmp_path, small_text):
    look.main(["--out_dir", str(trained), "-o", str(tmp_path / "l.html")])
    facts, text = written(tmp_path / "l.html")
    train, val = data.split(small_text.read_text(encoding="utf-8"))
    assert len(text) == PASSAGE and text in val and val[val.index(text) - 1] == "\n"
    assert "not trained on" in facts["source"] and not facts["score"]["seen"]


@pytest.mark.parametrize("val,start", [
    ("ab\nc\n\nd" + "e" * 300, 6), ("ab\nc" + "e" * 300, 3), ("abc" * 100, 0),
    ("e" * 300 + "\n\nab", 0), ("ab\ncd", 0)])
def test_a_passage_begins_with_a_paragraph_or_a_line_where_enough_follows(
        trained, tmp_path, val, start):
    text = "abcde\n" * (9 * len(val)) + val
    text = text[len(text) - len(val) * 10:]             # val is the last tenth
    assert data.split(text)[1] == val
    (tmp_path / "t.txt").write_text(text, encoding="utf-8")
    checkpoint = load_checkpoint(trained / "ckpt.npz")
    training = {"settings": {"data": str(tmp_path / "t.txt")}, "text": data.Text(text).digest}
    assert look.passage(checkpoint._replace(training=training))[0] == val[start:start + PASSAGE]


def test_of_tokens_it_writes_as_many_as_make_about_such_a_passage(trained, monkeypatch):
    monkeypatch.setattr(look, "generate", lambda model, tokenizer, start, count, **_: count)
    checkpoint = load_checkpoint(trained / "ckpt.npz")._replace(training={})
    assert look.passage(checkpoint)[0] == PASSAGE
    assert look.passage(checkpoint._replace(tokenizer=SimpleNamespace(unit="token")))[0] == 48


def test_if_that_text_is_gone_the_model_writes_one_itself(trained, tmp_path):
    model, tokenizer, *_ = load_checkpoint(trained / "ckpt.npz")
    save_checkpoint(tmp_path / "ckpt.npz", model, tokenizer)
    look.main(["--out_dir", str(tmp_path), "-o", str(tmp_path / "l.html")])
    facts, text = written(tmp_path / "l.html")
    assert text == generate(model, tokenizer, "", PASSAGE, 0.8, seed=1337)
    assert "written by the model itself" in facts["source"]


def test_mistakes_are_answered_in_one_line(trained, capsys, tmp_path):
    given = ["--out_dir", str(trained), "-o", str(tmp_path / "l.html")]
    assert "there is no checkpoint" in refused(capsys, "--out_dir", str(tmp_path))
    assert "there is no flag --txt; did you mean --text?" in refused(capsys, "--txt", "a")
    assert "'É' (LATIN CAPITAL LETTER E WITH ACUTE)" in refused(capsys, *given, "--text", "the É")
    assert "an empty one was given" in refused(capsys, *given, "--text", "")
    assert "needs two characters" in refused(capsys, *given, "--text", "t")
    assert "at most 1,000" in refused(capsys, *given, "--text", "the " * 251)
    assert "nor a file" in refused(capsys, *given, "--text", f"FILE:{tmp_path / 'none'}")
    (tmp_path / "ckpt.npz").write_bytes(b"PK")
    assert "is damaged or no checkpoint" in refused(capsys, "--out_dir", str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["ckpt.npz"]
    said = refused(capsys, "--out_dir", str(trained), "-o", str(trained / "ckpt.npz"))
    assert "--output is a page, whose name ends in .html; this is" in said


@pytest.mark.parametrize("flags", [["-o", "{}.html"], ["--graph", "{}.svg"],
                                   ["--of", "block", "--graph", "{}.svg"]], ids=" ".join)
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_computed(
        trained, capsys, tmp_path, monkeypatch, flags):
    monkeypatch.setattr(look, "load_checkpoint", None)      # not to be called
    monkeypatch.setattr(look, "GRAPHS", dict.fromkeys(look.GRAPHS))
    flags = ["--out_dir", str(trained), *flags]
    for suffix in ("html", "svg"):
        (tmp_path / f"folder.{suffix}").mkdir()
    for name, why in (("folder", "Is a directory"), ("none/l", "No such file or directory")):
        *_, output = given = [flag.format(tmp_path / name) for flag in flags]
        said = refused(capsys, *given)
        assert f"cannot use {output}: " in said and "\n" not in said
        assert said.endswith(why)
    assert {path.name for path in tmp_path.iterdir()} == {"folder.html", "folder.svg"}


def test_a_page_that_cannot_be_written_leaves_the_one_that_was_there(trained, capsys, tmp_path,
                                                                     monkeypatch):
    page = tmp_path / "l.html"
    page.write_text("good")

    def full(descriptor):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr("os.fsync", full)
    said = refused(capsys, "--out_dir", str(trained), "--text", "the", "-o", str(page))
    assert f"cannot use {page}: No space left on device" in said
    assert page.read_text() == "good" and [path.name for path in tmp_path.iterdir()] == ["l.html"]


def test_a_graph_is_printed_or_drawn_instead_of_the_page(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    look.main(["--graph"])
    said = capsys.readouterr().out
    assert said.startswith("One neuron") and "#1  loss = multiply(#2, #2)" in said
    look.main(["--graph", "--of", "attention"])
    assert "mixed = matmul(" in capsys.readouterr().out
    look.main(["--graph", "drawn.svg", "--of", "block", "--out_dir", str(trained)])
    assert capsys.readouterr().out == "drawn in drawn.svg; a browser shows it\n"
    drawing = (tmp_path / "drawn.svg").read_text(encoding="utf-8")
    assert "float32[28, 16]" in drawing         # the token table of the run
    look.main(["--graph", "drawn.svg", "--of", "block", "--out_dir", "nowhere"])
    assert "float32[62, 128]" in (tmp_path / "drawn.svg").read_text(encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["drawn.svg"]


def test_without_docstrings_which_python_oo_leaves_out_a_graph_has_its_name(capsys, monkeypatch):
    monkeypatch.setattr(GRAPHS["expression"], "__doc__", None)
    look.main(["--graph"])
    assert capsys.readouterr().out.startswith("expression\n\n")


@pytest.mark.parametrize("flags, says", [
    (["--graph", "drawn.png"], "give a file that ends in .svg, not 'drawn.png'"),
    (["--graph", "nowhere/drawn.svg"], "cannot use nowhere/drawn.svg: No such file or directory"),
    (["--graph", "--of", "head"], "is a graph of expression, attention, block, not of 'head'"),
    (["--of", "block"], "--of says which graph is shown; give --graph too"),
    (["--graph", "--text", "the"], "--graph shows no page; leave out --text")])
def test_mistakes_about_graphs_are_answered_in_one_line(capsys, tmp_path, monkeypatch, flags, says):
    monkeypatch.chdir(tmp_path)
    assert says in refused(capsys, *flags).strip().splitlines()[-1]
