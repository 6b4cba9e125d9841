"""Run a function on several threads at once, from inside a kernel.

A kernel is compiled once, for one thread and for many: it hands the address of a small function to
the workers.  With Numba's `prange` there would be two versions.
"""
from collections.abc import Callable

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from minigrad.kernels.compiler.lanes import address, part
from minigrad.kernels.compiler.linking import serial
from minigrad.kernels.compiler.workers import RUN, YIELD

LOOKS = 1000    # at what others have done, about a microsecond, before a thread lets others run

_byte = cgutils.voidptr_t
_i64 = ir.IntType(64)
_TASK = ir.FunctionType(ir.VoidType(), [_i64, _byte])            # task(part, data)
_RUN = ir.FunctionType(ir.VoidType(), [_TASK.as_pointer(), _byte, _i64])


@intrinsic
def on_threads(typingctx, threads, function, *arguments):
    """Call function(thread, threads, *arguments) for every thread, at the same time."""
    arguments = types.StarArgTuple.from_types(tuple(map(types.unliteral, arguments)))
    called = function.get_call_type(typingctx, (types.intp, types.intp, *arguments), {})

    def codegen(context, builder, signature, values):
        threads, _, packed = values
        packed = _without_owners(context, builder, arguments, packed)
        shared = cgutils.alloca_once_value(builder, cgutils.make_anonymous_struct(
            builder, [packed, threads, cgutils.false_bit]))
        task = _task(context, builder.module, function, called, shared.type)
        data = builder.bitcast(shared, _byte)
        builder.call(cgutils.get_or_insert_function(builder.module, _RUN, RUN),
                     [task, data, threads])
        failed = builder.load(cgutils.gep_inbounds(builder, shared, 0, 2))
        with cgutils.if_unlikely(builder, failed):
            context.call_conv.return_user_exc(builder, MemoryError, (
                f"{function.dispatcher.__name__} found no memory",))
        return context.get_dummy_value()

    return types.void(types.intp, function, arguments), codegen


def _without_owners(context, builder, kinds, packed):
    """Return the same arguments, with arrays that do not know what owns their memory: threads would
    wait for each other to count the views that they make of an array."""
    for i, kind in enumerate(kinds):
        value = builder.extract_value(packed, i)
        if isinstance(kind, types.BaseTuple):
            value = _without_owners(context, builder, kind, value)
        elif isinstance(kind, types.Array):
            array = context.make_array(kind)(context, builder, value)
            array.meminfo = cgutils.get_null_value(array.meminfo.type)
            array.parent = cgutils.get_null_value(array.parent.type)
            value = array._getvalue()
        packed = builder.insert_value(packed, value, i)
    return packed


def _task(context, module, function, signature, pointer):
    """Define a task that calls the function for a thread's number, and notes if that fails;
    `pointer` is the type of a pointer to (arguments, threads, failed)."""
    task = ir.Function(module, _TASK, module.get_unique_name("minigrad_task"))
    task.linkage = "internal"
    part, data = task.args
    builder = ir.IRBuilder(task.append_basic_block("entry"))
    packed, threads, failed = (
        cgutils.gep_inbounds(builder, builder.bitcast(data, pointer), 0, i) for i in range(3))
    threads = builder.load(threads)
    thread = builder.sub(builder.sub(threads, _i64(1)), part)       # 0 is the first to begin
    compiled = function.dispatcher.get_compile_result(signature)
    context.add_linking_libs([compiled.library])
    status, _ = context.call_internal_no_propagate(
        builder, compiled.fndesc, signature,
        [thread, threads, *cgutils.unpack_tuple(builder, builder.load(packed))])
    with cgutils.if_unlikely(builder, status.is_error):
        builder.store(cgutils.true_bit, failed)
    builder.ret_void()
    return task


def in_stages(run: Callable) -> Callable:
    """Return a function for `on_threads` that calls run(part, parts, stage, work) for each part of
    each stage, a stage after the other.

    Its arguments are int64 zeros, (stages, parts) and (stages,), which count the parts that a
    thread has begun, and those that are done; and `work`, mostly a named tuple.  A thread takes the
    parts of its own share, then any that no thread has begun.  At the end of a stage it waits for
    parts that others have begun.  So nobody waits for a thread that has not started, and one thread
    alone does everything.
    """
    @serial
    def run_stages(thread, threads, begun, done, work):
        parts = begun.shape[1]
        failed = False
        for stage in range(done.size):
            for i in range(parts):
                part = (thread * parts // threads + i) % parts
                at = stage * parts + part
                if counted(begun, at) == 0 and count_up(begun, at) == 0:
                    try:
                        run(part, parts, stage, work)
                    except Exception:
                        failed = True           # but go on, or others would wait for this part
                    count_up(done, stage)
            looks = 0
            while counted(done, stage) < parts:
                looks += 1
                if looks > LOOKS:
                    let_others_run()
        if failed:
            raise MemoryError
    return run_stages


@intrinsic
def count_up(typingctx, counters, at):
    """Add 1 to a counter that threads share; return what it was before.  Who sees the sum, sees
    whatever this thread has written."""
    def codegen(context, builder, signature, values):
        place = address(context, builder, signature, values, 0, values[1])
        return builder.atomic_rmw("add", place, _i64(1), "acq_rel")
    return types.int64(counters, types.intp), codegen


@intrinsic
def counted(typingctx, counters, at):
    """Return a counter that threads share."""
    def codegen(context, builder, signature, values):
        place = address(context, builder, signature, values, 0, values[1])
        return builder.load_atomic(place, "acquire", align=8)
    return types.int64(counters, types.intp), codegen


@intrinsic
def let_others_run(typingctx):
    """Give the processor to another thread, of any program, if one waits for it."""
    def codegen(context, builder, signature, values):
        builder.call(cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.IntType(32), []), YIELD), [])
        return context.get_dummy_value()
    return types.void(), codegen


@serial
def share(n, thread, threads):
    """Return a thread's share of the numbers below n."""
    return range(thread * n // threads, (thread + 1) * n // threads)


@serial
def portion(x, thread, threads):
    """Return a thread's share of a dense row, as an array of its own: loops over it start at 0.
    LLVM does not vectorise a loop whose start might be negative."""
    mine = share(x.size, thread, threads)
    return part(x, mine.start, len(mine))
