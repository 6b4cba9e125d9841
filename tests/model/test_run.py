"""What a run changes, keeps and resumes from, and what it does about a nan."""
import contextlib
import dataclasses
import itertools
import json
import math
import os
import re
import shlex
import shutil
import signal
from types import SimpleNamespace

import numpy as np
import pytest

import data
import minigrad as mg
import train
from data.files import claimed, write_arrays
from minigrad import compiled
from model import (CharTokenizer, CheckpointError, Transformer, TransformerConfig, generate,
                   load_checkpoint, run as runs, save_checkpoint)
from model import beginning
from model.beginning import saved_settings
from model.folder import Folder, read_log
from model.processes import Ranks
from model.replay import __main__ as replay
from model.replay.nan import repeat, restore_step
from model.report import describe_stop
from model.run import State, adamw_groups, make_optimizer
from model.scoring import evaluate
from model.settings import Settings
from tests.kit import (TINY, arrays, losses, open_elsewhere, refusal, refused, rows, run, run_of,
                       same_arrays, small_run, split, written)


def resume(out_dir, *flags):
    train.main(split(["--init_from resume --out_dir", out_dir, *flags]))


def cannot_resume(capsys, out_dir, *flags):
    return refused(capsys, "--init_from resume --out_dir", out_dir, *flags)


def state_of(path):
    return load_checkpoint(path).training["state"]


def settings_in(out_dir):
    return load_checkpoint(out_dir / "last.npz").training["settings"]


def iteration(path):
    return state_of(path)["iteration"]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


@pytest.fixture
def out_dir(trained, tmp_path):
    """A copy of a run of 40 steps."""
    return shutil.copytree(trained, tmp_path / "out")


