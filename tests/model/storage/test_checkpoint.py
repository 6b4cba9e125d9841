"""Checkpoints: all of it comes back, a failed write harms nothing, and what is damaged is refused
in a line."""
import errno
import hashlib
import json
import math
import os
import pathlib
import sys
import tracemalloc
import zipfile
from dataclasses import asdict, replace

import numpy as np
import pytest

import minigrad as mg
from model.convert.tokens import TokenTokenizer
from model import (CharTokenizer, CheckpointError, EncoderDecoder, Transformer, TransformerConfig,
                   archive, generate, load_checkpoint, save_checkpoint)
from model.scoring import text_losses
from model.checkpoint import (REMEDY, load_contents, load_last, restore_optimizer, save_contents,
                              texts_of)
from token_files import byte_level

TEXT = "\0\t\n 'aé’e\u0301漢🙂\ud800\U0010ffff"       # a NUL, an accent by itself, half a pair, ...
TOKENIZER = CharTokenizer(TEXT)
CONFIG = TransformerConfig(TOKENIZER.vocab_size, block_size=5, n_layer=2, n_head=2, n_embd=4,
                           dropout=0.1, bias=True)
IDS, TARGETS = np.random.default_rng(0).integers(CONFIG.vocab_size, size=(2, 3, 5))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ckpt.npz"


@pytest.fixture
def saved(path):
    """The path of a sound checkpoint."""
    save_checkpoint(path, Transformer(CONFIG, seed=1), TOKENIZER, {"iteration": 7})
    return path


def arrays_of(path):
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def same(state, other):
    return list(state) == list(other) and all(
        a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in zip(state.values(),
                                                                          other.values()))


def refusal(path):
    """The one line that says why a file is not loaded."""
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path)
    message = str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert str(path) in message and "\n" not in message and len(message) < 400 + len(str(path))
    return message


def test_weights_configuration_and_vocabulary_come_back_bit_for_bit(saved):
    model, tokenizer, training, optimizer = load_checkpoint(saved)
    assert same(model.state_dict(), Transformer(CONFIG, seed=1).state_dict())
    assert model.config == CONFIG
    assert tokenizer.vocabulary == TOKENIZER.vocabulary
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT
    assert training == {"iteration": 7} and optimizer == {}
    assert np.array_equal(model(IDS).data, Transformer(CONFIG, seed=1)(IDS).data)


def test_a_vocabulary_in_any_order_comes_back_in_that_order(path):
    vocabulary = TOKENIZER.vocabulary[::-1]
    save_checkpoint(path, Transformer(CONFIG), CharTokenizer.of(vocabulary))
    found = load_checkpoint(path).tokenizer
    assert found.vocabulary == vocabulary and found.encode(vocabulary[:3]).tolist() == [0, 1, 2]


def test_loading_holds_the_weights_once_and_they_can_be_trained_on(path):
    tokenizer = CharTokenizer("abcdefgh")
    model = Transformer(TransformerConfig(8, 8, 2, 2, 256, bias=True), seed=1)
    save_checkpoint(path, model, tokenizer)
    size = sum(p.data.nbytes for p in model.parameters())
    tracemalloc.start()
    try:
        found = load_checkpoint(path).model
        assert tracemalloc.get_traced_memory()[1] < 1.3 * size
    finally:
        tracemalloc.stop()
    assert same(found.state_dict(), model.state_dict())
    ids = np.arange(8)
    for trained in (found, model):
        mg.cross_entropy(trained(ids), ids).backward()
        mg.AdamW(trained.parameters(), lr=1e-3).step()
    assert same(found.state_dict(), model.state_dict())


def test_the_contents_of_a_checkpoint_come_back_without_its_model_and_can_be_written(saved):
    model = Transformer(CONFIG, seed=4)
    optimizer = mg.AdamW(model.parameters(), lr=1e-3)
    save_checkpoint(saved, model, TOKENIZER, {"text": "x"}, optimizer)
    found = load_contents(saved)
    assert found.config == CONFIG and found.training == {"text": "x"}
    assert found.tokenizer.vocabulary == TOKENIZER.vocabulary
    assert same(found.weights, model.state_dict())
    other = saved.with_name("other.npz")
    save_contents(other, found)
    assert same(arrays_of(other), arrays_of(saved))


def test_contents_are_checked_like_a_model(saved):
    whole = saved.read_bytes()
    saved.write_bytes(whole[:-1])
    with pytest.raises(CheckpointError, match="is damaged or no checkpoint"):
        load_contents(saved)
    saved.write_bytes(whole)
    write(saved, arrays_of(saved) | {"model/norm.weight": np.ones(3, np.float32)})
    with pytest.raises(CheckpointError, match="norm.weight has shape"):
        load_contents(saved)


