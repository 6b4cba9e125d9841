"""train.py as its users meet it: what it prints and writes, resuming, stopping, what it refuses."""
import contextlib
import dataclasses
import os
import re
import signal
import subprocess
import sys

import pytest

import data
import train
from model import load_checkpoint, transformer
from model.beginning import Beginning
from model.command import Parser
from model.convert.tokens import TokenTokenizer
from model.folder import Folder
from model.processes import Ranks
from model.scoring import evaluate
from model.settings import MODERN, Settings
from tests.kit import (ROOT, TINY, LeakyAttention, in_a_terminal, refusal, refused, rows, run,
                       run_of, split, written)
from tests.token_files import byte_level


def drawn_step():
    """The rows of the README's drawing of a step: a file, and its classes or functions."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    drawing = text.partition("## One training step\n\n```\n")[2].partition("```")[0]
    for row in drawing.splitlines():
        file, names = re.search(r"(\S+\.py) +(.+)", row).groups()
        for name in names.split(", "):
            yield file, name


@contextlib.contextmanager
def last_ends():
    """The functions that end meanwhile, in the order of their last ends: files and full names."""
    ended = {}

    def note(frame, event, _):
        if event == "return":
            function = frame.f_code.co_filename, frame.f_code.co_qualname
            ended.pop(function, None)
            ended[function] = None
    sys.setprofile(note)
    try:
        yield ended
    finally:
        sys.setprofile(None)


def test_a_step_ends_what_the_readme_draws_in_the_order_of_the_drawing():
    with last_ends() as of_text:
        text = data.Text("to be or not\n" * 20)
    run = run_of(Settings(n_embd=8, n_layer=1, n_head=2, windows="shuffled", optimizer="muon",
                          max_iters=1), text)
    with last_ends() as of_step:
        next(train.steps(run))
    parts, tokenizer, *others = drawn_step()
    for ended, drawn in ((of_text, [tokenizer, parts]), (of_step, others)):
        lasts = []
        for file, name in drawn:
            numbers = [number for number, (path, function) in enumerate(ended)
                       if path == str(ROOT / file) and name in function.split(".")]
            assert numbers, f"{name} of {file} is not entered"
            lasts.append(numbers[-1])
        assert lasts == sorted(lasts)


def test_a_run_leaves_the_best_model_the_last_state_and_a_log(trained):
    assert {path.name for path in trained.iterdir()} == {
        "ckpt.npz", "last.npz", "previous.npz", "log.csv", ".lock"}
    assert rows(trained)[0] == ["iter", "train_loss", "val_loss", "lr", "tokens_per_s", "seconds"]
    assert [row[0] for row in rows(trained)[1:]] == ["0", "10", "20", "30", "40"]
    assert float(rows(trained)[-1][2]) < float(rows(trained)[1][2]) - 0.3
    model, tokenizer, training, optimizer = load_checkpoint(trained / "last.npz")
    assert training["state"]["iteration"] == 40
    assert optimizer
    assert not load_checkpoint(trained / "ckpt.npz").optimizer


@pytest.mark.needs("convert")
def test_a_run_of_tokens_speaks_of_tokens_and_keeps_their_tokenizer(small_text, tmp_path, capsys):
    characters = data.read_text(str(small_text))
    tokenizer = TokenTokenizer(byte_level(), 0)
    text = data.Text(characters, "words.txt", tokenizer)
    for flags in (["--explain"], []):
        s = Settings(**Parser("train.py", "", Settings).parse([*TINY, "--max_iters", "10", *flags]))
        with Folder(tmp_path / "out") as folder:
            train.train(Beginning(s, text), folder, Ranks())
        said = capsys.readouterr().out
        assert f"{len(text.train) + len(text.val):,} tokens" in said
        assert "10 steps of 64 tokens, " in said
        assert "-gram" in said
        assert " nats a token" in said
        assert "character" not in said.partition("\n")[2]
        if flags:
            assert "4 sequences of 16 tokens" in said
            assert "Each token has a number" in said
            shown = [repr(tokenizer.vocabulary[i]) for i in tokenizer.encode(" the")]
            assert all(f" {name} " in said for name in shown)
            assert "The same tokens again" in said
            assert "nats a token: what came next" in said
        else:
            assert "over the whole split, nats a token, best model" in said
    found = load_checkpoint(tmp_path / "out" / "ckpt.npz").tokenizer
    assert (found.json, found.end) == (byte_level(), 0)


@pytest.mark.parametrize("flags, says", [(["--explain"], ""), ([], "nobody reads the output")])
def test_main_names_what_was_saved_where_nobody_reads_unless_nothing_is(small_text, tmp_path, flags,
                                                                        says, monkeypatch, capsys):
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", encoding="utf-8") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert refusal(SystemExit, run, small_text, tmp_path, "--max_iters 1", *flags) == "1"
    said = capsys.readouterr().err
    assert says in said
    assert bool(says) == bool(said.strip())


def test_it_opens_with_what_it_will_do_and_ends_with_how_good_it_is(small_text, tmp_path, capsys):
    run(small_text, tmp_path, "--max_iters 20")
    said = capsys.readouterr().out
    text = data.read_text(str(small_text))
    for words in (rf"{len(text):,} characters, 28 different ones",
                  r"model +[\d,]+ parameters: 1 layer, 2 heads, 16 channels, block of 16",
                  r"training +20 steps of 64 characters, 0.1 times the text, "
                  r"on (?!1 threads)\d+ threads?\n",
                  r"yardstick +counted unigram \d\.\d{3}, bigram .*, 5-gram \d\.\d{3} nats a char",
                  r"step     20   training \d\.\d{3}   validation \d\.\d{3}   ", "a sample:",
                  rf"python -m model\.sample --out_dir {re.escape(str(tmp_path))}"):
        assert re.search(words, said), words
    assert said.count("  counted ") >= 6
    reported = float(re.search(r"    (\d\.\d{3})  this model  <--\n", said)[1])
    best, last = (load_checkpoint(tmp_path / name) for name in ("ckpt.npz", "last.npz"))
    x, y = data.windows(data.split(best.tokenizer.encode(text))[1], 16)
    part = data.spread(len(x), 12)      # 3 batches of 4
    assert len(part) < len(x)
    assert reported == round(evaluate(best.model, x, y, batch_size=7), 3)
    assert abs(evaluate(last.model, x[part], y[part], batch_size=7)
               - float(rows(tmp_path)[-1][2])) < 1e-5


def endless(text, out_dir):
    """The flags of a run that has no end."""
    return split(["--data", text, "--out_dir", out_dir, *TINY,
                  "--max_iters 100000 --eval_interval 100000"])


@pytest.mark.skipif(os.name == "nt", reason="Windows ends what runs in a window that is closed")
def test_a_terminal_that_is_closed_saves_like_ctrl_c(small_text, tmp_path):
    with in_a_terminal("train.py", *endless(small_text, tmp_path)) as (process, terminal):
        said = b""
        while b"step      0" not in said:
            said += os.read(terminal, 10_000)
        os.close(terminal)
        assert process.wait(timeout=60) == 130
    assert load_checkpoint(tmp_path / "last.npz").training["state"]["iteration"] >= 1


@pytest.mark.skipif(os.name == "nt", reason="Windows sends Ctrl-C to all processes of a window")
def test_a_run_whose_reader_has_ended_says_on_standard_error_how_to_resume(small_text, tmp_path):
    """As in `python train.py | tee log`, where Ctrl-C ends tee first."""
    command = [sys.executable, "train.py", *endless(small_text, tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          bufsize=0) as process:
        for line in process.stdout:
            if line.startswith(b"step      0"):         # it prints nothing more before the signal
                break
        process.stdout.close()
        process.send_signal(signal.SIGINT)
        said = process.stderr.read().decode()
        assert process.wait(timeout=60) == 130
    stopping, _, resume = said.partition("\nstopped after ")
    assert "stopping after this step" in stopping
    assert "Exception" not in said
    assert resume.endswith(f"    {sys.executable} train.py --init_from resume --out_dir "
                           f"{tmp_path}\n")


def test_a_model_that_sees_the_future_is_refused(small_text, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(transformer, "MultiHeadAttention", LeakyAttention)
    line = refused(capsys, "--data", small_text, "--out_dir", tmp_path / "out", *TINY)
    assert "the model sees the future: the logits at position 0 changed" in line
    assert not (tmp_path / "out").exists()


def test_a_text_too_short_to_learn_from_is_named_at_the_end_with_the_remedy(tmp_path, capsys):
    text = data.read_text("lantern")
    for characters, steps, rate, warned in ((350, 20, "1e-4", True), (350, 5, "1e-4", False),
                                            (9_000, 80, "1e-2", False)):
        beginning = written(tmp_path / "text.txt", text[:characters])
        run(beginning, tmp_path / "out", "--max_iters", steps, "--learning_rate", rate)
        said = capsys.readouterr().out
        ladder = re.findall(r"    \d\.\d{3}  (.+)", said)
        above = ladder.index("this model  <--") < ladder.index("counted unigram")
        assert above == (rate == "1e-4")
        assert ("350 characters are too few to learn from" in said) == warned
        assert ("too few" in said) == ("give it a longer text" in said) == warned


def test_help_shows_every_setting_with_its_default(capsys):
    refusal(SystemExit, train.main, ["--help"])
    help = capsys.readouterr().out
    assert re.findall(r"^(\w.*):$", help, re.M) == [
        "options", "The text and the run", "The model", "Training",
        "An adapter beside a model that stays as it is (LoRA), with --init_from",
        "Saving and looking"]
    said = " ".join(help.split())
    for field in dataclasses.fields(train.Settings):
        assert re.search(rf"--{field.name}[ ,]", said)
        default = MODERN.get(field.name, field.default)
        if isinstance(default, tuple):
            default, = default
        assert default is None or f"(default: {default})" in said


def test_what_the_machine_refuses_is_said_in_a_line(capsys, small_text, tmp_path, monkeypatch):
    flags = "--data", small_text, *TINY, "--out_dir", tmp_path
    for module, name, error, words in (
            (data, "read_texts", MemoryError(), "memory for the text"),
            (train, "describe", FileNotFoundError(2, "No such file", "log.csv"),
             "cannot use log.csv: No such file; nothing had been saved yet")):
        def fail(*_, error=error):
            raise error
        with monkeypatch.context() as patch:
            patch.setattr(module, name, fail)
            assert words in refused(capsys, *flags)


def test_what_is_hardly_meant_is_warned_of(capsys, small_text, tmp_path):
    twice = written(tmp_path / "twice.txt", small_text.read_text() * 2)
    for text, rate, warning in ((small_text, "0", "at --learning_rate 0 nothing is learned"),
                                (small_text, "1e3", "--learning_rate 1000 is far too high"),
                                (twice, "1e-2", "100% of the validation text"),
                                (small_text, "1e-2", "")):
        run(text, tmp_path / "out", "--max_iters 1 --learning_rate", rate)
        beginning, _, _ = capsys.readouterr().out.partition("\nstep")
        said = re.findall("warning +(.*)", beginning)
        assert len(said) == bool(warning)
        assert "".join(said).startswith(warning)


@pytest.mark.skipif(os.name == "nt", reason="there is no /dev/fd")
def test_a_run_on_a_piped_text_is_resumed_with_its_text_in_a_file(small_text, tmp_path, capsys):
    reading, writing = os.pipe()
    os.write(writing, small_text.read_bytes())          # for which a pipe has room
    os.close(writing)
    run(f"/dev/fd/{reading}", tmp_path, "--max_iters 1")
    resume = split(["--init_from resume --max_iters 2 --out_dir", tmp_path])
    says = f"The run in {tmp_path} was trained on it; if the same text is in another file"
    assert says in refused(capsys, *resume)
    os.close(reading)
    assert says not in refused(capsys, *resume, "--data", tmp_path / "nowhere.txt")
    train.main([*resume, "--data", str(small_text)])
    assert rows(tmp_path)[-1][0] == "2"


def test_a_profile_is_printed_once_and_not_when_resumed(small_text, tmp_path, capsys):
    run(small_text, tmp_path, "--max_iters 10 --profile 3")
    said = capsys.readouterr().out
    assert "ms a step, of 3" in said
    assert all(f"\n{line} " in said for line in (
        "mlp", "self_attention", "linear", "all ops", "batches", "clipping", "AdamW", "a step"))
    run(small_text, tmp_path, "--init_from resume --max_iters 25")
    assert "ms a step" not in capsys.readouterr().out
    run(small_text, tmp_path / "short", "--max_iters 7 --profile 3")
    assert "ms a step, of 2" in capsys.readouterr().out         # of 7, after 5 to warm up
