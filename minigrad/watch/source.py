"""The line of source that ran an op, and the rules of the op's gradient from its own source.

Both are read from running frames and from code, so they are never out of date.
"""
import ast
import inspect
import linecache
import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from minigrad.core import OPS, Tensor

ENGINE = Path(__file__).parents[1]
LAYERS = str(ENGINE / "nn.py")
CORE = Tensor.backward.__code__.co_filename


class Line(NamedTuple):
    """A statement in a file, or the first line of a definition."""
    file: str           # relative to the folder that contains minigrad, or as Python names it
    number: int
    text: str

    @property
    def place(self) -> str:
        """file:number, a form that editors and terminals can follow."""
        return f"{self.file}:{self.number}"


def callers() -> Iterator[FrameType]:
    """Yield the frames outside of minigrad, or in its layers, that led to the op of the current
    event, the innermost first."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename != CORE:     # the watcher's own
        frame = frame.f_back
    while frame is not None:
        file = frame.f_code.co_filename
        if file == LAYERS or not file.startswith(f"{ENGINE}{os.sep}"):
            yield frame
        frame = frame.f_back


def line_of(frame: FrameType) -> Line:
    """Return the statement that a frame is running, with the lines of its call joined."""
    code = frame.f_code
    first, last, *_ = next(islice(code.co_positions(), frame.f_lasti // 2, None))
    if first is None:                           # python -X no_debug_ranges keeps no positions
        first = last = frame.f_lineno
    text = " ".join(linecache.getline(code.co_filename, n) for n in range(first, last + 1))
    joined = " ".join(text.split()).replace("( ", "(")      # the arguments may begin on a line
    return Line(_relative(code.co_filename), first, joined)


def definition(f: Callable) -> Line:
    """Return where a function is defined."""
    code = inspect.unwrap(f).__code__
    number = code.co_firstlineno
    while linecache.getline(code.co_filename, number).lstrip().startswith("@"):
        number += 1
    return Line(_relative(code.co_filename), number,
                linecache.getline(code.co_filename, number).strip())


def _relative(file):
    path = Path(file)
    return path.relative_to(ENGINE.parent).as_posix() if ENGINE.parent in path.parents else file


def meaning(op: str) -> str:
    """Return what an op computes: the first paragraph of its docstring, as one line."""
    return _summary(op).partition(" Back: ")[0].rstrip(".")


def derivatives(op: str) -> list[str]:
    """Return the rules of an op's gradient, such as "dx = g * y", if its source states them in a
    line: in the docstring after "Back:", or as lambdas that are its vjps.

    g is the gradient of the op's value; y is the value, unless it is an argument.
    """
    if back := _summary(op).partition(" Back: ")[2]:
        return [back.rstrip(".")]
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(OPS.get(op))))
    except (OSError, TypeError, SyntaxError):   # the op is not listed, or in no file
        return []
    match [node.value for node in ast.walk(tree) if isinstance(node, ast.Return)]:
        case [ast.Tuple(elts=[_, ast.Tuple(elts=vjps)])]:
            return [f"d{name} = {ast.unparse(vjp.body)}"
                    for name, vjp in zip(inspect.signature(OPS[op]).parameters, vjps)
                    if isinstance(vjp, ast.Lambda)]
    return []                                   # several cases, or no lambdas


def _summary(op):
    return " ".join((op in OPS and inspect.getdoc(OPS[op]) or "").split("\n\n")[0].split())
