"""Tokens to ids and back, whole and one by one; and what is said of files that are no tokenizer."""
import json
import pickle

import numpy as np
import pytest

from data.tokenizer import UnknownCharacterError
from model.convert.tokens import TokenTokenizer
from tests.kit import refusal
from tests.token_files import (END, MERGES, byte_fallback, byte_level, of_words, special,
                               tokenizer_json)

KINDS = {"byte level": byte_level, "byte fallback": byte_fallback}
TEXTS = ["", "a", "the quick the", " the  in\n\nre ", "so 🙂🙂 and 👩‍👩‍👧 é e\u0301", "Ἀχιλῆος, 漢字",
         "\ufffd and more", "ends with \ufffd", "\0\x7f\u2028", "🙂"]
TEXT = "the the quick the in the there"
by_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
pytestmark = pytest.mark.needs("convert")


def streamed(tokenizer, ids, after=()):
    stream = tokenizer.stream(after)
    return [stream.add(i) for i in ids] + [stream.rest()]


@by_kind
def test_any_text_comes_back_whole_and_token_by_token_after_any_beginning(kind):
    tokenizer, rng = TokenTokenizer(kind()), np.random.default_rng(0)
    alphabet = list("the qin \n") + ["é", "漢", "🙂", "\ufffd"]
    texts = ("".join(rng.choice(alphabet, size=rng.integers(0, 12))) for _ in range(200))
    for text in (*TEXTS, *texts):
        ids = tokenizer.encode(text).tolist()
        assert tokenizer.decode(ids) == "".join(streamed(tokenizer, ids)) == text
        n = rng.integers(len(ids) + 1)
        before = tokenizer.decode(ids[:n])
        if before.endswith("\ufffd"):       # within a character
            continue
        pieces = streamed(tokenizer, ids[n:], ids[:n])
        assert before + "".join(pieces) == tokenizer.decode(ids) == text


@pytest.mark.parametrize("kind, names, no_character", [
    (byte_level, ["ð", "Ł", "ĺ", "Ĥ", "Ã", "©"], "ÿ"),
    (byte_fallback, ["<0xF0>", "<0x9F>", "<0x98>", "<0x82>", "<0xC3>", "<0xA9>"], "<0xFF>")])
def test_a_character_is_shown_with_its_last_byte_and_other_bytes_at_once(kind, names, no_character):
    tokenizer = TokenTokenizer(kind())
    ids = list(map(tokenizer.vocabulary.index, names))
    assert streamed(tokenizer, ids) == ["", "", "", "😂", "", "é", ""]
    assert streamed(tokenizer, ids[:2])[2:] == [tokenizer.decode(ids[:2])]
    pieces = streamed(tokenizer, [tokenizer.vocabulary.index(no_character)] * 50)
    assert all(any(pieces[i:i + 16]) for i in range(35)) and set("".join(pieces)) == {"\ufffd"}


def test_a_text_begins_with_its_token_and_the_space_of_the_first_word_is_dropped():
    tokenizer = TokenTokenizer(byte_fallback(), end=2)
    assert tokenizer.encode("").tolist() == [1]
    assert TokenTokenizer(byte_level()).encode("").tolist() == []
    the = tokenizer.vocabulary.index(" the")
    assert tokenizer.encode("the").tolist() == [1, the]
    assert streamed(tokenizer, [the, the]) == ["the", " the", ""]
    assert streamed(tokenizer, [the], tokenizer.encode("re")) == [" the", ""]
    assert tokenizer.decode([the]) == "the"


@by_kind
def test_special_tokens_are_understood_and_not_shown(kind):
    tokenizer = TokenTokenizer(kind())
    name = END if kind is byte_level else "</s>"
    ids = tokenizer.encode(f"in{name}re").tolist()
    assert tokenizer.vocabulary.index(name) in ids
    assert name not in tokenizer.decode(ids)
    assert "".join(streamed(tokenizer, ids)) == tokenizer.decode(ids)
    parts = json.loads(kind())      # one more that is not special
    parts["added_tokens"].append(special(tokenizer.vocab_size, "<think>") | {"special": False})
    shown = TokenTokenizer(json.dumps(parts))
    ids = shown.encode("in<think>re").tolist()
    assert tokenizer.vocab_size in ids and "<think>" in shown.decode(ids)
    assert "".join(streamed(shown, ids)) == shown.decode(ids)


@by_kind
def test_the_vocabulary_has_the_text_of_each_token(kind):
    tokenizer = TokenTokenizer(kind())
    assert len(tokenizer.vocabulary) == tokenizer.vocab_size
    assert {" the", "he", "in", "a", "\n"} <= set(tokenizer.vocabulary) if kind is byte_level else {
        " the", "he", "in", "a", " ", "<0xF0>", "</s>"} <= set(tokenizer.vocabulary)
    assert all(tokenizer.vocabulary) and not any("\ufffd" in x for x in tokenizer.vocabulary)
    for text in ("the in", "qthere"):
        ids = tokenizer.encode(text)
        assert "".join(tokenizer.vocabulary[i] for i in ids).removeprefix("<s>").strip() == text


def test_ids_beyond_those_of_the_tokenizer_stand_for_an_empty_text():
    tokenizer = pickle.loads(pickle.dumps(TokenTokenizer(byte_level(), 0, 272)))    # and in a copy
    assert tokenizer.end == 0
    assert tokenizer.vocab_size == len(tokenizer.vocabulary) == 272
    assert tokenizer.vocabulary[266:] == [""] * 6
    ids = [tokenizer.vocabulary.index("in"), 266, 271, tokenizer.vocabulary.index("re")]
    assert tokenizer.decode(ids) == "".join(streamed(tokenizer, ids)) == "inre"
    for ids in ([272], [-1]):
        assert "ids lie between 0 and 271" in refusal(ValueError, tokenizer.decode, ids)


