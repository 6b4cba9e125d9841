import numpy as np
import pytest

from data import read_text, repetition_warning, split


@pytest.fixture(scope="module")
def lantern():
    return read_text("lantern")


def percent(train_text, val_text):
    """How much of the validation text is repeated, as the warning says it; 0 without one."""
    warning = repetition_warning(train_text, val_text)
    return 0 if warning is None else int(warning.partition("% of the validation text")[0])


def test_an_ordinary_text_gets_no_warning(lantern):
    assert repetition_warning(*split(lantern)) is None


def test_a_text_pasted_twice_gets_a_warning(lantern):
    assert repetition_warning(*split(lantern * 2)) == (
        "100% of the validation text (the last part of the text) stands word for word in the "
        "training text too, so the validation loss will look better than it is; remove the "
        "repetitions")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_the_share_is_about_what_was_repeated(lantern, share):
    train, val = split(lantern)
    repeated = int(share * len(val))
    measured = percent(train, train[1000:1000 + repeated] + val[repeated:])
    assert measured == pytest.approx(100 * share, abs=2)


def test_what_follows_the_last_whole_probe_is_not_looked_at():
    assert percent("x" * 500, "x" * 50 + "y" * 49) == 100
    assert percent("x" * 500, "x" * 49) == 0


def test_random_letters_do_not_repeat():
    letters = "".join(np.random.default_rng(0).choice(list("ab"), size=20_000))
    assert percent(*split(letters)) == 0
