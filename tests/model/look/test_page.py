"""What the page holds: every number against its direct computation, and no way out of the file."""
import base64
import configparser
import csv
import json
import math
import re
import zlib

import numpy as np
import pytest

import data
from model.convert.tokens import TokenTokenizer
from model import CharTokenizer, TransformerConfig, load_checkpoint
from model.look import heads
from model.look.page import (MOST_CHARACTERS, check_length, count_weights, gather, html, shown,
                             worths)
from model.look.reading import read
from model.generation import window_start
from model.score.text import text_losses
from model.scoring import yardstick
from model.checkpoint import Checkpoint
from tests.browser import facts_of
from tests.kit import ROOT, memory, opinionated, refusal
from tests.model.look.pages import maps_of
from tests.token_files import byte_fallback, byte_level

pytestmark = pytest.mark.late
TEXT = "the quick brown fox runs\nover the green wood"


@pytest.fixture(scope="module")
def found(trained):
    """A checkpoint, and what its page holds of TEXT."""
    checkpoint = load_checkpoint(trained / "ckpt.npz")
    return checkpoint, *gather(checkpoint, TEXT, "from here", trained, live=False)


def made(text, training=None, **config):
    """A model that has not been trained, as if it came from a file."""
    tokenizer = CharTokenizer(text)
    settings = dict(block_size=8, n_layer=2, n_head=2, n_embd=8) | config
    model = opinionated(TransformerConfig(tokenizer.vocab_size, **settings), 8)
    return Checkpoint(model, tokenizer, training or {}, {})


def test_what_was_expected_of_each_character_is_what_sampling_would_have_drawn_from(found):
    (model, tokenizer, *_), facts, _ = found
    ids, block = tokenizer.encode(TEXT), model.config.block_size
    assert facts["ids"] == ids.tolist() and len(facts["predictions"]) == len(ids) > 2 * block
    losses = text_losses(model, ids)
    for n, fact in enumerate(facts["predictions"], 1):
        start = window_start(n, block)
        logits = model(ids[start:n]).data[-1].astype(np.float64)
        p = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        order = sorted(range(len(p)), key=lambda i: -p[i])[:8]
        assert [i for i, _ in fact["top"]] == order
        assert [x for _, x in fact["top"]] == pytest.approx(1e4 * p[order], abs=0.51)
        if n < len(ids):
            assert fact["came"] == pytest.approx(1e4 * p[ids[n]], abs=0.51)
            assert fact["loss"] == pytest.approx(losses[n - 1], abs=1e-5)
        else:
            assert not fact.keys() & {"came", "loss"}


def test_heads_are_described_over_the_rows_that_predict_and_the_best_one_is_chosen(found):
    (model, tokenizer, *_), facts, _ = found
    ids = tokenizer.encode(TEXT)
    described = heads.describe([(window.maps, window.fresh) for window in read(model, ids)])
    for layer, of_layer in zip(facts["heads"], described, strict=True):
        for fact, head in zip(layer, of_layer, strict=True):
            assert fact["does"] == heads.kind(head)[1]
    window, out = ids[:model.config.block_size], model.blocks[0].attention.out.weight.data
    before, kept = text_losses(model, window).sum(), out.copy()
    for head, worth in enumerate(facts["worths"]):
        out[:, 8 * head:8 * head + 8] = 0                           # D is 8
        assert worth == pytest.approx(text_losses(model, window).sum() - before, abs=1e-4)
        out[:] = kept
    assert facts["best"] == (0, int(np.argmax(facts["worths"])))
    assert worths(model, ids[:1]) is None


def test_the_weights_are_those_of_the_plain_path_to_a_hundredth_of_a_percent(found):
    (model, tokenizer, *_), facts, weights = found
    ids, units = tokenizer.encode(TEXT), []
    for start in range(0, window_start(len(ids), 16) + 1, 8):
        T = min(16, len(ids) - start)
        rows, columns = np.tril_indices(T)
        maps = maps_of(model, ids[start:start + T]).astype(float)             # (L, H, T, T)
        units.append(np.rint(1e4 * maps[..., rows, columns]).astype(int).ravel())
    high, low = np.divmod(np.concatenate(units), 256)
    assert zlib.decompress(weights) == bytes(low.tolist() + high.tolist())
    assert count_weights(model.config, len(ids)) == low.size


