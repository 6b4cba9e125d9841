"""Download one file that fits in memory, whole or not at all.

This module does not know which texts exist, where they are kept and what is in them.
"""
import hashlib
import os
import urllib.request
import uuid
from contextlib import suppress
from http.client import HTTPException, IncompleteRead
from pathlib import Path
from urllib.error import HTTPError

from tqdm import tqdm

from data.errors import TextError, remedy

CHUNK = 1 << 16     # bytes read at a time
REMEDY = "fetch it with a browser and pass the file with --data FILE"


def download(url: str, path: Path, sha256: str, timeout: float = 30.0) -> None:
    """Make sure that `path` holds the file with this sha256; fetch it from `url` if it does not.

    The file appears under its name only when all of it is verified and on the disk; nothing is
    left behind otherwise.  A bar on standard error shows the progress.

    Parameters
    ----------
    sha256 : in lower-case hexadecimal
    timeout : seconds without any answer after which the connection is given up

    Raises
    ------
    TextError : the network, the server or the disk failed, or another file came
    """
    if _is_whole(path, sha256):
        return
    # The name is unique, so that two runs that start together do not write into one file.
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "xb") as file:
            body = _received(url, path.name, timeout)
            got = hashlib.sha256(body).hexdigest()
            if got != sha256:
                raise TextError(f"{url} sent another file: expected sha256 {sha256}, got {got}, "
                                f"nothing was kept; {REMEDY}")
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        otherwise = "name another folder in the environment variable MINIGRAD_CACHE"
        raise TextError(f"cannot write {path}: {error.strerror or error}; "
                        + remedy(error, otherwise)) from error
    finally:
        with suppress(OSError):
            part.unlink()


def _is_whole(path: Path, sha256: str) -> bool:
    """Whether `path` is a readable file with this sha256."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except OSError:
        return False


def _received(url: str, name: str, timeout: float) -> bytearray:
    """Return the body of `url`; a failing network or server becomes a TextError."""
    body, expected = bytearray(), None
    try:
        with (tqdm(desc=name, unit="B", unit_scale=True) as bar,
              urllib.request.urlopen(url, timeout=timeout) as response):
            expected = bar.total = response.length
            while chunk := response.read(CHUNK):
                body += chunk
                bar.update(len(chunk))
        # Reading in pieces ends without an error if the server hangs up too early.
        if expected is not None and len(body) < expected:
            raise IncompleteRead(b"", expected - len(body))
    except (OSError, HTTPException) as error:
        reason = _reason(error, timeout)
        if expected is not None:
            reason += f" (got {len(body):,} of {expected:,} bytes)"
        raise TextError(f"cannot download {url}: {reason}; {REMEDY}") from error
    return body


def _reason(error: Exception, timeout: float) -> str:
    if isinstance(error, HTTPError):
        error.close()
        return f"the server answered {error.code} {error.reason}"
    cause = getattr(error, "reason", error)     # URLError wraps what happened
    if isinstance(cause, TimeoutError):
        return f"no answer for {timeout:g} seconds"
    if isinstance(cause, IncompleteRead):
        return "the connection was cut short"
    return " ".join(str(cause).split())
