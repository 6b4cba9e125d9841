"""Measure minigrad, beside PyTorch where that is installed:  python -m tests.benchmarks

    step        a training step, and its share of what the processor can do
    sampling    characters a second, of one sequence and of 16 at once
    kernels     each kernel beside NumPy's plain statement and PyTorch's op
    start       from `python train.py` to its first step, `model.sample` to its first character
    memory      the most that two steps hold
    growth      time and memory over length, width and depth

Without a name, all but growth.  Tables go to standard output, and with the raw times to a JSON
file; Ctrl-C ends with what was measured until then.
"""
import argparse
import contextlib
import os
import pathlib
import sys

from tests.benchmarks.sizes import MODES, SIZES

WHAT = ("step", "sampling", "kernels", "start", "memory", "growth")
THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS",
           "VECLIB_MAXIMUM_THREADS")


def main(argv: list[str] | None = None) -> None:
    """The command."""
    options = parse(argv)
    os.environ.update(dict.fromkeys(THREADS, str(options.threads)))     # before these libraries
    # PyTorch first, so that its threads wait for work as they would without minigrad, which changes
    # how OpenMP's do.  Whole steps run in a process without minigrad.
    if "kernels" in (options.what or WHAT):
        with contextlib.suppress(ImportError):
            import torch        # noqa: F401
    from tests.benchmarks import growth, kernels, processes, report, steps
    of_a_size = {"step": steps.measure_step, "sampling": steps.measure_sampling,
                 "kernels": kernels.measure_kernels, "memory": processes.measure_memory}
    of_its_own = {"start": processes.measure_start, "growth": growth.measure_growth}
    try:
        to = report.Report(options.json)
        for what in options.what or WHAT[:-1]:
            if what in of_its_own:
                of_its_own[what](options, to)
            for size in options.sizes if what in of_a_size else ():
                of_a_size[what](SIZES[size], options, to)
    except KeyboardInterrupt:
        print(f"\nstopped; what was measured before is in {options.json}", file=sys.stderr)
        sys.exit(130)
    print(f"\nall of it, with the raw times: {options.json}")


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The settings on the command line."""
    parser = argparse.ArgumentParser("python -m tests.benchmarks", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("what", nargs="*", choices=WHAT, metavar="WHAT", help="one or more of the above")
    add("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES), metavar="SIZE",
        help="; ".join(f"{name}: {size}" for name, size in SIZES.items()) + " (default: both)")
    add("--modes", nargs="+", choices=MODES, default=list(MODES), metavar="MODE",
        help=f"of PyTorch's training step: {', '.join(MODES)} (default: all)")
    add("--rounds", type=whole, metavar="N", help="everything compared has a turn in each")
    add("--steps", type=whole, metavar="N", help="of a turn: steps, characters or calls")
    add("--threads", type=whole, default=available(), metavar="N",
        help="of every library (default: %(default)s, all that this process may use)")
    add("--quick", action="store_true", help="few rounds and steps, and a short growth")
    add("--json", type=pathlib.Path, default="benchmarks.json", metavar="FILE",
        help="where all is written (default: %(default)s)")
    return parser.parse_args(argv)


def whole(text: str) -> int:
    """A number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number of at least 1 is needed, not {text}")
    return int(text)


def available() -> int:
    """Processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


if __name__ == "__main__":
    main()
