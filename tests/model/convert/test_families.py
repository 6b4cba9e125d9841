"""The classes of Hugging Face: their tensors make our models compute what theirs compute, and a
part that they lack is named."""
import itertools
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from model import Transformer, TransformerConfig
from model.command import Parser
from model.config import KERNEL, NORMS, PAGE
from model.convert import families
from model.convert.hugging_face import configuration
from model.convert.model_file import FormatError, shapes_of
from model.settings import Settings
from tests.kit import ROOT, WiderConfig, arrays, model_of, refusal, stored

REFERENCE = arrays(ROOT / "tests" / "reference" / "hugging_face.npz")
NAMES = sorted({name.partition("/")[0] for name in REFERENCE if "/" in name})
SIZES = dict(vocab_size=13, block_size=9, n_layer=2, n_head=4, n_embd=16)
ROTARY = dict(position="rotary", norm="rms")
GAINS = dict(qk_norm=True, qk_gain=True)
LLAMA = TransformerConfig(**SIZES, position="rotary", norm="rms_gain", activation="swiglu",
                          n_kv_head=2, n_inner=11, tied=False)


def theirs(name):
    """What transformers has written of a model: the settings, the tensors, ids and their logits."""
    start = f"{name}/weights/"
    return (json.loads(str(REFERENCE[f"{name}/config"])),
            {key.removeprefix(start): a for key, a in REFERENCE.items() if key.startswith(start)},
            REFERENCE[f"{name}/ids"], REFERENCE[f"{name}/logits"])


def ours(said, tensors):
    """Our configuration and parameters of it, and the class."""
    config, family = configuration("config.json", said)
    return config, families.our_parameters(config, family, stored(tensors)), family


def difference(name):
    """Between our logits and theirs, in shares of the largest one."""
    said, tensors, ids, logits = theirs(name)
    config, weights, _ = ours(said, tensors)
    return abs(model_of(config, weights)(ids).data - logits).max() / abs(logits).max()


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_transformers_and_tensors_come_back_to_the_bit(name):
    assert difference(name) < 1e-6
    said, tensors, *_ = theirs(name)
    back = families.their_tensors(*ours(said, tensors))
    assert back.keys() == tensors.keys()
    assert all(back[key].read().tobytes() == a.tobytes() for key, a in tensors.items())


def changed(change):
    """A mistaken `layout`, by a change of each parameter's pieces."""
    real = families.layout
    return lambda *args: {name: change(pieces) for name, pieces in real(*args).items()}


def keys_first(pieces):
    names = [piece.name for piece in pieces]
    return [piece._replace(name=name) for piece, name in zip(pieces, names[1::-1] + names[2:])]


def other_way(a, m, n, real=families.swapped):
    return real(a, n, m)


def without(option, real=families.configuration):
    """A mistaken `configuration`, which gives an option its default."""
    default = {option: getattr(TransformerConfig, option)}
    return lambda *args, **known: replace(real(*args, **known), **default)


MISTAKES = {
    "pairs that stay neighbours": ("llama", "swapped", lambda a, *sizes: a),
    "pairs that are reordered the wrong way": ("arcee", "swapped", other_way),
    "weights that are not transposed": ("gpt2", "layout", changed(lambda pieces: [
        p._replace(transposed=p.transposed and p.shape[0] != p.shape[1]) for p in pieces])),
    "keys before queries": ("arcee", "layout", changed(keys_first)),
    "gains that stay neighbours": ("qwen3", "layout", changed(lambda pieces: [
        p._replace(pairs=p.pairs * (len(p.shape) > 1)) for p in pieces])),
    "an epsilon that is lost": ("gpt2", "configuration", without("norm_eps")),
    "an epsilon of queries and keys that is lost": ("qwen3", "configuration", without("norm_eps")),
    "a rotary base that is lost": ("llama", "configuration", without("rotary_base")),
    "a scaling that is lost": ("llama of long texts", "configuration", without("rotary_factor")),
    "the scaling of another length": ("llama of long texts", "configuration",
                                      without("rotary_length"))}


