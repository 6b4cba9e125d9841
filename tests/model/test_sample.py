"""The sampling command: text on standard output, all else on standard error, one-line mistakes."""
import math
import os
import re
import subprocess
import sys

import pytest

import data
from model.convert.tokens import TokenTokenizer
from model import Transformer, TransformerConfig, generate, load_checkpoint, sample, save_checkpoint
from model.generation import AT_ONCE
from model.score.text import text_losses
from tests.kit import ROOT, written
from token_files import byte_fallback, byte_level, of_words


def sampled(capsys, trained, *flags):
    sample.main(["--out_dir", str(trained), *flags])
    return capsys.readouterr()


@pytest.fixture
def best(trained):
    """The best model of the run of `trained`, and its tokenizer."""
    return load_checkpoint(trained / "ckpt.npz")[:2]


def test_the_cache_does_not_change_the_text_and_sliding_does(trained, capsys):
    flags = ["--max_new_tokens", "60", "--num_samples", "3"]
    texts = [sampled(capsys, trained, *flags, *more).out
             for more in ([], ["--no-cache"], ["--slide"], ["--slide", "--no-cache"])]
    assert texts[0] == texts[1] != texts[2] == texts[3]


@pytest.mark.parametrize("num_samples", [1, 3, 18])
def test_samples_are_what_generate_gives_for_each_seed(trained, best, capsys, num_samples):
    assert num_samples < sample.TOGETHER or num_samples > sample.TOGETHER + 1
    out, err = sampled(capsys, trained, "--max_new_tokens", "30", "--start", "a", "--seed", "5",
                       "--top_k", "10", "--temperature", "0.9", "--num_samples", str(num_samples))
    texts = [generate(*best, "a", 30, 0.9, top_k=10, seed=5 + i) for i in range(num_samples)]
    assert out == f"\n{sample.RULE}\n".join(texts) + "\n"
    assert len(set(texts)) == num_samples
    assert re.fullmatch(r"[0-9,]+ characters a second\n", err)
    for n in ("1", "2"):        # too few
        assert sampled(capsys, trained, "--max_new_tokens", n).err == ""


def test_it_stops_before_the_stop_text(trained, capsys):
    out = sampled(capsys, trained, "--start", "the", "--stop", " ").out
    assert " " not in out


def scored(capsys, trained, path, *flags):
    out, err = sampled(capsys, trained, "--score", str(path), *flags)
    numbers = {words: float(number) for number, words in re.findall(
        r"^    ([0-9.]+)  (.*)$", out, re.MULTILINE)}
    return numbers, out, err


def test_a_text_is_scored_beside_counted_n_grams(trained, best, capsys, tmp_path, small_text):
    text, (model, tokenizer) = "the lazy dog runs on\nby the river", best
    written(tmp_path / "t.txt", text)
    train, _ = data.split(tokenizer.encode(data.read_text(str(small_text))))
    for slide in (False, True):
        loss = text_losses(model, tokenizer.encode(text), slide).mean()
        numbers, out, err = scored(capsys, trained, tmp_path / "t.txt", *["--slide"] * slide)
        assert numbers["nats a character"] == pytest.approx(loss, abs=1e-4)
        assert numbers["bits a character"] == pytest.approx(loss / math.log(2), abs=1e-4)
        assert numbers["perplexity"] == pytest.approx(math.exp(loss), rel=1e-4)
        assert numbers["this model  <--"] == pytest.approx(loss, abs=1e-3)
        counted = data.ngram_losses(train, tokenizer.encode(text), tokenizer.vocab_size)
        assert [numbers[f"counted {name}"] for name in ("unigram", "bigram", "5-gram")] == [
            pytest.approx(counted[n], abs=1e-3) for n in (0, 1, 4)]
        assert f"{len(text)} characters" in out and err == ""


