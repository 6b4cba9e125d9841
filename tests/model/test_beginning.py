"""How a run begins: which weights it starts from, what it says of them, and how much memory a step
needs."""
from dataclasses import replace
from types import SimpleNamespace

import numba
import numpy as np
import pytest

import data
import minigrad as mg
import train
from minigrad import machine
from model import (CharTokenizer, CheckpointError, Transformer, TransformerConfig,
                   UnknownCharacterError, save_checkpoint)
from model.checkpoint import Checkpoint, checkpoint_path
from model.beginning import (Beginning, check_memory, describe_initial, load_initial, prepare,
                             saved_settings, take_weights, training_bytes, extend_tokenizer)
from model.command import Parser
from model.count import sizes
from model.folder import Folder
from model.processes import Ranks
from model.run import adamw_groups, make_optimizer
from model.settings import Settings
from tests import kit
from tests.kit import at_home, refusal, refused, split, written


SMALL = TransformerConfig(5, block_size=6, n_layer=1, n_head=2, n_embd=8)


def small(seed, **changed):
    return Transformer(replace(SMALL, **changed), seed)


# The three ways to begin

def ways(trained):
    """The flags of a run that begins in each way, and one that contradicts a model of `TINY`."""
    return {"from scratch": ("--n_head 3", "3 heads"),
            "resumed": (f"--init_from resume --out_dir {trained} --n_layer 7", "cannot become 7"),
            "fine-tuned": (f"--init_from {trained} --n_layer 7", "cannot become 7")}


@pytest.mark.parametrize("way", ["from scratch", "resumed", "fine-tuned"])
def test_prepare_names_a_text_that_cannot_be_read_beside_every_other_mistake(way, trained, tmp_path,
                                                                             capsys):
    flags, says = ways(trained)[way]
    nowhere = tmp_path / "nowhere.txt"
    words = split([*flags.split(), "--data", nowhere, "--learning_rate", "-1"])
    refusal(SystemExit, train.main, words)
    *_, of_flag, of_model, of_text = capsys.readouterr().err.splitlines()
    assert "--learning_rate is at least 0" in of_flag
    assert says in of_model
    assert f'"{nowhere}" is neither a known text' in of_text


@pytest.mark.parametrize("way, module, name", [
    ("from scratch", data, "read_texts"),
    ("from scratch", data, "Text"),
    ("resumed", data, "digest"),
    ("resumed", data, "Text"),
    ("fine-tuned", CharTokenizer, "without_unknown"),
    ("fine-tuned", data, "Text")])
def test_prepare_says_that_it_is_the_text_that_needs_too_much_memory(
        way, module, name, trained, small_text, tmp_path, monkeypatch, capsys):
    def fail(*_):
        raise MemoryError
    monkeypatch.setattr(module, name, fail)
    flags, _ = ways(trained)[way]
    said = refused(capsys, "--data", small_text, "--out_dir", tmp_path, *flags.split())
    assert said == "train.py: there is not enough memory for the text; give a shorter one"


def test_make_model_is_that_of_the_run_or_new_with_the_weights_of_the_initial_one(small_text):
    text = data.Text.read(str(small_text))
    s = Settings(n_layer=1, n_head=2, n_embd=8, block_size=6, seed=3)
    known = Transformer(replace(SMALL, vocab_size=text.tokenizer.vocab_size, rotary_base=77.0), 1)
    checkpoint = Checkpoint(known, text.tokenizer, {}, {})
    assert Beginning(s, text, resumed=checkpoint).make_model() is known
    tuned = Beginning(s, text, initial=checkpoint)
    new = Beginning(s, text)
    assert tuned.make_model().config == tuned.model_config() == known.config
    assert new.make_model().config == new.model_config() == s.model_config(known.config.vocab_size)
    expected = Transformer(new.model_config(), seed=3)
    for ours, other in ((tuned, known), (new, expected)):
        weights = zip(ours.make_model().parameters(), other.parameters(), strict=True)
        assert all(np.array_equal(p.data, q.data) for p, q in weights)


@pytest.mark.parametrize("flag, of_a_rank, taken", [
    (0, 0, []), (1, 0, [1]), (0, 3, [3]), (1, 3, [1])])
def test_prepare_takes_the_threads_of_the_flag_or_else_a_ranks_share(monkeypatch, tmp_path, flag,
                                                                     of_a_rank, taken):
    class Some(Ranks):
        threads = of_a_rank
    found = []
    monkeypatch.setattr("minigrad.compiled.set_threads", found.append)
    text = written(tmp_path / "t.txt", "to be or not\n" * 99)
    parser = Parser("train.py", "", Settings)
    given, mistakes = parser.read(["--data", str(text), "--threads", str(flag)])
    prepare(given, mistakes, parser, Folder(tmp_path), Some())
    assert found == taken


