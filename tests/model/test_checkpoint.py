"""Checkpoints: all of it comes back, a failed write harms nothing, and what is damaged or does not
fit is refused in a line."""
import errno
import json
import math
import os
import pathlib
import pickle
import sys
from dataclasses import asdict, replace

import numpy as np
import pytest

import minigrad as mg
from data.files import write_arrays
from minigrad import machine
from minigrad.packed import BLOCKS, PackedTensor
from model import (CharTokenizer, CheckpointError, EncoderDecoder, EncoderDecoderConfig,
                   Transformer, TransformerConfig, answers, checkpoint, generate, load_checkpoint,
                   save_checkpoint)
from model.checkpoint import (OfAnotherProgram, load_arrays, load_last, restore_optimizer,
                              save_arrays)
from model.convert.tokens import TokenTokenizer
from model.score.text import text_losses
from tests.kit import arrays, blocks, memory, packed_copy, refusal, same, written
from tests.token_files import byte_level

pytestmark = pytest.mark.late
TEXT = "\0\t\n 'aé’e\u0301漢🙂\ud800\U0010ffff"       # a NUL, an accent by itself, half a pair, ...
TOKENIZER = CharTokenizer(TEXT)
CONFIG = TransformerConfig(TOKENIZER.vocab_size, block_size=5, n_layer=2, n_head=2, n_embd=4,
                           dropout=0.1, bias=True)
V = CONFIG.vocab_size
IDS, TARGETS = np.random.default_rng(0).integers(V, size=(2, 3, 5))
DAMAGED = "is damaged or no checkpoint: "


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ckpt.npz"


@pytest.fixture
def saved(path):
    """The path of a sound checkpoint."""
    save_checkpoint(path, Transformer(CONFIG, seed=1), TOKENIZER, {"iteration": 7})
    return path


def refused(path, **settings):
    """The one line that says why a file is not loaded."""
    message = refusal(CheckpointError, load_checkpoint, path, **settings)
    assert str(path) in message
    assert message.isprintable()
    assert len(message) < 400 + len(str(path))
    return message


def test_a_damaged_file_names_those_beside_it_and_not_itself(saved):
    saved.write_bytes(b"damaged")
    assert f"{DAMAGED}its seal" in refused(saved)
    assert "; train anew; python -m" in refused(saved)
    for name in ("last.npz", "previous.npz"):
        saved.with_name(name).write_bytes(b"damaged")
    assert "; take last.npz beside it, or train anew; " in refused(saved)
    assert "; take ckpt.npz beside it" in refused(saved.with_name("last.npz"))


def test_load_checkpoint_refuses_a_file_that_is_larger_than_the_memory(saved, monkeypatch):
    size = os.path.getsize(saved)
    monkeypatch.setattr(machine, "memory_limit", lambda: float(size))
    load_checkpoint(saved)
    monkeypatch.setattr(machine, "memory_limit", lambda: size - 1.0)
    said = refusal(ValueError, load_checkpoint, saved)
    assert said.startswith(f"the weights in {saved} need ")
    assert said.endswith("a machine with more")


def write(path, arrays):
    """A sealed file of these arrays, but for those that are None."""
    with open(path, "w+b") as file:
        write_arrays(file, ((name, a) for name, a in arrays.items() if a is not None))
    return path


def changed(path, **others):
    """The same file, with other arrays; None for one that it is to lack."""
    return write(path, arrays(path) | others)


def record():
    """What a run may keep, its random generator among it."""
    rng = np.random.default_rng(5)
    rng.random(3)
    return {"settings": {"data": "it’s \"here\"\\n", "learning_rate": 1e-3, "stop": None},
            "best": math.inf, "iteration": 12, "rng": rng.bit_generator.state,
            "losses": [0.1 + 0.2, 1e-300], "done": False, "seconds": np.float64(2)}


@pytest.mark.parametrize("model, tokenizer, training", [
    (Transformer(CONFIG, seed=1), TOKENIZER, None),
    (Transformer(CONFIG, seed=1, dtype=np.float64), CharTokenizer.of(TOKENIZER.vocabulary[::-1]),
     record()),
    (Transformer(TransformerConfig(np.int64(V), np.int32(4), 1, 1, np.int64(4), np.float32(0.25))),
     TOKENIZER, {"iteration": 7}),
    (EncoderDecoder(EncoderDecoderConfig(V, 6, 1, 2, 8, 0.1, True), seed=1), TOKENIZER,
     {"settings": {"task": "sort"}, "right": 3, "judged": 4})], ids=[
         "usual", "float64, vocabulary in any order, record", "NumPy's numbers", "encoder-decoder"])
