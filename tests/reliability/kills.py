"""Kill a real run by SIGKILL at random moments, resume it, and compare its end.

Of three kills one falls at any moment, loading included; one while the run takes steps; one while
a file is being written.
"""
import argparse
import pathlib
import random
import subprocess
from typing import NamedTuple

from model.checkpoint import LAST
from tests.flags import whole
from tests.reliability import runs

MOMENTS = ("any", "a step", "a write")
FLAGS = runs.FLAGS | {"count": (whole, 50, "kills")}


class Kill(NamedTuple):
    """The state of a run at its kill."""
    lost: float         # seconds of finished steps since the checkpoint to resume from
    writing: bool       # whether a file was half written, or a rename half done


def run(options: argparse.Namespace, folder: pathlib.Path) -> bool:
    """Return whether every run that was killed ended as the one that was left alone."""
    def kill(process: subprocess.Popen, out_dir: pathlib.Path, number: int, draw: random.Random
             ) -> Kill | None:
        moment = MOMENTS[number % 3]
        if not runs.pass_moment(
                process, lambda: moment == "any" or runs.steps_since(out_dir) != [],
                draw.uniform(0, 3 * options.interval),
                lambda: moment != "a write" or any(out_dir.glob("*.part"))):
            return None
        process.kill()
        process.wait()
        kept = runs.checkpoint(out_dir)
        kept_until = runs.contents(kept)["state/iteration"] if kept else 0
        return Kill(sum(seconds for step, seconds in runs.steps_since(out_dir)
                        if step > kept_until),
                    any(out_dir.glob("*.part")) or kept is not None and kept.name != LAST)
    kills, ended, different = runs.end_alike(options, folder, [], runs.start, kill)
    lost = [kill.lost for kill in kills]
    print(f"kills                       {len(kills)}, over {ended} runs of {options.steps} steps\n"
          f"in the middle of a write    {sum(kill.writing for kill in kills)}\n"
          f"most work lost              {max(lost):.2f} s, with a checkpoint every "
          f"{options.interval:g} s; on average {sum(lost) / len(lost):.2f} s\n"
          f"bit-equal at the end        {ended - different} of {ended} runs")
    return not different
