"""Kill a real run by SIGKILL at random moments, resume it, and compare its end.

Of three kills one falls at any moment, loading included; one while the run takes steps; one while
a file is being written.
"""

from model.checkpoint import LAST
from tests.flags import whole
from tests.reliability import runs

MOMENTS = ("any", "a step", "a write")
FLAGS = runs.FLAGS | {"count": (whole, 50, "kills")}


def run(options, folder):
    """Return whether every run that was killed ended as the one that was left alone."""
    def kill(process, out_dir, number, draw):
        """Return the seconds of finished steps since the checkpoint to resume from; and whether a
        file was half written, or a rename half done."""
        moment = MOMENTS[number % 3]
        if not runs.pass_moment(
                process, lambda: moment == "any" or runs.steps_since(out_dir) != [],
                draw.uniform(0, 3 * options.interval),
                lambda: moment != "a write" or any(out_dir.glob("*.part"))):
            return None
        process.kill()
        process.wait()
        kept, steps = runs.checkpoint(out_dir)
        return (sum(seconds for step, seconds in runs.steps_since(out_dir) if step > steps),
                any(out_dir.glob("*.part")) or kept is not None and kept.name != LAST)
    kills, ended, different = runs.end_alike(options, folder, [], runs.start, kill)
    lost, writing = zip(*kills)
    print(f"kills                       {len(kills)}, over {ended} runs of {options.steps} steps\n"
          f"in the middle of a write    {sum(writing)}\n"
          f"most work lost              {max(lost):.2f} s, with a checkpoint every "
          f"{options.interval:g} s; on average {sum(lost) / len(lost):.2f} s\n"
          f"bit-equal at the end        {ended - different} of {ended} runs")
    return not different
