"""How a program of this project starts.

This module is loaded before NumPy and Numba, which take a while, and itself needs only the standard
library.  When a program loads it, Ctrl-C ends that quietly from then on, and modules in the current
folder cannot hide the project's packages.  An older Python can read this module, too, to be told
that it is too old.
"""
import importlib.util
import os
import platform
import shlex
import signal
import sys
import time

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), ".."))
OLDEST = 3, 11      # of Python; setup.cfg says the same
NEEDED = "numpy", "tqdm"
OURS = "data", "minigrad", "model"
# Variables by which launchers give a rank its number and how many there are: MPICH and most others;
# Open MPI; SLURM with PMIx, which itself gives no size.
LAUNCHERS = (("PMI_RANK", "PMI_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
             ("PMIX_RANK", "SLURM_STEP_NUM_TASKS"))


def typed_program() -> str:
    """Return the word that names the program on the command line of Python: a file, or a module
    after -m; where another program runs it, as IPython's %run does, the path that it says."""
    words = sys.orig_argv[-len(sys.argv):]
    return words[0] if words[1:] == sys.argv[1:] else sys.argv[0]


def is_program() -> bool:
    """Return whether Python runs train.py or a module of this package, such as model.sample."""
    program = sys.argv[0] if sys.argv else ""
    if program == "-m":         # Python has not found the module yet
        return typed_program().removeprefix("-m").startswith("model.")
    return os.path.realpath(program) == os.path.join(ROOT, "train.py")


def launcher_rank() -> "tuple[int, int | None] | None":
    """Return the number of this rank and how many there are (None if unknown); None if no launcher
    has started this process."""
    for number, size in LAUNCHERS:
        if os.environ.get(number, "").isdecimal():
            return int(os.environ[number]), int(os.environ[size]) if size in os.environ else None
    return None


def end_all_ranks(number: int, message: str) -> None:
    """End this rank, which cannot join the others, with a message; if none can, the first says it.

    The others would wait for it.  A launcher ends them if a signal has ended one: for MPICH's, an
    exit status is not enough.
    """
    time.sleep(min(number, 1))      # until the first one, if it cannot join either, has ended all
    who = f"rank {number} on {platform.node()}: " if number else ""
    print(who + message, file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    os._exit(1)         # somebody has had the signal ignored


def find_hiding_file() -> str:
    """Return an error message if other files hide this project's packages; "" if none does."""
    for name in ("data", "minigrad"):
        spec = importlib.util.find_spec(name)
        origin = spec and (spec.origin or list(spec.submodule_search_locations)[0])
        if origin and os.path.realpath(origin) != os.path.join(ROOT, name, "__init__.py"):
            return (f"{origin} hides this project's package {name}; rename it, or take its folder "
                    "out of PYTHONPATH")
    return ""


def find_missing_library() -> str:
    """Return an error message if this Python cannot load what every program needs; "" if it can.

    Raises
    ------
    ValueError : an environment variable is wrong.
    """
    try:
        import minigrad     # noqa: F401
        missing = [name for name in NEEDED if not importlib.util.find_spec(name)]
        problem = f"{missing[0]} is not installed for" if missing else ""
    except ImportError as error:
        name = (error.name or "").split(".")[0]
        if name in OURS:        # a mistake of the program itself
            raise
        problem = f"{name} is not installed for"
        if name not in NEEDED or importlib.util.find_spec(name):
            problem = f"a library cannot be loaded ({error.__cause__ or error}) by"
    if not problem:
        return ""
    python = "python" if os.name == "nt" else shlex.quote(sys.orig_argv[0])
    here = os.path.realpath(os.curdir) == ROOT
    return (f"{problem} this Python ({sys.executable}); activate the environment in which minigrad "
            f"is installed (docs/install.md), or type: {python} -m pip install -e "
            + (os.curdir if here else shlex.quote(ROOT)))


def _start():
    """Prepare a program; report what would keep the packages from being loaded."""
    program = is_program()
    if program:
        _prepare_output()
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:   # it is not ignored
            signal.signal(signal.SIGINT, quit_at_once)
        # With -m, Python looks for modules in the current folder first, unless -P is given.
        if not sys.flags.safe_path and os.path.realpath(sys.path[0]) != ROOT:
            del sys.path[0]
    problem = find_hiding_file()
    if not program:
        if problem:
            raise ImportError(problem)
        import minigrad     # noqa: F401  which refuses wrong environment variables
        return
    try:
        problem = problem or find_missing_library()
    except ValueError as error:
        problem = str(error)
    if problem:
        rank = launcher_rank()
        if rank and rank[1] != 1 and sys.argv[0] != "-m":
            end_all_ranks(rank[0], " ".join(problem.split()))
        raise SystemExit(" ".join(problem.split()))


def quit_at_once(*_):
    os._exit(130)       # an import might catch or print an exception


def _prepare_output():
    """Let programs print if the terminal lacks a character, or if an output is closed.  A file or a
    pipe gets UTF-8, which `read_text` reads; Windows has another encoding for them."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))
        stream = getattr(sys, name)
        if not hasattr(stream, "reconfigure"):      # that of a notebook
            continue
        if name == "stdout":
            stream.reconfigure(errors="replace")
        if not stream.isatty():
            stream.reconfigure(encoding="utf-8", errors=stream.errors)


if sys.version_info < OLDEST:
    raise SystemExit(f"minigrad needs Python 3.{OLDEST[1]} or newer, and this is "
                     f"{sys.version_info[0]}.{sys.version_info[1]} ({sys.executable}); start it "
                     "with a newer one (docs/install.md)")
_start()
