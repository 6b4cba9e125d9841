"""The classes of Hugging Face: their numbers make our models compute what theirs compute, and what
they do not know is named."""
import dataclasses
import json
import pathlib
from dataclasses import replace

import numpy as np
import pytest

from model import Transformer, TransformerConfig
from model.command import flag
from model.convert import families
from model.convert.families import FormatError
from model.transformer import parameter_shapes

REFERENCE = np.load(pathlib.Path(__file__).parents[2] / "reference" / "hugging_face.npz")
NAMES = sorted({name.partition("/")[0] for name in REFERENCE.files if "/" in name})
SIZES = dict(vocab_size=13, block_size=9, n_layer=2, n_head=4, n_embd=16)
LLAMA = TransformerConfig(**SIZES, position="rotary", norm="rms_gain", activation="swiglu",
                          n_kv_head=2, n_inner=11, tied=False)


def theirs(name):
    """What transformers has written of a model: the settings, the tensors, ids and their logits."""
    start = f"{name}/weights/"
    return (json.loads(str(REFERENCE[f"{name}/config"])),
            {key.removeprefix(start): REFERENCE[key] for key in REFERENCE.files
             if key.startswith(start)},
            REFERENCE[f"{name}/ids"], REFERENCE[f"{name}/logits"])


def ours(said, tensors):
    """The model that we make of it."""
    config, family = families.configuration("config.json", said)
    model = Transformer(config)
    model.load_state_dict(families.as_ours(tensors, families.pieces(
        config, family, dict(parameter_shapes(config)))))
    return model


def difference(name):
    """Between our logits and theirs, in shares of the largest one."""
    said, tensors, ids, logits = theirs(name)
    return abs(ours(said, tensors)(ids).data - logits).max() / abs(logits).max()


@pytest.mark.parametrize("name", NAMES)
def test_our_logits_are_those_that_transformers_computes(name):
    assert difference(name) < 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_their_tensors_come_back_to_the_bit(name):
    said, tensors, *_ = theirs(name)
    config, family = families.configuration("config.json", said)
    stored = families.pieces(config, family, dict(parameter_shapes(config)))
    back = families.as_theirs(families.as_ours(tensors, stored), stored)
    assert back.keys() == tensors.keys()
    assert all(back[key].tobytes() == a.tobytes() for key, a in tensors.items())


MISTAKES = {
    "pairs of neighbours that stay where they are": (
        "llama", "neighbours", lambda rows, D: rows),
    "pairs that are reordered the wrong way": ("arcee", "neighbours", families.halves),
    "weights that are not transposed": (
        "gpt2", "pieces", lambda *args, real=families.pieces: {
            name: [p._replace(transposed=p.transposed and p.shape[0] != p.shape[1])
                   for p in parts] for name, parts in real(*args).items()}),
    "keys before queries": (
        "arcee", "pieces", lambda *args, real=families.pieces: {
            name: parts[1::-1] + parts[2:] for name, parts in real(*args).items()}),
    "an epsilon that is lost": (
        "gpt2", "configuration", lambda *args, real=families.configuration: (
            replace((found := real(*args))[0], norm_eps=1e-5), found[1])),
    "a rotary base that is lost": (
        "llama", "rotary_base", lambda *args: 10_000.0)}


