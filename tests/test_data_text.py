"""One text: its characters, and their ids in two parts."""
import hashlib

import numpy as np
import pytest

import data
from data import Text, TextError

WORDS = "to be or not to be, that is the question\n" * 20


def test_a_text_is_its_characters_and_their_ids_in_two_parts():
    text = Text(WORDS)
    train, val = text.parts()
    assert train + val == WORDS and len(text) == len(WORDS) and len(val) == len(WORDS) // 10
    assert text.tokenizer.decode(text.train) == train and text.tokenizer.decode(text.val) == val


def test_a_text_is_read_once_however_much_is_asked_of_it(tmp_path, monkeypatch):
    (tmp_path / "t.txt").write_text(WORDS)
    text = Text.read(str(tmp_path / "t.txt"))
    (tmp_path / "t.txt").unlink()
    monkeypatch.setattr(data.text, "CharTokenizer", None)
    assert text.name.endswith("t.txt") and text.parts()[0] and text.windows(8)[0].size
    assert text.digest == hashlib.sha256(WORDS.encode()).hexdigest()


def test_a_batch_is_from_the_training_part_and_windows_are_from_the_other():
    text = Text("a" * 900 + "b" * 100)
    x, y = text.batch(5, 7, np.random.default_rng(0))
    assert x.shape == y.shape == (5, 7) and not x.any() and not y.any()
    x, y = text.windows(7)
    assert x.all() and len(x) == 15 and len(text.windows(7, wanted=4)[0]) == 4


@pytest.mark.parametrize("characters, block_size, says", [
    ("ab" * 40, 8, "--block_size 8 needs 9 characters in each part of the text"),
    ("a" * 900, 8, "the text has one character only, 'a', over and over")])
def test_a_text_that_nothing_can_be_learnt_from_is_refused(characters, block_size, says):
    with pytest.raises(TextError, match=says):
        Text(characters).check(block_size)
    Text(WORDS).check(block_size)
