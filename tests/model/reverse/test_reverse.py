"""Reversing and sorting: what is kept out of training, that it is learnt, and the command."""
import dataclasses
import itertools
import re
import signal
import sys
import time

import numba
import numpy as np
import pytest

import train
from data import files
from model import load_checkpoint, sample
from model.count import __main__ as count
from model.replay import __main__ as replay
from model.reverse import __main__ as reverse
from model.reverse.encoder_decoder import BEGIN, END, PAD, EncoderDecoder
from model.reverse.__main__ import (Settings, as_ids, is_kept_out, new_model, random_strings,
                                    unseen_strings)
from tests.kit import compiled_only, memory, nobody_reads, refused

SMALL = Settings(block_size=5, n_embd=24)
SHORT = dataclasses.replace(SMALL, block_size=4, max_iters=200, warmup_iters=20)    # the shortest
TINY = ["--max_iters", "4", "--eval_interval", "2", "--block_size", "4", "--n_embd", "8"]


@pytest.fixture(autouse=True)
def one_thread():
    """What the command does for itself, and does to the process."""
    numba.set_num_threads(1)


@pytest.fixture(scope="module")
def unseen():
    """The strings by which SHORT is judged, and TINY, whose strings are as short: found once."""
    found = unseen_strings(SHORT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reverse, "unseen_strings", lambda s: found)
        yield found


def test_it_learns_to_reverse_99_percent_of_the_strings_that_it_has_not_seen(monkeypatch, unseen):
    seen = set()
    training_loss = reverse.training_loss

    def noting(model, task, texts, rng):
        seen.update(texts)
        return training_loss(model, task, texts, rng)
    monkeypatch.setattr(reverse, "training_loss", noting)
    model = new_model(SHORT)
    assert reverse.count_right(model, "reverse", unseen) == 0
    reverse.train(SHORT, model, unseen)
    assert len(set(unseen)) == 2000 and len(seen) > 6000 and not seen & set(unseen)
    assert reverse.count_right(model, "reverse", unseen) >= 0.99 * len(unseen)


def test_training_sees_no_string_that_is_kept_out_and_a_tenth_is_and_the_seed_draws_them(unseen):
    assert all(map(is_kept_out, unseen))
    assert unseen_strings(SMALL, 50) == unseen_strings(SMALL, 60)[:50]
    assert unseen_strings(SMALL, 50) != unseen_strings(dataclasses.replace(SMALL, seed=1), 50)
    drawn = {kept_out: list(itertools.islice(random_strings(SMALL, kept_out), count))
             for kept_out, count in ((False, 3000), (True, 300))}
    assert all(is_kept_out(text) == kept_out for kept_out in drawn for text in drawn[kept_out])
    assert set(map(len, drawn[False])) == {1, 2, 3, 4, 5}
    letters = np.random.default_rng(0).integers(26, size=(20_000, 6))
    share = np.mean([is_kept_out("".join(chr(97 + i) for i in row)) for row in letters])
    assert abs(share - 0.1) < 5 * 0.3 / len(letters) ** 0.5


@compiled_only
@pytest.mark.parametrize("s", [
    SMALL, Settings(n_layer=4, n_embd=64, n_head=4), Settings(n_embd=128, batch_size=8),
    Settings(n_layer=3, bias=True, dropout=0.1)], ids=str)
def test_step_bytes_is_what_a_step_allocates_to_a_third_and_knows_judging(monkeypatch, s):
    monkeypatch.setattr(reverse, "JUDGED", 0)
    s = dataclasses.replace(s, max_iters=2)

    def train():
        model = new_model(s)
        reverse.train(s, model, [])
        return model
    train()             # so that what is compiled is not counted
    with memory() as allocated:
        model = train()
    assert 0.75 < reverse.step_bytes(s) / allocated[0] < 1.34
    texts = ["a" * s.block_size] * 200
    reverse.count_right(model, "sort", texts)
    with memory() as allocated:
        reverse.count_right(model, "sort", texts)
    monkeypatch.setattr(reverse, "JUDGED", len(texts))
    one = dataclasses.replace(s, batch_size=0)
    weights = 16 * sum(p.size for p in model.parameters())
    assert 0.75 < (reverse.step_bytes(one) - weights) / allocated[0] < 1.34


def test_step_bytes_counts_a_layer_four_times_for_a_step():
    layers = [dataclasses.replace(SMALL, n_embd=256, batch_size=0, n_layer=n) for n in (1, 2)]
    one, two = (sum(p.size for p in new_model(s).parameters()) for s in layers)
    counted = reverse.step_bytes(layers[1]) - reverse.step_bytes(layers[0])
    assert np.isclose(counted, 4 * 4 * (two - one), rtol=0.01)


def test_the_loss_is_that_of_the_letters_and_their_end_and_of_nothing_else():
    assert as_ids(["\2ba\3", "c"]).tolist() == [[BEGIN, 4, 3, END], [5, PAD, PAD, PAD]]
    model = new_model(SMALL)
    texts = ["abc", "a", "zzzzz"]
    each = [reverse.training_loss(model, "sort", [text]).item() * (len(text) + 1) for text in texts]
    mean = sum(each) / (3 + 1 + 5 + 3)
    assert np.isclose(reverse.training_loss(model, "sort", texts).item(), mean, rtol=1e-5)
    by_hand = model(as_ids(["ca"]), as_ids(["\2ac"])).data[0]           # logits after begin, a, c
    logp = by_hand - np.log(np.exp(by_hand).sum(axis=-1, keepdims=True))
    assert np.isclose(reverse.training_loss(model, "sort", ["ca"]).item(),
                      -logp[[0, 1, 2], [3, 5, END]].mean(), rtol=1e-5)


