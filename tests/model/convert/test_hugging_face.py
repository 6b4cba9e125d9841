"""Folders as Hugging Face has them: written, read, and refused by name."""
import json
import shutil
from dataclasses import asdict, replace

import numpy as np
import pytest

from model import CharTokenizer, Transformer, TransformerConfig
from model.convert import hugging_face, safetensors
from model.convert.hugging_face import characters, of_characters
from model.convert.model_file import FormatError, ModelFile
from model.convert.tokens import TokenTokenizer
from tests.kit import model_of, refusal, same, stored, written
from tests.token_files import END, byte_level

pytestmark = pytest.mark.needs("convert")

VOCABULARY = "b\n'a\0é漢🙂\" \r\x85\u2028<[U"
TOKENIZER = CharTokenizer.of(VOCABULARY)
SIZES = dict(vocab_size=len(VOCABULARY), block_size=7, n_layer=2, n_head=2, n_embd=12, dropout=0.1)
GPT2 = TransformerConfig(**SIZES)
LLAMA = TransformerConfig(**SIZES, position="rotary", norm="rms_gain", activation="swiglu",
                          n_kv_head=1, n_inner=11, attention_bias=True, tied=False)
ARCEE = TransformerConfig(**SIZES, position="rotary", norm="rms", activation="relu2", bias=True)
CONFIGS = {"GPT2LMHeadModel": GPT2, "LlamaForCausalLM": LLAMA, "ArceeForCausalLM": ARCEE}


def found(config, tokenizer=TOKENIZER):
    rng = np.random.default_rng(0)
    config = replace(config, vocab_size=tokenizer.vocab_size)
    weights = {name: rng.standard_normal(p.shape).astype(np.float32)
               for name, p in Transformer(config).named_parameters()}
    return ModelFile("checkpoint", config, weights, tokenizer)


@pytest.fixture
def folder(tmp_path):
    """A sound folder, of a model without biases."""
    hugging_face.write(tmp_path, found(GPT2))
    return tmp_path


def change(path, changed):
    """Set keys of a JSON file; None takes one away."""
    said = json.loads(path.read_text(encoding="utf-8")) | changed
    written(path, json.dumps({k: v for k, v in said.items() if v is not None}))


def unchanged(folder):
    """Whether the weights of the sound folder are read."""
    return same(hugging_face.read(folder).weights, found(GPT2).weights)


def tensors_of(folder):
    tensors, _ = safetensors.open_tensors(folder / "model.safetensors")
    return {name: tensor.read() for name, tensor in tensors.items()}


def change_tensors(folder, changed, name="model.safetensors"):
    tensors = {name: a for name, a in (tensors_of(folder) | changed).items() if a is not None}
    safetensors.write_tensors(folder / name, stored(tensors), {"format": "pt"})


def refused(folder):
    said = refusal(FormatError, hugging_face.read, folder)
    assert str(folder) in said
    return said


@pytest.mark.parametrize("name, config", CONFIGS.items(), ids=CONFIGS)
def test_a_model_comes_back_to_the_bit_with_what_its_class_does_not_know(tmp_path, name, config):
    before = found(config)
    hugging_face.write(tmp_path, before)
    back = hugging_face.read(tmp_path)
    assert back.kind == "Hugging Face folder" and back.config == config
    assert same(back.weights, before.weights)
    assert isinstance(back.tokenizer, CharTokenizer) and back.tokenizer.vocabulary == VOCABULARY
    said = json.loads((tmp_path / "config.json").read_text())
    assert said["architectures"] == [name] and said.get("attn_pdrop", 0.1) == 0.1
    assert ("resid_pdrop" in said) == ("scale_attn_weights" in said) == (config is GPT2)
    assert {path.name for path in tmp_path.iterdir()} == {
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
        "tokenizer_config.json"}


@pytest.mark.parametrize("changed, tensors", [
    ({"minigrad": 3}, {}), ({"minigrad": {"depth": 3}}, {}),
    ({"minigrad": asdict(GPT2) | {"block_size": 3}}, {}),
    ({"layer_norm_epsilon": 1e-3}, {}),
    ({}, {"transformer.h.0.ln_1.bias": np.ones(12, np.float32)})], ids=str)
def test_a_folder_that_has_changed_is_read_as_it_now_is(folder, changed, tensors):
    change(folder / "config.json", changed)
    change_tensors(folder, tensors)
    back, ids = hugging_face.read(folder), np.arange(7)
    assert back.config.bias and back.config.norm_eps == changed.get("layer_norm_epsilon", 1e-5)
    model, before = model_of(back.config, back.weights), model_of(GPT2, found(GPT2).weights)
    assert np.array_equal(model(ids).data, before(ids).data) == (
        not tensors and "layer_norm_epsilon" not in changed)


