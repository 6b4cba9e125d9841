"""Settings of a run: what cannot work, the recipes, and how flags, a run or a model resolve."""
import dataclasses
import math
import random
import re
import shlex

import pytest

import data
from model.checkpoint import BEST, LAST, PREVIOUS
from model.command import Parser
from model.folder import LOG
from model.settings import (GPT2, LEAST_STEPS, MODEL, MODERN, RECIPES, Settings, complete_settings,
                            describe_settings, resolve_fine_tuned, resolve_from_scratch,
                            resolve_resumed)
from model.config import TransformerConfig

BUILT_IN = 1_137_238        # characters of the plays


# Settings that cannot work; tests/test_refusals.py has the single ones


# Of each setting some values, of which some are impossible.
POSSIBLE = dict(
    n_layer=range(4), n_head=range(7), n_embd=range(31), block_size=range(4),
    n_kv_head=[None, 0, 1, 2, 3], dropout=[0.0, 0.5, 1.0, math.nan],
    position=["learned", "rotary", "rope"], norm=["layer", "layer", "rms", "rms", "batch"],
    activation=["gelu", "gelu", "relu2", "relu2", "relu"], ngrams=[1, 1, 4, 4, 0])


def test_settings_have_a_problem_exactly_if_no_model_can_be_made_of_them():
    draw = random.Random(0)
    made = 0
    for _ in range(4000):
        s = Settings(**{name: draw.choice(values) for name, values in POSSIBLE.items()})
        try:
            s.model_config(vocab_size=5)
        except ValueError:
            assert s.problems(), s
        else:
            made += 1
            assert s.problems() == [], s
    assert made > 50


@pytest.mark.parametrize("C, H, position", [
    (30, 4, "learned"),
    (36, 4, "rotary"),
    (100, 7, "rotary"),
    (1, 9, "sinusoidal")])
def test_the_remedy_for_heads_works(C, H, position):
    says, = Settings(n_embd=C, n_head=H, position=position).problems()
    for taken in says.split("--n_embd ")[-1].split(" or "):
        assert not Settings(n_embd=int(taken), n_head=H, position=position).problems()


@pytest.mark.parametrize("given, says", [
    (dict(learning_rate=0.0), "at --learning_rate 0 nothing is learned"),
    (dict(learning_rate=1e3), "--learning_rate 1000 is far too high for such a model; 0.004 is "
                              "usual"),
    (dict(muon_lr=1e10, optimizer="muon"), "--muon_lr 1e+10 is far too high for such a model; 0.01 "
                                           "is usual"),
    (dict(muon_lr=1.0, optimizer="muon", recipe="gpt2"),
     "--muon_lr 1 is far too high for such a model; 0.02 is usual"),
    (dict(weight_decay=1e30), "a decay of 1e+30 times the learning rate takes all of a weight away "
                              "in a step; --weight_decay 0.1 is usual"),
    (dict(ngram_decay=250.0), "a decay of 250 times the learning rate takes all of a weight away "
                              "in a step; --ngram_decay 1 is usual"),
    (dict(ngram_decay=250.0, recipe="gpt2"), "a decay of 250 times the learning rate takes all of "
                                             "a weight away in a step; --ngram_decay 0.1 is usual"),
    (dict(min_lr=1e-2), "--min_lr 0.01 is above --learning_rate 0.004, so the rate rises at the "
                        "end")])
def test_a_setting_that_is_probably_a_mistake_is_warned_of(given, says):
    assert Settings(**given).problems() == []
    assert Settings(**given).warnings() == [says]


@pytest.mark.parametrize("given", [dict(learning_rate=0.0999), dict(muon_lr=1e10), dict(
    weight_decay=240.0), dict(muon_lr=0.99, optimizer="muon"), dict(min_lr=4e-3)], ids=str)
def test_a_setting_that_is_unusual_and_works_is_not_warned_of(given):
    assert Settings(**given).warnings() == []


# Recipes

