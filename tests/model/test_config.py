"""The options of a model, and who computes them."""
import dataclasses

import pytest

from minigrad import formulas
from model.config import (ACTIVATIONS, ALL, FILES, KERNEL, PAGE, TWIN, USERS, TransformerConfig,
                          option, unknown_options)
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


@pytest.mark.parametrize("name, choices", [
    *((name, []) for name in (
        "vocab_size", "block_size", "n_layer", "n_head", "n_embd", "dropout", "bias", "n_kv_head",
        "qk_norm", "zero_init", "ngrams", "ngram_rows", "ngram_dropout", "norm_eps", "n_inner",
        "attention_bias", "mlp_bias", "rotary_base", "tied", "head_dim")),
    ("position", ["learned", "sinusoidal", "rotary"]),
    ("norm", ["layer", "rms", "rms_gain"]),
    ("activation", ["gelu", "relu2", "gelu_tanh", "swiglu"])])
def test_TransformerConfig_has_options_that_all_who_compute_models_of_users_know(name, choices):
    field, = [field for field in dataclasses.fields(TransformerConfig) if field.name == name]
    known_to = field.metadata["known_to"]
    for names in [known_to[choice] for choice in choices] or [known_to]:
        assert {*names} >= {*USERS}


@pytest.mark.parametrize("options, unknown", [
    (dict(position="rotary", norm="rms", activation="relu2", qk_norm=True, zero_init=True,
          ngrams=3, ngram_rows=20, ngram_dropout=0.5, dropout=0.1, bias=True), []),
    (dict(position="sinusoidal"), ["position sinusoidal"]),
    (dict(norm="rms_gain"), ["norm rms_gain"]),
    (dict(activation="gelu_tanh"), ["activation gelu_tanh"]),
    (dict(activation="swiglu"), ["activation swiglu"]),
    (dict(n_kv_head=2), ["the option n_kv_head"]),
    (dict(norm_eps=1e-6, n_inner=40), ["the option norm_eps", "the option n_inner"]),
    (dict(attention_bias=True, mlp_bias=True),
     ["the option attention_bias", "the option mlp_bias"]),
    (dict(rotary_base=500.0, tied=False), ["the option rotary_base", "the option tied"]),
    (dict(head_dim=8, qk_gain=True), ["the option head_dim", "the option qk_gain"])], ids=str)
def test_unknown_options_of_the_twin_are_those_that_the_recipes_do_not_use(options, unknown):
    assert unknown_options(TransformerConfig(11, **options), TWIN) == unknown


@pytest.mark.parametrize("option", [dict(qk_gain=True), dict(rotary_factor=2.0)], ids=str)
def test_unknown_options_of_the_page_are_those_of_large_models(option):
    config = TransformerConfig(11, qk_norm=True, **option)
    assert unknown_options(config, PAGE) == [f"the option {name}" for name in option]
    assert unknown_options(config, KERNEL) == unknown_options(config, FILES) == []


def test_TransformerConfig_says_of_each_option_and_choice_who_knows_it():
    for field in dataclasses.fields(TransformerConfig):
        known_to = field.metadata["known_to"]
        choices = field.metadata["choices"]
        assert not choices or known_to.keys() == {*choices}
        for names in known_to.values() if choices else [known_to]:
            assert {*names} <= {*ALL}


def test_ACTIVATIONS_are_numbered_as_those_of_kernels():
    assert tuple(ACTIVATIONS) == (*formulas.ACTIVATIONS, "swiglu")
