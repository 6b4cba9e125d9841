"""How many threads there are, and that neither a second Python thread nor a fork harms a result."""
import ctypes
import math
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numba
import numpy as np
import pytest

import minigrad as mg
from minigrad import compiled
from minigrad.kernels.compiler import compiling, threads
from model import Transformer, TransformerConfig
from model.reverse import __main__ as reverse
from model.run import adamw_groups
from model.settings import Settings
from tests.kit import compiled_only
from tests.minigrad.kernels.newly import Slow

on_threads = pytest.mark.skipif(threads.limit()[0] == 1, reason="there is but one thread")
by_fork = pytest.mark.skipif(sys.platform in ("win32", "darwin"),
                             reason="no fork, or none that is safe beside the system's threads")

# Products and rows that are large enough for threads, there and back.
COMPUTE = """
import os, sys, threading, zlib
import numpy as np
import minigrad as mg
from minigrad.kernels.compiler import threads, workers

def computed():
    rng = np.random.default_rng(1)
    x, w = (mg.Tensor(rng.normal(size=(256, 256)).astype(np.float32), requires_grad=True)
            for _ in range(2))
    for _ in range(20):
        (mg.softmax(x @ w) * x).sum().backward()
    return zlib.crc32(x.grad.tobytes() + w.grad.tobytes())
"""


def by(script, before=""):
    """Mark a test with a process of its own."""
    return pytest.mark.meanwhile("-c", before + COMPUTE + script)


@pytest.fixture
def said(ended):
    """What that process prints, line by line; one that hangs or is ended fails the test."""
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


# How many

@pytest.fixture
def large_machine(monkeypatch):
    """One of 16 processors, on which nothing else is a bound."""
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", 16)
    monkeypatch.setattr(threads, "quota", lambda: math.inf)
    monkeypatch.setattr(threads, "fast_processors", lambda allowed: 0)
    for name in threads.OPENMP:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


MACHINE = "this machine has 16 processors"
QUOTA = "a control group gives this process the time of %s processors"


@pytest.mark.parametrize("held_to, share, numbas, most, why", [
    (range(16), math.inf, 16, 16, MACHINE),
    (None, math.inf, 16, 16, MACHINE),                          # as on macOS and Windows
    ({3, 5}, math.inf, 16, 2, "this process may run on 2 processors only"),
    (range(16), 4.0, 16, 4, QUOTA % 4), (range(16), 1.5, 16, 2, QUOTA % 1.5),
    (range(16), 0.1, 16, 1, QUOTA % 0.1), (range(16), 20.0, 16, 16, MACHINE),
    (range(16), math.inf, 1, 1, "NUMBA_NUM_THREADS is 1"),
    (range(16), math.inf, 64, 16, MACHINE)])                    # no wish for more
def test_the_lowest_bound_counts_and_is_named(large_machine, held_to, share, numbas, most, why):
    large_machine.setattr(os, "sched_getaffinity", lambda pid: set(held_to), raising=False)
    if held_to is None:
        large_machine.delattr(os, "sched_getaffinity")
    large_machine.setattr(threads, "quota", lambda: share)
    large_machine.setattr(numba.config, "NUMBA_NUM_THREADS", numbas)
    assert threads.limit.__wrapped__() == (most, why)


