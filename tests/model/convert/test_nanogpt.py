"""Checkpoints of nanoGPT: the model that was saved comes out, whatever else is in the file."""
import os
import pickle
import re
import shutil
import sys

import numpy as np
import pytest

from data.tokenizer import MissingLibrary
from model import TransformerConfig
from model.convert import nanogpt
from model.convert.model_file import FormatError
from tests.kit import ROOT, arrays, model_of, refusal, written
from tests.model.convert.nanogpt_files import HEAD, NORM, saved
from tests.token_files import byte_level

FOLDER = ROOT / "tests" / "reference" / "nanogpt"
CHARACTERS = "\n !aehlortw"
CONFIG = TransformerConfig(11, block_size=6, n_layer=2, n_head=2, n_embd=8, dropout=0.1, bias=True)
pytestmark = pytest.mark.needs("interop")


@pytest.fixture
def folder(tmp_path):
    """A copy of the folder that PyTorch wrote."""
    for path in FOLDER.iterdir():
        shutil.copy(path, tmp_path)
    return tmp_path


def refused(*files):
    """Why a checkpoint is not read."""
    return refusal(FormatError, nanogpt.read, *files)


class Reduced:
    """Pickled as a call that makes a folder."""

    def __reduce__(self):
        return os.mkdir, ("here",)


def test_the_logits_of_what_torch_saved_are_those_of_torch():
    found = nanogpt.read(FOLDER / "ckpt.pt")
    assert found.kind == "nanoGPT checkpoint" and found.config == CONFIG
    assert found.notes == ["written after 250 iterations",
                           f"its characters are those of {FOLDER / 'meta.pkl'}"]
    reference = arrays(FOLDER / "logits.npz")
    logits = model_of(CONFIG, found.weights)(reference["ids"]).data
    np.testing.assert_allclose(logits, reference["logits"], atol=1e-5, rtol=1e-5)
    assert found.tokenizer.vocabulary == CHARACTERS


def test_the_characters_are_found_where_nanogpt_keeps_them_and_keep_their_ids(folder):
    (folder / "data" / "hello").mkdir(parents=True)
    meta = (folder / "meta.pkl").rename(folder / "data" / "hello" / "meta.pkl")
    (folder / "out").mkdir()
    path = (folder / "ckpt.pt").rename(folder / "out" / "ckpt.pt")
    meta.write_bytes(pickle.dumps({"itos": dict(enumerate(CHARACTERS[::-1]))}))
    assert nanogpt.read(path).tokenizer.vocabulary == CHARACTERS[::-1]
    meta.unlink()
    said = refused(path)
    assert "put its meta.pkl (data/hello/meta.pkl of nanoGPT) beside " in said
    assert "--tokenizer" in said


@pytest.mark.parametrize("meta, says", [
    (pickle.dumps([1]), "list indices"),
    *((pickle.dumps(meta), "no itos with a character for each of 11 ids") for meta in (
        {"itos": ["a"]}, {"itos": dict.fromkeys(range(11), "ab")},
        {"itos": dict.fromkeys(range(11), 5)}, {"itos": dict(enumerate(CHARACTERS, 1))})),
    (pickle.dumps({"itos": dict.fromkeys(range(11), "a")}), "'a' is in it twice"),
    (pickle.dumps(Reduced()), r"wants '?(posix|nt)\.mkdir"),
    (b"\x80\x02\x82\x01.", "unregistered extension"), (b"]r\xff\xff\xff\xff.", "list indices"),
    (bytes(nanogpt.LARGEST + 1), "")], ids=range(10))
def test_a_meta_pkl_that_is_not_of_this_model_is_refused_and_not_executed(meta, says, folder,
                                                                          monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "meta.pkl").write_bytes(meta)
    said = refused(folder / "ckpt.pt")
    assert "meta.pkl is not the meta.pkl of this checkpoint: " in said and re.search(says, said)
    assert not (folder / "here").exists()


# Checkpoints written here


def test_an_output_of_its_own_and_the_mask_of_old_versions_are_no_trouble(tmp_path):
    import torch
    numbers = torch.arange(20.0)
    names = {HEAD: numbers[8:].reshape(3, 4), "transformer.h.0.attn.bias": torch.ones(1, 1, 5, 5),
             NORM: None, f"_orig_mod.{NORM}": numbers[:4]}      # as torch.compile names it
    found = nanogpt.read(saved(tmp_path / "ckpt.pt", names=names))
    assert not found.config.tied
    assert np.array_equal(found.weights["lm_head.weight"], np.arange(8.0, 20).reshape(3, 4))
    assert np.array_equal(found.weights["norm.weight"], np.arange(4.0))


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_numbers_of_another_precision_become_float32(dtype, tmp_path):
    import torch
    numbers = torch.arange(4).to(getattr(torch, dtype)).requires_grad_()
    found = nanogpt.read(saved(tmp_path / "ckpt.pt", names={NORM: numbers})).weights["norm.weight"]
    assert found.dtype == np.float32 and np.array_equal(found, np.arange(4))


