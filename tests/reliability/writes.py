"""Kill a small run at each write, rename and fsync in turn.

A write is killed in its middle, with half of it in the file.
"""
import contextlib
import io
import itertools
import os
import pathlib
import signal
import sys

import numpy as np

import train
from data import files
from model import beginning
from tests.flags import whole
from tests.reliability.runs import differences, first_or_resumed

# An evaluation that is the best, steps without one that write last.npz, and a last evaluation.
SMALL = ("--n_layer 1 --n_head 2 --n_embd 16 --block_size 16 --batch_size 4 --max_iters 4 "
         "--eval_interval 2 --eval_iters 2 --dropout 0.1 --warmup_iters 2 --ngram_rows 100 "
         "--checkpoint_interval 1e-9").split()
HOW = ("kill", "two signals")
FLAGS = {"how": (HOW, HOW[0], "SIGKILL, or SIGTERM and at once SIGINT"),
         "every": (whole, 1, "take each N-th place only")}


def run(options, folder):
    """Return whether every interrupted run, resumed, ended as the one that was left alone."""
    train.report = beginning.check_memory = lambda *_: None         # which add nothing here
    text = folder / "text.txt"
    text.write_text("".join(np.random.default_rng(0).choice(list("abcdef \n"), 2000)))
    flags = ["--data", str(text), *SMALL, *options.train]
    train_in(folder / "whole", flags)       # here, so that what is forked has its kernels loaded
    different = places = 0
    for n in itertools.count(1, options.every):
        cut = folder / f"cut{n}"
        _, where = forked(train_in, cut, flags, n, options.how)
        if not where:                       # it ended before
            break
        places += 1
        code, _ = forked(train_in, cut, first_or_resumed(cut, flags))
        found = [f"{part.name} was left" for part in cut.glob("*.part")]
        found += [f"resumed, it ended with {code}"] if code else differences(cut, folder / "whole")
        for what in found:
            print(f"place {n}, {where}: {what}")
        different += bool(found)
    print(f"{places} places to die, by {options.how}; {different or 'none'} ended differently")
    return places > 0 and not different


def forked(f, *arguments):
    """Call a function in a copy of this process; return its status, and where it died."""
    sys.stdout.flush()
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        code = 1
        try:
            f(*arguments, tell=lambda where: os.write(writing, where.encode()))
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        finally:
            os._exit(code)
    os.close(writing)
    with open(reading, encoding="utf-8") as file:
        where = file.read()
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), where


def train_in(out_dir, flags, at=0, how=HOW[0], tell=print):
    """Run train.py, and let it die at the call of this number (0: never), after telling where."""
    calls = itertools.count(1)

    def here(where):
        if next(calls) == at:
            tell(where)
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)

    watch(here)
    with (open(os.devnull, "w", encoding="utf-8") as nowhere,
          contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere)):
        train.main(["--out_dir", str(out_dir), "--threads", "1", *flags])


def watch(here):
    """Call `here` in the middle of each write, and before each rename and fsync."""
    def replace(source, target):
        here(f"rename to {pathlib.Path(target).name}")
        rename(source, target)

    def fsync(number):
        here("fsync")       # and no more: the system goes on after a kill, with all that it holds

    rename = os.replace
    os.replace, os.fsync = replace, fsync
    files.open = halving(here)


def halving(here):
    """Return an `open` that calls `here` in the middle of each write into a new file."""
    class Halves(io.FileIO):
        def write(self, content):
            half = len(content) // 2
            super().write(content[:half])
            here(f"write {pathlib.Path(self.name).name}")
            return half + super().write(content[half:])

    return lambda path, mode, *size: (
        io.BufferedRandom(Halves(path, mode)) if mode == "w+b" else open(path, mode, *size))
