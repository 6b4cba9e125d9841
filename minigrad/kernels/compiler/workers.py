"""Threads that run parts of kernels.

To wake a thread that sleeps may take longer than a kernel.  So a worker goes on looking for work
for a while before it sleeps, which is longer than most kernels of a step are apart.  And the thread
that starts a kernel runs every part that no worker has begun, and waits only for those that one has
begun: neither for a worker that sleeps nor for one that another program keeps from running.
"""
import ctypes
import functools
import os

import llvmlite.binding as llvm

from minigrad.kernels.compiler.processor import target_machine

LOOKS = 100_000     # for work, or at what others have done, before a thread sleeps
MOST = 1024         # threads
RUN = "minigrad_run"        # run(task, data, parts) calls task(part, data) for each part

# All Python threads share the workers.  One kernel at a time has them; another runs alone.
#
# A kernel's ticket is its number times 2^16, plus the number of its parts that nobody has begun.
# Who takes 1 off it runs that part.  What it has read of the kernel before then is still true,
# since the next kernel, whose ticket is another, is written when all parts are done.
#
# A thread says that it sleeps, looks again, and then waits for its lock, which is released by who
# takes back what it said.  Lock 0 is that of the thread that has started the kernel.
_CODE = """
@taken = global i64 0, align 128
@ticket = global i64 0, align 128
@done = global i64 0, align 128         ; parts, but for the one that is run first
@task = global ptr null, align 128
@data = global ptr null
@workers = global i64 0
@asleep = global [MOST x i64] zeroinitializer, align 128
@locks = global [MOST x ptr] zeroinitializer

declare i32 @minigrad_acquire(ptr, i32)
declare void @minigrad_release(ptr)

; Run a part that nobody has begun; return whether there was one.
define internal i1 @take() {
    br label %look
look:
    %before = load atomic i64, ptr @ticket acquire, align 8
    %left = and i64 %before, 65535
    %any = icmp ne i64 %left, 0
    br i1 %any, label %try, label %none
try:
    %task = load atomic ptr, ptr @task monotonic, align 8
    %data = load atomic ptr, ptr @data monotonic, align 8
    %after = sub i64 %before, 1
    %pair = cmpxchg ptr @ticket, i64 %before, i64 %after acq_rel acquire
    %mine = extractvalue {i64, i1} %pair, 1
    br i1 %mine, label %run, label %look
run:
    %part = sub i64 %left, 1
    call void %task(i64 %part, ptr %data)
    atomicrmw add ptr @done, i64 1 seq_cst
    call void @wake(i64 0)
    ret i1 true
none:
    ret i1 false
}

; Wake a thread that sleeps.
define internal void @wake(i64 %who) {
    %flag = getelementptr i64, ptr @asleep, i64 %who
    %sleeps = load atomic i64, ptr %flag seq_cst, align 8
    %call = icmp ne i64 %sleeps, 0
    br i1 %call, label %ring, label %end
ring:
    %slept = atomicrmw xchg ptr %flag, i64 0 seq_cst
    %still = icmp ne i64 %slept, 0
    br i1 %still, label %release, label %end
release:
    %place = getelementptr ptr, ptr @locks, i64 %who
    %lock = load ptr, ptr %place
    call void @minigrad_release(ptr %lock)
    br label %end
end:
    ret void
}

; Sleep until woken.  A thread wakes itself if a number, of which the mask takes some bits, is no
; longer as expected.
define internal void @sleep(i64 %who, ptr %place, i64 %mask, i64 %expected) {
    %flag = getelementptr i64, ptr @asleep, i64 %who
    atomicrmw xchg ptr %flag, i64 1 seq_cst
    %now = load atomic i64, ptr %place seq_cst, align 8
    %part = and i64 %now, %mask
    %stays = icmp eq i64 %part, %expected
    br i1 %stays, label %rest, label %rise
rise:
    call void @wake(i64 %who)
    br label %rest
rest:
    %lock.place = getelementptr ptr, ptr @locks, i64 %who
    %lock = load ptr, ptr %lock.place
    call i32 @minigrad_acquire(ptr %lock, i32 1)
    ret void
}

define void @minigrad_run(ptr %task, ptr %data, i64 %parts) {
entry:
    %others = sub i64 %parts, 1
    %was = atomicrmw xchg ptr @taken, i64 1 acq_rel
    %free = icmp eq i64 %was, 0
    br i1 %free, label %share, label %alone
alone:
    %part = phi i64 [0, %entry], [%next, %alone]
    call void %task(i64 %part, ptr %data)
    %next = add i64 %part, 1
    %again = icmp slt i64 %next, %parts
    br i1 %again, label %alone, label %end
share:
    store atomic ptr %task, ptr @task monotonic, align 8
    store atomic ptr %data, ptr @data monotonic, align 8
    store atomic i64 0, ptr @done monotonic, align 8
    %ticket = load atomic i64, ptr @ticket monotonic, align 8
    %number = or i64 %ticket, 65535
    %first = add i64 %number, 1
    %new = add i64 %first, %others
    %old = atomicrmw xchg ptr @ticket, i64 %new seq_cst
    %workers = load atomic i64, ptr @workers acquire, align 8
    %fewer = icmp slt i64 %workers, %others
    %count = select i1 %fewer, i64 %workers, i64 %others
    br label %wake
wake:
    %i = phi i64 [0, %share], [%i.next, %one]
    %more = icmp slt i64 %i, %count
    br i1 %more, label %one, label %own
one:
    %i.next = add i64 %i, 1
    call void @wake(i64 %i.next)
    br label %wake
own:
    call void %task(i64 %others, ptr %data)
    br label %rest
rest:
    %another = call i1 @take()
    br i1 %another, label %rest, label %wait
wait:
    %looks = phi i64 [0, %rest], [%looked, %waits], [%looked, %sleep]
    %looked = add i64 %looks, 1
    %done = load atomic i64, ptr @done acquire, align 8
    %ready = icmp eq i64 %done, %others
    br i1 %ready, label %ended, label %waits
waits:
    %patient = icmp slt i64 %looked, LOOKS
    br i1 %patient, label %wait, label %sleep
sleep:
    call void @sleep(i64 0, ptr @done, i64 -1, i64 %done)
    br label %wait
ended:
    store atomic i64 0, ptr @taken release, align 8
    br label %end
end:
    ret void
}

define void @minigrad_work(i64 %worker) {
entry:
    br label %look
look:
    %looks = phi i64 [0, %entry], [0, %look], [%looked, %idle], [0, %sleep]
    %ran = call i1 @take()
    br i1 %ran, label %look, label %idle
idle:
    %looked = add i64 %looks, 1
    %soon = icmp slt i64 %looked, LOOKS
    br i1 %soon, label %look, label %sleep
sleep:
    call void @sleep(i64 %worker, ptr @ticket, i64 65535, i64 0)
    br label %look
}
"""


