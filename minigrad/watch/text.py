"""Arrays and tables as text for a terminal."""
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

SHOWN = 6       # an array of at most so many numbers is shown whole; of a larger one, the range


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
