"""The live page as Python writes it: rounded weights, counts, and what is refused."""
import json
import types
import zlib

import numpy as np
import pytest

from data.tokenizer import CharTokenizer
from model import Transformer, TransformerConfig, load_checkpoint
from model.checkpoint import Checkpoint
from model.live import counts, page, weights
from model.look.__main__ import main
from model.look.shell import static
from model.reverse.encoder_decoder import EncoderDecoderConfig
from tests.browser import facts_of


def model_of(text="abc", **options):
    tokenizer = CharTokenizer(text)
    return Transformer(TransformerConfig(tokenizer.vocab_size, 8, 1, 1, 4, **options)), tokenizer


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


def test_counts_are_those_of_every_window_of_five():
    ids = np.random.default_rng(0).integers(0, 3, 200)
    grams, found = counts.counted(ids, 3)
    windows = [tuple(ids[i:i + 5].tolist()) for i in range(196)]
    assert {tuple(g): n for g, n in zip(grams.tolist(), found)} == {
        w: windows.count(w) for w in windows}
    order = [g[::-1] for g in grams.tolist()]
    assert order == sorted(order)           # neighbours are alike, which deflates well


def test_a_table_that_is_too_large_keeps_the_most_frequent(monkeypatch):
    ids = np.random.default_rng(0).integers(0, 5, 3000)
    whole, share, _ = counts.table(ids, 5)
    monkeypatch.setattr(counts, "MOST_BYTES", 1000)
    kept, less, data = counts.table(ids, 5)
    assert share == 1 and kept < whole and kept / whole < less < 1 and len(data) <= 1000
    rows = np.frombuffer(zlib.decompress(data), "<u4").reshape(6, kept).T
    assert sorted(rows[:, 5]) == sorted(counts.counted(ids, 5)[1])[-kept:]


def test_no_text_gives_an_empty_table():
    assert counts.table(np.empty(0, np.int64), 5)[:2] == (0, 0.0)


def test_other_models_are_refused_by_name(monkeypatch):
    reverser = EncoderDecoderConfig(vocab_size=5, block_size=4).model()
    with pytest.raises(ValueError, match="as those of model.reverse do; leave out --live"):
        page.check(Checkpoint(reverser, None, {}, {}))
    tokens = types.SimpleNamespace(unit="token")
    with pytest.raises(ValueError, match="character by character, and this model has tokens"):
        page.check(Checkpoint(model_of()[0], tokens, {}, {}))
    monkeypatch.setattr(page, "LARGEST", 600_000)
    large = Transformer(TransformerConfig(3, 8, 3, 1, 128))
    with pytest.raises(ValueError, match="would have 0.8 MB, .* at most 1 MB"):
        page.check(Checkpoint(large, CharTokenizer("abc"), {}, {}))


def test_the_cost_of_rounding_is_measured(monkeypatch):
    model, _ = model_of()
    ids = np.array([0, 1, 2, 0, 1, 2, 2, 1])
    assert page.rounding_cost(model, ids) == "nothing: no weight is rounded"
    monkeypatch.setattr(weights, "SMALL", 0)
    assert page.rounding_cost(model, ids[:0]).startswith("not measured")
    exact = page.rounding_cost(model, ids)
    monkeypatch.setattr(weights, "LARGEST", 1)
    assert float(exact.split()[0]) == pytest.approx(0, abs=1e-3)
    assert page.rounding_cost(model, ids) != exact


def test_neutral_characters_are_a_space_and_a_line_break_or_the_most_frequent():
    assert page.neutral(list("\n a"), np.empty(0, int)) == [1, 0]
    assert page.neutral(list("abc"), np.array([2, 2, 1])) == [2, 1]


def test_the_command_writes_it_and_the_page_says_what_it_mirrors(trained, tmp_path, capsys):
    main(["--live", "--out_dir", str(trained), "--text", "the", "-o", str(tmp_path / "l.html")])
    assert "open it in a browser" in capsys.readouterr().out
    html = (tmp_path / "l.html").read_text(encoding="utf-8")
    facts = facts_of(html)
    assert facts["text"] == "the" and "def embed" in facts["python"]["Transformer"]
    assert facts["characters"] == list(load_checkpoint(trained / "ckpt.npz").tokenizer.vocabulary)
    assert json.loads(json.dumps(facts)) == facts and static("elements.js") in html


def test_check_length_refuses_a_text_that_no_browser_should_go_through_at_each_key():
    page.check_length("a" * 100_000)
    with pytest.raises(ValueError) as caught:
        page.check_length("a" * 20_000_000)
    assert str(caught.value) == ("the text has 20,000,000 characters, and a live page takes at "
                                 "most 100,000; give a shorter --text")


def test_live_is_no_graph(trained, capsys):
    with pytest.raises(SystemExit):
        main(["--live", "--graph", "--out_dir", str(trained)])
    assert "--graph shows no page; leave out --live" in capsys.readouterr().err


def test_the_engine_can_be_read_in_one_go():
    engine = (page.STATIC / "engine.js").read_text(encoding="utf-8").splitlines()
    assert len(engine) <= 350 and max(map(len, engine)) <= 100
