"""Read texts: the built-in one, UTF-8 files, and what `data.sources` finds or downloads.

This module does not know what is done with the characters.
"""
import os
import stat
import sys
from codecs import getincrementaldecoder
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from data.tokenizer import TextError

SAMPLE = 4096           # bytes from which an encoding is guessed
MARKS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16",
         b"\xfe\xff": "UTF-16"}
# An encoding without a byte order mark, and the bytes that are the upper and the lower ones.  Two
# characters of UTF-16 are seldom one of UTF-32, which is tried first.
HALVES = (("UTF-32LE", slice(2, None, 4), slice(0, None, 4)),
          ("UTF-32BE", slice(1, None, 4), slice(3, None, 4)),
          ("UTF-16LE", slice(1, None, 2), slice(0, None, 2)),
          ("UTF-16BE", slice(0, None, 2), slice(1, None, 2)))
FIRST_IN_TEXTS = 8      # control characters before it, such as NUL, are not in texts


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
    names = [os.path.expanduser(word) for word in words]
    left_out = []
    if len(words) > 1 or not (words[0] in KNOWN_TEXTS or os.path.isfile(names[0])):
        from data.sources.folders import expand
        names, left_out = expand(words, KNOWN_TEXTS)
    characters = ""
    taken = []
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
        remedy = "give the path of a UTF-8 text file"
        for near in get_close_matches(file.lower(), KNOWN_TEXTS, n=1):
            remedy = f'did you mean "{near}"?'
        raise TextError(f'"{file}" is neither a known text ({", ".join(KNOWN_TEXTS)}) nor a file; '
                        f"{remedy}") from error
    except (OSError, ValueError) as error:          # a ValueError: no file can have such a name
        raise TextError(f'cannot read "{file}": {getattr(error, "strerror", None) or error}; give '
                        "the path of a UTF-8 text file") from error
    text = _decode(raw, file).removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if not text or text.isspace():
        what = "has only spaces and line breaks" if text else "is empty"
        raise TextError(f'"{file}" {what}; give a file with text in it')
    return text


def _path_of(file, url=None, sha256=None):
    if not url:
        return Path(__file__).with_name(file)
    from data.sources.download import download
    path = cache_folder() / file
    download(url, path, sha256)
    return path


def _decode(raw, file):
    likely = _likely_encoding(raw[:SAMPLE])
    why = f"it holds control characters such as NUL, as {likely} does"
    try:
        text = raw.decode("utf-8")
        if likely is None and b"\0" not in raw:
            return text
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        why = f"byte 0x{raw[error.start]:02x} at position {error.start} (line {line})"
    if likely is None and b"\0" in raw:
        why = "it holds NUL bytes, as UTF-16 does, or is no text"
        likely = "UTF-16LE"
    convert = f'for example with iconv -f {likely or "CP1252"} -t UTF-8 "{file}" > utf8.txt'
    if sys.platform == "win32":
        convert = "open it in Notepad, take Save as, and choose the encoding UTF-8"
    raise TextError(f'"{file}" is not UTF-8: {why}; convert it: {convert}')


def _likely_encoding(raw):
    """Return the name of UTF-16 or UTF-32 if the beginning of a file is likely to be in it, else
    None.  Without a byte order mark it is known by one half of its bytes, the upper half of each
    character: a few bytes that come again and again, some of which no text in UTF-8 has."""
    for mark, name in MARKS.items():
        if raw.startswith(mark):
            return name
    for name, upper, lower in HALVES:
        few = {*raw[upper]}
        many = {*raw[lower]}
        if 2 * len(few) < len(many) and min(few, default=255) < FIRST_IN_TEXTS:
            with suppress(UnicodeDecodeError):      # an incomplete end does not matter
                getincrementaldecoder(name)().decode(raw)
                return name


def cache_folder() -> Path:
    """Return the folder of downloaded texts: MINIGRAD_CACHE, or below the system's own folder."""
    if chosen := os.environ.get("MINIGRAD_CACHE"):
        return Path(chosen)
    variable = "XDG_CACHE_HOME"
    usual = ".cache"
    if sys.platform == "win32":
        variable = "LOCALAPPDATA"
        usual = "AppData/Local"
    elif sys.platform == "darwin":
        variable = ""
        usual = "Library/Caches"
    try:
        return Path(os.environ.get(variable) or Path.home() / usual) / "minigrad"
    except RuntimeError as error:       # the user has no home
        raise TextError(f"there is no cache folder ({error}); name one in the environment "
                        "variable MINIGRAD_CACHE") from error
