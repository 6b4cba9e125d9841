import hashlib
import os
import tracemalloc
from pathlib import Path

import pytest

from data import TextError, cache_folder, read_text, read_texts, reading


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def complaint(name_or_file):
    with pytest.raises(TextError) as caught:
        read_text(str(name_or_file))
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_lantern_is_built_in_and_unchanged():
    text = read_text("lantern")
    assert text.startswith("FINCH:\nWhy do you wipe it")
    assert (hashlib.sha256(text.encode()).hexdigest()
            == "8c38411237bed655ff72afee86bb3b986c668640be957910e145759201261ccf")


def test_a_known_name_wins_over_a_file_unless_written_as_a_path():
    Path("lantern").write_text("a file")
    assert read_text("lantern").startswith("FINCH:")
    assert read_text("./lantern") == "a file"


def test_several_texts_are_read_one_after_another_and_meet_at_a_line_break():
    for name, raw in (("a", b"one\r\ntwo"), ("b", b"\xef\xbb\xbfthree\n"), ("c", b"four\n\n")):
        Path(name).write_bytes(raw)
    texts = read_texts(["a", "b", "c"])
    assert texts == ("one\ntwo\nthree\nfour\n\n", [("a", 7), ("b", 6), ("c", 6)], [])
    assert texts.name == "of 3 files" and read_texts(["b"]).name == "b"
    assert read_texts(["b"]).characters == read_text("b")


def test_of_several_texts_the_one_that_cannot_be_read_is_named():
    for name, raw in (("a", b"one"), ("b", b"caf\xe9"), ("c", b"")):
        Path(name).write_bytes(raw)
    for word, says in (("b", '"b" is not UTF-8'), ("c", '"c" is empty'), ("d", '"d" is neither a')):
        with pytest.raises(TextError, match=f"^{says}"):
            read_texts(["a", word])


def test_several_texts_are_in_memory_once():
    for name in "abcdefgh":
        Path(name).write_bytes(500_000 * name.encode() + b"\n")
    tracemalloc.start()
    try:
        read_texts("abcdefgh")
        assert tracemalloc.get_traced_memory()[1] < 6_000_000      # all, one more, and its bytes
    finally:
        tracemalloc.stop()


def test_every_line_end_becomes_a_newline():
    Path("t").write_bytes(b"a\r\nb\rc\n\r\n\r\rd")
    assert read_text("t") == "a\nb\nc\n\n\n\nd"


def test_a_byte_order_mark_is_dropped_at_the_start_only():
    Path("t").write_bytes("\ufeffa\ufeffé".encode())
    assert read_text("t") == "a\ufeffé"


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "t").write_text("at home")
    assert read_text("~/t") == "at home"


def test_a_misspelt_name_is_answered_with_the_nearest_one():
    assert complaint("Shakespear") == (
        '"Shakespear" is neither a known text (lantern, shakespeare) nor a file; '
        'did you mean "shakespeare"?')
    assert complaint("LANTERN").endswith('did you mean "lantern"?')


def test_a_missing_file_is_answered_with_what_would_do():
    assert complaint("notes.txt") == (
        '"notes.txt" is neither a known text (lantern, shakespeare) nor a file; '
        'give the path of a UTF-8 text file')
    assert 'neither a known text' in complaint("")


def test_a_folder_is_no_text(tmp_path):
    assert complaint(tmp_path) == f'"{tmp_path}" is a folder; give the path of a UTF-8 text file'


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="this system has no such devices")
def test_a_device_which_may_have_no_end_is_no_text():
    assert complaint("/dev/zero") == '"/dev/zero" is a device; give the path of a UTF-8 text file'


def test_a_file_that_may_not_be_read_is_named_with_the_reason(monkeypatch):
    def forbidden(*_):
        raise PermissionError(13, "Permission denied")
    monkeypatch.setattr(reading, "open", forbidden, raising=False)
    assert complaint("secret.txt") == (
        'cannot read "secret.txt": Permission denied; have its rights or its folder\'s changed, or '
        "give another file")


@pytest.mark.parametrize("name", [
    "a\0b", "a\ud800b", pytest.param(5000 * "a", id="long", marks=pytest.mark.skipif(
        os.name == "nt", reason="Windows says that there is no such file"))])
def test_a_name_that_no_file_can_have_is_answered_with_the_reason(name):
    assert complaint(name).startswith(f'cannot read "{name}": ')


def test_bytes_that_are_not_utf8_are_shown_with_their_place():
    Path("t").write_bytes("ä\n".encode() + b"caf\xe9")
    assert complaint("t") == ('"t" is not UTF-8: byte 0xe9 at position 6 (line 2); convert it, '
                              'for example with iconv -f LATIN1 -t UTF-8 "t" > utf8.txt')


def test_utf16_is_recognised():
    Path("t").write_bytes("text".encode("utf-16"))
    assert "iconv -f UTF-16 -t UTF-8" in complaint("t")


@pytest.mark.parametrize("raw", [b"", b"\xef\xbb\xbf"])
def test_an_empty_text_is_refused(raw):
    Path("t").write_bytes(raw)
    assert complaint("t") == '"t" is empty; give a file with text in it'


@pytest.mark.parametrize("platform, variable, below", [
    ("linux", "XDG_CACHE_HOME", ".cache"),
    ("win32", "LOCALAPPDATA", "AppData/Local"),
    ("darwin", None, "Library/Caches"),
])
def test_downloads_are_kept_where_the_platform_keeps_them(
        platform, variable, below, tmp_path, monkeypatch):
    monkeypatch.setattr(reading.sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
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