@pytest.mark.parametrize("name, function, mistaken", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_the_conversion_is_seen_in_the_logits(monkeypatch, name, function, mistaken):
    monkeypatch.setattr(families, function, mistaken)
    assert difference(name) > 1e-3


@pytest.mark.parametrize("options, family", [
    ({}, "gpt2"), ({"activation": "relu2", "bias": True}, "gpt2"),
    ({"attention_bias": True}, "gpt2"), (ROTARY | {"activation": "relu2"}, "arcee"),
    ({"position": "rotary", "norm": "rms_gain", "bias": True}, "arcee"),
    (ROTARY | {"activation": "swiglu", "n_kv_head": 1}, "llama"),
    (ROTARY | {"activation": "swiglu", "rotary_factor": 8.0, "rotary_length": 40}, "llama"),
    (ROTARY | {"activation": "swiglu", "attention_bias": True}, "llama"),
    (ROTARY | {"activation": "swiglu", "rotary_factor": 2.0} | families.IN_QWEN2, "qwen2"),
    (ROTARY | {"activation": "swiglu"} | families.IN_QWEN2 | {"mlp_bias": True}, "llama"),
    (ROTARY | {"activation": "swiglu", "head_dim": 6, "n_kv_head": 2}, "llama"),
    (ROTARY | {"activation": "swiglu", "head_dim": 2} | families.IN_QWEN2, "qwen2"),
    (ROTARY | {"activation": "swiglu"} | GAINS, "qwen3"),
    (ROTARY | {"activation": "swiglu", "head_dim": 6, "n_kv_head": 1} | GAINS, "qwen3")])
def test_a_model_is_one_of_its_class_and_its_settings_come_back(options, family):
    config = TransformerConfig(**SIZES, **options)
    ids = np.arange(9)
    family = families.FAMILIES[family]
    assert families.family_of(config) is family
    model, whole = Transformer(config), Transformer(families.complete(config, family))
    whole.load_state_dict(model.state_dict() | families.neutral_weights(config, family))
    assert np.array_equal(whole(ids).data, model(ids).data)
    said = families.settings(config, family) | {"model_type": family.name}
    back, found = configuration("config.json", json.loads(json.dumps(said)))
    assert found is family
    assert shapes_of(back) == shapes_of(whole.config)
    assert families.settings(back, family) == families.settings(config, family)


def test_normalised_queries_and_keys_without_gains_are_those_of_Qwen3_with_gains_of_1():
    config = TransformerConfig(**SIZES, **ROTARY, activation="swiglu", qk_norm=True)
    assert families.family_of(config) is families.QWEN3
    model, whole = Transformer(config), Transformer(families.complete(config, families.QWEN3))
    neutral = families.neutral_weights(config, families.QWEN3)
    whole.load_state_dict(model.state_dict() | neutral)
    assert {*neutral} > {f"blocks.{i}.attention.{part}_norm.weight"
                         for i in range(2) for part in ("query", "key")}
    ids = np.arange(9)
    np.testing.assert_allclose(whole(ids).data, model(ids).data, rtol=0, atol=1e-7)


@pytest.mark.parametrize("options, says", [
    ({"head_dim": 8}, "gpt2, the nearest architecture, has no head_dim 8; train a model with "
                      "--head_dim 4, or"),
    (ROTARY | {"n_embd": 19, "head_dim": 6, "activation": "swiglu"},
     "llama, the nearest architecture, has no n_embd 19; train a model with --n_embd 20, or"),
    (ROTARY | GAINS | {"activation": "swiglu", "bias": True},
     "qwen3, the nearest architecture, has no bias True, attention_bias True, "
     "attention_out_bias True or mlp_bias True; train a model with --no-bias, or"),
    ({"ngrams": 3, "qk_norm": True}, "has no ngrams 3 or qk_norm True; train a model with "),
    ({"position": "sinusoidal", "norm": "rms"}, "arcee, the nearest architecture, has no "
                                                "position sinusoidal; "),
    ({"position": "sinusoidal", "activation": "swiglu", "n_kv_head": 2},
     "gpt2, the nearest architecture, has no position sinusoidal, n_kv_head 2 or activation "
     "swiglu; train a model with --position learned --n_kv_head 4 --activation gelu_tanh, or"),
    ({"position": "rotary"}, "has no norm layer; train a model with --norm rms")])
def test_what_no_class_computes_is_named_with_the_flags_to_train_without_it(options, says):
    said = refusal(FormatError, families.family_of, TransformerConfig(**SIZES | options))
    assert says in said
    flags = said.partition("train a model with ")[2].partition(", or")[0].split()
    without = Parser("train.py", "", Settings).parse(flags)
    assert families.family_of(TransformerConfig(**SIZES | options | without))


def test_family_of_names_no_flags_for_a_part_that_no_flag_removes():
    config = TransformerConfig(**SIZES, **ROTARY, **GAINS, activation="swiglu", mlp_bias=True)
    assert refusal(FormatError, families.family_of, config) == (
        "qwen3, the nearest architecture, has no mlp_bias True; convert this one to a .safetensors "
        "file, which has all its parts")


def test_family_of_refuses_an_option_that_no_file_can_say(monkeypatch):
    monkeypatch.setitem(NORMS, "rms", (KERNEL, PAGE))
    for config, says in ((WiderConfig(**SIZES), "known to have the option window; convert"),
                         (TransformerConfig(**SIZES, **ROTARY), "known to have norm rms; convert")):
        assert says in refusal(FormatError, families.family_of, config)


def llama(**keys):
    return families.settings(LLAMA, families.LLAMA) | {"model_type": "llama"} | keys


def qwen2(**keys):
    config = TransformerConfig(**SIZES, position="rotary", norm="rms_gain", activation="swiglu",
                               **families.IN_QWEN2)
    assert families.family_of(config) is families.QWEN2
    return families.settings(config, families.QWEN2) | {"model_type": "qwen2"} | keys


def qwen3(**keys):
    config = TransformerConfig(**SIZES, position="rotary", norm="rms_gain", activation="swiglu",
                               head_dim=6, **GAINS)
    return (families.settings(config, families.QWEN3) | {"model_type": "qwen3"}
            | families.QWEN3.fixed | keys)


def gpt2(**keys):
    config = TransformerConfig(**SIZES)
    return families.settings(config, families.GPT2) | {"model_type": "gpt2"} | keys


LONG = "x\n" * 5_000
LLAMA3 = families.LLAMA3 | {"factor": 8.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize("said, says", [
    (llama(model_type="mamba"), "has model_type = mamba, and only gpt2, llama, qwen2, qwen3"),
    ({"model_type": ["gpt2"]}, "has model_type = ['gpt2'], and only"),
    (llama(rope_scaling={"rope_type": "yarn", "factor": 8.0}), "rope_scaling.rope_type = yarn"),
    (llama(rope_scaling=LLAMA3 | {"low_freq_factor": 2.0}), "low_freq_factor = 2.0, and only 1.0"),
    (llama(rope_scaling=LLAMA3 | {"high_freq_factor": 8.0}), "_freq_factor = 8.0, and only 4.0"),
    (llama(rope_scaling=LLAMA3 | {"factor": None}), "lacks rope_scaling.factor; fetch the whole"),
    (llama(rope_scaling=LLAMA3 | {"factor": 0.5}), "rotary_factor is at least 1, not 0.5"),
    (llama(rope_scaling=LLAMA3 | {"factor": "a"}), "rotary_factor takes a number, not 'a'"),
    (qwen2(use_sliding_window=True), "use_sliding_window = True, and only False"),
    (qwen2(layer_types=["sliding_attention"]), "layer_types = sliding_attention, and only full_"),
    (qwen2(attention_bias=True), "attention_bias = True, which is not known here"),
    (llama(rope_scaling={"type": "linear"}), "rope_scaling.type = linear"),
    (llama(rope_parameters={"rope_theta": 1e4, "partial_rotary_factor": 0.5}),
     "rope_parameters.partial_rotary_factor = 0.5"),
    (llama(rope_parameters=[1]), "rope_parameters = [1], and only null"),
    (llama(rope_scaling={"rope_type": "default"}, rope_parameters={"rope_type": "longrope"}),
     "rope_parameters.rope_type = longrope, and only default"),
    (llama(rope_theta=500.0), "rope_parameters.rope_theta = 10000.0, and only 500.0"),
    (llama(rope_theta=None, rope_scaling={"rope_theta": 9.0}), "rope_scaling.rope_theta = 9.0"),
    (llama(rope_scaling={"rope_type": "default", "attention_factor": 2}),
     "rope_scaling.attention_factor = 2, and only None can be"),
    (llama(rope_scaling={"type": "default", "factor": True}), "rope_scaling.factor = True, and on"),
    (llama(architectures=["MistralForCausalLM"]),
     "architectures = ['MistralForCausalLM'], and only LlamaForCausalLM of its model_type"),
    (gpt2(architectures=["LlamaForCausalLM"]), "['LlamaForCausalLM'], and only GPT2LM"),
    (gpt2(n_ctx=8), "n_ctx = 8, and only 9 can be"),
    (gpt2(scale_attn_weights=None), "scale_attn_weights = None, and only True"),
    (llama(num_key_value_heads=3), "heads cannot share n_kv_head 3 evenly"),
    (llama(head_dim=5), "head_dim 5 is odd, and position rotary turns pairs of channels; take head_"
                        "dim 6"),
    (qwen3(head_dim=True), "head_dim takes a whole number, not True"),
    (qwen3(use_sliding_window=True), "use_sliding_window = True, and only False"),
    (qwen3(layer_types=["sliding_attention"]), "layer_types = sliding_attention, and only full_"),
    (qwen3(attention_bias=True), "attention_bias = True, and only False"),
    (llama(sliding_window=128), "sliding_window = 128, which is not known here; delete it"),
    (llama(hidden_act=3), "hidden_act = 3, and only silu"),
    (llama(pretraining_tp=2), "pretraining_tp = 2, and only 1"),
    (llama(num_hidden_layers=-1), "describes no model: n_layer is at least 1, not -1"),
    (llama(num_attention_heads=None), "lacks num_attention_heads"),
    (llama(rope_theta="a", rope_parameters=None), "describes no model: rotary_base takes a number"),
    (llama(rope_theta=10 ** 400, rope_parameters=None), "rotary_base takes a number"),
    (gpt2(add_cross_attention=True), "add_cross_attention = True, and only False"),
    (gpt2(activation_function="relu"), "activation_function = relu, and only gelu_new, gelu or"),
    ({k: v for k, v in gpt2().items() if k != "n_embd"}, "lacks n_embd"),
    (gpt2(n_embd=[7] * 5_000), "n_embd takes a"), (gpt2(n_embd=int("7" * 4_000)), "n_embd 7777"),
    ({"model_type": LONG}, "model_type = x"), (gpt2(**{LONG: 1}), "which is not known"),
    (gpt2(scale_attn_weights=LONG), "weights = x"), (gpt2(head_dim=LONG), "head_dim")],
    ids=lambda value: str(value)[:30])
def test_a_setting_that_is_not_computed_here_is_refused_by_name_in_a_short_line(said, says):
    message = refusal(FormatError, configuration, "x/config.json", said)
    assert message.startswith("x/config.json ") and says in message and len(message) < 400


NUMBERS = ["vocab_size", "max_position_embeddings", "hidden_size", "num_hidden_layers",
           "num_attention_heads", "num_key_value_heads", "intermediate_size", "rms_norm_eps",
           "rope_theta", "head_dim", "pretraining_tp"]
OF_GPT2 = ["vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "n_inner",
           "layer_norm_epsilon", "n_ctx"]


@pytest.mark.parametrize("said, key", [*itertools.product([llama], NUMBERS),
                                       *itertools.product([gpt2], OF_GPT2)])
@pytest.mark.parametrize("value", [True, False])
def test_true_and_false_are_no_numbers(said, key, value):
    # Of a model in which 1 is right for most of them.
    ones = dict.fromkeys({key for key in said() if key in NUMBERS + OF_GPT2}, 1)
    ones |= {"rope_parameters": None} if said is llama else {}
    even = {"hidden_size": 2, "head_dim": 2} if said is llama else {}
    assert configuration("config.json", said(**ones | even))
    message = refusal(FormatError, configuration, "config.json", said(**ones | even | {key: value}))
    assert re.search(rf"not {value};|{key} = {value}, and only|rotary_base .*{value}", message)


def test_configuration_takes_settings_that_say_the_same_twice_or_nothing():
    for said in (llama(rope_theta=10_000, rope_scaling={"type": "default", "rope_theta": 1e4}),
                 llama(rope_theta=None, rope_scaling=None, architectures=["LlamaModel"]),
                 llama(rope_theta=10_000, rope_parameters={"rope_theta": None}, head_dim=None)):
        config, _ = configuration("config.json", said)
        assert config == replace(LLAMA, attention_bias=False, mlp_bias=False)
    for head_dim, expected in ((6, 6), (4, None), (None, 128)):     # what Qwen3's class takes
        assert configuration("", qwen3(head_dim=head_dim))[0].head_dim == expected
    for said in (gpt2(n_ctx=9, architectures=["GPT2Model"]), gpt2(n_ctx=None, architectures=[])):
        assert configuration("config.json", said)[0].block_size == 9


def test_settings_that_are_missing_are_what_transformers_takes_them_for():
    config, _ = configuration("config.json", {
        "model_type": "llama", "vocab_size": 5, "hidden_size": 8, "intermediate_size": 3,
        "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 4,
        "sliding_window": None, "use_cache": True, "_attn_implementation_autoset": True})
    assert (config.kv_heads, config.norm_eps, config.tied, config.rotary_base) == (2, 1e-6, False,
                                                                                   10_000)
    assert config.attention_bias is config.mlp_bias is False and config.activation == "swiglu"
    config, _ = configuration("config.json", {
        "model_type": "gpt2", "vocab_size": 5, "n_embd": 8, "n_layer": 1, "n_head": 2,
        "n_positions": 4, "_num_labels": 1})
    whole = config.resolved()
    assert (whole.n_inner, whole.norm_eps, whole.tied, whole.activation, whole.bias) == (
        32, 1e-5, True, "gelu_tanh", True)
    config, _ = configuration("", gpt2(activation_function="gelu_pytorch_tanh"))
    assert config.activation == "gelu_tanh"
    assert families.ARCEE.defaults == families.LLAMA.defaults | {"rms_norm_eps": 1e-5,
                                                                 "hidden_act": "relu2"}
