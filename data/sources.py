"""What the words after --data stand for: known texts, files, folders and patterns.

This module does not read what is in a file.
"""
import glob
import os
import re
from collections.abc import Container, Iterator, Sequence

from data.errors import TextError, remedy

SUFFIXES = (".txt", ".md")      # of the files that are taken from a folder
MAGIC = "*?["                   # a word with one of these may be a pattern


def sources(words: Sequence[str], known: Container[str]) -> tuple[list[str], list[str]]:
    """Return known names and paths of files, and the folders that are left out.

    A word is a known name, a file or a folder.  A folder stands for its .txt and .md files in the
    order of their names, but not for hidden files and those of the folders in it.  A word may also
    be a pattern of files and folders, as shells have them: `*`, `?`, `[a-z]`, and `**` for folders
    in folders.  What it matches is taken in the order of the names.

    Raises
    ------
    TextError : a folder or a pattern stands for no file, or a file would be read twice.
    """
    found, left_out = {}, []        # by where it really is
    for word in words:
        for name in [word] if word in known else _matched(word):
            files = [name]
            if name not in known and os.path.isdir(name):
                files, folders = _in_folder(name)
                left_out += folders
            for file in files:
                place = file if file in known else os.path.realpath(file)
                if place in found:
                    raise TextError(f'"{file}" would be read twice; give each text once')
                found[place] = file
    return list(found.values()), left_out


def _matched(word):
    """Return what a pattern matches, in order; another word as it is, but for the user's home."""
    path = os.path.expanduser(word)
    if not any(c in path for c in MAGIC) or os.path.lexists(path):
        return [path]
    try:
        found = sorted(_expanded(path))
    except ValueError as error:         # no file can have such a name
        raise TextError(f'cannot look for "{word}": {error}; give another pattern') from error
    if not found:
        raise TextError(f'no file matches "{word}"; give a pattern that one does, or the path of a '
                        "UTF-8 text file")
    return found


def _expanded(pattern):
    """Return the paths that match a pattern.  `glob` would follow links that lead back to a folder
    above them for ever, so folders in folders are found here."""
    top, *rest = re.split(r"(?:^|(?<=/))\*\*(?:/|$)", pattern.replace(os.sep, "/"), maxsplit=1)
    if not rest:
        return glob.glob(pattern)
    return {path.removeprefix(os.path.join(os.curdir, ""))
            for start in (glob.glob(top) if top else [os.curdir]) for folder in _folders(start)
            for path in _expanded(os.path.join(glob.escape(folder), rest[0] or "*"))}


def _folders(top: str) -> Iterator[str]:
    """Yield a folder and those in it that are not hidden, each once, whatever links lead to it."""
    seen = {os.path.realpath(top)}
    for folder, inside, _ in os.walk(top, followlinks=True):
        yield folder
        places = {os.path.realpath(os.path.join(folder, name)): name for name in sorted(inside)
                  if not name.startswith(".")}
        inside[:] = [name for place, name in places.items() if place not in seen]
        seen |= places.keys()


def _in_folder(folder):
    """Return the files of a folder that are taken, and the folders in it, which are not."""
    try:
        entries = sorted((entry for entry in os.scandir(folder) if not entry.name.startswith(".")),
                         key=lambda entry: entry.name)
    except OSError as error:
        raise TextError(f'cannot read the folder "{folder}": {error.strerror or error}; '
                        + remedy(error, "give another one")) from error
    folders = [entry.path for entry in entries if os.path.isdir(entry)]
    files = [entry.path for entry in entries        # a link that leads nowhere is refused later
             if entry.name.lower().endswith(SUFFIXES) and entry.path not in folders
             and (entry.is_symlink() or entry.is_file())]
    if not files:
        within = (f', and what is in its folders is not taken; give these, or "{folder}/**/*.txt"'
                  if folders else "; give another one, or files")
        raise TextError(f'the folder "{folder}" has no {" or ".join(SUFFIXES)} file{within}')
    return files, folders
