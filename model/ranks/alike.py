"""Whether all ranks run the same program with the same settings."""
import hashlib
import pathlib
import platform

import numpy as np

from minigrad import compiled
from model.startup import ROOT
from model.processes import Ranks

# What a rank may be given otherwise: only the first one reads and writes.
OWN = ("data", "out_dir", "threads")


def check_alike(ranks: Ranks, given: dict[str, object]) -> None:
    """Refuse ranks that are given other settings than the first, or run another program.

    Raises
    ------
    ValueError : says which rank, and what it has.
    """
    mine = {f"--{name}": value for name, value in given.items() if name not in OWN}
    first, *others = ranks.of_each(mine | program())
    for number, its in enumerate(others, start=1):
        for name in sorted(first.keys() | its.keys()):
            here, there = (found.get(name, "left out") for found in (its, first))
            if here != there:
                raise ValueError(f"rank {number} has {name} {here}, where the first rank has "
                                 f"{there}; give all ranks the same settings and software")


def program() -> dict[str, str]:
    """Return what computes, by name: versions, and a digest of this program's files."""
    files = [path for folder in ("data", "minigrad", "model")
             for path in sorted(pathlib.Path(ROOT, folder).rglob("*.py"))]
    files.append(pathlib.Path(ROOT, "train.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    return {"Python": platform.python_version(), "NumPy": np.__version__,
            "Numba": compiled.version(), "the program with the digest": digest[:12]}
