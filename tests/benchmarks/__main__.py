"""Measure minigrad, beside PyTorch where that is installed:  python -m tests.benchmarks

    step        a training step, and its share of what the processor can do
    recipe      a training step of each of train.py's recipes, with its own optimiser
    sampling    characters a second, of one sequence and of 16 at once
    kernels     each kernel beside NumPy's plain statement and PyTorch's op
    tiles       the innermost loops of products, for this and other processors
    start       from `python train.py` to its first step, `model.sample` to its first character
    memory      the most that two steps hold
    ranks       steps of ranks, and how they would scale; needs an MPI
    real        tokens a second from the model of --out_dir, beside `transformers`
    growth      time and memory over length, width and depth
    board       the loss that each recipe reaches by the clock, over seeds; takes hours
    ablation    the same of the modern recipe without each of its parts

Without a name, all but the last five.  Tables go to standard output, and with the raw times to a
JSON file; Ctrl-C ends with what was measured until then, and with --resume the board and the
ablation go on from there.
"""
import argparse
import contextlib
import math
import os
import pathlib
import sys
from functools import partial

from tests.benchmarks.sizes import MODES, RECIPES, SIZES

DEFAULT = ("step", "recipe", "sampling", "kernels", "tiles", "start", "memory")
BY_THE_CLOCK = ("board", "ablation")
WHAT = (*DEFAULT, "ranks", "real", "growth", *BY_THE_CLOCK)
THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS",
           "VECLIB_MAXIMUM_THREADS")