def test_all_of_a_checkpoint_comes_back_bit_for_bit(path, model, tokenizer, training):
    save_checkpoint(path, model, tokenizer, training)
    found = load_checkpoint(path, kinds=(Transformer, EncoderDecoder))
    found = pickle.loads(pickle.dumps(found))           # as one rank sends it to the others
    assert all(p.requires_grad for p in found.model.parameters())
    assert type(found.model) is type(model)
    assert found.model.config == model.config
    assert same(found.model.state_dict(), model.state_dict())
    assert found.tokenizer.vocabulary == tokenizer.vocabulary
    assert found.tokenizer.decode(found.tokenizer.encode(TEXT)) == TEXT
    assert found.training == (training or {})
    assert found.optimizer == {}


def test_loading_holds_the_weights_once_and_they_can_be_written_to(path):
    model = Transformer(TransformerConfig(8, 8, 2, 2, 256, bias=True), seed=1)
    save_checkpoint(path, model, CharTokenizer("abcdefgh"))
    size = sum(p.data.nbytes for p in model.parameters())
    with memory() as taken:
        found = load_checkpoint(path).model
    assert taken[0] < 1.3 * size
    assert all(p.data.flags.writeable for p in found.parameters())      # for training


def test_packed_weights_are_loaded_as_they_are_and_saved_as_float32(path):
    model = Transformer(replace(CONFIG, n_embd=256, n_layer=4))
    floats = packed_copy(model, [*BLOCKS, "Q8_0", "F16"])       # by turns, so that all fit once
    save_checkpoint(path, floats, TOKENIZER)
    size = path.stat().st_size
    packed = {f"model/{name}": p.packed._blocks for name, p in model.named_parameters()
              if isinstance(p, PackedTensor)}
    assert len({a.dtype for a in packed.values()}) == len(BLOCKS)
    changed(path, **packed)
    assert path.stat().st_size < size / 2
    found = load_checkpoint(path).model
    held = [p for p in found.parameters() if isinstance(p, PackedTensor)]
    assert sum(p.packed.nbytes for p in held) == sum(a.nbytes for a in packed.values())
    texts = [generate(model, TOKENIZER, "a", 20, seed=1) for model in (found, floats)]
    assert texts[0] == texts[1]
    save_checkpoint(path, found, TOKENIZER)
    assert same(load_checkpoint(path).model.state_dict(), floats.state_dict())
    assert path.stat().st_size == size


def test_special_floats_among_the_weights_come_back_only_where_they_may(path):
    model = Transformer(CONFIG)
    odd = np.array([math.nan, math.inf, -math.inf, -0.0], np.float32)
    model.norm.weight.data[...] = odd
    save_checkpoint(path, model, TOKENIZER, finite=False)
    found = load_checkpoint(path, finite=False)
    assert found.model.norm.weight.data.tobytes() == odd.tobytes()
    assert "model/norm.weight holds nan or inf; its training may have diverged" in refused(path)


def test_a_checkpoint_is_plain_arrays_under_documented_names_and_can_be_copied(path):
    model = Transformer(CONFIG)
    save_checkpoint(path, model, TOKENIZER, {"iteration": 1}, mg.AdamW(model.parameters()))
    found, names = arrays(path), list(model.state_dict())       # which allows no pickle
    assert set(found) == {"version", "config", "vocabulary", "training",
                          *(f"model/{n}" for n in names),
                          *(f"optimizer/{kind}/{n}" for kind in "mv" for n in names)}
    assert not any(a.dtype.hasobject for a in found.values())
    assert json.loads(str(found["config"])) == asdict(CONFIG)
    assert found["vocabulary"].tolist() == sorted(map(ord, set(TEXT)))
    assert json.loads(str(found["training"])) == {"iteration": 1}
    copy = path.with_name("copy.npz")
    loaded, of_file = load_arrays(path)
    with of_file:
        save_arrays(copy, of_file.items())
    assert loaded.model.config == CONFIG
    assert copy.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("position", ["sinusoidal", "rotary"])
