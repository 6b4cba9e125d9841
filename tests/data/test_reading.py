import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from data import TextError, cache_folder, read_text, read_texts, reading
from tests.kit import at_home, memory, python, refusal


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    at_home(monkeypatch, tmp_path)


def test_lantern_is_built_in_and_unchanged():
    text = read_text("lantern")
    assert text.startswith("FINCH:\nWhy do you wipe it")
    assert (hashlib.sha256(text.encode()).hexdigest()
            == "8c38411237bed655ff72afee86bb3b986c668640be957910e145759201261ccf")


def test_a_known_name_wins_over_a_file_unless_written_as_a_path():
    Path("lantern").write_text("a file")
    for read in (read_text, lambda name: read_texts([name]).characters):
        assert read("lantern").startswith("FINCH:")
        assert read("./lantern") == read("~/lantern") == "a file"


def test_read_text_loads_no_guesses_for_a_text_in_utf8():
    program = """
import sys
import data
data.read_text("lantern")
print("data.encodings" in sys.modules)
"""
    assert python("-c", program).stdout == "False\n"


def test_several_texts_are_read_one_after_another_and_meet_at_a_line_break():
    for name, raw in (("a", b"one\r\ntwo"), ("b", b"\xef\xbb\xbfthree\n"), ("c", b"four\n\n")):
        Path(name).write_bytes(raw)
    texts = read_texts(["a", "b", "c"])
    assert texts == ("one\ntwo\nthree\nfour\n\n", [("a", 7), ("b", 6), ("c", 6)], [])
    assert texts.name == "of 3 files"
    assert read_texts(["b"]).name == "b"
    assert read_texts(["b"]).characters == read_text("b")


def test_several_texts_are_in_memory_once():
    for name in "abcdefgh":
        Path(name).write_bytes(500_000 * name.encode() + b"\n")
    with memory() as taken:
        read_texts("abcdefgh")
    assert taken[0] < 6_000_000         # all, one more, and its bytes


@pytest.mark.parametrize("raw, text", [
    (b"a\r\nb\rc\n\r\n\r\rd", "a\nb\nc\n\n\n\nd"),      # every line end becomes a newline
    ("\ufeffa\ufeffé".encode(), "a\ufeffé"),            # a byte order mark goes from the start only
    (b"a\x01b\x02c\x03d\x04", "a\1b\2c\3d\4"), ("\x1b[1m漢字\x08\n".encode(), "\x1b[1m漢字\x08\n")])
def test_line_ends_and_byte_order_marks_do_not_become_characters(raw, text):
    Path("t").write_bytes(raw)
    assert read_text("t") == text


LONG = "The quick brown fox jumps over the lazy dog, says Žofie.\n" * 30
NO_TEXT = np.random.default_rng(0).bytes(999)
MISSING = "is neither a known text (lantern, shakespeare) nor a file; "


@pytest.mark.parametrize("name, raw, says", [
    ("Shakespear", None, f'"Shakespear" {MISSING}did you mean "shakespeare"?'),
    ("LANTERN", None, 'did you mean "lantern"?'),
    ("lantern,shakespeare", None, "of several texts, put spaces between the names: lantern "
                                  "shakespeare"),
    ("lantern,no", None, 'did you mean "lantern"?'),
    ("notes.txt", None, f'"notes.txt" {MISSING}give the path of a UTF-8 text file'),
    ("", None, MISSING), (".", None, 'cannot read ".": '),
    *[(name, None, f'cannot read "{name}": ') for name in ("a\0b", "a\ud800b")],
    pytest.param(5000 * "a", None, "", marks=pytest.mark.skipif(
        os.name == "nt", reason="Windows says that there is no such file")),
    pytest.param("/dev/zero", None, 'cannot read "/dev/zero": it is a device', marks=pytest.mark
                 .skipif(not os.path.exists("/dev/zero"), reason="this system has none")),
    ("t", b"Zo\xeb\ncaf\xe9", '"t" is not UTF-8: byte 0xeb at position 2 (line 1); convert it: '
     'for example with iconv -f CP1252 -t UTF-8 "t" > utf8.txt (as CP1252 it begins "Zoë"'),
    ("t", 9 * b"a line\n" + "今天天气很好，".encode("GB18030"), "byte 0xbd at position 63 (line 10); "
     'convert it: for example with iconv -f GB18030 -t UTF-8 "t" > utf8.txt (as GB18030 a line has '
     '"今天天气很好，")'),
    ("t", "\n".join(3 * ["Привет, мир!"]).encode()[1:], 'iconv -c -f UTF-8 -t UTF-8 "t" > utf8.txt '
     '(as UTF-8 it begins "\ufffdривет, мир!"; this leaves out 1 place that cannot be read)'),
    ("t", "Heute ist sch\x9anes Wetter".encode("latin-1"), '(as CP1250 it begins "Heute ist '
     'schšnes Wetter", or as MACINTOSH it begins "Heute ist schönes Wetter")'),
    *[("t", raw, "it holds NUL bytes; no usual encoding fits it, so it may be damaged or no text; "
       "save it as UTF-8 with the program that wrote it")
      for raw in (b"\0", 3 * b"one text\n" + b"\0", LONG.encode() + b"\0\n")],
    *[("t", raw, "no usual encoding fits it") for raw in (NO_TEXT, NO_TEXT[:99])],
    ("t", "\u4e00\u4e8c\n".encode("utf-16-le"), 'iconv -f UTF-16LE -t UTF-8 "t" > utf8.txt'),
    ("t", b"%PDF-1.4\n", '"t" is a PDF; take its text out, for example with pdftotext, and give '
     "that"),
    ("t", b"\x1f\x8b\x08\0", '"t" is a gzip file; gunzip it, and give the text that was in it'),
    *[("t", text.encode(name), f'iconv -f {name} -t UTF-8 "t" > utf8.txt')
      for text in (LONG, "Hear me speak.\n", "Привет, мир!\n", "Привет", "ἣ μυρί', 🙂\r\n", 9 * LONG)
      for name in ("UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE")],
    *[("t", "text".encode(name), f"iconv -f {name} -t UTF-8") for name in ("UTF-16", "UTF-32")],
    ("t", "\ufefftext".encode("utf-32-be"), "iconv -f UTF-32 -t UTF-8"),
    ("t", LONG.encode("utf-16-le"), '"t" is not UTF-8: it holds control characters such as NUL, as '
     'UTF-16LE does; convert it: '),
    ("t", b"", '"t" is empty; give a file with text in it'), ("t", b"\xef\xbb\xbf", "is empty"),
    ("t", b" \r\n\t", '"t" has only spaces and line breaks; give a file with text in it')],
    ids=lambda value: repr(value)[:20])