@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_works_and_what_is_given_stands_beside_it(name):
    s = Settings(**complete_settings({"recipe": name}, BUILT_IN))
    assert s.problems() == s.warnings() == []
    assert s.recipe == name
    assert list(RECIPES[name]) == list(MODERN)
    assert (*RECIPES,) == Settings.__dataclass_fields__["recipe"].metadata["choices"]
    assert dataclasses.replace(s, n_layer=2, bias=True) == Settings(
        **complete_settings({"recipe": name, "n_layer": 2, "bias": True}, BUILT_IN))
    assert s.minutes == 3.0
    s = resolve_from_scratch({}, BUILT_IN)
    assert dataclasses.replace(s, dropout=0.0, ngram_dropout=0.5) == Settings(**MODERN, minutes=3.0)


@pytest.mark.parametrize("given, characters, minutes, max_iters", [
    ({}, BUILT_IN, 3.0, None),
    ({"recipe": "gpt2"}, 100, 3.0, None),
    ({}, 20_000, 3.0, 176),
    ({}, 3_000, 3.0, 106),
    ({"batch_size": 16}, 20_000, 3.0, 88),
    ({"max_iters": 7}, BUILT_IN, None, 7),
    ({"max_iters": 7, "minutes": 1.0}, BUILT_IN, 1.0, 7),
    ({"minutes": 9.0}, 20_000, 9.0, None)])
def test_a_run_ends_by_its_flags_or_the_clock(given, characters, minutes, max_iters):
    s = resolve_from_scratch(given, characters)
    assert (s.minutes, s.max_iters) == (minutes, max_iters)
    assert s.steps == (math.inf if max_iters is None else max_iters)


@pytest.mark.parametrize("given", [
    {"batch_size": 0}, {"minutes": math.nan}, {"minutes": -1.0}, {"minutes": math.inf},
    {"max_iters": -1}, {"recipe": "modem"}, {"block_size": -3, "minutes": 1e308}], ids=str)
def test_settings_that_cannot_work_are_left_for_their_answer(given):
    for characters in (0, 1, 1_000, BUILT_IN):
        problem, = Settings(**complete_settings(given, characters)).problems()
        assert problem.startswith(f"--{next(iter(given))} is ")


