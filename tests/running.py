"""Runs of train.py within a test: begun, refused, compared."""
import csv

import numpy as np
import pytest

import minigrad as mg
import train
from conftest import TINY


def run(small_text, out_dir, *flags):
    train.main(["--data", str(small_text), "--out_dir", str(out_dir), *TINY, *flags])


def forward_backward(model, batches, rng):
    """The loss over batches of ids and targets, whose gradients it leaves."""
    losses = [mg.cross_entropy(model(x, rng=rng), y) / len(batches) for x, y in batches]
    for loss in losses:
        loss.backward()
    return sum(loss.item() for loss in losses)


def rows(out_dir):
    with open(out_dir / "log.csv", newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def losses(out_dir):
    """iter, train_loss, val_loss and lr of every line: what does not depend on the clock."""
    return [row[:4] for row in rows(out_dir)]


def arrays(path):
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files if name != "training"}


def same_arrays(a, b):
    a, b = arrays(a), arrays(b)
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def refused(capsys, *flags):
    """What train.py says when it refuses: one line, and no traceback."""
    with pytest.raises(SystemExit) as caught:
        train.main(list(flags))
    said = str(caught.value.code) if isinstance(caught.value.code, str) else capsys.readouterr().err
    line = said.strip().splitlines()[-1]
    assert caught.value.code not in (0, None) and line.startswith("train.py: ")
    return line