def test_what_is_no_text_is_answered_with_what_would_do(name, raw, says):
    if raw is not None:
        Path(name).write_bytes(raw)
        Path("good").write_text("good")
        assert says in refusal(TextError, read_texts, ["good", name])
    assert says in refusal(TextError, read_text, name)


def test_a_file_that_may_not_be_read_is_named_with_the_reason(monkeypatch):
    def forbidden(*_):
        raise PermissionError(13, "Permission denied")
    monkeypatch.setattr(reading, "open", forbidden, raising=False)
    assert refusal(TextError, read_text, "secret.txt") == (
        'cannot read "secret.txt": Permission denied; give the path of a UTF-8 text file')


@pytest.mark.parametrize("raw, ignored", [(b"\x93caf\xe9s\x94", False), ("é\n".encode()[1:]
                                          + 9 * "é\n".encode(), True)])
def test_windows_has_no_iconv_so_python_converts(monkeypatch, tmp_path, raw, ignored):
    (tmp_path / "O'Brien").mkdir()
    path = tmp_path / "O'Brien" / "t"
    path.write_bytes(raw)
    with monkeypatch.context() as windows:
        windows.setattr(reading.sys, "platform", "win32")
        said = refusal(TextError, read_text, str(path))
    assert ("'ignore'" in said) == ignored
    command = said.split('python -c "')[1].split('"')[0]
    exec(command)
    assert read_text("utf8.txt") == ("\n" + 9 * "é\n" if ignored else "“cafés”")


@pytest.mark.parametrize("raw, warned", [(b"<!DOCTYPE html>\n<p>Hi", True), (b"a < b", False),
                                         (b'\xef\xbb\xbf<?xml version="1.0"?>', True)])
def test_the_tags_of_a_page_are_read_with_a_warning(capsys, raw, warned):
    Path("t").write_bytes(raw)
    assert read_text("t").encode() == raw.removeprefix(b"\xef\xbb\xbf")
    assert ('warning: "t" is HTML or XML' in capsys.readouterr().err) == warned


@pytest.mark.parametrize("platform, variable, below", [
    ("linux", "XDG_CACHE_HOME", ".cache"), ("win32", "LOCALAPPDATA", "AppData/Local"),
    ("darwin", None, "Library/Caches")])
def test_downloads_are_cached_where_usual(platform, variable, below, tmp_path, monkeypatch):
    monkeypatch.setattr(reading.sys, "platform", platform)
    for name in ("MINIGRAD_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    assert cache_folder() == tmp_path / below / "minigrad"
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "elsewhere"))
        assert cache_folder() == tmp_path / "elsewhere" / "minigrad"
    monkeypatch.setenv("MINIGRAD_CACHE", str(tmp_path / "chosen"))
    assert cache_folder() == tmp_path / "chosen"


def test_a_user_without_a_home_is_told_how_to_name_a_folder(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")
    monkeypatch.setattr(Path, "home", homeless)
    for name in ("MINIGRAD_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(TextError, match="^there is no cache folder .* variable MINIGRAD_CACHE$"):
        cache_folder()
