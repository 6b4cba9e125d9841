"""What the stations say beside their tables is so: angles, gradients, counts, names of the code."""
import numpy as np
import pytest

import minigrad as mg
from minigrad import Tensor
from model.settings import RECIPES
from model.config import TransformerConfig
from model.walk.published import WORDS
from model.walk.stations import STATIONS
from tests.kit import ROOT
from tests.model.walk.shown import EACH, texts, values
from tests.sources import defined_in


def degrees(x, y):
    """The angle between two rows."""
    return np.degrees(np.arccos(x @ y / np.sqrt((x @ x) * (y @ y))))


@EACH
def test_what_a_station_names_to_read_next_is_defined_in_that_file(n):
    name, file = STATIONS[n - 1].read.split(" in ")
    assert name in [*defined_in(ROOT / file)]


def test_each_station_has_a_short_name_of_its_own():
    names = [station.short for station in STATIONS]
    assert len(set(names)) == len(names) and max(map(len, names)) <= 10


@pytest.mark.parametrize("n, told, rows", [
    (1, "1.5 degrees", lambda: WORDS[1:3]), (1, "68 degrees", lambda: WORDS[4:6]),
    (11, "28 degrees", lambda: values(11, "A word and its place")[::2])])
def test_the_angles_between_rows_are_those_that_the_texts_tell(n, told, rows):
    x, y = rows()
    assert told in " ".join(texts(n))
    assert f"{degrees(x, y):.{'1' if '.' in told else '0'}f} degrees" == told


def test_a_word_and_its_place_add_up():
    word, place, both = values(11, "A word and its place")
    assert np.array_equal(word + place, both)
    assert np.array_equal(place, values(11, "Sines and cosines of the places")[3])


def test_what_grows_with_D_is_the_unscaled_score_alone():
    std, = values(3, "How far apart the scores are").T
    unscaled, by_root, by_D = values(3, "The largest weight of six, averaged over 1,000 queries").T
    assert np.allclose(std, [2, 8, 32], rtol=0.02) and (np.diff(unscaled) > 0.05).all()
    assert np.ptp(by_root) < 0.03 and (np.diff(by_D) < 0).all() and by_D[-1] < 0.175


def test_the_gradient_of_softmax_dies_with_D_unless_scores_are_scaled():
    unscaled, scaled = values(3, "`y (1 - y)` for the largest weight, the median over 1,000 "
                                 "queries").T
    assert [f"{x:.2g}" for x in unscaled] == ["0.23", "0.031", "5.4e-07"]
    assert [f"{x:.2f}" for x in scaled] == ["0.23", "0.23", "0.23"]
    scores = Tensor(np.array([0.3, -0.1, 1.2]), requires_grad=True)
    weights = mg.softmax(scores)
    weights[2].backward()
    assert np.isclose(scores.grad[2], weights.data[2] * (1 - weights.data[2]))


def test_dividing_the_weights_that_are_left_by_their_sum_is_no_mask_if_none_is_left():
    hidden = mg.softmax(Tensor(np.array([0.0, 800.0]))).data * [1, 0]
    with np.errstate(invalid="ignore"):
        assert np.isnan(hidden / hidden.sum()).all()
    assert list(mg.softmax(Tensor(np.array([0.0, -np.inf]))).data) == [1, 0]


def test_the_mlps_of_gpt_3_have_the_two_thirds_that_attention_has_not():
    assert "116 billion" in " ".join(texts(7))
    of_attention = values(7, "Numbers in one head, in a layer, in all layers")[4, 2]
    assert np.allclose([2 * of_attention, 3 * of_attention], [116e9, 175e9], rtol=0.01)


def test_the_block_of_station_13_is_that_of_the_recipe_gpt2_and_modern_has_another():
    kinds = {name: getattr(TransformerConfig, name) for name in ("norm", "activation", "position")}
    assert kinds.items() <= RECIPES["gpt2"].items()
    assert not kinds.items() & RECIPES["modern"].items()
    assert RECIPES["modern"]["position"] == "rotary"
    assert (RECIPES["gpt2"]["n_layer"], RECIPES["gpt2"]["n_embd"]) == (4, 128)
