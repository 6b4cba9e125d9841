"""Characters to ids and back, for any text; and which character an error names, where, and what
it proposes instead."""
import ast

import numpy as np
import pytest

from model import CharTokenizer, UnknownCharacterError

TEXTS = {
    "letters": "Hear me speak.\nSpeak, speak.",
    "one character": "a",
    "line ends and tabs": "a\r\nb\tc\x0b\x0c\x85\u2028",
    "NUL": "a\0b\0",
    "emoji": "so 🙂🙂 and 👩‍👩‍👧 with joiners",
    "combining marks": "e\u0301 is not \u00e9, nor is a\u0308\u0323 a\u0323\u0308",
    "lone surrogates": "half \ud83d of a pair \udc00",
    "surrogates in order": "\ud83d\ude42 beside 🙂",
    "scripts": "Ἀχιλῆος, Волга, 漢字, العربية, हिन्दी",
    "the last code points": "\uffff\U00010000\U0010ffff\ufeff",
    "spaces": " \u00a0\u2009\u3000",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_any_text_comes_back_as_it_was(text):
    tokenizer = CharTokenizer(text)
    ids = tokenizer.encode(text)
    assert ids.dtype == np.int64 and ids.shape == (len(text),)
    assert tokenizer.decode(ids) == text
    assert set(tokenizer.vocabulary) == set(text)


def test_any_text_at_all_comes_back_as_it_was():
    rng = np.random.default_rng(0)
    for _ in range(20):
        text = "".join(map(chr, rng.integers(0x110000, size=200)))
        tokenizer = CharTokenizer(text)
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_ids_follow_the_order_of_the_code_points(text):
    tokenizer = CharTokenizer(text)
    assert tokenizer.vocabulary == "".join(sorted(set(text)))
    assert tokenizer.vocab_size == len(set(text))
    assert tokenizer.encode(tokenizer.vocabulary).tolist() == list(range(tokenizer.vocab_size))
    assert tokenizer.encode(text).tolist() == [tokenizer.vocabulary.index(c) for c in text]


def test_a_tokenizer_of_a_vocabulary_is_the_same_tokenizer():
    for text in TEXTS.values():
        tokenizer = CharTokenizer(text)
        again = CharTokenizer(tokenizer.vocabulary)
        assert again.vocabulary == tokenizer.vocabulary
        assert np.array_equal(again.encode(text), tokenizer.encode(text))


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_vocabulary_in_any_order_gives_the_ids_in_that_order(text):
    vocabulary = "".join(dict.fromkeys(text))[::-1]
    tokenizer = CharTokenizer.of(vocabulary)
    ids = tokenizer.encode(text)
    assert tokenizer.vocabulary == vocabulary and ids.dtype == np.int64
    assert ids.tolist() == [vocabulary.index(c) for c in text]
    assert tokenizer.decode(ids) == text


def test_characters_below_between_and_above_those_of_any_vocabulary_are_unknown():
    tokenizer = CharTokenizer.of("zbm")
    for character in "acy{\U0010ffff":
        with pytest.raises(UnknownCharacterError):
            tokenizer.encode(character)


@pytest.mark.parametrize("vocabulary, why", [("", "at least one character"),
                                             ("abcb", "each character once, and 'b' is")])
def test_a_vocabulary_without_characters_or_with_one_twice_is_refused(vocabulary, why):
    with pytest.raises(ValueError, match=why):
        CharTokenizer.of(vocabulary)


def test_a_vocabulary_for_a_model_of_another_size_is_refused():
    assert CharTokenizer.of("cab", 3).vocab_size == 3
    for vocabulary in ("ca", "cabd"):
        with pytest.raises(ValueError, match=f"has {len(vocabulary)} characters, for a model of 3"):
            CharTokenizer.of(vocabulary, 3)


def test_composed_and_decomposed_letters_are_different_characters():
    tokenizer = CharTokenizer("e\u0301\u00e9")
    assert tokenizer.vocab_size == 3
    assert not np.array_equal(tokenizer.encode("\u00e9"), tokenizer.encode("e\u0301"))


def test_ids_may_be_changed_without_changing_the_tokenizer():
    tokenizer = CharTokenizer("abc")
    ids = tokenizer.encode("abc")
    ids += 1
    ids[:] = 0
    assert tokenizer.encode("abc").tolist() == [0, 1, 2] and tokenizer.vocabulary == "abc"


def test_nothing_encodes_to_no_ids_and_back():
    tokenizer = CharTokenizer("abc")
    ids = tokenizer.encode("")
    assert ids.shape == (0,) and ids.dtype == np.int64
    assert tokenizer.decode(ids) == tokenizer.decode([]) == ""


def test_ids_may_come_in_any_form():
    tokenizer = CharTokenizer("abc")
    for ids in ([2, 0], (2, 0), np.array([2, 0], np.uint8), iter([2, 0]), range(2, -1, -2)):
        assert tokenizer.decode(ids) == "ca"


def test_an_empty_vocabulary_is_refused():
    with pytest.raises(ValueError) as caught:
        CharTokenizer("")
    assert str(caught.value) == "a vocabulary needs at least one character, and the text is empty"


def refusal(tokenizer, text):
    with pytest.raises(UnknownCharacterError) as caught:
        tokenizer.encode(text)
    assert isinstance(caught.value, ValueError)
    message = str(caught.value)
    assert "\n" not in message
    return message


def nearest(tokenizer, character):
    """The known characters that the refusal of a character names."""
    named = refusal(tokenizer, character).split("the nearest are ")[1]
    return list(ast.literal_eval(f"[{named}]"))


def test_an_unknown_character_is_named_with_its_place_and_its_neighbours():
    assert refusal(CharTokenizer("Caf e"), "Café") == (
        "the character 'é' (LATIN SMALL LETTER E WITH ACUTE) at position 3 of 'Café' is not among "
        "the 5 that the model knows; the nearest are 'e', 'f', 'a'")


def test_the_first_of_several_unknown_characters_is_named():
    assert "'1' (DIGIT ONE) at position 2 of 'ab1é1'" in refusal(CharTokenizer("ab"), "ab1é1")
    assert "'1' (DIGIT ONE) at position 0 of '1'" in refusal(CharTokenizer("ab"), "1")


def test_a_position_counts_characters_not_bytes():
    assert "'z' (LATIN SMALL LETTER Z) at position 2 " in refusal(CharTokenizer("🙂é"), "🙂éz")


def test_a_long_text_is_not_repeated_in_the_error():
    message = refusal(CharTokenizer("a"), "a" * 10_000 + "b")
    assert "at position 10000 of the text (10001 characters)" in message and len(message) < 200


def test_characters_without_a_name_or_a_picture_are_named_by_their_code():
    tokenizer = CharTokenizer("abc")
    assert "'\\n' (U+000A) at position 1 of 'a\\nb'" in refusal(tokenizer, "a\nb")
    assert "'\\x00' (U+0000)" in refusal(tokenizer, "\0")
    assert "'\\ud83d' (U+D83D)" in refusal(tokenizer, "\ud83d")
    assert "'\\U0010ffff' (U+10FFFF)" in refusal(tokenizer, "\U0010ffff")
    assert "(GRINNING FACE)" in refusal(tokenizer, "😀")
    refusal(tokenizer, "\ud83d").encode("utf-8")            # and the error can be printed


KNOWN = "\n !\"',-.?ABCDEFGabcdefgxyz"


@pytest.mark.parametrize("character, known, expected", [
    ("É", KNOWN, ["E", "e"]),           # the letter without its accent, then in the other case
    ("é", KNOWN, ["e", "E"]),
    ("É", "abcde", ["e"]),
    ("É", "abcdeé", ["é", "e"]),        # the other case with its accent, if that is known
    ("q", "ABPQRS", ["Q"]),
    ("Q", "abpqrs", ["q"]),
    ("ﬁ", "abcdef", ["f"]),
    ("５", "0123456789", ["5"]),
    ("²", "0123456789", ["2"]),
    ("ß", "rst", ["t", "s", "r"]),      # nothing alike: the nearest code points
    (";", "18:<z", [":", "<", "8"]),
])
def test_the_nearest_characters_come_in_this_order(character, known, expected):
    named = nearest(CharTokenizer(known), character)
    assert named[:len(expected)] == expected
    assert len(named) == len(set(named)) == min(3, len(known)) and set(named) <= set(known)


@pytest.mark.parametrize("character, plain", [
    ("\u2019", "'"), ("\u2018", "'"), ("\u201c", '"'), ("\u201d", '"'), ("\u2013", "-"),
    ("\u2014", "-"), ("\u2026", "."), ("\u00a0", " ")])
def test_for_a_typographic_mark_the_plain_one_is_named_first(character, plain):
    assert nearest(CharTokenizer(KNOWN), character)[0] == plain


def test_a_small_vocabulary_names_all_that_it_has():
    assert nearest(CharTokenizer("b"), "z") == ["b"]
    assert nearest(CharTokenizer("FI"), "ﬁ") == ["F", "I"]


@pytest.mark.parametrize("ids, reach", [([3], "3 to 3"), ([0, -1, 2], "-1 to 2"),
                                        ([5, -7, 0], "-7 to 5"), ([2**40], f"{2**40} to {2**40}")])
def test_ids_outside_the_vocabulary_are_refused(ids, reach):
    with pytest.raises(ValueError) as caught:
        CharTokenizer("abc").decode(ids)
    assert str(caught.value) == f"ids lie between 0 and 2; these reach from {reach}"


def test_what_is_unknown_can_be_left_out_and_is_counted():
    tokenizer = CharTokenizer("ab\n𝄞")
    assert tokenizer.without_unknown("ab𝄞\n") == ("ab𝄞\n", {})
    known, unknown = tokenizer.without_unknown("xa\ud800x𝄞éb")
    assert known == "a𝄞b" and list(unknown.items()) == [("x", 2), ("é", 1), ("\ud800", 1)]
    assert tokenizer.without_unknown("xyz") == ("", dict(x=1, y=1, z=1))
    assert tokenizer.without_unknown("") == ("", {})