def test_a_block_without_end_takes_memory_only_as_far_as_it_is_filled(path, position, cache):
    config = replace(CONFIG, block_size=10 ** 15, position=position)
    save_checkpoint(path, Transformer(config), TOKENIZER)
    generate(Transformer(replace(config, block_size=5)), TOKENIZER, "a", 9, cache=cache)
    with memory() as taken:
        model, tokenizer, *_ = load_checkpoint(path)
        assert len(generate(model, tokenizer, "a", 9, cache=cache)) == 10
        assert text_losses(model, tokenizer.encode("aaaa")).shape == (3,)
    assert taken[0] < 30_000_000


# A tokenizer of tokens

def with_tokens(path, V=270):
    """A checkpoint of a model of tokens, whose library need not be there."""
    save_checkpoint(path, Transformer(TransformerConfig(V, 4, 1, 1, 4)),
                    CharTokenizer("".join(map(chr, range(V)))))
    return changed(path, vocabulary=None, end=np.array(0),
                   tokenizer=np.frombuffer(byte_level().encode(), np.uint8))


@pytest.mark.needs("convert")
@pytest.mark.parametrize("end", [None, 0, 269])
def test_a_tokenizer_of_tokens_comes_back_with_its_end(path, end):
    tokenizer = TokenTokenizer(byte_level(), end, 270)
    save_checkpoint(path, Transformer(TransformerConfig(270, 4, 1, 1, 4)), tokenizer)
    assert np.array_equal(arrays(path)["end"], -1 if end is None else end)
    assert not arrays(path).keys() & {"vocabulary"}
    found = load_checkpoint(path).tokenizer
    assert (found.json, found.end, found.vocab_size) == (byte_level(), end, 270)
    assert found.decode(found.encode("the in")) == "the in"


@pytest.mark.needs("convert")
@pytest.mark.parametrize("change, why", [
    ({"tokenizer": np.frombuffer(b"{}", np.uint8)}, "tokenizer"),
    ({"tokenizer": np.frombuffer(b"\xff", np.uint8)}, "utf-8"),
    ({"tokenizer": np.zeros(0, np.uint8)}, "tokenizer"),
    ({"tokenizer": np.zeros((2, 2), np.uint8)}, "tokenizer and end"),
    ({"tokenizer": np.zeros(2)}, "tokenizer and end"),
    ({"end": np.zeros(1, int)}, "tokenizer and end"),
    ({"end": np.zeros((2, 2), int)}, "tokenizer and end"),
    ({"end": np.array([0, -1])}, "-1"),
    ({"end": np.array(1.0)}, "tokenizer and end"),
    ({"end": np.array(270)}, "270"),
    ({"end": np.array(-2)}, "-2"),
    ({"end": None}, "missing end"),
    ({"V": 265}, "266 ids for a model of 265")], ids=str)
def test_a_tokenizer_of_tokens_that_does_not_fit_is_refused(path, change, why, capfd):
    changed(with_tokens(path, change.pop("V", 270)), **change)
    assert why in refused(path)
    assert capfd.readouterr() == ("", "")


def test_where_the_library_of_tokens_is_missing_its_installation_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    for name in ("last.npz", "previous.npz"):
        with_tokens(tmp_path / name)
    said = refused(tmp_path / "last.npz")
    assert "python -m pip install -e '.[convert]'" in said
    assert "train anew" not in said
    said = refusal(CheckpointError, load_last, tmp_path)        # which is not damaged
    assert "last.npz: its vocabulary is of tok" in said


# Saving

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


def spoilt(change):
    """A model and its optimiser, after a change to both."""
    model = Transformer(CONFIG)
    optimizer = mg.SGD(model.parameters())
    change(model, optimizer)
    return dict(model=model, optimizer=optimizer)


@pytest.mark.parametrize("given, says", [
    (dict(training={"model": object()}), "'object' object"),
    (dict(training={"settings": ["a"]}), "its record of the run"),
    (dict(training={"settings": {"data": 3}}), "not iterable"),
    (dict(training=["a"]), "its training is no JSON object"),
    (dict(tokenizer=CharTokenizer("abc")), "has 3 characters, for a model of 14"),
    (spoilt(lambda model, _: model.norm.weight.data.fill(math.nan)), "model/norm.weight holds nan"),
    (spoilt(lambda model, _: setattr(model.norm.weight, "_data", np.ones(4))),
     "float32, float64, "),
    (spoilt(lambda model, _: setattr(model.norm.weight, "_data", np.ones(8, np.float32))),
     "norm.weight has shape [4]"),
    (spoilt(lambda model, sgd: sgd.momentum_buffers[model.token_embedding.weight].fill(math.inf)),
     "optimizer/momentum_buffers/token_embedding.weight holds nan or inf"),
    (dict(optimizer=mg.AdamW(Transformer(CONFIG).parameters())), "that the model has not")],
    ids=lambda value: value if isinstance(value, str) else "")