def test_unknown_characters_are_left_out_of_a_score_if_asked_for(trained, capsys, tmp_path):
    text = "the lazy dog runs on\nby the river"
    numbers, out, _ = scored(capsys, trained, file := written(tmp_path / "t.txt", text))
    assert scored(capsys, trained, file, "--skip_unknown") == (numbers, out, "")
    written(file, "É" + text.replace("r", "ZrÉ") + "1234\x1b")
    assert scored(capsys, trained, file, "--skip_unknown") == (
        numbers, out, "left out 12 of 45 characters, which the model does not know: 'É' (4), "
                      "'Z' (3), '\\x1b' (1), '1' (1), '2' (1) and 2 more\n")


def test_a_score_of_what_was_trained_on_says_so(trained, capsys, small_text, tmp_path):
    train, val = data.split(small_text.read_text(encoding="utf-8"))
    for text, known in ((train + val, True), (train[50:900], True), (val, False)):
        file = written(tmp_path / "t.txt", text)
        assert ("was trained on" in scored(capsys, trained, file)[2]) == known


def test_without_the_training_text_the_score_stands_alone_and_says_why(best, capsys, tmp_path):
    written(tmp_path / "t.txt", "the dog")
    for training, why in (
            ({}, "does not say which text"),
            ({"settings": {}, "text": ""}, "does not say which text"),
            ({"settings": {"data": "lantern"}}, "does not say which text"),
            ({"settings": {"data": str(tmp_path / "gone")}, "text": ""}, "gone"),
            ({"settings": {"data": "a\0b\x1b[2J"}, "text": ""}, r"a\x00b\x1b[2J"),
            ({"settings": {"data": str(tmp_path / "t.txt")}, "text": "0"}, "is no longer the one"),
    ):
        save_checkpoint(tmp_path / "ckpt.npz", *best, training)
        numbers, out, err = scored(capsys, tmp_path, tmp_path / "t.txt")
        assert set(numbers) == {"nats a character", "bits a character", "perplexity"}
        assert "without counted n-grams" in err and why in err and "counted" not in out


def test_a_model_that_has_diverged_is_refused_in_words(best, capsys, tmp_path):
    best[0].norm.weight.data[0] = math.nan
    save_checkpoint(tmp_path / "ckpt.npz", *best, finite=False)
    for flags in (["--score", str(written(tmp_path / "t.txt", "the dog"))], []):
        with pytest.raises(SystemExit, match="its training may have diverged"):
            sampled(capsys, tmp_path, *flags)


@pytest.fixture(params=[byte_level, byte_fallback], ids=["byte level", "byte fallback"])
def of_tokens(request, tmp_path):
    """A folder with a model of tokens, which has not been trained."""
    tokenizer = TokenTokenizer(request.param(), None, 300)
    model = Transformer(TransformerConfig(300, 32, n_layer=1, n_head=2, n_embd=16))
    model.token_embedding.weight.data *= 40
    save_checkpoint(tmp_path / "ckpt.npz", model, tokenizer)
    return tmp_path


@pytest.mark.needs("convert")
def test_a_model_of_tokens_writes_what_generate_gives_and_how_fast(of_tokens, capsys):
    model, tokenizer, *_ = load_checkpoint(of_tokens / "ckpt.npz")
    for start in ("", "the in", "🙂 "):
        out, err = sampled(capsys, of_tokens, "--start", start, "--max_new_tokens", "120",
                           "--num_samples", "2")
        texts = [generate(model, tokenizer, start, 120, 0.8, seed=seed) for seed in (1337, 1338)]
        assert out == f"\n{sample.RULE}\n".join(texts) + "\n"
        assert re.fullmatch(r"[0-9,.]+ tokens, [0-9,]+ characters a second\n", err)


def test_as_many_ids_are_timed_as_characters_where_each_is_one(trained, capsys):
    checkpoint = load_checkpoint(trained / "ckpt.npz")
    for most, n in ((9, 1), (60, 3), (60, 17)):
        s = sample.Settings(max_new_tokens=most, num_samples=n)
        ids, characters, _ = sample.write(s, checkpoint, "the", 1)
        assert ids == characters == n * (most - AT_ONCE)