def test_weights_may_stand_in_several_files_that_an_index_names(folder):
    tensors = safetensors.open_tensors(folder / "model.safetensors")[0]
    where = {name: f"model-{i % 2}.safetensors" for i, name in enumerate(tensors)}
    for file in set(where.values()):
        change_tensors(folder, {name: None for name in where if where[name] != file}, file)
    (folder / "model.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": where}))
    assert unchanged(folder)
    for wrong in ({"a": "../model-0.safetensors"}, {"a": 3}, [1]):
        change(index, {"weight_map": wrong})
        assert "has no weight_map from names to files beside it" in refused(folder)
    change(index, {"weight_map": where | {"more": "model-2.safetensors"}})
    assert "has no model-2.safetensors, which its model.safetensors.index.json names" in refused(
        folder)
    shutil.copy(folder / "model-0.safetensors", folder / "model-2.safetensors")
    assert "in two files" in refused(folder)
    (folder / "model-2.safetensors").rename(folder / "model.safetensors")
    change(index, {"weight_map": where})
    assert "has model.safetensors and a file model.safetensors.index.json that names" in refused(
        folder)
    (folder / "model.safetensors").unlink()
    index.unlink()
    assert refused(folder).endswith(
        "has no model.safetensors, and no model.safetensors.index.json that names model-0."
        "safetensors, model-1.safetensors; copy all files of the model")


def test_the_names_of_a_model_without_its_output_and_an_output_of_its_own_are_known(folder):
    tensors = tensors_of(folder)
    change_tensors(folder, dict.fromkeys(tensors)
                   | {name.removeprefix("transformer."): a for name, a in tensors.items()})
    assert unchanged(folder)
    table = tensors["transformer.wte.weight"]
    change_tensors(folder, {"lm_head.weight": table})
    assert hugging_face.read(folder).config.tied
    change_tensors(folder, {"lm_head.weight": -table})
    assert "tie_word_embeddings = True, and lm_head.weight differs from transformer.wte" in refused(
        folder)
    change(folder / "config.json", {"tie_word_embeddings": None})       # nothing is said of it
    back = hugging_face.read(folder)
    assert not back.config.tied and np.array_equal(back.weights["lm_head.weight"], -table)


