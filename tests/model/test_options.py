"""Options as fields of dataclasses, and their checks."""
import dataclasses
import math

import numpy as np
import pytest

from model.options import Words, flag, problems


@dataclasses.dataclass
class Checked:
    size: int = flag(3, "at least 1", at_least=1)
    share: float = flag(0.5, "", above=0, at_most=1)
    beta: float = flag(0.5, "", at_least=0, below=1)
    clip: float = flag(1.0, "", at_least=0, finite=False)
    rate: float = flag(None, "", at_least=0)
    fast: bool = flag(False, "")
    kind: str = flag("one", "", choices=("one", "two", "three"))
    text: str = flag("", "")
    data: Words = flag(("a",), "")


@pytest.mark.parametrize("name, value, says", [
    ("size", 0, "is at least 1, not 0"), ("size", 2.0, "takes a whole number, not 2.0"),
    ("size", True, "takes a whole number, not True"), ("size", np.int64(1), None),
    ("size", "3", "takes a whole number, not '3'"),
    ("size", None, "takes a whole number, not None"),
    ("share", 0, "is above 0 and at most 1, not 0"), ("share", 1, None),
    ("share", math.nan, "is above 0 and at most 1, not nan"),
    ("beta", 1.0, "is at least 0 and below 1, not 1.0"), ("beta", np.float32(0), None),
    ("beta", "x", "takes a number, not 'x'"), ("beta", False, "takes a number, not False"),
    ("rate", math.inf, "is a finite number, not inf"), ("rate", None, None),
    ("rate", 10 ** 400, f"takes a number, not 1{79 * '0'}..."),
    ("rate", -math.inf, "is at least 0, not -inf"), ("clip", math.inf, None),
    ("fast", 1, "takes True or False, not 1"), ("fast", True, None),
    ("size", "x" * 10_000, f"takes a whole number, not '{'x' * 79}..."),
    ("kind", "x" * 10_000, f"is one, two or three, not {'x' * 80}..."),
    ("kind", "three", None), ("kind", "six", "is one, two or three, not six"),
    ("kind", "tow", "is one, two or three, not tow; did you mean two?"),
    ("kind", " ", "is one, two or three, not ' '"),
    ("text", 3, "takes a text, not 3"), ("text", "anything", None), ("text", "", None),
    ("data", ["a"], "takes texts, not ['a']"),
    ("data", ("a", ""), "takes a value, and an empty one was given")])
def test_a_value_is_held_to_the_type_the_bounds_and_the_choices_of_its_setting(name, value, says):
    assert problems(Checked(**{name: value})) == ([f"{name} {says}"] if says else [])
