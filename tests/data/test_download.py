import errno
import hashlib
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer

import pytest

from data import KNOWN_TEXTS, TextError, read_text
from data.download import download
from data.reading import KnownText

BODY = "Ein Text, größer als ein Stück.\n".encode() * 8000
SHA256 = hashlib.sha256(BODY).hexdigest()
REMEDY = "; fetch it with a browser and pass the file with --data FILE"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append(self.path)
        getattr(self, self.path[1:])()

    def answer(self, body, length):
        self.send_response(200)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)

    def whole(self):
        self.answer(BODY, len(BODY))

    def of_unknown_length(self):
        self.answer(BODY, None)

    def other(self):
        self.answer(b"<html>Please log in</html>", None)

    def cut(self):
        self.answer(BODY[:100_000], len(BODY))

    def cut_at_once(self):
        self.answer(b"", len(BODY))

    def stalled(self):
        self.answer(BODY[:65_536], len(BODY))
        self.server.released.wait(10)

    def silent(self):
        self.server.released.wait(10)

    def missing(self):
        self.send_error(404)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.requests, server.released = [], threading.Event()
        server.url = "http://127.0.0.1:%d/" % server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.released.set()
        server.shutdown()


def complaint(*args, **kwargs):
    with pytest.raises(TextError) as caught:
        download(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("page", ["whole", "of_unknown_length"])
def test_a_good_file_arrives_alone_in_a_fresh_folder(server, tmp_path, capsys, page):
    path = tmp_path / "cache" / "minigrad" / "text.txt"
    download(server.url + page, path, SHA256)
    assert path.read_bytes() == BODY
    assert list(path.parent.iterdir()) == [path]
    out, err = capsys.readouterr()
    assert "text.txt" in err and out == ""


def test_a_cached_file_is_used_without_a_request(server, tmp_path):
    for _ in range(2):
        download(server.url + "whole", tmp_path / "text.txt", SHA256)
    assert server.requests == ["/whole"]


def test_a_damaged_cached_file_is_fetched_anew(server, tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(BODY[:-1] + b"?")
    download(server.url + "whole", path, SHA256)
    assert path.read_bytes() == BODY


@pytest.mark.parametrize("page, timeout, reason", [
    ("missing", 10, "the server answered 404 Not Found"),
    ("cut", 10, f"the connection was cut short (got 100,000 of {len(BODY):,} bytes)"),
    ("cut_at_once", 10, f"the connection was cut short (got 0 of {len(BODY):,} bytes)"),
    ("stalled", 0.5, f"no answer for 0.5 seconds (got 65,536 of {len(BODY):,} bytes)"),
    ("silent", 0.5, "no answer for 0.5 seconds"),
])
def test_a_failing_server_is_named_with_the_reason_and_leaves_nothing(
        server, tmp_path, page, timeout, reason):
    url = server.url + page
    assert (complaint(url, tmp_path / "text.txt", SHA256, timeout)
            == f"cannot download {url}: {reason}{REMEDY}")
    assert list(tmp_path.iterdir()) == []


def test_another_file_than_expected_is_not_kept(server, tmp_path):
    url = server.url + "other"
    got = hashlib.sha256(b"<html>Please log in</html>").hexdigest()
    assert complaint(url, tmp_path / "text.txt", SHA256) == (
        f"{url} sent another file: expected sha256 {SHA256}, got {got}, nothing was kept{REMEDY}")
    assert list(tmp_path.iterdir()) == []


def test_a_refused_connection_is_named_with_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = "http://127.0.0.1:%d/" % taken.getsockname()[1]
    message = complaint(url, tmp_path / "text.txt", SHA256)
    assert message.startswith(f"cannot download {url}: [") and message.endswith(REMEDY)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named_with_the_remedy(server, tmp_path):
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "text.txt"
    message = complaint(server.url + "whole", path, SHA256)
    assert message.startswith(f"cannot write {path}: ")
    assert message.endswith("; remove the file that has its folder's name, or name another folder "
                            "in the environment variable MINIGRAD_CACHE")
    assert server.requests == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0,
                    reason="root may write anywhere; Windows has other permissions")
def test_a_folder_that_may_not_be_written_is_named(server, tmp_path):
    tmp_path.chmod(0o500)
    assert "Permission denied" in complaint(server.url + "whole", tmp_path / "text.txt", SHA256)


@pytest.mark.parametrize("failure, raised", [
    (OSError(errno.ENOSPC, "No space left on device"), TextError),
    (KeyboardInterrupt(), KeyboardInterrupt),
])
def test_a_full_disk_and_an_interrupt_leave_nothing_behind(
        server, tmp_path, monkeypatch, failure, raised):
    def fail(_):
        raise failure
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(raised, match="No space left" if raised is TextError else None):
        download(server.url + "whole", tmp_path / "text.txt", SHA256)
    assert list(tmp_path.iterdir()) == []


def test_a_known_text_is_downloaded_once_and_read(server, tmp_path, monkeypatch):
    monkeypatch.setenv("MINIGRAD_CACHE", str(tmp_path))
    monkeypatch.setitem(KNOWN_TEXTS, "german",
                        KnownText("german.txt", server.url + "whole", SHA256))
    assert read_text("german") == read_text("german") == BODY.decode()
    assert server.requests == ["/whole"]
    assert (tmp_path / "german.txt").exists()
