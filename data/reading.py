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

from data.kinds import is_page, kind_of
from data.tokenizer import TextError
from minigrad.words import in_a_line, number_of

CONTROLS = [bytes([n]) for n in range(8)]   # which are in UTF-16, and hardly in a text
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
        names = file.replace(",", " ").split()
        if len(names) > 1 and all(name in KNOWN_TEXTS or os.path.exists(name) for name in names):
            remedy = f"of several texts, put spaces between the names: {' '.join(names)}"
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
    """Return the characters of bytes in UTF-8; of others say what they may be."""
    if kind := kind_of(raw):
        raise TextError(f'"{file}" is {kind}')
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        why = f"byte 0x{raw[error.start]:02x} at position {error.start} (line {line})"
        raise TextError(_not_utf8(file, why, _guess_encodings(raw))) from None
    if any(byte in raw for byte in CONTROLS):
        from data.encodings import WIDE
        wide = [guess for guess in _guess_encodings(raw) if guess.encoding in WIDE]
        if wide:
            why = f"it holds control characters such as NUL, as {wide[0].encoding} does"
            raise TextError(_not_utf8(file, why, wide))
        if b"\0" in raw:
            raise TextError(_not_utf8(file, "it holds NUL bytes", []))
    elif is_page(raw):
        print(f'warning: "{file}" is HTML or XML, and its tags are read as text, too; save it '
              "as plain text to leave them out", file=sys.stderr)
    return text


def _guess_encodings(raw):
    """Return the encodings that a file may have, the likeliest first."""
    from data.encodings import Guess, guesses, marked
    encoding = marked(raw)
    if encoding:
        return [Guess(encoding, "", first=True, unreadable=0)]
    return guesses(raw)


def _not_utf8(file, why, guesses):
    """Return an error message for a file that is in one of these encodings, or in none."""
    if not guesses:
        return (f'"{file}" is not UTF-8: {why}; no usual encoding fits it, so it may be damaged or '
                "no text; save it as UTF-8 with the program that wrote it")
    return (f'"{file}" is not UTF-8: {why}; convert it: for example with '
            f"{_conversion(file, guesses[0])}{_looks(guesses)}")


def _conversion(file, guess):
    """Return a command that makes UTF-8 of a file."""
    if sys.platform == "win32":         # which has no iconv
        name = file.replace("\\", "/").replace("'", "\\'")
        errors = ", 'ignore'" if guess.unreadable else ""
        return (f"python -c \"from pathlib import Path; Path('utf8.txt').write_text(Path('{name}')"
                f".read_text('{guess.encoding}'{errors}), 'UTF-8')\"")
    leave_out = "-c " if guess.unreadable else ""
    return f'iconv {leave_out}-f {guess.encoding} -t UTF-8 "{file}" > utf8.txt'


def _looks(guesses):
    """Return how a file begins in the encodings that it may have, and what would be left out."""
    looks = ", or ".join(f'as {guess.encoding} {"it begins" if guess.first else "a line has"} '
                         f'"{in_a_line(guess.words)}"' for guess in guesses if guess.words)
    if places := guesses[0].unreadable:
        looks += f"; this leaves out {number_of(places, 'place')} that cannot be read"
    return looks and f" ({looks})"


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