def with_tokens(path, end=0, V=270):
    """The arrays of a checkpoint of a model of tokens, whose library need not be there."""
    save_checkpoint(path, Transformer(TransformerConfig(V, 4, 1, 1, 4)),
                    CharTokenizer("".join(map(chr, range(V)))))
    arrays = {name: a for name, a in arrays_of(path).items() if name != "vocabulary"}
    return arrays | {"tokenizer": np.frombuffer(byte_level().encode(), np.uint8),
                     "end": np.array(end)}


@pytest.mark.needs("convert")
@pytest.mark.parametrize("end", [None, 0, 269])
def test_a_tokenizer_of_tokens_comes_back_with_its_end(path, end):
    tokenizer = TokenTokenizer(byte_level(), end, 270)
    save_checkpoint(path, Transformer(TransformerConfig(270, 4, 1, 1, 4)), tokenizer)
    assert np.array_equal(arrays_of(path)["end"], -1 if end is None else end)
    assert not arrays_of(path).keys() & {"vocabulary"}
    found = load_checkpoint(path).tokenizer
    assert (found.json, found.end, found.vocab_size) == (byte_level(), end, 270)
    assert found.decode(found.encode("the in")) == "the in"


@pytest.mark.needs("convert")
@pytest.mark.parametrize("changed, why", [
    ({"tokenizer": np.frombuffer(b"{}", np.uint8)}, "its tokenizer is none that the library"),
    ({"tokenizer": np.frombuffer(b"\xff", np.uint8)}, "utf-8"),
    ({"tokenizer": np.zeros(0, np.uint8)}, "its tokenizer is none that the library"),
    ({"tokenizer": np.zeros((2, 2), np.uint8)}, "its tokenizer and end are no text and number"),
    ({"tokenizer": np.zeros(2)}, "its tokenizer and end are no text and number"),
    ({"end": np.zeros(1, int)}, "its tokenizer and end are no text and number"),
    ({"end": np.array(1.0)}, "its tokenizer and end are no text and number"),
    ({"end": np.array(270)}, "its end is the id 270, and ids lie between 0 and 269"),
    ({"end": np.array(-2)}, "its end is the id -2, and"),
    ({"vocabulary": np.arange(270, dtype=np.uint32)}, "unknown vocabulary")], ids=str)
def test_a_tokenizer_of_tokens_that_does_not_fit_is_refused(path, changed, why, capfd):
    write(path, with_tokens(path) | changed)
    assert why in refusal(path) and capfd.readouterr() == ("", "")


@pytest.mark.needs("convert")
def test_a_model_of_fewer_ids_than_its_tokenizer_is_refused(path):
    write(path, with_tokens(path, V=265))
    assert "a tokenizer of 266 ids for a model of 265" in refusal(path)


def test_a_tokenizer_without_an_end_is_refused(path):
    arrays = with_tokens(path)
    del arrays["end"]
    write(path, arrays)
    assert "missing end" in refusal(path)


