"""A model that lives in its page, as Python writes it: rounded weights, and when it cannot."""
import json
import re
import types
import zlib

import numpy as np
import pytest

from data.tokenizer import CharTokenizer
from model import Transformer, TransformerConfig, load_checkpoint
from model.checkpoint import Checkpoint
from model.look import living, weights
from model.look.__main__ import main
from model.look.shell import static
from tests.browser import facts_of
from tests.kit import WiderConfig


def model_of(text="abc", **options):
    tokenizer = CharTokenizer(text)
    return Transformer(TransformerConfig(tokenizer.vocab_size, 8, 1, 1, 3, **options)), tokenizer


def test_a_rounded_weight_is_at_most_half_a_scale_away():
    weight = np.random.default_rng(0).normal(0, 0.1, (7, 33)).astype(np.float32)
    weight[3] = 0
    whole, scales = weights.quantized(weight)
    assert whole.dtype == np.int8 and abs(whole).max() == 127 and scales[3] == 0
    assert (abs(whole * scales[:, None] - weight) <= scales[:, None] * 0.5001).all()


@pytest.mark.parametrize("small", [0, weights.SMALL])
def test_what_is_packed_is_the_rounded_model(monkeypatch, small):
    monkeypatch.setattr(weights, "SMALL", small)
    model, _ = model_of(bias=True, norm="layer")
    tensors, data = weights.packed(model)
    data, at, found = zlib.decompress(data), 0, {}
    for of in tensors:
        n = np.prod(of["shape"]) if of["exact"] else of["shape"][0]
        found[of["name"]] = np.frombuffer(data, "<f4", n, at)
        at += 4 * n
        if not of["exact"]:
            numbers = np.frombuffer(data, np.int8, np.prod(of["shape"]), at).reshape(of["shape"])
            at += numbers.size + -numbers.size % 4
            found[of["name"]] = numbers * found[of["name"]][:, None]
    assert at == len(data)
    for name, p in weights.rounded(model).named_parameters():
        assert (found[name].reshape(p.shape) == p.data).all(), name
    assert any(of["exact"] for of in tensors) and all(of["exact"] for of in tensors) == (small > 0)


@pytest.mark.parametrize("unit, model, reason", [
    ("token", TransformerConfig(3, 8, 1, 1, 4), "its model has tokens"),
    ("character", TransformerConfig(3, 8, 3, 1, 128), "would have 0.8 MB, .* at most 1 MB"),
    ("character", WiderConfig(3, 8, 1, 1, 4), "not know how to compute the option window"),
    ("character", TransformerConfig(3, 8, 1, 1, 4), None)])
def test_reason_against_a_living_page_names_what_is_in_the_way(monkeypatch, unit, model, reason):
    monkeypatch.setattr(living, "LARGEST", 600_000)
    tokenizer = types.SimpleNamespace(unit=unit)
    found = living.reason_against(Checkpoint(Transformer(model), tokenizer, {}, {}))
    assert (found is None) if reason is None else re.search(reason, found)


def test_the_cost_of_rounding_is_measured_and_never_minus_0(monkeypatch):
    model, _ = model_of()
    text, short = (types.SimpleNamespace(val=np.array(ids))
                   for ids in ([0, 1, 2, 0, 1, 2, 2, 1], [0]))
    assert living.rounding_cost(model, text) == "No weight is rounded in this page."
    monkeypatch.setattr(weights, "SMALL", 0)
    for none in (None, short):
        assert "was not measured" in living.rounding_cost(model, none)
    assert "costs less than 0.0001 nats" in living.rounding_cost(model, text)
    monkeypatch.setattr(weights, "LARGEST", 1)
    assert re.search(r"costs [+-]0\.0\d+ nats a character \(1\.\d+ without\)",
                     living.rounding_cost(model, text))


def test_neutral_characters_are_a_space_and_a_line_break_or_the_most_frequent():
    assert living.neutral(list("\n a")) == [1, 0]
    text = types.SimpleNamespace(train=np.array([2, 2, 1]))
    assert living.neutral(list("abc"), text) == [2, 1]


def test_the_command_writes_it_with_the_characters_of_the_model(trained, tmp_path, capsys):
    main(["--live", "--out_dir", str(trained), "--text", "the", "-o", str(tmp_path / "l.html")])
    assert "open it in a browser" in capsys.readouterr().out
    html = (tmp_path / "l.html").read_text(encoding="utf-8")
    facts = facts_of(html)
    assert facts["text"] == "the"
    assert facts["characters"] == list(load_checkpoint(trained / "ckpt.npz").tokenizer.vocabulary)
    assert json.loads(json.dumps(facts)) == facts and static("elements.js") in html


def test_check_length_refuses_a_text_that_no_browser_should_go_through_at_each_key():
    living.check_length("a" * 100_000)
    with pytest.raises(ValueError) as caught:
        living.check_length("a" * 20_000_000)
    assert str(caught.value) == ("the text has 20,000,000 characters, and a page to type into "
                                 "takes at most 100,000; give a shorter --text")


def test_without_a_model_the_page_has_one_text_and_says_why(trained, tmp_path, capsys, monkeypatch):
    words = ["--out_dir", str(trained), "--text", "the", "-o", str(tmp_path / "s.html")]
    main([*words, "--no-live"])
    assert "cannot be typed into" not in capsys.readouterr().out
    asked = (tmp_path / "s.html").read_text(encoding="utf-8")
    monkeypatch.setattr(living, "LARGEST", 1)
    main(words)
    assert "one text, and cannot be typed into: with its model" in capsys.readouterr().out
    large = (tmp_path / "s.html").read_text(encoding="utf-8")
    for html, reason in ((asked, "--no-live asked for this."), (large, "with its model")):
        assert f"cannot be typed into: {reason}" in " ".join(html.split())
        assert not facts_of(html)["live"]


def test_the_engine_can_be_read_in_one_go():
    engine = static("engine.js").splitlines()
    assert len(engine) <= 350 and max(map(len, engine)) <= 100
