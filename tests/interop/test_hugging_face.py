"""Beside transformers itself: our models compute in its classes what they compute here, and its
models here what they compute there.

    python -m pytest tests/interop          with '.[interop]'
"""
import contextlib
import json
import os
import warnings
from dataclasses import replace

import numpy as np
import pytest

from model import (CharTokenizer, Transformer, TransformerConfig, generate, load_checkpoint,
                   save_checkpoint)
from model.convert import families, hugging_face
from model.convert.__main__ import convert
from model.convert.model_file import FormatError
from model.convert.tokens import TokenTokenizer
from model.score.text import text_losses
from tests.extras import lacking
from tests.kit import random_config
from tests.token_files import END, byte_level, special

os.environ["HF_HUB_OFFLINE"] = "1"
if not lacking("interop"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        import transformers
        from transformers import AutoModelForCausalLM, AutoTokenizer

pytestmark = [pytest.mark.needs("interop"), pytest.mark.filterwarnings("default")]
VOCABULARY = "\n !'\"abcdefghijXYZé€𝄞\u0301\u200d\0\r\t\x85\u2028\u3000<>[]UNK\\{}#▁Ġ"
TOKENIZER = CharTokenizer.of(VOCABULARY[::-1])
V = TOKENIZER.vocab_size


def drawn(config, rng):
    """A model of random weights, some of which are not near what they are at the beginning."""
    model = Transformer(config)
    for p in model.parameters():
        p.data[...] = (p.ndim == 1) + 0.25 * rng.standard_normal(p.shape)
    return model


def in_transformers(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def logits(theirs, ids):
    with torch.no_grad():
        return theirs(torch.tensor(ids)).logits.numpy()


def differs(a, b):
    """The largest difference of two arrays of logits, in shares of the largest logit or of 1."""
    assert a.shape == b.shape and abs(b).max() > 0.1
    return abs(a - b).max() / max(1, abs(b).max())


# What few random configurations have
OF_CLASS = {"qwen2": dict(activation="swiglu", qk_norm=False, **families.IN_QWEN2),
            "qwen3": dict(activation="swiglu", qk_norm=True, bias=False, **families.NO_BIASES)}


def configuration(rng, family):
    """A random configuration that this class of Hugging Face has."""
    while True:
        eps, base = 10 ** rng.uniform(-6, -1), 10 ** rng.uniform(1, 5)
        config = replace(random_config(rng),
                         vocab_size=V,
                         ngrams=1,
                         norm_eps=eps,
                         rotary_base=base,
                         rotary_factor=float(rng.choice([1, 1, 8])),
                         rotary_length=int(rng.integers(10, 100)),
                         **OF_CLASS.get(family, {}))
        with contextlib.suppress(FormatError):
            if families.family_of(config).name == family:
                return config


@pytest.mark.parametrize("seed", range(15))
def test_our_model_has_the_same_logits_in_their_class_and_comes_back_to_the_bit(tmp_path, seed):
    rng = np.random.default_rng(seed)
    config = configuration(rng, [*families.FAMILIES][seed % 5])
    model = drawn(config, rng)
    save_checkpoint(tmp_path / "out" / "ckpt.npz", model, TOKENIZER)
    for source, target in (("out", "hf"), ("hf", "back"), ("out", "a.safetensors"),
                           ("a.safetensors", "again")):
        convert(tmp_path / source, tmp_path / target)
    for folder in ("back", "again"):
        found = load_checkpoint(tmp_path / folder / "ckpt.npz")
        assert found.model.config == config
        assert found.tokenizer.vocabulary == TOKENIZER.vocabulary
        assert all(a.data.tobytes() == b.data.tobytes()
                   for a, b in zip(found.model.parameters(), model.parameters()))
    theirs = in_transformers(tmp_path / "hf")
    assert type(theirs).__name__ == families.family_of(config).architecture
    ids = rng.integers(V, size=(2, config.block_size))
    assert differs(model(ids).data, logits(theirs, ids)) < 1e-5


@pytest.mark.parametrize("seed", range(15))
def test_their_model_has_the_same_logits_here_and_goes_back_to_the_bit(tmp_path, seed):
    rng = np.random.default_rng(seed)
    config = configuration(rng, [*families.FAMILIES][seed % 5])
    family = families.family_of(config)
    said = families.settings(config, family) | {"bos_token_id": None, "eos_token_id": None}
    theirs = AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(family.name, **said)).eval()
    with torch.no_grad():
        for p in theirs.parameters():
            p[...] = torch.tensor((p.ndim == 1) + 0.25 * rng.standard_normal(p.shape))
    theirs = theirs.to([torch.float32, torch.float16, torch.bfloat16][seed // 5])
    theirs.save_pretrained(tmp_path / "hf", max_shard_size=["5GB", "20KB"][seed % 2])
    (tmp_path / "hf" / "tokenizer.json").write_text(
        hugging_face.tokenizer_json(TOKENIZER), encoding="utf-8")
    theirs = in_transformers(tmp_path / "hf")       # whose tables are of 32 bits again
    convert(tmp_path / "hf", tmp_path / "ours")
    model = load_checkpoint(tmp_path / "ours" / "ckpt.npz").model
    ids = rng.integers(V, size=(2, config.block_size))
    assert differs(model(ids).data, logits(theirs, ids)) < 1e-5
    convert(tmp_path / "ours", tmp_path / "theirs")
    back = in_transformers(tmp_path / "theirs").state_dict()
    assert back.keys() == theirs.state_dict().keys()
    assert all(torch.equal(back[name], a) for name, a in theirs.state_dict().items())


LONG = dict(vocab_size=V, block_size=520, n_layer=2, n_head=2, n_embd=24)
LONG = {"gpt2": TransformerConfig(**LONG),
        "llama": TransformerConfig(**LONG, position="rotary", norm="rms_gain", n_kv_head=1,
                                   activation="swiglu", n_inner=50, tied=False),
        "arcee": TransformerConfig(**LONG, position="rotary", norm="rms", activation="relu2")}


@pytest.fixture(params=LONG)
def both(request, tmp_path):
    """A model of ours, and it and its tokenizer in transformers."""
    model = drawn(LONG[request.param], np.random.default_rng(7))
    save_checkpoint(tmp_path / "out" / "ckpt.npz", model, TOKENIZER)
    convert(tmp_path / "out", tmp_path / "hf")
    return model, in_transformers(tmp_path / "hf"), AutoTokenizer.from_pretrained(tmp_path / "hf")


def test_greedy_text_of_500_characters_and_the_loss_of_a_text_are_the_same(both):
    model, theirs, tokenizer = both
    start = "abc \n"
    ids = tokenizer(start, return_tensors="pt").input_ids
    text = tokenizer.decode(theirs.generate(ids, do_sample=False, max_new_tokens=500)[0])
    assert text == generate(model, TOKENIZER, start, 500, temperature=0)
    assert len(text) == 505 and len(set(text)) > 5
    ids = torch.from_numpy(TOKENIZER.encode(text))[None]
    with torch.no_grad():
        loss = theirs(ids, labels=ids).loss.item()
    assert loss == pytest.approx(text_losses(model, ids[0].numpy()).mean(), rel=1e-5)


def test_every_character_is_one_token_and_comes_back_and_transformers_keeps_it_so(both, tmp_path):
    *_, tokenizer = both
    text = "".join(np.random.default_rng(0).choice(list(VOCABULARY), 500)) + "  \r\n"
    ids = tokenizer(text).input_ids
    assert ids == TOKENIZER.encode(text).tolist()
    for skip in (True, False):
        assert tokenizer.decode(ids, skip_special_tokens=skip) == text
    with pytest.raises(Exception, match="UNK"):
        tokenizer("Q")
    tokenizer.save_pretrained(tmp_path / "hf")
    found = hugging_face.read(tmp_path / "hf")
    assert isinstance(found.tokenizer, CharTokenizer)
    assert found.tokenizer.vocabulary == TOKENIZER.vocabulary


def test_tokens_and_the_end_of_a_text_are_known_to_transformers(tmp_path):
    tokenizer = TokenTokenizer(byte_level(), end=0)
    config = replace(LONG["llama"], vocab_size=tokenizer.vocab_size)
    weights = drawn(config, np.random.default_rng(0)).state_dict()
    (tmp_path / "hf").mkdir()
    hugging_face.write(tmp_path / "hf", hugging_face.ModelFile("", config, weights, tokenizer))
    theirs = AutoTokenizer.from_pretrained(tmp_path / "hf")
    text = "the queen in the inn é漢🙂\n\n"
    assert theirs(text).input_ids == tokenizer.encode(text).tolist()
    assert theirs.eos_token_id == 0
    assert in_transformers(tmp_path / "hf").generation_config.eos_token_id == 0


def begun():
    """A tokenizer.json with <s> before each text, which it cuts."""
    parts = json.loads(byte_level())
    parts["added_tokens"].append(special(266, "<s>"))
    parts["post_processor"] = {"type": "RobertaProcessing", "sep": [END, 0], "cls": ["<s>", 266],
                               "trim_offsets": True, "add_prefix_space": False}
    parts["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst",
                           "stride": 0}
    return json.dumps(parts)


@pytest.mark.parametrize("ends", [[], [0], [5, 0, 3]])
def test_ids_and_ends_of_what_is_written_are_those_that_transformers_reads(tmp_path, ends):
    tokenizer = TokenTokenizer(begun(), ends)
    config = replace(LONG["llama"], vocab_size=tokenizer.vocab_size)
    weights = drawn(config, np.random.default_rng(0)).state_dict()
    hugging_face.write(tmp_path, hugging_face.ModelFile("", config, weights, tokenizer))
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for text in ("the queen in the inn é漢🙂\n\n", f"a{END}b <s> c", ""):
        assert theirs(text).input_ids == [*tokenizer.encode(text), 0]
    said = in_transformers(tmp_path).generation_config.eos_token_id
    assert (said if isinstance(said, list) else [said]) == (ends or [None])


@pytest.mark.parametrize("config, generation", [(0, 1), (0, [4, 1]), (None, [1]), (1, "no file")])
def test_a_text_ends_where_transformers_ends_it(tmp_path, config, generation):
    tokenizer = TokenTokenizer(byte_level(), 0)
    small = replace(LONG["llama"], vocab_size=tokenizer.vocab_size)
    weights = drawn(small, np.random.default_rng(0)).state_dict()
    hugging_face.write(tmp_path, hugging_face.ModelFile("", small, weights, tokenizer))
    (tmp_path / "generation_config.json").unlink()
    stated = {"config.json": config, "generation_config.json": generation}
    for name, value in stated.items():
        if value != "no file":
            said = json.loads((tmp_path / name).read_text()) if (tmp_path / name).exists() else {}
            (tmp_path / name).write_text(json.dumps(said | {"eos_token_id": value}))
    theirs = in_transformers(tmp_path).generation_config.eos_token_id
    ours = hugging_face.read(tmp_path).tokenizer.ends
    assert ours == tuple(theirs if isinstance(theirs, list) else [theirs])


@pytest.mark.parametrize("files", [
    {"tokenizer_config.json": "A"}, {"chat_template.jinja": "J", "tokenizer_config.json": "A"},
    {"tokenizer_config.json": [{"name": "default", "template": "D"},
                               {"name": "rag", "template": "R"}]},
    {"tokenizer_config.json": {"default": "D", "rag": "R"}},
    {"chat_template.jinja": "J", "additional_chat_templates/rag.jinja": "R"},
    {"additional_chat_templates/rag.jinja": "R", "tokenizer_config.json": "A"}], ids=str)
def test_chat_templates_are_those_that_transformers_reads_before_and_after(tmp_path, files):
    tokenizer = TokenTokenizer(byte_level(), 0)
    config = replace(LONG["llama"], vocab_size=tokenizer.vocab_size)
    weights = drawn(config, np.random.default_rng(0)).state_dict()
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    after.mkdir()
    hugging_face.write(before, hugging_face.ModelFile("", config, weights, tokenizer))
    for name, content in files.items():
        path = before / name
        path.parent.mkdir(exist_ok=True)
        if name.endswith(".json"):
            content = json.dumps(json.loads(path.read_text()) | {"chat_template": content})
        path.write_text(content)
    hugging_face.write(after, hugging_face.read(before))
    first, second = (AutoTokenizer.from_pretrained(folder).chat_template
                     for folder in (before, after))
    assert first == second
