"""Recipes: whole settings by name, what stands beside them, and how they follow the text."""
import math
import re
import shlex

import pytest

from data import Text
from model.command import Parser
from model.settings import (GPT2, LEAST_STEPS, MODERN, RECIPES, RECIPE_NAMES as NAMES, Settings,
                            completed, told)

BUILT_IN = 1_137_238        # characters of the plays


def test_every_name_that_the_flag_takes_is_a_recipe_of_the_same_settings():
    assert tuple(RECIPES) == NAMES and list(MODERN) == [name for name in MODERN if name in GPT2]
    for name in NAMES:
        s = Settings(**completed({"recipe": name}, BUILT_IN))
        assert s.problems() == s.warnings() == [] and s.recipe == name


def test_what_is_given_stands_and_all_else_is_the_recipes():
    s = Settings(**completed({"recipe": "gpt2", "n_layer": 2, "bias": True}, BUILT_IN))
    assert (s.n_layer, s.bias, s.position, s.minutes) == (2, True, "learned", 3.0)
    s = Settings(**completed({}, BUILT_IN))
    assert vars(s) | {"dropout": 0.0, "ngram_dropout": 0.5} == vars(Settings(**MODERN, minutes=3.0))


@pytest.mark.parametrize("given, characters, minutes, max_iters", [
    ({}, BUILT_IN, 3.0, None), ({"recipe": "gpt2"}, 100, 3.0, None), ({}, 20_000, 3.0, 176),
    ({}, 3_000, 3.0, 106),
    ({"batch_size": 16}, 20_000, 3.0, 88), ({"max_iters": 7}, BUILT_IN, None, 7),
    ({"max_iters": 7, "minutes": 1.0}, BUILT_IN, 1.0, 7), ({"minutes": 9.0}, 20_000, 9.0, None)])
def test_a_run_ends_as_it_is_told_or_by_the_clock_and_before_a_short_text_was_read_too_often(
        given, characters, minutes, max_iters):
    chosen = completed(given, characters)
    assert (chosen["minutes"], chosen["max_iters"]) == (minutes, max_iters)


@pytest.mark.parametrize("given", [
    {"batch_size": 0}, {"minutes": math.nan}, {"minutes": -1.0}, {"minutes": math.inf},
    {"max_iters": -1}, {"recipe": "modem"}, {"block_size": -3, "minutes": 1e308}], ids=str)
def test_settings_that_cannot_work_are_left_for_their_answer(given):
    for characters in (0, 1, 1_000, BUILT_IN):
        problem, = Settings(**completed(given, characters)).problems()
        assert problem.startswith(f"--{next(iter(given))} is ")


