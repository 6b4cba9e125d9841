"""Threads that run parts of kernels.

To wake a thread that sleeps may take longer than a kernel.  So a worker goes on looking for work
for a while before it sleeps, which is longer than most kernels of a step are apart.  And the thread
that starts a kernel runs every part that no worker has begun, and waits only for those that one has
begun: neither for a worker that sleeps nor for one that another program keeps from running.

A worker never comes back to Python, whose lock it would take from the thread that starts kernels.
"""
import _thread
import ctypes
import os
import time

import llvmlite.binding as llvm

from minigrad.kernels.compiler.processor import pause, target_machine

LOOKS = 5_000       # for work, at least, before a worker sleeps; each takes 10 to 50 ns
PATIENCE = 1e-3     # seconds for which it looks, at least: Python is mostly back with work by then
SAMPLE = 1_000      # looks that are timed, to know how many take so long
SHORTEST, LONGEST = 100, 10_000     # microseconds that a worker then sleeps between looks
RUN = "minigrad_run"        # run(task, data, parts) calls task(part, data) for each part
YIELD = "minigrad_yield"    # lets another thread, of any program, use this processor
SLEEP = "minigrad_sleep"    # sleep(microseconds)

# All Python threads share the workers.  One kernel at a time has them; another runs alone.
#
# `left` counts the parts of a kernel that nobody has begun.  Who takes 1 off it, and finds that it
# was above 0, runs that part.  Only then does it read the kernel's task, which stays until all
# parts are done.
_CODE = """
@taken = global i64 0, align 128
@left = global i64 0, align 128
@done = global i64 0, align 128         ; parts, but for the one that is run first
@task = global ptr null, align 128
@data = global ptr null

declare i32 @minigrad_yield()
declare void @minigrad_sleep(i32)

; Run a part that nobody has begun; return whether there was one.
define internal i1 @take() {
    %now = load atomic i64, ptr @left acquire, align 8
    %any = icmp sgt i64 %now, 0
    br i1 %any, label %try, label %none
try:
    %before = atomicrmw sub ptr @left, i64 1 acq_rel
    %mine = icmp sgt i64 %before, 0
    br i1 %mine, label %run, label %none
run:
    %task = load ptr, ptr @task
    %data = load ptr, ptr @data
    %part = sub i64 %before, 1
    call void %task(i64 %part, ptr %data)
    atomicrmw add ptr @done, i64 1 acq_rel
    ret i1 true
none:
    ret i1 false
}

define void @minigrad_run(ptr %task, ptr %data, i64 %parts) {
entry:
    %others = sub i64 %parts, 1
    %taken = atomicrmw xchg ptr @taken, i64 1 acq_rel
    %free = icmp eq i64 %taken, 0
    br i1 %free, label %share, label %alone
alone:
    %part = phi i64 [%others, %entry], [%next, %alone]
    call void %task(i64 %part, ptr %data)
    %next = sub i64 %part, 1
    %again = icmp sge i64 %next, 0
    br i1 %again, label %alone, label %end
share:
    store ptr %task, ptr @task
    store ptr %data, ptr @data
    store atomic i64 0, ptr @done monotonic, align 8
    store atomic i64 %others, ptr @left release, align 8
    call void %task(i64 %others, ptr %data)
    br label %rest
rest:
    %another = call i1 @take()
    br i1 %another, label %rest, label %wait
wait:
    %looks = phi i64 [0, %rest], [%looked, %look], [LOOKS, %yield]
    %looked = add i64 %looks, 1
    %done = load atomic i64, ptr @done acquire, align 8
    %ready = icmp eq i64 %done, %others
    br i1 %ready, label %ended, label %look
look:
    PAUSE
    %patient = icmp slt i64 %looked, LOOKS
    br i1 %patient, label %wait, label %yield
yield:
    call i32 @minigrad_yield()
    br label %wait
ended:
    store atomic i64 0, ptr @taken release, align 8
    br label %end
end:
    ret void
}

; Run parts for ever.  If there are none for so many looks, sleep, and longer each time.
define void @minigrad_work(i64 %most) {
entry:
    br label %look
look:
    %looks = phi i64 [0, %entry], [0, %look], [%looked, %idle], [%most, %sleep]
    %nap = phi i32 [SHORTEST, %entry], [SHORTEST, %look], [%nap, %idle], [%longer, %sleep]
    %ran = call i1 @take()
    br i1 %ran, label %look, label %idle
idle:
    PAUSE
    %looked = add i64 %looks, 1
    %soon = icmp slt i64 %looked, %most
    br i1 %soon, label %look, label %sleep
sleep:
    %units = udiv i32 %nap, UNIT
    call void @minigrad_sleep(i32 %units)
    %twice = mul i32 %nap, 2
    %long = icmp ugt i32 %twice, LONGEST
    %longer = select i1 %long, i32 LONGEST, i32 %twice
    br label %look
}

; Take the time of so many looks.
define void @minigrad_pause(i64 %looks) {
entry:
    br label %look
look:
    %looked = phi i64 [0, %entry], [%another, %look]
    PAUSE
    %another = add i64 %looked, 1
    %more = icmp slt i64 %another, %looks
    br i1 %more, label %look, label %end
end:
    ret void
}
"""


def code() -> str:
    """Return what workers run, in LLVM's language."""
    declared, called = pause()
    code = declared + _CODE.replace("PAUSE", called)
    for name in ("LOOKS", "SHORTEST", "LONGEST", "UNIT"):
        code = code.replace(name, str(globals()[name]))
    return code


def compiled(code: str) -> llvm.ExecutionEngine:
    """Return what holds the machine code of a program in LLVM's language."""
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(code), target_machine())
    engine.finalize_object()
    return engine


def start(count: int) -> None:
    """Start workers until there are so many."""
    global started
    looks = looks_in(PATIENCE)
    while started < count:
        started += 1
        _thread.start_new_thread(_run_parts, (looks,))


def looks_in(seconds: float) -> int:
    """Return how many looks for work take so long on this processor, at least LOOKS."""
    shortest = seconds          # of a sample; others may take turns with this thread
    for _ in range(3):
        began = time.perf_counter()
        _pause(SAMPLE)
        shortest = min(shortest, time.perf_counter() - began)
    return max(LOOKS, int(SAMPLE * seconds / shortest))


def _forget():
    """In a forked child, which has no workers: let some be started."""
    global started
    started = 0
    for name in ("taken", "left"):
        ctypes.c_int64.from_address(_engine.get_global_value_address(name)).value = 0


started = 0     # workers
if os.name == "nt":
    _yield = ctypes.windll.kernel32.SwitchToThread
    _sleep = ctypes.windll.kernel32.Sleep
    UNIT = 1000     # microseconds of its unit
else:
    _yield = ctypes.CDLL(None).sched_yield
    _sleep = ctypes.CDLL(None).usleep
    UNIT = 1
for _name, _function in ((YIELD, _yield), (SLEEP, _sleep)):
    llvm.add_symbol(_name, ctypes.cast(_function, ctypes.c_void_p).value)
_engine = compiled(code())
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_engine))       # workers run it to the very end
llvm.add_symbol(RUN, _engine.get_function_address(RUN))
_run_parts = ctypes.CFUNCTYPE(None, ctypes.c_int64)(_engine.get_function_address("minigrad_work"))
# Of Python's kind, so that no other of its threads runs meanwhile.
_pause = ctypes.PYFUNCTYPE(None, ctypes.c_int64)(_engine.get_function_address("minigrad_pause"))
if hasattr(os, "register_at_fork"):     # Windows has no fork
    os.register_at_fork(after_in_child=_forget)
