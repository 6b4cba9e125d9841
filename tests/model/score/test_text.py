"""The loss of a text: each character's, from the window that sampling would predict it from; and
what is said of it."""
import math
import re

import numpy as np
import pytest

import data
from model import (CharTokenizer, Transformer, TransformerConfig, load_checkpoint, sample,
                   save_checkpoint)
from model.convert.tokens import TokenTokenizer
from model.generation import Reader
from model.score.text import text_losses, training_text
from tests.kit import memory, opinionated, refusal, written
from token_files import of_words


def losses_one_by_one(model, ids, slide):
    """What sampling gives each character, as it would come to it."""
    reader = Reader(model, ids[None, :1], slide=slide)
    losses = []
    for x in ids[1:]:
        logits = reader.logits()[0].astype(np.float64)
        losses.append(np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[x])
        reader.append(np.array([[x]]))
    return np.array(losses)


@pytest.mark.parametrize("slide", [False, True])
@pytest.mark.parametrize("block", [1, 2, 5, 8])
def test_losses_are_those_that_sampling_would_have_one_by_one(block, slide, monkeypatch):
    model = opinionated(TransformerConfig(13, block, n_layer=1, n_head=2, n_embd=8), 20)
    for N in (2, 3, block + 1, block + 2, 2 * block + 1, 50):
        ids = np.random.default_rng(N).integers(13, size=N)
        losses = text_losses(model, ids, slide)
        assert losses.shape == (N - 1,) and losses.dtype == np.float64
        assert np.allclose(losses, losses_one_by_one(model, ids, slide), atol=1e-4)
    for few in ("AT_ONCE", "LOGITS"):       # windows that go through at once
        monkeypatch.setattr(f"model.score.windows.{few}", 1)
        assert np.allclose(text_losses(model, ids, slide), losses, atol=1e-6)


def test_many_tokens_take_no_more_memory_than_few(monkeypatch):
    model = Transformer(TransformerConfig(50_000, 64, n_layer=1, n_head=1, n_embd=2))
    most = []
    ids = np.random.default_rng(0).integers(50_000, size=300)
    for logits in (1 << 18, 1 << 24):
        monkeypatch.setattr("model.score.windows.LOGITS", logits)
        with memory() as taken:
            text_losses(model, ids)
        most += taken
    assert most[1] > 4 * most[0]


def test_the_text_of_a_run_comes_back_with_the_ids_of_its_model(small_text):
    text = data.Text.read(str(small_text))
    training = {"settings": {"data": text.name}, "text": text.digest}
    tokenizer = CharTokenizer.of(text.tokenizer.vocabulary[::-1])
    known = training_text(training, tokenizer)
    assert known.tokenizer is tokenizer
    assert np.array_equal(known.train, tokenizer.vocab_size - 1 - text.train)
    assert "is no longer the one that the model was trained on" in refusal(
        ValueError, training_text, training | {"text": ""}, CharTokenizer("a"))


def scored(capsys, trained, path, *flags):
    sample.main(["--out_dir", str(trained), "--score", str(path), *flags])
    out, err = capsys.readouterr()
    numbers = {words: float(number) for number, words in re.findall(
        r"^    ([0-9.]+)  (.*)$", out, re.MULTILINE)}
    return numbers, out, err


def test_a_text_is_scored_beside_counted_n_grams(trained, best, capsys, tmp_path, small_text):
    text = "the lazy dog runs on\nby the river"
    model, tokenizer = best
    written(tmp_path / "t.txt", text)
    train, _ = data.split(tokenizer.encode(data.read_text(str(small_text))))
    for slide in (False, True):
        loss = text_losses(model, tokenizer.encode(text), slide).mean()
        numbers, out, err = scored(capsys, trained, tmp_path / "t.txt", *["--slide"] * slide)
        assert numbers["nats a character"] == pytest.approx(loss, abs=1e-4)
        assert numbers["bits a character"] == pytest.approx(loss / math.log(2), abs=1e-4)
        assert numbers["perplexity"] == pytest.approx(math.exp(loss), rel=1e-4)
        assert numbers["this model  <--"] == pytest.approx(loss, abs=1e-3)
        counted = data.ngram_losses(train, tokenizer.encode(text), tokenizer.vocab_size)
        assert [numbers[f"counted {name}"] for name in ("unigram", "bigram", "5-gram")] == [
            pytest.approx(counted[n], abs=1e-3) for n in (0, 1, 4)]
        assert f"{len(text)} characters" in out and err == ""


