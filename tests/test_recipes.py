"""Recipes: whole settings by name, what stands beside them, and how they follow the text."""
import re
import shlex

import pytest

from model.flags import Parser
from model.recipes import GPT2, MODERN, RECIPES, completed, told
from model.settings import RECIPES as NAMES
from model.settings import Settings

BUILT_IN = 1_137_238        # characters of the plays


def test_every_name_that_the_flag_takes_is_a_recipe_of_the_same_settings():
    assert tuple(RECIPES) == NAMES and list(MODERN) == [name for name in MODERN if name in GPT2]
    for name in NAMES:
        s = Settings(**completed({"recipe": name}, BUILT_IN))
        assert s.problems() == s.warnings() == [] and s.recipe == name


def test_what_is_given_stands_and_all_else_is_the_recipes():
    s = Settings(**completed({"recipe": "gpt2", "n_layer": 2, "tied": False}, BUILT_IN))
    assert (s.n_layer, s.tied, s.position, s.minutes) == (2, False, "learned", 3.0)
    assert Settings(**completed({}, BUILT_IN)) == Settings(**MODERN)


def test_steps_that_are_given_end_a_run_without_a_clock_unless_that_is_given_too():
    assert completed({"max_iters": 7}, BUILT_IN)["minutes"] is None
    assert completed({"max_iters": 7, "minutes": 1.0}, BUILT_IN)["minutes"] == 1.0
    assert completed({}, BUILT_IN)["minutes"] == 3.0


@pytest.mark.parametrize("given", [{}, {"recipe": "gpt2"}, {"max_iters": 7, "n_embd": 64},
                                   {"minutes": 1.5, "max_iters": 9, "qk_norm": False}], ids=str)
def test_a_recipe_is_told_in_full_as_flags_that_give_the_same_run(given):
    s = Settings(**completed(given, BUILT_IN))
    said = told(s, BUILT_IN)
    assert all(len(line) <= 100 for line in said.splitlines())
    _, *flags = shlex.split(said.replace("but for", ""))
    again = Parser("train.py", "", Settings).given(["--recipe", s.recipe, *flags])
    assert Settings(**completed(again, BUILT_IN)) == s
    assert ("but for" in said) == bool(given.keys() - {"recipe"})
    for name in given.keys() - {"recipe"}:
        assert re.search(rf"(?s)but for .*--(no-)?{name}\b", said)
