"""Kill a random rank of a run by SIGKILL at random moments, go on on other ranks, and compare.

Every run has another number of ranks.  Gradients are added up exactly, so that the end has the same
bits as that of a run of one process that was left alone.
"""
import argparse
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

from model.checkpoint import CheckpointError, load_last
from tests.model.ranks.mpiexec import MPIEXEC, OPEN_MPI, ROOT
from tests.reliability.outcome import checkpoint, contents, differences

TELLING = """
import os, pathlib, sys
import train
from model.processes import launched
from model.run import State

folder, note = pathlib.Path(sys.argv.pop(1)), State.note_step
(folder / f"process.{launched()[0]}").write_text(str(os.getpid()))

def note_step(state, *arguments):
    note(state, *arguments)
    (folder / "stepped").touch()

State.note_step = note_step
train.main()
"""
SIZES = 2, 3, 4
WITHIN = 10.0       # seconds in which all ranks are to end after one of them


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The settings on the command line."""
    add = parser.add_argument
    add("--count", type=int, default=20, help="kills (default: %(default)s)")
    add("--interval", type=float, default=1.0,
        help="seconds between checkpoints (default: %(default)s)")
    add("--steps", type=int, default=200, help="of a run (default: %(default)s)")
    add("--moments", type=int, default=0, metavar="SEED",
        help="of the moments, and of the ranks that are killed (default: %(default)s)")


def run(options: argparse.Namespace, folder: pathlib.Path) -> bool:
    """Whether every run that was killed ended as the one that was left alone."""
    if not MPIEXEC:
        sys.exit("there is no mpiexec; install one with pip install -e '.[mpi]'")
    flags = ["--batch_size", "12", "--reduce", "exact", "--max_iters", str(options.steps),
             "--eval_interval", str(max(options.steps // 4, 1)), "--eval_iters", "2",
             "--dropout", "0.1", "--checkpoint_interval", str(options.interval), *options.train]
    whole = folder / "whole"
    subprocess.run([sys.executable, "train.py", "--out_dir", whole, *flags], cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL)
    draw = random.Random(options.moments)
    kept, slowest, wrong, ended, killed = [], 0.0, 0, 0, 0
    while killed < options.count or not ended or (folder / f"cut{ended}").exists():
        cut, size = folder / f"cut{ended}", draw.choice(SIZES)
        process, told = start(cut, size, ["--init_from", "resume"] if checkpoint(cut) else flags)
        took = None
        if killed < options.count:
            took = kill(process, told, size, draw, 3 * options.interval)
        if took is not None:
            killed += 1
            slowest = max(slowest, took)
            kept.append(contents(found)["state/iteration"] if (found := checkpoint(cut)) else 0)
            if problem := damage(cut, took):
                print(f"kill {killed}, of {size} ranks: {problem}", flush=True)
                wrong += 1
            continue
        said = process.communicate()[0]
        found = [said] if process.returncode else differences(cut, whole)
        print("".join(f"run {ended}: {what}\n" for what in found), end="", flush=True)
        wrong += bool(found)
        ended += 1
    print(f"kills                       {killed}, over {ended} runs of {options.steps} steps on "
          f"{', '.join(map(str, SIZES))} ranks; gone on from steps {', '.join(map(str, kept))}\n"
          f"until all ranks had ended   {slowest:.2f} s at most\n"
          f"damaged, late or different  {wrong}")
    return not wrong


def start(out_dir: pathlib.Path, size: int, flags: list[str]
          ) -> tuple[subprocess.Popen, pathlib.Path]:
    """Ranks of train.py, and the folder where each tells the number of its process."""
    told = out_dir.with_suffix(".told")
    told.mkdir(exist_ok=True)
    for file in told.iterdir():
        file.unlink()
    command = [MPIEXEC, "-n", str(size), sys.executable, "-c", TELLING, told, "--out_dir", out_dir]
    return subprocess.Popen([*command, *flags], cwd=ROOT, env=os.environ | OPEN_MPI, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT), told


def kill(process: subprocess.Popen, told: pathlib.Path, size: int, draw: random.Random,
         longest: float) -> float | None:
    """Kill one of the ranks, while they load or take steps; return the seconds until all have
    ended, or None if the run ended before."""
    number, stepping, until = draw.randrange(size), draw.random() < 0.7, None
    wait = draw.uniform(0, longest)
    while until is None or time.monotonic() < until:
        if process.poll() is not None:
            return None
        processes = [file.read_text() for file in told.glob("process.*")]
        if (until is None and len(processes) == size and all(processes)
                and (not stepping or (told / "stepped").exists())):
            until = time.monotonic() + wait
        time.sleep(0.002)
    os.kill(int((told / f"process.{number}").read_text()), signal.SIGKILL)
    killed = time.monotonic()
    process.communicate()
    while any(pathlib.Path(f"/proc/{number}").exists() for number in processes):
        if time.monotonic() > killed + WITHIN:
            break
        time.sleep(0.01)
    return time.monotonic() - killed


def damage(out_dir: pathlib.Path, took: float) -> str | None:
    """What is wrong after a kill, if anything is."""
    if took > WITHIN:
        return f"ranks went on for {took:.1f} s"
    if checkpoint(out_dir):
        try:
            load_last(out_dir)
        except CheckpointError as error:
            return str(error)