def test_each_block_shows_what_it_would_predict(found):
    (model, tokenizer, *_), facts, _ = found
    ids, fact = tokenizer.encode(TEXT), facts["predictions"][4]
    x = model.token_embedding(ids[:5]) + model.position_embedding(np.arange(5))
    for block, likeliest in zip([None, *model.blocks], fact["blocks"], strict=True):
        x = x if block is None else block(x)
        logits = (model.norm(x).data @ model.token_embedding.weight.data.T)[-1].astype(float)
        p = np.exp(logits) / np.exp(logits).sum()
        assert likeliest == (p.argmax(), pytest.approx(1e4 * p.max(), abs=0.51))
    for fact in facts["predictions"]:
        assert fact["blocks"][-1] == fact["top"][0]


def test_gather_shows_all_characters_of_a_vocabulary_of_few(tmp_path):
    facts, _ = gather(made("abc "), "abc", "", tmp_path, live=False)
    assert [len(fact["top"]) for fact in facts["predictions"]] == [4, 4, 4]


def test_the_run_is_its_log_and_the_n_grams_on_its_validation_text(found, trained, small_text):
    (model, tokenizer, *_), facts, _ = found
    with open(trained / "log.csv", encoding="utf-8") as file:
        lines = list(csv.reader(file))[1:]
    assert facts["log"] == [[float(x) if x else None for x in line] for line in lines]
    assert facts["log"][0][1] is None and len(facts["log"]) == 5
    train, val = data.split(tokenizer.encode(data.read_text(str(small_text))))
    counted = yardstick(train, val, tokenizer.vocab_size)
    assert facts["counted"] == [(name, round(x, 3)) for name, x in counted.items()]
    assert "trained for 40 steps on words.txt" in facts["about_words"]
    assert str(trained) in facts["about_words"] and "from here" in facts["about_words"]


@pytest.mark.parametrize("log, why", [(None, "cannot be read"),
                                      (b"iter,train_loss\n1,2", "is damaged")])
def test_without_a_log_or_the_training_text_the_page_says_why(tmp_path, log, why):
    checkpoint = made("abc ")
    if log is not None:
        (tmp_path / "log.csv").write_bytes(log)
    facts, weights = gather(checkpoint, "abc abc", "", tmp_path)
    assert facts["log"] is None and why in facts["no_log"] and "log.csv" in facts["no_log"]
    assert facts["counted"] is None and "does not say which text" in facts["no_counts"]
    said = " ".join(html(facts, weights).partition("<script")[0].split())
    assert "There are no curves here, because " in said and why in said
    assert "<tbody></tbody>" in said
    checkpoint.model.norm.weight.data[0] = math.nan
    assert "may have diverged" in refusal(ValueError, gather, checkpoint, "abc", "", tmp_path)


SMALL = TransformerConfig(5, block_size=64, n_layer=4, n_head=4, n_embd=16)
LARGE = TransformerConfig(5, block_size=1024, n_layer=12, n_head=12, n_embd=24)


@pytest.mark.parametrize("config, N, says", [
    (SMALL, 1, "needs two characters .* and this has 1"),
    (SMALL, MOST_CHARACTERS + 1, "has 1,001 characters, .* at most 1,000, .* shorter"),
    (LARGE, 900, "has 900 characters, .* at most 372, ")])
def test_a_text_too_short_or_too_long_is_refused(config, N, says):
    assert re.search(says, refusal(ValueError, check_length, config, N))
    for config, N in ((SMALL, 2), (SMALL, MOST_CHARACTERS), (LARGE, 372)):
        check_length(config, N)


@pytest.mark.parametrize("text, symbol, name", [
    ("e", "e", "e"),
    ("E", "E", "capital E"),
    (".", ".", "full stop"),
    ("\n", "⏎", "line break"),
    ("\0", "␀", "U+0000"),
    ("\x7f", "U+007F", "U+007F"),
    ("\u2028", "U+2028", "line separator"),
    ("\ud800", "U+D800", "U+D800"),
    ("\u0301", "◌\u0301", "combining acute accent"),
    ("", "", ""),
    (" the", "␣the", "space the"),
    ("\t\tx", "⇥⇥x", "tab tab x"),
    ("e\u0301", "e◌\u0301", "e\u0301"),
    ("a\0b", "a␀b", "a b"),
    ("abcdefghijklmnopqrst", "abcdefghijklmno…", "abcdefghijklmnopqrst")])