def test_what_could_not_be_loaded_is_refused_before_anything_is_written(saved, given, says):
    before = saved.read_bytes()
    given = dict(model=Transformer(CONFIG), tokenizer=TOKENIZER) | given
    assert says in refusal(CheckpointError, save_checkpoint, saved, **given)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name]


def test_the_state_of_an_optimiser_is_restored_by_name_and_that_of_another_is_not(path):
    model = Transformer(CONFIG, seed=2)
    other = Transformer(CONFIG)
    matrices, others = ([p for p in model.parameters() if (p.ndim > 1) == large]
                        for large in (True, False))
    groups = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
    optimizer = mg.AdamW(groups)
    again = mg.AdamW(groups[::-1])
    mg.cross_entropy(model(IDS), TARGETS).backward()
    optimizer.step()
    save_checkpoint(path, model, TOKENIZER, {}, optimizer)
    state = load_checkpoint(path).optimizer
    assert set(state) == {f"{kind}/{name}" for kind in "mv" for name in model.state_dict()}
    restore_optimizer(again, model, state, 1)
    before, after = ({(kind, id(p)): a for kind, p, a in made.state()}
                     for made in (optimizer, again))
    assert again.steps == 1
    assert before.keys() == after.keys()
    assert all(a.any() and np.array_equal(a, after[key]) for key, a in before.items())
    for given, stepped, says in (
            (state, other, "that the model has not"), ({}, model, "no m/"),
            (state | {"v/norm.weight": np.ones(5)}, model, "no v/norm.weight of the shape [4]")):
        assert says in refusal(CheckpointError, restore_optimizer, mg.AdamW(stepped.parameters()),
                               model, given, 0)


def take_steps(model, optimizer, count):
    """Train a model; return its weights after so many more steps."""
    for _ in range(count):
        mg.cross_entropy(model(IDS), TARGETS).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


def test_an_optimiser_whose_groups_changed_goes_on_from_its_checkpoint_bit_for_bit(path):
    model = Transformer(CONFIG, seed=2)
    first, late, *others = model.parameters()
    optimizer = mg.AdamW([first, *others])
    take_steps(model, optimizer, 2)
    optimizer.param_groups[0]["params"] = [*others, late]
    take_steps(model, optimizer, 2)
    save_checkpoint(path, model, TOKENIZER, {}, optimizer)
    expected = take_steps(model, optimizer, 2)
    found = load_checkpoint(path)
    model = found.model
    _, late, *others = model.parameters()
    optimizer = mg.AdamW([late, *others])
    restore_optimizer(optimizer, model, found.optimizer, 4)
    assert same(take_steps(model, optimizer, 2), expected)


@pytest.mark.parametrize("before, after", [(0, 1), (1, 0)])
def test_a_parameter_that_another_part_steps_now_goes_on_from_the_checkpoint(before, after, path):
    model = Transformer(CONFIG, seed=2)

    def parts(held):
        return mg.Optimizers(mg.AdamW(parameters) for parameters in held)

    parameters = model.parameters()
    optimizer = parts([parameters[:3], parameters[3:]])
    take_steps(model, optimizer, 2)
    groups = [part.param_groups[0]["params"] for part in optimizer.parts]
    groups[after].append(groups[before].pop(0))
    take_steps(model, optimizer, 1)
    save_checkpoint(path, model, TOKENIZER, {}, optimizer)
    places = {id(p): i for i, p in enumerate(parameters)}
    held = [[places[id(p)] for p in group] for group in groups]
    expected = take_steps(model, optimizer, 2)
    found = load_checkpoint(path)
    model = found.model
    parameters = model.parameters()
    optimizer = parts([parameters[i] for i in group] for group in held)
    restore_optimizer(optimizer, model, found.optimizer, 3)
    assert same(take_steps(model, optimizer, 2), expected)


# Files that are damaged, of another kind, or do not fit

def test_a_checkpoint_that_is_not_there_is_missed_with_a_remedy(tmp_path):
    for path in (tmp_path / "ckpt.npz", tmp_path / "no" / "such" / "folder"):
        assert refused(path) == (f"there is no checkpoint {path}; train one with python train.py, "
                                 "name its folder with --out_dir, or make one of another "
                                 "program's model with python -m model.convert")


