"""The tokenizer of a GGUF file: read as llama.cpp reads it, written so that llama.cpp makes the
same ids, or refused with a text that would have others."""
import itertools
import json
import struct
import urllib.request

import numpy as np
import pytest

from data.tokenizer import CharTokenizer
from model import Transformer, TransformerConfig, load_checkpoint, save_checkpoint
from model.convert import gguf
from model.convert.__main__ import main
from model.convert.gguf_tokens import PROBES, SPLITS, check, ends_of, keys_of, probing_texts
from model.convert.model_file import FormatError
from model.convert.tokens import TokenTokenizer, with_metadata
from tests.kit import refusal
from tests.model.convert.gguf_files import TOKENS, V, for_llama_cpp, llama, written
from tests.token_files import END, MERGES, byte_fallback, byte_level, of_words, special

pytestmark = pytest.mark.needs("gguf", "convert")

G = "tokenizer.ggml."
TEXT = "the in 1234 ½3 x+y=z $5^2 t h <|end|>the<|foo|> the's  \n\n  q12é漢\r\n\t re"
TEMPLATE = {"type": "TemplateProcessing", "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {name: {"id": name, "ids": [i], "tokens": [name]}
                               for i, name in ((0, END), (266, "<s>"), (267, "</s>"))}}


def template(*names):
    """A post-processor; None stands for the text."""
    return TEMPLATE | {"single": [
        {"SpecialToken": {"id": name, "type_id": 0}} if name else
        {"Sequence": {"id": "A", "type_id": 0}} for name in names]}


BEGUN = template("<s>", None)
AROUND = template("<s>", None, "</s>")
ROBERTA = {"type": "RobertaProcessing", "sep": ["</s>", 267], "cls": ["<s>", 266],
           "trim_offsets": True, "add_prefix_space": False}
BYTES = SPLITS["gpt-2"]
OLD_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}


def changed(model={}, added=(), left_out=(), **parts):
    """A tokenizer.json of 268 ids with other parts, or of more if there are more added tokens."""
    found = json.loads(byte_level()) | parts
    found["added_tokens"] = [special(0, END), special(266, "<s>"), special(267, "</s>"), *added]
    found["model"] |= model
    for name in left_out:
        del (found if name in found else found["model"])[name]
    return json.dumps(found)


def words(**more):
    """The model of `byte_level` with a word that its merges do not make."""
    vocabulary = json.loads(byte_level())["model"]["vocab"]
    del vocabulary["ðŁ"]
    return {"vocab": vocabulary | {"quick": 265}, "merges": MERGES[:-1]} | more


def read_again(tokenizer):
    """The tokenizer that another program makes of the keys."""
    metadata = keys_of(tokenizer)
    check(metadata, tokenizer)
    del metadata["tokenizer.huggingface.json"]
    return metadata


