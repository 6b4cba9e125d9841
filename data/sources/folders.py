"""What the words after --data stand for: known texts, files, folders and patterns."""
import glob
import os
from collections import Counter
from collections.abc import Container, Sequence
from itertools import islice
from pathlib import Path

from data.tokenizer import TextError
from minigrad.words import first_of, in_a_line, number_of

SUFFIXES = (".txt", ".md")      # of the files that are taken from a folder
MAGIC = "*?["                   # a word with one of these may be a pattern
MOST_FOLDERS = 1000             # that are looked through for a pattern
LISTED = 100                    # files of a text that are named


def expand(words: Sequence[str], known: Container[str]) -> tuple[list[str], list[str]]:
    """Return known names and paths of files, and the folders that are left out.

    A word is a known name, a file or a folder.  A folder stands for its .txt and .md files in the
    order of their names, but not for hidden files or those in its subfolders.  A word may also be a
    pattern of files and folders as in a shell: `*`, `?`, `[a-z]`, and `**` for all subfolders.
    What it matches is taken in the order of the names.

    Raises
    ------
    TextError : a folder or a pattern stands for no file, or a file would be read twice.
    """
    found = {}          # names by their real paths
    left_out = []
    for word in words:
        for name in [word] if word in known else _matches(word):
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


def _matches(word):
    """Return what a pattern matches, in order; another word as it is, but for the user's home."""
    path = os.path.expanduser(word)
    if not any(c in path for c in MAGIC) or os.path.lexists(path):
        return [path]
    parts = Path(path).parts
    found = [os.curdir]
    for part in (*parts, "*") if parts[-1] == "**" else parts:
        found = [path for start in found
                 for path in (_folders(start) if part == "**" else _inside(start, part))]
    if not found:
        above = next(folder for folder in Path(path).parents if os.path.isdir(folder))
        _refuse_unreadable(above)
        raise TextError(f'no file matches "{word}"; give another pattern{_such_as(str(above))}, or '
                        "the path of a UTF-8 text file")
    return sorted({*map(_plain, found)})


def _inside(folder, pattern):
    """Return what a pattern of one name matches in a folder, in order."""
    return sorted(glob.glob(os.path.join(glob.escape(folder), pattern)))


def _plain(path):
    """Return a path without the name of the current folder before it."""
    return path.removeprefix(os.path.join(os.curdir, ""))


def _folders(top):
    """Yield a folder and its subfolders that are not hidden, each once.  `glob` would follow a link
    to a folder above it for ever."""
    seen = {os.path.realpath(top)}
    for folder, inside, _ in os.walk(top, followlinks=True):
        yield folder
        places = {os.path.realpath(os.path.join(folder, name)): name for name in sorted(inside)
                  if not name.startswith(".")}
        inside[:] = [name for place, name in places.items() if place not in seen]
        seen |= places.keys()


def _in_folder(folder):
    """Return the files of a folder that are taken, and its subfolders, which are not."""
    paths = _inside(folder, "*")            # without hidden ones
    folders = [path for path in paths if os.path.isdir(path)]
    files = [path for path in paths if path.lower().endswith(SUFFIXES)
             and (os.path.isfile(path) or not os.path.exists(path))]    # a broken link is refused
    if not files:
        _refuse_unreadable(folder)
        left_out = ", and its subfolders are not taken" if folders else ""
        raise TextError(f'the folder "{folder}" has no {" or ".join(SUFFIXES)} file to read'
                        f"{left_out}; give another one, or files{_such_as(folder)}")
    return files, folders


def _refuse_unreadable(folder):
    """Refuse a folder of which this user, or the system, cannot list the names."""
    try:
        os.scandir(folder).close()
    except OSError as error:
        raise TextError(f'cannot read the folder "{folder}": {error.strerror or error}; give '
                        "another one, or files") from error


def _such_as(folder):
    """Return words that name a pattern of files of one ending in a folder, else in its subfolders:
    .txt or .md, or the ending of the most files; "" if there is none."""
    for subfolders, most in (("", 1), ("**", MOST_FOLDERS)):
        endings = Counter(Path(file).suffix for start in islice(_folders(folder), most)
                          for file in _inside(start, "*.*") if os.path.isfile(file))
        if endings:
            ending = max(endings, key=lambda ending: (ending in SUFFIXES, endings[ending], ending))
            pattern = os.path.join(glob.escape(folder), subfolders, f"*{glob.escape(ending)}")
            return f', such as "{_plain(pattern)}"'
    return ""


def listed(taken: Sequence[tuple[str, int]], left_out: Sequence[str]) -> str:
    """Return the files of a text with their numbers of characters, a line each, and the folders
    that were left out."""
    lines = [f"{number_of(n, 'character'):>20} in {in_a_line(name)}" for name, n in taken[:LISTED]]
    if rest := taken[LISTED:]:
        characters = number_of(sum(n for _, n in rest), "character")
        lines.append(f"{characters:>20} in {number_of(len(rest), 'more file')}")
    if left_out:
        folders = first_of([in_a_line(folder) for folder in left_out])
        lines.append(f"not taken: what is in {folders}")
    return f"\n{'':12}".join(lines)
