"""Start runs of train.py, kill them, resume them, and compare the files that they leave."""
import json
import os
import random
import subprocess
import sys
import time

from model.checkpoint import BEST, LAST, PREVIOUS
from tests.flags import THREADS, positive, whole
from tests.kit import ROOT, arrays, losses

OF_THE_CLOCK = ("seconds", "evaluated_at")      # in the state
OBSERVED = """
import os, pathlib, sys
import train
from model.run import State

folder, note = pathlib.Path(sys.argv.pop(1)), State.note_step
(folder / f"{os.getpid()}.process").touch()

def note_step(state, loss, seconds, taken):
    note(state, loss, seconds, taken)
    with open(folder / "steps", "a") as file:
        print(state.iteration, seconds, file=file)

State.note_step = note_step
train.main()
"""
FLAGS = {"count": (whole, 20, "kills"),
         "interval": (positive, 1.0, "seconds between checkpoints"),
         "steps": (whole, 400, "of a run")}


def start(out_dir, flags, launcher=(), **environment):
    """Start train.py.  What it prints, its processes and its steps are noted in files."""
    notes = notes_of(out_dir)
    notes.mkdir(exist_ok=True)
    for file in notes.iterdir():
        file.unlink()
    (notes / "steps").touch()
    with open(notes / "printed", "w", encoding="utf-8") as file:
        return subprocess.Popen(
            [*launcher, sys.executable, "-c", OBSERVED, notes, "--out_dir", out_dir, *flags],
            cwd=ROOT, env=os.environ | environment, stdout=file, stderr=subprocess.STDOUT)


def notes_of(out_dir):
    """Return the folder of the notes on a run."""
    return out_dir.with_suffix(".notes")


def steps_since(out_dir):
    """Return the number and the seconds of each step since the start of a run."""
    lines = (notes_of(out_dir) / "steps").read_text().splitlines()
    return [(int(step), float(seconds)) for step, seconds in map(str.split, lines)]


def pass_moment(process, ready, wait, also=lambda: True):
    """Wait until a run is ready, for some seconds more, and until `also` holds; return False if the
    run ends before."""
    until = None
    while until is None or time.monotonic() < until or not also():
        if process.poll() is not None:
            return False
        if until is None and ready():
            until = time.monotonic() + wait
        time.sleep(0.0005)
    return True


def end_alike(options, folder, flags, start_one, kill):
    """Start runs, kill them, resume each until it ends, and compare it with one that is left alone.

    Parameters
    ----------
    kill : kills a run of a process and an out_dir, of this number and at a random moment; returns
        what is to be known of it, or None if the run has ended before.

    Returns
    -------
    What the kills returned, how many runs have ended, and how many of these differ.
    """
    common = (f"--max_iters {options.steps} --eval_interval {max(options.steps // 4, 1)} "
              f"--eval_iters 2 --dropout 0.1 --checkpoint_interval {options.interval}")
    flags = [*common.split(), *flags, *options.train]
    alone, draw = folder / "alone", random.Random(0)
    if start(alone, flags).wait():
        sys.exit(f"the run that is left alone failed:\n{(notes_of(alone) / 'printed').read_text()}")
    kills, ended, different = [], 0, 0
    while len(kills) < options.count or not ended or (folder / f"killed{ended}").exists():
        cut = folder / f"killed{ended}"
        process = start_one(cut, first_or_resumed(cut, flags))
        if len(kills) < options.count and (met := kill(process, cut, len(kills), draw)):
            kills.append(met)
            continue
        if process.wait():
            found = [(notes_of(cut) / "printed").read_text()]
        else:
            found = differences(cut, alone)
        for what in found:
            print(f"run {ended}: {what}", flush=True)
        different += bool(found)
        ended += 1
    return kills, ended, different


def first_or_resumed(out_dir, flags):
    """Return the flags that go on with a run, if it has a checkpoint, or begin it."""
    return ["--init_from", "resume"] if checkpoint(out_dir)[0] else flags


def checkpoint(folder):
    """Return what a run in this folder would be resumed from, and how many steps are in it."""
    for path in (folder / LAST, folder / PREVIOUS):
        if path.exists():
            return path, contents(path)["state/iteration"]
    return None, 0


def differences(folder, other):
    """Return what is not the same bit for bit in the files of two runs: weights, optimiser,
    generators, data position, schedule, best model, log.csv."""
    pairs = {"log.csv": [dict(enumerate(losses(path))) for path in (folder, other)]}
    for name in (BEST, LAST):
        pairs[name] = contents(folder / name), contents(other / name)
    return [f"{name}: {key}" for name, (a, b) in pairs.items()
            for key in sorted(a.keys() | b.keys()) if a.get(key) != b.get(key)]


def contents(path):
    """Return every array of a checkpoint as dtype, shape and bytes, and every entry of its state,
    except for what depends on the clock and on the folder."""
    found = arrays(path)
    training = json.loads(str(found.pop("training")))
    return ({name: (a.dtype.str, a.shape, a.tobytes()) for name, a in found.items()}
            | {f"state/{name}": value for name, value in training["state"].items()
               if name not in OF_THE_CLOCK}
            | {f"settings/{name}": value for name, value in training["settings"].items()
               if name != "out_dir"} | {"text": training["text"]})


def environment_of_all_threads():
    """Return the environment without limits of threads."""
    return {name: value for name, value in os.environ.items() if name not in THREADS}
