"""Functions that a kernel runs on several threads at once."""
import ctypes
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import llvmlite.binding as llvm
import numpy as np
import pytest

from minigrad.kernels.compiler import compiling, parallel, processor, threads, workers
from minigrad.kernels.compiler.compiling import C1, C2, I1, I2
from minigrad.kernels.compiler.linking import allocating, serial
from minigrad.kernels.compiler.parallel import count_up, in_stages, on_threads, share
from tests.kit import both_types, compiled_only

pytestmark = compiled_only
on_many = pytest.mark.skipif(threads.limit()[0] == 1, reason="there is but one thread")


@compiling.kernel
def note_kernel(thread, threads, x: C1, noted: C2, factor: float, negative: bool):
    for i in share(x.size, thread, threads):
        noted[0, i] += thread + 1
        noted[1, i] += factor * (-x[i] if negative else x[i])


@compiling.kernel
def note_order_kernel(thread, threads, order: C1, begun: I1):
    order[thread] = count_up(begun, 0)


@compiling.kernel
@allocating
def need_memory_kernel(thread, threads, x: C1):
    if thread == threads - 1:
        x[0] = np.empty(1 << 60, x.dtype)[0]


@serial
def add_up(part, parts, stage, x):
    x[stage + 1, part] = (x[stage].sum() + part) % 1000


add_up_in_stages = in_stages(add_up)


@compiling.kernel
def one_of_many_kernel(x: C2, begun: I2, done: I1, thread: int, many: int):
    add_up_in_stages(thread, many, begun, done, x)


@in_stages
@allocating
def need_memory_in_stages(part, parts, stage, x):
    if stage == part == 1:
        x[0] = np.empty(1 << 60, x.dtype)[0]


@compiling.kernel
def need_memory_once_kernel(x: C1, begun: I2, done: I1, threads: int):
    on_threads(threads, need_memory_in_stages, begun, done, x)


@both_types
@pytest.mark.parametrize("size", [0, 1, 2, 7, 1000])
def test_every_number_is_in_the_share_of_one_thread(size, dtype):
    x = np.arange(size, dtype=dtype)
    most = threads.count()
    for n in {1, most, most + 7}:       # some of these without a worker
        noted = np.zeros((2, size), dtype)
        note_kernel(x, noted, 0.5, True, n)
        assert np.array_equal(noted[0], np.sort(noted[0])) and np.array_equal(noted[1], -x / 2)
        assert size < n or set(noted[0]) == set(range(1, n + 1))


def test_a_worker_that_finds_nothing_sleeps_ever_longer_until_it_has_run_a_part():
    slept = []
    ended = threading.Event()

    @ctypes.CFUNCTYPE(None, ctypes.c_uint32)
    def sleep(units):
        slept.append(units * workers.UNIT)
        if len(slept) == 10:
            left.value = 1
        if len(slept) == 12:
            ended.set()
            threading.Event().wait()    # for ever
    llvm.add_symbol("test_sleep", ctypes.cast(sleep, ctypes.c_void_p).value)
    engine = workers.compiled(workers.code().replace(workers.SLEEP, "test_sleep"))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine))
    ran = []
    task = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(
        lambda part, data: ran.append(part))
    left, shared = [ctypes.c_int64.from_address(engine.get_global_value_address(name))
                    for name in ("left", "task")]
    shared.value = ctypes.cast(task, ctypes.c_void_p).value
    work = ctypes.CFUNCTYPE(None, ctypes.c_int64)(engine.get_function_address("minigrad_work"))
    threading.Thread(target=work, args=(100,), daemon=True).start()
    assert ended.wait(60)
    assert ran == [0]
    doubled = [min(100 * 2 ** n, 10_000) for n in range(10)]
    assert slept == [*doubled, 100, 200]


@on_many
def test_kernels_that_several_python_threads_start_at_once_run_every_part_once():
    def repeat(seed):
        x = np.random.default_rng(seed).standard_normal(1000)
        for _ in range(300):
            noted = np.zeros((2, x.size))
            note_kernel(x, noted, 1.0, False, 5)
            assert np.array_equal(noted[1], x)
        return True
    note_kernel(np.ones(3), np.zeros((2, 3)), 1.0, False, 1)
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(repeat, range(4)))


@pytest.mark.parametrize("several", [False, pytest.param(True, marks=on_many)])
def test_what_fails_on_a_thread_fails_the_kernel(several):
    with pytest.raises(MemoryError):
        need_memory_kernel(np.zeros(3), threads.count() if several else 1)


def test_other_parts_and_stages_follow_one_that_fails():
    """Threads would wait for ever for a part that is not done."""
    done = np.zeros(4, np.int64)
    with pytest.raises(MemoryError):
        need_memory_once_kernel(np.zeros(3), np.zeros((4, 3), np.int64), done, 1)
    assert (done == 3).all()


@pytest.mark.parametrize("many, head_start", [(1, 0), (2, 0), (9, 0), (9, 1e-4), (9, 60)])
def test_stages_follow_each_other_and_nobody_waits_for_who_has_not_begun(many, head_start):
    """On fewer processors than threads, too, and if each begins when the one before has ended."""
    compiling.KERNELS["one_of_many"].compile("float64")
    stages = 3000
    parts = 1 if many == 1 else 5
    x = np.zeros((stages + 1, parts))
    counters = np.zeros((stages, parts), np.int64), np.zeros(stages, np.int64)
    workers = [threading.Thread(target=one_of_many_kernel, args=(x, *counters, n, many),
                                daemon=True) for n in range(many)]
    for worker in workers:
        worker.start()
        worker.join(head_start)
        assert head_start < 60 or not worker.is_alive()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive()
    assert (counters[1] == parts).all()
    for before, after in zip(x, x[1:]):
        assert np.array_equal(after, (before.sum() + np.arange(parts)) % 1000)