def test_the_command_says_what_it_does_and_shows_strings(capsys, unseen):
    begun = time.perf_counter()
    reverse.main([*TINY, "--n_layer", "1", "--text", "dcba", "--task", "sort"])
    said = capsys.readouterr().out
    assert "sort strings of 1 to 4 letters" in said
    assert " parameters: 1 layer to read, 1 to write, 2 heads, 8 channels\n" in said
    assert re.search(r"^step      2   loss \d\.\d{3}   right \d+ of 200 unseen strings$", said,
                     re.M)
    seconds = re.search(r"^[\d,]+ of 2,000 unseen strings are right, [\d.]+%, after (\d+) seconds "
                        r"of training$", said, re.M)
    assert int(seconds[1]) <= time.perf_counter() - begun + 1
    shown = re.findall(r"^    (\w+) +->  ([a-z?]*)(?:   wrong: (\w+))?$", said, re.M)
    assert len(shown) == 6 and shown[-1][0] == "dcba"
    for text, answer, wanted in shown:
        assert (wanted or answer) == "".join(sorted(text)) and answer != wanted


@pytest.fixture(scope="module")
def saved(tmp_path_factory, unseen):
    """The folder of a model that has hardly been trained, saved twice."""
    folder = tmp_path_factory.mktemp("reverse") / "out reverse"
    for seed in ("1", "2"):
        reverse.main([*TINY, "--seed", seed, "--out_dir", str(folder)])
    return folder


def test_the_model_is_saved_if_nobody_reads_what_the_command_says(tmp_path, unseen, monkeypatch):
    with nobody_reads(monkeypatch):
        reverse.main([*TINY, "--out_dir", str(tmp_path / "out")])
    assert (tmp_path / "out" / "ckpt.npz").exists()


def test_training_goes_on_if_nobody_reads_how_far_it_is(unseen, monkeypatch):
    s = dataclasses.replace(SHORT, max_iters=4, eval_interval=1)
    model = new_model(s)
    before = model.state_dict()
    with nobody_reads(monkeypatch):
        sys.stdout.reconfigure(line_buffering=True)     # as if many lines had filled the buffer
        reverse.train(s, model, unseen)
    assert not all(np.array_equal(a, before[name]) for name, a in model.state_dict().items())


def test_the_model_is_saved_and_an_earlier_one_is_kept(saved, unseen):
    assert {path.name for path in saved.iterdir()} == {".lock", "ckpt.npz", "earlier.1"}
    for path, seed in ((saved / "earlier.1" / "ckpt.npz", 1), (saved / "ckpt.npz", 2)):
        found = load_checkpoint(path, kinds=(EncoderDecoder,))
        assert found.tokenizer.vocabulary == reverse.VOCABULARY.vocabulary
        assert found.training["settings"]["seed"] == seed and found.training["judged"] == 2000
        assert found.training["right"] == reverse.count_right(found.model, "reverse", unseen)


@pytest.mark.parametrize("command, flags", [
    (sample, "--out_dir FOLDER"), (count, "--out_dir FOLDER"),
    (replay, "--out_dir FOLDER/ckpt.npz"),
    (train, "--init_from resume --out_dir FOLDER")])
def test_a_command_for_transformers_says_what_the_file_is(saved, capsys, command, flags):
    said = refused(capsys, *[word.replace("FOLDER", str(saved)) for word in flags.split()],
                   main=command.main)
    assert f"{saved / 'ckpt.npz'} holds an encoder-decoder" in said
    assert said.endswith(f"see it at work with python -m model.look --out_dir '{saved}'")


def test_while_it_trains_as_many_strings_are_judged_as_it_says(monkeypatch, unseen, capsys):
    monkeypatch.setattr(reverse, "count_right", lambda model, task, texts: len(texts))
    s = dataclasses.replace(SHORT, max_iters=2, eval_interval=2)
    reverse.train(s, new_model(s), unseen)
    assert capsys.readouterr().out.endswith("   right 200 of 200 unseen strings\n")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")       # of plain NumPy
def test_a_signal_while_the_model_is_saved_leaves_no_file_half_written(tmp_path, unseen,
                                                                       monkeypatch):
    before = signal.signal(signal.SIGTERM, lambda *_: None)     # or it would end the tests
    monkeypatch.setattr(files, "_to_disk", lambda number: signal.raise_signal(signal.SIGTERM))
    try:
        with pytest.raises(SystemExit) as end:
            reverse.main([*TINY, "--out_dir", str(tmp_path)])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert end.value.code == 130
    assert not [path for path in tmp_path.iterdir() if path.name != ".lock"]


def test_a_loss_that_is_no_number_ends_the_training_in_one_line(capsys, unseen):
    said = refused(capsys, *TINY, "--learning_rate", "1e30", main=reverse.main)
    assert re.fullmatch(r"model.reverse: the loss became nan at step \d; train again with a lower "
                        "--learning_rate", said)
