"""What pytest does around tests: extras, their order, processes beside them, and fixtures."""
import contextlib
import gc
import os
import re
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from subprocess import CompletedProcess, Popen, TimeoutExpired      # before a test patches it
from tempfile import TemporaryFile

# Before NumPy is loaded: the products of tests are so small that BLAS takes longer on two threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numba    # noqa: E402
import pytest   # noqa: E402

import train    # noqa: E402
from model import answers   # noqa: E402
from minigrad.kernels.compiler import ahead, compiling   # noqa: E402
from tests.extras import lacking    # noqa: E402
from tests.kit import MEASURING, ROOT, TINY     # noqa: E402
from tests.plain import by_every_way    # noqa: E402, F401

WORDS = ("the quick brown fox jumps over the lazy dog and runs on through the green wood "
         "by the river").split()
LONGEST = 600       # seconds, after which a process is taken to hang
COMPILE = """
import itertools, model.counted.kernel
from minigrad.kernels.compiler import ahead
from minigrad.kernels.compiler.compiling import KERNELS
first = [*ahead.STEP, "muon", *ahead.SAMPLE, "mix"]     # of a run, which would compile them itself
names = first + sorted(KERNELS.keys() - set(first))
for dtype, name in itertools.product("fd", names):
    KERNELS[name].compile(dtype)
"""


def pytest_configure(config):
    config.addinivalue_line("markers", "meanwhile(*words, **environment): Python runs with these "
                            "words beside the tests before this one, which has its end as `ended`")
    config.addinivalue_line("markers", "needs(*extras): without these extras of setup.cfg the test "
                            "is skipped; those of a test replace those of its file")
    config.addinivalue_line("markers", "late: runs after others, as it needs kernels in float64 or "
                            "all kernels: another process compiles these, in float32 first")
    for extra in filter(None, os.environ.get("REQUIRE_EXTRAS", "").split(",")):
        if said := lacking(extra):
            raise pytest.UsageError(f"REQUIRE_EXTRAS: {said}")


def pytest_collection_modifyitems(items):
    """Skip tests without their extra.  Begin with tests that need no kernels, go on with those that
    need few; end with those of processes that run meanwhile."""
    def place(item):
        folder = item.path.relative_to(ROOT / "tests").parts[0]
        late = folder == "minigrad" or item.get_closest_marker("late") is not None
        return (item.get_closest_marker("meanwhile") is not None, folder == "benchmarks", late,
                folder == "minigrad", folder in ("model", "reliability"))
    items.sort(key=place)
    for item in items:
        needs = item.get_closest_marker("needs")
        if needs and (said := lacking(*needs.args)):
            item.add_marker(pytest.mark.skipif(True, reason=said))


def pytest_collection_finish():
    """Let the garbage collector pass over all that is there now, which stays to the end, and look
    a tenth as often at what has become old since: at kernels and reports of tests, above all."""
    gc.collect()
    gc.freeze()
    young, middle, old = gc.get_threshold()
    gc.set_threshold(young, middle, 10 * old)


class Beside:
    """Processes of Python that run beside the tests, one after another."""

    def __init__(self):
        self._pool = ThreadPoolExecutor(1)
        self._environment = os.environ | {"PYTHONUTF8": "1"}    # which tests change
        self._running = []

    def submit(self, words, **environment):
        """Run Python with these words when those before it have ended; return the future of its
        end."""
        return self._pool.submit(self._run, [sys.executable, *words],
                                 self._environment | environment)

    def _run(self, command, environment):
        """Run a command.  What it prints goes to files, so that this thread makes nothing of size
        while a test measures its memory."""
        with (TemporaryFile("w+", encoding="utf-8") as out,
              TemporaryFile("w+", encoding="utf-8") as err):
            with MEASURING:
                process = Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=err)
            self._running[:] = [process]
            try:
                process.wait(LONGEST)
            except TimeoutExpired:
                process.kill()
                process.wait()
                raise
            with MEASURING:
                out.seek(0)
                err.seek(0)
                printed = out.read(), err.read()
        return CompletedProcess(command, process.returncode, *printed)

    def end(self):
        """End the process that runs, and begin no other."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in [*self._running, *filter(None, ahead._started)]:  # None: patched by a test
            process.kill()
            process.wait()
            if process.stdin:
                process.stdin.close()


def pytest_sessionstart(session):
    """Compile the kernels that later tests need while tests are collected, and on."""
    session.beside = Beside()
    if not (session.config.option.collectonly or numba.config.DISABLE_JIT):
        session.beside.submit(["-c", COMPILE])


def pytest_sessionfinish(session):
    session.beside.end()
    gc.collect()
    gc.freeze()         # pytest itself collects five times at the end


@pytest.fixture(scope="session", autouse=True)
def meanwhile(request, small_text):
    """The futures of the ends of the processes that tests are marked with, by their marks.  In
    their words, SMALL_TEXT stands for that file, and FOLDER for its folder."""
    paths = {"SMALL_TEXT": str(small_text), "FOLDER": str(small_text.parent)}
    marks = [item.get_closest_marker("meanwhile") for item in request.session.items
             if not any(skip.args[0] for skip in item.iter_markers("skipif"))]

    def submit(words, *environment):
        return request.session.beside.submit([
            re.sub(r"^(SMALL_TEXT|FOLDER)\b", lambda name: paths[name[0]], word)
            for word in words], **dict(environment))
    with usual_signals():       # which a process inherits
        yield {key: submit(*key) for key in dict.fromkeys(key_of(mark) for mark in marks if mark)}


def key_of(mark):
    """What tells a process of a mark from others: its words, and its environment."""
    return mark.args, *mark.kwargs.items()


@pytest.fixture
def ended(request, meanwhile):
    """The process that a test is marked with, ended: its status, and what it has printed."""
    return meanwhile[key_of(request.node.get_closest_marker("meanwhile"))].result()


@contextlib.contextmanager
def usual_signals():
    """Handle signals as in a terminal.  A shell makes its background processes ignore Ctrl-C, and
    nohup a closed terminal; the runs that tests start would inherit that."""
    usual = {signal.SIGINT: signal.default_int_handler}
    if hasattr(signal, "SIGHUP"):
        usual[signal.SIGHUP] = signal.SIG_DFL
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def as_usual(monkeypatch):
    """Start each test with the usual signals, all threads, and no announcement of kernels, nor of
    what a slow machine takes long for."""
    monkeypatch.setattr(answers, "PATIENCE", LONGEST)
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
    with usual_signals():
        yield
    compiling.announce(None)


@pytest.fixture(scope="session")
def small_text(tmp_path_factory):
    """A file of 3,000 words in random order."""
    import numpy as np
    path = tmp_path_factory.mktemp("text") / "words.txt"
    drawn = np.random.default_rng(0).choice(WORDS, size=3000)
    path.write_text("\n".join(" ".join(drawn[i:i + 8]) for i in range(0, 3000, 8)),
                    encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def hostile_text():
    """Characters that have a meaning in HTML, JSON or a terminal."""
    return ("</script><!--<script>'\"&\\$`{{facts}}\u2028\u2029\u202e\0\x1b\x7f"
            "𝄞é\u0301\ud800\n\r\t ")


@pytest.fixture(scope="session")
def trained(tmp_path_factory, small_text):
    """The folder of a run of 40 steps."""
    out_dir = tmp_path_factory.mktemp("run") / "out"
    train.main(["--data", str(small_text), "--out_dir", str(out_dir), "--max_iters", "40", *TINY])
    return out_dir
