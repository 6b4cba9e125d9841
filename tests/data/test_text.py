"""One text: its characters, and their ids in two parts; what it repeats."""
import hashlib

import numpy as np
import pytest

import data
from data import Text, digest, read_text, repetition_warning, split
from data.tokenizer import CharTokenizer

WORDS = "to be or not to be, that is the question\n" * 20
LANTERN = read_text("lantern")


@pytest.mark.parametrize("tokenizer", [
    None, CharTokenizer.of("".join(sorted(set(WORDS + "XYZ"), reverse=True)))])
def test_a_text_is_its_characters_and_their_ids_in_two_parts(tokenizer):
    text = Text(WORDS, tokenizer=tokenizer)
    train, val = text.parts()
    assert train + val == WORDS
    assert len(text) == len(WORDS)
    assert len(val) == len(WORDS) // 10
    assert text.tokenizer.decode(text.train) == train
    assert text.tokenizer.decode(text.val) == val
    assert tokenizer in (None, text.tokenizer)
    assert text.digest == digest(WORDS)


def test_digest_tells_texts_apart_that_differ_in_half_surrogates():
    halves = ["a", "a\ud800", "a\ud801", "a\udc00", "a?", "a\ufffd"]
    assert len({digest(text) for text in halves}) == len(halves)


def test_different_ids_of_both_parts_are_counted_and_not_those_of_the_tokenizer():
    text = Text(50 * "ab" + "c", tokenizer=CharTokenizer("abcxyz"))
    assert "c" not in text.parts()[0]
    assert text.different == 3


def test_a_text_is_read_once_however_much_is_asked_of_it(tmp_path, monkeypatch):
    (tmp_path / "t.txt").write_text(WORDS)
    text = Text.read(str(tmp_path / "t.txt"))
    (tmp_path / "t.txt").unlink()
    monkeypatch.setattr(data.text, "CharTokenizer", None)
    assert text.name.endswith("t.txt")
    assert text.parts()[0]
    assert text.windows(8)[0].size
    assert text.digest == hashlib.sha256(WORDS.encode()).hexdigest()


def test_a_batch_is_from_the_training_part_and_windows_are_from_the_other():
    text = Text("a" * 900 + "b" * 100)
    x, y = data.random_batch(text.train, 5, 7, np.random.default_rng(0))
    assert x.shape == y.shape == (5, 7)
    assert not x.any()
    assert not y.any()
    x, y = text.windows(7)
    assert x.all()
    assert len(x) == 15
    assert len(text.windows(7, count=4)[0]) == 4


def test_problems_of_one_character_and_none_where_each_part_has_a_window():
    said, = Text("a" * 900).problems(8)
    assert "the text has one character only, 'a', over and over" in said
    assert Text(WORDS).problems(8) == Text("to be or n" * 9).problems(block_size=8) == []


@pytest.mark.parametrize("train, val, remedy", [
    (90, 10, "use --block_size 9 or less, or a longer text"),
    (576, 64, "use --block_size 63 or less, or a longer text"), (9, 1, "use a longer text"),
    (8, 100, "use --block_size 7 or less, or a longer text")])
def test_problems_of_a_text_of_which_a_part_is_shorter_than_a_window(train, val, remedy):
    text = Text("ab" * 1000)
    text.train = text.train[:train]
    text.val = text.val[:val]
    assert text.problems(64) == [
        f"--block_size 64 needs 65 characters in each part of the text, but {train} are for "
        f"training and {val} for validation; {remedy}"]


# Whether the validation text was seen in training

def percent(train_text, val_text):
    """How much of the validation text is repeated, as the warning says it; 0 without one."""
    warning = repetition_warning(train_text, val_text)
    return 0 if warning is None else int(warning.partition("% of the validation text")[0])


def test_a_text_pasted_twice_gets_a_warning_and_ordinary_ones_and_random_letters_none():
    letters = "".join(np.random.default_rng(0).choice(list("ab"), size=20_000))
    for text in (LANTERN, letters):
        assert repetition_warning(*split(text)) is None
    assert repetition_warning(*split(LANTERN * 2)) == (
        "100% of the validation text (the last part of the text) stands word for word in the "
        "training text too, so the validation loss will look better than it is; remove the "
        "repetitions")


def test_the_share_is_about_what_was_repeated_but_for_the_end_after_the_last_whole_probe():
    train, val = split(LANTERN)
    for share in (0.1, 0.5, 0.8):
        repeated = int(share * len(val))
        assert pytest.approx(100 * share, abs=2) == percent(
            train, train[1000:1000 + repeated] + val[repeated:])
    assert percent("x" * 500, "x" * 50 + "y" * 49) == 100
    assert percent("x" * 500, "x" * 49) == 0
