"""Measure minigrad, beside PyTorch where that is installed:  python -m tests.benchmarks

    step        a training step, also beside JAX, where jax and optax are installed
    recipe      a training step of each of train.py's recipes, with its own optimiser
    sampling    characters a second, of one sequence and of 16 at once
    kernels     each kernel beside its formula in NumPy and PyTorch's op
    tiles       the innermost loops of products, for this and other processors
    ranks       steps of ranks, and how they would scale; needs an MPI
    real        tokens a second from the model of --out_dir, beside transformers and llama.cpp;
                and its start
    board       the loss that each recipe reaches by the clock, over seeds; takes hours
    ablation    the same of the modern recipe without each of its parts
    rule        the modern recipe on --texts, with and without the rule that adapts its dropout
    against COMMIT      this checkout beside another commit, in turns: steps, sampling, small calls,
                kernels, and how many functions an op calls

Without a name, the first five.  Tables go to standard output, and with the raw times to a
JSON file.  Ctrl-C ends with what was measured until then; --resume resumes a board or an ablation.
"""
import contextlib
import importlib
import os
import pathlib
import sys

from tests.benchmarks.sizes import MODES, RECIPES, SIZES
from tests.flags import THREADS, add_flags, parser, positive, whole

# The file with the function `measure_` of each.
WHAT = {"step": "steps", "recipe": "steps", "sampling": "steps", "kernels": "kernels",
        "tiles": "tiles", "ranks": "ranks", "real": "real", "board": "board", "ablation": "board",
        "rule": "rule", "against": "against"}
DEFAULT = [*WHAT][:5]
OF_A_SIZE = ("step", "sampling", "kernels")
BY_THE_CLOCK = {"board", "ablation"}
PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
FLAGS = {
    "sizes": (tuple(SIZES), list(SIZES), "; ".join(f"{k}: {v}" for k, v in SIZES.items())),
    "modes": (MODES, list(MODES), "of PyTorch's training step"),
    "rounds": (whole, None, "everything that is compared has a turn in each"),
    "steps": (whole, None, "of a turn: steps, characters or calls"),
    "threads": (whole, PROCESSORS, "of every library"),
    "quick": (bool, False, "few rounds and steps"),
    "json": (pathlib.Path, pathlib.Path("benchmarks.json"), "file for all results")}
GROUPS = {
    "ranks": {
        "latency": (positive, 10.0, "of the network to predict for, microseconds a message"),
        "bandwidth": (positive, 3.0, "of the network to predict for, gigabytes a second"),
        "scaling": (pathlib.Path, None, "file for a plot of the predictions")},
    "real": {"out_dir": (pathlib.Path, None, "folder with the ckpt.npz of its model")},
    "rule": {"texts": (str, [], "names or paths of texts, as for train.py")},
    "board, ablation and rule": {
        "minutes": (positive, [], "of training (default: 1 3 10; of the ablation 1)"),
        "characters": (positive, [], "to train on, in place of minutes, such as 1.03e6 3.2e6"),
        "seeds": (whole, 3, "how many, from 1 on"),
        "recipes": (RECIPES, list(RECIPES), "also of recipe"),
        "data": (str, "shakespeare", "name or path of a text, as for train.py"),
        "no-pytorch": (bool, False, "only minigrad"),
        "plot": (pathlib.Path, pathlib.Path("board.svg"), "file for a plot, by matplotlib"),
        "resume": (bool, False, "take the runs that are not in the JSON file of an interrupted "
                   "board, and add them there")}}


def main(argv=None):
    """The command."""
    options = parse(argv)
    os.environ.update(dict.fromkeys(THREADS, str(options.threads)))     # before these libraries
    # PyTorch first, as a program of its own would load it.  Whole steps run in a process without
    # minigrad.
    if "kernels" in options.what:
        with contextlib.suppress(ImportError):
            import torch        # noqa: F401
    from tests.benchmarks.report import Report, earlier
    try:
        report = Report(options.json, earlier(options))
        for what in options.what:
            file = importlib.import_module(f"tests.benchmarks.{WHAT[what]}")
            measure = getattr(file, f"measure_{what}")
            if what in OF_A_SIZE:
                for size in options.sizes:
                    measure(SIZES[size], options, report)
            else:
                measure(options, report)
    except KeyboardInterrupt:
        print(f"\nstopped; what was measured before is in {options.json}", file=sys.stderr)
        sys.exit(130)
    print(f"\nall of it, with the raw times: {options.json}")


def parse(argv):
    """Return the settings on the command line."""
    command = parser("tests.benchmarks", __doc__)
    command.add_argument("what", nargs="*", metavar="WHAT", help="one or more of the above")
    add_flags(command, FLAGS)
    for title, flags in GROUPS.items():
        add_flags(command.add_argument_group(title), flags)
    options = command.parse_args(argv)
    what = options.what = options.what or DEFAULT
    if "against" in what:
        if what[0] != "against" or len(what) != 2:
            command.error("against compares with one commit, and nothing else is measured then: "
                          "python -m tests.benchmarks against COMMIT")
        options.commit = what.pop()
    for unknown in [name for name in what if name not in WHAT]:
        command.error(f"there is no {unknown} to measure; name one or more of {', '.join(WHAT)}")
    if options.resume and (others := [name for name in what if name not in BY_THE_CLOCK]):
        command.error(f"--resume is about the board or the ablation; leave out {', '.join(others)}")
    if "real" in what and options.out_dir is None:
        command.error("real measures the model of a folder; name it with --out_dir")
    if "rule" in what and not options.texts:
        command.error("rule measures several texts; name them with --texts")
    return options


if __name__ == "__main__":
    main()