def stopped_after(number, begin, *arguments):
    """Run or resume; Ctrl-C comes in this step."""
    real = State.note_step

    def note_step(state, *of_step):
        real(state, *of_step)
        if state.iteration == number:
            signal.raise_signal(signal.SIGINT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(State, "note_step", note_step)
        assert refusal(SystemExit, begin, *arguments) == "130"


@pytest.fixture
def steady(monkeypatch):
    """Every step takes a quarter of a second, whatever it takes."""
    ticks = itertools.count()
    monkeypatch.setattr(compiled, "clock", lambda: next(ticks) / 4)


@pytest.fixture(scope="module")
def new_text(small_text, tmp_path_factory):
    """The words backwards, with characters that the model of `trained` does not know."""
    words = small_text.read_text(encoding="utf-8")[::-1].replace("x", "É") + "Z!"
    return written(tmp_path_factory.mktemp("text") / "new.txt", words)


@pytest.fixture(scope="module")
def llama(small_text, tmp_path_factory):
    """The checkpoint of a model with options that only imported models have."""
    tokenizer = CharTokenizer(small_text.read_text(encoding="utf-8"))
    path = tmp_path_factory.mktemp("llama") / "ckpt.npz"
    save_checkpoint(path, Transformer(TransformerConfig(tokenizer.vocab_size, **LLAMA)), tokenizer)
    return path


LLAMA = dict(block_size=16, n_layer=1, n_head=2, n_embd=16, norm="rms_gain", norm_eps=1e-6,
             position="rotary", rotary_base=100.0, activation="swiglu", n_inner=40, tied=False,
             attention_bias=True)
# A run from its beginning to its end: the flags; what describes it; the options of its model; what
# explains a step of it.
LIVES = {
    "gpt2": ("--max_iters 20 --dropout 0.1 --gradient_accumulation_steps 2", "16 channels, block",
             {}, "layer_norm"),
    "modern": ("--max_iters 20 --norm rms --qk_norm --position rotary --activation relu2 "
               "--zero_init --ngrams 3 --ngram_rows 50 --windows shuffled "
               "--ngram_decay 1", r"(?s)gpt2, with .*--norm rms\b",
               dict(norm="rms", qk_norm=True, activation="relu2", zero_init=True, ngrams=3),
               "ngram_embedding.weight"),
    "llama": ("--max_iters 20 --init_from LLAMA --profile 5",
              r"(?s)gpt2, with .*--norm rms_gain\b", LLAMA, "mlp.gate.weight"),
    "ahead": ("--max_iters 30 --ahead 2", r"(?s)gpt2, with .*--ahead 2\b", {}, "cross_entropy"),
    "muon": ("--minutes 0.1 --schedule linear --optimizer muon --dropout 0.1",
             r"0.1 minutes of steps of 64 characters by Muon and AdamW, ", {}, "Muon"),
    "fine-tuned": ("--minutes 0.1 --init_from TRAINED/last.npz --dropout 0.1 --block_size 8",
                   r"(?s)3 characters that it does not know.*'É' \(.*16 positions, the first 8\n",
                   dict(block_size=8), "layer_norm"),
    **{position: (f"--max_iters 20 --position {position} --n_kv_head 1 --dropout 0.1",
                  rf"(?s)gpt2, with .*--position {position}\b.*2 heads \(1 of keys and values\)",
                  dict(position=position, n_kv_head=1), "self_attention")
       for position in ("rotary", "sinusoidal")}}


@pytest.fixture(scope="module")
def lives():
    """Those that were lived, by name: several tests look at each."""
    return {}


@pytest.fixture(params=LIVES)
def life(request, lives, small_text, new_text, trained, llama, tmp_path_factory, monkeypatch,
         capsys, steady):
    """A run that is left alone, and the same one stopped, moved and resumed: their folders, and
    what each printed."""
    name = request.param
    if name in lives:
        return lives[name]
    flags, described, options, explained = LIVES[name]
    flags = flags.replace("TRAINED", str(trained)).replace("LLAMA", str(llama)).split()
    text = new_text if name == "fine-tuned" else small_text
    folder = tmp_path_factory.mktemp("life")
    life = SimpleNamespace(described=described, options=options, explained=explained,
                           whole=folder / "whole", cut=folder / "cut", moved=folder / "out",
                           stop_at=10 if name == "gpt2" else 13)
    run(text, life.whole, *flags)
    life.opening = capsys.readouterr().out
    stopped_after(life.stop_at, run, text, life.cut, *flags)
    life.stopped = capsys.readouterr().err
    life.kept = iteration(life.cut / "last.npz")
    with open(life.cut / "log.csv", "a", encoding="utf-8") as file:
        # of an evaluation that was not kept
        file.write(f"{max(life.stop_at, 11)},9,9,9,9,9\r\n")

    life.cut.rename(life.moved)
    life.checked = []
    monkeypatch.setattr(beginning, "check_memory", lambda s, config: life.checked.append(config))
    monkeypatch.chdir(folder)
    train.main(["--init_from", "resume"])
    lives[name] = life
    return life


def test_a_run_opens_with_what_it_will_do(life):
    assert re.search(life.described, life.opening)


def test_a_run_that_is_stopped_says_what_is_kept_and_how_to_resume_it(life):
    assert f"stopped after {life.stop_at} steps; all is kept in" in life.stopped
    assert f"python train.py --init_from resume --out_dir {life.cut}" in life.stopped
    assert life.kept == life.stop_at


def test_a_run_that_is_stopped_moved_and_resumed_ends_as_one_left_alone(life):
    assert rows(life.moved) == rows(life.whole)
    assert same_arrays(life.moved / "last.npz", life.whole / "last.npz")
    assert same_arrays(life.moved / "ckpt.npz", life.whole / "ckpt.npz")


def test_a_run_that_is_moved_writes_where_it_is(life):
    assert load_checkpoint(life.moved / "ckpt.npz").training["settings"]["out_dir"] == "out"
    assert not life.cut.exists()


def test_a_run_that_is_resumed_has_the_model_of_its_flags_and_memory_for_it(life):
    config = load_checkpoint(life.moved / "last.npz").model.config
    assert vars(config).items() >= life.options.items()
    assert load_checkpoint(life.moved / "ckpt.npz").model.config == config
    assert life.checked == [config]


def test_a_step_of_a_resumed_run_is_explained_and_changes_nothing(life, capsys):
    before = contents(life.moved)
    resume(life.moved, "--explain")
    assert life.explained in capsys.readouterr().out
    assert contents(life.moved) == before


@pytest.mark.parametrize("optimizer, ngram_decay, options, sections", [
    ("adamw", 0.7, dict(bias=True), None),
    ("adamw", 0.7, dict(ngrams=3, ngram_rows=20), None),
    ("adamw", None, dict(ngrams=3, ngram_rows=20), None),
    ("muon", 0.7, dict(bias=True), (8, 8, 8)),
    ("muon", 0.7, dict(bias=True, n_kv_head=1, ngrams=3, ngram_rows=20), (8, 4, 4)),
    ("muon", 0.7, dict(head_dim=6, n_kv_head=1, qk_norm=True, qk_gain=True), (12, 6, 6)),
    ("muon", None, dict(norm="rms_gain", activation="swiglu", n_inner=5, tied=False), (8, 8, 8))])
def test_muon_gets_matrices_of_blocks_and_matrices_decay(optimizer, ngram_decay, options, sections):
    model = Transformer(TransformerConfig(9, 8, 2, 2, 8, **options))
    settings = Settings(optimizer=optimizer, weight_decay=0.2, ngram_decay=ngram_decay)
    groups = make_optimizer(model, settings).param_groups
    found = [(id(p), "sections" in group, group["weight_decay"])
             for group in groups for p in group["params"]]
    decay = {1: 0.0, 2: 0.2}
    assert sorted(found) == sorted(
        (id(p), optimizer == "muon" and name.startswith("blocks.") and p.ndim == 2,
         ngram_decay or 0.2 if name == "ngram_embedding.weight" else decay[p.ndim])
        for name, p in model.named_parameters())
    packed = [group for group in groups if group.get("sections")]
    if sections is None:                # AdamW steps each matrix as a whole
        assert packed == []
    else:
        group, = packed
        assert group["sections"] == sections
        assert group["params"] == [block.attention.qkv.weight for block in model.blocks]


@pytest.mark.parametrize("given, iteration, seconds, share", [
    (dict(), 3, 0, 0.8),
    (dict(), 4, 0, 1),
    (dict(), 9, 0, 0.800006604858821),
    (dict(), 20, 0, 0.1),
    (dict(min_lr=0.0), 12, 0, 0.5),
    (dict(min_lr=6e-3), 9, 0, 1.1111074417450995),
    (dict(learning_rate=0.0, min_lr=0.0), 12, 0, 0.55),
    (dict(max_iters=None), 10 ** 6, 0, 1),
    (dict(lr_decay_iters=10), 9, 0, 0.1602885682970026),
    (dict(lr_decay_iters=10), 15, 0, 0.1),
    (dict(lr_decay_iters=2), 3, 0, 0.8),
    (dict(lr_decay_iters=0, warmup_iters=0), 0, 0, 0.1),
    (dict(minutes=1.0), 9, 26.9, 0.800006604858821),
    (dict(minutes=1.0), 9, 30, 0.55),
    (dict(minutes=1.0), 3, 59, 0.8),
    (dict(minutes=1.0, lr_decay_iters=10), 10, 30, 0.1),
    (dict(schedule="linear"), 3, 0, 0.8),
    (dict(schedule="linear"), 16, 0, 1),
    (dict(schedule="linear", decay_share=0.9, min_lr=1e-3), 4, 0, 0.9166666666666666),
    (dict(schedule="linear", decay_share=0.5, min_lr=0.0), 17, 0, 0.3),
    (dict(schedule="linear", minutes=1.0, decay_share=0.5), 9, 45, 0.55)], ids=str)
def test_multiplier_rises_and_falls_by_the_further_of_steps_and_clock(given, iteration, seconds,
                                                                      share):
    s = Settings(**dict(warmup_iters=4, max_iters=20) | given)
    run = SimpleNamespace(settings=s, max_iters=s.steps,
                          state=SimpleNamespace(iteration=iteration, seconds=seconds))
    assert runs.Run.multiplier(run) == pytest.approx(share, rel=1e-15)


@pytest.mark.parametrize("given, iteration, seconds, weight", [
    (dict(), 0, 0, 0.5),
    (dict(), 5, 0, 0.25),
    (dict(), 10, 0, 0),
    (dict(), 15, 0, 0),
    (dict(ahead=0), 5, 0, 0),
    (dict(max_iters=0), 0, 0, 0.5),
    (dict(max_iters=None, minutes=1.0), 10 ** 6, 15, 0.25),
    (dict(minutes=1.0), 5, 24, 0.1),
    (dict(minutes=1.0), 5, 3, 0.25)], ids=str)
def test_ahead_falls_to_0_in_the_middle_of_a_run_by_the_further_of_steps_and_clock(
        given, iteration, seconds, weight):
    s = Settings(**dict(ahead=2, max_iters=20) | given)
    run = SimpleNamespace(settings=s, max_iters=s.steps,
                          state=SimpleNamespace(iteration=iteration, seconds=seconds))
    assert runs.Run.ahead(run) == pytest.approx(weight, rel=1e-12)


def test_what_looks_ahead_learns_until_the_middle_and_is_kept_only_to_resume_from(
        small_text, tmp_path, monkeypatch):
    weights = []        # before each step
    real = Transformer.loss

    def loss(model, *of_batch):
        weights.append([layer.weight.data.copy() for layer in model.ahead])
        return real(model, *of_batch)
    monkeypatch.setattr(Transformer, "loss", loss)
    run(small_text, tmp_path, "--max_iters 8 --ahead 2")
    learnt = [[not np.array_equal(a, b) for a, b in zip(before, after)]
              for before, after in zip(weights, weights[1:])]
    assert learnt == 4 * [[True, True]] + 3 * [[False, False]]
    names = {f"{kind}/ahead.{k}.weight" for k in (0, 1)
             for kind in ("model", "optimizer/m", "optimizer/v")}
    assert {name for name in arrays(tmp_path / "last.npz") if "ahead" in name} == names
    assert not any("ahead" in name for name in arrays(tmp_path / "ckpt.npz"))
    for path, ahead, number in (("last.npz", True, 2), ("last.npz", False, 0),
                                ("ckpt.npz", True, 0)):
        assert len(load_checkpoint(tmp_path / path, ahead=ahead).model.ahead) == number


def test_muons_rate_rises_and_falls_with_adamws(small_text, tmp_path, monkeypatch):
    rates = []
    real = mg.Muon.update

    def update(muon, with_gradients):
        rates.append(muon.param_groups[0]["lr"])
        assert {group["lr"] for group in muon.param_groups} == {rates[-1]}
        real(muon, with_gradients)
    monkeypatch.setattr(mg.Muon, "update", update)
    run(small_text, tmp_path,
        "--optimizer muon --max_iters 20 --muon_lr 0.05 --min_lr 2e-3 --eval_interval 1")
    adamw = [float(row[3]) for row in rows(tmp_path)[1:]]          # of the step that follows
    assert np.allclose(rates, 5 * np.array(adamw[:20]), rtol=1e-4)
    assert max(rates) == 0.05


@pytest.mark.parametrize("windows", ["shuffled", "random"])
def test_batches_of_a_step_differ_and_shuffled_ones_read_each_window_once_a_pass(
        small_text, windows):
    text = data.Text.read(str(small_text))
    text.train = np.arange(500)         # an id is its place
    made = run_of(Settings(windows=windows, block_size=16, batch_size=2, n_layer=1, n_embd=8,
                           n_head=1, gradient_accumulation_steps=3), text)
    starts = []
    for step in range(1, 21):
        batches = made.batches(runs.Step(step, {}))
        assert len(batches) == 3
        assert all(np.array_equal(y, x + 1) for x, y in batches)
        assert made.state.read == (6 * step if windows == "shuffled" else 0)
        starts += [start for x, _ in batches for start in x[:, 0].tolist()]
    n = made.shuffled.n
    assert len({*starts}) > 60
    assert starts[:6] != starts[6:12]
    if windows == "shuffled":
        for number in range(4):
            assert len({*starts[n * number:n * (number + 1)]}) == n


def test_a_state_counts_steps_remembers_a_hundred_losses_and_averages_those_since_an_evaluation():
    state = State(seed=0)
    assert state.since_evaluation(100) == (None, 0.0)
    state.note_step(3.0, 0.0)
    assert state.since_evaluation(100) == (3.0, 0.0)    # no time has passed
    state.note_step(3.0, 4.0)
    state.note_evaluation(2.0)
    state.note_step(2.0, 0.5), state.note_step(1.0, 1.5)
    assert state.since_evaluation(100) == (1.5, 100.0)
    assert state.seconds == 6
    for i in range(147):
        state.note_step(float(i), 0.1)
    assert state.recent == [float(i) for i in range(46, 147)]
    state.note_step(math.nan, 0.5, taken=False), state.note_step(math.nan, 0.5, taken=False)
    assert (state.iteration, state.skipped, state.skipped_in_row) == (153, 2, 2)
    state.note_step(1.0, 0.1), state.note_step(math.nan, 0.5, taken=False)
    assert (state.iteration, state.skipped, state.skipped_in_row) == (155, 3, 1)
    assert state.recent[-1] == 1


def test_steps_average_the_losses_of_the_batches_of_a_step():
    one = small_run(data.read_text("lantern")[:2000], block_size=8, batch_size=3,
                    gradient_accumulation_steps=2, max_iters=1, learning_rate=0.0)
    step, = train.steps(one)
    losses = [mg.cross_entropy(one.model(x, one.state.dropout), y).item()
              for x, y in step.batches]
    assert losses[0] != losses[1]
    assert step.loss == pytest.approx(np.mean(losses))


def test_saved_is_not_changed_by_later_steps():
    state = State(seed=0)
    state.note_step(2.0, 0.1)
    saved = state.saved()
    before = json.dumps(saved)
    state.note_step(3.0, 0.1)
    assert json.dumps(saved) == before


def test_before_step_and_the_lists_after_a_skipped_step_are_the_state_before_it():
    state = State(seed=0)
    state.note_step(2.0, 0.1)
    whole = state.saved()
    before = state.before_step()
    state.dropout.random(3), state.batches.integers(9)
    state.read += 4
    state.note_step(math.nan, 0.5, taken=False)
    assert state.saved() | before == whole
    assert not before.keys() & {*State.LISTS}
    assert whole.keys() == vars(state).keys()       # a new attribute is saved, too


def test_note_evaluation_keeps_the_first_of_equal_losses():
    state = State(seed=0)
    assert [state.note_evaluation(loss) for loss in (3.0, 3.0, 2.5, 2.75, 2.5, 2.25)] == [
        True, False, True, False, False, True]
    assert state.best == 2.25


@pytest.mark.parametrize("limits, iteration, seconds, over", [
    (dict(max_iters=5), 4, 1e9, False),
    (dict(max_iters=5), 5, 0.0, True),
    (dict(max_iters=5), 6, 0.0, True),
    (dict(minutes=0.5), 9, 29.99, False),
    (dict(minutes=0.5), 0, 30.0, True),
    (dict(minutes=0.5, max_iters=5), 5, 1.0, True),
    (dict(minutes=0.5, max_iters=5), 4, 30.0, True),
    (dict(minutes=0.5, max_iters=5), 4, 29.99, False),
    (dict(max_iters=0), 0, 0.0, True),
    (dict(max_iters=5, explain=True), 5, 0.0, False)])
def test_is_over_at_the_step_or_the_second_of_its_end(limits, iteration, seconds, over):
    one = small_run(**limits)
    one.state.iteration = iteration
    one.state.seconds = seconds
    assert one.is_over() == over


def test_is_time_to_save_counts_from_the_last_time_and_has_room_for_a_step(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(runs.time, "monotonic", lambda: now[0])
    with Folder(tmp_path) as folder:
        one = small_run(folder=folder, max_iters=9)

        def due(seconds, at):
            now[0] = at
            return one.is_time_to_save(runs.Step(1, {}, seconds=seconds))
        assert not due(0.0, 1000.0)
        assert not due(0.0, 1060.0)
        assert due(0.0, 1060.5)
        assert not due(10.0, 1040.0)
        assert due(10.0, 1040.5)
        now[0] = 1061.0
        one.save_last()
        assert not due(0.0, 1062.0)
        assert not due(0.0, 1121.0)
        assert due(0.0, 1121.5)


def test_measure_takes_the_time_of_a_step_and_what_it_had_of_a_processor(steady, monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr(runs.time, "thread_time", lambda: next(ticks) / 8)
    one = small_run()
    step = runs.Step(1, {})
    with one.measure(step):
        pass
    assert (step.seconds, step.processor) == (0.25, 0.125)
    one.ranks = SimpleNamespace(broadcast=lambda seconds: 10 * seconds)
    with one.measure(step):
        pass
    assert step.seconds == 2.5      # that of the first rank ends the run for all


# Files

def test_a_run_goes_on_while_other_programs_have_its_files_open(small_text, tmp_path, monkeypatch,
                                                                capsys):
    with open_elsewhere(monkeypatch, ["log.csv"], 10**6), open_elsewhere(
            monkeypatch, ["ckpt.npz", "last.npz", "previous.npz"], 4):
        run(small_text, tmp_path / "out", "--max_iters 20")
    said = capsys.readouterr()
    assert said.err.count("warning: another program has") == 4
    assert "step     20" in said.out
    assert {*os.listdir(tmp_path / "out")} >= {"ckpt.npz", "last.npz", "previous.npz"}


@pytest.mark.filterwarnings("error")        # of an exception that Python ignores
def test_a_full_disk_leaves_what_was_saved_and_says_what_to_do(out_dir, capsys):
    resource = pytest.importorskip("resource", reason="Windows has no limit on the size of a file")
    before = {name: (out_dir / name).read_bytes() for name in ("last.npz", "previous.npz")}
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before["last.npz"]) // 2, usual[1]))
    try:
        line = cannot_resume(capsys, out_dir, "--max_iters 50 --checkpoint_interval 1e-9")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert line.startswith(f"train.py: cannot use {out_dir / 'last.npz'}: File too large")
    assert line.endswith(f"python train.py --init_from resume --out_dir {out_dir}")
    assert before == {name: (out_dir / name).read_bytes() for name in before}
    assert not list(out_dir.glob("*.part"))


def test_a_second_run_into_the_same_folder_is_refused(out_dir, small_text, tmp_path, capsys):
    before = contents(out_dir)
    with claimed(out_dir):
        for flags in (["--init_from resume"], ["--data", small_text, *TINY]):
            line = refused(capsys, "--out_dir", out_dir, "--max_iters 50", *flags)
            assert f"another run writes into {out_dir} (process {os.getpid()}, since " in line
        resume(out_dir, "--max_iters 50 --explain")
        assert generate(*load_checkpoint(out_dir / "ckpt.npz")[:2], max_new_tokens=3)
    assert before == contents(out_dir)
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("damaged", [True, False])
def test_a_damaged_or_lost_checkpoint_is_named_and_replaced(trained, out_dir, capsys, damaged):
    last = out_dir / "last.npz"
    best = out_dir / "ckpt.npz"
    previous = (out_dir / "previous.npz").read_bytes()
    whole = last.read_bytes()
    last.write_bytes(whole[:-1000]) if damaged else last.unlink()
    resume(out_dir, "--explain --max_iters 50")
    assert last.exists() == damaged                     # which changes nothing
    capsys.readouterr()
    resume(out_dir)
    said = capsys.readouterr().out
    what = "damaged" if damaged else "not there"
    assert f"warning     {last} is {what}; " in said
    assert f"{out_dir / 'previous.npz'}, the one before it, at step 30\n" in said
    assert losses(out_dir) == losses(trained)
    assert same_arrays(last, trained / "last.npz")
    assert same_arrays(best, trained / "ckpt.npz")
    assert (out_dir / "previous.npz").read_bytes() == previous      # no damaged file in its place
    if damaged:
        assert (out_dir / "last.damaged.npz").read_bytes() == whole[:-1000]

    best.write_bytes(b"PK") if damaged else best.unlink()
    resume(out_dir)
    assert (f"warning     {best} is {what}; until the next evaluation the resumed model stands in "
            "as the best one\n") in capsys.readouterr().out
    assert iteration(best) == 40


def test_a_best_model_that_cannot_be_read_now_is_kept(out_dir, capsys, monkeypatch):
    best = out_dir / "ckpt.npz"
    before = best.read_bytes()

    def load(path, *more):
        if path != best:
            return load_checkpoint(path, *more)
        raise CheckpointError(f"cannot read {path}: I/O") from OSError(5, "I/O")
    monkeypatch.setattr(runs, "load_checkpoint", load)
    assert f"cannot read {best}: I/O" in cannot_resume(capsys, out_dir, "--max_iters 41")
    assert best.read_bytes() == before


def test_a_best_model_that_is_newer_than_the_last_checkpoint_stays_the_best(out_dir):
    best = state_of(out_dir / "ckpt.npz")
    os.replace(out_dir / "previous.npz", out_dir / "last.npz")
    assert state_of(out_dir / "last.npz")["best"] > best["best"]
    before = (out_dir / "ckpt.npz").read_bytes()
    resume(out_dir, "--learning_rate 1e-9 --max_iters 40")     # which gets not so far
    assert (out_dir / "ckpt.npz").read_bytes() == before
    assert state_of(out_dir / "last.npz")["best"] == best["best"]

    model, tokenizer, training, _ = load_checkpoint(out_dir / "ckpt.npz")
    training["state"]["best"] = 9.0         # an older file, which somebody has put back
    save_checkpoint(out_dir / "ckpt.npz", model, tokenizer, training)
    resume(out_dir, "--learning_rate 1e-9 --max_iters 41")
    assert state_of(out_dir / "last.npz")["best"] == best["best"]


def uneven(path, easy):
    """A text with a validation part of 25 windows of 16, of which those that a batch of four takes
    are easy, or all others."""
    hard = "".join(np.random.default_rng(0).choice([*"abcdefghij"], 4010))
    chosen = np.isin(np.arange(25), data.batches.spread(25, 4))
    parts = ["ab" * 8 if is_easy else hard[:16] for is_easy in chosen == easy]
    return written(path / "uneven.txt", f"{hard[:1801]}{'ab' * 904}{''.join(parts)}a")


def loss_on_windows(out_dir, path, text, eval_iters):
    """The loss of a saved model on the windows of such evaluations."""
    found = load_checkpoint(out_dir / "last.npz")
    s = saved_settings(found, out_dir)
    s = dataclasses.replace(s, eval_iters=eval_iters)
    part = data.Text(text.read_text(encoding="utf-8"), "", found.tokenizer)
    x, y = part.windows(s.block_size, eval_iters * s.batch_size)
    return evaluate(load_checkpoint(path).model, x, y, s.batch_size)


@pytest.mark.parametrize("before, after, easy", [(1, 0, True), (1, 0, False), (0, 1, True)])
def test_a_run_resumed_with_other_windows_judges_its_best_model_by_them(tmp_path, capsys, before,
                                                                        after, easy):
    out = tmp_path / "out"
    best = out / "ckpt.npz"
    text = uneven(tmp_path, easy)
    run(text, tmp_path / "first", "--max_iters 20")
    run(text, out, "--init_from", tmp_path / "first", f"--eval_iters {before} --max_iters 0")
    old = best.read_bytes()
    expected = loss_on_windows(out, best, text, after)
    assert (expected > state_of(best)["best"]) == (easy == (before == 1))
    assert abs(expected - state_of(best)["best"]) > 0.1
    capsys.readouterr()
    resume(out, f"--eval_iters {after} --max_iters 1 --learning_rate 0")
    said = capsys.readouterr().out
    assert f"{best} is judged anew, as this run evaluates other parts of the text" in said
    assert f": validation {expected:.3f}\n" in said
    assert state_of(out / "last.npz")["best"] == expected
    assert best.read_bytes() == old         # as the model has not changed
    resume(out, f"--eval_iters {before} --max_iters 2")
    assert state_of(out / "last.npz")["best"] == state_of(best)["best"]


@pytest.mark.parametrize("more, anew", [
    ("--eval_iters 6 --batch_size 2", False), ("--eval_iters 1000", True), ("", False)])
def test_a_best_model_is_judged_anew_only_if_the_windows_are_others(out_dir, capsys, more, anew):
    resume(out_dir, "--max_iters 41", *more.split())
    assert ("is judged anew" in capsys.readouterr().out) == anew


def test_a_best_model_that_does_not_tell_its_windows_is_judged_anew(out_dir, capsys):
    model, tokenizer, training, _ = load_checkpoint(out_dir / "ckpt.npz")
    del training["settings"]["eval_iters"]
    save_checkpoint(out_dir / "ckpt.npz", model, tokenizer, training)
    resume(out_dir, "--max_iters 41")
    assert (f"validation {training['state']['best']:.3f}\n"
            in capsys.readouterr().out.split("is judged anew", 1)[1])


@pytest.mark.parametrize("flags, steps", [
    ("--max_iters 12", [0, 10, 12]),
    ("--max_iters 12 --checkpoint_interval 0", [0, 10, 12]),
    ("--max_iters 12 --checkpoint_interval 300", [0, 12]),
    ("--max_iters 12 --checkpoint_interval 1e-9", [*range(13)])])
def test_checkpoints_are_written_at_evaluations_and_by_the_clock(small_text, tmp_path, monkeypatch,
                                                                 flags, steps):
    saved = []
    real = runs.save_checkpoint

    def save_checkpoint(path, *arguments, **more):
        if path.name == "last.npz":
            saved.append(arguments[2]["state"]["iteration"])
        real(path, *arguments, **more)
    monkeypatch.setattr(runs, "save_checkpoint", save_checkpoint)
    run(small_text, tmp_path, flags)
    assert saved == steps


def test_an_earlier_run_is_set_aside_and_not_lost(small_text, tmp_path, capsys):
    out_dir = tmp_path / "out"
    for seed in "456":
        run(small_text, out_dir, "--max_iters 0 --seed", seed)
    one, two = (out_dir / f"earlier.{n}" for n in (1, 2))
    said = capsys.readouterr().out
    assert all(f"{out_dir} held an earlier run, which is now in {folder}" in said
               for folder in (one, two))
    assert [load_checkpoint(folder / name).training["settings"]["seed"] for folder in (
        one, two, out_dir) for name in ("ckpt.npz", "last.npz")] == [4, 4, 5, 5, 6, 6]


# The end of a run

def test_a_stop_in_the_last_step_leaves_the_rest_to_the_resumed_run(
        small_text, tmp_path, monkeypatch, capsys):
    whole = tmp_path / "whole"
    cut = tmp_path / "-cut"
    run(small_text, whole, "--max_iters 20")
    reported = capsys.readouterr().out.partition("\nvalidation loss")[2]
    monkeypatch.chdir(tmp_path)
    stopped_after(20, run, small_text, "./-cut", "--max_iters 20")
    said = capsys.readouterr()
    assert "stopped after 20 steps; all is kept in" in said.err
    assert "a sample" not in said.out
    assert rows(cut)[-1][0] == "10"
    assert iteration(cut / "last.npz") == 20
    train.main(typed(said.err))
    assert losses(cut) == losses(whole)
    assert same_arrays(cut / "ckpt.npz", whole / "ckpt.npz")
    said = capsys.readouterr().out
    assert said.partition("\nvalidation loss")[2].partition("more of it")[0] == (
        reported.partition("more of it")[0])
    # The last step, but of a longer run than it was
    stopped_after(25, resume, "./-cut", "--max_iters 25")
    assert "stopped after 25 steps; all is kept in" in capsys.readouterr().err


def test_a_stop_in_the_last_evaluation_has_nothing_left_to_resume(
        small_text, tmp_path, monkeypatch, capsys):
    real = State.note_evaluation

    def note_evaluation(state, loss):
        if state.iteration == 10:
            signal.raise_signal(signal.SIGINT)
        return real(state, loss)
    monkeypatch.setattr(State, "note_evaluation", note_evaluation)
    assert refusal(SystemExit, run, small_text, tmp_path, "--max_iters 10") == "130"
    said = capsys.readouterr()
    assert "nothing is left to train" in said.err
    assert "a sample" not in said.out


def typed(said):
    """The words of the first command that is printed in a line of its own, after its program."""
    command = re.search("^    (python train.py .+)", said, re.M)[1]
    return shlex.split(command)[2:]


@pytest.mark.parametrize("flags, says, longer", [
    ("", "--max_iters 40 counts all of a run", "80"),
    ("--max_iters 0", "--max_iters 0 counts all", "41"),
    ("--max_iters 25", "--max_iters 25 counts all", "65"),
    ("--minutes 1e-9", "--minutes 1e-09 counts all", None)])
def test_a_run_without_a_step_left_says_so_and_how_to_go_on(out_dir, capsys, flags, says, longer):
    before = contents(out_dir)
    resume(out_dir, *flags.split())
    said = capsys.readouterr().out
    assert said.startswith(f"nothing is left to train: the run in {out_dir} has taken 40 steps in ")
    assert says in said
    assert "a sample" not in said
    assert contents(out_dir) == before
    words = typed(said)
    assert words[:4] == ["--init_from", "resume", "--out_dir", str(out_dir)]
    if longer:
        assert words[4:] == ["--max_iters", longer]
    else:
        assert words[4] == "--minutes"
        assert float(words[5]) > state_of(out_dir / "last.npz")["seconds"] / 60
    if longer == "41":
        train.main(words)
        assert rows(out_dir)[-1][0] == "41"
    assert f"    python -m model.sample --out_dir {out_dir}\n" in said


def test_a_stopped_run_is_not_ended_by_fewer_steps_than_it_has(small_text, tmp_path, capsys):
    stopped_after(13, run, small_text, tmp_path, "--max_iters 20")
    capsys.readouterr()
    before = contents(tmp_path)
    resume(tmp_path, "--max_iters 12")
    assert "has taken 13 steps" in capsys.readouterr().out
    assert contents(tmp_path) == before


def test_what_could_not_be_loaded_ends_a_run(small_text, out_dir, capsys, monkeypatch):
    before = contents(out_dir)
    monkeypatch.setattr(State, "saved", lambda state: {"x": object()})
    monkeypatch.setattr(mg.AdamW, "step", None)
    line = refused(capsys, "--data", small_text, "--out_dir", out_dir, *TINY)
    assert "no checkpoint is written, as it could not be loaded again: descriptor" in line
    assert contents(out_dir) == before


@pytest.mark.parametrize("name, value", [
    ("settings", {}),
    ("settings", {"n_layer": "1"}),
    ("settings", {"unknown": 1}),
    ("settings", {"data": "no such\nfile"}),
    ("settings", None),
    ("text", None),
    ("text", "0"),
    ("state", None),
    ("state", {}),
    ("state", {"iteration": "x"}),
    ("state", {"best": None}),
    ("state", {"losses": 3}),
    ("state", {"batches": {}}),
    ("state", {"dropout": {"bit_generator": "MT19937"}}),
    ("optimizer", None)], ids=str)
def test_a_file_without_the_record_of_a_run_is_refused(trained, tmp_path, capsys, name, value):
    model, tokenizer, training, _ = load_checkpoint(trained / "last.npz")
    if value and name != "text":
        value = training[name] | value
    training |= {name: value}
    save_checkpoint(tmp_path / "last.npz", model, tokenizer,
                    {key: kept for key, kept in training.items() if kept is not None},
                    mg.AdamW(adamw_groups(model)) if name != "optimizer" else None)
    said = cannot_resume(capsys, tmp_path)
    none = "holds a model, but no run to resume"
    words = {"state": "train anew" if value else none, "optimizer": none}
    assert said.isprintable()
    assert words.get(name, "") in said


def test_a_run_of_a_version_without_the_options_is_resumed_without_them(trained, tmp_path):
    older = arrays(trained / "last.npz")
    config, training = (json.loads(str(older[name])) for name in ("config", "training"))
    for name in list(config)[7:]:
        del config[name]
        training["settings"].pop(name, None)
    del training["settings"]["optimizer"], training["settings"]["muon_lr"]
    training["state"]["spiked"] = -20       # and with a count that it had
    older |= {"config": np.array(json.dumps(config)), "training": np.array(json.dumps(training))}
    with open(tmp_path / "last.npz", "w+b") as file:
        write_arrays(file, older.items())
    # The flags give what it has when they are unset.
    resume(tmp_path, "--max_iters 50 --n_kv_head 2")
    assert load_checkpoint(tmp_path / "last.npz").model.config.position == "learned"


def test_of_two_ranks_only_the_first_touches_the_folder(small_text, tmp_path):
    s = Settings(n_layer=1, n_embd=8, max_iters=1)
    text = data.Text.read(str(small_text))
    left = []
    for number in (0, 1):
        ranks = Ranks()
        ranks.number, ranks.size = number, 2        # which say nothing to each other
        with Folder(tmp_path / str(number)) as folder:
            one = run_of(s, text, ranks, folder=folder)
            one.begin()
            loss = one.evaluate().loss
            one.save_evaluation(loss)
            one.save("ckpt.npz")
            assert one.state.evaluated == 0
            assert math.isclose(one.state.best, loss)
            assert "; all is kept in " in describe_stop(one)
            one.state.iteration = 3
            assert "last.npz keeps the first 0, as no run could be resumed" in describe_stop(one)
        left.append({path.name for path in tmp_path.glob(f"{number}/*")})
    assert left == [{"ckpt.npz", "last.npz", "log.csv", ".lock"}, set()]


@pytest.mark.parametrize("change", [{"text": "0"}, {"settings": {"seed": 5}}, None], ids=str)
def test_the_best_model_of_another_run_is_refused_and_stays(out_dir, capsys, change):
    path = out_dir / "ckpt.npz"
    model, tokenizer, training, _ = load_checkpoint(path)
    training["state"]["best"] = 0.5             # which this run will never reach
    if not change:
        model = Transformer(dataclasses.replace(model.config, n_layer=2))
    save_checkpoint(path, model, tokenizer, training | (change or {}))
    before = contents(out_dir)
    assert f"{path} is the best model of another run" in cannot_resume(
        capsys, out_dir, "--max_iters 41")
    assert contents(out_dir) == before


# Fine-tuning: a run that starts from the weights of a checkpoint

def test_fine_tuning_starts_at_the_loss_of_the_model(trained, small_text, tmp_path, capsys):
    flags = "--init_from", trained, "--max_iters 0"
    run(small_text, tmp_path / "out", *flags, "--explain")
    assert "with the weights of" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()
    run(small_text, tmp_path / "out", *flags)
    best = load_checkpoint(trained / "ckpt.npz")
    (iteration, _, loss, _, _, seconds), = rows(tmp_path / "out")[1:]
    assert float(loss) == pytest.approx(best.training["state"]["best"], abs=1e-6)
    assert iteration == "0"
    assert seconds == "0.00"
    assert f"with the weights of {trained / 'ckpt.npz'}\ntext  " in capsys.readouterr().out
    kept = settings_in(tmp_path / "out")
    assert kept["init_from"] == str(trained / "ckpt.npz")
    assert kept["out_dir"] == str(tmp_path / "out")


@pytest.mark.parametrize("flags, lower", [
    ("--optimizer muon --muon_lr 0.5 --learning_rate 1", "--learning_rate 0.1 --muon_lr 0.05"),
    ("--learning_rate 1", "--learning_rate 0.1"),
    ("--learning_rate 0", None),
    ("--learning_rate 1e-3 --max_iters 0", None),
    ("--learning_rate 1e-3", None)])
def test_fine_tuning_that_made_the_model_worse_says_so_and_what_to_lower(
        trained, small_text, tmp_path, capsys, flags, lower):
    out = tmp_path / "out"
    run(small_text, out, "--init_from", trained, "--max_iters 10 --warmup_iters 0",
        flags)
    said = capsys.readouterr().out
    worse = f"\nwarning     no step made the model better, and {out / 'ckpt.npz'} is still the one"
    assert (worse in said) == ("no step made" in said) == (lower is not None)
    assert (f"; train anew with lower rates, as with {lower}, or on" in said) == (lower is not None)
    assert "longer:" not in said


@pytest.mark.parametrize("flags, minutes", [
    ("--max_iters 2", "3"), ("--minutes 0.0001 --learning_rate 1e-5", "3")])
def test_a_model_that_is_worse_than_counted_letters_is_to_be_trained_longer(
        small_text, tmp_path, capsys, flags, minutes):
    run(small_text, tmp_path / "out", flags)
    said = capsys.readouterr().out
    _, _, last = said.partition("better than the model; train it longer:\n    ")
    assert typed(f"    {last}") == ["--init_from", "resume", "--out_dir", str(tmp_path / "out"),
                                    "--minutes", minutes]
    assert said.index("more of it:") < said.index("train it longer:")


@pytest.mark.parametrize("text", ["small_text", "new_text"])
def test_a_model_in_float64_is_fine_tuned_in_float32_and_resumed_in_its_own(
        trained, tmp_path, capsys, request, text):
    text = request.getfixturevalue(text)
    known = load_checkpoint(trained / "ckpt.npz")
    wide = Transformer(known.model.config, dtype=np.float64)
    wide.load_state_dict(known.model.state_dict())
    save_checkpoint(tmp_path / "ckpt.npz", wide, known.tokenizer)
    flags = "--max_iters 1 --optimizer muon"
    run(text, tmp_path / "out", "--init_from", tmp_path, flags)
    assert "\nrounded     the weights, from float64 to float32" in f"\n{capsys.readouterr().out}"
    run(text, tmp_path / "same", "--init_from", trained, flags)
    assert same_arrays(tmp_path / "out" / "last.npz", tmp_path / "same" / "last.npz")
    wide.norm.weight.data[0] = 1e39
    save_checkpoint(tmp_path / "ckpt.npz", wide, known.tokenizer)
    assert "norm.weight of the model to fine-tune has numbers that are too large for float32" in \
        refused(capsys, "--data", text, "--out_dir", tmp_path / "no", "--init_from", tmp_path)


@pytest.mark.parametrize("made", [False, True], ids=["of a run", "made in Python"])
def test_fine_tuning_may_start_in_its_own_folder_and_be_resumed(out_dir, new_text, made):
    known = load_checkpoint(out_dir / "last.npz")
    if made:
        config = dataclasses.replace(known.model.config, rotary_base=10000, norm_eps=1)
        save_checkpoint(out_dir / "ckpt.npz", Transformer(config), known.tokenizer)
    before = (out_dir / "ckpt.npz").read_bytes()
    moved = out_dir / "earlier.1" / "ckpt.npz"
    run(new_text, out_dir, "--init_from", out_dir, "--max_iters 1")
    assert moved.read_bytes() == before
    resume(out_dir, "--max_iters 2")
    assert rows(out_dir)[-1][0] == "2"
    assert settings_in(out_dir)["init_from"] == str(moved)


def test_a_run_on_several_texts_is_that_on_one(trained, small_text, tmp_path, monkeypatch, capsys):
    whole = small_text.read_text(encoding="utf-8")
    folder = tmp_path / "texts"
    half = whole.index("\n", len(whole) // 2)
    (folder / "drafts").mkdir(parents=True)
    for name, part in (("1.txt", whole[:half]), ("2.md", whole[half + 1:])):
        written(folder / name, part)
    run(folder, tmp_path / "folder", "--max_iters 40")
    said = capsys.readouterr().out
    assert said.startswith(f"files       {half:9,} characters in {folder / '1.txt'}\n")
    assert f"not taken: what is in {folder / 'drafts'}\ntext        of 2 files: " in said
    assert losses(tmp_path / "folder") == losses(trained)
    assert same_arrays(tmp_path / "folder" / "last.npz", trained / "last.npz")
    settings = settings_in(tmp_path / "folder")
    assert settings["data"] == [str(folder / "1.txt"), str(folder / "2.md")]

    monkeypatch.chdir(folder)
    run("1.txt", tmp_path / "words", "--data 2.md --max_iters 0")
    monkeypatch.chdir(tmp_path)
    written(folder / "later.txt", "later")          # which this run has not read
    resume(tmp_path / "words", "--max_iters 1")
    shutil.rmtree(folder)
    line = cannot_resume(capsys, tmp_path / "words", "--max_iters 1")
    assert f'"{folder / "1.txt"}" is neither a known text' in line
    assert "with --data FILE" in line
    resume(tmp_path / "words", "--data", small_text, "--max_iters 2")
    settings = settings_in(tmp_path / "words")
    assert settings["data"] == str(small_text)
    assert "the text of 2 files is not the one that the run in" in cannot_resume(
        capsys, tmp_path / "words", "--data", small_text, "lantern")


# Steps that are not finite

BLOWN_UP = "--learning_rate 1e30 --max_iters 50 --grad_clip 0 --warmup_iters 0"


@contextlib.contextmanager
def poisoned(*when):
    """Have the gradients of such steps come with a loss of nan; a list gets the true losses."""
    losses = []
    real = runs.Step.is_finite

    def is_finite(step):
        losses.append(step.loss)
        if len(losses) in when:
            step.loss = math.nan
        return real(step)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs.Step, "is_finite", is_finite)
        yield losses


def after_step(patch, number, change):
    """Have AdamW change something after one of its steps."""
    real = mg.AdamW.step

    def step(optimizer):
        real(optimizer)
        if optimizer.steps == number:
            change(optimizer)
    patch.setattr(mg.AdamW, "step", step)


@pytest.mark.parametrize("more", ["", "--gradient_accumulation_steps 2 --dropout 0.2"])
def test_a_step_that_is_not_finite_ends_the_run_and_is_repeated(small_text, tmp_path, capsys, more,
                                                                monkeypatch):
    out_dir = tmp_path / "out"
    line = refusal(SystemExit, run, small_text, out_dir, BLOWN_UP, *more.split())
    said = capsys.readouterr().err
    assert line.startswith("train.py: the loss of step 2 is ")
    for part in ("so the run ends", "a lower --learning_rate (it was 1e+30, and 0.004 is usual)",
                 "--grad_clip 1", f"the best model so far is in {out_dir / 'ckpt.npz'}",
                 f"--init_from resume --out_dir {out_dir} resumes after step 0",
                 f"python -m model.replay --out_dir {out_dir}"):
        assert part in line
    assert "first in   linear, going forward at minigrad/nn.py:" in said
    assert "beyond the largest float32" in said
    assert len(rows(out_dir)) == 2
    assert not re.search("nan|inf", (out_dir / "log.csv").read_text())
    assert iteration(out_dir / "last.npz") == 0

    monkeypatch.setattr(compiled, "announce", lambda label: print(f"{label} 3 kernels"))
    replay.main(["--out_dir", str(out_dir)])
    again = capsys.readouterr().out
    finding = said.partition("the loss of step 2")[2].partition("\n")[2].rstrip()
    assert again.startswith("compiling   3 kernels\n")
    assert again.count("the loss of step 2 is") == 2
    assert "the same bit for bit" in again
    assert finding in again
    remedy = line.partition("repeats the first such step.  ")[2].partition("; the best")[0]
    assert again.endswith(f"\n\n{remedy}\n")
    assert "a lower --learning_rate" in remedy
    run(small_text, out_dir, "--max_iters 0")
    assert (out_dir / "earlier.1" / "nan.npz").exists()
    assert not (out_dir / "nan.npz").exists()


@pytest.mark.parametrize("eval_iters, count", [(1, 3), (2, 6), (0, 33)])
def test_windows_are_those_of_as_many_batches_as_eval_iters_says_and_for_0_all(eval_iters, count):
    of = small_run("to be or not\n" * 200, block_size=8, batch_size=3, eval_iters=eval_iters)
    assert [len(part) for part in of.windows] == [count, count]


def test_numbers_beyond_all_bounds_are_told_without_warnings_of_numpy(small_text, tmp_path):
    flags = "--learning_rate 1e300 --warmup_iters 0 --eval_interval 1"
    assert "validation loss after step 1 is nan" in refusal(SystemExit, run, small_text, tmp_path,
                                                            flags)


def test_a_run_that_ended_at_a_nan_is_resumed_as_if_without(small_text, tmp_path):
    run(small_text, tmp_path / "whole", "--max_iters 20")
    ends = pytest.raises(SystemExit, match="the loss of step 14 is nan.*resumes after step 10")
    with poisoned(14), ends:
        run(small_text, tmp_path / "cut", "--max_iters 20")
    resume(tmp_path / "cut")
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    assert same_arrays(tmp_path / "cut" / "last.npz", tmp_path / "whole" / "last.npz")


def test_a_skipped_step_changes_nothing(small_text, tmp_path, capsys, monkeypatch):
    flags = "--max_iters 20 --dropout 0.1 --on_nan skip"
    with poisoned(3, 14) as true_losses:
        run(small_text, tmp_path / "skipped", flags)
    said = capsys.readouterr()
    with monkeypatch.context() as patch:            # the same draws, and nothing done with them
        real = mg.AdamW.step
        steps = []

        def step(optimizer):
            steps.append(optimizer)
            if len(steps) not in (3, 14):
                real(optimizer)
        patch.setattr(mg.AdamW, "step", step)
        run(small_text, tmp_path / "idle", flags)
    assert same_arrays(tmp_path / "skipped" / "last.npz", tmp_path / "idle" / "last.npz")
    assert [row[-1] for row in rows(tmp_path / "skipped")] == ["skipped", "0", "1", "2"]
    assert [line[6] for line in read_log(tmp_path / "skipped" / "log.csv")[0]] == [0, 1, 2]
    assert said.err.count("is skipped") == said.err.count("the loss of step 3 is nan") == 1
    assert "step 14" not in said.err
    assert said.out.count(", 2 steps skipped") == 1
    assert "of 20 steps 2 were skipped" in said.out

    # Kept are the weights, the batch and the generators as they were before the step.
    model, _, training, _ = load_checkpoint(tmp_path / "skipped" / "nan.npz")
    bad = restore_step(training)
    now, _ = repeat(bad, model)
    assert (bad.number, training["state"]["iteration"], now.loss) == (3, 2, true_losses[2])

    with poisoned(3):
        run(small_text, tmp_path / "cut", flags, "--max_iters 10 --lr_decay_iters 20")
    with poisoned(4):
        resume(tmp_path / "cut", "--max_iters 20")
    assert "resumed after step 10, 1 step skipped" in capsys.readouterr().out
    assert same_arrays(tmp_path / "cut" / "last.npz", tmp_path / "skipped" / "last.npz")
    assert rows(tmp_path / "cut")[-1][:4] == rows(tmp_path / "skipped")[-1][:4]


def test_after_many_skipped_steps_a_run_ends_and_is_resumed_from_before_them(small_text, tmp_path):
    with poisoned(*range(2, 22)):
        line = refusal(SystemExit, run, small_text, tmp_path, "--max_iters 50 --on_nan skip "
                       "--checkpoint_interval 1e-9 --eval_interval 1000")
    kept = state_of(tmp_path / "last.npz")
    assert "the loss of step 21 is" in line
    assert "after 20 skipped steps in a row" in line
    assert kept["skipped_in_row"] == 0
    assert f"after step {kept['iteration']}, " in line
    assert load_checkpoint(tmp_path / "nan.npz").training["nan"]["step"] == 2
    resume(tmp_path, "--learning_rate 1e-3 --max_iters 5")
    assert rows(tmp_path)[-1][0] == "5"


@pytest.mark.parametrize("spoil, last", [
    (lambda adamw: adamw.param_groups[0]["params"][0].data.fill(math.inf), "loss of step 8 is nan"),
    (lambda adamw: next(iter(adamw.v.values())).fill(math.inf), None)])  # which stops its weights
def test_what_is_not_finite_replaces_no_checkpoint_and_that_is_said(small_text, tmp_path, capsys,
                                                                    monkeypatch, spoil, last):
    after_step(monkeypatch, 7, spoil)
    ends = pytest.raises(SystemExit, match=last) if last else contextlib.nullcontext()
    with ends:
        run(small_text, tmp_path, "--max_iters 10 --checkpoint_interval 1e-9")
    assert iteration(tmp_path / "last.npz") == 6
    assert ("last.npz is not written after step 7: a weight or the optimiser's state is nan or inf"
            in capsys.readouterr().err)


@pytest.mark.parametrize("on_nan", ["stop", "skip"])
def test_a_validation_loss_of_nan_ends_the_run(small_text, tmp_path, capsys, monkeypatch, on_nan):
    def spoil(optimizer):
        optimizer.param_groups[0]["params"][-1].data[0, 0] = math.nan
    after_step(monkeypatch, 10, spoil)
    out_dir = tmp_path / "out"
    line = refused(capsys, "--data", small_text, "--out_dir", out_dir, *TINY,
                   "--max_iters 20 --on_nan", on_nan, "--always_save_checkpoint")
    assert "the validation loss after step 10 is nan, so the run ends" in line
    assert "resumes after step 0" in line
    assert [row[0] for row in rows(out_dir)] == ["iter", "0"]
    for name in ("ckpt.npz", "last.npz"):
        kept = load_checkpoint(out_dir / name)
        assert kept.training["state"]["iteration"] == 0
        assert all(np.isfinite(p.data).all() for p in kept.model.parameters())
    capsys.readouterr()
    replay.main(["--out_dir", str(out_dir)])
    said = capsys.readouterr().out
    assert "the same bit for bit" in said
    assert "first in   mlp, going forward at model/layers.py:" in said
    assert "the weight blocks.0.mlp.down.weight is not finite before the step: 1 of its" in said


# Runs by the clock

def iterations(out_dir):
    return [int(row[0]) for row in rows(out_dir)[1:]]


@pytest.mark.parametrize("flags, ends", [
    (["--minutes 0.05", "--max_iters 40", "--minutes 0.2", "--minutes 0.3 --max_iters 50"],
     [12, 40, 48, 50]),
    (["--minutes 0.1 --max_iters 15"], [15]),
    (["--minutes 0.1 --max_iters 50"], [24]),
    (["--minutes 0.001"], [1])])
def test_a_run_ends_when_it_is_told_now(small_text, tmp_path, capsys, steady, flags, ends):
    run(small_text, tmp_path, flags[0])
    said = capsys.readouterr().out
    assert "\n            (evaluating, compiling and saving not counted)\n" in said
    assert "inf" not in said
    assert "None" not in said
    assert iterations(tmp_path) == [i for i in range(0, ends[0], 10)] + ends[:1]
    for more, end in zip(flags[1:], ends[1:]):
        resume(tmp_path, more)
        assert iterations(tmp_path)[-1] == end
    assert float(rows(tmp_path)[-1][-1]) == ends[-1] / 4
