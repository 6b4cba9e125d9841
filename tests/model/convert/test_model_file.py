"""What the readers of all formats share: limits, missing libraries, damaged files."""
import os
import random
import sys

import pytest

from data.tokenizer import MissingLibrary
from model import save_checkpoint
from model.convert import checkpoint, gguf, model_file, nanogpt, safetensors
from model.convert.model_file import FormatError, text_of
from model.convert.tokens import TokenTokenizer
from tests.kit import model_of, refusal, written
from tests.model.convert import gguf_files, nanogpt_files, safetensors_files
from tests.reliability.damage import mutated


def test_a_text_is_read_to_a_limit_and_refused_beyond_it(tmp_path, monkeypatch):
    path = written(tmp_path / "config.json", b"\xef\xbb\xbf{}\xc3\xa9")
    assert text_of(path) == "{}é"       # without the byte order mark
    monkeypatch.setattr(model_file, "MOST_TEXT", 5)
    assert text_of(written(path, "12345")) == "12345"
    cases = [(written(path, "123456"), "config.json has more than 5 bytes"),
             (written(tmp_path / "a", b"\xff"), "a is not a text in UTF-8"),
             (tmp_path, "is a folder or a device; give a file"), ("/dev/zero", "/dev/zero is a ")]
    for path, says in cases[:4 if os.path.exists("/dev/zero") else 3]:
        assert says in refusal(FormatError, text_of, path)


@pytest.mark.parametrize("library, extra, read", [
    ("safetensors", "convert", safetensors.read), ("gguf", "gguf", gguf.read),
    ("tokenizers", "convert", TokenTokenizer)])
def test_without_a_library_the_message_says_how_to_install_it(library, extra, read, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    said = refusal(MissingLibrary, read, "nothing")
    assert library in said and f"python -m pip install -e '.[{extra}]'" in said


def sound(path, reader):
    """Write a sound file of a format."""
    if reader is gguf:
        gguf_files.written(path, *gguf_files.llama())
    elif reader is nanogpt:
        nanogpt_files.saved(path)
    else:
        found = safetensors_files.written(path)
        if reader is checkpoint:
            save_checkpoint(path, model_of(found.config, found.weights), found.tokenizer)


@pytest.mark.parametrize("reader", [
    pytest.param(reader, marks=pytest.mark.needs(*extras))
    for reader, extras in ((checkpoint, ()), (gguf, ["gguf"]), (safetensors, ["convert"]),
                           (nanogpt, ["interop"]))])
def test_a_file_that_is_cut_is_refused_and_one_that_is_changed_is_refused_or_read(tmp_path, reader):
    path, draw = tmp_path / "model", random.Random(0)
    sound(path, reader)
    whole = path.read_bytes()
    assert dict(reader.read(path).weights)
    for _ in range(60):
        path.write_bytes(whole[:draw.randrange(len(whole) - 32)])
        with pytest.raises(ValueError):
            dict(reader.read(path).weights)
    for _ in range(150):
        path.write_bytes(mutated(whole, draw))
        try:
            assert all(a.dtype.itemsize == 4 for a in reader.read(path).weights.values())
        except ValueError as error:
            assert "\n" not in str(error)
