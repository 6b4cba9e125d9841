"""Windows, the probabilities from which ids are drawn, and where a text ends."""
import json
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest

import minigrad as mg
from minigrad import Tensor, random
from model import CharTokenizer, Transformer, TransformerConfig, generate
from model.cache import Drawing
from model.convert.tokens import TokenTokenizer
from model.generation import (AT_ONCE, SMALL, USELESS, Reader, beginning, stream_many,
                              window_start)
from tests.kit import normal, opinionated, refusal
from tests.token_files import END, byte_fallback, byte_level, special

pytestmark = pytest.mark.late
INF = math.inf
TOKENIZER = CharTokenizer("\t\n abcdefgh")     # in which the line break is not the first


@pytest.fixture(scope="module")
def model():
    return opinionated(TransformerConfig(TOKENIZER.vocab_size, 8, n_layer=1, n_head=2, n_embd=16),
                       20)


class Reciting:
    """A model that is certain of one text, whatever was drawn before."""

    def __init__(self, text, block_size=1000, tokenizer=TOKENIZER):
        self.ids = tokenizer.encode(text)
        self.vocab_size = tokenizer.vocab_size
        self.config = SimpleNamespace(block_size=block_size)
        self.calls = 0

    def __call__(self, ids):
        self.calls += 1
        logits = np.full((*ids.shape, self.vocab_size), -INF)
        logits[:, -1, self.ids[ids.shape[1] - 1]] = 0
        return Tensor(logits)


def stream(model, tokenizer, prompt, max_new_tokens=500, seed=None, **settings):
    """The pieces of one continuation."""
    many = stream_many(model, tokenizer, prompt, [seed], max_new_tokens, **settings)
    return (piece for piece, in many if piece)


def recited(text, **settings):
    """What is shown of a text that follows a one-character prompt."""
    return list(stream(Reciting(text), TOKENIZER, "h", len(text), **settings))


def random_logits(seed, size=30):
    return 3 * normal(size, seed=seed)


def probabilities(logits, temperature=1.0, top_k=None, top_p=None):
    """From which an id is drawn."""
    return random.draw(np.asarray(logits)[None], np.zeros(1), temperature, top_k, top_p)[1][0]


