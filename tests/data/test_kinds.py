"""Files of other kinds are known by their first bytes, and texts are not taken for them."""
import bz2
import contextlib
import gzip
import io
import json
import lzma
import pickle
import sqlite3
import struct
import tarfile
import zipfile

import numpy as np
import pytest

from data import read_text
from data.kinds import KINDS, is_page, kind_of

TEXT = b"To be or not to be, that is the question.\n" * 20


def zipped(*names, stored=zipfile.ZIP_DEFLATED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", stored) as archive:
        for name, content in names:
            archive.writestr(name, content)
    return file.getvalue()


def saved(write, *arguments):
    file = io.BytesIO()
    write(file, *arguments)
    return file.getvalue()


def tarred():
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        member = tarfile.TarInfo("a.txt")
        member.size = len(TEXT)
        archive.addfile(member, io.BytesIO(TEXT))
    return file.getvalue()


def database():
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create table t (a)")
        return connection.serialize()


HEADER = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
FILES = {
    "gzip file": gzip.compress(TEXT), "bzip2 file": bz2.compress(TEXT),
    "xz file": lzma.compress(TEXT),
    "compressed file": lzma.compress(TEXT, lzma.FORMAT_ALONE), "tar archive": tarred(),
    "zip archive": zipped(("a.txt", TEXT)), "Word file": zipped(
        ("[Content_Types].xml", "<a/>"), ("word/document.xml", TEXT)),
    "Excel file": zipped(("[Content_Types].xml", "<a/>"), ("xl/workbook.xml", TEXT)),
    "EPUB": zipped(("mimetype", "application/epub+zip"), ("a.xhtml", TEXT),
                   stored=zipfile.ZIP_STORED),
    "LibreOffice": zipped(("mimetype", "application/vnd.oasis.opendocument.text"),
                          ("content.xml", TEXT), stored=zipfile.ZIP_STORED),
    "checkpoint": saved(np.savez, np.arange(9)), "npy file": saved(np.save, np.arange(9)),
    "PyTorch": zipped(("archive/data.pkl", TEXT)), "pickle": pickle.dumps(TEXT),
    "PDF": b"%PDF-1.7\n1 0 obj\n", "RTF": rb"{\rtf1\ansi Hello}", "PostScript": b"%!PS-Adobe-3.0\n",
    "old Office": bytes.fromhex("d0cf11e0a1b11ae1") + bytes(99),
    "GGUF": b"GGUF" + struct.pack("<IQQ", 3, 0, 0),
    "safetensors": struct.pack("<Q", len(HEADER)) + HEADER + bytes(4), "SQLite": database(),
    "image": b"\x89PNG\r\n\x1a\n", "program": b"\x7fELF\2\1\1", "sound": b"RIFF\x24\0\0\0WAVEfmt "}


@pytest.mark.parametrize("what", FILES)
def test_kind_of_names_the_kind_of_a_file_and_what_to_do(what):
    said = kind_of(FILES[what])
    assert what in said and "; " in said
    assert kind_of(TEXT + FILES[what]) is None


@pytest.mark.parametrize("raw", [
    b"\xff\xd8\xff\xe0\0\x10JFIF", b"GIF89a\x10\0\x10\0", b"BM\x36\0\1\0\0\0\0\0",
    b"RIFF\1\0\0\0WEBPVP8 "])
def test_kind_of_knows_images_of_other_formats(raw):
    assert kind_of(raw).startswith("an image; ")


@pytest.mark.parametrize("text", [
    "BM", "MZ is a word", "ID3 tags", "GIF89a is a format", "PK is my name", "%PD", "{\\rt", "II*",
    "PAR1 for the course", "SQLite format 3", "GGUF", "x" * 257 + "ustar is a word", "RIFFrafWAVE",
    "Rar!", "]", "BZh", "7z", "some ftyp", '{"a": 1}'])
def test_a_text_that_begins_like_such_a_file_is_a_text(tmp_path, text):
    (tmp_path / "t").write_text(text)
    assert read_text(str(tmp_path / "t")) == text


def test_every_kind_ends_with_something_to_do():
    assert all(what.split()[0] in ("a", "an", "sound") and remedy for _, what, remedy in KINDS)


def test_is_page_looks_at_the_first_tag_only():
    assert is_page(b"\n <HTML>") and is_page(b"<!DocType HTML>") and is_page(b"<?xml ")
    assert not is_page(b"see <html>") and not is_page(b"<p>")
