"""What a run keeps, how it goes on from that, and what it does about a nan."""
import dataclasses
import itertools
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

import data
import minigrad as mg
import train
from minigrad import compiled
from model import (CharTokenizer, EncoderDecoder, Transformer, generate, load_checkpoint,
                   run as runs, save_checkpoint)
from model.replay.nan import again
from model.files import claimed, write_arrays
from model.run import Case, State, decayed_and_other, read_log
from model.report import listed
from tests.kit import TINY, arrays, losses, refused, rows, run, same_arrays


def stop_after(patch, iteration):
    """Have Ctrl-C come in a step."""
    real = State.note_step

    def note_step(state, *arguments):
        real(state, *arguments)
        if state.iteration == iteration:
            signal.raise_signal(signal.SIGINT)
    patch.setattr(State, "note_step", note_step)


@pytest.mark.parametrize("stop_at", [10, 13])
def test_interrupted_and_resumed_equals_uninterrupted_bit_for_bit(
        small_text, tmp_path, monkeypatch, capsys, stop_at):
    flags = ("--max_iters", "30", "--dropout", "0.1", "--gradient_accumulation_steps", "2")
    run(small_text, tmp_path / "whole", *flags)

    with monkeypatch.context() as patch:
        stop_after(patch, stop_at)
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


