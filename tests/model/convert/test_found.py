"""What the readers of all formats share."""
import os

import pytest

from model.convert import found
from model.convert.found import FormatError, text_of


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(b"\xef\xbb\xbf{}\xc3\xa9")
    assert text_of(path) == "{}é"


def test_a_text_is_read_to_a_limit_and_refused_beyond_it(tmp_path, monkeypatch):
    monkeypatch.setattr(found, "MOST_TEXT", 5)
    path = tmp_path / "tokenizer.json"
    path.write_bytes(b"12345")
    assert text_of(path) == "12345"
    path.write_bytes(b"123456")
    with pytest.raises(FormatError, match="tokenizer.json has more than the 5 bytes of text"):
        text_of(path)


def test_what_is_no_text_is_refused(tmp_path):
    with pytest.raises(FormatError, match="is a folder or a device; give a file"):
        text_of(tmp_path)
    if os.path.exists("/dev/zero"):
        with pytest.raises(FormatError, match="/dev/zero is a folder or a device"):
            text_of("/dev/zero")
    (tmp_path / "a").write_bytes(b"\xff")
    with pytest.raises(FormatError, match="a is no text in UTF-8"):
        text_of(tmp_path / "a")