def test_numbers_that_do_not_have_their_checksum_are_refused(tmp_path):
    import torch
    numbers = torch.arange(4.0)
    path = saved(tmp_path / "ckpt.pt", names={NORM: numbers})
    bits = numbers.numpy().tobytes()
    written(path, path.read_bytes().replace(bits, b"\1" + bits[1:]))
    assert re.search(r"its member ckpt/data/\d is damaged", refused(path))


@pytest.mark.needs()
def test_without_torch_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert refusal(MissingLibrary, nanogpt.read, FOLDER / "ckpt.pt") == (
        f"{FOLDER / 'ckpt.pt'} is a file of PyTorch, which needs the library torch; install it "
        "with python -m pip install -e '.[interop]'")


@pytest.mark.parametrize("dataset", ["../private", "..", "", ".", "a\nb", 3])
def test_a_dataset_that_is_no_name_of_a_folder_is_not_looked_for(dataset, tmp_path):
    path = saved(tmp_path / "ckpt.pt", keys={"config": {"dataset": dataset}})
    for folder in ("data", "private"):
        (tmp_path / folder).mkdir()
        shutil.copy(tmp_path / "meta.pkl", tmp_path / folder)
    (tmp_path / "meta.pkl").unlink()
    assert "put its meta.pkl beside" in refused(path)


REFUSED = {
    "no dict": (dict(whole=[]), "no model and model_args"),
    "a model that is a text": (dict(keys={"model": "a"}), "no model and model_args"),
    "no model_args": (dict(keys={"model_args": None}), "no model and model_args"),
    "a setting too few": (dict(keys={"model_args": {"n_layer": 1}}), "bias of its model_"),
    "a setting too many": (dict(arguments={"use_rmsnorm": True}), "use_rmsnorm of its model_args"),
    "a setting that is a text": (dict(arguments={"n_head": "2"}), "n_head takes a whole"),
    "a number for a switch": (dict(arguments={"bias": 1}), "bias takes True or False"),
    "10^12 layers": (dict(arguments={"n_layer": 10 ** 12}), r"claims 10{12} layers, and holds 9 w"),
    "biases that are not there": (dict(arguments={"bias": True}), r"lacks .*attn\.c_attn\.bias"),
    "a tensor too few": (dict(names={NORM: None}), r"lacks transformer\.ln_f\.weight"),
    "a tensor too many": (dict(names={"transformer.h.1.x": True}),
                          r"has transformer\.h\.1\.x,"),
    "no tensor": (dict(names={NORM: 3}), r"ln_f\.weight of its model is no tensor"),
    "a name without end": (dict(names={"x" * 9999: 3}), r": x{80}\.\.\. of its model is no"),
    "weights that share their numbers": (dict(shared=64 * 16, n_embd=16, n_layer=8), "share their"),
    "an evil optimiser": (dict(keys={"optimizer": Reduced()}), r"wants (posix|nt)\.mkdir")}


@pytest.mark.parametrize("changes, why", REFUSED.values(), ids=REFUSED)
def test_a_file_that_holds_another_model_is_refused_in_a_line(changes, why, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = saved(tmp_path / "ckpt.pt", **changes)
    said = refused(path)
    assert said.startswith(f"{path} ") and re.search(why, said) and len(said) < 400
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize("V, name, end", [(266, "<|end|>", None), (272, nanogpt.END, 0)])
def test_a_model_of_tokens_takes_a_tokenizer_from_a_file_and_keeps_its_rows(V, name, end, tmp_path):
    path = saved(tmp_path / "ckpt.pt", vocab_size=V)
    tokenizer = written(tmp_path / "tokenizer.json", byte_level().replace("<|end|>", name))
    found = nanogpt.read(path, tokenizer)
    assert found.config.vocab_size == found.tokenizer.vocab_size == V
    assert found.weights["token_embedding.weight"].shape == (V, 4) and found.tokenizer.end == end
    assert found.tokenizer.decode(found.tokenizer.encode("the é")) == "the é"
    assert found.notes == [f"its tokens are those of {tokenizer}"]


@pytest.mark.parametrize("content, says", [(byte_level(), "266 ids for a model of 3"),
                                           ("", "cannot read its")])
def test_a_tokenizer_of_another_model_is_refused(content, says, tmp_path):
    assert says in refused(saved(tmp_path / "ckpt.pt"),
                           written(tmp_path / "tokenizer.json", content))
