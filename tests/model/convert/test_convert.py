"""The command that converts: what it reads, writes and prints, and that nothing is lost."""
import json
import os
import pathlib
import shlex
import shutil
import signal

import numpy as np
import pytest

from data.tokenizer import MissingLibrary
from minigrad import machine
from model import (CharTokenizer, EncoderDecoder, EncoderDecoderConfig, Transformer,
                   TransformerConfig, save_checkpoint)
from model.convert import __main__ as convert
from model.convert import checkpoint, hugging_face, safetensors
from model.convert.__main__ import main
from model.convert.model_file import FormatError
from model.convert.tokens import TokenTokenizer
from model.interrupts import Interrupts
from tests.kit import at_home, memory, nobody_reads, refused, stored
from tests.token_files import byte_level

pytestmark = pytest.mark.late
NANOGPT = pathlib.Path(__file__).parents[2] / "reference" / "nanogpt" / "ckpt.pt"
TOKENIZER = CharTokenizer.of("b\n'aé漢🙂")
CONFIG = TransformerConfig(TOKENIZER.vocab_size, block_size=5, n_layer=2, n_head=2, n_embd=4)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, with the checkpoint of a run."""
    monkeypatch.chdir(tmp_path)
    save_checkpoint("out/ckpt.npz", Transformer(CONFIG, seed=3), TOKENIZER, {"text": "x"})
    return tmp_path


def weights(path):
    return {name: a.tobytes() for name, a in checkpoint.read(path).weights.items()}


def refusal(capsys, *words):
    """The line that refuses a conversion; nothing is written."""
    def everything():
        return {path: path.read_bytes() if path.is_file() else None
                for path in pathlib.Path().rglob("*")}
    before = everything()
    line = refused(capsys, *words, main=main)
    assert everything() == before
    return line


def test_convert_refuses_weights_that_do_not_fit_into_memory(here, capsys, monkeypatch):
    largest = 4 * 16 * 4        # bytes of an MLP's weights
    monkeypatch.setattr(machine, "memory_limit", lambda: 3.0 * largest - 1)
    assert "the largest weights in out/ckpt.npz need 768.0 B of memory" in refusal(
        capsys, "out", "a.npz")
    monkeypatch.setattr(machine, "memory_limit", lambda: 3.0 * largest)
    main(["out", "a.npz"])


@pytest.mark.needs("convert")
def test_a_checkpoint_goes_round_by_each_kind_of_file_to_the_bit(here, monkeypatch):
    at_home(monkeypatch, here)
    (here / "hf").mkdir()       # an empty folder may be filled
    for words in ("out hf", "hf a", "~/out/ckpt.npz ~/a.safetensors", "a.safetensors b",
                  "hf c/d.npz", "hf .safetensors"):
        main(words.split())
    assert weights("out/ckpt.npz") == weights("a/ckpt.npz") == weights("b/ckpt.npz") == weights(
        "c/d.npz")
    assert safetensors.read(".safetensors").config == CONFIG
    assert {path.name for path in here.iterdir()} == {
        "out", "hf", "a", "b", "c", "a.safetensors", ".safetensors"}


def test_it_says_what_it_read_what_it_wrote_and_what_to_do_next(here, capsys):
    main(["out", "small.npz"])
    size = (here / "small.npz").stat().st_size
    said = " ".join(capsys.readouterr().out.split())
    for part in ("read out/ckpt.npz, a checkpoint model 452 parameters: 2 layers, 2 heads, 4 ",
                 "block of 5 learned positions, layer norm, gelu MLPs of 16 vocabulary 7 char",
                 f"written small.npz, {size / 1000:#.4g} kB compared all 452 numbers, the ",
                 "use it: python train.py --init_from small.npz --data my_text.txt"):
        assert part in said
    written = np.load("small.npz")
    assert TransformerConfig(**json.loads(str(written["config"]))) == CONFIG
    assert str(written["training"]) == "{}"


@pytest.mark.parametrize("target", [
    "a.npz", pytest.param("hf", marks=pytest.mark.needs("convert"))])
def test_convert_writes_the_whole_file_if_nobody_reads_what_it_says(here, monkeypatch, target):
    with nobody_reads(monkeypatch):
        main(["out", target])
    if target == "hf":
        main([target, "a.npz"])
    assert weights("a.npz") == weights("out/ckpt.npz")


@pytest.mark.needs("convert")
def test_the_next_command_is_one_that_the_shell_reads(here, capsys):
    main(["out", "my hf"])
    *_, command = capsys.readouterr().out.splitlines()
    python, c, code = shlex.split(command)
    assert (python, c) == ("python", "-c") and "'text-generation', 'my hf')('\\n', " in code
    assert '"' in command       # which Windows' shell reads too
    compile(code, "", "exec")
    main(["out", "$x"])
    assert "-c 'from" in (said := capsys.readouterr().out) and '"$' not in said
    main(["my hf", "my out"])
    assert capsys.readouterr().out.endswith("python -m model.sample --out_dir 'my out'\n")
    main(["out", "x.safetensors"])
    assert capsys.readouterr().out.endswith("python -m model.convert x.safetensors out_x\n")
    # Since December 2025 llama-cli only chats.
    assert "llama-completion -m " in convert.next_command(here, convert.to_gguf, None)


@pytest.mark.needs("convert")
def test_a_model_of_other_parts_is_described():
    config = TransformerConfig(272, block_size=9, n_layer=1, n_head=4, n_embd=8, n_kv_head=2,
                               tied=False, activation="swiglu", n_inner=5)
    tokenizer = TokenTokenizer(byte_level(), vocab_size=272)
    said = convert.describe(convert.ModelFile("", config, {}, tokenizer, ["from a friend"]))
    for words in (f"model       {480 + 16 * 272 - 72:,} parameters: 1 layer, ", "   from a friend",
                  "4 heads (2 of keys and values)", "swiglu MLPs of 5, an output of its own\n",
                  "272 tokens; the tokenizer has no text for 6 of them\n"):
        assert words in said


@pytest.mark.needs("interop")
@pytest.mark.parametrize("target", [".", "../link"])
def test_a_file_is_known_by_its_first_bytes_and_a_folder_filled(here, monkeypatch, capsys, target):
    for path in NANOGPT.parent.iterdir():
        shutil.copy(path, here)
    (here / "ckpt.pt").rename("weights.bin")
    (here / "empty").mkdir()
    (here / "link").symlink_to("empty")
    monkeypatch.chdir(here / "empty")
    number = (here / "empty").stat().st_ino
    main(["../weights.bin", target])
    assert "weights.bin, a nanoGPT checkpoint" in capsys.readouterr().out
    assert (here / "empty").stat().st_ino == number
    assert [path.name for path in (here / "empty").iterdir()] == ["ckpt.npz"]


@pytest.mark.parametrize("model, says", [
    (Transformer(TransformerConfig(7, 5, 1, 2, 4, ngrams=2)), "train a model with --ngrams 1, or"),
    (Transformer(CONFIG, dtype=np.float64), "has weights of float64, and models are exchanged in"),
    (EncoderDecoder(EncoderDecoderConfig(7, 6, 2, 1, 4)), "holds an encoder-decoder")])
def test_what_cannot_be_expressed_is_refused(here, capsys, model, says):
    save_checkpoint("other/ckpt.npz", model, TOKENIZER)
    assert says in refusal(capsys, "other", "hf")


def test_a_tokenizer_for_a_model_that_has_its_own_is_refused(here, capsys):
    assert "out/ckpt.npz has its own vocabulary; leave out --tokenizer" in refusal(
        capsys, "out", "hf", "--tokenizer", "tokenizer.json")


def test_nothing_is_written_over(here, capsys, monkeypatch):
    (here / "x.npz").mkdir()
    (here / "gone").symlink_to("nowhere")
    for target in ("out", "out/ckpt.npz", ".", "x.npz", "gone"):
        assert "is there already, and nothing is written over it; give another name" in refusal(
            capsys, "out", target)

    def write(path, found, real=checkpoint.write):
        (here / "a.npz").write_text("another's")        # meanwhile
        return real(path, found)
    monkeypatch.setattr(checkpoint, "write", write)
    assert "a.npz is there already" in refused(capsys, "out", "a.npz", main=main)
    assert (here / "a.npz").read_text() == "another's"
    assert {path.name for path in here.iterdir()} == {"a.npz", "x.npz", "gone", "out"}


FULL = {"full disk": OSError(28, "No space left on device"),
        "full disk, says NumPy": OSError("131072 requested and 52576 written")}


@pytest.mark.parametrize("target", ["a.npz", "new/a.npz", "a.safetensors", "hf"])
@pytest.mark.parametrize("name", [*FULL, *(name for name in Interrupts.NAMES
                                           if hasattr(signal, name))])
def test_a_full_disk_and_what_asks_to_stop_leave_nothing(here, capsys, monkeypatch, target, name):
    number, noted = getattr(signal, name, signal.SIGINT), []

    def fail(descriptor):
        if name in FULL:
            raise FULL[name]
        signal.raise_signal(number)
    monkeypatch.setattr(os, "fsync", fail)
    before = signal.signal(number, lambda *_: noted.append(number))
    try:
        with pytest.raises(SystemExit) as caught:
            main(["out", target])
        signal.raise_signal(number)         # whose handler is the one before
    finally:
        signal.signal(number, before)
    assert f"{caught.value.code}{capsys.readouterr().err}" == (
        f"model.convert: cannot use {target}: No space left on device; first make room there"
        if name in FULL else "130\nstopped; nothing was written\n")
    assert [path.name for path in here.iterdir()] == ["out"] and len(noted) == 1


@pytest.mark.needs("convert")
def test_what_a_killed_conversion_left_is_removed_and_in_the_way_of_none(here, capsys):
    left, running = (here / "hf" / f".convert.{n}.part" for n in (2 ** 22 + 1, os.getppid()))
    for part in (left, running):
        (part / "whole").mkdir(parents=True)
    main(["out", "hf"])
    assert not left.exists() and running.exists() and (here / "hf" / "config.json").exists()


@pytest.mark.parametrize("module, target", [
    (checkpoint, "a.npz"),
    pytest.param(hugging_face, "hf", marks=pytest.mark.needs("convert")),
    pytest.param(safetensors, "a.safetensors", marks=pytest.mark.needs("convert"))])
@pytest.mark.parametrize("changes, says", [
    (lambda found: {"weights": {name: a + (np.float32(1e-7) if name == "norm.weight" else 0)
                                for name, a in found.weights.items()}},
     "other numbers in norm.weight, so nothing is kept"),
    (lambda found: {"tokenizer": CharTokenizer("abcdefg")}, "another configuration, vocabulary or"),
    (lambda found: {"config": TransformerConfig(7, n_layer=2, n_embd=4)}, "another configuration"),
    (lambda found: {"weights": {}}, "names, so nothing is kept")],
    ids=["numbers", "vocabulary", "configuration", "names"])
def test_what_comes_back_changed_is_not_kept(
        here, capsys, monkeypatch, module, target, changes, says):
    source, real = here / "out" / "ckpt.npz", module.read
    monkeypatch.setattr(module, "read", lambda path: real(path) if path.samefile(source) else (
        found := real(path))._replace(**changes(found)))
    said = refusal(capsys, source, target)
    assert "what was written came back with " in said and says in said


@pytest.mark.needs("convert")
def test_weights_that_are_no_numbers_are_refused_under_the_name_of_their_model(here, capsys):
    main(["out", "hf"])
    tensors, _ = safetensors.open_tensors("hf/model.safetensors")
    tensors |= stored({"transformer.ln_f.weight": np.full(4, np.nan, np.float32)})
    safetensors.write_tensors("hf/bad.safetensors", tensors, {})
    os.replace("hf/bad.safetensors", "hf/model.safetensors")
    capsys.readouterr()
    assert "hf cannot become a checkpoint: model/norm.weight holds nan or inf; " in refusal(
        capsys, "hf", "bad")


@pytest.mark.needs("convert")
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_weights_that_are_no_numbers_are_refused_for_each_kind_of_file(here, capsys, number):
    main(["out", "a.safetensors"])
    tensors, metadata = safetensors.open_tensors("a.safetensors")
    tensors |= stored({"norm.weight": np.full(4, number, np.float32)})
    safetensors.write_tensors("bad.safetensors", tensors, metadata)
    capsys.readouterr()
    assert "norm.weight holds nan or inf; its training may have diverged, so take a " in refusal(
        capsys, "bad.safetensors", "b.safetensors")
    assert "holds nan or inf" in refusal(capsys, "bad.safetensors", "b")


def test_what_cannot_be_read_back_is_named_as_the_user_knows_it(here, capsys, monkeypatch):
    def read(path, real=checkpoint.read):
        if path.samefile("out/ckpt.npz"):
            return real(path)
        raise error(f"cannot take the model of {path}, which is in {path.parent}")
    monkeypatch.setattr(checkpoint, "read", read)
    for error, says in ((FormatError, "nothing is kept, as what was written cannot be read back: "
                                      "cannot take the model of new/a.npz, which is in new/a.npz; "
                                      "this is a mistake of this program"),
                        (MissingLibrary, "model.convert: cannot take the model of new/a.npz, ")):
        said = refusal(capsys, "out", "new/a.npz")
        assert says in said and ".part" not in said


@pytest.mark.needs("convert")
def test_a_model_is_never_in_memory_as_a_whole(here):
    config = TransformerConfig(7, block_size=5, n_layer=12, n_head=2, n_embd=128)
    save_checkpoint("large/ckpt.npz", Transformer(config), CharTokenizer("abcdefg"))
    size = os.path.getsize("large/ckpt.npz")
    for words in (["large", "hf"], ["hf", "back"], ["large", "x.safetensors"],
                  ["x.safetensors", "again"]):
        with memory() as taken:
            main(words)
        assert taken[0] < size / 3, words


@pytest.mark.needs("convert")
def test_a_model_of_tokens_goes_round_and_its_end_is_compared(here):
    config = TransformerConfig(266, block_size=5, n_layer=1, n_head=2, n_embd=4)
    found = convert.ModelFile("", config, Transformer(config).state_dict(),
                              TokenTokenizer(byte_level(), end=0))
    safetensors.write("a.safetensors", found)
    back = safetensors.read("a.safetensors")
    convert.compare(found, back)
    with pytest.raises(ValueError, match="another configuration, vocabulary"):
        convert.compare(found, back._replace(tokenizer=TokenTokenizer(byte_level(), end=1)))
