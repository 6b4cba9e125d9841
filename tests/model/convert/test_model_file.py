"""What the readers of all formats share."""
import os
import sys

import pytest

from data.tokenizer import MissingLibrary
from model.convert import gguf, model_file, safetensors
from model.convert.model_file import FormatError, text_of
from model.convert.tokens import TokenTokenizer
from tests.kit import refusal, written


def test_a_text_is_read_to_a_limit_and_refused_beyond_it(tmp_path, monkeypatch):
    path = written(tmp_path / "config.json", b"\xef\xbb\xbf{}\xc3\xa9")
    assert text_of(path) == "{}é"       # without the byte order mark
    monkeypatch.setattr(model_file, "MOST_TEXT", 5)
    assert text_of(written(path, "12345")) == "12345"
    assert "config.json has more than 5 bytes" in refusal(FormatError, text_of,
                                                          written(path, "123456"))


def test_what_is_no_text_is_refused(tmp_path):
    cases = [(tmp_path, "is a folder or a device; give a file"),
             (written(tmp_path / "a", b"\xff"), "a is not a text in UTF-8")]
    if os.path.exists("/dev/zero"):
        cases.append(("/dev/zero", "/dev/zero is a folder or a device"))
    for path, says in cases:
        assert says in refusal(FormatError, text_of, path)


@pytest.mark.parametrize("library, extra, read", [
    ("safetensors", "convert", safetensors.read), ("gguf", "gguf", gguf.read),
    ("tokenizers", "convert", TokenTokenizer)])
def test_without_a_library_the_message_says_how_to_install_it(library, extra, read, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    said = refusal(MissingLibrary, read, "nothing")
    assert library in said and f"python -m pip install -e '.[{extra}]'" in said
