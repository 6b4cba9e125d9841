"""Compile each kernel once per float type, on first use, and keep it on disk (kernel cache).

Numba compiles a function again for every layout that it gets (C, Fortran, strided, read-only).  A
kernel names the layout of each argument.  That limits it to one version per float type, which keeps
a new user's wait short.
"""
import contextlib
import inspect
import math
import os
import pathlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial, wraps
from typing import TextIO

import numba
import numpy as np
from numba import types
from numba.core.dispatcher import Dispatcher

from minigrad.kernels.compiler import cache, threads
from minigrad.kernels.compiler.cache import cache_folder
from minigrad.kernels.compiler.linking import by_pointers, inlined
from minigrad.kernels.compiler.parallel import on_threads
from minigrad.kernels.compiler.tiles import define_tiles
from minigrad.plug import CannotCompile

FLOATS = {np.dtype(np.float32): types.float32, np.dtype(np.float64): types.float64}
FEW = 1 << 14       # elementary steps (one exp, 16 multiplications) not worth waking threads for
PARTS = 4           # for each thread, of a kernel that has so much to do: a slow core takes fewer

KERNELS = {}        # name -> kernel
MAY_COMPILE = not numba.config.DISABLE_JIT
seconds = 0.0       # this process has spent them on compiling and loading kernels
_say = None         # prints that kernels are compiled, if that is still to be announced
_compiling = threading.RLock()      # held by the Python thread that compiles
# Without fastmath: a kernel gives the same bits however and wherever it is compiled.
_njit = partial(numba.njit, nogil=True, error_model="numpy", no_cfunc_wrapper=True)


def _array(axes, layout="C", of=None, readonly=False):
    """Return a function from a kernel's float type to the type of an array."""
    return lambda real: types.Array(of or real, axes, layout, readonly=readonly)


# What the parameters of a kernel are annotated with.  C: a writable C-contiguous array of the
# kernel's float type, with so many axes.  A: a writable one with any strides.  R: with any strides,
# and perhaps read-only.  D: dense float64.  I: dense int64.  IDS: the same, perhaps read-only.
C1, C2, C3, C4, C6 = map(_array, (1, 2, 3, 4, 6))
A3 = _array(3, "A")
A4 = _array(4, "A")
R4 = _array(4, "A", readonly=True)
D1 = _array(1, of=types.float64)
D2 = _array(2, of=types.float64)
I1, I2 = (_array(axes, of=types.int64) for axes in (1, 2))
IDS1, IDS2 = (_array(axes, of=types.int64, readonly=True) for axes in (1, 2))
SCALARS = {bool: types.boolean, int: types.int64, float: types.float64}


def kernel(f: Callable) -> Callable:
    """Return a function that runs f(*arguments) -> None, compiled for the float type of the first
    argument.

    Annotations name the kinds of the arguments.  A named tuple, whose fields have annotations, is
    passed field by field.  If the first parameters are `thread` and `threads`, without annotations,
    each thread calls f, and the number of threads is passed last.  One that makes arrays is
    `allocating`, too.
    """
    made = Kernel(f)
    KERNELS[made.name], versions = made, made.versions

    @wraps(f)
    def call(*arguments):       # a method would take 0.1 us longer
        dtype = arguments[0].dtype
        try:
            version = versions[dtype]
        except KeyError:
            made.compile(dtype)
            version = versions[dtype]
        version(*arguments)
    return call


class Kernel:
    """The compiled versions of a kernel, one for each float type."""

    def __init__(self, f: Callable) -> None:
        self.name = f.__name__.removesuffix("_kernel")
        self.versions = {}
        self._entry, self._kinds = _entry_of(f)

    def compile(self, dtype: type) -> None:
        """Compile the version of a float type, or load it from disk."""
        global seconds
        dtype = np.dtype(dtype)
        if dtype not in FLOATS:
            raise TypeError(f"{self._entry.__name__} computes in float32 or float64, "
                            f"not in {dtype}")
        with _compiling:            # one that waits for another's compiling does not count it
            started = time.perf_counter()
            try:
                if dtype not in self.versions:
                    self.versions[dtype] = self._compiled(dtype)
            except Exception as error:          # Numba and LLVM have many ways to fail
                raise CannotCompile(
                    f"{self._entry.__name__}: {type(error).__name__}: {error}") from error
            finally:
                seconds += time.perf_counter() - started

    def on_disk(self, dtype: type = np.float32) -> bool:
        """Whether a version is on disk, undamaged."""
        return bool(cache.read(self._file(np.dtype(dtype))))

    def _file(self, dtype):
        """Return where a version is kept; None if it cannot be.  The folder's name depends on the
        sources of minigrad, and that of the file on its own source, which may be elsewhere."""
        folder = cache_folder()
        source = pathlib.Path(self._entry.__code__.co_filename)
        if folder and source.is_file():
            return folder / f"{self.name}.{dtype}.{cache.digest(source.read_bytes())}"

    def _compiled(self, dtype):
        path = self._file(dtype)
        real = FLOATS[dtype]
        if not self.on_disk(dtype):
            say_compiling(f"{self.name}, and other kernels as they are needed,")
        define_tiles(dtype, cache_folder())
        dispatcher = _njit(self._entry)
        if path:
            dispatcher._cache = cache.KeptIn(path)
        kinds = [SCALARS[kind] if kind in SCALARS else kind(real) for kind in self._kinds]
        with _interruptible(), by_pointers():
            dispatcher.compile(types.void(*kinds))
        dispatcher.disable_compile()    # every call is matched to this one version
        return dispatcher