def test_every_character_and_token_has_a_symbol_that_can_be_seen_and_a_name(text, symbol, name):
    assert shown(text) == (symbol, name)


@pytest.mark.needs("convert")
@pytest.mark.parametrize("kind", [byte_level, byte_fallback])
def test_a_page_of_tokens_shows_tokens_and_speaks_of_them(tmp_path, kind):
    tokenizer = TokenTokenizer(kind(), None, 300)
    model = opinionated(TransformerConfig(300, 8, n_layer=2, n_head=2, n_embd=8), 20)
    checkpoint = Checkpoint(model, tokenizer, {}, {})
    text = "the in 🙂 the character"
    facts, weights = gather(checkpoint, text, "", tmp_path)
    ids = tokenizer.encode(text).tolist()
    assert facts["ids"] == ids and facts["unit"] == "token" and not facts["live"]
    assert set(ids) <= facts["vocabulary"].keys() and len(facts["vocabulary"]) < 300
    assert facts["vocabulary"][tokenizer.vocabulary.index(" the")] == ("␣the", "space the")
    tops = [fact[kind] for fact in facts["predictions"] for kind in ("top", "blocks")]
    assert {i for top in tops for i, _ in top} <= facts["vocabulary"].keys()
    assert "300 different tokens, and reads at most 8 tokens" in facts["about_words"]
    page = html(facts, weights)
    said = page[page.index("<h1"):page.index("<script")].replace(text, "")
    said = said.replace("what is typed are characters", "")
    assert "after each token" in said and "character" not in said
    assert "needs two tokens" in refusal(ValueError, gather, checkpoint, "", "", tmp_path)


def test_a_page_of_many_tokens_is_as_small_as_of_few(tmp_path):
    sizes = []
    for V in (300, 30_000):
        checkpoint = made("".join(map(chr, range(97, 97 + V))), block_size=64, n_layer=8)
        with memory() as taken:
            sizes.append(len(html(*gather(checkpoint, "abc" * 20, "", tmp_path, live=False))))
    assert sizes[1] < 1.2 * sizes[0]
    assert taken[0] < 4 * 8 * 60 * 30_000       # four times what float64 of one depth take


def test_no_text_or_name_can_leave_the_json_that_holds_it(tmp_path, hostile_text):
    out_dir = tmp_path / "<b>&'\""
    checkpoint = made(hostile_text, {"settings": {"data": hostile_text}, "text": ""})
    facts, weights = gather(checkpoint, hostile_text, "</script>{{weights}}", out_dir)
    written = html(facts, weights)
    parts = re.findall(r"<script([^>]*)>(.*?)</script>", written, re.DOTALL)
    assert [kind for kind, _ in parts] == [' type="text/plain" id="weights"',
                                           ' type="application/json" id="facts"', ""]
    assert base64.b64decode(parts[0][1]) == weights
    assert "<" not in parts[1][1] and parts[1][1].isascii()
    assert json.loads(parts[1][1]) == json.loads(json.dumps(facts))
    written.encode("utf-8")
    assert "{{" not in written.replace(parts[1][1], "")
    assert "default-src 'none'" in written and "img-src data:" in written
    assert not re.findall(r"(?:src|href)=\"(?!#|data:,)|insertAdjacentHTML", written)


def test_html_writes_the_published_page_again():
    published = (ROOT / "docs/index.html").read_text(encoding="utf-8")
    weights = re.search(r'id="weights">(.*?)</script>', published)[1]
    assert html(facts_of(published), base64.b64decode(weights)) == published
    assert len(published) < 1_700_000


@pytest.mark.parametrize("package", ["model.look", "minigrad.watch"])
def test_what_pages_are_made_of_is_installed_with_the_package(package):
    config, folder = configparser.ConfigParser(), ROOT.joinpath(*package.split("."))
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    installed = {path for pattern in config["options.package_data"][package].split()
                 for path in folder.glob(pattern)}
    assert installed and installed >= {path for path in folder.rglob("*.*")
                                       if path.suffix in (".css", ".html", ".js", ".txt")}
