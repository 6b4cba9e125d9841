"""The page of an encoder-decoder: its maps, against the model, and what it refuses."""
import json
import re

import numpy as np
import pytest

from checking import random_weights
from model import EncoderDecoder, save_checkpoint
from model.reverse.encoder_decoder import BEGIN, END
from model.look.__main__ import main
from model.look.crossed import html
from model.reverse.__main__ import VOCABULARY, as_ids
from model.checkpoint import Checkpoint
from tests.browser import of, opened

TEXT = "hello"


def model_of(scale=0.3, block_size=7):
    """A model with weights at which it writes something, and not always the same."""
    return random_weights(EncoderDecoder(VOCABULARY.vocab_size, block_size, 2, 3, 12), scale)


def checkpoint(model, **training):
    return Checkpoint(model, VOCABULARY, training, {})


def sections(written):
    return json.loads(re.search(r'id="facts">(.*?)</script>', written, re.DOTALL)[1])


@pytest.mark.parametrize("scale", [0.1, 0.3, 1.0])
def test_the_maps_are_the_models_of_the_answer_that_it_writes(scale):
    model = model_of(scale)
    across, within_source, within_target = sections(html(checkpoint(model), TEXT))
    source = as_ids([TEXT])
    answer = model.write(source)[0]
    if END in answer:
        answer = answer[:list(answer).index(END) + 1]
    target = np.array([[BEGIN, *answer[:-1]]])
    maps = model.attention_maps(source, target)
    words = "".join({0: "·", 1: "▸", 2: "■"}.get(i) or VOCABULARY.vocabulary[i] for i in answer)
    T = len(answer)
    for section, expected, rows, columns in (
            (across, maps[2], words, TEXT), (within_source, maps[0], TEXT, TEXT),
            (within_target, np.where(np.tri(T) > 0, maps[1], np.nan), words, ("▸" + words)[:T])):
        assert section["across"] == 3 and len(section["maps"]) == 6
        for i, map in enumerate(section["maps"]):
            assert map["title"] == f"layer {i // 3 + 1}, head {i % 3 + 1}" and map["most"] == 1
            assert ("".join(map["rows"]), "".join(map["columns"])) == (rows, columns)
            values = np.array(map["values"], float)         # null becomes nan
            assert np.allclose(values, expected[i // 3, 0, i % 3], atol=5.1e-5, equal_nan=True)
        sharpness = np.nanmax(expected[:, 0], axis=-1).mean(axis=-1).ravel()
        assert section["chosen"] == sharpness.argmax()


def test_it_says_what_was_read_and_written_and_what_the_model_is():
    model = model_of()
    answer = VOCABULARY.decode(model.write(as_ids([TEXT]))[0]).split("\3")[0]
    said = html(checkpoint(model, settings={"task": "sort"}, right=1234, judged=2000), TEXT)
    assert f">It read hello and wrote {answer}.<" in said and "that sorts letters</h1>" in said
    assert "1,234 of 2,000 strings that it had not seen were right." in said
    assert f"{sum(p.size for p in model.parameters()):,} parameters." in said
    assert "runs the wrong way" not in said
    assert "runs the wrong way" in html(checkpoint(model, settings={"task": "reverse"}), TEXT)
    assert "An encoder-decoder at work</h1>" in html(checkpoint(model), TEXT)


@pytest.mark.parametrize("text, says", [
    ("", "this model reads a string of 1 to 6 letters, and --text is ''"),
    ("abcdefg", "a string of 1 to 6 letters, and --text is 'abcdefg'; give another --text"),
    ("a\0", "a string of 1 to 6 letters, and --text is 'a\\x00'"),
    ("Hi", "the character 'H' (LATIN CAPITAL LETTER H)")])
def test_a_string_that_the_model_cannot_read_is_refused(text, says):
    with pytest.raises(ValueError) as caught:
        html(checkpoint(model_of()), text)
    assert says in str(caught.value)


def test_a_string_that_a_browser_would_have_to_labour_at_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="this model reads a string of 1 to 100 letters"):
        html(checkpoint(model_of(block_size=200)), 101 * "a")
    monkeypatch.setattr("model.look.crossed.MOST_LETTERS", len(TEXT))
    assert html(checkpoint(model_of(block_size=9)), TEXT)
    with pytest.raises(ValueError, match="1 to 5 letters, and --text is 'helloo'"):
        html(checkpoint(model_of(block_size=9)), TEXT + "o")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_model_that_is_of_no_use_is_refused():
    model = model_of()
    model.memory_norm.weight.data[...] = 1e38
    with pytest.raises(ValueError, match="its training may have diverged"):
        html(checkpoint(model), TEXT)


def test_the_command_opens_it(tmp_path, capsys):
    save_checkpoint(tmp_path / "ckpt.npz", model_of(), VOCABULARY)
    page = tmp_path / "l.html"
    for flags, text in ([], "backwa"), (["--text", "hell"], "hell"):    # as much as it takes
        main(["--out_dir", str(tmp_path), "-o", str(page), *flags])
        assert capsys.readouterr().out == (f"{page}: {page.stat().st_size:,} bytes, {len(text)} "
                                           "characters; open it in a browser\n")
        assert page.read_text(encoding="utf-8") == html(checkpoint(model_of()), text)
    for flags, says in ((["--text", "Hi"], "the character 'H'"),
                        (["--graph", "--of", "block"], "holds an encoder-decoder")):
        with pytest.raises(SystemExit) as caught:
            main(["--out_dir", str(tmp_path), *flags])
        assert says in str(caught.value.code) and capsys.readouterr().out == ""


@pytest.mark.needs("browser")
def test_a_browser_draws_it_and_says_where_a_letter_came_from(driver, tmp_path):
    model, path = model_of(), tmp_path / "l.html"
    path.write_text(html(checkpoint(model), TEXT), encoding="utf-8")
    page = opened(driver, path)
    assert of(page, "$('#trouble').hidden") and page.get_log("browser") == []
    assert of(page, "$$('canvas').length") == 18
    assert of(page, "$$('.large').map((x) => x.querySelectorAll('tbody td').length)") == [
        len(map["rows"]) * len(map["columns"])
        for map in (x["maps"][0] for x in sections(path.read_text(encoding="utf-8")))]
    of(page, "$$('#maps-1 [role=radio]')[4].click()")
    of(page, "$$('#maps-1 tbody td')[1].click()")
    map = sections(path.read_text(encoding="utf-8"))[0]["maps"][4]
    assert of(page, "$('#maps-1 .readout').textContent") == (
        f"Letter written 1, ‘{map['rows'][0]}’; letter read 2, ‘e’: {map['values'][0][1]:.4f}")
