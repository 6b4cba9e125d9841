"""What a run can be told: what cannot work is found before it begins, and nothing else is."""
import math
import os
import random

import pytest

from data import Text
from model.settings import Settings

TEXT = Text("to be or not to be\n" * 100)


@pytest.mark.parametrize("given, says", [
    (dict(batch_size=0), "--batch_size is at least 1, not 0"),
    (dict(learning_rate=-1.0), "--learning_rate is at least 0, not -1.0"),
    (dict(learning_rate=float("nan")), "--learning_rate is at least 0, not nan"),
    (dict(learning_rate=float("inf")), "--learning_rate is a finite number, not inf"),
    (dict(muon_lr=-1.0), "--muon_lr is at least 0, not -1.0"),
    (dict(optimizer="moun"), "--optimizer is adamw or muon, not moun; did you mean muon?"),
    (dict(max_iters=-1), "--max_iters is at least 0, not -1"),
    (dict(minutes=0.0), "--minutes is above 0, not 0.0"),
    (dict(minutes=float("nan")), "--minutes is above 0, not nan"),
    (dict(minutes=float("inf")), "--minutes is a finite number, not inf"),
    (dict(decay_share=1.5), "--decay_share is above 0 and at most 1, not 1.5"),
    (dict(schedule="cosin"), "--schedule is cosine or linear, not cosin; did you mean cosine?"),
    (dict(min_lr=-0.1), "--min_lr is at least 0, not -0.1"),
    (dict(weight_decay=float("inf")), "--weight_decay is a finite number, not inf"),
    (dict(beta1=1.5), "--beta1 is at least 0 and below 1, not 1.5"),
    (dict(dropout=1.0), "--dropout is at least 0 and below 1, not 1.0"),
    (dict(n_embd=30), "--n_embd 30 does not split into --n_head 4 heads; take --n_embd 28 or 32"),
    (dict(n_embd=3), "--n_embd 3 does not split into --n_head 4 heads; take --n_embd 4"),
    (dict(n_embd=36, position="rotary"),
     "--n_embd 36 does not split into --n_head 4 heads of an even number of channels, which "
     "--position rotary needs; take --n_embd 32 or 40"),
    (dict(n_kv_head=3), "--n_head 4 heads cannot share --n_kv_head 3 evenly; take --n_kv_head 1, 2 "
                        "or 4"),
    (dict(n_head=1, n_kv_head=2),
     "--n_head 1 heads cannot share --n_kv_head 2 evenly; take --n_kv_head 1"),
    (dict(n_kv_head=0), "--n_kv_head is at least 1, not 0"),
    (dict(on_nan="go_on"), "--on_nan is stop or skip, not go_on"),
    (dict(position="rotory"), "--position is learned, sinusoidal, rotary, alibi or none, not "
                              "rotory; did you mean rotary?"),
    (dict(norm="rmsnorm"),
     "--norm is layer, rms or rms_gain, not rmsnorm; did you mean rms?"),
    (dict(activation="relu"),
     "--activation is gelu, relu2, gelu_tanh or swiglu, not relu; did you mean relu2?"),
    (dict(ngram_dropout=-0.1), "--ngram_dropout is at least 0 and below 1, not -0.1"),
    (dict(ngrams=0), "--ngrams is at least 1 and at most 1000, not 0")])
def test_what_cannot_work_is_named_with_its_flag_and_the_remedy(given, says):
    assert Settings(**given).problems() == [says]


def test_all_that_cannot_work_is_found_at_once():
    s = Settings(batch_size=0, n_embd=30, beta2=1.0, position="rotory", grad_clip=-1.0)
    assert [line.split()[0] for line in s.problems()] == [
        "--batch_size", "--position", "--beta2", "--grad_clip", "--n_embd"]


def test_the_defaults_work_without_a_warning():
    assert Settings().problems() == Settings().warnings() == []
    assert Settings().problems_with(TEXT) == []


def test_the_clock_alone_ends_a_run_that_is_not_told_its_steps():
    assert Settings(max_iters=7).steps == 7
    assert Settings(minutes=3.0).steps == math.inf
    assert Settings(minutes=3.0, max_iters=7).steps == 7


def test_settings_have_a_problem_exactly_if_no_model_can_be_made_of_them():
    draw, made = random.Random(0), 0
    for _ in range(8000):
        s = Settings(n_layer=draw.randint(0, 3), n_head=draw.randint(0, 6),
                     n_embd=draw.randint(0, 30), block_size=draw.randint(0, 3),
                     n_kv_head=draw.choice([None, 0, 1, 2, 3]),
                     dropout=draw.choice([0.0, 0.5, 1.0, float("nan")]),
                     position=draw.choice(["learned", "rotary", "rope"]),
                     norm=draw.choice(["layer", "layer", "rms", "rms", "batch"]),
                     activation=draw.choice(["gelu", "gelu", "relu2", "relu2", "relu"]),
                     ngrams=draw.choice([1, 1, 4, 4, 0]), n_inner=draw.choice([None, 5, 5, 0]),
                     norm_eps=draw.choice([1e-5] * 9 + [0.0]))
        try:
            s.model_config(vocab_size=5)
        except ValueError:
            assert s.problems(), s
        else:
            made += 1
            assert s.problems() == [], s
    assert made > 50


def test_the_remedy_for_heads_works():
    for C, H, position in ((30, 4, "learned"), (36, 4, "rotary"), (100, 7, "rotary"),
                           (1, 9, "none")):
        says, = Settings(n_embd=C, n_head=H, position=position).problems()
        for taken in says.split("--n_embd ")[-1].split(" or "):
            assert not Settings(n_embd=int(taken), n_head=H, position=position).problems()


def test_a_text_must_hold_a_block():
    says, = Settings(block_size=500).problems_with(TEXT)
    assert says.startswith("--block_size 500 needs 501 characters in each part of the text")


def test_a_folder_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for path in ("file", "file/out"):
        says, = Settings(out_dir=str(tmp_path / path)).problems()
        assert says == f"--out_dir {tmp_path / path}: {tmp_path / 'file'} is a file; give a folder"
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    for path in (tmp_path, tmp_path / "new" / "out"):
        says, = Settings(out_dir=str(path)).problems()
        assert says.startswith(f"--out_dir {path} cannot be written: {tmp_path} does not allow it")
        assert Settings(out_dir=str(path), explain=True).problems() == []


@pytest.mark.parametrize("out_dir, says", [
    ("", "--out_dir takes a value, and an empty one was given"),
    ("x" * 300, "File name too long; give another folder")])
def test_a_folder_that_cannot_be_named_is_refused(out_dir, says):
    assert Settings(out_dir=out_dir).problems()[0].endswith(says)


@pytest.mark.parametrize("given, says", [
    (dict(learning_rate=0.0), "at --learning_rate 0 nothing is learned"),
    (dict(learning_rate=1e3), "--learning_rate 1000 is far above what trains such a model; 0.004 "
                              "is usual"),
    (dict(min_lr=1e-2), "--min_lr 0.01 is above --learning_rate 0.004, so the rate rises at the "
                        "end"),
    (dict(rotary_base=500.0), "--rotary_base 500 does nothing with --position learned")])
def test_what_is_hardly_meant_is_warned_of(given, says):
    assert Settings(**given).problems() == [] and Settings(**given).warnings() == [says]
