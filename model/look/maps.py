"""Matrices as maps (heat maps) to point into.

A map is plain JSON, which static/maps.js draws:  title;  rows and columns, their labels;  row and
column, what one of them is;  values, by rows, null where a cell is closed;  most, the absolute
value that has the full colour: blue, or orange below 0.
"""
from collections.abc import Sequence
from typing import Any

import numpy as np

FILES = ("maps.css", "maps.js")         # in static/
DIGITS = 4      # after the point
HINT = "Point at a cell of a map to see its number, or choose one and use the arrow keys."


def labelled(title: str, values: np.ndarray, rows: Sequence[object], columns: Sequence[object],
             row: str = "query", column: str = "key", most: float | None = None) -> dict[str, Any]:
    """Return a matrix, (R, C), as a map.  nan and inf, such as those of a mask, are closed cells.

    Parameters
    ----------
    rows, columns : R and C labels: words, letters, numbers.
    row, column : what a row and a column is, in the singular.
    most : the absolute value that has the full colour; by default the largest of the map.
    """
    values = np.asarray(values, np.float64)
    if values.shape != (len(rows), len(columns)):
        raise ValueError(f"{title!r} has {len(rows)} labels of rows and {len(columns)} of columns, "
                         f"and values of the shape {list(values.shape)}")
    if most is None:
        most = float(np.abs(values[np.isfinite(values)]).max(initial=0)) or 1.0
    return {"title": title, "rows": [str(x) for x in rows], "columns": [str(x) for x in columns],
            "row": row, "column": column, "most": round(most, DIGITS),
            "values": [[round(float(x), DIGITS) + 0.0 if np.isfinite(x) else None for x in line]
                       for line in values]}