@pytest.mark.parametrize("parts, lost", [(1, {(0, 0), (1, 0)}), (3, {(0, 1), (1, 0), (1, 2)}),
                                         (3, set())])
def test_a_thread_leaves_a_part_that_another_takes_as_it_looks(monkeypatch, parts, lost):
    """In Python, where the other thread comes at the worst moment: after the look, before the
    count."""
    ran = []
    begun = np.zeros((2, parts), np.int64)
    done = np.zeros(2, np.int64)

    def take(counters, at):
        counters.flat[at] += 1
        return counters.flat[at] - 1

    def look(counters, at):
        seen, (stage, part) = counters.flat[at], divmod(at, parts)
        if counters is begun and (stage, part) in lost:
            take(begun, at)
            ran.append((stage, part, "other"))
            take(done, stage)
        return seen
    monkeypatch.setattr(parallel, "counted", look)
    monkeypatch.setattr(parallel, "count_up", take)
    stages = in_stages(lambda part, parts, stage, work: ran.append((stage, part, work)))
    stages.py_func(0, 1, begun, done, "this")
    assert ran == [(stage, part, "other" if (stage, part) in lost else "this")
                   for stage in (0, 1) for part in range(parts)]
    assert (done == parts).all()


STOLEN = """
    atomicrmw sub ptr @left, i64 1 acq_rel
    atomicrmw add ptr @done, i64 1 acq_rel
"""
SHARED = "\n    store atomic i64 %others, ptr @left release, align 8\n"


def parts_run(moment, parts):
    """The parts that the first thread runs if another takes and ends one at each such moment."""
    code = workers.code()
    assert code.count(moment) == 1
    engine = workers.compiled(code.replace(moment, moment.rstrip("\n") + STOLEN))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine))    # a thread that fails runs on in it
    ran = []
    kinds = (None, ctypes.c_int64, ctypes.c_void_p)
    task = ctypes.CFUNCTYPE(*kinds)(lambda part, data: ran.append(part))
    run = ctypes.CFUNCTYPE(None, type(task), ctypes.c_void_p, ctypes.c_int64)(
        engine.get_function_address(workers.RUN))
    for _ in range(2):              # the first leaves the workers free for the second
        ran.clear()
        leader = threading.Thread(target=run, args=(task, None, parts), daemon=True)
        leader.start()
        leader.join(10)             # for ever, if a part were run twice or not counted
        assert not leader.is_alive()
    return ran


@pytest.mark.parametrize("parts, ours", [(1, [0]), (2, [1]), (3, [2, 0]), (5, [4, 2, 0]),
                                         (6, [5, 3, 1])])
def test_run_leaves_a_part_that_another_takes_as_it_looks(parts, ours):
    """The other thread takes a part at the worst moment: each time between the look and the
    count."""
    assert parts_run("\ntry:\n", parts) == ours


@pytest.mark.parametrize("parts, ours", [(2, [1]), (3, [2, 0]), (5, [4, 2, 1, 0])])
def test_run_counts_a_part_that_another_ends_as_soon_as_it_is_shared(parts, ours):
    assert parts_run(SHARED, parts) == ours


def test_threads_begin_in_their_order_where_no_worker_is_free():
    order = np.empty(5)
    begun = np.zeros(1, np.int64)
    note_order_kernel(order, begun, 5)              # nobody knows who is first
    assert sorted(order) == [0, 1, 2, 3, 4]
    taken = ctypes.c_int64.from_address(workers._engine.get_global_value_address("taken"))
    taken.value = 1
    try:
        note_order_kernel(order, begun, 5)
    finally:
        taken.value = 0
    assert list(order) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("of_a_look, looks", [(10e-9, 20_000), (20e-9, 10_000), (50e-9, 5_000),
                                              (1e-6, 5_000)])
def test_looks_in_takes_as_many_looks_as_fill_the_time(monkeypatch, of_a_look, looks):
    """The second of three samples is undisturbed; on a slow processor there are LOOKS."""
    now = [0.0]
    late = iter([1e-3, 0, 5e-4])

    def pause(count):
        now[0] += count * of_a_look + next(late)
    monkeypatch.setattr(workers, "_pause", pause)
    monkeypatch.setattr(workers.time, "perf_counter", lambda: now[0])
    assert workers.looks_in(200e-6) == pytest.approx(looks, rel=1e-3)


@pytest.mark.parametrize("triple, words", [
    ("x86_64-unknown-linux-gnu", "pause"), ("x86_64-pc-windows-msvc-elf", "pause"),
    ("aarch64-unknown-linux-gnu", "isb"), ("arm64-apple-macosx14", "isb"),
    ("riscv64-unknown-linux-gnu", None)])
def test_all_loops_that_look_for_work_pause(monkeypatch, triple, words):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    monkeypatch.setattr(processor.llvm, "get_default_triple", lambda: triple)
    machine = llvm.Target.from_triple(triple).create_target_machine(opt=3)
    code = machine.emit_assembly(llvm.parse_assembly(workers.code()))
    assert words is None or len(re.findall(rf"^\s+{words}\b", code, re.M)) == 3
