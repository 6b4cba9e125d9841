"""train.py as its users meet it: what it prints and writes, resuming, stopping, what it refuses."""
import csv
import dataclasses
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import data
import minigrad as mg
import train
from conftest import TINY
from model import Transformer, generate, load_checkpoint
from model import run as runs
from model import settings
from model.files import claimed
from model.nan import Case
from model.training import State, evaluate, read_log


def run(small_text, out_dir, *flags):
    train.main(["--data", str(small_text), "--out_dir", str(out_dir), *TINY, *flags])


def rows(out_dir):
    with open(out_dir / "log.csv", newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def losses(out_dir):
    """iter, train_loss, val_loss and lr of every line: what does not depend on the clock."""
    return [row[:4] for row in rows(out_dir)]


def arrays(path):
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files
                if name not in ("training", "sha256")}


def same_arrays(a, b):
    a, b = arrays(a), arrays(b)
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def refused(capsys, *flags):
    """What train.py says when it refuses: one line, and no traceback."""
    with pytest.raises(SystemExit) as caught:
        train.main(list(flags))
    said = str(caught.value.code) if isinstance(caught.value.code, str) else capsys.readouterr().err
    line = said.strip().splitlines()[-1]
    assert caught.value.code not in (0, None) and line.startswith("train.py: ")
    return line


def test_a_run_leaves_the_best_model_the_last_state_and_a_log(trained):
    assert {path.name for path in trained.iterdir()} == {
        "ckpt.npz", "last.npz", "previous.npz", "log.csv", ".lock"}
    assert rows(trained)[0] == ["iter", "train_loss", "val_loss", "lr", "tokens_per_s", "seconds"]
    assert [row[0] for row in rows(trained)[1:]] == ["0", "10", "20", "30", "40"]
    assert float(rows(trained)[-1][2]) < float(rows(trained)[1][2]) - 0.3
    model, tokenizer, training, optimizer = load_checkpoint(trained / "last.npz")
    assert training["state"]["iteration"] == 40 and optimizer
    assert not load_checkpoint(trained / "ckpt.npz").optimizer


def test_it_opens_with_what_it_will_do_and_ends_with_how_good_it_is(small_text, tmp_path, capsys):
    run(small_text, tmp_path / "out", "--max_iters", "10")
    said = capsys.readouterr().out
    characters = len(data.read_text(str(small_text)))
    assert f"{characters:,} characters, 28 different ones" in said
    assert re.search(r"model +[\d,]+ parameters: 1 layers, 2 heads, 16 channels, block of 16", said)
    assert re.search(r"training +10 steps of 64 characters, 0.0 times the text, on \d+ threads",
                     said)
    assert re.search(r"yardstick +counted unigram \d\.\d{3}, bigram .*, 5-gram \d\.\d{3} nats "
                     r"a character", said)
    assert re.search(r"step     10   training \d\.\d{3}   validation \d\.\d{3}   ", said)
    assert re.search(r"    \d\.\d{3}  this model  <--\n", said) and said.count("  counted ") >= 6
    assert "a sample:" in said and f"python -m model.sample --out_dir {tmp_path / 'out'}" in said


def test_the_last_validation_loss_is_over_the_whole_split(trained, small_text):
    model, tokenizer, *_ = load_checkpoint(trained / "last.npz")
    x, y = data.windows(data.split(tokenizer.encode(data.read_text(str(small_text))))[1], 16)
    whole = evaluate(model, x, y, batch_size=7)
    assert abs(whole - float(rows(trained)[-1][2])) < 1e-5


def test_the_same_seed_gives_the_same_losses_and_weights_bit_for_bit(small_text, tmp_path):
    for name in ("a", "b"):
        run(small_text, tmp_path / name, "--max_iters", "20", "--dropout", "0.1")
    assert losses(tmp_path / "a") == losses(tmp_path / "b")
    assert same_arrays(tmp_path / "a" / "last.npz", tmp_path / "b" / "last.npz")
    run(small_text, tmp_path / "c", "--max_iters", "20", "--dropout", "0.1", "--seed", "2")
    assert losses(tmp_path / "a") != losses(tmp_path / "c")


