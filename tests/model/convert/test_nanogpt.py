"""Checkpoints of nanoGPT: the model that was saved comes out, whatever else is in the file."""
import pickle
import re
import shutil

import numpy as np
import pytest

from model import TransformerConfig
from model.convert import nanogpt
from model.convert.families import GPT2, layout, their_shapes
from model.convert.model_file import FormatError
from model.convert.torch_file import TorchFile
from tests.kit import ROOT, arrays, model_of, refusal, written
from tests.model.convert.test_torch_file import HOSTILE, name, number, rebuilt, text, zipped
from tests.token_files import byte_level

FOLDER = ROOT / "tests" / "reference" / "nanogpt"
CHARACTERS = "\n !aehlortw"
CONFIG = TransformerConfig(11, block_size=6, n_layer=2, n_head=2, n_embd=8, dropout=0.1, bias=True)


@pytest.fixture
def folder(tmp_path):
    """A copy of the folder that PyTorch wrote."""
    for path in FOLDER.iterdir():
        shutil.copy(path, tmp_path)
    return tmp_path


def test_the_logits_of_what_torch_saved_are_those_of_torch(monkeypatch):
    found = nanogpt.read(FOLDER / "ckpt.pt")
    assert found.kind == "nanoGPT checkpoint" and found.config == CONFIG
    assert found.notes == ["written after 250 iterations",
                           f"its characters are those of {FOLDER / 'meta.pkl'}"]
    reference = arrays(FOLDER / "logits.npz")
    logits = model_of(CONFIG, found.weights)(reference["ids"]).data
    np.testing.assert_allclose(logits, reference["logits"], atol=1e-5, rtol=1e-5)
    assert found.tokenizer.vocabulary == CHARACTERS
    monkeypatch.setattr(TorchFile, "array", lambda _, tensor: tensor.shape)
    assert nanogpt.read(FOLDER / "ckpt.pt").weights["norm.bias"] == (8,)


def test_the_characters_are_found_where_nanogpt_keeps_them_and_keep_their_ids(folder):
    (folder / "data" / "hello").mkdir(parents=True)
    meta = (folder / "meta.pkl").rename(folder / "data" / "hello" / "meta.pkl")
    (folder / "out").mkdir()
    path = (folder / "ckpt.pt").rename(folder / "out" / "ckpt.pt")
    meta.write_bytes(pickle.dumps({"itos": dict(enumerate(CHARACTERS[::-1]))}))
    assert nanogpt.read(path).tokenizer.vocabulary == CHARACTERS[::-1]
    meta.unlink()
    said = refusal(FormatError, nanogpt.read, path)
    assert "put its meta.pkl (data/hello/meta.pkl of nanoGPT) beside " in said
    assert "--tokenizer" in said


@pytest.mark.parametrize("meta, says", [
    (pickle.dumps([1]), "list indices"),
    *((pickle.dumps(meta), "no itos with a character for each of 11 ids") for meta in (
        {"itos": ["a"]}, {"itos": dict.fromkeys(range(11), "ab")},
        {"itos": dict.fromkeys(range(11), 5)}, {"itos": dict(enumerate(CHARACTERS, 1))})),
    (pickle.dumps({"itos": dict.fromkeys(range(11), "a")}), "'a' is in it twice"),
    (HOSTILE["eval"][0], "__builtin__.eval")], ids=range(7))
def test_a_meta_pkl_that_is_not_of_this_model_is_refused(meta, says, folder):
    (folder / "meta.pkl").write_bytes(meta)
    said = refusal(FormatError, nanogpt.read, folder / "ckpt.pt")
    assert "meta.pkl is not the meta.pkl of this checkpoint: " in said and says in said


# Checkpoints written here, without torch

def dict_of(items):
    return b"}(" + b"".join(text(key) + value for key, value in items.items()) + b"u"


def plain(value):
    return pickle.dumps(value, 2)[2:-1]


WTE, NORM, HEAD = "transformer.wte.weight", "transformer.ln_f.weight", "lm_head.weight"
ARGUMENTS = dict(n_layer=1, n_head=2, n_embd=4, block_size=5, bias=False, vocab_size=3, dropout=0.0)


def tensor(key, count, shape, offset=0):
    """The pickle of a tensor of a storage of so many numbers."""
    storage = b"(" + text("storage") + name("torch.FloatStorage") + text(key) + text("cpu")
    return rebuilt(storage + number(count) + b"tQ", offset, shape, (*shape[1:], 1))


def saved(path, arguments={}, names={}, keys={}, whole=None, shared=0, **built):
    """Write a checkpoint of one block, or as `built`, with a meta.pkl; `names` and `keys` replace
    tensors and entries, and `shared` numbers are those of all tensors."""
    draw, tensors, members = np.random.default_rng(0), {}, {}
    shapes = their_shapes(layout(TransformerConfig(**ARGUMENTS | built), GPT2.names))
    for i, (theirs, shape) in enumerate(shapes.items()):
        key, count = ("0", shared) if shared else (str(i), int(np.prod(shape)))
        tensors[theirs] = tensor(key, count, shape)
        members[f"x/data/{key}"] = draw.standard_normal(count).astype("<f4").tobytes()
    tensors = {WTE: None, HEAD: tensors[WTE]} | tensors | names
    tensors = {key: value for key, value in tensors.items() if value}
    entries = {"model": dict_of(tensors), "model_args": plain(ARGUMENTS | built | arguments)} | keys
    content = whole or dict_of({key: value for key, value in entries.items() if value})
    written(path.parent / "meta.pkl", pickle.dumps({"itos": dict(enumerate("abc"))}))
    return written(path, zipped({"x/data.pkl": b"\x80\x02" + content + b"."} | members))


