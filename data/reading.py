"""Read texts: the built-in one, UTF-8 files, and what `data.sources` finds or downloads.

This module does not know what is done with the characters.
"""
import os
import stat
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple


class TextError(ValueError):
    """A mistake with a text that the user can correct.  The message is one line: what was expected,
    what came, what to do."""


# By name: a file beside this module; or a file to download once, its address and its sha256
KNOWN_TEXTS = {
    "lantern": ("lantern_plays.txt",),
    "shakespeare": (
        "tinyshakespeare.txt",
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"),
}


class Texts(NamedTuple):
    """The characters of one or more texts, and where they come from."""

    characters: str
    taken: list[tuple[str, int]]    # each name, and the number of its characters
    left_out: list[str]             # folders within those that were taken

    @property
    def name(self) -> str:
        """The only name, or "of 3 files"."""
        return self.taken[0][0] if len(self.taken) == 1 else f"of {len(self.taken):,} files"


def read_texts(words: Sequence[str]) -> Texts:
    """Return the characters of all texts that words stand for, one after another: known texts,
    files, folders and patterns (see `data.sources.folders.expand`).  A line break is put between
    two texts where the first does not end with one.

    Raises
    ------
    TextError : a word stands for no text, or one cannot be read (see `read_text`).
    """
    names, left_out = [os.path.expanduser(word) for word in words], []
    if len(words) > 1 or not (words[0] in KNOWN_TEXTS or os.path.isfile(names[0])):
        from data.sources.folders import expand
        names, left_out = expand(words, KNOWN_TEXTS)
    characters, taken = "", []
    for name in names:
        text = read_text(name)
        if characters and not characters.endswith("\n"):
            characters += "\n"
        characters += text          # CPython does this in place: there is one copy of all
        taken.append((name, len(text)))
    return Texts(characters, taken, left_out)


def read_text(name_or_file: str) -> str:
    """Return the characters of a known text, which is downloaded once if necessary, or of a UTF-8
    file.

    A known name wins over a file of the same name: "./lantern" means the file.  Line ends "\\r\\n"
    and "\\r" become "\\n", and a byte order mark at the start is dropped.

    Raises
    ------
    TextError : there is no such text, or it cannot be downloaded, read or decoded, or is empty
    """
    if name_or_file in KNOWN_TEXTS:
        file = str(_path_of(*KNOWN_TEXTS[name_or_file]))
    else:
        file = os.path.expanduser(name_or_file)
    try:
        with open(file, "rb") as stream:
            if stat.S_ISCHR(os.fstat(stream.fileno()).st_mode):
                raise OSError("it is a device, which may have no end")
            raw = stream.read()
    except FileNotFoundError as error:
        near = get_close_matches(file.lower(), KNOWN_TEXTS, n=1)
        raise TextError(f'"{file}" is neither a known text ({", ".join(KNOWN_TEXTS)}) nor a file; '
                        + (f'did you mean "{near[0]}"?' if near else
                           "give the path of a UTF-8 text file")) from error
    except (OSError, ValueError) as error:          # a ValueError: no file can have such a name
        raise TextError(f'cannot read "{file}": {getattr(error, "strerror", None) or error}; give '
                        "the path of a UTF-8 text file") from error
    text = _decode(raw, file).removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if not text:
        raise TextError(f'"{file}" is empty; give a file with text in it')
    return text


def _path_of(file, url=None, sha256=None):
    if url is None:
        return Path(__file__).with_name(file)
    from data.sources.download import download
    path = cache_folder() / file
    download(url, path, sha256)
    return path


def _decode(raw, file):
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


def cache_folder() -> Path:
    """Return the folder of downloaded texts: MINIGRAD_CACHE, or below the system's own folder."""
    if chosen := os.environ.get("MINIGRAD_CACHE"):
        return Path(chosen)
    variable, usual = {"win32": ("LOCALAPPDATA", "AppData/Local"),
                       "darwin": ("", "Library/Caches")}.get(sys.platform,
                                                             ("XDG_CACHE_HOME", ".cache"))
    try:
        return Path(os.environ.get(variable) or Path.home() / usual) / "minigrad"
    except RuntimeError as error:       # the user has no home
        raise TextError(f"there is no cache folder ({error}); name one in the environment "
                        "variable MINIGRAD_CACHE") from error
