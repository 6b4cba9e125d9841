"""Two models in one page, as Python writes it: what is refused, and what the page then holds."""
import re
import zlib

import numpy as np
import pytest

from data.tokenizer import CharTokenizer
from model import Transformer, TransformerConfig, load_checkpoint, save_checkpoint
from model.checkpoint import Checkpoint
from model.look import living, weights
from model.look.__main__ import main
from model.look.beside import Side, check, mismatch
from model.look.page import LIVE, gather, html
from model.reverse.encoder_decoder import EncoderDecoder
from tests.browser import facts_of
from tests.kit import WiderConfig, refusal, refused


def side(folder, letters="ab ", block_size=8, layers=1, config=TransformerConfig, **options):
    tokenizer = CharTokenizer.of(letters)
    model = Transformer(config(len(letters), block_size, layers, 1, 4, **options), seed=layers)
    return Side(folder, Checkpoint(model, tokenizer, {}, {}))


@pytest.mark.parametrize("first, second, says", [
    (side("new", "ab"), side("old", "abc"),
     "the model in old knows 'c', and the one in new, .* the other way round: --out_dir old "
     "--beside new"),
    (side("new", "ab", 16), side("old", "ab", 8),
     "old reads at most 8 characters .* new, .*, 16; give them the other way round"),
    (side("new", "ab"), side("old", "ba"), "number their .* differently; give .* .--init_from"),
    (side("new", "abc", 16), side("old", "ac"), "differently; give two models .* fine-tuned"),
    (side("new", "ab", 8), side("old", "abc", 16), "knows 'c', .*; give two models .* fine-tuned"),
    (side("new"), side("old", config=WiderConfig), "of old there is none: .* window; leave"),
    (side("new", config=WiderConfig), side("old"), "of new there is none: .* window; leave")])
def test_two_models_that_no_page_can_compare_are_refused_with_what_to_do(first, second, says):
    assert re.search(says, refusal(ValueError, check, first, second))


def test_an_earlier_model_of_fewer_letters_or_another_size_may_stand_beside():
    check(side("new", "ab c"), side("old", "ab", 16, layers=3, position="rotary", bias=True))
    check(side("new"), side("new"))
    assert mismatch(side("old", "ab"), side("new", "ab c"))


def test_two_models_that_are_too_large_together_are_refused(monkeypatch):
    sizes = [weights.size_in_page(each.checkpoint.model) for each in (side("new"), side("old"))]
    monkeypatch.setattr(living, "LARGEST", sum(sizes) - 1)
    assert "with both models the page would have 0.0 MB" in refusal(
        ValueError, check, side("new"), side("old"))
    monkeypatch.setattr(living, "LARGEST", sum(sizes))
    check(side("new"), side("old"))


def test_the_page_holds_the_weights_of_both_only_if_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "SMALL", 1000)         # rounds the first one alone
    first, second = side(str(tmp_path), "ab c", layers=3), side("old", "ab ")
    assert weights.fits_unrounded(second.checkpoint.model)
    alone, data = gather(first.checkpoint, "ab c", "", tmp_path)
    facts, both = gather(first.checkpoint, "ab c", "", tmp_path, second=second)
    names = [tensor["name"] for tensor in facts["tensors"]]
    assert facts["tensors"][:len(alone["tensors"])] == alone["tensors"]
    assert names[len(alone["tensors"]):] == [
        f"beside.{name}" for name, _ in second.checkpoint.model.named_parameters()]
    numbers, more = zlib.decompress(data), b"".join(
        p.data.tobytes() for p in second.checkpoint.model.parameters())
    assert zlib.decompress(both) == numbers + more
    assert len(alone["losses"]) == 3 and facts["losses"] == []      # these are not what it shows
    assert "beside" not in alone and facts["beside"] == {
        "now": str(tmp_path), "pinned": "old", "lede_of_one": LIVE, "neutral": [2, 0],
        "config": {"kv_heads": 1, "d_head": 4, **vars(second.checkpoint.model.config)}}
    assert re.search("Each weight is rounded .*  The other model has .* in 1 "
                     "block, .* from the folder old.  No weight is rounded", facts["about_words"])
    written = html(facts, both)
    assert "<title>Two models to type into</title>" in written
    assert "less than that of ‘old’, orange" in " ".join(written.split())
    assert facts_of(written)["beside"]["pinned"] == "old"
    titles = re.findall("<h2[^>]*>([^<]+)", written)
    assert [title.replace(str(tmp_path), "new") for title in titles] == [
        "Switch a part of ‘new’ off", "Let ‘new’ write", "How ‘new’ was trained",
        "About these models"]
    assert re.findall("<h2[^>]*>([^<]+)", html(alone, data)) == [
        "Switch a part off", "Let it write", "How it was trained", "About this model"]


def test_links_begin_with_both_models_and_take_a_single_head_from_the_first_one_alone(tmp_path):
    facts, _ = gather(side("new").checkpoint, "ab ab", "", tmp_path, second=side("old"))
    assert facts["examples"][0] == ("Beside old", {})
    pins = {words: state.get("pin", "pinned") for words, state in facts["examples"][1:]}
    assert pins == {"Switch off head 1.1": None, "Nonsense": "pinned",
                    "A head that must look at one letter": None}


def test_the_command_puts_the_model_of_another_folder_beside_the_first(
        trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model, tokenizer, *_ = load_checkpoint(trained / "ckpt.npz")
    for name, p in model.named_parameters():
        p.data = p.data + np.float32(1)
    save_checkpoint(tmp_path / "old/ckpt.npz", model, tokenizer)
    main([str(trained), "--beside", "old", "--text", "the"])
    assert "open it in a browser" in capsys.readouterr().out
    page = (tmp_path / "look.html").read_text(encoding="utf-8")
    assert [facts_of(page)["beside"][side] for side in ("now", "pinned")] == [str(trained), "old"]
    other = CharTokenizer.of("".join(tokenizer.vocabulary)[::-1])
    save_checkpoint(tmp_path / "old/ckpt.npz", model, other)
    said = refused(capsys, trained, "--beside", "old", main=main)
    assert f"the models in {trained} and old number their characters differently" in said
    assert (tmp_path / "look.html").read_text(encoding="utf-8") == page


def test_an_encoder_decoder_stands_beside_no_other(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    config = EncoderDecoder.Config(9, 4, 1, 1, 4)
    save_checkpoint(tmp_path / "reverse/ckpt.npz", EncoderDecoder(config),
                    CharTokenizer("abcdefghi"))
    for words in (["reverse", "--beside", trained], [trained, "--beside", "reverse"]):
        said = refused(capsys, *words, main=main)
        assert "holds an encoder-decoder, and not a model of train.py" in said
    assert not (tmp_path / "look.html").exists()