def main(argv: list[str] | None = None) -> None:
    """The command."""
    options = parse(argv)
    os.environ.update(dict.fromkeys(THREADS, str(options.threads)))     # before these libraries
    # PyTorch first, as a program of its own would load it.  Whole steps run in a process without
    # minigrad.
    if "kernels" in (options.what or DEFAULT):
        with contextlib.suppress(ImportError):
            import torch        # noqa: F401
    from tests.benchmarks import (board, growth, kernels, processes, ranks, real, report, steps,
                                  tiles)
    of_a_size = {"step": steps.measure_step, "sampling": steps.measure_sampling,
                 "kernels": kernels.measure_kernels, "memory": processes.measure_memory}
    of_its_own = {"recipe": steps.measure_recipes, "tiles": tiles.measure_tiles,
                  "start": processes.measure_start, "ranks": ranks.measure_ranks,
                  "real": real.measure_real, "growth": growth.measure_growth,
                  "board": board.measure_board, "ablation": board.measure_ablation}
    earlier = None
    if options.earlier:
        earlier = board.read_earlier(options.earlier, "name another --from")
    elif options.resume:
        earlier = board.read_earlier(options.json, "name its file with --json, or begin without "
                                     "--resume")
    try:
        to = report.Report(options.json, earlier)
        for what in options.what or DEFAULT:
            if what in of_its_own:
                of_its_own[what](options, to)
            for size in options.sizes if what in of_a_size else ():
                of_a_size[what](SIZES[size], options, to)
    except KeyboardInterrupt:
        print(f"\nstopped; what was measured before is in {options.json}", file=sys.stderr)
        sys.exit(130)
    if options.json:
        print(f"\nall of it, with the raw times: {options.json}")


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The settings on the command line."""
    parser = argparse.ArgumentParser("python -m tests.benchmarks", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("what", nargs="*", metavar="WHAT", help="one or more of the above")
    add("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES), metavar="SIZE",
        help="; ".join(f"{name}: {size}" for name, size in SIZES.items()) + " (default: both)")
    add("--modes", nargs="+", choices=MODES, default=list(MODES), metavar="MODE",
        help=f"of PyTorch's training step: {', '.join(MODES)} (default: all)")
    add("--rounds", type=whole, metavar="N", help="everything compared has a turn in each")
    add("--steps", type=whole, metavar="N", help="of a turn: steps, characters or calls")
    add("--gap", type=partial(above_0, or_equal=True), default=0.0, metavar="US",
        help="of kernels: microseconds of other work before each call, such as 50, 100 or 400 "
        "(default: %(default)g)")
    add("--threads", type=whole, default=available(), metavar="N",
        help="of every library (default: %(default)s, all that this process may use)")
    add("--quick", action="store_true", help="few rounds and steps, and a short growth")
    add("--json", type=pathlib.Path, metavar="FILE",
        help="where all is written (default: benchmarks.json; with --from, nowhere)")
    add = parser.add_argument_group("ranks").add_argument
    add("--ranks", type=whole, nargs="+", default=[2, 4], metavar="N",
        help="how many, each time (default: 2 4)")
    add("--latency", type=above_0, default=10.0, metavar="US",
        help="of the network to predict for, microseconds a message (default: %(default)s)")
    add("--bandwidth", type=above_0, default=3.0, metavar="GB/S",
        help="of the network to predict for, gigabytes a second (default: %(default)s)")
    add("--scaling", type=pathlib.Path, metavar="FILE", help="where the predictions are drawn")
    add = parser.add_argument_group("real").add_argument
    add("--out_dir", type=pathlib.Path, metavar="FOLDER", help="with the ckpt.npz of its model")
    add = parser.add_argument_group("board and ablation").add_argument
    add("--minutes", type=above_0, nargs="+", metavar="M",
        help="of training, one or more budgets (default: 1 3 10, of the ablation 1)")
    add("--seeds", type=whole, default=3, metavar="N", help="from 1 on (default: %(default)s)")
    add("--recipes", nargs="+", choices=RECIPES, default=list(RECIPES), metavar="RECIPE",
        help=f"of the board and of recipe: {', '.join(RECIPES)} (default: all)")
    add("--data", default="shakespeare", metavar="TEXT",
        help="name or path, as train.py takes it (default: %(default)s)")
    add("--no-pytorch", dest="pytorch", action="store_false", help="only minigrad")
    add("--plot", type=pathlib.Path, default="board.svg", metavar="FILE",
        help="where the board is drawn, if matplotlib is there (default: %(default)s)")
    add("--from", dest="earlier", type=pathlib.Path, metavar="FILE",
        help="train nothing; show again what is in a JSON file of before")
    add("--resume", action="store_true", help="go on with a board that was interrupted: take the "
        "runs that are not in its JSON file, and add them there")
    options = parser.parse_args(argv)
    if unknown := [what for what in options.what if what not in WHAT]:
        parser.error(f"there is no {unknown[0]} to measure; name one or more of {', '.join(WHAT)}")
    if options.earlier and options.resume:
        parser.error("--from trains nothing, and --resume trains on; give one of them")
    flag = "--from" if options.earlier else "--resume" if options.resume else None
    if flag and not set(options.what) & set(BY_THE_CLOCK):
        parser.error(f"{flag} is about the board or the ablation; name one of them")
    if others := set(options.what) - set(BY_THE_CLOCK) if flag else ():
        parser.error(f"{flag} measures nothing else; leave out {', '.join(sorted(others))}")
    if "real" in options.what and options.out_dir is None:
        parser.error("real measures the model of a folder; name it with --out_dir")
    if not (options.json or options.earlier):
        options.json = pathlib.Path("benchmarks.json")
    return options


def whole(text: str) -> int:
    """A number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number of at least 1 is needed, not {text}")
    return int(text)


def above_0(text: str, or_equal: bool = False) -> float:
    """A finite number above 0, or equal to it."""
    try:
        if 0 < float(text) < math.inf or or_equal and float(text) == 0:
            return float(text)
    except ValueError:
        pass
    least = "of at least" if or_equal else "above"
    raise argparse.ArgumentTypeError(f"a number {least} 0 is needed, not {text}")


def available() -> int:
    """Processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


if __name__ == "__main__":
    main()
