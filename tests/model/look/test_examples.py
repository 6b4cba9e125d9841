"""Things to try: what each address holds, and that the page understands it."""
import json
from urllib.parse import unquote

from model.look.examples import LONGEST, examples, frequent_name, link_to
from model.look.shell import static


def test_examples_are_the_best_head_off_a_name_nonsense_and_one_letter_looked_at():
    text = "the quick brown fox"
    (off, without), (name, known), (nonsense, shuffled), (one, looks) = examples(
        text, 16, (1, 2), "MARA spoke, then Pease; Pease ran.")
    assert off == "Switch off head 2.3" and without == {
        "text": text, "off": ["1.2"], "pin": None}
    assert name == "A name that it knows" and known == {"text": "Pease"}
    assert nonsense == "Nonsense" and shuffled["text"] != text
    assert sorted(shuffled["text"]) == sorted(text)
    assert one == "A head that must look at one letter" and looks["text"] == text
    assert looks["drag"] == {"layer": 1, "head": 2, "row": 18, "column": 8, "weight": 1}
    assert looks["pin"] is None         # it is the head that is seen, and no other model
    assert [words for words, _ in examples(text, 16, (0, 0), text)] == [
        "Switch off head 1.1", nonsense, one]       # without a name in the text
    assert examples("t", 16, (0, 0), text) == []


def test_frequent_name_is_the_most_frequent_word_that_always_has_a_capital():
    assert frequent_name("Every Finch, every Finch; and Mister. Every Every 1Every") == "Finch"
    assert frequent_name("Élodie Anna Anna") == "Élodie"
    assert frequent_name("nobody 12345 Anna _____") == ""


def test_link_to_is_an_address_that_says_the_state_and_no_markup(hostile_text):
    state = {"text": hostile_text.replace("\ud800", ""), "off": ["0.1"]}
    link = link_to(state)
    assert link[0] == "#" and not set(link) & {*"<>\"'& \n"}
    assert json.loads(unquote(link[1:])) == state
    assert "%3F" in link_to({"text": "\ud800"})         # what no address can hold


def test_texts_in_addresses_are_as_long_as_the_page_keeps_them():
    assert f"const LONGEST = {LONGEST};" in static("begin.js")
    text = "a" * 3000
    assert {len(state["text"]) for words, state in examples(text, 256, (0, 0), "")
            if words != "Nonsense"} == {LONGEST}