LIKE_GPT2 = {
    "of OpenAI's GPT-2": changed(pre_tokenizer=OLD_BYTES, left_out=["type"]),
    "no normalizer": changed(left_out=["normalizer"]),
    "no type and no decoder's": changed(decoder=OLD_BYTES, left_out=["type", "normalizer"]),
    "no offsets": changed(pre_tokenizer=BYTES | {"trim_offsets": False}),
    "a sequence of one": changed(pre_tokenizer={"type": "Sequence", "pretokenizers": [BYTES]}),
    "a sequence in a sequence": changed(pre_tokenizer={"type": "Sequence", "pretokenizers": [
        {"type": "Sequence", "pretokenizers": [OLD_BYTES]}]}),
    "no normalizers": changed(normalizer={"type": "Sequence", "normalizers": []}),
    "whole words that merges make": changed({"ignore_merges": True}),
    "unknown bytes that there are not": changed({"unk_token": END}),
    "bytes": changed({"byte_fallback": True}),
    "a normalized token": changed(added=[special(268, "<x>") | {"normalized": True}]),
    "a token of a user": changed(added=[special(268, "<x>") | {"special": False}]),
    "parts that are dropped by chance": changed({"dropout": 0.5}),
    "texts that are cut": changed(truncation={
        "direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0})}
REFUSED = {
    "no regex": (changed(pre_tokenizer=BYTES | {"use_regex": False}), "gpt-2, smollm, default, "),
    "a space": (changed(pre_tokenizer=BYTES | {"add_prefix_space": True}), "no byte-level BPE"),
    "NFC": (changed(normalizer={"type": "NFC"}), "(it has NFC, ByteLevel, BPE)"),
    "words": (of_words("a", "?"), "(it has WordLevel)"),
    "fallback": (byte_fallback(), "(it has Prepend, Replace, BPE)"),
    "whole words": (changed(words(ignore_merges=True)), "(ignore_merges)"),
    "a suffix": (changed(words(end_of_word_suffix="</w>")), "(end_of_word_suffix)"),
    "a prefix": (changed({"continuing_subword_prefix": "##", "merges": []}),
                 "(continuing_subword_prefix)"),
    "an unknown byte": (changed({"unk_token": END, "merges": [], "vocab": {
        token: i for token, i in json.loads(byte_level())["model"]["vocab"].items()
        if token != "z"}}), "(unk_token)"),
    "a single word": (changed(added=[special(268, "foo") | {"single_word": True}]),
                      "would read 'foofoo' as [268, 268], and its tokenizer.json says [103, 112, "
                      "112, 103, 112, 112]: a GGUF file cannot say all of it (single_word)"),
    "a space before": (changed(added=[special(268, "<x>") | {"lstrip": True}]), "(lstrip)"),
    "a space after": (changed(added=[special(268, "<x>") | {"rstrip": True}]), "(rstrip)"),
    "no decoder": (changed(decoder=None), "llama.cpp would write the token "),
    "two beginnings": (changed(post_processor=template("<s>", END, None)), "puts 2 tokens before"),
    "two ends": (changed(post_processor=template(None, END, "</s>")), "puts 2 tokens after"),
    "the text twice": (changed(post_processor=template(None, None)),
                       "would read ' ' as [33], and its tokenizer.json says [33, 33]"),
    "an end that ends none": (changed(post_processor=template(None, "<s>")), "the id 266 after")}


@pytest.mark.parametrize("text", LIKE_GPT2.values(), ids=LIKE_GPT2)
def test_keys_of_says_of_each_tokenizer_that_splits_as_gpt2_that_it_does(text):
    metadata = read_again(TokenTokenizer(text, 0))
    assert metadata[f"{G}pre"] == "gpt-2"
    assert metadata[f"{G}merges"] == MERGES
    assert f"{G}add_bos_token" not in metadata


@pytest.mark.parametrize("text, why", REFUSED.values(), ids=REFUSED)
def test_what_the_keys_cannot_say_is_refused_with_its_name(text, why):
    def out():
        tokenizer = TokenTokenizer(text, 0 if END in text else None)
        check(keys_of(tokenizer), tokenizer)
    said = refusal(FormatError, out)
    assert why in said and len(said) < 400
    assert "give llama.cpp the model's own files" in said or "generation_config.json" in said


@pytest.mark.parametrize("processor, ends, stated", [
    (BEGUN, [0], {"bos_token_id": 266, "add_bos_token": True, "eos_token_id": 0}),
    ({"type": "Sequence", "processors": [OLD_BYTES, BEGUN]}, [],
     {"bos_token_id": 266, "add_bos_token": True}),
    (AROUND, [267, 0], {"bos_token_id": 266, "add_bos_token": True, "add_eos_token": True,
                        "eos_token_id": 267, "eot_token_id": 0}),
    (ROBERTA, [0, 267], {"bos_token_id": 266, "add_bos_token": True, "add_eos_token": True,
                         "eos_token_id": 267, "eot_token_id": 0}),
    (OLD_BYTES, [5, 0, 7], {"eos_token_id": 5, "eot_token_id": 0, "eom_token_id": 7}),
    (template(None, "</s>"), [267], {"add_eos_token": True, "eos_token_id": 267})])
def test_keys_of_names_what_begins_and_ends_a_text(processor, ends, stated):
    tokenizer = TokenTokenizer(changed(post_processor=processor), ends)
    metadata = read_again(tokenizer)
    found = {key.removeprefix(G): value for key, value in metadata.items()
             if "_id" in key or "add_" in key}
    assert found == stated
    assert {*ends_of(metadata, 268)} == {*ends}


def test_keys_of_refuses_more_ends_than_there_are_keys_for():
    tokenizer = TokenTokenizer(changed(), [0, 5, 6, 7])
    assert "4 ids end a text, and a GGUF file can name 3" in refusal(FormatError, keys_of,
                                                                     tokenizer)


def test_probing_texts_have_each_byte_of_utf8_and_each_added_token_within_and_between_words():
    tokenizer = TokenTokenizer(changed())
    texts = probing_texts(tokenizer, tokenizer.parts()["added_tokens"])
    assert {*"".join(texts).encode()} == {*range(256)} - {0xC0, 0xC1, *range(0xF5, 256)}
    assert {"a</s>b", " </s> ", "</s>", "</s></s>", " the", "quick"[:1]} <= {*texts}


def without_copy(metadata):
    return {key: value for key, value in metadata.items() if key != "tokenizer.huggingface.json"}


@pytest.mark.parametrize("key, value, why", [
    ("pre", "smollm", "would read"), ("add_bos_token", True, "would read"),
    ("eos_token_id", 5, "would end a text at [5], and it ends at [0]"),
    ("tokens", [*TOKENS[:5], "zz", *TOKENS[6:], "<s>", "</s>"],
     "llama.cpp would write the token 5 as 'zz', and its tokenizer.json says '\\x04'"),
    ("merges", ["zz h"], "is of a token that it has not"),
    ("token_type", [3] + [1] * 267, "would read")])
def test_check_finds_what_another_program_would_read_otherwise(key, value, why):
    added = json.loads(changed())["model"]["vocab"] | {"12": 265}
    del added["ðŁ"]
    model = {"vocab": added, "merges": [*MERGES[:-1], "1 2"]}
    if key == "tokens":
        model = {}
    tokenizer = TokenTokenizer(changed(model), 0)
    metadata = keys_of(tokenizer)
    check(metadata, tokenizer)
    assert why in refusal(FormatError, check, metadata | {G + key: value}, tokenizer)


def test_check_reads_characters_as_another_program_does():
    tokenizer = CharTokenizer.of("a漢\\🙂\n")
    metadata = keys_of(tokenizer)
    check(metadata, tokenizer)
    tokens = metadata[f"{G}tokens"]
    metadata[f"{G}tokens"] = [tokens[0], tokens[2], tokens[1], *tokens[3:]]
    assert "its characters would be others" in refusal(FormatError, check, metadata, tokenizer)


# As other programs write files, and a text whose tokens show it; a judge confirms its ids below.
FOO = ["<|foo|>", *TOKENS[1:]]
READ = {
    "no split": ({G + "pre": None}, "12", [*"12"]),
    "default": ({G + "pre": "default", G + "merges": [*MERGES[:-3], "Ġ $", "Ġ 1", "3 4"],
                 G + "tokens": [*TOKENS[:-3], "Ġ$", "Ġ1", "34"]}, "in $ 12 1234 34",
                ["in", *" $ 12 1234 ", "34"]),
    "no types": ({G + "token_type": None}, END, [END]),
    "no types and another name": ({G + "token_type": None, G + "tokens": FOO}, "<|foo|>",
                                  [*"<|foo|>"]),
    "a known name": ({G + "token_type": [1] * V}, f"a{END}", ["a", END]),
    "an unknown token": ({G + "token_type": [2] + [1] * (V - 1), G + "tokens": FOO}, "<|foo|>",
                         ["<|foo|>"]),
    "no id of the beginning": ({G + "add_bos_token": True}, "a", ["\n", "a"]),
    "no merges": ({G + "merges": struct.pack("<IIQ", 9, 8, 0)}, "the", [*"the"]),
    "a merge that no text has": ({G + "merges": ["ÿ ÿ"]}, "the", [*"the"]),
    "a merge of one word": ({G + "merges": ["the", "h e"]}, "the", ["t", "he"]),
    "a merge of a space": ({G + "merges": [" h", "h ", "h e"]}, "the", ["t", "he"]),
    "merges of three words": ({G + "merges": ["t h e", "i n g", "h e"]}, "the", ["t", "he"]),
    "a merge twice": ({G + "merges": ["Ġ t", "h e", "Ġt h", "Ġ t"]}, " th", [" th"])}


@pytest.mark.parametrize("changes, text, tokens", READ.values(), ids=READ)
def test_a_file_that_leaves_keys_out_is_read_and_goes_out_as_it_came(
        changes, text, tokens, tmp_path):
    path = written(tmp_path / "m.gguf", *llama(**changes))
    main([str(path), str(tmp_path / "out")])
    found = load_checkpoint(tmp_path / "out" / "ckpt.npz").tokenizer
    assert [found.vocabulary[i] for i in found.encode(text)] == tokens
    if "no merges" not in str([name for name in READ if READ[name][0] is changes]):
        main([str(tmp_path / "out"), str(tmp_path / "again.gguf")])
        again = gguf.read(tmp_path / "again.gguf").tokenizer
        assert again.encode(TEXT).tolist() == found.encode(TEXT).tolist()


@pytest.mark.parametrize("changes, why", [
    ({G + "bos_token_id": V, G + "add_bos_token": True},
     f"its {G}bos_token_id is {V}, and it has {V} tokens; give its tokenizer.json"),
    ({G + "bos_token_id": "a", G + "add_bos_token": True}, f"its {G}bos_token_id is a, and it has"),
    ({G + "eos_token_id": V, G + "add_eos_token": True}, f"its {G}eos_token_id is {V}, and"),
    ({G + "pre": "falcon"}, f"it has {G}pre = falcon, and only gpt-2, smollm, default, llama-bpe "
                            "or qwen2 can be read; give its tokenizer.json by --tokenizer"),
    ({G + "pre": ["gpt-2"]}, f"it has {G}pre = ['gpt-2'], and only"),
    ({G + "model": None}, f"it has {G}model = None, and only gpt2 can be read; give its"),
    ({G + "tokens": None}, f"it has no {G}tokens, a list of texts; give its"),
    ({G + "merges": [1, 2]}, f"it has no {G}merges, a list of texts; give its"),
    ({G + "merges": ["t h", *MERGES]}, "its merge t h is of a token that it has not, or makes one"),
    ({G + "merges": ["zz h"]}, "its merge zz h is of a token that it has not"),
    ({G + "token_type": [1] * 5}, f"it has {V} tokens, and {G}token_type has 5 types; give")])
def test_what_another_program_wrote_wrongly_is_refused_with_one_remedy(changes, why, tmp_path):
    path = written(tmp_path / "m.gguf", *llama(**changes))
    said = refusal(FormatError, gguf.read, path)
    assert why in said
    assert "take another model" not in said


@pytest.mark.parametrize("keys, ends", [
    ({}, (0,)), ({"eot_token_id": 5}, (0, 5)), ({"eot_token_id": 0, "eom_token_id": 7}, (0, 7)),
    ({"eos_token_id": None, "eot_token_id": 5}, (5,)), ({"eos_token_id": V}, ())])
def test_a_file_keeps_all_ids_that_end_a_text_through_checkpoints_and_folders(
        keys, ends, tmp_path):
    path = written(tmp_path / "m.gguf", *llama(**{G + key: value for key, value in keys.items()}))
    names = [path, *(tmp_path / name for name in ("out", "a.safetensors"))]
    convert(*names)
    convert(tmp_path / "out", *(tmp_path / name for name in ("hf", "out2", "again.gguf", "out3")))
    convert(tmp_path / "a.safetensors", tmp_path / "out4")
    for folder in ("out", "out2", "out3", "out4"):
        assert load_checkpoint(tmp_path / folder / "ckpt.npz").tokenizer.ends == ends
    stated = gguf.metadata_of(tmp_path / "again.gguf")
    found = [stated[G + key] for key in ("eos_token_id", "eot_token_id", "eom_token_id")
             if G + key in stated]
    assert found == [*ends]


def convert(*names):
    """Convert from each to the next."""
    for source, target in itertools.pairwise(names):
        main([str(source), str(target)])


def test_a_beginning_is_not_lost_in_a_folder(tmp_path):
    path = written(tmp_path / "m.gguf", *llama(**{G + "add_bos_token": True,
                                                  G + "bos_token_id": 0}))
    convert(path, *(tmp_path / name for name in ("out", "hf", "out2", "again.gguf")))
    stated = gguf.metadata_of(tmp_path / "again.gguf")
    assert stated[f"{G}add_bos_token"] is True
    assert stated[f"{G}bos_token_id"] == 0


def test_tokens_with_a_role_go_from_a_folder_into_a_file_and_back(tmp_path):
    convert(written(tmp_path / "m.gguf", *llama()), tmp_path / "out", tmp_path / "hf")
    config = tmp_path / "hf" / "tokenizer_config.json"
    named = json.loads(config.read_text()) | {
        "bos_token": "a", "unk_token": "b", "sep_token": "c", "pad_token": "d", "mask_token": "e"}
    config.write_text(json.dumps(named))
    convert(*(tmp_path / name for name in ("hf", "out2", "named.gguf", "out3", "hf2")))
    stated = gguf.metadata_of(tmp_path / "named.gguf")
    tokens = stated[f"{G}tokens"]
    assert [tokens[stated[f"{G}{key}_token_id"]] for key in (
        "bos", "unknown", "seperator", "padding", "mask")] == [*"abcde"]
    assert f"{G}add_bos_token" not in stated
    assert json.loads((tmp_path / "hf2" / "tokenizer_config.json").read_text()) == named


def test_what_stands_before_each_text_is_the_bos_of_a_file(tmp_path):
    tokenizer = TokenTokenizer(changed(post_processor=BEGUN), 0)
    keys = {f"{G}bos_token_id": [5, [4]], f"{G}padding_token_id": [6, [4]]}
    tokenizer = TokenTokenizer(with_metadata(tokenizer.json, {"keys": keys}), 0)
    saved(tmp_path / "ckpt.npz", tokenizer)
    convert(tmp_path / "ckpt.npz", tmp_path / "m.gguf")
    stated = gguf.metadata_of(tmp_path / "m.gguf")
    assert (stated[f"{G}bos_token_id"], stated[f"{G}add_bos_token"]) == (266, True)
    assert stated[f"{G}padding_token_id"] == 6


def test_a_tokenizer_that_is_given_leaves_a_file_its_other_metadata(tmp_path):
    own = {"general.name": "small", "general.license": "mit", "tokenizer.chat_template": "A",
           f"{G}eos_token_id": 0, f"{G}padding_token_id": 2}
    path = written(tmp_path / "m.gguf", *llama(**own, **{
        f"{G}model": "llama", f"{G}scores": [1], f"{G}add_bos_token": True}))
    file = tmp_path / "tokenizer.json"
    file.write_text(gguf.read(written(tmp_path / "other.gguf", *llama())).tokenizer.json,
                    encoding="utf-8")
    main([str(path), str(tmp_path / "out"), "--tokenizer", str(file)])
    convert(tmp_path / "out", tmp_path / "again.gguf")
    stated = gguf.metadata_of(tmp_path / "again.gguf")
    assert stated | own == stated
    assert stated[f"{G}model"] == "gpt2"
    assert not {f"{G}scores", f"{G}add_bos_token"} & stated.keys()
    convert(tmp_path / "out", tmp_path / "hf")
    said = json.loads((tmp_path / "hf" / "tokenizer_config.json").read_text())
    assert said["chat_template"] == "A"


def test_templates_with_names_go_from_a_folder_into_a_file_and_back(tmp_path):
    convert(written(tmp_path / "m.gguf", *llama()), tmp_path / "out", tmp_path / "hf")
    config = tmp_path / "hf" / "tokenizer_config.json"
    listed = [{"name": "default", "template": "A"}, {"name": "tool_use", "template": "T"}]
    config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": listed}))
    convert(*(tmp_path / name for name in ("hf", "out2", "named.gguf", "out3", "hf2")))
    stated = gguf.metadata_of(tmp_path / "named.gguf")
    assert {key: value for key, value in stated.items() if "chat" in key} == {
        "tokenizer.chat_template": "A", "tokenizer.chat_template.tool_use": "T",
        "tokenizer.chat_templates": ["tool_use"]}
    back = json.loads((tmp_path / "hf2" / "tokenizer_config.json").read_text())
    assert sorted(map(str, back["chat_template"])) == sorted(map(str, listed))


def saved(path, tokenizer):
    """Save a small model with a tokenizer; all its logits are alike."""
    config = TransformerConfig(tokenizer.vocab_size, block_size=32, n_layer=1, n_head=2, n_embd=32,
                               position="rotary", norm="rms_gain", activation="swiglu")
    save_checkpoint(path, Transformer(config), tokenizer)


def test_without_an_end_a_note_names_the_token_at_which_llama_cpp_ends(tmp_path, capsys):
    for ends, said in (([], "llama.cpp takes the token 11, '\\n', for one"), ([0], "")):
        name = tmp_path / f"{len(ends)}"
        saved(name.with_suffix(".npz"), TokenTokenizer(changed(), ends))
        convert(name.with_suffix(".npz"), name.with_suffix(".gguf"))
        assert said in (out := capsys.readouterr().out)
        assert ("no end" in out) == (not ends)


def test_write_refuses_a_tokenizer_that_llama_cpp_would_read_otherwise(tmp_path):
    saved(tmp_path / "a.npz", TokenTokenizer(REFUSED["whole words"][0], 0))
    said = refusal(SystemExit, main, [str(tmp_path / "a.npz"), str(tmp_path / "a.gguf")])
    assert ("llama.cpp would read 'quick' as [114, 118, 106, 100, 108], and its tokenizer.json "
            "says [265]") in said
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


class Judge:
    """llama.cpp with the model of a file."""

    def __init__(self, path):
        import xllamacpp
        self.server = xllamacpp.Server(for_llama_cpp(path, 64))
        # One that has not begun to answer may wait for ever when it is closed.
        self.server.handle_completions(dict(prompt="a", n_predict=1))

    def ids(self, text):
        """The ids of a text, and what llama.cpp puts around it."""
        body = json.dumps({"content": text, "add_special": True, "parse_special": True}).encode()
        asked = urllib.request.Request(f"{self.server.listening_address}/tokenize", body,
                                       {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked) as answer:
            return json.load(answer)["tokens"]


@pytest.mark.needs("gguf", "convert", "judge")
@pytest.mark.parametrize("changes, shown, _", READ.values(), ids=READ)
def test_llama_cpp_makes_the_ids_of_files_that_leave_keys_out(changes, shown, _, tmp_path):
    path = written(tmp_path / "m.gguf", *llama(**changes))
    found, judge = gguf.read(path).tokenizer, Judge(path)
    for text in (shown, TEXT, *PROBES[:-3]):
        assert judge.ids(text) == found.encode(text).tolist(), text


@pytest.mark.needs("gguf", "convert", "judge")
@pytest.mark.parametrize("text", [
    *LIKE_GPT2.values(), changed(post_processor=BEGUN), changed(post_processor=ROBERTA),
    changed(post_processor={"type": "Sequence", "processors": [OLD_BYTES, AROUND]})])
def test_llama_cpp_makes_the_ids_of_what_was_written(text, tmp_path):
    import tokenizers
    saved(tmp_path / "a.npz", TokenTokenizer(text, [267, 0]))
    convert(tmp_path / "a.npz", tmp_path / "a.gguf")
    whole = tokenizers.Tokenizer.from_str(TokenTokenizer(text).library_json)
    judge = Judge(tmp_path / "a.gguf")
    for each in (TEXT, *PROBES[:-3]):
        assert judge.ids(each) == whole.encode(each).ids, each


@pytest.mark.needs("gguf", "convert", "judge")
@pytest.mark.parametrize("keys", [["eos", "eot"], ["eot", "eom"], ["eom", "eos"], []])
def test_llama_cpp_ends_a_text_at_each_end_of_a_file(keys, tmp_path):
    output = np.zeros((V, 32), np.float32)
    output[[100, 101]] = [[50], [-50]]      # one of the two is always the likeliest
    stated = {f"{G}{key}_token_id": id for key, id in zip(keys, (100, 101))}
    stated = {G + "eos_token_id": 5} | stated
    path = written(tmp_path / "m.gguf", *llama(**stated, **{"output.weight": output}))
    assert {100, 101} <= {*gguf.read(path).tokenizer.ends} or not keys
    answer = Judge(path).server.handle_completions(dict(prompt="the", n_predict=8, temperature=0))
    assert answer["usage"]["completion_tokens"] == (1 if keys else 8)
