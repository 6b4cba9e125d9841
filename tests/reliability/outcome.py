"""What a run leaves behind, but for what depends on the clock and on where it lies."""
import csv
import json
import pathlib

import numpy as np

from model.checkpoint import BEST, LAST, PREVIOUS

ROOT = pathlib.Path(__file__).parents[2]
OF_THE_CLOCK = ("seconds", "evaluated_at")      # in the state; and tokens_per_s in the log


def differences(folder: pathlib.Path, other: pathlib.Path) -> list[str]:
    """What two runs left that is not the same bit for bit: weights, optimiser, generators, data
    position, schedule, best-so-far, log.csv."""
    found = [f"log.csv: {a} is not {b}" for a, b in [(log(folder), log(other))] if a != b]
    for name in (BEST, LAST):
        a, b = contents(folder / name), contents(other / name)
        found += [f"{name}: {key}" for key in sorted(a.keys() | b.keys())
                  if a.get(key) != b.get(key)]
    return found


def contents(path: pathlib.Path) -> dict:
    """Every array of a checkpoint as dtype, shape and bytes, and every entry of its state."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    training = json.loads(str(arrays.pop("training")))
    state = {f"state/{name}": value for name, value in training["state"].items()
             if name not in OF_THE_CLOCK}
    settings = {f"settings/{name}": value for name, value in training["settings"].items()
                if name != "out_dir"}
    return ({name: (a.dtype.str, a.shape, a.tobytes()) for name, a in arrays.items()}
            | state | settings | {"text": training["text"]})


def log(folder: pathlib.Path) -> list[list[str]]:
    """iter, train_loss, val_loss and lr of every line of log.csv."""
    with open(folder / "log.csv", newline="", encoding="utf-8") as file:
        return [row[:4] for row in csv.reader(file)]


def checkpoint(folder: pathlib.Path) -> pathlib.Path | None:
    """What a run in this folder would be resumed from."""
    return next((path for name in (LAST, PREVIOUS)
                 if (path := folder / name).exists()), None)
