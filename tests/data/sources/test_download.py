import errno
import hashlib
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer

import pytest

from data import KNOWN_TEXTS, TextError, read_text
from data.sources.download import download
from tests.kit import refusal, written

BODY = "Ein Text, größer als ein Stück.\n".encode() * 8000
SHA256 = hashlib.sha256(BODY).hexdigest()
OTHER = b"<html>Please log in</html>"
REMEDY = "; download it with a browser and pass the file with --data FILE"
# What the server sends for each page: the body, and the length that it announces.
PAGES = {"whole": (BODY, len(BODY)), "of_unknown_length": (BODY, None), "other": (OTHER, None),
         "cut": (BODY[:100_000], len(BODY)), "cut_at_once": (b"", len(BODY)),
         "stalled": (BODY[:65_536], len(BODY))}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        page = self.path[1:]
        self.server.requests.append(page)
        if page == "missing":
            return self.send_error(404)
        if page in PAGES:
            body, length = PAGES[page]
            self.send_response(200)
            if length is not None:
                self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(body)
        if page in ("stalled", "silent"):
            self.server.released.wait(10)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.requests = []
        server.released = threading.Event()
        server.url = "http://127.0.0.1:%d/" % server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.released.set()
        server.shutdown()


@pytest.mark.parametrize("page", ["whole", "of_unknown_length"])
def test_a_good_file_arrives_alone_in_a_fresh_folder(server, tmp_path, capsys, page):
    path = tmp_path / "cache" / "minigrad" / "text.txt"
    download(server.url + page, path, SHA256)
    assert path.read_bytes() == BODY
    assert list(path.parent.iterdir()) == [path]
    out, err = capsys.readouterr()
    assert "text.txt" in err
    assert out == ""


def test_a_damaged_cached_file_is_fetched_anew_and_a_whole_one_is_not(server, tmp_path):
    path = written(tmp_path / "text.txt", BODY[:-1] + b"?")
    for _ in range(3):
        download(server.url + "whole", path, SHA256)
        assert path.read_bytes() == BODY
        assert server.requests == ["whole"]


@pytest.mark.parametrize("page, timeout, reason", [
    ("missing", 10, "404: Not Found"), ("other", 10, "sent another file: expected sha256"),
    ("cut", 10, f"it was cut short: got 100,000 of {len(BODY):,} bytes"),
    ("cut_at_once", 10, f"it was cut short: got 0 of {len(BODY):,} bytes"),
    ("stalled", 0.5, "timed out"), ("silent", 0.5, "timed out"),
    (None, 10, "cannot download http")])
def test_a_failing_server_is_named_and_leaves_nothing(server, tmp_path, page, timeout, reason):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        of_no_server = "http://127.0.0.1:%d/" % taken.getsockname()[1]
    url = server.url + page if page else of_no_server
    said = refusal(TextError, download, url, tmp_path / "text.txt", SHA256, timeout)
    assert url in said
    assert reason in said
    assert said.endswith(REMEDY)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named_before_anything_is_sent(server, tmp_path):
    path = written(tmp_path / "file", "") / "text.txt"
    said = refusal(TextError, download, server.url + "whole", path, SHA256)
    assert said.startswith(f"cannot write {path}: ")
    assert said.endswith("; name another folder in the environment variable MINIGRAD_CACHE")
    assert server.requests == []


@pytest.mark.parametrize("failure, raised", [
    (OSError(errno.ENOSPC, "No space left on device"), TextError),
    (KeyboardInterrupt(), KeyboardInterrupt)])
def test_a_full_disk_or_an_interrupt_leaves_nothing(server, tmp_path, monkeypatch, failure, raised):
    def fail(_):
        raise failure
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(raised, match="No space left" if raised is TextError else None):
        download(server.url + "whole", tmp_path / "text.txt", SHA256)
    assert list(tmp_path.iterdir()) == []


def test_download_makes_no_file_before_all_of_it_has_come(tmp_path, monkeypatch):
    """So a signal that ends the program meanwhile leaves nothing behind."""
    files = []

    def receive(url, name, timeout):
        files.extend(tmp_path.iterdir())
        return BODY
    monkeypatch.setattr("data.sources.download._receive", receive)
    download("http://a.server/text", tmp_path / "text.txt", SHA256)
    assert files == []
    assert (tmp_path / "text.txt").read_bytes() == BODY


def test_a_known_text_is_downloaded_once_and_read(server, tmp_path, monkeypatch):
    monkeypatch.setenv("MINIGRAD_CACHE", str(tmp_path))
    monkeypatch.setitem(KNOWN_TEXTS, "german", ("german.txt", server.url + "whole", SHA256))
    assert read_text("german") == read_text("german") == BODY.decode()
    assert server.requests == ["whole"]
    assert (tmp_path / "german.txt").exists()