def test_buffers_of_any_dtype_are_left_out(folder):
    from safetensors.numpy import load_file, save_file
    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_file(tensors | {"transformer.h.0.attn.bias": np.tri(7, dtype=bool),
                         "transformer.h.1.attn.masked_bias": np.array(-1e4),
                         "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(3)}, path)
    assert unchanged(folder)
    save_file(tensors | {"more": np.ones(3)}, path)
    assert "has more of F64" in refused(folder)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.", "a.transformer."])
def test_read_names_what_stands_before_all_names(folder, prefix):
    tensors = tensors_of(folder)
    change_tensors(folder, dict.fromkeys(tensors)
                   | {prefix + name: a for name, a in tensors.items()})
    assert refused(folder).endswith(
        f"lacks transformer.h.0.attn.c_attn.bias, transformer.h.0.attn.c_attn.weight, transformer."
        f"h.0.attn.c_proj.bias and 25 more; its names begin with {prefix}, as of a model in "
        "another one; save the inner model")


def test_read_names_a_tensor_that_is_there_where_others_are_missing(folder):
    tensors = tensors_of(folder)
    change_tensors(folder, dict.fromkeys(tensors) | {
        name.replace("transformer", "module"): a for name, a in tensors.items()})
    assert "; it has module.h.0.attn.c_attn.bias instead" in refused(folder)


@pytest.mark.parametrize("changed, says", [
    ({"transformer.wpe.weight": None}, "lacks transformer.wpe.weight"),
    ({"transformer.wpe.weight": np.zeros((8, 12), np.float32)},
     "wpe.weight of the shape [8, 12], and its configuration asks for [7, 12]"),
    ({"score.weight": np.zeros((8, 12), np.float32)}, "has score.weight, for which its"),
    ("pytorch_model.bin", "save_pretrained(new)"), ("[" * 10 ** 5, "config.json is no JSON"),
    ("[]", "config.json is no JSON object")],
    ids=lambda value: str(value)[:30])
def test_what_is_missing_or_wrong_in_a_folder_is_named(folder, changed, says):
    if isinstance(changed, dict):
        change_tensors(folder, changed)
    elif changed.endswith(".bin"):
        (folder / "model.safetensors").rename(folder / changed)
    else:
        written(folder / "config.json", changed)
    assert says in refused(folder)


def test_a_vocabulary_of_another_size_or_of_half_a_character_is_refused(folder):
    written(folder / "tokenizer.json", json.dumps(of_characters("ab")))
    assert "the vocabulary has 2 characters, for a model of 16" in refused(folder)
    (folder / "tokenizer.json").unlink()
    assert "tokenizer.json; give the model's tokenizer.json by --tokenizer" in refused(folder)
    other = written(folder / "characters.json", json.dumps(of_characters(VOCABULARY)))
    assert hugging_face.read(folder, other).tokenizer.vocabulary == VOCABULARY
    assert "half a pair of surrogates" in refusal(
        FormatError, hugging_face.write, folder, found(GPT2, CharTokenizer.of("ab\ud800")))


def test_only_a_tokenizer_of_characters_is_taken_for_one():
    said = of_characters(VOCABULARY)
    assert characters(json.loads(json.dumps(said))) == VOCABULARY
    for changed in ({"normalizer": {"type": "NFC"}}, {"added_tokens": [{"id": 0}]},
                    {"model": said["model"] | {"unk_token": "a"}}, {"model": None},
                    {"decoder": None},
                    *({"model": said["model"] | {"vocab": vocabulary}}
                      for vocabulary in ({"ab": 0}, {"a": 1, "b": 0}, {}))):
        assert characters(said | changed) is None, changed


@pytest.mark.parametrize("generation, config, ends, note", [
    (0, 0, (0,), None), (None, 0, (0,), None), ("no file", 3, (3,), None), (1, 0, (1,), None),
    ([2, *[0] * 10_000], 1, (2, 0), None), ("no file", [5, 4, 5], (5, 4), None), ([], 7, (), None),
    (int("7" * 4_000), 0, (), "which should end a text, is no token; none does"),
    ([3, -1], 0, (3,), "the id -1, which should end a text, is no token")],
    ids=lambda value: str(value)[:20])
def test_read_takes_all_ends_of_generation_config_or_else_of_config(
        tmp_path, generation, config, ends, note):
    hugging_face.write(tmp_path, found(LLAMA, TokenTokenizer(byte_level(), end=0)))
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["eos_token"] == END
    change(tmp_path / "tokenizer_config.json", {"eos_token": None})
    change(tmp_path / "config.json", {"eos_token_id": config})
    if generation == "no file":
        (tmp_path / "generation_config.json").unlink()
    else:
        change(tmp_path / "generation_config.json", {"eos_token_id": generation})
    back = hugging_face.read(tmp_path)
    assert (back.tokenizer.json, back.tokenizer.ends) == (byte_level(), ends)
    assert (back.notes == []) if note is None else (back.notes[0].endswith(note))
    assert len(str(back.notes)) < 200


@pytest.mark.parametrize("ends, said", [([], None), ([4], 4), ([5, 0, 4], [5, 0, 4])])
def test_write_says_all_ends_in_both_configurations(tmp_path, ends, said):
    hugging_face.write(tmp_path, found(LLAMA, TokenTokenizer(byte_level(), ends)))
    for name in ("config.json", "generation_config.json"):
        assert json.loads((tmp_path / name).read_text())["eos_token_id"] == said
    assert hugging_face.read(tmp_path).tokenizer.ends == tuple(ends)


NAMED = {"default": "é {{ x }}", "tool_use": "T"}
LISTED = [{"name": name, "template": text} for name, text in NAMED.items()]


@pytest.mark.parametrize("files, templates, note", [
    ({"tokenizer_config.json": "A"}, {"default": "A"}, ""),
    ({"tokenizer_config.json": LISTED}, NAMED, ""), ({"tokenizer_config.json": NAMED}, NAMED, ""),
    ({"chat_template.json": "J"}, {"default": "J"}, ""),
    ({"chat_template.json": LISTED}, NAMED, ""),
    ({"tokenizer_config.json": "A", "chat_template.json": "A"}, {"default": "A"}, ""),
    ({"tokenizer_config.json": "A", "chat_template.json": "J"}, {"default": "A"},
     "the chat templates of chat_template.json are left out, as there are tokenizer_config.json"),
    ({"chat_template.jinja": "B", "tokenizer_config.json": "A"}, {"default": "B"},
     "the chat templates of tokenizer_config.json are left out, as there are files ending in"),
    ({"chat_template.jinja": "B", "additional_chat_templates/rag.jinja": "R"},
     {"default": "B", "rag": "R"}, ""),
    ({"additional_chat_templates/rag.jinja": "R"}, {"rag": "R"},
     "are rag, and none is the default"),
    ({"tokenizer_config.json": 3}, {}, "the chat_template of tokenizer_config.json is no text"),
    ({"tokenizer_config.json": [{"name": "default"}]}, {}, "tokenizer_config.json is no text")],
    ids=str)
def test_read_keeps_all_chat_templates_in_the_order_of_transformers(tmp_path, files, templates,
                                                                    note):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    hugging_face.write(first, found(LLAMA, TokenTokenizer(byte_level(), end=0)))
    for name, content in files.items():
        (first / name).parent.mkdir(exist_ok=True)
        text = content if name.endswith(".jinja") else json.dumps({"chat_template": content})
        written(first / name, text)
    model = hugging_face.read(first)
    assert [note in said for said in model.notes] == ([True] if note else [])
    hugging_face.write(second, model)
    back = hugging_face.read(second)
    keys = back.tokenizer.metadata.get("keys", {})
    stated = {key: value for key, (value, _) in keys.items()}
    assert stated.pop("tokenizer.chat_template", None) == templates.get("default")
    names = [name for name in templates if name != "default"]
    assert stated.pop("tokenizer.chat_templates", []) == names
    assert stated == {f"tokenizer.chat_template.{name}": templates[name] for name in names}


FOUR = {"bos_token": "a", "pad_token": {"content": "b", "lstrip": False}, "unk_token": END,
        "mask_token": "c"}      # tokens of byte_level
NOTE = "is no token of tokenizer.json, and is left out"


@pytest.mark.parametrize("changes, roles, note", [
    ({"tokenizer_config.json": FOUR}, "abc", ""), ({"special_tokens_map.json": FOUR}, "abc", ""),
    ({"special_tokens_map.json": FOUR, "tokenizer_config.json": {
        "bos_token": "d", "added_tokens_decoder": {}}}, "dbc", ""),
    ({"special_tokens_map.json": FOUR, "tokenizer_config.json": {"bos_token": "d"}}, "abc", ""),
    ({"tokenizer_config.json": FOUR, "config.json": {"bos_token_id": 9}}, "abc", ""),
    ({"tokenizer_config.json": FOUR | {"bos_token": "<nowhere>"}}, " bc",
     f"its bos_token, <nowhere>, {NOTE}"),
    ({"tokenizer_config.json": FOUR | {"bos_token": None}, "config.json": {"bos_token_id": -1}},
     " bc", f"its bos_token, -1, {NOTE}"),
    ({"tokenizer_config.json": FOUR | {"eos_token": "e"}}, "abc",
     "is none of the ids that end a text (config.json, generation_config.json), and is left out"),
    ({"tokenizer_config.json": FOUR | {"add_bos_token": True}}, "abc",
     "has add_bos_token = True, which tokenizer.json contradicts, and is left out")], ids=str)
def test_read_keeps_the_tokens_with_a_role_that_a_folder_names(tmp_path, changes, roles, note):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    hugging_face.write(first, found(LLAMA, TokenTokenizer(byte_level(), end=0)))
    written(first / "special_tokens_map.json", "{}")
    for name, changed in changes.items():
        change(first / name, changed)
    model = hugging_face.read(first)
    assert [said.endswith(note) for said in model.notes] == ([True] if note else [])
    hugging_face.write(second, model)
    said = json.loads((second / "tokenizer_config.json").read_text())
    assert [said.get(f"{role}_token", " ") for role in ("bos", "pad", "mask")] == [*roles]
    assert said["unk_token"] == said["eos_token"] == END
    ids = model.tokenizer.ids_of_names()
    for name in ("config.json", "generation_config.json"):
        said = json.loads((second / name).read_text())
        assert said["bos_token_id"] == ids.get(roles[0]) and said["pad_token_id"] == ids["b"]
    back = hugging_face.read(second)
    assert back.notes == [] and back.tokenizer.json == model.tokenizer.json


def test_read_takes_the_ids_of_a_configuration_where_no_token_is_named(folder, tmp_path):
    hugging_face.write(folder, found(LLAMA, TokenTokenizer(byte_level(), end=0)))
    change(folder / "config.json", {"bos_token_id": 5, "pad_token_id": 7})
    change(folder / "generation_config.json", {"pad_token_id": 6})
    keys = hugging_face.read(folder).tokenizer.metadata["keys"]
    assert keys == {"tokenizer.ggml.bos_token_id": [5, [4]],
                    "tokenizer.ggml.padding_token_id": [6, [4]]}


def test_the_end_that_a_template_writes_is_the_first_of_several(folder):
    hugging_face.write(folder, found(LLAMA, TokenTokenizer(byte_level(), [3, 0, 4])))
    change(folder / "tokenizer_config.json", {"eos_token": END})
    assert hugging_face.read(folder).tokenizer.ends == (0, 3, 4)


def test_a_tokenizer_that_is_given_leaves_its_folder_the_chat_template(folder, tmp_path):
    hugging_face.write(folder, found(LLAMA, TokenTokenizer(byte_level(), end=0)))
    change(folder / "tokenizer_config.json", {"chat_template": "A", "bos_token": "b"})
    other = tmp_path / "elsewhere"
    other.mkdir()
    (folder / "tokenizer.json").rename(other / "tokenizer.json")
    keys = hugging_face.read(folder, other / "tokenizer.json").tokenizer.metadata["keys"]
    assert keys["tokenizer.chat_template"] == ["A", [8]]
    assert "tokenizer.ggml.bos_token_id" in keys
