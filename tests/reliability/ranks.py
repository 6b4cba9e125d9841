"""Kill a random rank of a run by SIGKILL at random moments, resume it, and compare.

All runs have one number of ranks, so that the end has the same bits as that of a run that was left
alone.
"""
import os
import pathlib
import random
import signal
import sys
import time

from model.checkpoint import CheckpointError, load_last
from tests.flags import whole
from tests.model.ranks.mpiexec import MPIEXEC, OPEN_MPI
from tests.reliability import runs

SIZES = 2, 3, 4
WITHIN = 10.0       # seconds in which all ranks must end after one of them
FLAGS = runs.FLAGS | {"steps": (whole, 200, "of a run")}


def run(options, folder):
    """Return whether every run that was killed ended as the one that was left alone."""
    if not MPIEXEC:
        sys.exit('there is no mpiexec; install one with python -m pip install -e ".[mpi]"')
    ranks_of_all = random.Random(0).choice(SIZES)

    def start(out_dir, flags):
        launcher = MPIEXEC, "-n", str(ranks_of_all)
        return runs.start(out_dir, flags, launcher, **OPEN_MPI)

    def kill(process, out_dir, number, draw):
        """Return the seconds until all ranks had ended, the steps in the checkpoint, and what is
        wrong, if anything is."""
        size, stepping = int(process.args[2]), draw.random() < 0.7

        def ranks():
            return [int(file.stem) for file in runs.notes_of(out_dir).glob("*.process")]
        if not runs.pass_moment(process, lambda: len(ranks()) == size and (
                not stepping or runs.steps_since(out_dir) != []),
                draw.uniform(0, 3 * options.interval)):
            return None
        os.kill(draw.choice(ranks()), signal.SIGKILL)
        killed = time.monotonic()
        process.wait()
        while (took := time.monotonic() - killed) < WITHIN and any(
                pathlib.Path(f"/proc/{number}").exists() for number in ranks()):
            time.sleep(0.01)
        problem = f"ranks ran on for {took:.1f} s" if took > WITHIN else ""
        kept, steps = runs.checkpoint(out_dir)
        try:
            if kept:
                load_last(out_dir)
        except CheckpointError as error:
            problem = str(error)
        if problem:
            print(f"kill {number + 1}, of {size} ranks: {problem}", flush=True)
        return took, steps, problem
    kills, ended, different = runs.end_alike(
        options, folder, ["--batch_size", "12"], start, kill)
    took, steps, problems = zip(*kills)
    wrong = different + sum(map(bool, problems))
    print(f"kills                       {len(kills)}, over {ended} runs of {options.steps} steps "
          f"on {ranks_of_all} ranks; resumed from steps "
          f"{', '.join(map(str, steps))}\n"
          f"until all ranks had ended   {max(took):.2f} s at most\n"
          f"damaged, late or different  {wrong}")
    return not wrong
