"""Characters to ids and back, for any text; and which character an error names, where, and what
it proposes instead."""
import ast

import numpy as np
import pytest

from model import CharTokenizer, UnknownCharacterError
from tests.kit import refusal

TEXTS = ["Hear me speak.\nSpeak, speak.", "a", "a\r\nb\tc\x0b\x0c\x85\u2028 \u00a0\u3000\0\0",
         "so 🙂 and 👩‍👩‍👧, e\u0301 and \u00e9, \ud83d and \udc00, \ud83d\ude42 beside 🙂",
         "Ἀχιλῆος, Волга, 漢字, العربية, हिन्दी, \uffff\U00010000\U0010ffff\ufeff",
         *("".join(map(chr, points)) for points in
           np.random.default_rng(0).integers(0x110000, size=(20, 200)))]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_any_text_comes_back_by_a_vocabulary_in_any_order(text):
    backwards = "".join(dict.fromkeys(text))[::-1]
    for tokenizer, vocabulary in ((CharTokenizer(text), "".join(sorted(set(text)))),
                                  (CharTokenizer.of(backwards), backwards)):
        assert tokenizer.vocabulary == vocabulary
        assert tokenizer.vocab_size == len(set(text))
        ids = tokenizer.encode(text)
        assert ids.dtype == np.int64
        assert ids.shape == (len(text),)
        assert ids.tolist() == [vocabulary.index(c) for c in text]
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("make, why", [
    (lambda: CharTokenizer(""), "a vocabulary needs at least one character, and the text is empty"),
    (lambda: CharTokenizer.of(""), "at least one character"),
    (lambda: CharTokenizer.of("abcb"), "each character once, and 'b' is"),
    (lambda: CharTokenizer.of("ca", 3), "has 2 characters, for a model of 3"),
    (lambda: CharTokenizer.of("cabd", 3), "has 4 characters, for a model of 3")])
def test_a_vocabulary_that_is_empty_or_has_one_twice_or_does_not_fit_is_refused(make, why):
    assert why in refusal(ValueError, make)


def test_a_tokenizer_shows_its_kind_and_the_beginning_of_its_vocabulary():
    assert repr(CharTokenizer("a\ncb a")) == r"<CharTokenizer of 5 characters: \n abc>"
    many = repr(CharTokenizer("".join(map(chr, range(0x4e00, 0x6e00)))))
    assert many.startswith("<CharTokenizer of 8,192 characters: 一")
    assert len(many) < 130


def test_ids_may_come_in_any_form_and_be_changed_and_none_is_no_text():
    tokenizer = CharTokenizer("abc")
    tokenizer.encode("abc")[:] = 0
    assert tokenizer.encode("abc").tolist() == [0, 1, 2]
    assert tokenizer.vocabulary == "abc"
    for ids in ([2, 0], (2, 0), np.array([2, 0], np.uint8), iter([2, 0]), range(2, -1, -2)):
        assert tokenizer.decode(ids) == "ca"
    nothing = tokenizer.encode("")
    assert nothing.shape == (0,)
    assert nothing.dtype == np.int64
    assert tokenizer.decode(nothing) == tokenizer.decode([]) == ""
    refusal(TypeError, tokenizer.decode, [1.5])


@pytest.mark.parametrize("ids, reach", [([3], "3 to 3"), ([0, -1, 2], "-1 to 2"),
                                        ([5, -7, 0], "-7 to 5"), ([2**40], f"{2**40} to {2**40}")])
def test_ids_outside_the_vocabulary_are_refused(ids, reach):
    assert (refusal(ValueError, CharTokenizer("abc").decode, ids)
            == f"ids lie between 0 and 2; these reach from {reach}")


# Unknown characters

def refused(tokenizer, text):
    message = refusal(UnknownCharacterError, tokenizer.encode, text)
    message.encode("utf-8")         # it can be printed
    return message


def nearest(known, character):
    """The known characters that the refusal of a character names."""
    named = refused(CharTokenizer(known), character).split("the nearest are ")[1]
    return ast.literal_eval(f"[{named}]")


@pytest.mark.parametrize("known, text, says", [
    ("Caf e", "Café", "the character 'é' (LATIN SMALL LETTER E WITH ACUTE) at position 3 of 'Café' "
     "is not among the 5 that the model knows; the nearest are 'e', 'f', 'a'"),
    *[("zbm", character, "not among the 3") for character in "acy{\U0010ffff"],
    ("ab", "ab1é1", "'1' (DIGIT ONE) at position 2 of 'ab1é1'"),            # the first of several
    ("🙂é", "🙂éz", "'z' (LATIN SMALL LETTER Z) at position 2 "),           # characters, no bytes
    ("a", "a" * 10_000 + "b", "at position 10000 of the text (10001 characters)"),
    ("abc", "a\nb", "'\\n' (U+000A) at position 1 of 'a\\nb'"),             # without a name
    ("abc", "\0", "'\\x00' (U+0000)"), ("abc", "\ud83d", "'\\ud83d' (U+D83D)"),
    ("abc", "\U0010ffff", "'\\U0010ffff' (U+10FFFF)"), ("abc", "😀", "(GRINNING FACE)")])
def test_the_first_unknown_character_is_named_with_its_place_and_its_neighbours(known, text, says):
    said = refused(CharTokenizer(known), text)
    assert says in said
    assert len(said) < 200


KNOWN = "\n !\"',-.?ABCDEFGabcdefgxyz"


@pytest.mark.parametrize("character, known, expected", [
    ("É", KNOWN, ["E", "e"]),           # the letter without its accent, then in the other case
    ("é", KNOWN, ["e", "E"]),
    ("É", "abcde", ["e"]),
    ("É", "abcdeé", ["é", "e"]),        # the other case with its accent, if that is known
    ("q", "ABPQRS", ["Q"]),
    ("Q", "abpqrs", ["q"]),
    ("ﬁ", "abcdef", ["f"]), ("ﬁ", "FI", ["F", "I"]),
    ("５", "0123456789", ["5"]),
    ("²", "0123456789", ["2"]),
    ("ß", "rst", ["t", "s", "r"]),      # nothing alike: the nearest code points
    (";", "18:<z", [":", "<", "8"]), ("z", "b", ["b"]),
    *[(mark, KNOWN, [plain]) for mark, plain in zip("’‘“”–—…\u00a0", "''\"\"--. ")]])
def test_the_nearest_characters_come_in_this_order(character, known, expected):
    named = nearest(known, character)
    assert named[:len(expected)] == expected
    assert len(named) == len(set(named)) == min(3, len(known))
    assert set(named) <= set(known)


@pytest.mark.parametrize("character", ["今", "👨", "\x1b", "\n", "\0", "Ж", "\U0010ffff"])
def test_no_character_is_called_near_where_none_is(character):
    assert refused(CharTokenizer("abcxyz"), character).endswith("that the model knows")
    assert nearest("abcé", "ê") == ["é", "c", "b"]
    assert nearest("今天", "仒")[0] == "今"


def test_what_is_unknown_can_be_left_out_and_is_counted():
    tokenizer = CharTokenizer("ab\n𝄞")
    assert tokenizer.without_unknown("ab𝄞\n") == ("ab𝄞\n", {})
    known, unknown = tokenizer.without_unknown("\ud800aéx𝄞éb")
    assert known == "a𝄞b"
    assert list(unknown.items()) == [("é", 2), ("x", 1), ("\ud800", 1)]
    assert tokenizer.without_unknown("xyz") == ("", dict(x=1, y=1, z=1))
    assert tokenizer.without_unknown("") == ("", {})
