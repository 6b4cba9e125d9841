"""Find texts by their names or paths, and read them.

This module does not know how a file is downloaded, and what is done with the characters.
"""
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from data.download import download
from data.errors import TextError, remedy
from data.sources import sources


class KnownText(NamedTuple):
    """A text that has a name."""

    file: str
    url: str | None = None      # None: the file stands beside this module
    sha256: str | None = None


KNOWN_TEXTS = {
    "lantern": KnownText("lantern_plays.txt"),
    "shakespeare": KnownText(
        "tinyshakespeare.txt",
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"),
}


class Texts(NamedTuple):
    """The characters of one text or several, and where they are from."""

    characters: str
    taken: list[tuple[str, int]]    # each name, and the number of its characters
    left_out: list[str]             # folders within those that were taken

    @property
    def name(self) -> str:
        """The only name, or "of 3 files"."""
        return self.taken[0][0] if len(self.taken) == 1 else f"of {len(self.taken):,} files"


def read_texts(words: Sequence[str]) -> Texts:
    """Return the characters of all texts that words stand for (see `sources`), one after another.
    A line break is put between two where the first does not end with one.

    Raises
    ------
    TextError : a word stands for no text, or one cannot be read (see `read_text`).
    """
    names, left_out = sources(words, KNOWN_TEXTS)
    characters, taken = "", []
    for name in names:
        text = read_text(name)
        if characters and not characters.endswith("\n"):
            characters += "\n"
        characters += text          # CPython does this in place: there is one copy of all
        taken.append((name, len(text)))
    return Texts(characters, taken, left_out)


def read_text(name_or_file: str) -> str:
    """Return the characters of a known text, or of a UTF-8 file.

    A known name wins over a file of the same name: "./lantern" means the file.  Line ends "\\r\\n"
    and "\\r" become "\\n", and a byte order mark at the start is dropped.

    Raises
    ------
    TextError : there is no such text, or it cannot be fetched, read or decoded, or is empty
    """
    known = KNOWN_TEXTS.get(name_or_file)
    file = os.path.expanduser(name_or_file) if known is None else str(_located(known))
    try:
        kind = ("folder" if os.path.isdir(file) else
                "device" if Path(file).is_char_device() else None)
        if not kind:                    # a device such as /dev/zero has no end
            with open(file, "rb") as stream:
                raw = stream.read()
    except FileNotFoundError as error:
        raise TextError(_not_found(file)) from error
    except OSError as error:
        raise TextError(f'cannot read "{file}": {error.strerror or error}; '
                        + remedy(error, "give another file")) from error
    except ValueError as error:         # no file can have such a name
        raise TextError(f'cannot read "{file}": {error}; give another file') from error
    if kind:
        raise TextError(f'"{file}" is a {kind}; give the path of a UTF-8 text file')
    text = _decoded(raw, file).removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if not text:
        raise TextError(f'"{file}" is empty; give a file with text in it')
    return text


def cache_folder() -> Path:
    """Return the folder of downloaded texts: MINIGRAD_CACHE, or the platform's own place."""
    if chosen := os.environ.get("MINIGRAD_CACHE"):
        return Path(chosen)
    try:
        return _platforms_place() / "minigrad"
    except RuntimeError as error:       # the user has no home
        raise TextError(f"there is no cache folder ({error}); name one in the environment "
                        "variable MINIGRAD_CACHE") from error


def _platforms_place():
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base)


def _located(known: KnownText) -> Path:
    """Return the path of a known text's file, after fetching it if necessary."""
    if known.url is None:
        return Path(__file__).with_name(known.file)
    path = cache_folder() / known.file
    download(known.url, path, known.sha256)
    return path


def _decoded(raw: bytes, file: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        likely = "UTF-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "LATIN1"
        if b"\0" in raw and likely == "LATIN1":
            raise TextError(f'"{file}" is not a text (it holds NUL bytes); give a UTF-8 text '
                            "file") from error
        line = raw.count(b"\n", 0, error.start) + 1
        raise TextError(
            f'"{file}" is not UTF-8: byte 0x{raw[error.start]:02x} at position {error.start} '
            f'(line {line}); convert it, for example with '
            f'iconv -f {likely} -t UTF-8 "{file}" > utf8.txt') from error


def _not_found(file: str) -> str:
    near = get_close_matches(file.lower(), KNOWN_TEXTS, n=1)
    remedy = f'did you mean "{near[0]}"?' if near else "give the path of a UTF-8 text file"
    return f'"{file}" is neither a known text ({", ".join(KNOWN_TEXTS)}) nor a file; {remedy}'
