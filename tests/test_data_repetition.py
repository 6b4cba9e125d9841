import numpy as np
import pytest

from data import read_text, repeated_share, repetition_warning, split


@pytest.fixture(scope="module")
def lantern():
    return read_text("lantern")


def test_an_ordinary_text_gets_no_warning(lantern):
    assert repeated_share(*split(lantern)) == 0
    assert repetition_warning(*split(lantern)) is None


def test_a_text_pasted_twice_gets_a_warning(lantern):
    assert repeated_share(*split(lantern * 2)) == 1
    assert repetition_warning(*split(lantern * 2)) == (
        "100% of the validation text (the last part of the text) stands word for word in the "
        "training text too, so the validation loss will look better than it is; remove the "
        "repetitions")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_the_share_is_about_what_was_repeated(lantern, share):
    train, val = split(lantern)
    repeated = int(share * len(val))
    measured = repeated_share(train, train[1000:1000 + repeated] + val[repeated:])
    assert measured == pytest.approx(share, abs=0.02)


def test_what_follows_the_last_whole_probe_is_not_looked_at():
    assert repeated_share("x" * 500, "x" * 50 + "y" * 49) == 1
    assert repeated_share("x" * 500, "x" * 49) == 0


def test_random_letters_do_not_repeat():
    letters = "".join(np.random.default_rng(0).choice(list("ab"), size=20_000))
    assert repeated_share(*split(letters)) == 0
