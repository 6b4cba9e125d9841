"""What several test files share: a small text and a run on it."""
import contextlib
import os
import re
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from subprocess import PIPE, CompletedProcess, Popen, TimeoutExpired    # whatever a test patches

# Before NumPy is loaded: the products of tests are so small that BLAS takes longer on two threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numba    # noqa: E402
import pytest   # noqa: E402

import train    # noqa: E402
from minigrad.kernels.compiler import compiling    # noqa: E402
from tests.extras import lacking    # noqa: E402
from tests.kit import ROOT, TINY    # noqa: E402

WORDS = ("the quick brown fox jumps over the lazy dog and runs on through the green wood "
         "by the river").split()
# The order of the first tests: they need no kernels, and then some in float32 only, while another
# process compiles all.
FIRST = (
    "data/", "minigrad/kernels/test_lanes.py", "minigrad/kernels/test_loops.py",
    "minigrad/kernels/test_processor.py", "minigrad/test_machine.py", "minigrad/watch/test_svg.py",
    "model/test_command.py", "model/convert/test_gguf.py", "model/convert/test_torch_file.py",
    "model/look/test_maps.py", "model/ranks/test_launch.py", "model/test_files.py",
    "model/test_convert.py", "model/test_settings.py",
    "test_house.py", "minigrad/kernels/test_tiles.py", "model/convert/",
    "model/look/test_crossed.py", "model/look/test_page_in_browser.py",
    "model/test_checkpoint.py",
    "model/test_reverse.py", "model/walk/test_reversing.py", "model/ranks/test_mpi.py",
    "model/look/", "model/test_sample.py", "model/test_count.py", "model/training/",
    "model/test_report.py", "model/test_causality.py", "model/test_markov.py", "model/test_run.py",
    "test_train.py")
LONGEST = 600       # seconds, after which a process is one that hangs
COMPILE = """
import itertools, minigrad
from minigrad.kernels.compiler.compiling import KERNELS
first = ["matmul", "attention", "norm", "softmax"]      # of what tests come to need
names = first + sorted(KERNELS.keys() - set(first))
for dtype, name in itertools.product("fd", names):
    KERNELS[name].compile(dtype)
"""


def pytest_configure(config):
    config.addinivalue_line("markers", "meanwhile(*words): Python is run with these words beside "
                            "the tests before this one, which asks for how it `ended`")
    config.addinivalue_line("markers", "needs(*extras): extras of setup.cfg without which the test "
                            "is skipped; those of a test stand in place of its file's")
    for extra in filter(None, os.environ.get("REQUIRE_EXTRAS", "").split(",")):
        if said := lacking(extra):
            raise pytest.UsageError(f"REQUIRE_EXTRAS: {said}")


def pytest_collection_modifyitems(items):
    """Skip what needs an extra that is not there.  Let no test wait for kernels that are compiled
    beside it, if others need none of them; end with tests about processes that run meanwhile."""
    def place(item):
        path = item.path.relative_to(ROOT / "tests").as_posix()
        first = [i for i, beginning in enumerate(FIRST) if path.startswith(beginning)]
        return (item.get_closest_marker("meanwhile") is not None, path.startswith("benchmarks/"),
                min(first, default=len(FIRST)))
    items.sort(key=place)
    for item in items:
        needs = item.get_closest_marker("needs")
        if needs and (said := lacking(*needs.args)):
            item.add_marker(pytest.mark.skipif(True, reason=said))


@pytest.fixture(scope="session", autouse=True)
def meanwhile(request, small_text):
    """Have another process compile what later tests need and is not on disk; and then run, one
    after another, the processes that tests are marked with.  SMALL_TEXT stands for that file, and
    FOLDER for the one that it is in."""
    running, environment = [], dict(os.environ)     # which tests change
    paths = {"SMALL_TEXT": str(small_text), "FOLDER": str(small_text.parent)}

    def run(words):
        command = [sys.executable, *(re.sub(r"^(SMALL_TEXT|FOLDER)\b", lambda name: paths[name[0]],
                                            word) for word in words)]
        with Popen(command, cwd=ROOT, env=environment, stdout=PIPE, stderr=PIPE, text=True,
                   encoding="utf-8") as process:
            running[:] = [process]
            try:
                out, err = process.communicate(timeout=LONGEST)
            except TimeoutExpired:
                process.kill()
                raise
        return CompletedProcess(command, process.returncode, out, err)
    marks = [item.get_closest_marker("meanwhile") for item in request.session.items
             if not any(skip.args[0] for skip in item.iter_markers("skipif"))]
    pool = ThreadPoolExecutor(1)
    with usual_signals():       # which a process inherits
        if not numba.config.DISABLE_JIT:
            pool.submit(run, ["-c", COMPILE])
        yield {words: pool.submit(run, words)
               for words in dict.fromkeys(mark.args for mark in marks if mark)}
        pool.shutdown(wait=False, cancel_futures=True)
        for process in running:
            process.kill()


@pytest.fixture
def ended(request, meanwhile):
    """The end of the process that a test is marked with: its status, and what it has printed."""
    return meanwhile[request.node.get_closest_marker("meanwhile").args].result()


@contextlib.contextmanager
def usual_signals():
    """As where a terminal starts the tests: a shell has what it starts in the background ignore
    Ctrl-C, and nohup a closed terminal, and runs that are begun by tests would inherit that."""
    usual = {signal.SIGINT: signal.default_int_handler}
    if hasattr(signal, "SIGHUP"):
        usual[signal.SIGHUP] = signal.SIG_DFL
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def signals_as_usual():
    """For each test, whatever the ones before it did."""
    with usual_signals():
        yield


@pytest.fixture(autouse=True)
def kernels_as_usual():
    """As many threads for each test, whatever the ones before it asked for; and none is told that
    kernels are compiled because an earlier one wanted to know."""
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
    yield
    compiling.announce(None)


@pytest.fixture(scope="session")
def small_text(tmp_path_factory):
    """A file of 3,000 words in an order that no n-gram knows."""
    import numpy as np
    path = tmp_path_factory.mktemp("text") / "words.txt"
    drawn = np.random.default_rng(0).choice(WORDS, size=3000)
    path.write_text("\n".join(" ".join(drawn[i:i + 8]) for i in range(0, 3000, 8)),
                    encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def hostile_text():
    """Characters that HTML, JSON or a screen might take for something else."""
    return ("</script><!--<script>'\"&\\$`{{facts}}\u2028\u2029\u202e\0\x1b\x7f"
            "𝄞é\u0301\ud800\n\r\t ")


@pytest.fixture(scope="session")
def trained(tmp_path_factory, small_text):
    """The folder of a run of 40 steps."""
    out_dir = tmp_path_factory.mktemp("run") / "out"
    train.main(["--data", str(small_text), "--out_dir", str(out_dir), "--max_iters", "40", *TINY])
    return out_dir
