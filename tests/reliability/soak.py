"""Train for an hour and watch the resident memory, which must stay what it is after a minute."""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

from tests.reliability.outcome import ROOT


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The settings on the command line."""
    add = parser.add_argument
    add("--seconds", type=float, default=3600, help="of training (default: %(default)s)")
    add("--period", type=float, default=60,
        help="seconds before memory must be flat, and over which it is averaged "
             "(default: %(default)s)")
    add("--within", type=float, default=1.0, metavar="PERCENT",
        help="of the memory after the first period (default: %(default)s)")


def run(options: argparse.Namespace, folder: pathlib.Path) -> bool:
    """Whether the median of every period lies so near to that of the second one."""
    command = [sys.executable, "train.py", "--out_dir", str(folder / "out"), "--max_iters",
               str(10 ** 9), "--lr_decay_iters", "3000", *options.train]
    threads = {"NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"}  # as many as usual
    environment = {name: value for name, value in os.environ.items() if name not in threads}
    readings = []       # (seconds since the second evaluation, when all has run once; bytes)
    with (open(folder / "said.txt", "w", encoding="utf-8") as said,
          subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, cwd=ROOT,
                           env=environment) as process):
        while process.poll() is None and evaluations(folder / "out") < 2:
            time.sleep(0.05)
        started = time.monotonic()
        while time.monotonic() - started < options.seconds and process.poll() is None:
            readings.append((time.monotonic() - started, resident(process.pid)))
            time.sleep(options.period / 60)
        ended = process.poll()
        process.terminate()
    lines = (folder / "said.txt").read_text(encoding="utf-8").splitlines()
    if ended is not None or process.returncode != 130:
        sys.exit("the run ended by itself:\n" + "\n".join(lines[-20:]))
    periods = [[size for at, size in readings if at // options.period == n]
               for n in range(1, int(options.seconds // options.period))]
    medians = [statistics.median(period) for period in periods]
    flat = max(abs(median / medians[0] - 1) for median in medians)
    print(f"trained for                 {options.seconds:,.0f} s: {steps(lines)}\n"
          f"resident, medians           {medians[0] / 1e6:.1f} MB in the second period of "
          f"{options.period:g} s, {medians[-1] / 1e6:.1f} MB in the last\n"
          f"farthest from the second    {flat:.2%}\n"
          f"highest reading             {max(map(max, periods)) / 1e6:.1f} MB")
    return flat <= options.within / 100


def evaluations(out_dir: pathlib.Path) -> int:
    """How many a run has logged."""
    log = out_dir / "log.csv"
    return len(log.read_text().splitlines()) - 1 if log.exists() else 0


def resident(process: int) -> int:
    """Bytes of a process that are in memory."""
    pages = int(pathlib.Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def steps(lines: list[str]) -> str:
    """What the run said of its end."""
    return next(line for line in reversed(lines) if line.startswith("stopped after")).split(";")[0]