def test_where_the_library_of_tokens_is_missing_a_line_says_how_to_install_it(tmp_path,
                                                                              monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    for name in ("last.npz", "previous.npz"):
        write(tmp_path / name, with_tokens(tmp_path / name))
    said = refusal(tmp_path / "last.npz")
    assert "python -m pip install -e '.[convert]'" in said and REMEDY not in said
    with pytest.raises(CheckpointError, match="last.npz cannot be used: its vocabulary is of tok"):
        load_last(tmp_path)         # which is not damaged


def test_an_encoder_decoder_comes_back_bit_for_bit_where_it_is_asked_for(path):
    model = EncoderDecoder(TOKENIZER.vocab_size, 6, 1, 2, 8, 0.1, True, seed=1)
    training = {"settings": {"task": "sort"}, "right": 3, "judged": 4}
    save_checkpoint(path, model, TOKENIZER, training)
    found = load_checkpoint(path, kinds=(Transformer, EncoderDecoder))
    assert type(found.model) is EncoderDecoder and found.model.config == model.config
    assert same(found.model.state_dict(), model.state_dict()) and found.training == training
    assert found.tokenizer.vocabulary == TOKENIZER.vocabulary
    assert refusal(path) == (f"{path} holds an encoder-decoder, from python -m model.reverse, and "
                             "not a transformer, from train.py; see it at work with python -m "
                             f"model.look --out_dir {path.parent}")


def is_refused_in_little_memory(path):
    tracemalloc.start()
    try:
        return (refusal(path).startswith(f"{path} is no checkpoint of this program: ")
                and tracemalloc.get_traced_memory()[1] < 300_000)
    finally:
        tracemalloc.stop()


def test_the_configuration_of_a_transformer_is_stored_as_it_is(saved):
    assert json.loads(str(arrays_of(saved)["config"])) == asdict(CONFIG)


@pytest.mark.parametrize("changed", [
    {"n_layer": 10 ** 12}, {"n_head": 10 ** 9, "n_embd": 10 ** 9}, {"n_embd": 10 ** 9},
    {"n_embd": 0}, {"n_head": 3}, {"n_head": -2}, {"vocab_size": 10 ** 9}, {"block_size": 10 ** 9},
    {"n_layer": "1"}, {"bias": True}, {"dropout": 2}, {"position": "none"}, {"kind": "encoder"},
    {"kind": ["a"]}], ids=str)
def test_an_encoder_decoder_that_its_weights_do_not_bear_out_takes_no_memory(path, changed):
    save_checkpoint(path, EncoderDecoder(TOKENIZER.vocab_size, 6, 1, 2, 8), TOKENIZER)
    arrays = arrays_of(path)
    config = json.loads(str(arrays["config"])) | changed
    write(path, arrays | {"config": np.array(json.dumps(config))})
    assert is_refused_in_little_memory(path)


def test_a_loaded_model_learns_on(saved):
    model = load_checkpoint(saved).model
    optimizer = mg.AdamW(model.parameters())
    before = model.state_dict()
    mg.cross_entropy(model(IDS), TARGETS).backward()
    optimizer.step()
    assert not any(np.array_equal(a, before[name]) for name, a in model.state_dict().items())


def test_special_floats_among_the_weights_come_back(path):
    model = Transformer(CONFIG)
    odd = np.array([math.nan, math.inf, -math.inf, -0.0], np.float32)
    model.norm.weight.data[...] = odd
    save_checkpoint(path, model, TOKENIZER, finite=False)
    found = load_checkpoint(path, finite=False)
    assert found.model.norm.weight.data.tobytes() == odd.tobytes()
    assert "model/norm.weight holds nan or inf; its training may have diverged" in refusal(path)


def test_whatever_training_keeps_comes_back(path):
    rng = np.random.default_rng(5)
    rng.random(3)
    training = {"settings": {"data": "it’s \"here\"\\n", "learning_rate": 1e-3, "stop": None},
                "best": math.inf, "iteration": 12, "rng": rng.bit_generator.state,
                "losses": [0.1 + 0.2, 1e-300], "done": False}
    save_checkpoint(path, Transformer(CONFIG), TOKENIZER, training)
    found = load_checkpoint(path).training
    assert found == training
    again = np.random.default_rng()
    again.bit_generator.state = found["rng"]
    assert np.array_equal(again.random(10), rng.random(10))


def test_the_texts_of_a_run_are_one_or_several_or_not_named():
    assert texts_of({"settings": {"data": "a b"}}) == ("a b",)
    assert texts_of({"settings": {"data": ["a", "b"]}}) == ("a", "b")
    assert texts_of({"settings": {}}) == texts_of({}) == ()


def test_without_training_there_is_an_empty_record(path):
    save_checkpoint(path, Transformer(CONFIG), TOKENIZER)
    assert load_checkpoint(path).training == {}


def test_a_configuration_of_numpy_numbers_can_be_saved(path):
    config = TransformerConfig(np.int64(CONFIG.vocab_size), np.int32(4), 1, 1, np.int64(4),
                               np.float32(0.25))
    assert {type(number) for number in vars(config).values()} <= {int, float, bool, str, type(None)}
    save_checkpoint(path, Transformer(config), TOKENIZER)
    assert load_checkpoint(path).model.config == config


def optimizer_of(model, reverse=False):
    """AdamW in two groups, matrices decayed and the rest not, in one order or the other."""
    parameters = model.parameters()
    groups = [{"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.1},
              {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0}]
    if reverse:
        groups = [group | {"params": group["params"][::-1]} for group in groups[::-1]]
    return mg.AdamW(groups, lr=1e-2)


def steps(model, optimizer, n):
    for _ in range(n):
        optimizer.zero_grad()
        mg.cross_entropy(model(IDS), TARGETS).backward()
        optimizer.step()


@pytest.mark.parametrize("saved_reversed", [False, True])
@pytest.mark.parametrize("restored_reversed", [False, True])
def test_a_resumed_run_goes_on_as_if_never_stopped(path, saved_reversed, restored_reversed):
    whole = Transformer(CONFIG, seed=2)
    optimizer = optimizer_of(whole, saved_reversed)
    steps(whole, optimizer, 3)
    save_checkpoint(path, whole, TOKENIZER, {"iteration": 3}, optimizer)
    steps(whole, optimizer, 3)
    resumed, _, training, state = load_checkpoint(path)
    optimizer = optimizer_of(resumed, restored_reversed)
    restore_optimizer(optimizer, resumed, state, training["iteration"])
    steps(resumed, optimizer, 3)
    assert same(resumed.state_dict(), whole.state_dict())


def test_the_state_of_the_optimiser_is_kept_under_the_names_of_the_parameters(path):
    model = Transformer(CONFIG)
    optimizer = optimizer_of(model, reverse=True)
    steps(model, optimizer, 2)
    save_checkpoint(path, model, TOKENIZER, optimizer=optimizer)
    state = load_checkpoint(path).optimizer
    ordered = [p for group in optimizer.param_groups for p in group["params"]]
    places = {id(p): i for i, p in enumerate(ordered)}
    assert set(state) == {f"{kind}/{name}" for kind in "mv" for name in model.state_dict()}
    for name, p in model.named_parameters():
        assert np.array_equal(state[f"m/{name}"], optimizer.m[places[id(p)]])
        assert np.array_equal(state[f"v/{name}"], optimizer.v[places[id(p)]])


def test_a_checkpoint_is_plain_arrays_under_documented_names(path):
    model = Transformer(CONFIG)
    save_checkpoint(path, model, TOKENIZER, {"iteration": 1}, mg.AdamW(model.parameters()))
    arrays = arrays_of(path)                    # which allows no pickle
    names = list(model.state_dict())
    assert set(arrays) == {"version", "config", "vocabulary", "training",
                           *(f"model/{n}" for n in names),
                           *(f"optimizer/{kind}/{n}" for kind in "mv" for n in names)}
    assert not any(a.dtype.hasobject for a in arrays.values())
    assert json.loads(str(arrays["config"])) == {
        "vocab_size": CONFIG.vocab_size, "block_size": 5, "n_layer": 2, "n_head": 2, "n_embd": 4,
        "dropout": 0.1, "bias": True, "n_kv_head": None, "position": "learned", "norm": "layer",
        "qk_norm": False, "activation": "gelu", "zero_init": False,
        "ngrams": 1, "ngram_rows": 8192, "ngram_dropout": 0.0, "norm_eps": 1e-5, "n_inner": None,
        "attention_bias": None, "mlp_bias": None, "rotary_base": 10000.0, "tied": True}
    assert arrays["vocabulary"].tolist() == sorted(map(ord, set(TEXT)))
    assert json.loads(str(arrays["training"])) == {"iteration": 1}


def test_folders_are_made_and_any_kind_of_path_is_taken(tmp_path):
    for path in (tmp_path / "a" / "b" / "ckpt.npz", str(tmp_path / "c" / "model"),
                 tmp_path / "no suffix.old"):
        save_checkpoint(path, Transformer(CONFIG), TOKENIZER)
        assert os.listdir(pathlib.Path(path).parent).count(pathlib.Path(path).name) == 1
        assert load_checkpoint(path).model.config == CONFIG


@pytest.mark.skipif(os.name == "nt", reason="the rights of a file are told otherwise there")
def test_whom_the_umask_lets_read_may_read_it(path):
    before = os.umask(0o027)
    try:
        save_checkpoint(path, Transformer(CONFIG), TOKENIZER)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640


def failing(error, written):
    """In the place of np.savez: so many bytes, and then the error."""
    def savez(file, **arrays):
        file.write(b"PK\3\4" + bytes(written))
        raise error
    return savez


FAILURES = {"full disk": OSError(errno.ENOSPC, "No space left on device"),
            "interrupt": KeyboardInterrupt(), "memory": MemoryError()}


@pytest.mark.parametrize("written", [0, 10, 100_000])
@pytest.mark.parametrize("error", FAILURES.values(), ids=FAILURES)
def test_a_write_that_fails_leaves_the_old_file_whole_and_nothing_else(
        saved, monkeypatch, error, written):
    before = saved.read_bytes()
    monkeypatch.setattr(np, "savez", failing(error, written))
    with pytest.raises(type(error)) as caught:
        save_checkpoint(saved, Transformer(CONFIG, seed=9), TOKENIZER)
    assert caught.value is error
    assert saved.read_bytes() == before and os.listdir(saved.parent) == [saved.name]


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_a_write_that_fails_at_its_end_leaves_the_old_file_whole_too(saved, monkeypatch, name):
    before = saved.read_bytes()

    def full(*_):
        raise OSError(errno.EIO, "Input/output error")
    monkeypatch.setattr(os, name, full)
    with pytest.raises(OSError, match="Input/output error"):
        save_checkpoint(saved, Transformer(CONFIG, seed=9), TOKENIZER)
    assert saved.read_bytes() == before and os.listdir(saved.parent) == [saved.name]


def test_a_first_write_that_fails_leaves_no_file(path, monkeypatch):
    monkeypatch.setattr(np, "savez", failing(FAILURES["full disk"], 100))
    with pytest.raises(OSError):
        save_checkpoint(path, Transformer(CONFIG), TOKENIZER)
    assert os.listdir(path.parent) == []


def with_weight(change):
    """A model whose norm has another weight."""
    model = Transformer(CONFIG)
    model.norm.weight.data = change(model.norm.weight.data)
    return model


def with_state(number):
    """A model and its optimiser, of whose state one number is changed."""
    model = Transformer(CONFIG)
    optimizer = mg.SGD(model.parameters())
    optimizer.momentum_buffers[0][0] = number
    return dict(model=model, optimizer=optimizer)


@pytest.mark.parametrize("given, says", [
    (dict(training={"model": object()}), "cannot hold a value of the type object"),
    (dict(training={"settings": {"learning_rate": "1"}}), "its record of the run"),
    (dict(training={"settings": {"learning_rate": True}}), "its record of the run"),
    (dict(training=["a"]), "its training is no JSON object"),
    (dict(tokenizer=CharTokenizer("abc")), "has 3 characters, for a model of 14"),
    (dict(model=with_weight(lambda a: a * math.nan)), "model/norm.weight holds nan or inf"),
    (dict(model=with_weight(lambda a: a.astype(np.float64))), "float32, float64, and not all"),
    (dict(model=with_weight(lambda a: np.append(a, a))), "norm.weight has shape [4]"),
    (dict(model=Transformer(CONFIG, dtype=np.float16)), "weights are float16, and not all"),
    (with_state(math.inf), "optimizer/momentum_buffers/token_embedding.weight holds nan or inf"),
    (dict(optimizer=mg.AdamW(Transformer(CONFIG).parameters())), "that the model has not")],
    ids=str)
def test_what_could_not_be_loaded_is_refused_before_anything_is_written(saved, given, says):
    before = saved.read_bytes()
    with pytest.raises(CheckpointError) as caught:
        save_checkpoint(saved, **dict(model=Transformer(CONFIG), tokenizer=TOKENIZER) | given)
    assert says in str(caught.value) and "\n" not in str(caught.value)
    assert saved.read_bytes() == before and os.listdir(saved.parent) == [saved.name]


def test_an_optimiser_of_another_model_is_not_restored(saved):
    model = Transformer(CONFIG)
    optimizer = mg.AdamW(Transformer(CONFIG).parameters())
    with pytest.raises(CheckpointError, match="that the model has not"):
        restore_optimizer(optimizer, model, {}, 0)


def test_a_second_write_replaces_the_first(saved):
    save_checkpoint(saved, Transformer(CONFIG, seed=9), TOKENIZER)
    assert same(load_checkpoint(saved).model.state_dict(), Transformer(CONFIG, seed=9).state_dict())
    assert os.listdir(saved.parent) == [saved.name]


def test_a_checkpoint_that_is_not_there_is_missed_with_a_remedy(tmp_path):
    for path in (tmp_path / "ckpt.npz", tmp_path / "no" / "such" / "folder"):
        assert refusal(path) == (f"there is no checkpoint {path}; train one with python train.py, "
                                 "name its folder with --out_dir, or make one of another "
                                 "program's model with python -m model.convert")


@pytest.mark.skipif(os.name == "nt", reason="this system has none of these")
def test_what_is_no_file_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")                # which would be waited on for ever
    for path in (tmp_path, tmp_path / "pipe", pathlib.Path("/dev/zero")):
        assert f"{path} is no file, but a folder or a device" in refusal(path)


def test_a_file_that_cannot_be_read_is_answered_with_the_reason(saved, monkeypatch):
    def fail(file):
        raise PermissionError(errno.EACCES, "Permission denied")
    monkeypatch.setattr(archive, "read", fail)
    assert f"cannot read {saved}: Permission denied; have its rights or" in refusal(saved)


@pytest.mark.parametrize("error, says", [
    (MemoryError(), "not enough memory"), (PermissionError(errno.EACCES, "denied"), "cannot read")])
def test_a_last_checkpoint_that_cannot_be_read_now_is_not_taken_for_damaged(tmp_path, monkeypatch,
                                                                            error, says):
    for name in ("last.npz", "previous.npz"):
        save_checkpoint(tmp_path / name, Transformer(CONFIG), TOKENIZER)
    real = archive.read

    def fail(file):
        if file.name.endswith("last.npz"):
            raise error
        return real(file)
    monkeypatch.setattr(archive, "read", fail)
    with pytest.raises(CheckpointError, match=says):
        load_last(tmp_path)


def test_want_of_memory_is_no_damage(saved, monkeypatch):
    def fail(content):
        raise MemoryError
    monkeypatch.setattr(archive, "array", fail)
    assert "not enough memory" in refusal(saved)


def test_a_file_cut_short_is_refused_wherever_it_was_cut(saved):
    whole = saved.read_bytes()
    for share in np.linspace(0, 1, 60, endpoint=False):
        saved.write_bytes(whole[:int(share * len(whole))])
        assert refusal(saved).startswith(f"{saved} is damaged or no checkpoint")
    for missing in range(1, 40):
        saved.write_bytes(whole[:-missing])
        assert refusal(saved).startswith(f"{saved} is damaged or no checkpoint")


@pytest.mark.parametrize("content", [
    b"", b"\n", b"ROMEO: what is it?\n" * 30, b"PK\3\4", b"PK\5\6" + bytes(18), b"\x80\x04.",
    b"\x93NUMPY\1\0", bytes(5000)], ids=repr)
def test_a_file_of_another_kind_is_refused(path, content):
    path.write_bytes(content[:5000])
    refusal(path)


def test_random_bytes_are_refused(path):
    rng = np.random.default_rng(0)
    for size in (1, 2, 4, 22, 100, 10_000):
        for start in (b"", b"PK\3\4", b"\x93NUMPY"):
            path.write_bytes(start + rng.bytes(size))
            refusal(path)


def test_a_single_array_is_refused(path):
    with open(path, "wb") as file:
        np.save(file, np.ones(3))
    refusal(path)


def test_a_damaged_byte_is_noticed_wherever_it_is(saved):
    whole = saved.read_bytes()
    rng = np.random.default_rng(1)
    for place in rng.choice(len(whole), 400, replace=False):
        spoilt = bytearray(whole)
        spoilt[place] ^= rng.integers(1, 256, dtype=np.uint8)
        saved.write_bytes(spoilt)
        assert refusal(saved).startswith(f"{saved} is damaged or no checkpoint")


def test_a_damaged_table_of_contents_is_refused_in_a_line_even_if_sealed(saved):
    table = zipfile.ZipFile(saved).start_dir
    whole = saved.read_bytes()[:-archive.SEAL]
    first = table + 46 + len("model/token_embedding.weight.npy")
    for place in [*range(table, first), *range(len(whole) - 24, len(whole))]:
        for change in (0x01, 0x08, 0xff):
            spoilt = bytearray(whole)
            spoilt[place] ^= change
            saved.write_bytes(spoilt + hashlib.sha256(spoilt).hexdigest().encode())
            try:
                load_checkpoint(saved)
            except CheckpointError as error:
                assert "\n" not in str(error)


def write(path, arrays):
    """A sealed file of these arrays."""
    with open(path, "w+b") as file:
        archive.write(file, arrays)


def test_an_archive_of_other_arrays_is_refused(path):
    write(path, {"x": np.ones(3), "y": np.zeros(2)})
    assert refusal(path) == f"{path} is no checkpoint of this program: unknown x; {REMEDY}"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("readme.txt", "hello")
    refusal(path)


def test_a_missing_array_is_named(saved):
    arrays = arrays_of(saved)
    for name in arrays:
        write(saved, {other: a for other, a in arrays.items() if other != name})
        assert name.removeprefix("model/") in refusal(saved)


def test_an_array_too_many_is_named(saved):
    write(saved, arrays_of(saved) | {"model/blocks.2.norm1.weight": np.ones(4)})
    assert "unknown blocks.2.norm1.weight" in refusal(saved)


def test_an_array_of_the_wrong_shape_is_named(saved):
    arrays = arrays_of(saved)
    write(saved, arrays | {"model/norm.weight": np.ones(5, np.float32)})
    assert "norm.weight has shape [4] in this model, and was given [5]" in refusal(saved)
    write(saved, arrays | {"model/blocks.1.mlp.up.weight": np.ones((4, 16), np.float32)})
    assert "blocks.1.mlp.up.weight has shape [16, 4] in this model" in refusal(saved)


def test_an_array_that_holds_no_numbers_is_refused(saved):
    write(saved, arrays_of(saved) | {"model/norm.weight": np.array(list("abcd"))})
    assert "norm.weight was given <U1, which are no numbers" in refusal(saved)


@pytest.mark.parametrize("dtype", ["i4", "f2", "c8", "?"])
def test_weights_of_another_dtype_are_refused(saved, dtype):
    arrays = arrays_of(saved)
    write(saved, arrays | {"model/norm.weight": np.ones(4, dtype)})
    refusal(saved)
    write(saved, {name: a.astype(dtype) if name.startswith("model/") else a
                  for name, a in arrays.items()})
    refusal(saved)


def test_a_model_comes_back_in_its_own_precision(path):
    model = Transformer(CONFIG, seed=1, dtype=np.float64)
    save_checkpoint(path, model, TOKENIZER)
    assert same(load_checkpoint(path).model.state_dict(), model.state_dict())


@pytest.mark.parametrize("name,a,why", [
    ("m/norm.weight", np.full(4, np.nan, np.float32), "optimizer/m/norm.weight holds nan or inf"),
    ("v/norm.weight", np.full(4, np.inf, np.float32), "optimizer/v/norm.weight holds nan or inf"),
    ("m/norm.weight", np.ones(4), "m/norm.weight is float64[4], and its parameter float32[4]"),
    ("m/norm.weight", np.ones(5, np.float32), "is float32[5], and its parameter float32[4]"),
    ("m/norm", np.ones(4, np.float32), "unknown optimizer/m/norm"),
    ("norm.weight", np.ones(4, np.float32), "unknown optimizer/norm.weight")])
def test_a_state_of_the_optimiser_that_is_not_the_models_is_named(path, name, a, why):
    model = Transformer(CONFIG)
    save_checkpoint(path, model, TOKENIZER, optimizer=optimizer_of(model))
    write(path, arrays_of(path) | {f"optimizer/{name}": a})
    assert why in refusal(path)


def test_a_file_without_its_seal_is_refused_though_all_else_is_there(saved):
    whole = saved.read_bytes()
    for content in (whole[:-archive.SEAL], whole[:-archive.SEAL - 2] + bytes(2)):
        saved.write_bytes(content)
        with np.load(saved) as file:            # which does not miss it
            assert "version" in file.files
        assert refusal(saved).startswith(f"{saved} is damaged or no checkpoint: it does not end "
                                         "with a seal, so it is cut short, or not of this program, "
                                         "or of one of its first versions; take another")


def test_a_file_of_another_version_says_so(saved):
    for version in (np.array(3), np.array([2, 2]), np.array("2")):
        write(saved, arrays_of(saved) | {"version": version})
        assert "another version than 2" in refusal(saved)


def test_a_vocabulary_that_the_model_has_not_is_refused(saved):
    arrays = arrays_of(saved)
    V = CONFIG.vocab_size
    write(saved, arrays | {"vocabulary": arrays["vocabulary"][:-1]})
    assert f"the vocabulary has {V - 1} characters, for a model of {V}" in refusal(saved)
    twice = np.append(arrays["vocabulary"][:-1], arrays["vocabulary"][0])
    write(saved, arrays | {"vocabulary": twice})
    assert r"a vocabulary has each character once, and '\x00' is in it twice" in refusal(saved)
    write(saved, arrays | {"vocabulary": arrays["vocabulary"].reshape(-1, 1)})
    assert "its vocabulary is no row of characters" in refusal(saved)
    for points in ([], [0x110000] * V, [2**32 - 1] * V, [-1] * V, [0.5] * V, [[1] * V], ["a"] * V):
        write(saved, arrays | {"vocabulary": np.array(points)})
        refusal(saved)


@pytest.mark.parametrize("config", [
    "", "{", "[]", "3", "null", '"text"', "{}", '{"vocab_size": 0}', '{"vocab_size": "13"}',
    '{"vocab_size": 13, "n_heads": 2}', '{"vocab_size": 13, "n_head": 3}',
    '{"vocab_size": 13, "dropout": "none"}', '{"vocab_size": 13, "dropout": 2}'])
def test_a_configuration_that_makes_no_model_is_refused(saved, config):
    write(saved, arrays_of(saved) | {"config": np.array(config)})
    assert refusal(saved).startswith(f"{saved} is no checkpoint of this program: ")


@pytest.mark.parametrize("changed,position", [
    ({"n_layer": 10 ** 12}, "learned"), ({"n_embd": 10 ** 6}, "learned"),
    ({"n_embd": 10 ** 9, "n_head": 1}, "none"), ({"vocab_size": 10 ** 9}, "rotary"),
    ({"block_size": 10 ** 9}, "learned"),
    ({"n_layer": 10 ** 300}, "none"), ({"n_layer": 1}, "none"), ({"ngrams": 10 ** 9}, "none")],
    ids=str)
def test_a_configuration_that_its_weights_do_not_bear_out_takes_no_memory(path, changed, position):
    config = asdict(CONFIG) | {"position": position}
    save_checkpoint(path, Transformer(TransformerConfig(**config)), TOKENIZER)
    write(path, arrays_of(path) | {"config": np.array(json.dumps(config | changed))})
    assert is_refused_in_little_memory(path)


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("position", ["sinusoidal", "rotary", "alibi", "none"])
def test_a_block_without_end_takes_memory_only_as_far_as_it_is_filled(path, position, cache):
    config = replace(CONFIG, block_size=10 ** 15, position=position)
    save_checkpoint(path, Transformer(config), TOKENIZER)
    tracemalloc.start()
    try:
        model, tokenizer, *_ = load_checkpoint(path)
        assert len(generate(model, tokenizer, "a", 9, cache=cache)) == 10
        assert text_losses(model, tokenizer.encode("aaaa")).shape == (3,)
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("training", [
    "", "{iteration", "[]", "null", '"' + "a" * 10_000, "[" * 100_000, '{"a":' * 100_000,
    '{"a": 1' + "0" * 5_000 + "}", '{"settings": []}', '{"settings": {"data": 5}}', '{"text": 5}',
    '{"settings": {"data": ["a", 5]}}', '{"settings": {"data": {}}}',
    '{"state": {"iteration": "7"}}', '{"state": {"iteration": true}}', '{"state": {"best": null}}',
    '{"nan": "nan"}', '{"settings": {"optimizer": 1}}'], ids=lambda text: text[:20])
def test_a_record_of_training_of_another_kind_is_refused(saved, training):
    write(saved, arrays_of(saved) | {"training": np.array(training)})
    refusal(saved)


def test_what_stands_in_a_file_cannot_break_the_line(saved):
    arrays = arrays_of(saved)
    for change in ({"a\nb\x1b[2J" * 30: np.ones(1)},
                   {"config": np.array(json.dumps({"a\nb" * 999: 1}))}):
        write(saved, arrays | change)
        assert refusal(saved).isprintable()


def test_a_file_without_the_newer_options_is_read_with_their_defaults(path):
    config = TransformerConfig(TOKENIZER.vocab_size, 5, 2, 2, 4)
    save_checkpoint(path, Transformer(config, seed=1), TOKENIZER)
    oldest = dict(list(asdict(config).items())[:7])
    assert "n_kv_head" not in oldest
    write(path, arrays_of(path) | {"config": np.array(json.dumps(oldest))})
    found = load_checkpoint(path).model
    assert found.config == config
    assert same(found.state_dict(), Transformer(config, seed=1).state_dict())


def test_the_newest_good_checkpoint_is_taken_and_the_other_named(tmp_path):
    last, previous = tmp_path / "last.npz", tmp_path / "previous.npz"
    for iteration in (1, 2, 3):
        save_checkpoint(last, Transformer(CONFIG), TOKENIZER, {"iteration": iteration},
                        before=previous)
    assert load_last(tmp_path)[0].training == {"iteration": 3} and not load_last(tmp_path)[1]
    whole = last.read_bytes()
    for damaged in (whole[:-100], b"", whole[:2000] + bytes(8) + whole[2008:]):
        last.write_bytes(damaged)
        found, warning = load_last(tmp_path)
        assert found.training == {"iteration": 2}
        assert warning.startswith(f"{last} is damaged; going on from {previous}")
    last.unlink()
    found, warning = load_last(tmp_path)
    assert found.training == {"iteration": 2} and f"{last} is not there" in warning
    previous.write_bytes(b"")
    with pytest.raises(CheckpointError, match="previous.npz is damaged"):
        load_last(tmp_path)
    last.write_bytes(b"")
    previous.unlink()
    previous.mkdir()
    with pytest.raises(CheckpointError, match="previous.npz is .*; train anew into another --out"):
        load_last(tmp_path)
    previous.rmdir()
    last.write_bytes(whole)
    assert load_last(tmp_path)[0].training == {"iteration": 3}


class Trap:
    """Leaves a mark where it is unpickled."""
    sprung = False

    @staticmethod
    def spring():
        Trap.sprung = True

    def __reduce__(self):
        return Trap.spring, ()


@pytest.mark.parametrize("name", ["config", "vocabulary", "training", "model/norm.weight", "more"])
def test_a_pickled_object_is_refused_and_never_run(saved, name):
    write(saved, arrays_of(saved) | {name: np.array([Trap()], dtype=object)})
    refusal(saved)
    assert not Trap.sprung
    with np.load(saved, allow_pickle=True) as file:
        assert file[name].shape == (1,) and Trap.sprung     # what a careless reader would do
    Trap.sprung = False
