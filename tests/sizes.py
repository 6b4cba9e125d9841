"""How large the code is, file by file, and by how much a change makes it larger or smaller:
`python -m tests.sizes [COMMIT]`, else the commit before.

Code is counted in tokens, without comments and docstrings, so that neither a line that is broken in
two nor a sentence that explains costs anything.  It is a report: nobody is to write for it.
"""
import argparse
import ast
import functools
import pathlib
import re
import subprocess
import sys
import tokenize
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[1]
# The main part of the book, and all that one reads to understand a run: what begins and carries it.
MAIN_PART = ("minigrad/core.py", "minigrad/operators.py", "minigrad/gradients.py",
             "minigrad/formulas.py",
             "minigrad/elementwise.py", "minigrad/shapes.py", "minigrad/network.py",
             "minigrad/nn.py", "model/layers.py", "model/attention.py",
             "model/transformer.py", "minigrad/optim.py", "train.py")
READING_PATH = (*MAIN_PART, "model/beginning.py", "model/run.py")
FOLDERS = ("minigrad", "model", "data")
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
           tokenize.ENDMARKER}
# A token of JavaScript or CSS; comments and white space have no name.
TOKEN = re.compile(r"""
    //[^\n]* | /\*.*?\*/ | \s+
    | (?P<string> "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' | `(?:\\.|[^`\\])*`)
    | (?P<word> [\w$-]+)
    | (?P<sign> => | [=!]==? | [<>]= | && | \|\| | \?\? | \?\. | \.\.\. | \*\* | .)""",
                   re.X | re.S)


class Size(NamedTuple):
    """How many tokens of code there are, and on how many lines."""
    tokens: int = 0
    lines: int = 0


def docstrings(tree):
    """Where the docstrings of a file begin: pairs of line and column."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                yield first.lineno, first.col_offset


def whole_strings(tokens):
    """The tokens, with each f-string as one, as Python gives them before 3.12."""
    begins = getattr(tokenize, "FSTRING_START", None)
    ends = getattr(tokenize, "FSTRING_END", None)
    open_strings = []
    for token in tokens:
        if token.type == begins:
            open_strings.append(token.start)
        elif token.type == ends:
            start = open_strings.pop()
            token = token._replace(type=tokenize.STRING, start=start)
        if not open_strings:
            yield token


def size_of_python(text):
    beginnings = {*docstrings(ast.parse(text))}
    readline = iter(text.splitlines(keepends=True)).__next__
    code = [token for token in whole_strings(tokenize.generate_tokens(readline))
            if token.type not in NO_CODE and token.start not in beginnings]
    lines = {line for token in code for line in range(token.start[0], token.end[0] + 1)}
    return Size(len(code), len(lines))


def size_of_page(text):
    """The size of JavaScript or CSS.  A template literal is one token, as an f-string is."""
    tokens = [token for token in TOKEN.finditer(text) if token.lastgroup]
    lines = set()
    for token in tokens:
        first = text.count("\n", 0, token.start())
        lines.update(range(first, first + token[0].count("\n") + 1))
    return Size(len(tokens), len(lines))


COUNTED = {".py": size_of_python, ".js": size_of_page, ".css": size_of_page}


@functools.cache
def size(text, suffix):
    return COUNTED[suffix](text)


def total(sizes, paths):
    found = [sizes[path] for path in paths if path in sizes]
    return Size(sum(size.tokens for size in found), sum(size.lines for size in found))


def is_product(path):
    """Whether a file, given by its path from the top, is code of the product."""
    parts = path.split("/")
    return (parts[0] in FOLDERS or path == "train.py") and pathlib.PurePath(path).suffix in COUNTED


def sizes_here():
    """The size of each file of the product, by its path."""
    paths = [ROOT / "train.py"]
    for folder in FOLDERS:
        paths += [path for path in (ROOT / folder).rglob("*") if path.suffix in COUNTED]
    return {path.relative_to(ROOT).as_posix(): size(path.read_text(encoding="utf-8"), path.suffix)
            for path in paths}


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True,
                          encoding="utf-8").stdout


def sizes_at(commit):
    """The size of each file of the product in a commit."""
    paths = filter(is_product, git("ls-tree", "-r", "--name-only", commit).splitlines())
    return {path: size(git("show", f"{commit}:{path}"), pathlib.PurePath(path).suffix)
            for path in paths}


def report(now, before):
    """The lines of the report: both totals, and each file that became larger or smaller."""
    for name, chosen in (("reading path", READING_PATH), ("product", now.keys() | before.keys())):
        new = total(now, chosen)
        old = total(before, chosen)
        yield (f"{name:<14}{new.tokens:>9,} tokens  {new.tokens - old.tokens:>+7,}"
               f"   {new.tokens / max(1, new.lines):.2f} a line")
    for path in sorted(now.keys() | before.keys()):
        new = now.get(path, Size())
        old = before.get(path, Size())
        if new != old:
            yield f"  {path:<40}{new.tokens:>7,} tokens  {new.tokens - old.tokens:>+7,}"


def parse(words):
    parser = argparse.ArgumentParser(prog="tests.sizes", description=__doc__.partition("\n\n")[0])
    parser.add_argument("commit", nargs="?", default="HEAD~1", help="what to compare with")
    return parser.parse_args(words)


def main(words):
    commit = parse(words).commit
    try:
        before = sizes_at(commit)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", None) or error
        print(f"nothing to compare with: git does not show {commit}: {reason}".rstrip())
        before = {}
    for line in report(sizes_here(), before):
        print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