@pytest.mark.parametrize("stop_at", [10, 13])
def test_interrupted_and_resumed_equals_uninterrupted_bit_for_bit(
        small_text, tmp_path, monkeypatch, capsys, stop_at):
    flags = ("--max_iters", "30", "--dropout", "0.1", "--gradient_accumulation_steps", "2")
    run(small_text, tmp_path / "whole", *flags)

    real = State.note_step

    def note_step(state, *arguments):
        real(state, *arguments)
        if state.iteration == stop_at:
            signal.raise_signal(signal.SIGINT)
    with monkeypatch.context() as patch:
        patch.setattr(State, "note_step", note_step)
        with pytest.raises(SystemExit) as caught:
            run(small_text, tmp_path / "cut", *flags)
    assert caught.value.code == 130
    said = capsys.readouterr().out
    assert f"stopped after {stop_at} steps" in said
    assert f"python train.py --init_from resume --out_dir {tmp_path / 'cut'}" in said
    assert load_checkpoint(tmp_path / "cut" / "last.npz").training["state"]["iteration"] == stop_at

    with open(tmp_path / "cut" / "log.csv", "a", encoding="utf-8") as file:
        file.write(f"{max(stop_at, 11)},9,9,9,9,9\r\n")     # of an evaluation not kept any more
    train.main(["--init_from", "resume", "--out_dir", str(tmp_path / "cut")])
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    assert same_arrays(tmp_path / "cut" / "last.npz", tmp_path / "whole" / "last.npz")
    assert same_arrays(tmp_path / "cut" / "ckpt.npz", tmp_path / "whole" / "ckpt.npz")


def test_a_finished_run_can_go_on_with_more_steps(small_text, tmp_path, capsys):
    run(small_text, tmp_path / "out", "--max_iters", "10")
    train.main(["--init_from", "resume", "--out_dir", str(tmp_path / "out")])
    train.main(["--init_from=resume", "--out-dir", str(tmp_path / "out"), "--max-iters", "20"])
    assert [row[0] for row in rows(tmp_path / "out")[1:]] == ["0", "10", "20"]


def test_two_small_batches_accumulate_to_the_gradient_of_one(small_text, tmp_path):
    run(small_text, tmp_path / "one", "--max_iters", "3", "--batch_size", "8")
    run(small_text, tmp_path / "two", "--max_iters", "3", "--batch_size", "4",
        "--gradient_accumulation_steps", "2")
    one, two = arrays(tmp_path / "one" / "last.npz"), arrays(tmp_path / "two" / "last.npz")
    for name in one:
        if name.startswith("model/"):
            assert np.allclose(one[name], two[name], rtol=1e-3, atol=1e-5), name


