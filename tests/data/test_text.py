"""One text: its characters, and their ids in two parts."""
import hashlib

import numpy as np
import pytest

import data
from data import Text, TextError, digest
from data.tokenizer import CharTokenizer

WORDS = "to be or not to be, that is the question\n" * 20


def test_a_text_is_its_characters_and_their_ids_in_two_parts():
    text = Text(WORDS)
    train, val = text.parts()
    assert train + val == WORDS and len(text) == len(WORDS) and len(val) == len(WORDS) // 10
    assert text.tokenizer.decode(text.train) == train and text.tokenizer.decode(text.val) == val


def test_a_text_may_have_the_ids_of_another_tokenizer():
    tokenizer = CharTokenizer.of("".join(sorted(set(WORDS + "XYZ"), reverse=True)))
    text = Text(WORDS, tokenizer=tokenizer)
    assert text.tokenizer is tokenizer and text.digest == Text(WORDS).digest == digest(WORDS)
    assert np.array_equal(text.train, tokenizer.encode(text.parts()[0]))
    assert np.array_equal(text.val, tokenizer.encode(text.parts()[1]))


def test_different_ids_of_both_parts_are_counted_and_not_those_of_the_tokenizer():
    text = Text(50 * "ab" + "c", tokenizer=CharTokenizer("abcxyz"))
    assert "c" not in text.parts()[0] and text.different == 3


def test_a_text_is_read_once_however_much_is_asked_of_it(tmp_path, monkeypatch):
    (tmp_path / "t.txt").write_text(WORDS)
    text = Text.read(str(tmp_path / "t.txt"))
    (tmp_path / "t.txt").unlink()
    monkeypatch.setattr(data.text, "CharTokenizer", None)
    assert text.name.endswith("t.txt") and text.parts()[0] and text.windows(8)[0].size
    assert text.digest == hashlib.sha256(WORDS.encode()).hexdigest()


def test_a_batch_is_from_the_training_part_and_windows_are_from_the_other():
    text = Text("a" * 900 + "b" * 100)
    x, y = data.random_batch(text.train, 5, 7, np.random.default_rng(0))
    assert x.shape == y.shape == (5, 7) and not x.any() and not y.any()
    x, y = text.windows(7)
    assert x.all() and len(x) == 15 and len(text.windows(7, wanted=4)[0]) == 4


def test_a_text_of_one_character_is_refused():
    with pytest.raises(TextError, match="the text has one character only, 'a', over and over"):
        Text("a" * 900).check(8)
    Text(WORDS).check(8)


def test_one_window_in_each_part_is_enough():
    Text("to be or n" * 9).check(block_size=8)


@pytest.mark.parametrize("length, message", [
    (100, "--block_size 64 needs 65 characters in each part of the text, but 90 are for training "
          "and 10 for validation; use --block_size 9 or less, or a longer text"),
    (640, "--block_size 64 needs 65 characters in each part of the text, but 576 are for training "
          "and 64 for validation; use --block_size 63 or less, or a longer text"),
    (10, "--block_size 64 needs 65 characters in each part of the text, but 9 are for training "
         "and 1 for validation; use a longer text")])
def test_a_text_shorter_than_a_window_is_refused_with_what_would_do(length, message):
    with pytest.raises(TextError) as caught:
        Text("ab" * (length // 2)).check(block_size=64)
    assert str(caught.value) == message


def test_a_training_part_shorter_than_a_window_is_refused_too():
    text = Text("ab" * 500)
    text.train = text.train[:8]
    with pytest.raises(TextError, match="8 are for training .*; use --block_size 7 or less"):
        text.check(block_size=8)