@pytest.mark.parametrize("name, given, kind", [
    ("my.gguf", "my.gguf", "GGUF file"), ("MY.GGUF", "MY.GGUF", "GGUF file"),
    ("blob", "blob", "GGUF file"), ("my.gguf", "my.gguf/ckpt.npz", "GGUF file"),
    ("a.safetensors", "a.safetensors", "safetensors file"), ("ckpt.pt", "ckpt.pt", "PyTorch file"),
    ("hf/config.json", "hf/ckpt.npz", "folder of Hugging Face"),
    ("old/ckpt.pt", "old/ckpt.npz", "folder of nanoGPT")])
def test_a_model_of_another_program_is_named_with_the_line_that_converts_it(name, given, kind,
                                                                            tmp_path):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    written(file, b"GGUF" + bytes(80) if kind.startswith("GGUF") else bytes(84))
    found = file.parent if kind.startswith("folder") else file
    assert refusal(OfAnotherProgram, load_checkpoint, tmp_path / given) == (
        f"{found} is a {kind}: python -m model.convert {found} out_{found.stem} makes a checkpoint "
        f"of it; then give out_{found.stem}")


def test_where_the_command_for_another_programs_model_begins_with_cd_its_names_are_whole(
        tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "a.gguf", "GGUF")
    monkeypatch.setattr(answers, "started_as", lambda: ("python", "x/train.py", False))
    said = refusal(CheckpointError, load_checkpoint, "a.gguf")
    assert f" model.convert {tmp_path / 'a.gguf'} {tmp_path / 'out_a'} makes" in said


def test_a_checkpoint_beside_a_model_of_another_program_is_read(tmp_path):
    written(tmp_path / "config.json", b"{}")
    save_checkpoint(tmp_path / "ckpt.npz", Transformer(CONFIG), TOKENIZER)
    assert load_checkpoint(tmp_path / "ckpt.npz").model.config == CONFIG


@pytest.mark.skipif(os.name == "nt", reason="this system has none of these")
def test_what_is_no_file_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")                # which would be waited on for ever
    for path in (tmp_path, tmp_path / "pipe", pathlib.Path("/dev/zero")):
        assert refused(path) == (f"{path} is no file, but a folder or a device; the model in the "
                                 "folder of a run is its ckpt.npz")


@pytest.mark.parametrize("error, kind", [
    (MemoryError(), MemoryError), (PermissionError(errno.EACCES, "denied"), CheckpointError)])
def test_a_last_checkpoint_that_cannot_be_read_is_not_called_damaged(error, kind, tmp_path,
                                                                     monkeypatch):
    for name in ("last.npz", "previous.npz"):
        save_checkpoint(tmp_path / name, Transformer(CONFIG), TOKENIZER)
    real = checkpoint.read_arrays

    def fail(path):
        if path.name == "last.npz":
            raise error
        return real(path)
    monkeypatch.setattr(checkpoint, "read_arrays", fail)
    assert refusal(kind, load_last, tmp_path) in (
        "", f"cannot read {tmp_path / 'last.npz'}: denied; first get the right to read it")


def test_a_damaged_file_and_one_without_an_array_are_refused_in_a_line(saved):
    whole = arrays(saved)
    content = saved.read_bytes()
    for name in whole:
        assert name.removeprefix("model/") in refused(write(saved, whole | {name: None}))
    saved.write_bytes(content[:-1])     # `test_files` has other damage
    assert (f"{saved} {DAMAGED}its seal is missing or does not match, so it is cut short"
            in refused(saved))


NORM = "model/norm.weight"