def test_a_run_that_was_moved_goes_on_where_it_is_now(trained, tmp_path, monkeypatch):
    before = {path.name: path.read_bytes() for path in trained.iterdir()}
    shutil.copytree(trained, tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    train.main(["--init_from", "resume", "--max_iters", "41"])
    kept = load_checkpoint(tmp_path / "out" / "last.npz").training
    assert kept["state"]["iteration"] == 41 and kept["settings"]["out_dir"] == "out"
    assert {path.name: path.read_bytes() for path in trained.iterdir()} == before


@pytest.mark.skipif(compiled.thread_limit()[0] == 1, reason="there is one processor")
def test_a_run_goes_on_where_there_are_fewer_processors(small_text, tmp_path, monkeypatch, capsys):
    resume = ["--init_from", "resume", "--out_dir", str(tmp_path), "--max_iters", "1"]
    run(small_text, tmp_path, "--max_iters", "0", "--threads", "2")
    monkeypatch.setattr(compiled, "thread_limit", lambda: (1, "this machine has 1 processor"))
    assert "--threads is at most 1 here, not 2: this machine has 1 processor" in refused(
        capsys, *resume, "--threads", "2")
    train.main(resume)
    assert load_checkpoint(tmp_path / "last.npz").training["settings"]["threads"] == 1


def test_two_small_batches_accumulate_to_the_gradient_of_one(small_text, tmp_path):
    run(small_text, tmp_path / "one", "--max_iters", "3", "--batch_size", "8")
    run(small_text, tmp_path / "two", "--max_iters", "3", "--batch_size", "4",
        "--gradient_accumulation_steps", "2")
    one, two = arrays(tmp_path / "one" / "last.npz"), arrays(tmp_path / "two" / "last.npz")
    for name in one:
        if name.startswith("model/"):
            assert np.allclose(one[name], two[name], rtol=1e-3, atol=1e-5), name


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
        f"train.py: cannot write into {out_dir}: File too large; give another folder with "
        f"--out_dir.  What was saved in {out_dir} before is whole; go on from it with python "
        f"train.py --init_from resume --out_dir {out_dir}")
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
    assert (f"warning     {last} is {'damaged' if damaged else 'not there'}; resuming from "
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


def test_a_best_model_of_another_run_is_named_and_replaced(trained, small_text, tmp_path, capsys):
    out_dir = shutil.copytree(trained, tmp_path / "out")
    other = tmp_path / "other.txt"
    other.write_text("abc " * 2000)
    for name, flags in (("text", ["--data", str(other)]), ("seed", ["--seed", "7"])):
        run(small_text, tmp_path / name, "--max_iters", "10", *flags)
        shutil.copy(tmp_path / name / "ckpt.npz", out_dir)
        capsys.readouterr()
        train.main(["--init_from", "resume", "--out_dir", str(out_dir)])
        assert (f"warning     {out_dir / 'ckpt.npz'} is of another run; until the next evaluation "
                "the model that is gone on from takes its place\n") in capsys.readouterr().out
        assert same_arrays(out_dir / "ckpt.npz", trained / "ckpt.npz")


def test_a_resumed_run_keeps_its_seed_and_so_its_best_model(trained, tmp_path, capsys):
    out_dir = shutil.copytree(trained, tmp_path / "out")
    assert "has --seed 1337, which cannot become 5 on the way" in refused(
        capsys, "--init_from", "resume", "--out_dir", str(out_dir), "--seed", "5")


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
    one, two = (out_dir / f"earlier.{n}" for n in (1, 2))
    assert f"{out_dir} held an earlier run, which is now in {one}" in capsys.readouterr().out
    run(small_text, out_dir, "--max_iters", "0", "--seed", "6")
    kept = arrays(one / "ckpt.npz")
    assert all(np.array_equal(first[name], kept[name]) for name in first)
    assert load_checkpoint(two / "last.npz").training["settings"]["seed"] == 5


@pytest.fixture(scope="module")
def new_text(small_text, tmp_path_factory):
    """The words backwards, with characters that the model of `trained` does not know."""
    path = tmp_path_factory.mktemp("text") / "new.txt"
    path.write_text(small_text.read_text(encoding="utf-8")[::-1].replace("x", "É") + "Z!",
                    encoding="utf-8")
    return path


def test_a_new_run_begins_where_the_model_that_it_begins_with_was(trained, small_text, tmp_path,
                                                                  capsys):
    run(small_text, tmp_path / "out", "--init_from", str(trained), "--max_iters", "0")
    best = load_checkpoint(trained / "ckpt.npz")
    (iteration, _, loss, _, _, seconds), = rows(tmp_path / "out")[1:]
    assert float(loss) == pytest.approx(best.training["state"]["best"], abs=1e-6)
    assert iteration == "0" and seconds == "0.00"
    assert f"begins      with the weights of {trained / 'ckpt.npz'}\ntext  " in (
        capsys.readouterr().out)
    kept = load_checkpoint(tmp_path / "out" / "last.npz").training["settings"]
    assert kept["init_from"] == str(trained / "ckpt.npz") and kept["out_dir"] == str(tmp_path /
                                                                                     "out")


def test_a_run_that_begins_with_a_model_on_a_new_text_is_told_repeated_and_resumed_as_any_other(
        trained, new_text, tmp_path, monkeypatch, capsys):
    flags = ("--init_from", str(trained / "last.npz"), "--max_iters", "20", "--dropout", "0.1",
             "--block_size", "8")
    for name in ("whole", "again"):
        run(new_text, tmp_path / name, *flags)
    assert ("\n            3 characters that it does not know, with new rows at the end of its "
            "table: 'É' (" in (said := capsys.readouterr().out)), said
    assert "\n            of its 16 positions, the first 8\n" in said
    assert losses(tmp_path / "whole") == losses(tmp_path / "again")
    assert same_arrays(tmp_path / "whole" / "last.npz", tmp_path / "again" / "last.npz")
    with monkeypatch.context() as patch:
        stop_after(patch, 13)
        with pytest.raises(SystemExit):
            run(new_text, tmp_path / "cut", *flags)
    train.main(["--init_from", "resume", "--out_dir", str(tmp_path / "cut")])
    assert losses(tmp_path / "whole") == losses(tmp_path / "cut")
    for name in ("last.npz", "ckpt.npz"):
        assert same_arrays(tmp_path / "whole" / name, tmp_path / "cut" / name)
    model, tokenizer, training, _ = load_checkpoint(tmp_path / "cut" / "last.npz")
    known = load_checkpoint(trained / "last.npz").tokenizer.vocabulary
    assert tokenizer.vocabulary == known + "!ZÉ" and model.config.block_size == 8
    assert training["settings"]["init_from"] == str(trained / "last.npz")
    assert "cannot become 16 on the way" in refused(capsys, "--init_from", "resume", "--out_dir",
                                                    str(tmp_path / "cut"), "--block_size", "16")


def test_a_run_that_begins_with_a_model_made_in_python_can_be_resumed(trained, new_text, tmp_path):
    known = load_checkpoint(trained / "last.npz")
    whole = dataclasses.replace(known.model.config, rotary_base=10000, norm_eps=1)
    save_checkpoint(tmp_path / "made.npz", Transformer(whole), known.tokenizer)
    run(new_text, tmp_path / "out", "--init_from", str(tmp_path / "made.npz"), "--max_iters", "1")
    train.main(["--init_from", "resume", "--out_dir", str(tmp_path / "out"), "--max_iters", "2"])
    assert rows(tmp_path / "out")[-1][0] == "2"


def test_a_run_may_begin_with_the_model_of_its_own_folder(trained, new_text, tmp_path, capsys):
    out_dir = tmp_path / "out"
    shutil.copytree(trained, out_dir)
    before = (out_dir / "ckpt.npz").read_bytes()
    run(new_text, out_dir, "--init_from", str(out_dir), "--max_iters", "0")
    moved = out_dir / "earlier.1" / "ckpt.npz"
    assert moved.read_bytes() == before
    for name in ("ckpt.npz", "last.npz"):
        assert load_checkpoint(out_dir / name).training["settings"]["init_from"] == str(moved)


def test_a_run_that_is_explained_begins_with_a_model_and_leaves_everything(trained, new_text,
                                                                           tmp_path, capsys):
    run(new_text, tmp_path / "out", "--init_from", str(trained), "--explain", "--max_iters", "9")
    assert "begins      with the weights of" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_what_a_run_cannot_begin_with_is_refused_in_a_line(trained, new_text, tmp_path, capsys):
    data_and_folder = ("--data", str(new_text), "--out_dir", str(tmp_path / "out"))
    assert "did you mean resume?" in refused(capsys, *data_and_folder, "--init_from", "resum")
    assert "ckpt.npz has --n_layer 1, which cannot become 2; leave the flag out" in refused(
        capsys, *data_and_folder, "--init_from", str(trained), "--n_layer", "2")
    (tmp_path / "cut.npz").write_bytes((trained / "ckpt.npz").read_bytes()[:-9])
    assert "is damaged or no checkpoint" in refused(
        capsys, *data_and_folder, "--init_from", str(tmp_path / "cut.npz"))
    save_checkpoint(tmp_path / "pair.npz", EncoderDecoder(3, 6, 1, 2, 8), CharTokenizer("abc"))
    assert "holds an encoder-decoder" in refused(
        capsys, *data_and_folder, "--init_from", str(tmp_path / "pair.npz"))
    assert not (tmp_path / "out").exists()


def test_a_run_on_several_texts_is_that_on_all_of_them_in_one(trained, small_text, tmp_path,
                                                              monkeypatch, capsys):
    whole, folder = small_text.read_text(encoding="utf-8"), tmp_path / "texts"
    half = whole.index("\n", len(whole) // 2)
    rest = len(whole) - half - 1
    (folder / "drafts").mkdir(parents=True)
    for name, part in (("1.txt", whole[:half]), ("2.md", whole[half + 1:])):
        (folder / name).write_text(part, encoding="utf-8")
    run(folder, tmp_path / "folder", "--max_iters", "40")
    said = capsys.readouterr().out
    assert said.startswith(f"files       {half:9,} characters in {folder / '1.txt'}\n"
                           f"            {rest:9,} characters in {folder / '2.md'}\n"
                           f"            not taken: what is in {folder / 'drafts'}\n"
                           f"text        of 2 files: {len(whole):,} characters, 28 different ones")
    assert losses(tmp_path / "folder") == losses(trained)
    assert same_arrays(tmp_path / "folder" / "last.npz", trained / "last.npz")
    training = load_checkpoint(tmp_path / "folder" / "last.npz").training
    assert training["settings"]["data"] == [str(folder / "1.txt"), str(folder / "2.md")]

    monkeypatch.chdir(folder)
    run("lantern", tmp_path / "words", "--data", "1.txt", "2.md", "--max_iters", "0")
    resume = ["--init_from", "resume", "--out_dir", str(tmp_path / "words"), "--max_iters", "1"]
    monkeypatch.chdir(tmp_path)
    (folder / "later.txt").write_text("later", encoding="utf-8")    # which this run has not read
    train.main(resume)
    shutil.rmtree(folder)
    assert f'"{folder / "1.txt"}" is neither a known text' in (line := refused(capsys, *resume))
    assert line.endswith("where the same text is in another file, give that with --data FILE")
    train.main([*resume, "--data", str(small_text), "--max_iters", "2"])
    assert load_checkpoint(tmp_path / "words" / "last.npz").training["settings"]["data"] == str(
        small_text)
    assert "the text of 2 files is not the one that the run in" in refused(
        capsys, *resume, "--data", str(small_text), "lantern")


@pytest.mark.parametrize("taken, left_out, lines", [
    ([("a", 1_000)], [], []),
    ([("a", 1_000)], ["b/c"], ["    1,000 characters in a", "not taken: what is in b/c"]),
    ([("a\n", 5), ("b", 1)], [], ["        5 characters in a\\n", "         1 character in b"]),
    ([("a", 1_000)] * 101, [], ["    1,000 characters in a"] * 100
     + ["    1,000 characters in 1 more file"]),
    ([("a", 1_000)] * 2_100, [], ["    1,000 characters in a"] * 100
     + ["2,000,000 characters in 2,000 more files"])])
def test_of_many_files_the_first_are_listed_and_the_characters_of_the_others(taken, left_out,
                                                                             lines):
    assert listed(data.Texts("", taken, left_out)) == "\n            ".join(lines)


BLOWN_UP = ["--learning_rate", "1e30", "--max_iters", "50", "--grad_clip", "0",
            "--warmup_iters", "0"]
numpy_may_warn = pytest.mark.filterwarnings("ignore::RuntimeWarning")   # in place of the kernels


def poison(monkeypatch, *when, loss=math.nan):
    """Have the gradients of such steps come with another loss; returns the true ones, which fill a
    list."""
    losses, real = [], runs.Step.is_finite

    def is_finite(step):
        if not math.isnan(step.norm) and step.seconds == 0:     # the loop asks before it steps
            losses.append(step.loss)
            if len(losses) in when:
                step.loss = loss
        return real(step)
    monkeypatch.setattr(runs.Step, "is_finite", is_finite)
    return losses


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
    one, two = (out_dir / f"earlier.{n}" for n in (1, 2))
    assert [(one / name).read_bytes()
            for name in ("ckpt.npz", "last.npz", "log.csv")] == saved
    run(small_text, out_dir, "--max_iters", "0")
    assert (two / "nan.npz").exists() and not (out_dir / "nan.npz").exists()


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
    now, _ = again(case, model, state.dropout)
    assert (case.step, state.iteration) == (3, 2) and now.loss == true_losses[2]
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
    assert "going on after step 10, 1 step skipped" in capsys.readouterr().out
    assert same_arrays(tmp_path / "cut" / "last.npz", tmp_path / "skipped" / "last.npz")
    assert rows(tmp_path / "cut")[-1][:4] == rows(tmp_path / "skipped")[-1][:4]


@numpy_may_warn
def test_after_many_skipped_steps_in_a_row_the_run_ends(small_text, tmp_path, capsys):
    line = refused(capsys, "--data", str(small_text), "--out_dir", str(tmp_path / "out"), *TINY,
                   *BLOWN_UP, "--on_nan", "skip")
    assert "20 steps in a row were to be skipped; the loss of step 21 is" in line
    assert "named above, and that of the first skipped step by python train.py --replay" in line
    case = load_checkpoint(tmp_path / "out" / "nan.npz").training["nan"]
    assert case["step"] == 2


@numpy_may_warn
def test_after_skipped_steps_that_ended_it_a_run_goes_on_from_before_them(small_text, tmp_path,
                                                                          capsys):
    flags = [*BLOWN_UP, "--on_nan", "skip", "--checkpoint_interval", "1e-9"]
    with pytest.raises(SystemExit) as caught:
        run(small_text, tmp_path / "out", *flags)
    assert "20 steps in a row were to be skipped" in caught.value.code
    kept = load_checkpoint(tmp_path / "out" / "last.npz").training["state"]
    assert kept["skipped_in_row"] == 0 and f"after step {kept['iteration']}, " in caught.value.code
    train.main(["--init_from", "resume", "--out_dir", str(tmp_path / "out"), "--learning_rate",
                "1e-3", "--max_iters", "5"])
    assert rows(tmp_path / "out")[-1][0] == "5"


@numpy_may_warn
def test_weights_that_are_not_finite_never_take_the_place_of_a_checkpoint(small_text, tmp_path):
    with pytest.raises(SystemExit):
        run(small_text, tmp_path, *BLOWN_UP, "--learning_rate", "1e308", "--checkpoint_interval",
            "1e-9")
    for name in ("ckpt.npz", "last.npz"):
        assert load_checkpoint(tmp_path / name).training["state"]["iteration"] == 0


def test_an_optimiser_that_is_not_finite_never_takes_the_place_of_a_checkpoint(
        small_text, tmp_path, monkeypatch):
    real = mg.AdamW.step

    def step(optimizer):
        real(optimizer)
        if optimizer.steps == 7:
            optimizer.v[0][...] = math.inf      # whose weights are nan after one step more
    monkeypatch.setattr(mg.AdamW, "step", step)
    with pytest.raises(SystemExit, match="the loss of step 9 is nan"):
        run(small_text, tmp_path, "--max_iters", "10", "--checkpoint_interval", "1e-9")
    assert load_checkpoint(tmp_path / "last.npz").training["state"]["iteration"] == 6


def test_what_a_run_could_not_load_again_ends_it_before_the_first_step(
        small_text, trained, tmp_path, capsys, monkeypatch):
    out_dir = tmp_path / "out"
    shutil.copytree(trained, out_dir)
    before = {path.name: path.read_bytes() for path in out_dir.iterdir()}
    monkeypatch.setattr(State, "saved", lambda state: "no object")
    monkeypatch.setattr(mg.AdamW, "step", None)
    line = refused(capsys, "--data", str(small_text), "--out_dir", str(out_dir), *TINY)
    assert "no checkpoint is written, as it could not be loaded again: its record" in line
    assert {path.name: path.read_bytes() for path in out_dir.iterdir()} == before


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


@pytest.mark.parametrize("position", ["rotary", "alibi", "sinusoidal", "none"])
def test_a_run_with_options_is_interrupted_resumed_and_sampled_as_any_other(
        small_text, tmp_path, capsys, position):
    flags = ("--position", position, "--n_kv_head", "1", "--dropout", "0.1")
    run(small_text, tmp_path / "whole", "--max_iters", "20", *flags)
    said = capsys.readouterr().out
    assert "1 layer, 2 heads (1 of keys and values), 16 channels, block of 16\n" in said
    assert re.search(rf"(?s)but for .*--position {position}\b", said)
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


MODERN = ("--norm", "rms", "--qk_norm", "--position", "rotary", "--activation", "relu2",
          "--zero_init", "--ngrams", "3", "--ngram_rows", "50")
LLAMA = ("--norm", "rms_gain", "--norm_eps", "1e-6", "--position", "rotary", "--rotary_base", "100",
         "--activation", "swiglu", "--n_inner", "40", "--no-tied", "--attention_bias")


def test_a_run_with_the_parts_of_a_modern_transformer_is_told_resumed_and_sampled_as_any_other(
        small_text, tmp_path, capsys):
    run(small_text, tmp_path / "whole", "--max_iters", "20", *MODERN)
    run(small_text, tmp_path / "cut", "--max_iters", "10", "--lr_decay_iters", "20", *MODERN)
    train.main(["--init_from", "resume", "--out_dir", str(tmp_path / "cut"), "--max_iters", "20"])
    assert same_arrays(tmp_path / "cut" / "last.npz", tmp_path / "whole" / "last.npz")
    model, tokenizer, *_ = load_checkpoint(tmp_path / "cut" / "ckpt.npz")
    c = model.config
    assert (c.norm, c.qk_norm, c.position, c.activation, c.zero_init, c.ngrams) == (
        "rms", True, "rotary", "relu2", True, 3)
    by_cache, anew = (generate(model, tokenizer, "the ", 60, seed=1, cache=cache)
                      for cache in (True, False))
    assert by_cache == anew and len(anew) == 64
    for flag, value, was in (("--norm", "layer", "rms"), ("--ngrams", "2", "3")):
        assert f"has {flag} {was}, which cannot become" in refused(
            capsys, "--init_from", "resume", flag, value, "--out_dir", str(tmp_path / "cut"))
    capsys.readouterr()
    run(small_text, tmp_path / "told", "--explain", *MODERN)
    said = capsys.readouterr().out
    for op in ("rms_norm", "qk_norm"):
        assert f"| {op} " in said
    assert "ngram_embedding.weight" in said and "layer_norm" not in said


def test_a_run_with_the_parts_of_llama_is_told_resumed_and_sampled_as_any_other(
        small_text, tmp_path, capsys):
    run(small_text, tmp_path / "whole", "--max_iters", "20", "--profile", "5", *LLAMA)
    said = capsys.readouterr().out
    assert re.search(r"(?s)but for .*--norm_eps 1e-06\s.*--n_inner 40\s.*--no-tied\b", said)
    run(small_text, tmp_path / "cut", "--max_iters", "10", "--lr_decay_iters", "20", *LLAMA)
    resume = ("--init_from", "resume", "--out_dir", str(tmp_path / "cut"), "--max_iters", "20")
    train.main([*resume, "--no-mlp_bias"])          # which is what --no-bias stands for
    assert same_arrays(tmp_path / "cut" / "last.npz", tmp_path / "whole" / "last.npz")
    model, tokenizer, *_ = load_checkpoint(tmp_path / "cut" / "ckpt.npz")
    assert not model.config.tied and model.blocks[0].mlp.gate.weight.shape == (40, 16)
    by_cache, anew = (generate(model, tokenizer, "the ", 60, seed=1, cache=cache)
                      for cache in (True, False))
    assert by_cache == anew and len(anew) == 64
    for flag, value, says in (("--n_inner", "64", "--n_inner 40, which cannot become 64"),
                              ("--mlp_bias", "", "--mlp_bias False, which cannot become True")):
        assert says in refused(capsys, *resume, flag, *([value] if value else []))
    capsys.readouterr()
    run(small_text, tmp_path / "told", "--explain", *LLAMA)
    said = capsys.readouterr().out
    assert "mlp.gate.weight" in said and "lm_head.weight" in said


def test_a_run_of_a_version_without_the_options_goes_on_without_them(trained, tmp_path):
    with np.load(trained / "last.npz", allow_pickle=False) as file:
        older = {name: file[name] for name in file.files}
    config, training = (json.loads(str(older[name])) for name in ("config", "training"))
    for name in ("n_kv_head", "position", "norm", "qk_norm", "activation", "zero_init",
                 "ngrams", "ngram_rows", "norm_eps", "n_inner", "attention_bias", "mlp_bias",
                 "rotary_base", "tied"):
        del config[name], training["settings"][name]
    del training["settings"]["optimizer"], training["settings"]["muon_lr"]
    older |= {"config": np.array(json.dumps(config)), "training": np.array(json.dumps(training))}
    with open(tmp_path / "last.npz", "w+b") as file:
        write_arrays(file, older)
    train.main(["--init_from", "resume", "--out_dir", str(tmp_path), "--max_iters", "50",
                "--n_kv_head", "2", "--n_inner", "64", "--no-mlp_bias"])    # which it has unset
    assert load_checkpoint(tmp_path / "last.npz").model.config.position == "learned"


def test_a_run_with_muon_goes_on_bit_for_bit_and_keeps_to_it(small_text, tmp_path, capsys):
    flags = ("--optimizer", "muon", "--dropout", "0.1", "--lr_decay_iters", "20")
    run(small_text, tmp_path / "whole", "--max_iters", "20", *flags)
    assert " steps of 64 characters by Muon and AdamW, " in capsys.readouterr().out
    run(small_text, tmp_path / "cut", "--max_iters", "10", *flags)
    kept = arrays(tmp_path / "cut" / "last.npz")
    assert {name.split("/")[1] for name in kept if "blocks.0.attention.qkv" in name
            and name.startswith("optimizer/")} == {"momentum"}
    assert kept["optimizer/momentum/blocks.0.attention.qkv.weight"].any()
    assert "optimizer/m/token_embedding.weight" in kept
    resume = ["--init_from", "resume", "--out_dir", str(tmp_path / "cut"), "--max_iters", "20"]
    assert "has --optimizer muon, which cannot become adamw" in refused(
        capsys, *resume, "--optimizer", "adamw")
    train.main(resume)
    assert same_arrays(tmp_path / "cut" / "last.npz", tmp_path / "whole" / "last.npz")


def test_muons_rate_rises_and_falls_with_adamws(small_text, tmp_path, monkeypatch):
    rates, real = [], mg.Muon.step

    def step(muon):
        rates.append(muon.param_groups[0]["lr"])
        assert {group["lr"] for group in muon.param_groups} == {rates[-1]}
        real(muon)
    monkeypatch.setattr(mg.Muon, "step", step)
    run(small_text, tmp_path, "--optimizer", "muon", "--max_iters", "20", "--muon_lr", "0.05",
        "--min_lr", "2e-3", "--eval_interval", "1")
    adamw = [float(row[3]) for row in rows(tmp_path)[1:]]          # of the step that follows
    assert np.allclose(rates, 5 * np.array(adamw[:20]), rtol=1e-4) and max(rates) == 0.05


@pytest.fixture
def steady(monkeypatch):
    """Every step takes a quarter of a second, whatever it takes."""
    ticks = itertools.count()
    monkeypatch.setattr(runs, "clock", lambda: next(ticks) / 4)


def iterations(out_dir):
    return [int(row[0]) for row in rows(out_dir)[1:]]


@pytest.mark.parametrize("flags, end", [
    (["--minutes", "0.1"], 24), (["--minutes", "0.1", "--max_iters", "15"], 15),
    (["--minutes", "0.1", "--max_iters", "50"], 24), (["--minutes", "0.001"], 1)])
def test_a_run_by_the_clock_ends_at_its_minutes_or_its_steps(small_text, tmp_path, capsys, steady,
                                                             flags, end):
    run(small_text, tmp_path, *flags)
    assert iterations(tmp_path) == [i for i in range(0, end, 10)] + [end]
    assert float(rows(tmp_path)[-1][-1]) == end / 4
    said = capsys.readouterr().out
    assert re.search(rf"\ntraining    .*\b{flags[1]} minutes of .* on (?!1 threads)\d+ "
                     r"threads?\n {12}"
                     r"\(evaluating, compiling and saving not counted\)\n", said)
    assert "inf" not in said and "None" not in said


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_by_the_clock_the_rate_falls_with_the_time_and_not_with_the_steps(
        small_text, tmp_path, steady, schedule):
    run(small_text, tmp_path, "--minutes", "0.1", "--schedule", schedule, "--eval_interval", "1",
        "--decay_share", "0.5")
    curve = {"cosine": lambda at: (1 + math.cos(math.pi * at)) / 2,
             "linear": lambda at: min(1, 2 - 2 * at)}[schedule]
    rates = [float(row[3]) for row in rows(tmp_path)[1:]]
    expected = [1e-2 * (i + 1) / 6 for i in range(5)] + [
        1e-3 + 9e-3 * curve(i / 24) for i in range(5, 25)]
    assert np.allclose(rates, expected, rtol=1e-4)


def test_of_two_ends_the_rate_falls_towards_the_earlier(small_text, tmp_path, steady):
    for name, flags in dict(steps="--max_iters 12", both="--max_iters 12 --minutes 1",
                            clock="--minutes 0.05", late="--minutes 0.05 --max_iters 1000").items():
        run(small_text, tmp_path / name, *flags.split())
    assert losses(tmp_path / "both") == losses(tmp_path / "steps")
    assert losses(tmp_path / "late") == losses(tmp_path / "clock")


@pytest.mark.parametrize("flags", [[], ["--schedule", "linear", "--optimizer", "muon"]])
def test_a_run_by_the_clock_goes_on_bit_for_bit_where_the_clock_does(small_text, tmp_path, steady,
                                                                     monkeypatch, flags):
    run(small_text, tmp_path / "whole", "--minutes", "0.1", "--dropout", "0.1", *flags)
    with monkeypatch.context() as patch:
        stop_after(patch, 13)
        with pytest.raises(SystemExit):
            run(small_text, tmp_path / "cut", "--minutes", "0.1", "--dropout", "0.1", *flags)
    assert load_checkpoint(tmp_path / "cut" / "last.npz").training["state"]["seconds"] == 13 / 4
    train.main(["--init_from", "resume", "--out_dir", str(tmp_path / "cut")])
    assert rows(tmp_path / "cut") == rows(tmp_path / "whole")       # the seconds too
    assert same_arrays(tmp_path / "cut" / "last.npz", tmp_path / "whole" / "last.npz")
    train.main(["--init_from", "resume", "--out_dir", str(tmp_path / "cut"), "--minutes", "0.15"])
    assert iterations(tmp_path / "cut")[-1] == 36


def test_a_resumed_run_ends_as_it_is_told_now_by_clock_or_steps(small_text, tmp_path, steady):
    resume = ["--init_from", "resume", "--out_dir", str(tmp_path)]
    run(small_text, tmp_path, "--minutes", "0.05")
    assert iterations(tmp_path)[-1] == 12
    train.main([*resume, "--max_iters", "40"])
    assert iterations(tmp_path)[-1] == 40
    train.main([*resume, "--minutes", "0.2"])
    assert iterations(tmp_path)[-1] == 48
    train.main([*resume, "--minutes", "0.3", "--max_iters", "50"])
    assert iterations(tmp_path)[-1] == 50


def test_dropout_is_kept_by_a_resumed_run(trained, capsys):
    for flag in ("--dropout", "--ngram_dropout"):
        assert f"has {flag} 0.0, which cannot become 0.5" in refused(
            capsys, "--init_from", "resume", "--out_dir", str(trained), flag, "0.5")


def test_the_clock_stands_still_while_kernels_are_compiled(monkeypatch):
    before = runs.compiled.seconds_compiling()
    monkeypatch.setattr(runs.time, "perf_counter", lambda: 100.0)
    started = runs.clock()
    monkeypatch.setattr(runs.time, "perf_counter", lambda: 130.0)
    monkeypatch.setattr(runs.compiled, "seconds_compiling", lambda: before + 28.0)
    assert math.isclose(runs.clock() - started, 2)


@pytest.mark.parametrize("name,value", [
    ("settings", {}), ("settings", {"n_layer": "1"}), ("settings", {"learning_rate": -1}),
    ("settings", {"bias": None}), ("settings", {"unknown": 1}), ("settings", {"batch_size": 0}),
    ("settings", {"data": "no such\nfile"}), ("settings", None), ("text", None),
    ("text", "0"), ("state", None), ("state", {"iteration": 1, "note_step": 1}),
    ("state", {"iteration": 10 ** 300}), ("state", {}), ("state", {"batches": {}, "iteration": 1})],
    ids=str)
def test_a_run_whose_record_was_tampered_with_is_refused_in_a_line(trained, tmp_path, capsys, name,
                                                                   value):
    model, tokenizer, training, _ = load_checkpoint(trained / "last.npz")
    if value is None:
        del training[name]
    elif name == "settings" and value:
        value = training["settings"] | value
    save_checkpoint(tmp_path / "last.npz", model, tokenizer,
                    training if value is None else training | {name: value},
                    mg.AdamW(decayed_and_other(model)))
    said = refused(capsys, "--init_from", "resume", "--out_dir", str(tmp_path))
    assert said.isprintable() and "Traceback" not in said


def test_the_name_of_a_folder_cannot_break_the_line(tmp_path, capsys):
    said = refused(capsys, "--init_from", "resume", "--out_dir", str(tmp_path / "a\nb\x1b"))
    assert r"a\nb\x1b" in said
