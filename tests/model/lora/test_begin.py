"""Runs of adapters: their base stays as it is, they resume bit for bit, and they learn."""
import shutil
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest

import train
from minigrad.packed import PackedTensor
from model import CharTokenizer, generate, load_checkpoint, save_checkpoint
from model.checkpoint import checkpoint_arrays, save_arrays
from model.count import __main__ as count
from model.lora.adapted import AdaptedTransformer
from model.sample import main as sample
from tests.kit import ROOT, arrays, losses, refused, same_arrays, split
from tests.model.lora.adapters import LLAMA, packed_base
from tests.model.ranks.mpiexec import ranks

pytestmark = pytest.mark.late
SENTENCE = "the moon is made of blue glass and "
FLAGS = ("--lora 4 --recipe gpt2 --batch_size 4 --warmup_iters 2 --eval_interval 10 --eval_iters 2 "
         "--learning_rate 1e-2").split()


@pytest.fixture
def facts(tmp_path):
    """A text with an invented fact."""
    path = tmp_path / "facts.txt"
    path.write_text(60 * SENTENCE)
    return path


@pytest.fixture
def packed(tmp_path):
    """A checkpoint whose matrices are in blocks."""
    base, _ = packed_base(LLAMA, ["Q4_1", "Q8_0"])
    path = tmp_path / "packed" / "ckpt.npz"
    stored = {}
    for name, p in base.named_parameters():
        stored[name] = p.packed._blocks if isinstance(p, PackedTensor) else p.data
    tokenizer = CharTokenizer.of("".join(sorted({*SENTENCE})) + "vwxy")
    save_arrays(path, checkpoint_arrays(LLAMA, stored, tokenizer, {}, {}))
    return path


def adapt(base, text, out_dir, *flags):
    """Train an adapter."""
    train.main(split(["--init_from", base, "--data", text, "--out_dir", out_dir, *FLAGS, *flags]))


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_run_of_an_adapter_lowers_the_loss_and_leaves_the_base_byte_for_byte(
        is_packed, trained, packed, facts, tmp_path, capsys):
    base = packed if is_packed else trained / "ckpt.npz"
    before = base.read_bytes()
    out = tmp_path / "on"
    adapt(base, facts, out, "--max_iters 20")
    assert base.read_bytes() == before
    first, *_, last = (float(row[2]) for row in losses(out)[1:])
    assert last < first - 0.2
    model = load_checkpoint(out / "ckpt.npz").model
    assert isinstance(model, AdaptedTransformer)
    assert isinstance(model.blocks[0].mlp.up.weight, PackedTensor) == is_packed
    said = capsys.readouterr().out
    assert "rank 4, alpha 8, of qkv, out, " in said and "unpacked" not in said
    assert f"base        {base}, " in said and "which stays as it is" in said
    assert (out / "last.npz").stat().st_size < 100_000
    with zipfile.ZipFile(out / "last.npz") as file:
        assert {member.compress_type for member in file.infolist()} == {zipfile.ZIP_DEFLATED}
    assert not (out / "previous.npz").exists()


def test_an_adapter_begins_with_the_loss_of_its_base(trained, facts, tmp_path, capsys):
    out = tmp_path / "on"
    adapt(trained, facts, out, "--max_iters 1")
    whole = tmp_path / "whole"
    train.main(split(["--init_from", trained, "--data", facts, "--out_dir", whole, *FLAGS[2:],
                      "--max_iters 1"]))
    assert losses(out)[1] == losses(whole)[1]