# Fine-tuning

def test_a_folder_stands_for_the_best_model_of_its_run(tmp_path, monkeypatch):
    at_home(monkeypatch, tmp_path)
    path = tmp_path / "out" / "ckpt.npz"
    model = small(1)
    save_checkpoint(path, model, CharTokenizer("abcde"), {"text": "x"},
                    mg.AdamW(model.parameters(), lr=0.1))
    for name in (path.parent, path, "~/out"):
        assert checkpoint_path(str(name)) == path
        found = load_initial(str(name))
        assert found.model.config == SMALL and found.training == {"text": "x"}
        assert found.optimizer == {}        # a new run has a new one


@pytest.mark.parametrize("name, says", [
    ("resum", "did you mean resume?"),
    ("gpt2", "there is no checkpoint gpt2/ckpt.npz; give one, or the folder of a run"),
    ("no/ckpt.npz", "there is no checkpoint no/ckpt.npz; "),
    (".", "there is no checkpoint ckpt.npz; "), (5000 * "a", "File name too long"),
    ("gpt2.safetensors", "gpt2.safetensors is a safetensors file: python -m model.convert "),
    ("folder", "folder is a folder of Hugging Face: python -m model.convert folder out_folder "),
    ("cut.npz", "cut.npz is damaged or no checkpoint: ")])
def test_a_name_of_no_checkpoint_is_answered_with_a_remedy(name, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for other in ("gpt2.safetensors", "cut.npz", "folder/config.json"):
        written(tmp_path / other, "other")
    said = refusal(CheckpointError, load_initial, name)
    assert said.startswith(f"--init_from {name} is neither scratch nor resume; ") and says in said
    assert "--out_dir" not in said


def test_characters_that_are_new_come_last_and_the_others_keep_their_ids():
    known = CharTokenizer.of("zba")
    tokenizer, new = extend_tokenizer("abcYca", known)
    assert tokenizer.vocabulary == "zbaYc" and [*new.items()] == [("c", 2), ("Y", 1)]
    assert known.vocabulary == "zba"
    with pytest.raises(UnknownCharacterError):
        known.encode("c")
    assert extend_tokenizer("abba", known) == (known, {})


@pytest.mark.parametrize("tied", [True, False])
def test_weights_and_the_first_positions_are_taken_and_rows_of_new_characters_stay_as_drawn(tied):
    known, model, drawn = small(1, tied=tied), *(small(2, tied=tied, vocab_size=7) for _ in "ab")
    take_weights(model, known)
    theirs = known.state_dict()
    fresh = drawn.state_dict()
    taken = model.state_dict()
    tables = {name for name in taken if taken[name].shape != theirs[name].shape}
    if tied:
        assert tables == {"token_embedding.weight"}
    else:
        assert tables == {"token_embedding.weight", "lm_head.weight"}
    for name in taken:
        assert np.array_equal(taken[name][:5] if name in tables else taken[name], theirs[name])
    for name in tables:
        assert np.array_equal(taken[name][5:], fresh[name][5:])
    shared = dict(known.named_parameters())
    for name, p in model.named_parameters():        # else a large model would need twice the memory
        assert (p.data is shared[name].data) == (name not in tables)
    shorter = small(2, tied=tied, block_size=4)
    ids = np.array([[0, 1, 2, 4]])
    take_weights(shorter, known)
    assert np.array_equal(shorter(ids).data, known(ids).data)


def test_a_run_says_what_it_starts_from(tmp_path):
    path = tmp_path / "a\nb.npz"
    assert describe_initial(path, SMALL, 6, {}) == f"with the weights of {tmp_path}/a\\nb.npz"
    assert describe_initial(path, SMALL, 4, dict.fromkeys("ABCDEFG", 1_000)).splitlines()[1:] == [
        "            7 characters that it does not know, with new rows at the end of its table: "
        "'A' (1,000), 'B' (1,000), 'C' (1,000), 'D' (1,000), 'E' (1,000) and 2 more",
        "            of its 6 positions, the first 4"]
    assert "positions" not in describe_initial(path, replace(SMALL, position="rotary"), 4, {})


@pytest.mark.parametrize("saved, says", [
    ({"window": 3}, "there is no --window"),
    ({"n_layer": "x" * 500}, "--n_layer takes a whole"),
    ({"seed": None}, "--seed takes a whole number"),
    ({"rate\n": 1}, r"there is no --rate\n")])
def test_saved_settings_takes_those_that_can_be_used_and_refuses_others(saved, says):
    older = {"n_layer": 2, "threads": 10 ** 6, "data": ["a", "b"], "reduce": "exact",
             "replay": None, "log_interval": 10, "n_inner": 9, "tied": False}
    s = saved_settings(SimpleNamespace(training={"settings": older}), "out")
    assert s == Settings(recipe="gpt2", n_layer=2, data=("a", "b"), threads=s.threads)
    assert s.problems() == []
    said = refusal(ValueError, saved_settings, SimpleNamespace(training={"settings": saved}), "out")
    assert said.startswith("the run in out has settings that this ")
    assert "; train" in said
    assert says in said
    assert len(said) < 400


# Memory

@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="plain NumPy keeps the (T, T) of attention")
@pytest.mark.parametrize("batch_size, config", [
    (12, TransformerConfig(65, 64, 4, 4, 128)), (2, TransformerConfig(65, 256, 2, 4, 128)),
    (4, TransformerConfig(1000, 64, 2, 2, 64, dropout=0.2)),
    (8, TransformerConfig(30, 32, 6, 2, 32, bias=True)),
    (16, TransformerConfig(65, 64, 4, 4, 64, n_kv_head=1, norm="rms_gain", activation="swiglu",
                           n_inner=512, tied=False)),
    (4, TransformerConfig(65, 64, 4, 4, 64, activation="gelu_tanh", n_inner=64))])
