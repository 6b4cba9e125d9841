"""The page of an encoder-decoder: its maps, against the model, and what it refuses."""
import numpy as np
import pytest

from model import EncoderDecoder, EncoderDecoderConfig, save_checkpoint
from model.reverse.encoder_decoder import BEGIN, END
from model.look.__main__ import main
from model.look.crossed import html
from model.reverse.__main__ import VOCABULARY, as_ids
from model.checkpoint import Checkpoint
from tests.browser import facts_of, of, opened
from tests.checking import random_weights
from tests.kit import refusal, written

TEXT = "hello"


def model_of(scale=0.3, block_size=7):
    """A model with weights at which it writes something, and not always the same."""
    config = EncoderDecoderConfig(VOCABULARY.vocab_size, block_size, 2, 3, 12)
    return random_weights(EncoderDecoder(config), scale)


def checkpoint(model, **training):
    return Checkpoint(model, VOCABULARY, training, {})


@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_the_maps_are_the_models_of_the_answer_that_it_writes(scale):
    model, source = model_of(scale), as_ids([TEXT])
    across, within_source, within_target = facts_of(html(checkpoint(model), TEXT))
    answer = model.write(source)[0]
    if END in answer:
        answer = answer[:list(answer).index(END) + 1]
    maps = model.attention_maps(source, np.array([[BEGIN, *answer[:-1]]]))
    words = "".join({0: "·", 1: "▸", 2: "■"}.get(i) or VOCABULARY.vocabulary[i] for i in answer)
    T = len(answer)
    for view, expected, rows, columns in (
            (across, maps[2], words, TEXT), (within_source, maps[0], TEXT, TEXT),
            (within_target, np.where(np.tri(T) > 0, maps[1], np.nan), words, ("▸" + words)[:T])):
        assert view["across"] == 3 and len(view["maps"]) == 6
        assert ("".join(view["rows"]), "".join(view["columns"])) == (rows, columns)
        for i, map in enumerate(view["maps"]):
            values = np.array(map, float)                   # null becomes nan
            assert np.allclose(values, expected[i // 3, 0, i % 3], atol=5.1e-5, equal_nan=True)
        sharpness = np.nanmax(expected[:, 0], axis=-1).mean(axis=-1).ravel()
        assert view["chosen"] == sharpness.argmax()


def test_it_says_what_was_read_and_written_and_what_the_model_is():
    model = model_of()
    answer = VOCABULARY.decode(model.write(as_ids([TEXT]))[0]).split("\3")[0]
    said = html(checkpoint(model, settings={"task": "sort"}, right=1234, judged=2000), TEXT)
    count = sum(p.size for p in model.parameters())
    for part in (f">It read hello and wrote {answer}.<", "that sorts letters</h1>",
                 "1,234 of 2,000 strings", f"{count:,} parameters."):
        assert part in said
    wrong_way = "runs the wrong way"
    assert wrong_way in html(checkpoint(model, settings={"task": "reverse"}), TEXT)
    assert wrong_way not in said


@pytest.mark.parametrize("block_size, text, says", [
    (7, "abcdefg", "1 to 6 letters"), (7, "Hi", "LATIN CAPITAL LETTER H"),
    (7, "a\0", "1 to 6 letters, and --text is 'a\\x00'"),
    (200, 10**6 * "a", f"1 to 100 letters, and --text is '{79 * 'a'}...; give")])  # for a browser
def test_a_string_that_the_model_cannot_read_is_refused(block_size, text, says):
    assert says in refusal(ValueError, html, checkpoint(model_of(block_size=block_size)), text)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_model_that_is_of_no_use_is_refused():
    assert "may have diverged" in refusal(ValueError, html, checkpoint(model_of(1e38)), TEXT)


def test_the_command_opens_it(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_checkpoint("ckpt.npz", model_of(), VOCABULARY)
    for flags, text in ([], "backwa"), (["--text", "hell"], "hell"):    # as much as it takes
        main(["--out_dir", ".", *flags])
        page = (tmp_path / "look.html").read_text(encoding="utf-8")
        assert page == html(checkpoint(model_of()), text)
        assert f"{len(text)} characters; open it" in capsys.readouterr().out


@pytest.mark.needs("browser")
def test_a_browser_draws_it_and_says_where_a_letter_came_from(driver, tmp_path):
    said = html(checkpoint(model_of()), TEXT)
    page = opened(driver, written(tmp_path / "l.html", said))
    assert of(page, "$('#trouble').hidden") and page.get_log("browser") == []
    of(page, "$$('#maps-1 [type=radio]')[4].click()")
    of(page, "$$('#maps-1 tbody td')[1]").click()
    view = facts_of(said)[0]
    assert of(page, "$('#maps-1 .readout').textContent") == (
        f"Letter written 1, ‘{view['rows'][0]}’; letter read 2, ‘e’: {view['maps'][4][0][1]:.4f}")