@pytest.mark.parametrize("slide", [False, True])
@pytest.mark.parametrize("block", [1, 2, 3, 7, 8, 64])
def test_a_window_has_half_a_block_or_more_and_at_most_a_block(block, slide):
    starts = [window_start(n, block, slide) for n in range(1, 5 * block)]
    for n, start in enumerate(starts, start=1):
        if slide:
            assert n - start == min(n, block)
        else:
            assert min(n, block // 2 + 1) <= n - start <= block
    moves = np.diff(starts)
    assert (moves >= 0).all()
    assert set(moves[moves > 0]) <= {1 if slide else (block + 1) // 2}


# Probabilities: (temperature, top_k, top_p)

def defined(logits, temperature, top_k, top_p):
    """The probabilities as temperature, then top-k and then top-p define them."""
    order = np.argsort(-logits, kind="stable")
    p = np.zeros(logits.size)
    with np.errstate(under="ignore"):
        e = (np.exp((logits - logits.max()) / temperature) if temperature else
             np.arange(logits.size) == order[0])
    kept = order[:top_k]
    if top_p:
        enough = np.searchsorted(e[kept].cumsum() / e[kept].sum(), top_p)
        kept = kept[:enough + 1]
    p[kept] = e[kept] / e[kept].sum()
    return p


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("temperature", [0, 1e-6, 0.3, 1.0, 2.5, 1e6])
@pytest.mark.parametrize("top_k, top_p", [
    (None, None),
    (1, None),
    (7, None),
    (99, None),
    (None, 1e-12),
    (None, 0.61),
    (None, 1.0),
    (9, 0.87)])
def test_probabilities_are_those_that_temperature_top_k_and_top_p_define(temperature, top_k, top_p):
    settings = temperature, top_k, top_p
    for seed in range(20):
        logits = random_logits(seed)
        logits[seed] = -INF             # impossible
        expected = defined(logits, *settings)
        for shift in (0, 1e4):
            assert np.allclose(probabilities(logits + shift, *settings), expected, atol=1e-9)
        p = probabilities(logits.astype(np.float32), *settings)
        assert p.dtype == np.float64
        assert math.isclose(p.sum(), 1)
        assert p[seed] == 0
    assert probabilities(np.array([-INF, -1e30, 0.0, 1e30]), *settings)[3] == 1


def test_of_equally_likely_ids_the_first_are_kept():
    assert probabilities(np.zeros(4), 0).tolist() == [1, 0, 0, 0]
    assert probabilities(np.zeros(4), 1.0, None, 0.5).tolist() == [0.5, 0.5, 0, 0]
    logits = np.random.default_rng(0).integers(5, size=300).astype(float)
    for kept in (1, 50, 299):
        assert np.allclose(probabilities(logits, 1.0, kept), defined(logits, 1.0, kept, None))


@pytest.mark.parametrize("logits", [[0, math.nan, 1], [math.nan] * 3, [0, INF, 1], [-INF] * 3,
                                    [INF, -INF, math.nan], "of a model that has diverged"])
@pytest.mark.parametrize("temperature", [0, 1.0])
def test_logits_that_say_nothing_are_refused_with_a_remedy(logits, temperature):
    def useless(ids):
        return Tensor(np.broadcast_to(logits, (*ids.shape, 3)))
    useless.config = SimpleNamespace(block_size=8)
    if isinstance(logits, str):             # which are kept in the cache, too
        useless = Transformer(TransformerConfig(3, 8, n_layer=1, n_head=2, n_embd=16))
        useless.blocks[0].mlp.up.weight.data[0, 0] = math.nan
    assert refusal(ValueError, generate, useless, CharTokenizer("abc"), "a", 3,
                   temperature) == USELESS
    assert "its training may have diverged" in USELESS


@pytest.mark.parametrize("settings, message", [
    *[({"temperature": t}, f"temperature is at least 0, not {t}") for t in (-0.1, -INF, math.nan)],
    ({"temperature": INF}, "temperature is a finite number, not inf"),
    *[({"top_k": k}, f"top_k is at least 1, not {k}") for k in (0, -3)],
    *[({name: n}, f"{name} takes a whole number, not {n}") for n in (2.0, INF)
      for name in ("top_k", "max_new_tokens", "seed")],
    *[({"top_p": p}, f"top_p is above 0 and at most 1, not {p}")
      for p in (0, -0.1, 1.0001, math.nan, INF)],
    *[({name: -5}, f"{name} is at least 0, not -5") for name in ("max_new_tokens", "seed")],
    *[({name: 3}, f"{name} takes a text, not 3") for name in ("prompt", "stop")],
    ({"prompt": "abZ"}, "'Z' (LATIN CAPITAL LETTER Z) at position")])
def test_settings_without_a_meaning_and_unknown_characters_are_refused_at_once(settings, message):
    for attempt in (stream, generate):
        assert message in refusal(ValueError, attempt, Reciting("ab"), TOKENIZER,
                                  **{"prompt": "a"} | settings)


def test_the_same_seed_writes_the_same_text_and_another_seed_another(model):
    first, again, other = (generate(model, TOKENIZER, "a", 60, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    for n in (0, 7, 8, 15):
        assert generate(model, TOKENIZER, "a", n, seed=1) == first[:n + 1]
    assert generate(model, TOKENIZER, "a", 60) != generate(model, TOKENIZER, "a", 60)


def test_a_text_without_chance_takes_the_likeliest_character_each_time(model):
    ids = TOKENIZER.encode("abc").tolist()
    for n in range(3, 23):
        window = np.array(ids[window_start(n, 8):])
        ids.append(int(model(window).data[-1].argmax()))
    for settings in ({"temperature": 0}, {"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-6}):
        for seed in (0, 1, None):
            assert TOKENIZER.decode(ids) == generate(model, TOKENIZER, "abc", 20, seed=seed,
                                                     **settings)


@pytest.mark.parametrize("slide", [False, True])
@pytest.mark.parametrize("settings", [{}, {"temperature": 0.5, "top_k": 5}, {"top_p": 0.8}])
def test_a_text_is_the_same_with_and_without_the_cache_alone_and_in_a_batch(model, slide, settings):
    settings = settings | {"max_new_tokens": 50, "slide": slide}
    seeds = range(7)
    alone = [generate(model, TOKENIZER, "ab", seed=seed, cache=False, **settings)
             for seed in seeds]
    assert alone == [generate(model, TOKENIZER, "ab", seed=seed, **settings) for seed in seeds]
    for cache in (False, True):
        pieces = stream_many(model, TOKENIZER, "ab", seeds, cache=cache, **settings)
        assert ["ab" + "".join(text) for text in zip(*pieces)] == alone
    assert len(set(alone)) == len(alone)


@pytest.mark.parametrize("stop", [None, "a"])
def test_each_text_of_a_batch_ends_before_its_own_end_or_stop(model, stop):
    tokenizer = CharTokenizer(TOKENIZER.vocabulary)
    settings = dict(max_new_tokens=60, stop=stop)
    tokenizer.end = None if stop else tokenizer.vocabulary.index("a")
    pieces = list(stream_many(model, tokenizer, "b", range(9), **settings))
    texts = ["".join(text) for text in zip(*pieces)]
    assert ["b" + text for text in texts] == [
        generate(model, tokenizer, "b", seed=seed, cache=False, **settings) for seed in range(9)]
    assert len(set(map(len, texts))) > 3
    assert not any("a" in text for text in texts)
    assert len(pieces) <= max(map(len, texts)) + 2      # and when all have ended, none is asked


def test_a_model_that_overrides_what_it_does_is_asked_without_the_cache(model):
    class Certain(Transformer):
        def __call__(self, ids):
            return Tensor(np.eye(self.config.vocab_size)[ids * 0 + 5])
    assert generate(Certain(model.config), TOKENIZER, "a", 9, temperature=0) == (
        "a" + 9 * TOKENIZER.vocabulary[5])


def test_the_model_is_asked_for_values_only_and_for_no_more_than_a_window(model):
    for slide in (False, True):
        seen = []

        def watched(ids):
            logits = model(ids)
            seen.append((ids.shape, ids.dtype.kind, logits.requires_grad))
            return logits
        watched.config = model.config
        generate(watched, TOKENIZER, "abc", 20, seed=0, slide=slide)
        lengths = [n - window_start(n, 8, slide) for n in range(3, 23)]
        assert seen == [((1, length), "i", False) for length in lengths]
        assert max(lengths) == 8
    pieces = stream(model, TOKENIZER, "a", 5, seed=0)
    next(pieces)
    assert model(np.array([0])).requires_grad       # recording goes on while a stream is half read
    with mg.no_grad():
        next(pieces)
        assert not model(np.array([0])).requires_grad


@pytest.mark.parametrize("tokenizer, first", [(TOKENIZER, "\n"),
                                              (CharTokenizer("abcdefghijk"), "a")])
def test_an_empty_prompt_begins_with_a_line_break_or_else_the_first_id(model, tokenizer, first):
    assert tokenizer.vocab_size == TOKENIZER.vocab_size
    continuation = "".join(stream(model, tokenizer, first, 20, seed=1))
    assert generate(model, tokenizer, "", 20, seed=1) == continuation
    assert generate(model, tokenizer, max_new_tokens=20, seed=1) == continuation


@pytest.mark.parametrize("stop, shown", [
    (None, "abc d"),
    ("c d", "ab"),
    ("de", "abc d"),
    ("d", "abc ")])
def test_a_text_ends_with_its_end_or_stop_and_the_model_is_not_asked_again(stop, shown):
    tokenizer = CharTokenizer(TOKENIZER.vocabulary)
    tokenizer.end = tokenizer.vocabulary.index("e")
    model = Reciting("abc defg")
    assert "".join(stream(model, tokenizer, "h", 8, stop=stop)) == shown
    assert model.calls == (6 if stop in (None, "de") else 5)    # and none is asked for after it
    model = Reciting("efg")
    assert generate(model, tokenizer, "h", 3) == "h"
    assert model.calls == 1
    assert beginning(tokenizer, "").tolist() == [tokenizer.end]


def test_the_stop_is_looked_for_in_what_is_written_which_is_held_back_only_while_it_may_become_it():
    model = Reciting("bcde")
    model.ids = TOKENIZER.encode("abbcde")
    assert "".join(stream(model, TOKENIZER, "hab", 4, stop="ab")) == "bcde"     # in the prompt
    assert "".join(stream(model, TOKENIZER, "ha", 5, stop="ab")) == "bbcde"     # half in it
    for text, stop, shown in (("abcabd", "abd", ["abc"]), ("cde", "abd", ["c", "d", "e"]),
                              ("abcab", "abd", ["abc", "ab"])):
        assert recited(text, stop=stop) == shown


def test_every_text_is_cut_at_the_first_stop_in_it():
    rng = np.random.default_rng(0)
    for _ in range(300):
        text = "".join(rng.choice(list("ab"), size=12))
        stop = "".join(rng.choice(list("ab"), size=rng.integers(1, 5)))
        assert "".join(recited(text, stop=stop)) == text.split(stop)[0], (text, stop)
        assert "".join(recited(text, stop="")) == "".join(recited(text, stop=None)) == text


@pytest.mark.parametrize("settings", [
    {}, {"temperature": 0.5}, {"temperature": 3.0}, {"top_k": 3}, {"top_p": 0.7},
    {"temperature": 2.0, "top_k": 5, "top_p": 0.9}])
def test_characters_are_drawn_as_often_as_their_probabilities_say(settings):
    logits = random_logits(1, TOKENIZER.vocab_size) / 2
    logits[3] = -INF

    def fixed(ids):
        return Tensor(np.broadcast_to(logits, (*ids.shape, logits.size)))
    fixed.config = SimpleNamespace(block_size=1)
    pieces = stream_many(fixed, TOKENIZER, "a", range(7, 27), 500, **settings)
    drawn = np.stack([TOKENIZER.encode("".join(text)) for text in zip(*pieces)])
    n = 10_000
    p = probabilities(logits, **settings)
    counts = np.bincount(drawn.ravel(), minlength=p.size)
    assert counts.sum() == n
    assert (counts[p == 0] == 0).all()
    assert (np.abs(counts - n * p) <= 4.5 * np.sqrt(n * p * (1 - p))).all()
    for one, other in ((drawn[:, :-1], drawn[:, 1:]), (drawn[:-1], drawn[1:])):
        pairs = np.zeros((p.size, p.size))          # in time and in the batch, independently
        np.add.at(pairs, (one, other), 1)
        expected = one.size * np.outer(p, p)
        assert (np.abs(pairs - expected) <= 6 * np.sqrt(expected) + 3).all()


@pytest.mark.parametrize("u", [0.0, 1e-300, 0.5, 1 - 2**-53])
def test_no_number_of_the_generator_draws_what_is_impossible(u):
    possible = np.array([3, 4, 6, 7, 8])
    logits = np.full((200, 9), -INF)
    logits[:, possible] = np.sin(np.arange(200)[:, None] + possible)
    assert np.isin(random.draw(logits, np.full(200, u), 1.0, None, None)[0], possible).all()


# Tokens

def tokens(kind=byte_level, end=0):
    return TokenTokenizer(kind(), end)


TEXT = "the in the re"


@pytest.mark.needs("convert")
@pytest.mark.parametrize("text, stop, pieces", [
    ("the 🙂é the", None, ["t", "he", " ", "🙂", "é", " the"]),       # whole characters
    ("the 🙂é the", "not in it", ["t", "he", " ", "🙂", "é", " the"]),
    (f"the in{END} the", None, ["t", "he", " ", "in"]), (f"{END} the", None, []),
    (f"the in{END}", "inthere", ["t", "he", " ", "in"]),            # held back for a stop
    *[(TEXT, stop, [TEXT.split(stop)[0]])                           # across tokens, and within one
      for stop in ("n the r", "he", " ", "e in", "h", TEXT, "re")]])
def test_a_text_of_tokens_comes_in_whole_characters_up_to_its_end_or_stop(text, stop, pieces):
    tokenizer = tokens()
    assert "in the re" not in tokenizer.vocabulary
    assert " the" in tokenizer.vocabulary
    shown = list(stream(Reciting(text, tokenizer=tokenizer), tokenizer, "in",
                        len(tokenizer.encode(text)), stop=stop))
    assert shown == pieces or text == TEXT and "".join(shown) == "".join(pieces)


@pytest.mark.needs("convert")
def test_a_token_keeps_the_space_that_begins_it_and_half_a_character_is_shown_at_the_end():
    tokenizer = tokens()
    model = Reciting("the 🙂", tokenizer=tokenizer)
    n = len(model.ids)
    assert "".join(stream(model, tokenizer, "in", n - 1)) == "the \ufffd"
    assert "".join(stream(model, tokenizer, "in", n - 1, stop="\ufffd")) == "the "
    tokenizer = tokens(byte_fallback, 2)
    model = Reciting("", tokenizer=tokenizer)
    text = tokenizer.encode("the the")
    prompt = tokenizer.encode("re")
    for prompt, before, shown in (("re", prompt, " the the"), ("", text[:1], "the the")):
        model.ids = np.concatenate([before, text[1:]])[1:]
        assert "".join(stream(model, tokenizer, prompt, 2)) == shown


@pytest.mark.needs("convert")
def test_an_empty_prompt_of_tokens_begins_as_the_model_expects():
    assert beginning(tokens(byte_fallback), "").tolist() == [1]
    assert beginning(tokens(), "").tolist() == [0]
    tokenizer = tokens(byte_level, None)
    assert tokenizer.decode(beginning(tokenizer, "")) == "\n"
    assert tokenizer.decode(beginning(tokenizer, "the in")) == "the in"


@pytest.mark.skipif(not mg.COMPILED, reason="plain NumPy draws one token at a time")
def test_a_large_model_shows_each_token_as_it_comes(monkeypatch, model):
    drawn = []
    real = Reader.draw

    def draw(self, u, *settings):
        drawn.append(u.shape[1])
        return real(self, u, *settings)
    monkeypatch.setattr(Reader, "draw", draw)
    texts = []
    weights = sum(p.size for p in model.parameters())
    assert Reader(model, np.zeros((1, 1), int)).at_once == AT_ONCE
    for small in (SMALL, 2 * weights // AT_ONCE + 1, 1):
        monkeypatch.setattr("model.generation.SMALL", small)
        drawn.clear()
        texts.append(generate(model, TOKENIZER, "a", 7, seed=0))
        assert drawn == {SMALL: [7], 1: [1] * 7}.get(small, [2, 2, 2, 1])
    assert len(set(texts)) == 1


@pytest.mark.parametrize("cache", [False, True])
def test_generate_ends_with_any_of_the_ends_alone_and_among_many(model, cache):
    tokenizer = CharTokenizer(TOKENIZER.vocabulary)
    settings = dict(max_new_tokens=60, cache=cache)
    unended = [generate(model, tokenizer, "b", seed=seed, **settings)[1:] for seed in range(9)]
    tokenizer.end, *tokenizer.more_ends = map(tokenizer.vocabulary.index, "acd")
    pieces = stream_many(model, tokenizer, "b", range(9), **settings)
    texts = ["".join(text) for text in zip(*pieces)]
    assert texts == [re.split("[acd]", text)[0] for text in unended]
    assert {text[len(found)] for text, found in zip(unended, texts) if text != found} == {*"acd"}
    assert texts == [generate(model, tokenizer, "b", seed=seed, **settings)[1:]
                     for seed in range(9)]


@pytest.mark.needs("convert")
@pytest.mark.parametrize("text, stop, shown", [
    (f"the{END}in", END, "the"),                    # alone, after what is shown
    (f"the{END}in", f"{END}i", "the"), (f"the{END}in", f"e{END}", "th"),
    (f"a{END}{END}b", f"{END}{END}", "a"), (f"a{END}b{END}{END}c", f"{END}{END}", "ab"),
    (f"the{END}in q", f"h{END}", "thein q"),        # not at all: what was held back is shown
    (f"the{END}", f"{END}q", "the"),
    ("a\n<x>b", "<x>", "a\n")])                     # a token that is shown
def test_generate_ends_before_a_stop_with_special_tokens_in_it(text, stop, shown):
    parts = json.loads(byte_level())
    parts["added_tokens"].append(special(266, "<x>") | {"special": False})
    tokenizer = TokenTokenizer(json.dumps(parts))
    n = len(tokenizer.encode(text))
    found = stream(Reciting(text, tokenizer=tokenizer), tokenizer, "q", n, stop=stop)
    assert "".join(found) == shown
    tokenizer.end = 0       # what ends a text counts as written, too
    found = "".join(stream(Reciting(text, tokenizer=tokenizer), tokenizer, "q", n, stop=stop))
    assert found == min(shown, text.split(END)[0], key=len)


@pytest.mark.parametrize("cache", [True, False])
def test_restart_gives_the_logits_of_a_new_reader_and_keeps_what_is_the_same(model, cache):
    ids = np.arange(8)[None] % 5
    for length, part in ((5, 3), (5, 5), (7, 5), (2, 1), (8, 0)):
        reader = Reader(model, ids[:, :5], cache)
        reader.logits()
        other = ids[:, :length].copy()
        other[:, part:] += 1
        reader.restart(other)
        if cache:
            assert reader.cache.length == min(part, length - 1)
        np.testing.assert_array_equal(reader.logits(), Reader(model, other, cache).logits())


def test_restart_after_the_window_has_moved_keeps_nothing(model):
    reader = Reader(model, np.zeros((1, 7), int))
    reader.draw(np.full((1, 2), 0.5), Drawing())
    for _ in range(3):
        reader.draw(np.full((1, 1), 0.5), Drawing())
    assert reader.n > model.config.block_size and reader.cache.length > 0
    reader.restart(reader.ids[:, -3:])
    assert reader.cache.length == 0
