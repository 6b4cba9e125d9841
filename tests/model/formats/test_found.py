"""What readers of other programs' files answer with."""
import numpy as np

from model.formats.found import Lazy


def test_an_array_is_made_only_when_it_is_asked_for():
    made = []

    def ones():
        made.append("a")
        return np.ones(3)
    weights = Lazy({"a": ones})
    assert "a" in weights and "b" not in weights and list(weights) == ["a"] and len(weights) == 1
    assert not made
    assert weights["a"].sum() == 3 and made == ["a"]
