"""Kill runs, resume them, and compare with a run that was left alone:

    python -m tests.reliability writes              at each write, rename and fsync in turn
    python -m tests.reliability kills --count 50    at random moments of a real run
    python -m tests.reliability ranks --count 20    one of several ranks, at random moments

and train for long, watching its memory:

    python -m tests.reliability soak --seconds 3600

and compute everything in processes that compile and that load, and compare all bits:

    python -m tests.reliability bits --rounds 10 --cpu haswell

and save, load, resume and sample whatever settings are accepted:

    python -m tests.reliability saves --count 1000

and hand the program what is damaged, or was never meant for it:

    python -m tests.reliability damage --count 100000
    python -m tests.reliability fuzz --target flags --count 1000000

Other flags of writes, kills, ranks and soak go to train.py, as --n_layer 2 would.
All end with status 1 if anything is not as it should be.  `writes` needs os.fork, which Windows has
not, `soak` Linux's /proc, and `fuzz`, unless --plain, an extra:  pip install -e '.[fuzz]'
"""
import argparse
import os
import pathlib
import sys
import tempfile


def main(argv: list[str] | None = None) -> None:
    """The command."""
    # One thread, so that a process may be forked; the result does not depend on it.
    os.environ |= {"NUMBA_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    options = parse(argv)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        sys.exit(0 if options.run(options, pathlib.Path(folder)) else 1)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The settings on the command line; those of train.py, as `train`, in words."""
    from tests.reliability import bits, damage, fuzz, kills, ranks, saves, soak, writes
    parser = argparse.ArgumentParser("python -m tests.reliability", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="WHAT")
    for module in (writes, kills, ranks, soak, bits, saves, damage, fuzz):
        name = module.__name__.split(".")[-1]
        command = commands.add_parser(name, help=module.__doc__.splitlines()[0])
        module.add_flags(command)
        command.set_defaults(run=module.run)
    options, options.train = parser.parse_known_args(argv)
    if options.train and options.run in (bits.run, saves.run, damage.run, fuzz.run):
        parser.error(f"there is no flag {options.train[0]}")
    return options


if __name__ == "__main__":
    main()