def test_the_bytes_of_a_step_are_those_that_are_allocated_to_a_quarter(batch_size, config):
    rng = np.random.default_rng(0)

    def train():
        model = Transformer(config)
        optimizer = mg.AdamW(adamw_groups(model))
        for _ in range(2):
            ids = rng.integers(config.vocab_size, size=(batch_size, config.block_size))
            logits = model(ids, rng=rng)
            mg.cross_entropy(logits, ids).backward()
            optimizer.step()
            optimizer.zero_grad()
    train()             # so that what is compiled is not counted
    with kit.memory() as allocated:
        train()
    assert 0.8 < training_bytes(config, "adamw", batch_size) / allocated[0] < 1.25


@pytest.mark.parametrize("ahead", [1, 3])
def test_what_looks_ahead_adds_the_bytes_that_are_allocated_for_it_to_a_quarter(ahead):
    config = TransformerConfig(1000, 64, 1, 2, 64)
    ids = np.zeros((4, 64), int)

    def train(number):
        model = Transformer(config)
        model.look_ahead(number, seed=0)
        optimizer = mg.AdamW(adamw_groups(model))
        for _ in range(2):
            model.loss(ids, ids, ahead=0.5).backward()
            optimizer.step()
            optimizer.zero_grad()
    train(ahead)        # so that what is compiled is not counted
    allocated = []
    for number in (0, ahead):
        with kit.memory() as bytes_of:
            train(number)
        allocated.append(bytes_of[0])
    added = training_bytes(config, "adamw", 4, ahead) - training_bytes(config, "adamw", 4)
    assert 0.8 < added / (allocated[1] - allocated[0]) < 1.25


@pytest.fixture
def limited(monkeypatch):
    """Have so much memory."""
    return lambda limit: monkeypatch.setattr(machine, "memory_limit", lambda: float(limit))


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_step_that_needs_more_memory_than_there_is_is_refused(limited, optimizer):
    s = Settings(batch_size=64, optimizer=optimizer)
    usual = s.model_config(65)

    def refused(limit, inner=None, **changes):
        limited(limit)
        changed = replace(s, **changes)
        config = replace(changed.model_config(65), n_inner=inner)
        return refusal(ValueError, check_memory, changed, config)
    needed, model = (training_bytes(usual, optimizer, size) for size in (64, 0))
    limited(needed)
    check_memory(s, usual)
    assert refused(needed, batch_size=65).startswith("--batch_size 65, --block_size 64, ")
    assert "--gradient_accumulation_steps 2 need" in refused(needed, gradient_accumulation_steps=2)
    assert "--n_layer 4, --n_embd 128 need" in refused(model - 1)
    assert "--n_embd 128, --ngram_rows 8192 need" in refused(model, ngrams=2)
    assert "TB of memory" in refused(1e9, inner=10 ** 9)
    for config in (usual, TransformerConfig(30, 32, 6, 2, 32, bias=True, ngrams=3)):
        of_state = (a for *_, a in make_optimizer(Transformer(config), s).state())
        numbers = 2 * sizes.parameters(config) + sum(a.size for a in of_state)
        assert training_bytes(config, optimizer, 0) == 4 * numbers