@pytest.mark.parametrize("name, a, says", [
    ("model/blocks.2.norm1.weight", np.ones(4), "unknown blocks.2.norm1.weight"),
    (NORM, np.ones(5, np.float32), "norm.weight has shape [4] in this model, and was given [5]"),
    ("model/blocks.1.mlp.up.weight", np.ones((4, 16), np.float32), "up.weight has shape [16, 4]"),
    (NORM, np.array(list("abcd")), "norm.weight was given <U1, which are no numbers"),
    (NORM, blocks("F16", 1, 4)[0], "norm.weight was given [('half', '<f2', (2,))], which are no"),
    ("model/blocks.0.mlp.down.weight", blocks("Q8_0", 4, 1), "and was given [4, 32]"),
    ("model/blocks.0.mlp.down.weight", np.full((4, 16), np.inf, "<f2").view(BLOCKS["F16"]),
     "down.weight holds nan or inf"),
    *[(NORM, np.ones(4, dtype), "") for dtype in ("i4", "f2", "f8", "c8", "?")],
    *[("version", version, "another version than 2")
      for version in (np.array(3), np.array([2, 2]), np.array("2"))],
    ("vocabulary", np.arange(V - 1, dtype=np.uint32), f"{V - 1} characters, for a model of {V}"),
    ("vocabulary", np.array([5] * V, np.uint32), "each character once"),
    *[("vocabulary", np.array(points), "") for points in (
        [], [0x110000] * V, [2**32 - 1] * V, [-1] * V, [0.5] * V, [[1] * V], ["a"] * V)],
    *[("config", np.array(text), "") for text in (
        "", "{", "[]", "3", "null", '"text"', "{}", '{"vocab_size": 0}', '{"vocab_size": "13"}',
        '{"vocab_size": 13, "n_heads": 2}', '{"vocab_size": 13, "n_head": 3}',
        '{"vocab_size": 13, "dropout": "none"}', '{"vocab_size": 13, "dropout": 2}',
        '{"kind": ["a"]}', json.dumps({"a\nb": 1}), json.dumps({"a\nb" * 999: 1}))],
    *[("training", np.array(text), "") for text in (
        "", "{iteration", "[]", "null", '"' + "a" * 10_000, "[" * 100_000, '{"a":' * 100_000,
        '{"a": 1' + "0" * 5_000 + "}", '{"settings": []}', '{"state": "7"}', '{"nan": "nan"}')]],
    ids=lambda value: repr(value)[:30])
def test_an_array_that_does_not_fit_is_named(saved, name, a, says):
    said = refused(changed(saved, **{name: a}))
    assert DAMAGED in said
    assert says in said
    assert says in refusal(CheckpointError, load_arrays, saved)


@pytest.mark.parametrize("position, change", [
    ("learned", {"n_layer": 10 ** 12}),
    ("learned", {"n_embd": 10 ** 6}),
    ("learned", {"block_size": 10 ** 9}),
    ("sinusoidal", {"n_layer": 10 ** 300}),
    ("sinusoidal", {"n_layer": 1}),
    ("sinusoidal", {"ngrams": 10 ** 9}),
    ("rotary", {"vocab_size": 10 ** 9}),
    *[("reverse", change) for change in (
        {"n_layer": 10 ** 12}, {"n_head": 10 ** 9, "n_embd": 10 ** 9}, {"n_embd": 0},
        {"n_head": 3}, {"vocab_size": 10 ** 9}, {"n_layer": "1"}, {"kind": "encoder"})]], ids=str)
def test_a_configuration_that_its_weights_do_not_bear_out_takes_no_memory(path, position, change):
    model = (EncoderDecoder(EncoderDecoderConfig(V, 6, 1, 2, 8)) if position == "reverse" else
             Transformer(replace(CONFIG, position=position)))
    save_checkpoint(path, model, TOKENIZER)
    config = json.loads(str(arrays(path)["config"])) | change
    changed(path, config=np.array(json.dumps(config)))
    with memory() as taken:
        said = refused(path, kinds=(Transformer, EncoderDecoder))
    assert (DAMAGED in said or "holds an encoder, and not" in said) and taken[0] < 300_000


def test_the_newest_good_checkpoint_is_taken_and_the_other_named(tmp_path):
    last = tmp_path / "last.npz"
    previous = tmp_path / "previous.npz"
    for iteration in (1, 2, 3):
        save_checkpoint(last, Transformer(CONFIG), TOKENIZER, {"iteration": iteration},
                        before=previous)
    assert load_last(tmp_path)[0].training == {"iteration": 3}
    assert not load_last(tmp_path)[1]
    last.write_bytes(b"")
    found, warning = load_last(tmp_path)
    assert found.training == {"iteration": 2}
    assert warning.startswith(f"{last} is damaged; resuming from {previous}")
    previous.write_bytes(b"")
    said = refusal(CheckpointError, load_last, tmp_path)
    assert said.startswith(f"cannot resume from {last} or {previous}: ")
    assert "--out_dir" in said
    previous.unlink()
    assert f"{last} {DAMAGED}" in refusal(CheckpointError, load_last, tmp_path)