def test_slow_processors_get_no_threads(large_machine):
    large_machine.setattr(threads, "fast_processors", lambda allowed: len(allowed) // 4)
    assert threads.limit.__wrapped__() == (4, "the number of fast processors here is 4")


@pytest.mark.parametrize("files, allowed, fast", [
    ({}, range(8), 0), ({"cpu_core/cpus": "0-3\n"}, range(8), 4),
    ({"cpu_core/cpus": "0-3,6\n"}, range(8), 5), ({"cpu_core/cpus": "5"}, range(8), 1),
    ({"cpu_core/cpus": "0-3\n"}, [2, 3, 4], 2), ({"cpu_core/cpus": "0-3\n"}, [4, 5], 0),
    ({"cpu_core/cpus": "\n"}, range(8), 0), ({"cpu_core/cpus": "some"}, range(8), 0),
    ([1024] * 4, range(4), 4), ([1024, 1024, 400, 400], range(4), 2),
    ([400, 400, 900, 1024], range(4), 2), ([400, 400, 1024], [0, 1], 2),    # slow ones alone
    ([1024, 512, 511], range(3), 2), ([1024, 400], range(3), 0)])           # one is not known
def test_fast_processors_are_those_that_linux_calls_so(tmp_path, monkeypatch, files, allowed, fast):
    monkeypatch.setattr(threads.sys, "platform", "linux")
    if isinstance(files, list):
        files = {f"system/cpu/cpu{n}/cpu_capacity": f"{speed}\n" for n, speed in enumerate(files)}
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(content)
    assert threads.fast_processors({*allowed}, tmp_path) == fast


@pytest.mark.parametrize("says", [4, None])
def test_fast_processors_are_those_of_the_first_level_on_apples(monkeypatch, says):
    def sysctlbyname(name, value, size, new, new_size):
        assert name == b"hw.perflevel0.physicalcpu" and size._obj.value == 4 and new is None
        if says is not None:
            value._obj.value = says
        return 0 if says else -1                # there is no such level on Intel's
    monkeypatch.setattr(threads.sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(sysctlbyname=sysctlbyname))
    assert threads.fast_processors(set(range(8))) == (says or 0)


@pytest.mark.parametrize("mask, found", [(0b1011, {0, 1, 3}), (0, set(range(16)))])
def test_may_run_on_asks_windows_for_the_mask_of_this_process(large_machine, mask, found):
    def ask(process, of_process, of_machine):
        of_process._obj.value = mask
    kernel32 = SimpleNamespace(GetCurrentProcess=lambda: -1, GetProcessAffinityMask=ask)
    large_machine.setattr(ctypes, "windll", SimpleNamespace(kernel32=kernel32), raising=False)
    large_machine.delattr(os, "sched_getaffinity", raising=False)
    large_machine.setattr(os, "name", "nt")
    said = threads.may_run_on()
    large_machine.undo()
    assert said == found


@pytest.mark.parametrize("steps, count, shares", [
    (0, 2, 1), (compiling.FEW - 1, 2, 1), (compiling.FEW, 2, 2), (4 * compiling.FEW - 1, 2, 2),
    (4 * compiling.FEW, 2, 4), (8 * compiling.FEW, 2, 8), (10**9, 2, 8), (10**9, 1, 1),
    (10**9, 6, 24)])
def test_threads_for_more_steps_are_more_up_to_a_few_parts_for_each(monkeypatch, steps, count,
                                                                    shares):
    monkeypatch.setattr(threads, "count", lambda: count)
    assert compiling.threads_for(steps) == shares
    assert compiling.threads_for(steps, 1) == (1 if steps < compiling.FEW else count)


@pytest.mark.parametrize("value, most", [("1", 1), (" 8 ", 8), ("4,2", 4), ("99", 16), ("", 16),
                                         ("0", 16), ("-1", 16), ("many", 16), ("1.5", 16)])
@pytest.mark.parametrize("name", threads.OPENMP)
def test_openmps_variables_are_obeyed_and_what_it_ignores_is_ignored(large_machine, name, value,
                                                                     most):
    large_machine.setenv(name, value)
    found, why = threads.limit.__wrapped__()
    assert found == most and (name in why) == (most < 16)


def test_a_python_thread_may_ask_for_fewer_threads_and_never_gets_more(monkeypatch):
    numbas = [8]                                                # as many as Numba would run
    monkeypatch.setattr(threads, "_numbas_count", lambda: lambda: numbas[-1])
    monkeypatch.setattr(threads, "limit", lambda: (3, ""))
    assert threads.count() == 3
    numbas[:] = [2]
    assert threads.count() == 2 and numbas == [2]


def test_count_is_what_this_python_thread_has_set_with_numba(monkeypatch):
    monkeypatch.setattr(threads, "limit", lambda: (numba.config.NUMBA_NUM_THREADS + 1, ""))
    try:
        for n in {1, numba.config.NUMBA_NUM_THREADS}:
            numba.set_num_threads(n)
            assert threads.count() == n
    finally:
        numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)


@pytest.mark.parametrize("settings", [Settings, reverse.Settings])
def test_too_many_threads_are_refused_with_the_reason(settings, monkeypatch):
    monkeypatch.setattr(compiled, "thread_limit", lambda: (2, "that is how it is"))
    assert settings(threads=2).problems() == []
    assert settings(threads=3).problems() == [
        "--threads is at most 2 here, not 3: that is how it is"]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes cannot be held here")
@on_threads
@by("""
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
computed()
print(threads.count(), workers.started, threads.limit()[1])
""")
def test_a_process_on_one_processor_starts_no_threads(said):
    assert said == ["1 0 this process may run on 1 processor only"]


# Linux's control groups

