"""Kill runs, resume them, and compare with a run that was left alone:

    python -m tests.reliability writes              at each write, rename and fsync in turn
    python -m tests.reliability kills --count 50    at random moments of a real run
    python -m tests.reliability ranks --count 20    one of several ranks, at random moments

train for long, and watch the memory:

    python -m tests.reliability soak --seconds 3600

compute everything in processes that compile and in processes that load, and compare all bits:

    python -m tests.reliability bits --rounds 10 --cpu haswell

and give the program damaged files, and random input:

    python -m tests.reliability damage --count 100000
    python -m tests.reliability fuzz --target flags --count 1000000

Other flags of writes, kills, ranks and soak go to train.py, as --n_layer 2 would.
The status is 1 if anything is not as it should be.  `writes` needs os.fork, which Windows has not,
`soak` Linux's /proc, and `fuzz`, unless --plain, an extra:  pip install -e ".[fuzz]"
"""
import importlib
import os
import pathlib
import sys
import tempfile

from tests.flags import THREADS, add_flags, parser

COMMANDS = ("writes", "kills", "ranks", "soak", "bits", "damage", "fuzz")
TRAINING = ("writes", "kills", "ranks", "soak")     # which take flags of train.py


def main(argv=None):
    """The command."""
    # One thread, so that a process may be forked; the result does not depend on it.
    os.environ |= dict.fromkeys(THREADS, "1")
    options = parse(argv)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        sys.exit(0 if options.module.run(options, pathlib.Path(folder)) else 1)


def parse(argv):
    """Return the settings on the command line; the words for train.py are in `train`."""
    command = parser("tests.reliability", __doc__)
    commands = command.add_subparsers(required=True, metavar="WHAT")
    for name in COMMANDS:
        module = importlib.import_module(f"tests.reliability.{name}")
        one = commands.add_parser(name, help=module.__doc__.splitlines()[0])
        add_flags(one, module.FLAGS)
        one.set_defaults(module=module, name=name)
    options, options.train = command.parse_known_args(argv)
    if options.train and options.name not in TRAINING:
        command.error(f"there is no flag {options.train[0]}")
    return options


if __name__ == "__main__":
    main()
