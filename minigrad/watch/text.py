"""Arrays, tables and small pictures as text for a terminal."""
import math
import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TextIO

import numpy as np

SHOWN = 6       # an array of at most so many numbers is shown whole; of a larger one, the range
BLOCKS = 24     # in a line of blocks, at most
RULER = 32      # characters of a ruler
BARE = ("dumb", "linux")    # terminals (TERM) whose fonts lack these signs


class Numbers(NamedTuple):
    """A summary of an array."""
    name: str
    type: str           # its dtype and shape
    size: int
    bad: int            # how many are nan or inf
    low: float          # of the others; nan if there are none
    high: float

    @property
    def dtype(self) -> str:
        """The name of its dtype."""
        return self.type.partition("[")[0]

    @classmethod
    def of(cls, name: str, array: Any) -> "Numbers":
        """Return the summary of an array."""
        a = np.asarray(array)
        finite = a[np.isfinite(a)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (math.nan,) * 2
        return cls(name, type_of(a), a.size, a.size - finite.size, low, high)

    def __str__(self) -> str:
        said = f"{self.low:.4g} to {self.high:.4g}" if self.low < self.high else f"{self.low:.4g}"
        if self.bad == self.size:
            said = "all nan or inf" if self.size else "empty"
        elif self.bad:
            said += f", but {self.bad:,} of {self.size:,} are nan or inf"
        return f"{self.name}  {self.type}: {said}".strip()


def type_of(array: np.ndarray) -> str:
    """Return the dtype and shape of an array."""
    return f"{array.dtype}{list(array.shape)}"


def numbers(array: np.ndarray | None) -> str:
    """Return the numbers of a small array; of a larger one, the range and the mean."""
    if array is None:
        return "-"
    if array.size <= SHOWN:
        return _nested(array)
    with np.errstate(all="ignore"):             # a mask holds -inf
        mean = f", mean {array.mean():.2g}" if array.dtype.kind == "f" else ""
        return f"{array.min():.2g} to {array.max():.2g}{mean}"


def _nested(array):
    if array.ndim:
        return f"[{', '.join(map(_nested, array))}]"
    return f"{array + 0.0:.4g}" if array.dtype.kind == "f" else str(array)      # + 0.0: no -0


def norm(arrays: Iterable[np.ndarray]) -> float:
    """Return the square root of the sum of all squares."""
    return math.sqrt(sum(float(np.square(a, dtype=np.float64).sum()) for a in arrays))


def rms(arrays: list[np.ndarray]) -> float:
    """Return the square root of the mean of all squares."""
    return norm(arrays) / math.sqrt(sum(a.size for a in arrays))


def aligned(rows: list[tuple[str, ...]], sides: str = "") -> list[str]:
    """Return the lines of a table.  Each column is aligned left (<, the default) or right (>)."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(f"{cell:{side}{width}}" for cell, side, width in
                      zip(row, sides or "<" * len(row), widths)).rstrip() for row in rows]


class Signs(NamedTuple):
    """What small pictures are made of."""
    blocks: str         # from the lowest to the highest
    line: str
    dot: str


UNICODE = Signs("▁▂▃▄▅▆▇█", "─", "●")
ASCII = Signs("_.-=+*%#", "-", "o")


def signs_for(stream: TextIO) -> Signs:
    """Return the signs that a stream can show: ASCII where its encoding or its terminal lacks the
    others."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        "".join(UNICODE).encode(encoding)
    except UnicodeEncodeError:
        return ASCII
    if stream.isatty() and os.environ.get("TERM") in BARE:
        return ASCII
    return UNICODE


def block_line(numbers: Sequence[float], signs: Signs = UNICODE) -> str:
    """Return numbers of at least 0 as blocks, which are as high as log(1 + x).  Of more than BLOCKS
    numbers, some are shown: the first, the last, and others evenly between them."""
    heights = np.log1p(np.asarray(numbers, np.float64))
    if len(heights) > BLOCKS:
        heights = heights[np.rint(np.linspace(0, len(heights) - 1, BLOCKS)).astype(int)]
    above = heights - heights.min()
    shares = above / (above.max() or 1)
    return "".join(signs.blocks[level]
                   for level in np.rint(shares * (len(signs.blocks) - 1)).astype(int))


def ruler(marks: dict[str, float], signs: Signs = UNICODE) -> str:
    """Return a line of RULER characters with each mark where its number is, from the largest at the
    left to the smallest.  Marks that would touch move apart, and keep their order."""
    names = sorted(marks, key=marks.get, reverse=True)
    largest, smallest = marks[names[0]], marks[names[-1]]
    scale = (RULER - len(names[-1])) / ((largest - smallest) or 1)
    starts = []
    first = 0               # where the next one may begin
    for name in names:
        starts.append(max(first, round((largest - marks[name]) * scale)))
        first = starts[-1] + len(name) + 1
    end = RULER             # where it has to end
    for place in reversed(range(len(names))):
        starts[place] = max(0, min(starts[place], end - len(names[place])))
        end = starts[place] - 1
    line = ""
    for name, start in zip(names, starts):
        line += signs.line * (start - len(line)) + name
    return line + signs.line * (RULER - len(line))