def test_ctrl_c_saves_and_says_how_to_go_on(small_text, tmp_path):
    command = [sys.executable, train.__file__, "--data", str(small_text),
               "--out_dir", str(tmp_path), *TINY, "--max_iters", "100000"]
    flags = subprocess.CREATE_NEW_PROCESS_GROUP if os.name == "nt" else 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          creationflags=flags) as process:
        try:
            deadline = time.time() + 120
            while not (tmp_path / "ckpt.npz").exists() and process.poll() is None:
                assert time.time() < deadline
                time.sleep(0.1)
            process.send_signal(signal.CTRL_BREAK_EVENT if os.name == "nt" else signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130 and "Traceback" not in err
    assert "python train.py --init_from resume" in out
    assert load_checkpoint(tmp_path / "last.npz").optimizer


HANGING = """
import fcntl, termios, train
fcntl.ioctl(0, termios.TIOCSCTTY, 0)        # a terminal of its own
train.main()
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows ends what runs in a window that is closed")
def test_a_terminal_that_is_closed_saves_like_ctrl_c(small_text, tmp_path):
    import pty
    ours, its = pty.openpty()
    command = [sys.executable, "-c", HANGING, "--data", str(small_text), "--out_dir", str(tmp_path),
               *TINY, "--max_iters", "100000", "--eval_interval", "100000"]
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, start_new_session=True,
                          cwd=os.path.dirname(train.__file__)) as process:
        os.close(its)
        try:
            said = b""
            while b"step      0" not in said:
                said += os.read(ours, 10_000)
            os.close(ours)
            assert process.wait(timeout=60) == 130
        finally:
            process.kill()
    assert load_checkpoint(tmp_path / "last.npz").training["state"]["iteration"] >= 1


LIMITED = """
import resource, sys, train
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
train.main()
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no limit on the size of a file")
def test_a_full_disk_leaves_what_was_saved_and_says_what_to_do(trained, tmp_path):
    out_dir = tmp_path / "out"
    shutil.copytree(trained, out_dir)
    before = {name: (out_dir / name).read_bytes() for name in ("last.npz", "previous.npz")}
    limit = len(before["last.npz"]) // 2
    said = subprocess.run(
        [sys.executable, "-c", LIMITED, str(limit), "--init_from", "resume", "--out_dir", out_dir,
         "--max_iters", "50", "--eval_interval", "100", "--checkpoint_interval", "1e-9"],
        cwd=os.path.dirname(train.__file__), capture_output=True, text=True)
    assert said.returncode == 1 and "Traceback" not in said.stderr
    assert said.stderr.strip().splitlines()[-1] == (
        f"train.py: cannot write into {out_dir}: File too large; make room, or give another folder "
        "with --out_dir.  What was saved there before is whole; go on from it with python train.py "
        f"--init_from resume --out_dir {out_dir}")
    assert before == {name: (out_dir / name).read_bytes() for name in before}
    assert not list(out_dir.glob("*.part")) and "Exception ignored" not in said.stderr


def test_a_second_run_into_the_same_folder_is_refused(trained, small_text, tmp_path, capsys):
    out_dir = tmp_path / "out"
    shutil.copytree(trained, out_dir)
    before = {path.name: path.read_bytes() for path in out_dir.iterdir() if path.name != ".lock"}
    with claimed(out_dir):
        for flags in (["--init_from", "resume"], ["--data", str(small_text), *TINY]):
            line = refused(capsys, "--out_dir", str(out_dir), "--max_iters", "50", *flags)
            assert f"another run writes into {out_dir} (process {os.getpid()}, since " in line
        train.main(["--init_from", "resume", "--out_dir", str(out_dir), "--max_iters", "50",
                    "--explain"])
        assert generate(*load_checkpoint(out_dir / "ckpt.npz")[:2], max_new_tokens=3)
    assert before == {path.name: path.read_bytes() for path in out_dir.iterdir()
                      if path.name != ".lock"} and os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("damaged", [True, False])
def test_a_last_checkpoint_that_is_no_good_is_named_and_the_one_before_it_used(
        small_text, trained, tmp_path, capsys, damaged):
    out_dir, last = tmp_path / "out", tmp_path / "out" / "last.npz"
    shutil.copytree(trained, out_dir)
    whole = last.read_bytes()
    last.write_bytes(whole[:-1000]) if damaged else last.unlink()
    previous = (out_dir / "previous.npz").read_bytes()
    resume = ["--init_from", "resume", "--out_dir", str(out_dir)]
    train.main([*resume, "--explain", "--max_iters", "50"])
    assert last.exists() == damaged                     # which changes nothing
    capsys.readouterr()
    train.main(resume)
    said = capsys.readouterr().out
    assert (f"warning     {last} is {'damaged' if damaged else 'not there'}; going on from "
            f"{out_dir / 'previous.npz'}, the one before it, at step 30\n") in said
    assert losses(out_dir) == losses(trained)
    assert same_arrays(last, trained / "last.npz")
    assert same_arrays(out_dir / "ckpt.npz", trained / "ckpt.npz")
    assert (out_dir / "previous.npz").read_bytes() == previous      # no damaged file in its place
    if damaged:
        assert (out_dir / "last.damaged.npz").read_bytes() == whole[:-1000]


@pytest.mark.parametrize("damaged", [True, False])
def test_a_best_model_that_is_no_good_is_named_and_replaced(trained, tmp_path, capsys, damaged):
    out_dir, best = tmp_path / "out", tmp_path / "out" / "ckpt.npz"
    shutil.copytree(trained, out_dir)
    best.write_bytes(b"PK") if damaged else best.unlink()
    train.main(["--init_from", "resume", "--out_dir", str(out_dir)])
    said = capsys.readouterr().out
    assert (f"warning     {best} is {'damaged' if damaged else 'not there'}; until the next "
            "evaluation the model that is gone on from takes its place\n") in said
    assert load_checkpoint(best).training["state"]["iteration"] == 40


def test_a_best_model_that_is_newer_than_the_last_checkpoint_stays_the_best(
        trained, tmp_path, monkeypatch):
    out_dir = tmp_path / "out"
    shutil.copytree(trained, out_dir)
    best = load_checkpoint(out_dir / "ckpt.npz").training["state"]
    assert best["iteration"] == 40
    os.replace(out_dir / "previous.npz", out_dir / "last.npz")
    assert load_checkpoint(out_dir / "last.npz").training["state"]["best"] > best["best"]
    before = (out_dir / "ckpt.npz").read_bytes()
    train.main(["--init_from", "resume", "--out_dir", str(out_dir), "--learning_rate", "1e-9",
                "--max_iters", "40"])                   # which will not get so far
    assert (out_dir / "ckpt.npz").read_bytes() == before
    assert load_checkpoint(out_dir / "last.npz").training["state"]["best"] == best["best"]


def test_checkpoints_are_written_between_evaluations(small_text, tmp_path, monkeypatch):
    def steps_saved(*flags):
        saved, real = [], runs.save_checkpoint

        def save_checkpoint(path, *arguments, **more):
            if path.name == "last.npz":
                saved.append(arguments[2]["state"]["iteration"])
            real(path, *arguments, **more)
        with monkeypatch.context() as patch:
            patch.setattr(runs, "save_checkpoint", save_checkpoint)
            run(small_text, tmp_path, "--max_iters", "12", *flags)
        return saved
    assert steps_saved() == steps_saved("--checkpoint_interval", "0") == [0, 10, 12]
    assert steps_saved("--checkpoint_interval", "1e-9") == [*range(13)]


def test_an_earlier_run_is_set_aside_not_lost(small_text, tmp_path, capsys):
    out_dir = tmp_path / "out"
    run(small_text, out_dir, "--max_iters", "0")
    first = arrays(out_dir / "ckpt.npz")
    run(small_text, out_dir, "--max_iters", "0", "--seed", "5")
    assert f"{out_dir} held an earlier run, which is now in {out_dir}.1" in capsys.readouterr().out
    run(small_text, out_dir, "--max_iters", "0", "--seed", "6")
    kept = arrays(tmp_path / "out.1" / "ckpt.npz")
    assert all(np.array_equal(first[name], kept[name]) for name in first)
    assert load_checkpoint(tmp_path / "out.2" / "last.npz").training["settings"]["seed"] == 5


def test_a_model_that_sees_the_future_is_refused_before_the_first_step(
        small_text, tmp_path, capsys, monkeypatch):
    def leaky(config, seed):
        model = Transformer(config, seed)
        model.blocks[0].attention.causal = False
        return model
    monkeypatch.setattr(runs, "Transformer", leaky)
    line = refused(capsys, "--data", str(small_text), "--out_dir", str(tmp_path / "out"), *TINY)
    assert "the model sees the future: the logits at position 0 changed" in line
    assert not (tmp_path / "out").exists()


def test_a_text_that_repeats_itself_is_warned_of(small_text, tmp_path, capsys):
    twice = tmp_path / "twice.txt"
    twice.write_text(small_text.read_text() * 2)
    run(twice, tmp_path / "out", "--max_iters", "0")
    assert re.search(r"warning +100% of the validation text", capsys.readouterr().out)


BLOWN_UP = ["--learning_rate", "1e30", "--max_iters", "50", "--grad_clip", "0",
            "--warmup_iters", "0"]
numpy_may_warn = pytest.mark.filterwarnings("ignore::RuntimeWarning")   # in place of the kernels


def poison(monkeypatch, *when, loss=math.nan):
    """Have the gradients of such steps come with another loss; returns the true ones, which fill a
    list."""
    steps, real = [], runs.forward_backward

    def forward_backward(*arguments):
        steps.append(real(*arguments))
        return loss if len(steps) in when else steps[-1]
    monkeypatch.setattr(runs, "forward_backward", forward_backward)
    return steps


@numpy_may_warn
@pytest.mark.parametrize("more", [[], ["--gradient_accumulation_steps", "2", "--dropout", "0.2"]])
def test_a_step_that_is_not_finite_ends_the_run_and_is_shown_again(small_text, tmp_path, capsys,
                                                                   more):
    out_dir = tmp_path / "out"
    run(small_text, out_dir, "--max_iters", "0")
    saved = [(out_dir / name).read_bytes() for name in ("ckpt.npz", "last.npz", "log.csv")]
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        run(small_text, out_dir, *BLOWN_UP, *more)
    line, said = caught.value.code, capsys.readouterr().err
    assert line.startswith("train.py: the loss of step 2 is ") and "\n" not in line
    for part in ("so the run ends", "a lower --learning_rate (it was 1e+30)", "--grad_clip 1",
                 f"the best model so far is in {out_dir / 'ckpt.npz'}",
                 f"--init_from resume --out_dir {out_dir} goes on after step 0"):
        assert part in line
    command = f"python train.py --replay {out_dir / 'nan.npz'}"
    assert command in line and "first in   layer_norm, going back, in its gradient" in said
    assert "model/layers.py:" in said and "beyond the largest float32" in said
    assert len(rows(out_dir)) == 2 and not re.search("nan|inf", (out_dir / "log.csv").read_text())
    assert load_checkpoint(out_dir / "last.npz").training["state"]["iteration"] == 0

    train.main(["--replay", str(out_dir / "nan.npz")])
    again = capsys.readouterr().out
    finding = said.strip().split("\n", 1)[1].rstrip()
    assert "the same bit for bit" in again and finding in again
    assert [(tmp_path / "out.1" / name).read_bytes()
            for name in ("ckpt.npz", "last.npz", "log.csv")] == saved
    run(small_text, out_dir, "--max_iters", "0")
    assert (tmp_path / "out.2" / "nan.npz").exists() and not (out_dir / "nan.npz").exists()


def test_without_clipping_the_gradient_stays_whole(small_text, tmp_path):
    norms, flags = ("0", "1e9", "1"), ("--max_iters", "5", "--learning_rate", "1")
    for norm in norms:
        run(small_text, tmp_path / norm, *flags, "--grad_clip", norm)
    none, huge, one = (tmp_path / norm / "last.npz" for norm in norms)
    assert same_arrays(none, huge) and not same_arrays(none, one)


def test_a_run_that_ended_at_a_nan_goes_on_as_if_there_had_been_none(small_text, tmp_path,
                                                                     monkeypatch):
    run(small_text, tmp_path / "whole", "--max_iters", "20")
    with monkeypatch.context() as patch:
        poison(patch, 14)
        with pytest.raises(SystemExit, match="the loss of step 14 is nan.*goes on after step 10"):
            run(small_text, tmp_path / "cut", "--max_iters", "20")
    train.main(["--init_from", "resume", "--out_dir", str(tmp_path / "cut")])
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    assert same_arrays(tmp_path / "cut" / "last.npz", tmp_path / "whole" / "last.npz")


def test_a_skipped_step_leaves_weights_and_optimiser_as_they_were(small_text, tmp_path, capsys,
                                                                  monkeypatch):
    flags = ["--max_iters", "20", "--dropout", "0.1", "--on_nan", "skip"]
    with monkeypatch.context() as patch:
        true_losses = poison(patch, 3, 14)
        run(small_text, tmp_path / "skipped", *flags)
    said = capsys.readouterr()
    with monkeypatch.context() as patch:            # the same draws, and nothing done with them
        real, steps = mg.AdamW.step, []

        def step(optimizer):
            steps.append(optimizer)
            if len(steps) not in (3, 14):
                real(optimizer)
        patch.setattr(mg.AdamW, "step", step)
        run(small_text, tmp_path / "idle", *flags)
    assert same_arrays(tmp_path / "skipped" / "last.npz", tmp_path / "idle" / "last.npz")
    assert [row[-1] for row in rows(tmp_path / "skipped")] == ["skipped", "0", "1", "2"]
    assert [line[6] for line in read_log(tmp_path / "skipped" / "log.csv")] == [0, 1, 2]
    assert said.err.count("is skipped") == said.err.count("the loss of step 3 is nan") == 1
    assert "step 14" not in said.err and said.out.count(", 2 steps skipped") == 1
    assert "of 20 steps 2 were skipped" in said.out

    # Kept are the weights, the batch and the generators as they were before the step.
    model, tokenizer, training, _ = load_checkpoint(tmp_path / "skipped" / "nan.npz")
    case, state = Case.restored(training["nan"]), State(seed=0)
    state.restore(training["state"])
    again, _ = case.again(model, state.dropout)
    assert (case.step, state.iteration) == (3, 2) and again.loss == true_losses[2]
    ids, _ = data.split(tokenizer.encode(data.read_text(str(small_text))))
    drawn = data.random_batch(ids, 4, 16, state.batches)
    assert all(np.array_equal(a, b) for a, b in zip(drawn, *case.batches, strict=True))

    with monkeypatch.context() as patch:
        poison(patch, 3)
        run(small_text, tmp_path / "cut", *flags, "--max_iters", "10", "--lr_decay_iters", "20")
    with monkeypatch.context() as patch:
        poison(patch, 4)
        train.main(["--init_from", "resume", "--out_dir", str(tmp_path / "cut"),
                    "--max_iters", "20"])
    assert "going on after step 10, 1 steps skipped" in capsys.readouterr().out
    assert same_arrays(tmp_path / "cut" / "last.npz", tmp_path / "skipped" / "last.npz")
    assert rows(tmp_path / "cut")[-1][:4] == rows(tmp_path / "skipped")[-1][:4]


@numpy_may_warn
def test_after_many_skipped_steps_in_a_row_the_run_ends(small_text, tmp_path, capsys):
    line = refused(capsys, "--data", str(small_text), "--out_dir", str(tmp_path / "out"), *TINY,
                   *BLOWN_UP, "--on_nan", "skip")
    assert "20 steps in a row were to be skipped; the loss of step 21 is" in line
    case = load_checkpoint(tmp_path / "out" / "nan.npz").training["nan"]
    assert case["step"] == 2


@pytest.mark.parametrize("on_nan", ["stop", "skip"])
def test_a_validation_loss_that_is_not_finite_ends_the_run_and_is_not_logged(
        small_text, tmp_path, capsys, monkeypatch, on_nan):
    real = mg.AdamW.step

    def step(optimizer):
        real(optimizer)
        if optimizer.steps == 10:
            optimizer.param_groups[0]["params"][-1].data[0, 0] = math.nan
    monkeypatch.setattr(mg.AdamW, "step", step)
    out_dir = tmp_path / "out"
    line = refused(capsys, "--data", str(small_text), "--out_dir", str(out_dir), *TINY,
                   "--max_iters", "20", "--on_nan", on_nan, "--always_save_checkpoint")
    assert "the validation loss after step 10 is nan, so the run ends" in line
    assert "goes on after step 0" in line
    assert [row[0] for row in rows(out_dir)] == ["iter", "0"]
    for name in ("ckpt.npz", "last.npz"):
        kept = load_checkpoint(out_dir / name)
        assert kept.training["state"]["iteration"] == 0
        assert all(np.isfinite(p.data).all() for p in kept.model.parameters())
    capsys.readouterr()
    train.main(["--replay", str(out_dir / "nan.npz")])
    said = capsys.readouterr().out
    assert "the same bit for bit" in said
    assert "first in   mlp, going forward at model/layers.py:" in said
    assert "the weight blocks.0.mlp.down.weight is not finite before the step: 1 of its" in said


def test_a_spike_of_the_loss_is_said_once(small_text, tmp_path, capsys, monkeypatch):
    poison(monkeypatch, 61, 62, 64, loss=20.0)
    run(small_text, tmp_path / "out", "--max_iters", "70")
    said = capsys.readouterr().out
    assert said.count("a spike") == 1
    assert re.search(r"\nstep     61   a spike: the training loss is 20.000, where \d\.\d+ is "
                     r"usual; gradient norm \d\S* before clipping\n", said)


def test_help_shows_every_setting_with_its_default(capsys):
    with pytest.raises(SystemExit):
        train.main(["--help"])
    said = " ".join(capsys.readouterr().out.split())
    for field in dataclasses.fields(train.Settings):
        assert re.search(rf"--{field.name}[ ,]", said)
        assert field.default is None or f"(default: {field.default})" in said


def test_mistakes_on_the_command_line_are_answered_in_one_line(capsys, small_text, tmp_path):
    assert refused(capsys, "--max_itres", "3") == (
        "train.py: error: there is no flag --max_itres; did you mean --max_iters?")
    assert "--max_iters takes a whole number, not 'many'" in refused(capsys, "--max_iters", "many")
    assert "position is learned, sinusoidal, rotary, alibi or none, not rotory; did you mean " \
           "rotary?" in refused(capsys, "--position", "rotory")
    assert "--replay takes all from its file; leave out --seed" in refused(
        capsys, "--replay", "nan.npz", "--seed", "1")
    assert "there is no checkpoint" in refused(capsys, "--replay", str(tmp_path / "nan.npz"))
    assert 'did you mean "lantern"?' in refused(capsys, "--data", "lanten")
    assert "is a folder" in refused(capsys, "--data", str(tmp_path))
    short = tmp_path / "short.txt"
    short.write_text("too short")
    assert "--block_size 16 needs 17 characters" in refused(capsys, "--data", str(short), *TINY)
    binary = tmp_path / "latin1.txt"
    binary.write_bytes(b"caf\xe9")
    assert "byte 0xe9 at position 3" in refused(capsys, "--data", str(binary))
    assert not (tmp_path / "out").exists()


def test_all_mistakes_are_answered_at_once_each_in_a_line(capsys, tmp_path):
    short, file = tmp_path / "short.txt", tmp_path / "file"
    short.write_text("too short"), file.write_text("")
    with pytest.raises(SystemExit) as caught:
        train.main(["--max_itres", "3", "--learning_rate", "fast", "--batch_size", "0",
                    "--n_embd", "30", "--n_head", "4", "--data", str(short),
                    "--out_dir", str(file)])
    said = capsys.readouterr().err.strip().splitlines()
    assert caught.value.code == 2 and said[0].startswith("usage: python train.py")
    assert [line.removeprefix("train.py: error: ")[:30] for line in said[1:]] == [
        "--learning_rate takes a number", "there is no flag --max_itres; ",
        "--batch_size is at least 1, no", "--n_embd 30 does not split int",
        f"--out_dir {file}"[:30], "--block_size 64 needs 65 chara"]


def test_a_batch_that_cannot_fit_in_memory_is_refused_before_anything_is_allocated(
        capsys, small_text, tmp_path, monkeypatch):
    flags = ["--data", str(small_text), *TINY, "--out_dir", str(tmp_path / "out")]
    assert "--batch_size 1000000000000 of --block_size 16 needs some " in refused(
        capsys, *flags, "--batch_size", "1000000000000")
    much = ["--n_embd", "4000000"]
    assert "take a smaller --n_embd or --n_layer" in refused(capsys, *flags, *much)
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(settings, "memory_limit", lambda: math.inf)      # as where it is unknown
    assert "there is not enough memory" in refused(capsys, *flags, *much)


def test_a_learning_rate_that_is_hardly_meant_is_warned_of(capsys, small_text, tmp_path):
    for rate, warning in (("0", "at --learning_rate 0 nothing is learned"),
                          ("1e3", "--learning_rate 1000 is far above what trains such a model")):
        run(small_text, tmp_path / rate, "--max_iters", "1", "--learning_rate", rate)
        assert f"warning     {warning}" in capsys.readouterr().out
    run(small_text, tmp_path / "usual", "--max_iters", "1")
    assert "warning" not in capsys.readouterr().out


def test_mistakes_in_resuming_are_answered_in_one_line(capsys, trained, small_text, tmp_path):
    resume = ["--init_from", "resume", "--out_dir"]
    assert "there is no checkpoint" in refused(capsys, *resume, str(tmp_path))
    assert "has --n_layer 1, which cannot become 2" in refused(capsys, *resume, str(trained),
                                                               "--n_layer", "2")
    (tmp_path / "last.npz").write_bytes((trained / "ckpt.npz").read_bytes())
    assert "holds a model, but no run to go on with" in refused(capsys, *resume, str(tmp_path))
    assert "is not the one that the run" in refused(capsys, *resume, str(trained),
                                                    "--data", "lantern")


@pytest.mark.parametrize("position", ["rotary", "alibi", "sinusoidal", "none"])
def test_a_run_with_options_is_interrupted_resumed_and_sampled_as_any_other(
        small_text, tmp_path, capsys, position):
    flags = ("--position", position, "--n_kv_head", "1", "--dropout", "0.1")
    run(small_text, tmp_path / "whole", "--max_iters", "20", *flags)
    said = capsys.readouterr().out
    assert (f"1 layers, 2 heads (1 of keys and values), 16 channels, block of 16, positions: "
            f"{position}\n") in said
    run(small_text, tmp_path / "cut", "--max_iters", "10", "--lr_decay_iters", "20", *flags)
    train.main(["--init_from", "resume", "--out_dir", str(tmp_path / "cut"), "--max_iters", "20"])
    assert same_arrays(tmp_path / "cut" / "last.npz", tmp_path / "whole" / "last.npz")
    model, tokenizer, *_ = load_checkpoint(tmp_path / "cut" / "ckpt.npz")
    assert (model.config.position, model.config.n_kv_head) == (position, 1)
    by_cache, anew = (generate(model, tokenizer, "the ", 60, seed=1, cache=cache)
                      for cache in (True, False))
    assert by_cache == anew and len(anew) == 64
    train.main(["--init_from", "resume", "--out_dir", str(tmp_path / "cut"), "--max_iters", "21",
                "--n_kv_head", "1"])
    assert "has --n_kv_head 1, which cannot become 2" in refused(
        capsys, "--init_from", "resume", "--n_kv_head", "2", "--out_dir", str(tmp_path / "cut"))
    assert "has --position" in refused(capsys, "--init_from", "resume", "--position", "learned",
                                       "--out_dir", str(tmp_path / "cut"))


def test_a_run_of_a_version_without_the_options_goes_on_without_them(trained, tmp_path):
    with np.load(trained / "last.npz", allow_pickle=False) as file:
        older = {name: file[name] for name in file.files if name != "version"}
    config, training = (json.loads(str(older[name])) for name in ("config", "training"))
    for name in ("n_kv_head", "position"):
        del config[name], training["settings"][name]
    older |= {"config": np.array(json.dumps(config)), "training": np.array(json.dumps(training))}
    np.savez(tmp_path / "last.npz", **older)
    train.main(["--init_from", "resume", "--out_dir", str(tmp_path), "--max_iters", "50",
                "--n_kv_head", "2"])                        # as many as heads, which it has
    assert load_checkpoint(tmp_path / "last.npz").model.config.position == "learned"


def test_a_profile_is_printed_after_its_steps_and_not_again_when_resumed(small_text, tmp_path,
                                                                         capsys):
    run(small_text, tmp_path, "--max_iters", "10", "--profile", "3")
    said = capsys.readouterr().out
    assert "ms a step, of 3" in said
    assert all(f"\n{op} " in said for op in ("mlp", "self_attention", "linear", "a step"))
    run(small_text, tmp_path, "--init_from", "resume", "--max_iters", "25")
    assert "ms a step" not in capsys.readouterr().out
