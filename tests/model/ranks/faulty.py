"""Train on ranks of which one meets a fault:

    mpiexec -n 2 python tests/model/ranks/faulty.py NUMBER FAULT [flags of train.py]
"""
import errno
import os
import signal
import sys

import numpy as np

import train
from model.start import launcher_rank
from model.ranks.mean import OverRanks
from model import run

STEP = 7        # in which it comes
real = OverRanks.average
steps = iter(range(1, 10**6))


def killed(mean):
    os.kill(os.getpid(), signal.SIGKILL)


def raises(mean):
    raise RuntimeError("a mistake of the program")


def nan(mean):
    mean.parameters[0].grad[...] = np.nan


def interrupted_twice(mean):
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)


def full_disk(mean):
    def save(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "last.npz")
    run.save_checkpoint = save


def average(mean, loss):
    if next(steps) == STEP:
        fault(mean)
    return real(mean, loss)


if __name__ == "__main__":
    number = int(sys.argv.pop(1))
    fault = globals()[sys.argv.pop(1)]
    if launcher_rank()[0] == number:
        OverRanks.average = average
    train.main()
