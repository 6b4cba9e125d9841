"""Kill a real run by SIGKILL at random moments, go on with it, and compare its end.

Of three kills one falls at any moment, loading included; one while the run takes steps; one while
a file is being written.
"""
import argparse
import pathlib
import random
import subprocess
import sys
import time
from typing import NamedTuple

from model.checkpoint import LAST
from tests.reliability.outcome import ROOT, checkpoint, contents, differences

TELLING = """
import sys
import train
from model.run import State

steps, note = open(sys.argv.pop(1), "w"), State.note_step

def note_step(state, loss, seconds, taken):
    note(state, loss, seconds, taken)
    print(state.iteration, seconds, file=steps, flush=True)

State.note_step = note_step
train.main()
"""
MOMENTS = ("any", "a step", "a write")


class Kill(NamedTuple):
    """What a kill met."""
    lost: float         # seconds of finished steps since the checkpoint that is gone on from
    writing: bool       # whether a file was half written, or a rename half done


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The settings on the command line."""
    add = parser.add_argument
    add("--count", type=int, default=50, help="kills (default: %(default)s)")
    add("--interval", type=float, default=1.0,
        help="seconds between checkpoints (default: %(default)s)")
    add("--steps", type=int, default=400, help="of a run (default: %(default)s)")
    add("--moments", type=int, default=0, metavar="SEED",
        help="of the moments at which runs are killed (default: %(default)s)")


def run(options: argparse.Namespace, folder: pathlib.Path) -> bool:
    """Whether every run that was killed ended as the one that was left alone."""
    flags = ["--max_iters", str(options.steps), "--eval_interval", str(max(options.steps // 4, 1)),
             "--eval_iters", "2", "--dropout", "0.1", "--checkpoint_interval",
             str(options.interval), *options.train]
    whole = folder / "whole"
    if start(whole, flags).wait():
        sys.exit(f"the run that is left alone failed:\n{said(whole)}")
    draw = random.Random(options.moments)
    kills, ended, different = [], 0, 0
    while len(kills) < options.count or not ended or (folder / f"killed{ended}").exists():
        cut = folder / f"killed{ended}"
        process = start(cut, ["--init_from", "resume"] if checkpoint(cut) else flags)
        kill = None
        if len(kills) < options.count:
            kill = kill_at(MOMENTS[len(kills) % 3], process, cut, options.interval, draw)
        if kill:
            kills.append(kill)
            continue
        found = [said(cut)] if process.wait() else differences(cut, whole)
        print("".join(f"run {ended}: {what}\n" for what in found), end="", flush=True)
        different += bool(found)
        ended += 1
    lost = [kill.lost for kill in kills]
    print(f"kills                       {len(kills)}, over {ended} runs of {options.steps} steps\n"
          f"in the middle of a write    {sum(kill.writing for kill in kills)}\n"
          f"most work lost              {max(lost):.2f} s, with a checkpoint every "
          f"{options.interval:g} s; on average {sum(lost) / len(lost):.2f} s\n"
          f"bit-equal at the end        {ended - different} of {ended} runs")
    return not different


def start(out_dir: pathlib.Path, flags: list[str]) -> subprocess.Popen:
    """train.py in a process of its own; what it says and its steps go to files beside `out_dir`."""
    command = [sys.executable, "-c", TELLING, steps_file(out_dir), "--out_dir", out_dir, *flags]
    steps_file(out_dir).write_bytes(b"")
    with open(out_dir.with_suffix(".txt"), "w", encoding="utf-8") as file:
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT)


def steps_file(out_dir: pathlib.Path) -> pathlib.Path:
    """Where the steps of a run since its start are told."""
    return out_dir.with_suffix(".steps")


def said(out_dir: pathlib.Path) -> str:
    """All that a run has said since its start."""
    return out_dir.with_suffix(".txt").read_text(encoding="utf-8")


def kill_at(moment: str, process: subprocess.Popen, out_dir: pathlib.Path, interval: float,
            draw: random.Random) -> Kill | None:
    """Kill a run; None if it ended before."""
    until = None                        # the earliest to kill
    while True:
        if process.poll() is not None:
            return None
        if until is None and (moment == "any" or steps_file(out_dir).stat().st_size):
            until = time.time() + draw.uniform(0, 3 * interval)
        if until and time.time() >= until and (moment != "a write" or any(out_dir.glob("*.part"))):
            break
        time.sleep(0.0005)
    process.kill()
    process.wait()
    kept = checkpoint(out_dir)
    kept_until = contents(kept)["state/iteration"] if kept else 0
    steps = [line.split() for line in steps_file(out_dir).read_text().splitlines()]
    return Kill(sum(float(seconds) for step, seconds in steps if int(step) > kept_until),
                any(out_dir.glob("*.part")) or kept is not None and kept.name != LAST)