@pytest.mark.parametrize("characters, minutes, dropout, ngram_dropout", [
    (20_000_000, 3.0, 0.0, 0.0),
    (BUILT_IN, 1.0, 0.0, 0.0),
    (BUILT_IN, 2.0, 0.0, 0.31),
    (BUILT_IN, 3.0, 0.0, 0.5),
    (BUILT_IN, 6.0, 0.03, 0.5),
    (BUILT_IN // 2, 3.0, 0.05, 0.57),
    (BUILT_IN, 12.0, 0.05, 0.5),
    (BUILT_IN // 2, 12.0, 0.1, 0.57),
    (300_000, 3.0, 0.1, 0.64),
    (300_000, 12.0, 0.12, 0.64),
    (20_000, 3.0, 0.15, 0.7),
    (1_000, 30.0, 0.15, 0.7),
    (5_000_000, 60.0, 0.0, 0.5)])
def test_dropout_grows_with_the_passes_but_that_of_ngrams_not_with_the_time(
        characters, minutes, dropout, ngram_dropout):
    chosen = complete_settings({"minutes": minutes}, characters)
    assert (chosen["dropout"], chosen["ngram_dropout"]) == (dropout, ngram_dropout)
    windows = round(minutes * 1_000_000 / 256)
    if characters > 10_000:
        for batch in 8, 2:              # as many characters
            by_steps = {"max_iters": windows // batch, "batch_size": batch}
            assert complete_settings(by_steps, characters)["dropout"] == chosen["dropout"]
    assert GPT2["dropout"] == complete_settings(
        {"minutes": minutes, "recipe": "gpt2"}, characters)["dropout"]


@pytest.mark.parametrize("given, characters, vocabulary, ahead", [
    ({}, BUILT_IN, 62, 2),
    ({}, BUILT_IN, 0, 2),
    ({}, BUILT_IN, 256, 2),
    ({}, BUILT_IN, 257, 0),
    ({"ahead": 1}, BUILT_IN, 5_000, 1),
    ({}, 300_000, 62, 2),
    ({}, 299_999, 62, 0),
    ({"ahead": 1}, 20_000, 62, 1),
    ({"recipe": "gpt2"}, BUILT_IN, 62, 0),
    ({"recipe": "gpt2", "ahead": 3}, BUILT_IN, 62, 3)])
def test_a_run_looks_further_ahead_on_a_long_text_with_an_alphabet(given, characters, vocabulary,
                                                                   ahead):
    assert resolve_from_scratch(given, characters, vocabulary).ahead == ahead


@pytest.mark.parametrize("characters", [
    90, 200, 350, 1_000, 2_559, 2_560, 2_570, 2_580, 10_000, 20_000, 160_000])
def test_a_short_text_holds_the_block_and_gets_enough_steps_to_warm_up_and_be_judged(characters):
    text = "to be or not to be" * (characters // 18 + 1)
    s = Settings(**complete_settings({}, characters))
    assert data.Text(text[:characters]).problems(s.block_size) == []
    assert s.block_size == 256 or characters // 10 <= 2 * s.block_size
    assert s.steps >= LEAST_STEPS
    assert s.characters <= 2048
    assert s.characters == 2048 or s.steps <= 2 * LEAST_STEPS
    assert 20 < s.warmup_iters <= s.steps / 4
    assert s.steps / s.eval_interval >= 10


@pytest.mark.parametrize("given, characters, warmup_iters, eval_interval", [
    (dict(max_iters=0), BUILT_IN, 0, 100),
    (dict(max_iters=27), BUILT_IN, 6, 100),
    (dict(max_iters=160), BUILT_IN, 40, 100),
    (dict(max_iters=27), 3_000, 6, 2),
    (dict(minutes=0.1), 3_000, 40, 100),
    (dict(max_iters=9_000), 3_000, 40, 100),
    (dict(max_iters=27, warmup_iters=20, eval_interval=50), 3_000, 20, 50),
    (dict(max_iters=27, recipe="gpt2"), 3_000, 100, 200)], ids=str)
def test_a_short_run_warms_up_less(given, characters, warmup_iters, eval_interval):
    s = Settings(**complete_settings(given, characters))
    assert (s.warmup_iters, s.eval_interval) == (warmup_iters, eval_interval)


def test_the_help_of_out_dir_names_the_files_of_a_run():
    field, = [field for field in dataclasses.fields(Settings) if field.name == "out_dir"]
    named = re.findall(r"\w+\.\w+", field.metadata["help"])
    assert named == [BEST, LAST, PREVIOUS, LOG]


@pytest.mark.parametrize("given, n_layer, characters, interval", [
    (dict(max_iters=3), 4, 3_000, 1),
    (dict(max_iters=3), 16, 3_000, 25),
    (dict(max_iters=100), 16, 3_000, 25),
    (dict(max_iters=600), 16, 3_000, 60),
    (dict(max_iters=100, eval_interval=7), 16, 3_000, 7),
    (dict(max_iters=3), 16, BUILT_IN, 100)], ids=str)
def test_a_large_model_is_evaluated_less_often_in_a_short_run(given, n_layer, characters, interval):
    config = TransformerConfig(50_000, n_embd=512, n_layer=n_layer)     # 38 or 76 million
    s, _ = resolve_fine_tuned(given, config, characters)
    assert s.eval_interval == interval


@pytest.mark.parametrize("given, differ", [
    ({}, "minutes"),
    ({"recipe": "gpt2"}, "minutes"),
    ({"max_iters": 7, "n_embd": 64}, "n_embd ngram_dropout warmup_iters max_iters"),
    ({"minutes": 1.5, "max_iters": 9, "qk_norm": False},
     "qk_norm ngram_dropout warmup_iters minutes max_iters"),
    ({"n_kv_head": 2, "norm": "rms_gain"}, "norm n_kv_head minutes")], ids=str)
def test_describe_settings_in_flags_a_run_is_the_same_and_only_what_differs_is_named(given, differ):
    s = Settings(**complete_settings(given, BUILT_IN))
    said = describe_settings(s)
    assert all(len(line) <= 100 for line in said.splitlines())
    name, *flags = shlex.split(said.replace(", with", ""))
    again = Parser("train.py", "", Settings).parse(["--recipe", name, *flags])
    assert resolve_from_scratch(again, BUILT_IN) == s
    assert re.findall(r"--(?:no-)?(\w+)", said) == differ.split()


# A resumed run, and fine-tuning

EARLIER = Settings(**complete_settings(
    dict(recipe="gpt2", seed=5, minutes=3.0, max_iters=9, n_embd=64), characters=0))
CONFIG = TransformerConfig(9, block_size=32, n_layer=2, n_head=2, n_embd=8, n_inner=24, norm="rms",
                           dropout=0.2, ngrams=3, ngram_dropout=0.3)


@pytest.mark.parametrize("given, changed", [
    ({}, {}),
    (dict(learning_rate=1.0, n_embd=64, seed=5), dict(learning_rate=1.0)),
    (dict(max_iters=20), dict(max_iters=20, minutes=None)),
    (dict(minutes=2.0), dict(minutes=2.0, max_iters=None)),
    (dict(minutes=2.0, max_iters=7), dict(minutes=2.0, max_iters=7)),
    (dict(n_kv_head=4), dict(n_kv_head=4))], ids=str)
def test_resolve_resumed_keeps_the_settings_of_a_resumed_run_but_for_what_is_given(given, changed):
    assert resolve_resumed(given, EARLIER) == (dataclasses.replace(EARLIER, **changed), [])


@pytest.mark.parametrize("name, value", [
    ("recipe", "modern"),
    ("n_layer", 3),
    ("bias", True),
    ("n_kv_head", 1),
    ("block_size", 8),
    ("optimizer", "muon"),
    ("seed", 6),
    ("dropout", 0.5),
    ("position", "rotary"),
    ("norm", "rms"),
    ("ngrams", 2),
    ("ngram_dropout", 0.5)])
def test_a_resumed_run_cannot_become_another_one(name, value):
    s, (says,) = resolve_resumed({name: value}, EARLIER, "the run in out")
    assert s == EARLIER
    assert says.startswith(f"the run in out has --{name} ")
    assert "leave the flag out" in says


def test_fine_tuning_has_the_architecture_of_the_model_and_its_own_training():
    given = {"learning_rate": 1.0, "muon_lr": 0.5, "dropout": 0.1, "block_size": 16, "seed": 5}
    s, mistakes = resolve_fine_tuned(given, CONFIG, BUILT_IN)
    assert mistakes == [] and s == Settings(**complete_settings(given | {
        name: getattr(CONFIG, name) for name in MODEL
        if name not in ("dropout", "ngram_dropout", "block_size")} | {"ahead": 0}, BUILT_IN))
    assert s.model_config(11, CONFIG) == dataclasses.replace(
        CONFIG, vocab_size=11, dropout=0.1, block_size=16, ngram_dropout=s.ngram_dropout)


@pytest.mark.parametrize("given, rates", [
    ({}, (1.2e-3, 3e-3)),
    (dict(learning_rate=4e-3), (4e-3, 3e-3)),
    (dict(muon_lr=0.01), (1.2e-3, 0.01)),
    (dict(recipe="gpt2"), (4e-3, 0.02))], ids=str)
def test_fine_tuning_has_lower_rates_of_its_own_and_says_so_unless_they_are_given(given, rates):
    s, _ = resolve_fine_tuned(given, CONFIG, BUILT_IN)
    assert (s.learning_rate, s.muon_lr) == rates
    said = describe_settings(s)
    assert ("--learning_rate 0.0012" in said) == (rates[0] == 1.2e-3)
    assert ("--muon_lr 0.003" in said) == (rates[1] == 3e-3)


@pytest.mark.parametrize("given, says", [
    (dict(n_layer=3), ["the model has --n_layer 2, which cannot become 3; leave the flag out"]),
    (dict(n_layer=2, n_kv_head=2, norm="rms"), []),
    (dict(n_kv_head=1, bias=True), [
        "the model has --bias False, which cannot become True; leave the flag out",
        "the model has --n_kv_head 2, which cannot become 1; leave the flag out"]),
    (dict(block_size=16, dropout=0.5, ngram_dropout=0.0, recipe="gpt2", seed=5), []),
    (dict(block_size=33), ["--block_size 33 is more than the 32 positions that the model has "
                           "learnt; take 32 or less"])])
def test_a_flag_that_contradicts_the_model_is_refused_with_the_remedy(given, says):
    s, mistakes = resolve_fine_tuned(given, CONFIG, BUILT_IN)
    assert mistakes == says
    assert all(getattr(s, name) == getattr(CONFIG, name) for name in ("n_layer", "bias"))
    assert s.block_size <= 32
    sinusoidal = dataclasses.replace(CONFIG, position="sinusoidal")
    _, mistakes = resolve_fine_tuned(given, sinusoidal, BUILT_IN)
    assert mistakes == [line for line in says if "positions" not in line]
