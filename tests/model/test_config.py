"""The options of a model, and who computes them."""
import dataclasses

import pytest

from minigrad import formulas
from model.config import (ACTIVATIONS, ALL, FILES, KERNEL, PAGE, TransformerConfig, option,
                          unknown_options)
from model.options import flag, problems


@dataclasses.dataclass
class Options:
    window: int = option(0, "keys that a query sees", (KERNEL,), at_least=0)
    shape: str = option("round", "of it", choices={"round": (), "square": (PAGE, FILES)})
    new: bool = option(False, "nobody else has it")


@dataclasses.dataclass
class Undeclared(Options):
    other: int = flag(0, "who computes it is not said")


@pytest.mark.parametrize("options, implementer, unknown", [
    (Options(), KERNEL, []),
    (Options(window=3), KERNEL, []),
    (Options(window=3, new=True), PAGE, ["the option window", "the option new"]),
    (Options(shape="square"), KERNEL, ["shape square"]),
    (Options(shape="square"), FILES, []),
    (Undeclared(), KERNEL, ["the option other"])])
def test_unknown_options_are_those_that_somebody_does_not_compute(options, implementer, unknown):
    assert unknown_options(options, implementer) == unknown


def test_option_is_checked_as_any_flag():
    assert problems(Options(window=-1, shape="flat")) == [
        "window is at least 0, not -1", "shape is round or square, not flat"]


@pytest.mark.parametrize("field", dataclasses.fields(TransformerConfig), ids=lambda f: f.name)
def test_each_option_of_a_transformer_and_each_choice_of_it_is_known_to_all(field):
    known_to = field.metadata["known_to"]
    if field.metadata["choices"]:
        assert known_to == dict.fromkeys(field.metadata["choices"], ALL)
    else:
        assert known_to == ALL


def test_ACTIVATIONS_are_numbered_as_those_of_kernels():
    assert tuple(ACTIVATIONS) == (*formulas.ACTIVATIONS, "swiglu")