def test_an_output_of_its_own_and_the_mask_of_old_versions_are_no_trouble(tmp_path):
    names = {HEAD: tensor("1", 20, (3, 4), offset=8), "transformer.h.0.attn.bias": b"N",
             NORM: None, f"_orig_mod.{NORM}": tensor("1", 20, (4,))}     # as torch.compile names it
    found = nanogpt.read(saved(tmp_path / "ckpt.pt", names=names))
    assert not found.config.tied
    head, positions = (found.weights[f"{layer}.weight"]
                       for layer in ("lm_head", "position_embedding"))
    assert np.array_equal(head, positions.ravel()[8:].reshape(3, 4))
    assert np.array_equal(found.weights["norm.weight"], positions.ravel()[:4])


@pytest.mark.parametrize("dataset", ["../private", "..", "", ".", "a\nb", 3])
def test_a_dataset_that_is_no_name_of_a_folder_is_not_looked_for(dataset, tmp_path):
    path = saved(tmp_path / "ckpt.pt", keys={"config": plain({"dataset": dataset})})
    for folder in ("data", "private"):
        (tmp_path / folder).mkdir()
        shutil.copy(tmp_path / "meta.pkl", tmp_path / folder)
    (tmp_path / "meta.pkl").unlink()
    assert "put its meta.pkl beside" in refusal(FormatError, nanogpt.read, path)


REFUSED = {
    "no dict": (dict(whole=b"]"), "no model and model_args"),
    "a model that is a text": (dict(keys={"model": text("a")}), "no model and model_args"),
    "no model_args": (dict(keys={"model_args": None}), "no model and model_args"),
    "a setting too few": (dict(keys={"model_args": plain({"n_layer": 1})}), "bias of its model_"),
    "a setting too many": (dict(arguments={"use_rmsnorm": True}), "use_rmsnorm of its model_args"),
    "a setting that is a text": (dict(arguments={"n_head": "2"}), "n_head takes a whole"),
    "a number for a switch": (dict(arguments={"bias": 1}), "bias takes True or False"),
    "10^12 layers": (dict(arguments={"n_layer": 10 ** 12}), "claims 10{12} layers, and holds"),
    "biases that are not there": (dict(arguments={"bias": True}), r"lacks .*attn\.c_attn\.bias"),
    "a tensor too few": (dict(names={NORM: None}), r"lacks transformer\.ln_f\.weight"),
    "a tensor too many": (dict(names={"transformer.h.1.x": tensor("1", 20, (5, 4))}),
                          r"has transformer\.h\.1\.x,"),
    "no tensor": (dict(names={NORM: b"N"}), r"ln_f\.weight of its model is not a tensor"),
    "a name without end": (dict(names={"x" * 9999: b"N"}), r": x{80}\.\.\. of its model is not"),
    "weights that share their numbers": (dict(shared=64 * 16, n_embd=16, n_layer=8), "share their"),
    "an evil optimiser": (dict(keys={"optimizer": HOSTILE["exec"][0][2:-1]}), r"builtins\.exec")}


@pytest.mark.parametrize("changes, why", REFUSED.values(), ids=REFUSED)
def test_a_file_that_holds_another_model_is_refused_in_a_line(changes, why, tmp_path):
    path = saved(tmp_path / "ckpt.pt", **changes)
    said = refusal(FormatError, nanogpt.read, path)
    assert said.startswith(f"{path} ") and re.search(why, said) and len(said) < 400


@pytest.mark.needs("convert")
@pytest.mark.parametrize("V, name, end", [(266, "<|end|>", None), (272, nanogpt.END, 0)])
def test_a_model_of_tokens_takes_a_tokenizer_from_a_file_and_keeps_its_rows(V, name, end, tmp_path):
    path = saved(tmp_path / "ckpt.pt", vocab_size=V)
    tokenizer = written(tmp_path / "tokenizer.json", byte_level().replace("<|end|>", name))
    found = nanogpt.read(path, tokenizer)
    assert found.config.vocab_size == found.tokenizer.vocab_size == V
    assert found.weights["token_embedding.weight"].shape == (V, 4) and found.tokenizer.end == end
    assert found.tokenizer.decode(found.tokenizer.encode("the é")) == "the é"
    assert found.notes == [f"its tokens are those of {tokenizer}"]


@pytest.mark.needs("convert")
@pytest.mark.parametrize("content, says", [(byte_level(), "266 ids for a model of 3"),
                                           ("", "cannot read its")])
def test_a_tokenizer_of_another_model_is_refused(content, says, tmp_path):
    tokenizer = written(tmp_path / "tokenizer.json", content)
    assert says in refusal(FormatError, nanogpt.read, saved(tmp_path / "ckpt.pt"), tokenizer)