def _entry_of(f):
    """Return a function that takes the fields of named tuples one by one, and the kinds of its
    arguments: Numba takes 15 us to unpack a tuple that Python passes."""
    annotations = inspect.unwrap(f).__annotations__
    on_each_thread = len(annotations) < f.__code__.co_argcount      # `thread`, `threads` have none
    kinds = {}
    passed = []
    known = {"__name__": f.__module__, "on_threads": on_threads,
             "f": f if isinstance(f, Dispatcher) else inlined(f)}
    for name, kind in annotations.items():
        if hasattr(kind, "_fields"):
            fields = {f"{name}_{field}": kind for field, kind in kind.__annotations__.items()}
            kinds |= fields
            known[kind.__name__] = kind
            passed.append(f"{kind.__name__}({', '.join(fields)})")
        else:
            kinds[name] = kind
            passed.append(name)
    call = f"f({', '.join(passed)})"
    if on_each_thread:
        kinds["threads"], call = int, f"on_threads(threads, f, {', '.join(passed)})"
    exec(compile(f"def {f.__name__}({', '.join(kinds)}):\n    {call}\n",
                 f.__code__.co_filename, "exec"), known)
    return known[f.__name__], list(kinds.values())


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end callbacks from C, where Python would print the KeyboardInterrupt and go on."""
    swallowed = []
    report = sys.unraisablehook

    def keep(unraisable):
        if isinstance(unraisable.exc_value, KeyboardInterrupt):
            swallowed.append(unraisable.exc_value)
        else:
            report(unraisable)
    sys.unraisablehook = keep
    try:
        yield
    finally:
        sys.unraisablehook = report
    if swallowed:
        raise KeyboardInterrupt


def stands_in_for(formula: Callable) -> Callable:
    """Plug a function in that runs kernels in place of a formula, unless Numba may not compile.  It
    takes the same arguments.  One that calls another stand-in falls back as a whole."""
    def plug_in(f):
        if MAY_COMPILE:
            formula.kernel = f
        return f

    return plug_in


def threads_for(steps: int, parts: int = PARTS) -> int:
    """Return among how many threads to share a number of elementary steps.  Many steps are shared
    among more than there are, up to `parts` times as many; no bit depends on it."""
    if steps < FEW:
        return 1
    count = threads.count()
    if count == 1:
        return 1
    return count * max(1, min(parts, steps // (FEW * count)))


def dense(x: np.ndarray) -> np.ndarray:
    """Return x if it is C-contiguous and writable, else a copy that is: `C` arguments need this."""
    return x if x.flags.carray else np.require(x, requirements="CAW")


def writable(x: np.ndarray) -> np.ndarray:
    """Return x if it is writable, else a copy: `A` arguments need this."""
    return x if x.flags.behaved else np.require(x, requirements="AW")


def flat(x: np.ndarray) -> np.ndarray:
    """Return x with all axes folded into one, dense."""
    return dense(x).reshape(-1)


def rows(x: np.ndarray) -> np.ndarray:
    """Return x as (R, C), dense: all axes but the last are folded into one."""
    x = dense(x)
    if x.ndim == 2:
        return x
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def clock() -> float:
    """Return the seconds of a clock that stops while kernels are compiled or loaded."""
    return time.perf_counter() - seconds


def announce(label: str | None, file: TextIO | None = None) -> None:
    """Print a line that begins with `label`, once, when kernels must be compiled that are not on
    disk; without a label print none."""
    global _say
    _say = label and partial(print, label, file=file, flush=True)


def say_compiling(what: str) -> None:
    """Announce that kernels are compiled, if that was asked for and not done yet."""
    global _say
    if _say:
        _say(f"{what} for this machine{_where_kept()}")
    _say = None


def _where_kept():
    """Return what is unusual about where kernels are kept, for the end of a line."""
    folder, (first, *_) = cache_folder(), cache.places()
    remark = ""
    if cache.removed:
        remark += f", since damaged files were removed from {cache.removed[-1].parent}"
    if folder is None:
        remark += (f", and again at each start, since {first} cannot be written to or is too long "
                   "a path; name a folder that would keep them with NUMBA_CACHE_DIR")
    elif folder.parent != pathlib.Path(first):
        remark += (f", to be kept in {folder.parent}, since {first} cannot be written to or is too "
                   "long a path")
    return remark


if hasattr(os, "register_at_fork"):     # in a child, no other thread is left to release the lock
    os.register_at_fork(before=_compiling.acquire, after_in_parent=_compiling.release,
                        after_in_child=_compiling.release)
