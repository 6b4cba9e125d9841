"""What ranks cannot do, and what does not go with a checkpoint, is refused before a run."""
import pathlib

import pytest

from model.arguments import begun_settings, problems_of_ranks
from model.settings import Settings
from model.transformer import TransformerConfig


@pytest.mark.parametrize("settings, size, says", [
    (dict(batch_size=12, reduce="exact"), 5, "--reduce exact takes a number of ranks that divides "
                                             "--batch_size 12, and 5 do not"),
    (dict(batch_size=12), 5, ""), (dict(batch_size=12, reduce="exact"), 4, ""),
    (dict(explain=True), 1, ""), (dict(explain=True), 2, "--explain goes through a step of one")])
def test_settings_that_do_not_go_with_the_number_of_ranks_are_named(settings, size, says):
    found = problems_of_ranks(Settings(**settings), size)
    assert [line[:len(says)] for line in found] == [says] * bool(says)


OUT = pathlib.Path("out")
CONFIG = TransformerConfig(9, block_size=32, n_layer=2, n_head=2, n_embd=8, n_inner=24, norm="rms",
                           dropout=0.2, ngrams=3, ngram_dropout=0.3)


def test_a_run_that_begins_with_a_checkpoint_has_its_architecture_and_its_own_training():
    given, mistakes = begun_settings({"learning_rate": 1.0, "dropout": 0.1}, CONFIG, OUT)
    assert mistakes == [] and given == {
        **{name: value for name, value in vars(CONFIG).items()
           if name not in ("vocab_size", "dropout", "ngram_dropout")},
        "learning_rate": 1.0, "dropout": 0.1, "init_from": str(pathlib.Path("out").absolute())}


@pytest.mark.parametrize("given, says", [
    (dict(n_layer=3), ["the model in out has --n_layer 2, which cannot become 3; leave the flag "
                       "out"]),
    (dict(n_layer=2, n_kv_head=2, attention_bias=False, n_inner=24, norm="rms"), []),
    (dict(n_kv_head=1, bias=True, tied=False), [
        "the model in out has --bias False, which cannot become True; leave the flag out",
        "the model in out has --n_kv_head 2, which cannot become 1; leave the flag out",
        "the model in out has --tied True, which cannot become False; leave the flag out"]),
    (dict(block_size=16, dropout=0.5, ngram_dropout=0.0, recipe="gpt2", seed=5), []),
    (dict(block_size=33), ["--block_size 33 is more than the 32 positions that the model in out "
                           "has learnt; take 32 or less"])])
def test_a_flag_that_contradicts_the_checkpoint_is_refused_with_the_remedy(given, says):
    found, mistakes = begun_settings(given, CONFIG, OUT)
    assert mistakes == says
    assert all(found[name] == getattr(CONFIG, name) for name in ("n_layer", "bias", "tied"))
    assert found["block_size"] <= 32


def test_only_learnt_positions_bound_the_block():
    for position in ("rotary", "alibi", "sinusoidal", "none"):
        config = TransformerConfig(**vars(CONFIG) | {"position": position})
        found, mistakes = begun_settings({"block_size": 33}, config, OUT)
        assert mistakes == [] and found["block_size"] == 33