@pytest.mark.parametrize("groups, files, share", [
    ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
    ("0::/\n", {"cpu.max": "max 100000\n"}, math.inf),
    ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "50000 25000"}, 2),    # around it
    ("0::/a/b\n", {"a/b/cpu.max": "100000 100000", "a/cpu.max": "400000 100000"}, 1),
    ("0::/a\n", {"b/cpu.max": "100000 100000"}, math.inf),                          # not its own
    ("0::/out/side\n", {"cpu.max": "300000 100000"}, 3),                            # in a container
    ("0::/\n", {}, math.inf),
    ("0::/\n", {"cpu.max": "a lot\n"}, math.inf),
    ("0::/\n", {"cpu.max": "100000 0\n"}, math.inf),
    ("5:cpu,cpuacct:/a\n0::/\n", {"cpu,cpuacct/a/cpu.cfs_quota_us": "250000\n",
                                  "cpu,cpuacct/a/cpu.cfs_period_us": "100000\n"}, 2.5),
    ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, math.inf),
    ("3:cpuset:/\n", {"cpuset/cpu.cfs_quota_us": "1", "cpuset/cpu.cfs_period_us": "1"}, math.inf),
])
def test_the_quota_is_the_least_of_a_group_and_those_around_it(tmp_path, groups, files, share):
    for name, content in {"groups": groups, **files}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert threads.quota(tmp_path / "groups", tmp_path) == share
    assert threads.quota(tmp_path / "missing", tmp_path) == math.inf
    assert threads.quota(tmp_path, tmp_path) == math.inf        # it is there, and cannot be read


# Several Python threads

def weights_after_training(seed):
    """Of a run of some steps; every other one also looks at the loss without recording."""
    model = Transformer(TransformerConfig(30, 32, n_layer=1, n_head=2, n_embd=32, dropout=0.1),
                        seed=seed)
    optimizer = mg.AdamW(adamw_groups(model), lr=1e-2)
    rng = np.random.default_rng(seed)
    for step in range(12):
        ids = rng.integers(30, size=(8, 33))
        if step % 2:
            with mg.no_grad():
                model(ids[:, :-1])
        mg.cross_entropy(model(ids[:, :-1], rng=rng), ids[:, 1:]).backward()
        mg.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return np.concatenate([p.data.ravel() for p in model.parameters()])


def at_once(*functions):
    """What each returns, called in a Python thread of its own."""
    together = threading.Barrier(len(functions))

    def call(f):
        together.wait()
        return f()
    with ThreadPoolExecutor(len(functions)) as pool:
        return list(pool.map(call, functions))


def test_two_models_trained_at_once_become_what_each_becomes_alone():
    alone = [weights_after_training(seed) for seed in (1, 2)]
    together = at_once(lambda: weights_after_training(1), lambda: weights_after_training(2))
    assert np.array_equal(alone, together) and not np.array_equal(*alone)


@compiled_only
def test_python_threads_that_need_a_kernel_wait_for_one_compilation(monkeypatch):
    monkeypatch.setattr(compiling, "_njit", Slow)
    monkeypatch.setattr(Slow, "made", 0)

    @compiling.kernel
    def needed(x: compiling.C1):
        pass
    at_once(*[lambda: needed(np.ones(1))] * 3)
    assert Slow.made == 1


# Forks

FORK = """
def in_child(f):
    sys.stdout.flush()
    if pid := os.fork():
        assert os.waitpid(pid, 0)[1] == 0
    else:
        print(*f(), flush=True)
        os._exit(0)
"""


@by_fork
@on_threads
@compiled_only
@by(FORK + """
print(computed(), workers.started)
in_child(lambda: [computed(), workers.started])
in_child(lambda: in_child(lambda: [computed(), workers.started]) or ["and its parent"])
print(computed(), workers.started)
""")
def test_a_child_forked_after_kernels_ran_computes_the_same_on_workers_of_its_own(said):
    parent, child, grandchild, _, again = said
    assert parent == child == grandchild == again
    assert parent.split()[1] == str(threads.limit()[0] - 1)


@by_fork
@compiled_only
@by(FORK + """
import signal
from minigrad.kernels.compiler import compiling
from tests.minigrad.kernels.newly import Slow
begun = threading.Event()

def slow(*arguments):
    begun.set()
    return Slow()

compiling._njit = slow

def none(x: compiling.C1):
    pass

one, two = compiling.kernel(none), compiling.kernel(none)
other = threading.Thread(target=one, args=(np.ones(1),))
other.start()
begun.wait()
signal.alarm(10)        # ends a child that waits for ever
in_child(lambda: [signal.alarm(10), two(np.ones(1))])
other.join()
""")
def test_a_child_forked_while_another_thread_compiles_can_compile(said):
    assert said == ["0 None"]
