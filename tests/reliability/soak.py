"""Train for an hour and watch the resident memory, which must stay what it is after a minute."""
import os
import pathlib
import statistics
import subprocess
import sys
import time

from tests.flags import positive
from tests.kit import ROOT
from tests.reliability.runs import environment_of_all_threads

FLAGS = {"seconds": (positive, 3600.0, "of training"),
         "period": (positive, 60.0, "seconds until memory must be flat, and of an average"),
         "within": (positive, 1.0, "percent of the memory after the first period")}


def run(options, folder):
    """Return whether the median of every period is as near to that of the second one."""
    flags = "--max_iters 1000000000 --lr_decay_iters 3000 --out_dir".split()
    command = [sys.executable, "train.py", *flags, str(folder / "out"), *options.train]
    readings = []       # (seconds since the second evaluation, when all has run once; bytes)
    with (open(folder / "printed", "w", encoding="utf-8") as file,
          subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT,
                           env=environment_of_all_threads()) as process):
        log = folder / "out" / "log.csv"
        while process.poll() is None and not (log.exists()
                                              and len(log.read_text().splitlines()) > 2):
            time.sleep(0.05)
        started = time.monotonic()
        while time.monotonic() - started < options.seconds and process.poll() is None:
            pages = pathlib.Path(f"/proc/{process.pid}/statm").read_text().split()[1]
            readings.append((time.monotonic() - started, int(pages) * os.sysconf("SC_PAGE_SIZE")))
            time.sleep(options.period / 60)
        ended = process.poll()
        process.terminate()
    lines = (folder / "printed").read_text(encoding="utf-8").splitlines()
    if ended is not None or process.returncode != 130:
        sys.exit("the run ended by itself:\n" + "\n".join(lines[-20:]))
    periods = [[size for at, size in readings if at // options.period == n]
               for n in range(1, int(options.seconds // options.period))]
    medians = [statistics.median(period) for period in periods]
    farthest = max(abs(median / medians[0] - 1) for median in medians)
    steps = next(line for line in reversed(lines) if line.startswith("stopped after"))
    print(f"trained for                 {options.seconds:,.0f} s: {steps.split(';')[0]}\n"
          f"resident, medians           {medians[0] / 1e6:.1f} MB in the second period of "
          f"{options.period:g} s, {medians[-1] / 1e6:.1f} MB in the last\n"
          f"farthest from the second    {farthest:.2%}\n"
          f"highest reading             {max(map(max, periods)) / 1e6:.1f} MB")
    return farthest <= options.within / 100
