"""The sampling command: text on standard output, all else on standard error, one-line mistakes."""
import math
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from data.tokenizer import CharTokenizer
from model import Transformer, TransformerConfig, generate, load_checkpoint, sample, save_checkpoint
from model.generation import AT_ONCE
from tests.kit import ROOT, python, refusal, split, written


def sampled(capsys, trained, *flags):
    sample.main(split(["--out_dir", trained, *flags]))
    return capsys.readouterr()


def test_the_cache_does_not_change_the_text_and_sliding_and_a_stop_do(trained, capsys):
    texts = [sampled(capsys, trained, f"--max_new_tokens 60 --num_samples 3 {more}").out
             for more in ("", "--no-cache", "--slide", "--slide --no-cache")]
    assert texts[0] == texts[1] != texts[2] == texts[3]
    assert " " not in sampled(capsys, trained, "--start the --stop", " ").out


@pytest.mark.parametrize("num_samples", [1, 3, 18])
def test_samples_are_what_generate_gives_for_each_seed(trained, best, capsys, num_samples):
    assert num_samples < sample.TOGETHER or num_samples > sample.TOGETHER + 1
    out, err = sampled(capsys, trained, "--max_new_tokens 30 --start a --seed 5 --top_k 10 "
                       f"--temperature 0.9 --num_samples {num_samples}")
    texts = [generate(*best, "a", 30, 0.9, top_k=10, seed=5 + i) for i in range(num_samples)]
    assert out == f"\n{sample.RULE}\n".join(texts) + "\n"
    assert len(set(texts)) == num_samples
    assert re.fullmatch(r"[0-9,]+ characters a second\n", err)
    for n in (1, 2):        # too few
        assert sampled(capsys, trained, f"--max_new_tokens {n}").err == ""


@pytest.mark.needs("convert")
@pytest.mark.parametrize("start", ["", "the in", "🙂 "])
def test_a_model_of_tokens_writes_what_generate_gives_and_how_fast(of_tokens, capsys, start):
    out, err = sampled(capsys, of_tokens, "--start", start, "--max_new_tokens 120 --num_samples 2")
    texts = [generate(*load_checkpoint(of_tokens / "ckpt.npz")[:2], start, 120, 0.8, seed=seed)
             for seed in (1337, 1338)]
    assert out == f"\n{sample.RULE}\n".join(texts) + "\n"
    assert re.fullmatch(r"[0-9,.]+ tokens, [0-9,]+ characters a second\n", err)


def test_a_model_that_has_diverged_is_refused_in_words(best, capsys, tmp_path):
    best[0].norm.weight.data[0] = math.nan
    save_checkpoint(tmp_path / "ckpt.npz", *best, finite=False)
    for flags in (["--score", written(tmp_path / "t.txt", "the dog")], []):
        assert "its training may have diverged" in refusal(SystemExit, sampled, capsys, tmp_path,
                                                           *flags)


def test_as_many_ids_are_timed_as_characters_where_each_is_one(trained, capsys):
    checkpoint = load_checkpoint(trained / "ckpt.npz")
    for most, n in ((9, 1), (60, 3), (60, 17)):
        s = sample.Settings(max_new_tokens=most, num_samples=n)
        ids, characters, _ = sample.write(s, checkpoint, "the", 1)
        assert ids == characters == n * (most - AT_ONCE)


def test_a_file_or_pipe_gets_utf_8_where_the_system_has_another_encoding(tmp_path):
    tokenizer = CharTokenizer("ж‘’\n")
    save_checkpoint(tmp_path / "ckpt.npz",
                    Transformer(TransformerConfig(tokenizer.vocab_size, 16, 1, 1, 8)), tokenizer)
    done = python("-m", "model.sample", "--out_dir", str(tmp_path), "--start", "‘ж’",
                  PYTHONIOENCODING="cp1252")
    assert done.returncode == 0
    assert done.stdout.startswith("‘ж’")
    assert "?" not in done.stdout


@pytest.mark.parametrize("more", [0, 1, 2])
def test_main_averages_the_models_of_all_folders(trained, monkeypatch, more):
    averaged = []

    def note(checkpoint, paths):
        averaged.extend(paths)
        return checkpoint
    monkeypatch.setattr("model.score.mean.average_checkpoints", note)
    folders = [word for _ in range(1 + more) for word in ("--out_dir", str(trained))]
    sample.main([*folders, "--max_new_tokens", "3"])
    assert averaged == more * [trained / "ckpt.npz"]


def test_write_times_a_text_until_its_own_end(best, monkeypatch, capsys):
    def stream_many(*arguments, **settings):
        yield from ([["a", "b" if n < 12 else ""] for n in range(21)])      # the last is no id's
    monkeypatch.setattr(sample, "stream_many", stream_many)
    s = sample.Settings(max_new_tokens=20, num_samples=2)
    ids, characters, _ = sample.write(s, (*best, {}, {}), "", 1)
    assert ids == characters - 1 == 20 + 12 - 2 * AT_ONCE


def test_Timed_leaves_out_the_pieces_during_which_kernels_are_loaded(monkeypatch):
    taken = []

    def stream():
        for n in range(20):
            taken.append(n)
            yield ["a"]
    monkeypatch.setattr(sample.compiled, "clock", lambda: len(taken))
    timed = sample.Timed(stream())
    assert list(timed) == [["a"]] * 20
    assert timed.seconds == 20 - AT_ONCE


def test_a_closed_pipe_ends_it_quietly(trained):
    command = [sys.executable, "-m", "model.sample", "--out_dir", str(trained),
               "--max_new_tokens", "2000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          cwd=ROOT) as process:
        assert process.stdout.read(5)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 0


def test_an_interrupt_shows_what_was_made_of_every_sample(trained, capsys, monkeypatch):
    def interrupted(*arguments, **settings):
        yield ["a", "b", "c"]
        raise KeyboardInterrupt
    monkeypatch.setattr(sample, "stream_many", interrupted)
    assert refusal(SystemExit, sampled, capsys, trained, "--num_samples 3") == "130"
    assert capsys.readouterr().out == f"a\n{sample.RULE}\nb\n{sample.RULE}\nc\n"


@pytest.mark.skipif(os.name != "posix", reason="there is no such shell")
@pytest.mark.late
def test_standard_output_input_or_error_may_be_closed(trained, capsys):
    def run(flags):
        return subprocess.run(f"{sys.executable} -m model.sample --out_dir {trained} {flags}",
                              shell=True, capture_output=True, text=True, cwd=ROOT)
    with ThreadPoolExecutor(3) as at_once:
        alone, unread, untyped = at_once.map(run, [
            "--max_new_tokens 40 2>&-", "--max_new_tokens 3 >&-", "--interactive <&-"])
    out, err = sampled(capsys, trained, "--max_new_tokens 40")
    assert "characters a second" in err
    assert alone.returncode == 0
    assert alone.stdout == out
    assert "Traceback" not in unread.stderr
    assert "standard input is closed" in untyped.stderr.splitlines()[-1]