@pytest.mark.parametrize("characters, minutes, dropout, ngram_dropout", [
    (20_000_000, 3.0, 0.0, 0.1), (4_000_000, 3.0, 0.0, 0.28), (BUILT_IN, 1.0, 0.0, 0.31),
    (BUILT_IN, 3.0, 0.0, 0.5), (BUILT_IN, 6.0, 0.02, 0.57), (BUILT_IN // 2, 3.0, 0.05, 0.57),
    (BUILT_IN, 12.0, 0.05, 0.64), (300_000, 3.0, 0.09, 0.63), (20_000, 3.0, 0.15, 0.69),
    (1_000, 30.0, 0.15, 0.69), (5_000_000, 60.0, 0.0, 0.65)])
def test_more_is_dropped_the_more_often_the_text_is_read_and_the_shorter_it_is(
        characters, minutes, dropout, ngram_dropout):
    chosen = completed({"minutes": minutes}, characters)
    assert chosen["dropout"] == pytest.approx(dropout, abs=0.005)
    assert chosen["ngram_dropout"] == pytest.approx(ngram_dropout, abs=0.005)
    by_steps = round(minutes * 1_000_000 / 2048)
    if characters > 10_000:
        assert completed({"max_iters": by_steps}, characters)["dropout"] == chosen["dropout"]
    fixed = completed({"minutes": minutes, "recipe": "gpt2"}, characters)
    assert fixed["dropout"] == GPT2["dropout"]


@pytest.mark.parametrize("characters", [90, 200, 350, 1_000, 2_570, 2_580, 10_000, 20_000, 160_000])
def test_a_short_text_holds_the_block_and_gets_enough_steps_to_warm_up_and_be_judged(characters):
    text = "to be or not to be" * (characters // 18 + 1)
    s = Settings(**completed({}, characters))
    assert s.problems_with(Text(text[:characters])) == []
    assert s.block_size == 256 or characters // 10 <= 2 * s.block_size
    assert s.steps >= LEAST_STEPS and s.characters <= 2048
    assert s.characters == 2048 or s.steps < 2 * LEAST_STEPS
    assert 20 < s.warmup_iters <= s.steps / 4 and s.steps / s.eval_interval >= 10


@pytest.mark.parametrize("given, characters, warmup_iters, eval_interval", [
    ({"max_iters": 0}, BUILT_IN, 0, 100), ({"max_iters": 27}, BUILT_IN, 6, 100),
    ({"max_iters": 160}, BUILT_IN, 40, 100), ({"max_iters": 27}, 3_000, 6, 2),
    ({"minutes": 0.1}, 3_000, 40, 100), ({"max_iters": 9_000}, 3_000, 40, 100),
    ({"max_iters": 27, "warmup_iters": 20, "eval_interval": 50}, 3_000, 20, 50),
    ({"max_iters": 27, "recipe": "gpt2"}, 3_000, 100, 200)], ids=str)
def test_a_warm_up_is_a_quarter_of_the_steps_at_most_and_a_short_text_is_evaluated_often(
        given, characters, warmup_iters, eval_interval):
    s = Settings(**completed(given, characters))
    assert (s.warmup_iters, s.eval_interval) == (warmup_iters, eval_interval)


@pytest.mark.parametrize("given", [{}, {"recipe": "gpt2"}, {"max_iters": 7, "n_embd": 64},
                                   {"minutes": 1.5, "max_iters": 9, "qk_norm": False},
                                   {"n_kv_head": 2, "norm_eps": 1e-6, "attention_bias": True,
                                    "mlp_bias": False, "tied": False}], ids=str)
def test_a_recipe_is_told_in_full_as_flags_that_give_the_same_run(given):
    s = Settings(**completed(given, BUILT_IN))
    said = told(s, BUILT_IN)
    assert all(len(line) <= 100 for line in said.splitlines())
    _, *flags = shlex.split(said.replace("but for", ""))
    again = Parser("train.py", "", Settings).given(["--recipe", s.recipe, *flags])
    assert Settings(**completed(again, BUILT_IN)) == s
    assert ("but for" in said) == bool(given.keys() - {"recipe", "minutes", "max_iters"})
    for name in given.keys() - {"recipe", "minutes", "max_iters"}:
        assert re.search(rf"(?s)but for .*--(no-)?{name}\b", said)


def test_of_a_run_that_begins_with_a_model_each_flag_is_told_once_and_which_are_the_model_s():
    given = dict(init_from="/a/ckpt.npz", n_layer=30, norm="rms", tied=False, dropout=0.1)
    s = Settings(**completed(given, BUILT_IN))
    of_recipe, of_model = told(s, BUILT_IN).split("and of the model ")
    assert "--dropout 0.1" in of_recipe.split("but for")[1]
    assert "--n_layer 30 " in of_model and "--no-tied" in of_model and "--norm rms" in of_model
    names = re.findall(r"--(?:no-)?(\w+)", of_recipe.split("but for")[0] + of_model)
    assert len(names) == len(set(names)) and set(names) >= {*GPT2} - {"min_lr"}
    assert all(len(line) <= 100 for line in told(s, BUILT_IN).splitlines())
