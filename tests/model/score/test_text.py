"""The loss of a text: each character's, from the window that sampling would predict it from; and
what is said of it."""
import functools
import math
import re

import numpy as np
import pytest
from tqdm import tqdm

import data
from model import (CharTokenizer, Transformer, TransformerConfig, load_checkpoint, sample,
                   save_checkpoint)
from model.convert.tokens import TokenTokenizer
from model.generation import Reader
from model.score.text import text_losses, training_text
from tests.kit import Terminal, memory, opinionated, refusal, written
from tests.token_files import of_words

pytestmark = pytest.mark.late


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
        assert losses.shape == (N - 1,)
        assert losses.dtype == np.float64
        assert np.allclose(losses, losses_one_by_one(model, ids, slide), atol=1e-4)
    for few in ("AT_ONCE", "LOGITS"):       # windows that go through at once
        monkeypatch.setattr(f"model.score.windows.{few}", 1)
        assert np.allclose(text_losses(model, ids, slide), losses, atol=1e-6)


@pytest.mark.parametrize("bar", [False, True])
def test_text_losses_shows_a_bar_if_asked_for_and_takes_it_away_again(monkeypatch, bar):
    told = Terminal()
    monkeypatch.setattr("model.score.text.tqdm", functools.partial(tqdm, file=told))
    model = Transformer(TransformerConfig(13, 8, n_layer=1, n_head=2, n_embd=8))
    text_losses(model, np.arange(13), bar=bar)
    assert ("scoring" in told.getvalue()) == bar
    assert not told.getvalue().rpartition("\r")[2].strip() and "\n" not in told.getvalue()


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


TEXT = "the lazy dog runs on\nby the river"


@pytest.fixture
def scored(capsys, tmp_path):
    """Score a text: the numbers by their words, and what is printed."""
    def score(folder, text, *flags):
        path = written(tmp_path / "t.txt", text)
        sample.main(["--out_dir", str(folder), "--score", str(path), *flags])
        out, err = capsys.readouterr()
        found = re.findall(r"^    ([0-9.]+)  (.*)$", out, re.MULTILINE)
        return {words: float(number) for number, words in found}, out, err
    return score


def nearly(numbers, digit=4):
    """The numbers, printed with so many digits."""
    return pytest.approx(numbers, abs=0.1 ** digit)


def counted_in(train, ids, vocab_size):
    """What a score shows of n-grams that are counted."""
    found = data.ngram_losses(train, ids, vocab_size)
    names = ("unigram", "bigram", "trigram", "4-gram", "5-gram")
    return {f"counted {name}": nearly(loss, 3) for name, loss in zip(names, found)}


def test_a_text_is_scored_beside_counted_n_grams(trained, best, scored, small_text):
    model, tokenizer = best
    ids = tokenizer.encode(TEXT)
    train, _ = data.split(tokenizer.encode(data.read_text(str(small_text))))
    for slide in (False, True):
        loss = text_losses(model, ids, slide).mean()
        numbers, out, err = scored(trained, TEXT, *["--slide"] * slide)
        assert numbers == counted_in(train, ids, tokenizer.vocab_size) | {
            "nats a character": nearly(loss), "bits a character": nearly(loss / math.log(2)),
            "perplexity": pytest.approx(math.exp(loss), rel=1e-4),
            "this model  <--": nearly(loss, 3)}
        assert f"{len(TEXT)} characters" in out
        assert "\nnats a character, beside n-grams counted on what the model was" in out
        assert err == ""


def test_unknown_characters_are_left_out_of_a_score_if_asked_for(trained, scored):
    numbers, out, _ = scored(trained, TEXT)
    assert scored(trained, TEXT, "--skip_unknown") == (numbers, out, "")
    more = "É" + TEXT.replace("r", "ZrÉ") + "1234\x1b"
    assert scored(trained, more, "--skip_unknown") == (
        numbers, out, "left out 12 of 45 characters, which the model does not know: 'É' (4), "
                      "'Z' (3), '\\x1b' (1), '1' (1), '2' (1) and 2 more\n")


def test_a_score_of_what_was_trained_on_says_so(trained, scored, small_text):
    train, val = data.split(small_text.read_text(encoding="utf-8"))
    for text, known in ((train + val, True), (train[50:900], True), (val, False)):
        *_, err = scored(trained, text)
        assert ("was trained on" in err) == known


def test_without_the_training_text_the_score_stands_alone_and_says_why(best, scored, tmp_path):
    for training, why in (
            ({}, "does not say which text"),
            ({"settings": {}, "text": ""}, "does not say which text"),
            ({"settings": {"data": "lantern"}}, "does not say which text"),
            ({"settings": {"data": str(tmp_path / "gone")}, "text": ""}, "gone"),
            ({"settings": {"data": "a\0b\x1b[2J"}, "text": ""}, r"a\x00b\x1b[2J"),
            ({"settings": {"data": str(tmp_path / "t.txt")}, "text": "0"}, "is no longer the one"),
    ):
        save_checkpoint(tmp_path / "ckpt.npz", *best, training)
        numbers, out, err = scored(tmp_path, "the dog")
        assert set(numbers) == {"nats a character", "bits a character", "perplexity"}
        assert "without counted n-grams" in err
        assert why in err
        assert "counted" not in out


@pytest.mark.needs("convert")
@pytest.mark.parametrize("flags", [[], ["--skip_unknown"]])
def test_what_no_token_stands_for_is_refused_without_a_flag_that_would_not_help(scored, tmp_path,
                                                                                flags):
    model = Transformer(TransformerConfig(2, 32, n_layer=1, n_head=2, n_embd=16))
    save_checkpoint(tmp_path / "ckpt.npz", model, TokenTokenizer(of_words("a", "the")))
    with pytest.raises(SystemExit, match=r"cannot encode the text: [^;]*$"):
        scored(tmp_path, "other", *flags)


@pytest.mark.needs("convert")
def test_a_text_of_tokens_is_scored_in_nats_a_token_and_bits_a_byte(of_tokens, scored, tmp_path):
    text = "the inré the 🙂"
    model, tokenizer, *_ = load_checkpoint(of_tokens / "ckpt.npz")
    ids = tokenizer.encode(text)
    losses = text_losses(model, ids)
    numbers, out, err = scored(of_tokens, text, "--skip_unknown")
    first = tokenizer.decode(ids[:1])
    assert first == ("" if tokenizer.encode("").size else "t")
    bits = losses.sum() / math.log(2)
    assert numbers == {
        "nats a token": nearly(losses.mean()),
        "bits a byte": nearly(bits / (len(text.encode()) - len(first))),
        "bits a character": nearly(bits / (len(text) - len(first))),
        "perplexity": pytest.approx(math.exp(losses.mean()), rel=1e-4)}
    assert f"{len(text)} characters in {len(ids)} tokens, each but the first predicted" in out
    assert "without counted n-grams beside it, because the checkpoint does not say which" in err
    text = data.Text("the in\nthere\n" * 30)
    save_checkpoint(of_tokens / "ckpt.npz", model, tokenizer, {
        "settings": {"data": str(tmp_path / "t.txt")}, "text": text.digest})
    numbers, *_ = scored(of_tokens, text.characters)
    train, _ = map(tokenizer.encode, text.parts())
    assert counted_in(train, tokenizer.encode(text.characters), 300).items() <= numbers.items()