@functools.cache
def start(count: int) -> None:
    """Start workers until there are so many."""
    while _workers.value < min(count, MOST - 1):
        _workers.value += 1
        _give_lock(_workers.value)
        _begin(_work, _workers.value)


def _give_lock(thread):
    """Give a thread a lock, for which it waits when it asks for it."""
    _locks[thread] = _lock()
    _acquire(_locks[thread], 1)


def _forget():
    """In a forked child, which has no workers: let some be started."""
    for name, kind in _STATE.items():
        ctypes.memset(_engine.get_global_value_address(name), 0, ctypes.sizeof(kind))
    _give_lock(0)
    start.cache_clear()


def _python(name, result, *arguments):
    """Return a function of Python's C API for which a thread need not hold the interpreter."""
    return ctypes.CFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_pointer = ctypes.c_void_p
_lock = _python("PyThread_allocate_lock", _pointer)
_acquire = _python("PyThread_acquire_lock", ctypes.c_int, _pointer, ctypes.c_int)
_release = _python("PyThread_release_lock", None, _pointer)
_begin = _python("PyThread_start_new_thread", ctypes.c_ulong, _pointer, _pointer)
for name, function in (("minigrad_acquire", _acquire), ("minigrad_release", _release)):
    llvm.add_symbol(name, ctypes.cast(function, _pointer).value)

_engine = llvm.create_mcjit_compiler(llvm.parse_assembly(
    _CODE.replace("MOST", str(MOST)).replace("LOOKS", str(LOOKS))), target_machine())
_engine.finalize_object()
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_engine))       # workers run it to the very end
llvm.add_symbol(RUN, _engine.get_function_address(RUN))
_work = _engine.get_function_address("minigrad_work")
_STATE = {"taken": ctypes.c_int64, "ticket": ctypes.c_int64, "workers": ctypes.c_int64,
          "asleep": ctypes.c_int64 * MOST, "locks": _pointer * MOST}
_workers, asleep, _locks = (
    _STATE[name].from_address(_engine.get_global_value_address(name))
    for name in ("workers", "asleep", "locks"))
_give_lock(0)
if hasattr(os, "register_at_fork"):     # Windows has no fork
    os.register_at_fork(after_in_child=_forget)
