"""Download one file that fits in memory, whole or not at all."""
import hashlib
import urllib.request
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError

from tqdm import tqdm

from data.files import replacing
from data.tokenizer import TextError

CHUNK = 1 << 16     # bytes read at a time
REMEDY = "download it with a browser and pass the file with --data FILE"


def download(url: str, path: Path, sha256: str, timeout: float = 30.0) -> None:
    """Make sure that `path` holds the file with this sha256; fetch it from `url` if it does not.

    The file appears under its name when all of it is verified and on the disk.  A bar on standard
    error shows the progress.

    Parameters
    ----------
    sha256 : in lower-case hexadecimal
    timeout : seconds without any answer after which the connection is given up

    Raises
    ------
    TextError : the network, the server or the disk failed, or another file came
    """
    try:
        if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        body = _receive(url, path.name, timeout)
        if (got := hashlib.sha256(body).hexdigest()) != sha256:
            raise TextError(f"{url} sent another file: expected sha256 {sha256}, got {got}, "
                            f"nothing was kept; {REMEDY}")
        with replacing(path) as file:       # only now, so that a signal meanwhile leaves no part
            file.write(body)
    except OSError as error:
        raise TextError(f"cannot write {path}: {error.strerror or error}; name another folder in "
                        "the environment variable MINIGRAD_CACHE") from error


def _receive(url, name, timeout):
    """Return the body of `url`; a failing network or server becomes a TextError."""
    body = bytearray()
    try:
        with (tqdm(desc=name, unit="B", unit_scale=True) as bar,
              urllib.request.urlopen(url, timeout=timeout) as response):
            expected = bar.total = response.length
            while chunk := response.read(CHUNK):
                body += chunk
                bar.update(len(chunk))
        # Reading in pieces ends without an error if the server hangs up too early.
        if expected is not None and len(body) < expected:
            raise OSError(f"it was cut short: got {len(body):,} of {expected:,} bytes")
    except (OSError, HTTPException) as error:
        if isinstance(error, HTTPError):
            error.close()
        raise TextError(f"cannot download {url}: {' '.join(str(error).split())}; {REMEDY}"
                        ) from error
    return body