@pytest.mark.needs("convert")
def test_what_no_token_stands_for_is_refused_without_a_flag_that_would_not_help(capsys, tmp_path):
    model = Transformer(TransformerConfig(2, 32, n_layer=1, n_head=2, n_embd=16))
    save_checkpoint(tmp_path / "ckpt.npz", model, TokenTokenizer(of_words("a", "the")))
    written(tmp_path / "t.txt", "other")
    for flags in ([], ["--skip_unknown"]):
        with pytest.raises(SystemExit, match=r"cannot encode the text: [^;]*$"):
            sampled(capsys, tmp_path, "--score", str(tmp_path / "t.txt"), *flags)


@pytest.mark.needs("convert")
def test_a_text_of_tokens_is_scored_in_nats_a_token_and_bits_a_byte(of_tokens, capsys, tmp_path):
    text = "the inré the 🙂"
    written(tmp_path / "t.txt", text)
    model, tokenizer, *_ = load_checkpoint(of_tokens / "ckpt.npz")
    ids = tokenizer.encode(text)
    losses = text_losses(model, ids)
    numbers, out, err = scored(capsys, of_tokens, tmp_path / "t.txt", "--skip_unknown")
    first = tokenizer.decode(ids[:1])
    assert first == ("" if tokenizer.encode("").size else "t")
    bits = losses.sum() / math.log(2)
    assert numbers == {
        "nats a token": pytest.approx(losses.mean(), abs=1e-4),
        "bits a byte": pytest.approx(bits / (len(text.encode()) - len(first)), abs=1e-4),
        "bits a character": pytest.approx(bits / (len(text) - len(first)), abs=1e-4),
        "perplexity": pytest.approx(math.exp(losses.mean()), rel=1e-4)}
    assert f"{len(text)} characters in {len(ids)} tokens, each but the first predicted" in out
    assert "without counted n-grams beside it, because the checkpoint does not say which" in err
    text = data.Text("the in\nthere\n" * 30)
    written(tmp_path / "t.txt", text.characters)
    save_checkpoint(of_tokens / "ckpt.npz", model, tokenizer, {
        "settings": {"data": str(tmp_path / "t.txt")}, "text": text.digest})
    numbers, *_ = scored(capsys, of_tokens, tmp_path / "t.txt")
    train, _ = map(tokenizer.encode, text.parts())
    counted = data.ngram_losses(train, tokenizer.encode(text.characters), 300)
    assert [numbers[f"counted {name}"] for name in ("unigram", "bigram", "5-gram")] == [
        pytest.approx(counted[n], abs=1e-3) for n in (0, 1, 4)]


def test_a_closed_pipe_ends_it_quietly(trained):
    command = [sys.executable, "-m", "model.sample", "--out_dir", str(trained),
               "--max_new_tokens", "2000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          cwd=ROOT) as process:
        assert process.stdout.read(5)
        process.stdout.close()
        assert process.stderr.read() == b"" and process.wait(timeout=60) == 0


def test_an_interrupt_shows_what_was_made_of_every_sample(trained, capsys, monkeypatch):
    def interrupted(*arguments):
        yield ["a", "b", "c"]
        raise KeyboardInterrupt
    monkeypatch.setattr(sample, "stream_many", interrupted)
    with pytest.raises(SystemExit) as caught:
        sample.main(["--out_dir", str(trained), "--num_samples", "3"])
    assert caught.value.code == 130
    assert capsys.readouterr().out == f"a\n{sample.RULE}\nb\n{sample.RULE}\nc\n"


@pytest.mark.skipif(os.name != "posix", reason="there is no such shell")
def test_standard_output_input_or_error_may_be_closed(trained):
    def run(flags):
        return subprocess.run(f"{sys.executable} -m model.sample --out_dir {trained} {flags}",
                              shell=True, capture_output=True, text=True, cwd=ROOT)
    said, alone = run("--max_new_tokens 40"), run("--max_new_tokens 40 2>&-")
    assert "characters a second" in said.stderr
    assert alone.returncode == 0 and alone.stdout == said.stdout
    assert "Traceback" not in run("--max_new_tokens 3 >&-").stderr
    assert "standard input is closed" in run("--interactive <&-").stderr.splitlines()[-1]