@pytest.mark.parametrize("given, ends", [(None, ()), (3, (3,)), ([], ()), ([3], (3,)),
                                         ([5, 0, 3], (5, 0, 3))])
def test_restored_gives_all_ends_back(given, ends):
    tokenizer = TokenTokenizer(byte_level(), given)
    assert tokenizer.ends == ends
    assert tokenizer.end == (ends[0] if ends else None)
    _, kept = tokenizer.arrays()
    assert kept.tolist() == (-1 if not ends else [*ends] if len(ends) > 1 else ends[0])
    assert TokenTokenizer.restored(266, *tokenizer.arrays()).ends == ends


def test_differing_names_a_text_with_other_ids_or_tokens_around_it():
    tokenizer, other = TokenTokenizer(byte_level()), TokenTokenizer(byte_fallback())
    texts = ["a"] * 5000 + [" the", "b"]
    assert tokenizer.differing(tokenizer, texts) is None
    parts = json.loads(byte_level())
    parts["model"]["merges"].remove("h e")
    parts["model"]["merges"].remove("Ġt he")
    found = tokenizer.differing(TokenTokenizer(json.dumps(parts)), texts)
    assert found == (" the", [259], [262, tokenizer.vocabulary.index("e")])
    assert tokenizer.differing(other, [""]) == ("", [], [1, 2])
    assert tokenizer.around == ([], []) and other.around == ([1], [2])


def test_a_file_that_cuts_texts_short_or_fills_them_up_does_neither_here():
    parts = json.loads(byte_level())
    parts["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst",
                           "stride": 0}
    parts["padding"] = {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None,
                        "pad_id": 0, "pad_type_id": 0, "pad_token": END}
    tokenizer = TokenTokenizer(json.dumps(parts))
    assert tokenizer.encode("qqq").tolist() == [tokenizer.vocabulary.index("q")] * 3
    # Nor does it in another program, into which it goes out.
    parts = json.loads(tokenizer.library_json)
    assert parts["truncation"] is parts["padding"] is None


@pytest.mark.parametrize("dropout", [0.5, 1.0])
def test_token_tokenizer_gives_the_ids_without_dropout_each_time_and_in_copies(dropout):
    parts = json.loads(byte_level())
    parts["model"]["dropout"] = dropout
    tokenizer, expected = TokenTokenizer(json.dumps(parts)), TokenTokenizer(byte_level())
    restored = TokenTokenizer.restored(tokenizer.vocab_size, *tokenizer.arrays())
    assert json.loads(tokenizer.library_json)["model"]["dropout"] is None
    for each in (tokenizer, restored, pickle.loads(pickle.dumps(tokenizer))):
        for _ in range(10):
            assert each.encode(TEXT).tolist() == expected.encode(TEXT).tolist()


def test_what_no_token_stands_for_is_refused():
    tokenizer = TokenTokenizer(of_words("a"))
    for text, why in (("b", "UNK"), ("a\ud800", "surrogates")):
        said = refusal(UnknownCharacterError, tokenizer.encode, text)
        assert "cannot encode the text: " in said and why in said
    assert TokenTokenizer(of_words("a", "?")).encode("b").tolist() == [1]


SPARSE = tokenizer_json(model={"type": "BPE", "vocab": {"a": 2**32 - 1}, "merges": []})
LYING = {
    "half of one": byte_level()[:999],
    "no object": "[]",
    "deeply nested": "[" * 100_000,
    "another kind": byte_level().replace('"BPE"', '"XYZ"'),
    "an id below 0": byte_level().replace('"!": ', '"!": -'),
    "a merge of what there is not": byte_level().replace(json.dumps(MERGES[0]), '"zz zz"'),
    "a table that is none": of_words("a", normalizer={"type": "Precompiled",
                                                      "precompiled_charsmap": "AAAA"}),
    "a pattern that is none": of_words("a", pre_tokenizer={
        "type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated", "invert": False}),
    "a special token that there is not": of_words("a", post_processor={
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "X", "type_id": 0}}],
        "pair": [], "special_tokens": {}}),
    "half of a character": '{"\ud800": 1}'}


@pytest.mark.parametrize("says, arguments", [
    *(("the library tokenizers cannot read its tokenizer: ", (file,)) for file in LYING.values()),
    ("a tokenizer of 266 ids for a model of 533; give", (byte_level(), None, 533)),
    ("its end is the id 266, and ids lie between 0 and 265", (byte_level(), 266)),
    ("has no tokens", (tokenizer_json(model={"type": "BPE", "vocab": {}, "merges": []}),)),
    (f"a tokenizer of {2**32} ids for a model of 10", (SPARSE, None, 10)),
    ("ids lie between 0 and 292; these reach from 300 to 300",
     (byte_fallback().replace('"ids": [1]', '"ids": [300]'),))], ids=[*LYING, *range(5)])
def test_a_file_that_is_no_tokenizer_or_does_not_fit_is_refused(says, arguments, capfd):
    assert says in refusal(ValueError, TokenTokenizer, *arguments)
    assert capfd.readouterr() == ("", "")


def test_tokens_that_the_library_cannot_decode_are_answered_in_a_line():
    strip = {"type": "Strip", "content": " ", "start": 0, "stop": 1}
    tokenizer = TokenTokenizer(of_words("a", "", "?", decoder=strip))
    for decode in (tokenizer.decode, lambda ids: streamed(tokenizer, ids),
                   lambda ids: tokenizer.vocabulary):
        assert "cannot decode its tokens: index out of bounds" in refusal(ValueError, decode, [1])