def test_unknown_characters_are_left_out_of_a_score_if_asked_for(trained, capsys, tmp_path):
    text = "the lazy dog runs on\nby the river"
    numbers, out, _ = scored(capsys, trained, file := written(tmp_path / "t.txt", text))
    assert scored(capsys, trained, file, "--skip_unknown") == (numbers, out, "")
    written(file, "É" + text.replace("r", "ZrÉ") + "1234\x1b")
    assert scored(capsys, trained, file, "--skip_unknown") == (
        numbers, out, "left out 12 of 45 characters, which the model does not know: 'É' (4), "
                      "'Z' (3), '\\x1b' (1), '1' (1), '2' (1) and 2 more\n")


def test_a_score_of_what_was_trained_on_says_so(trained, capsys, small_text, tmp_path):
    train, val = data.split(small_text.read_text(encoding="utf-8"))
    for text, known in ((train + val, True), (train[50:900], True), (val, False)):
        file = written(tmp_path / "t.txt", text)
        assert ("was trained on" in scored(capsys, trained, file)[2]) == known


def test_without_the_training_text_the_score_stands_alone_and_says_why(best, capsys, tmp_path):
    written(tmp_path / "t.txt", "the dog")
    for training, why in (
            ({}, "does not say which text"),
            ({"settings": {}, "text": ""}, "does not say which text"),
            ({"settings": {"data": "lantern"}}, "does not say which text"),
            ({"settings": {"data": str(tmp_path / "gone")}, "text": ""}, "gone"),
            ({"settings": {"data": "a\0b\x1b[2J"}, "text": ""}, r"a\x00b\x1b[2J"),
            ({"settings": {"data": str(tmp_path / "t.txt")}, "text": "0"}, "is no longer the one"),
    ):
        save_checkpoint(tmp_path / "ckpt.npz", *best, training)
        numbers, out, err = scored(capsys, tmp_path, tmp_path / "t.txt")
        assert set(numbers) == {"nats a character", "bits a character", "perplexity"}
        assert "without counted n-grams" in err and why in err and "counted" not in out


@pytest.mark.needs("convert")
def test_what_no_token_stands_for_is_refused_without_a_flag_that_would_not_help(capsys, tmp_path):
    model = Transformer(TransformerConfig(2, 32, n_layer=1, n_head=2, n_embd=16))
    save_checkpoint(tmp_path / "ckpt.npz", model, TokenTokenizer(of_words("a", "the")))
    written(tmp_path / "t.txt", "other")
    for flags in ([], ["--skip_unknown"]):
        with pytest.raises(SystemExit, match=r"cannot encode the text: [^;]*$"):
            scored(capsys, tmp_path, tmp_path / "t.txt", *flags)


@pytest.mark.needs("convert")
def test_a_text_of_tokens_is_scored_in_nats_a_token_and_bits_a_byte(of_tokens, capsys, tmp_path):
    text = "the inré the 🙂"
    written(tmp_path / "t.txt", text)
    model, tokenizer, *_ = load_checkpoint(of_tokens / "ckpt.npz")
    ids = tokenizer.encode(text)
    losses = text_losses(model, ids)
    numbers, out, err = scored(capsys, of_tokens, tmp_path / "t.txt", "--skip_unknown")
    first = tokenizer.decode(ids[:1])
    assert first == ("" if tokenizer.encode("").size else "t")
    bits = losses.sum() / math.log(2)
    assert numbers == {
        "nats a token": pytest.approx(losses.mean(), abs=1e-4),
        "bits a byte": pytest.approx(bits / (len(text.encode()) - len(first)), abs=1e-4),
        "bits a character": pytest.approx(bits / (len(text) - len(first)), abs=1e-4),
        "perplexity": pytest.approx(math.exp(losses.mean()), rel=1e-4)}
    assert f"{len(text)} characters in {len(ids)} tokens, each but the first predicted" in out
    assert "without counted n-grams beside it, because the checkpoint does not say which" in err
    text = data.Text("the in\nthere\n" * 30)
    written(tmp_path / "t.txt", text.characters)
    save_checkpoint(of_tokens / "ckpt.npz", model, tokenizer, {
        "settings": {"data": str(tmp_path / "t.txt")}, "text": text.digest})
    numbers, *_ = scored(capsys, of_tokens, tmp_path / "t.txt")
    train, _ = map(tokenizer.encode, text.parts())
    counted = data.ngram_losses(train, tokenizer.encode(text.characters), 300)
    assert [numbers[f"counted {name}"] for name in ("unigram", "bigram", "5-gram")] == [
        pytest.approx(counted[n], abs=1e-3) for n in (0, 1, 4)]