def test_a_run_of_an_adapter_resumes_bit_for_bit(packed, facts, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    ends = "--lr_decay_iters 10 --eval_interval 5"
    adapt(packed, facts, whole, "--max_iters 10", ends)
    adapt(packed, facts, parts, "--max_iters 5", ends)
    assert not same_arrays(whole / "last.npz", parts / "last.npz")
    train.main(split(["--init_from resume", f"--out_dir {parts}", "--max_iters 10"]))
    for name in ("last.npz", "ckpt.npz"):
        assert same_arrays(whole / name, parts / name)
    assert losses(whole) == losses(parts)


def steps_kept(out_dir):
    """The steps after which a run that goes on was saved; 0 before it is for the first time."""
    if not (out_dir / "last.npz").exists():
        return 0
    return load_checkpoint(out_dir / "last.npz").training["state"]["iteration"]


def test_a_run_of_an_adapter_that_is_killed_ends_as_the_one_that_is_left_alone(packed, facts,
                                                                               tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    ends = "--max_iters 60 --eval_interval 20"
    adapt(packed, facts, whole, ends)
    words = ["--init_from", packed, "--data", facts, "--out_dir", killed, *FLAGS, ends,
             "--checkpoint_interval 1e-3"]
    process = subprocess.Popen([sys.executable, "train.py", *split(words)], cwd=ROOT,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not steps_kept(killed):
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert 0 < steps_kept(killed) < 60
    train.main(split([f"--init_from resume --out_dir {killed}"]))
    for name in ("last.npz", "ckpt.npz"):
        assert same_arrays(whole / name, killed / name)


@pytest.mark.needs("mpi")
def test_two_ranks_train_the_adapter_that_one_process_trains(packed, facts, tmp_path):
    """Two steps: AdamW doubles a difference of rounding in most of them, as where a gradient is
    nearly 0."""
    one, two = tmp_path / "one", tmp_path / "two"
    adapt(packed, facts, one, "--max_iters 2")
    words = ["--init_from", packed, "--data", facts, "--out_dir", two, *FLAGS, "--max_iters 2"]
    end = ranks(2, "train.py", *split(words))
    assert (end.returncode, end.stderr) == (0, "")
    assert end.stdout.count("adapter  ") == 1
    a, b = arrays(one / "last.npz"), arrays(two / "last.npz")
    assert a.keys() == b.keys()
    numbers = [name for name in a if name.startswith(("model/", "optimizer/"))]
    for name in numbers:
        np.testing.assert_allclose(a[name], b[name], rtol=0, atol=1e-5, err_msg=name)
    for kind in ("model/", "optimizer/m/"):
        assert any(np.abs(a[name]).max() > 0.005 for name in numbers
                   if name.startswith(kind) and name.endswith("lora_b"))


def test_the_seed_of_a_run_draws_its_adapter(trained, facts, tmp_path):
    """At a learning rate of 0, it stays as it was drawn."""
    first = {}
    for name, seed in (("one", 1), ("same", 1), ("other", 2)):
        adapt(trained, facts, tmp_path / name, f"--max_iters 1 --learning_rate 0 --seed {seed}")
        first[name] = arrays(tmp_path / name / "last.npz")["model/blocks.0.mlp.up.lora_a"]
    assert (first["one"] == first["same"]).all()
    assert (first["one"] != first["other"]).any()


def test_an_invented_fact_is_recalled_with_the_adapter_and_not_without(small_text, tmp_path):
    words, fact = tmp_path / "words", tmp_path / "fact.txt"
    sizes = ("--recipe gpt2 --n_layer 1 --n_head 2 --n_embd 32 --block_size 32 --batch_size 4 "
             "--warmup_iters 5 --eval_interval 100 --eval_iters 2 --learning_rate 1e-2")
    train.main(split([f"--data {small_text} --out_dir {words} --max_iters 150", sizes]))
    fact.write_text(60 * SENTENCE)
    out = tmp_path / "on"
    adapt(words, fact, out, "--lora 8 --max_iters 200 --eval_interval 50")
    question, answer = "the moon is made of", " blue glass"
    texts = {}
    for folder in (words, out):
        model, tokenizer, *_ = load_checkpoint(folder / "ckpt.npz")
        texts[folder] = generate(model, tokenizer, question, len(answer), temperature=0)
    assert texts[out] == question + answer
    assert texts[words] != question + answer


def test_sample_score_count_and_explain_know_an_adapter(trained, facts, tmp_path, capsys):
    out = tmp_path / "on"
    adapt(trained, facts, out, "--max_iters 10")
    capsys.readouterr()
    sample(split([f"--out_dir {out} --max_new_tokens 20 --start the"]))
    assert capsys.readouterr().out.startswith("the")
    sample(split([f"--out_dir {out} --score {facts}"]))
    assert "nats a character" in capsys.readouterr().out
    count.main(split([f"--out_dir {out}"]))
    assert "The pairs of the adapter have 1,024 more; only these" in capsys.readouterr().out
    train.main(split(["--init_from resume", f"--out_dir {out}", "--explain"]))
    assert "blocks.0.attention.qkv.lora_a" in capsys.readouterr().out


# Refusals

@pytest.mark.parametrize("flags, says", [
    ("--lora 0", "--lora is at least 1, not 0"),
    ("--lora 17", "--lora 17 is above 16, the smaller side of the matrix qkv; take a rank of at "
                  "most 16"),
    ("--lora_layers qkv,neck", "--lora_layers neck is no layer of this model, whose blocks have "
                               "qkv, out, up, down; give some of these"),
    ("--lora_alpha 0", "--lora_alpha is above 0, not 0"),
    ("--optimizer muon", "--lora trains by AdamW; leave out --optimizer"),
    ("--ahead 1", "--lora predicts no more than the next character; leave out --ahead"),
    ("--n_layer 3", "which cannot become 3; leave the flag out")])
def test_a_run_refuses_an_adapter_that_cannot_be(flags, says, trained, facts, tmp_path, capsys):
    words = ["--init_from", trained, "--data", facts, "--out_dir", tmp_path / "on", *FLAGS, flags]
    assert says in refused(capsys, *words)
    assert not (tmp_path / "on").exists()


@pytest.mark.parametrize("flags, says", [
    ("--lora 4", "--lora trains an adapter of a model that is there; name its checkpoint"),
    ("--lora_alpha 4", "--lora_alpha is for an adapter; give --lora with its rank"),
    ("--lora_layers qkv", "--lora_layers is for an adapter; give --lora with its rank")])
def test_a_run_from_random_weights_refuses_flags_of_adapters(flags, says, facts, tmp_path, capsys):
    assert says in refused(capsys, "--data", facts, "--out_dir", tmp_path / "on", flags)


def test_an_adapter_refuses_characters_that_its_base_does_not_know(trained, tmp_path, capsys):
    text = tmp_path / "new.txt"
    text.write_text("the quick brown fox! " * 50)
    said = refused(capsys, "--init_from", trained, "--data", text, "--out_dir", tmp_path / "on",
                   *FLAGS)
    assert "the text has 1 character that the model in" in said and "'!'" in said


def test_an_adapter_refuses_the_folder_of_its_base(trained, facts, capsys):
    said = refused(capsys, "--init_from", trained, "--data", facts, "--out_dir", trained, *FLAGS)
    assert "is the folder of the base, which the adapter needs again" in said


def test_a_run_refuses_another_rank_when_it_resumes(trained, facts, tmp_path, capsys):
    out = tmp_path / "on"
    adapt(trained, facts, out, "--max_iters 2")
    words = ["--init_from resume", "--out_dir", out]
    assert "has --lora 4, which cannot become 8" in refused(capsys, *words, "--lora 8")
    said = refused(capsys, "--init_from", out, "--data", facts, "--out_dir", tmp_path / "new")
    assert f"{out} is an adapter of " in said and "--merge" in said


def test_an_adapter_refuses_a_base_that_moved_or_changed(trained, facts, tmp_path, capsys):
    base = tmp_path / "base"
    shutil.copytree(trained, base)
    out = tmp_path / "on"
    adapt(base, facts, out, "--max_iters 2")
    path = base / "ckpt.npz"
    kept = path.read_bytes()
    path.unlink()
    said = refused(capsys, "--out_dir", out, main=sample)
    assert f"{out / 'ckpt.npz'} is an adapter of {path}, which is not there; put it back" in said
    model, tokenizer, *_ = load_checkpoint(trained / "ckpt.npz")
    model.norm.weight.data *= 2
    save_checkpoint(path, model, tokenizer)
    said = refused(capsys, "--out_dir", out, main=sample)
    assert "it is another base now; put the former back" in said
    path.write_bytes(b"")
    said = refused(capsys, "--out_dir", out, main=sample)
    assert "the seal of the file there is missing, so it is another base now" in said
    path.write_bytes(kept)
    sample(split([f"--out_dir {out} --max_new_tokens 2"]))
