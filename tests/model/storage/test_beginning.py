"""A checkpoint as the beginning of a new run: where it is found, and what of it is taken."""
import numpy as np
import pytest

import minigrad as mg
from model import (CharTokenizer, CheckpointError, Transformer, TransformerConfig,
                   UnknownCharacterError, save_checkpoint)
from model.checkpoint import beginning, load_beginning, take_weights, told, with_characters_of

CONFIG = TransformerConfig(5, block_size=6, n_layer=1, n_head=2, n_embd=8)


def made(seed, **changed):
    return Transformer(TransformerConfig(**vars(CONFIG) | changed), seed)


def test_a_folder_stands_for_the_best_model_of_its_run(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "out").mkdir()
    model = made(1)
    save_checkpoint(tmp_path / "out" / "ckpt.npz", model, CharTokenizer("abcde"), {"text": "x"},
                    mg.AdamW(model.parameters(), lr=0.1))
    for name in (tmp_path / "out", tmp_path / "out" / "ckpt.npz", "~/out"):
        assert beginning(str(name)) == tmp_path / "out" / "ckpt.npz"
        found = load_beginning(str(name))
        assert found.model.config == CONFIG and found.training == {"text": "x"}
        assert found.optimizer == {}        # of a new run it is new


@pytest.mark.parametrize("name, says", [
    ("resum", "neither scratch, resume, nor a checkpoint or the folder of a run; did you mean "
              "resume?"),
    ("gpt2", "--init_from gpt2 is neither scratch, resume, nor a checkpoint or the folder of a "
             "run; give one that is there"),
    ("no/ckpt.npz", "give one that is there"), ("", "give one that is there"),
    (".", "--init_from .: the folder . has no ckpt.npz; give that of a run; to begin "
          "with another program's model, make a checkpoint of it with python -m model.convert"),
    (5000 * "a", "give one that is there"),
    ("gpt2.safetensors", "--init_from gpt2.safetensors is no checkpoint of this program; to "
                         "begin with another program's model, make a checkpoint of it with"),
    ("cut.npz", "cut.npz is damaged or no checkpoint: ")])
def test_a_name_that_stands_for_no_checkpoint_is_answered_with_what_would(name, says, tmp_path,
                                                                          monkeypatch):
    monkeypatch.chdir(tmp_path)
    for other in ("gpt2.safetensors", "cut.npz"):
        (tmp_path / other).write_bytes(b"other")
    with pytest.raises(CheckpointError) as caught:
        load_beginning(name)
    assert says in str(caught.value)


def test_characters_that_are_new_come_last_and_the_others_keep_their_ids():
    known = CharTokenizer.of("zba")
    tokenizer, new = with_characters_of("abcYca", known)
    assert tokenizer.vocabulary == "zbaYc" and [*new.items()] == [("c", 2), ("Y", 1)]
    assert known.vocabulary == "zba"
    with pytest.raises(UnknownCharacterError):
        known.encode("c")
    assert with_characters_of("abba", known) == (known, {})


@pytest.mark.parametrize("tied", [True, False])
def test_weights_are_taken_and_the_rows_of_new_characters_stay_as_drawn(tied):
    known, model, drawn = made(1, tied=tied), *(made(2, tied=tied, vocab_size=7) for _ in "ab")
    take_weights(model, known)
    theirs, fresh, taken = known.state_dict(), drawn.state_dict(), model.state_dict()
    tables = {name for name in taken if taken[name].shape != theirs[name].shape}
    assert tables == {"token_embedding.weight", *["lm_head.weight"] * (not tied)}
    for name in taken:
        assert np.array_equal(taken[name][:5] if name in tables else taken[name], theirs[name])
    for name in tables:
        assert np.array_equal(taken[name][5:], fresh[name][5:])
    its = dict(known.named_parameters())
    for name, p in model.named_parameters():        # else a large model would need twice the memory
        assert (p.data is its[name].data) == (name not in tables)


def test_of_the_positions_the_first_are_taken():
    known, model = made(1), made(2, block_size=4)
    take_weights(model, known)
    assert np.array_equal(model.position_embedding.weight.data,
                          known.position_embedding.weight.data[:4])
    ids = np.array([[0, 1, 2, 4]])
    assert np.array_equal(model(ids).data, known(ids).data)


def test_a_run_says_what_it_begins_with(tmp_path):
    path = tmp_path / "a\nb.npz"
    assert told(path, CONFIG, 6, {}) == f"with the weights of {tmp_path}/a\\nb.npz"
    assert told(path, CONFIG, 4, dict.fromkeys("ABCDEFG", 1_000)).splitlines()[1:] == [
        "            7 characters that it does not know, with new rows at the end of its table: "
        "'A' (1,000), 'B' (1,000), 'C' (1,000), 'D' (1,000), 'E' (1,000) and 2 more",
        "            of its 6 positions, the first 4"]
    rotary = TransformerConfig(**vars(CONFIG) | {"position": "rotary"})
    assert "positions" not in told(path, rotary, 4, {})