@pytest.mark.parametrize("name, function, mistaken", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_the_conversion_is_seen_in_the_logits(monkeypatch, name, function, mistaken):
    monkeypatch.setattr(families, function, mistaken)
    assert difference(name) > 1e-3


def test_what_a_model_of_theirs_has_more_than_ours_changes_nothing():
    config = TransformerConfig(**SIZES, position="rotary", norm="rms", activation="relu2")
    model, ids = Transformer(config), np.arange(9)
    whole = Transformer(families.whole(config, families.ARCEE))
    whole.load_state_dict(model.state_dict() | families.absent(config, families.ARCEE))
    assert np.array_equal(whole(ids).data, model(ids).data)
    config = TransformerConfig(**SIZES)
    model, whole = Transformer(config), Transformer(families.whole(config, families.GPT2))
    whole.load_state_dict(model.state_dict() | families.absent(config, families.GPT2))
    assert np.array_equal(whole(ids).data, model(ids).data)


@pytest.mark.parametrize("options, family", [
    ({}, "gpt2"), ({"activation": "relu2", "bias": True}, "gpt2"),
    ({"attention_bias": True}, "gpt2"),
    ({"position": "rotary", "norm": "rms", "activation": "relu2"}, "arcee"),
    ({"position": "rotary", "norm": "rms_gain", "bias": True}, "arcee"),
    ({"position": "rotary", "norm": "rms", "activation": "swiglu", "n_kv_head": 1}, "llama")])
def test_settings_that_are_written_are_read_as_the_same_model(options, family):
    config = TransformerConfig(**SIZES, **options)
    assert families.family_of(config).model_type == family
    said = families.settings(config, families.FAMILIES[family]) | {"model_type": family}
    whole, found = families.configuration("config.json", json.loads(json.dumps(said)))
    assert found is families.FAMILIES[family]
    assert dict(parameter_shapes(whole)) == dict(parameter_shapes(families.whole(config, found)))
    assert families.settings(whole, found) == families.settings(config, found)


@pytest.mark.parametrize("options, says", [
    ({"ngrams": 3}, "no class of Hugging Face has n-grams; train a model with --ngrams 1, or"),
    ({"ngrams": 3, "qk_norm": True},
     "n-grams or normed queries and keys; train a model with --ngrams 1 --no-qk_norm, or"),
    ({"position": "alibi"},
     "layer norm with alibi positions; train a model with --position learned, or"),
    ({"position": "none", "norm": "rms"},
     "RMS norm without positions; train a model with --position rotary, or"),
    ({"position": "sinusoidal", "activation": "swiglu", "n_kv_head": 2},
     "has layer norm with sinusoidal positions, gated MLPs with layer norm or grouped heads with "
     "layer norm; train a model with --position learned --activation gelu_tanh --n_kv_head 4, or"),
    ({"norm": "rms"}, "RMS norm with learned positions; train a model with --position rotary, or"),
    ({"position": "rotary"}, "layer norm with rotary positions; train a model with --norm rms")])
def test_what_no_class_computes_is_named_with_the_flags_to_train_without_it(options, says):
    with pytest.raises(FormatError) as caught:
        families.family_of(TransformerConfig(**SIZES, **options))
    assert says in str(caught.value) and "\n" not in str(caught.value)
    flags = str(caught.value).partition("train a model with ")[2].partition(", or")[0].split()
    if "--no-qk_norm" in flags:
        flags.remove("--no-qk_norm")
        options |= {"qk_norm": False}
    for name, value in zip(flags[::2], flags[1::2]):
        options = options | {name[2:]: int(value) if value.isdigit() else value}
    assert families.family_of(TransformerConfig(**SIZES | options))


def test_converting_knows_each_option_of_the_transformer_and_each_choice():
    for field in dataclasses.fields(TransformerConfig):
        assert field.name in families.OPTIONS
        assert set(families.OPTIONS[field.name] or ()) == set(field.metadata["choices"]), field.name


@dataclasses.dataclass(frozen=True)
class WiderConfig(TransformerConfig):
    """Has an option more."""
    window: int = flag(0, "keys that a query sees")


@pytest.mark.parametrize("config, says", [
    (WiderConfig(**SIZES), "no class of Hugging Face is known to have the option window; convert"),
    (TransformerConfig(**SIZES, position="rotary", norm="rms"), "known to have norm rms; convert")])
def test_a_model_with_what_is_not_known_here_is_not_converted(config, says, monkeypatch):
    monkeypatch.setitem(families.OPTIONS, "norm", ("layer", "rms_gain"))
    with pytest.raises(FormatError, match=says):
        families.family_of(config)


def llama(**keys):
    return families.settings(LLAMA, families.LLAMA) | {"model_type": "llama"} | keys


def gpt2(**keys):
    config = TransformerConfig(**SIZES)
    return families.settings(config, families.GPT2) | {"model_type": "gpt2"} | keys


@pytest.mark.parametrize("said, says", [
    (llama(model_type="mamba"), "is of the model_type 'mamba', and only gpt2, llama or arcee"),
    ({}, "is of the model_type None"), ({"model_type": ["gpt2"]}, "is of the model_type ['gpt2']"),
    (llama(rope_scaling={"rope_type": "llama3", "factor": 8.0}),
     "the type of rope_scaling = llama3"),
    (llama(rope_parameters={"rope_type": "linear", "factor": 2.0}),
     "the type of rope_parameters = linear"),
    (llama(rope_parameters={"rope_theta": 1e4, "partial_rotary_factor": 0.5}),
     "rope_parameters with partial_rotary_factor = 0.5"),
    (llama(rope_parameters=[1]), "rope_parameters = [1], and only null"),
    (llama(head_dim=128), "head_dim = 128, and only 4 can be"),
    (llama(sliding_window=128), "sliding_window = 128, which is not known here; if it does not"),
    (llama(quantization_config={"bits": 4}), "quantization_config = {'bits': 4}, which is not"),
    (llama(hidden_act="gelu"), "hidden_act = gelu, and only silu"),
    (llama(hidden_act=3), "hidden_act = 3, and only silu"),
    (llama(pretraining_tp=2), "pretraining_tp = 2, and only 1"),
    (llama(num_hidden_layers=-1), "describes no model: n_layer is at least 1, not -1"),
    (llama(num_attention_heads="4"), "describes no model: n_head takes a whole number"),
    (llama(num_attention_heads=None), "describes no model: n_head"),
    (llama(rope_theta="a", rope_parameters=None), "rope_theta = a, and only a number"),
    (llama(rope_theta=10 ** 400, rope_parameters=None), "and only a number"),
    (gpt2(scale_attn_by_inverse_layer_idx=True),
     "scale_attn_by_inverse_layer_idx = True, and only False"),
    (gpt2(add_cross_attention=True), "add_cross_attention = True, and only False"),
    (gpt2(activation_function="relu"), "activation_function = relu, and only gelu, gelu_new or"),
    ({k: v for k, v in gpt2().items() if k != "n_embd"}, "lacks n_embd")])
def test_a_setting_that_is_not_computed_here_is_refused_by_name(said, says):
    with pytest.raises(FormatError) as caught:
        families.configuration("x/config.json", said)
    message = str(caught.value)
    assert message.startswith("x/config.json ") and says in message and "\n" not in message


def test_settings_that_are_not_there_are_what_transformers_takes_them_for():
    config, _ = families.configuration("config.json", {
        "model_type": "llama", "vocab_size": 5, "hidden_size": 8, "intermediate_size": 3,
        "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 4,
        "sliding_window": None, "use_cache": True, "_attn_implementation_autoset": True})
    assert (config.kv_heads, config.norm_eps, config.tied, config.rotary_base) == (2, 1e-6, False,
                                                                                   10_000)
    assert config.attention_bias is config.mlp_bias is False and config.activation == "swiglu"
    config, _ = families.configuration("config.json", {
        "model_type": "gpt2", "vocab_size": 5, "n_embd": 8, "n_layer": 1, "n_head": 2,
        "n_positions": 4, "_num_labels": 1})
    assert (config.inner, config.norm_eps, config.tied, config.activation, config.bias) == (
        32, 1e-5, True, "gelu_tanh", True)
    assert families.ARCEE.usual == families.LLAMA.usual | {"rms_norm_eps": 1e-5,
                                                           "hidden_act": "relu2"}


@pytest.mark.parametrize("theirs, ours", [
    ("gelu", "gelu"), ("gelu_new", "gelu_tanh"), ("gelu_pytorch_tanh", "gelu_tanh"),
    ("relu2", "relu2")])
def test_an_activation_is_known_by_each_of_its_names(theirs, ours):
    config, _ = families.configuration("config.json", gpt2(activation_function=theirs))
    assert config.activation == ours
