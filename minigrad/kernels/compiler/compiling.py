"""Compile each kernel once per float type, on first use, and keep it on disk (kernel cache).

Numba compiles a function again for every layout that it gets (C, Fortran, strided, read-only).  A
kernel names the layout of each argument.  That limits it to one version per float type, which keeps
a new user's wait short.
"""
import contextlib
import hashlib
import inspect
import math
import os
import pathlib
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial, wraps
from typing import TextIO

import numba
import numpy as np
from numba import types
from numba.misc.appdirs import AppDirs

from minigrad import formulas
from minigrad.kernels.compiler import processor, threads
from minigrad.kernels.compiler.linking import allocating, inlined
from minigrad.kernels.compiler.parallel import on_threads
from minigrad.kernels.compiler.tiles import define_tiles

FLOATS = {np.dtype(np.float32): types.float32, np.dtype(np.float64): types.float64}
FEW = 1 << 14       # elementary steps (one exp, 16 multiplications) not worth waking threads for

KERNELS = {}        # name -> kernel
STAND_INS = {}      # formula -> the function that runs kernels in its place
seconds = 0.0       # this process has spent them on compiling and loading kernels
_say = None         # prints that kernels are compiled, if that is still to be announced
_compiling = threading.RLock()      # held by the Python thread that compiles
_HERE = pathlib.Path(__file__).parents[1]      # of all kernels


def _array(axes, layout="C", of=None, readonly=False):
    """Return a function from a kernel's float type to the type of an array."""
    return lambda real: types.Array(of or real, axes, layout, readonly=readonly)


# What the parameters of a kernel are annotated with.  C: a writable C-contiguous array of the
# kernel's float type, with so many axes.  A: a writable one with any strides.  R: with any strides,
# and perhaps read-only.  D: dense float64.  I: dense int64.  IDS: the same, perhaps read-only.
C1, C2, C3, C4, C6 = map(_array, (1, 2, 3, 4, 6))
A3, A4, R4 = _array(3, "A"), _array(4, "A"), _array(4, "A", readonly=True)
D1, D2 = _array(1, of=types.float64), _array(2, of=types.float64)
I1, I2 = (_array(axes, of=types.int64) for axes in (1, 2))
IDS1, IDS2 = (_array(axes, of=types.int64, readonly=True) for axes in (1, 2))
SCALARS = {bool: types.boolean, int: types.int64, float: types.float64}


def kernel(f: Callable) -> Callable:
    """Return a function that runs f(*arguments) -> None, compiled for the float type of the first
    argument.

    Annotations name the kinds of the arguments.  A named tuple, whose fields have annotations, is
    passed field by field.  If the first parameters are `thread` and `threads`, each thread calls f,
    and the number of threads is passed last.
    """
    made = Kernel(f)
    KERNELS[made.name], versions = made, made.versions

    @wraps(f)
    def call(*arguments):       # a method would take 0.1 us longer
        dtype = arguments[0].dtype
        if dtype not in versions:
            made.compile(dtype)
        versions[dtype](*arguments)
    return call


class Kernel:
    """The compiled versions of a kernel, one for each float type."""

    def __init__(self, f: Callable) -> None:
        self.name, self.versions = f.__name__.removesuffix("_kernel"), {}
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
        """Whether a version is on disk."""
        folder = cache_folder()
        pattern = f"{np.dtype(dtype)}/*/*.{self._entry.__name__}-*.nbc"
        return folder is not None and any(folder.glob(pattern))

    def _compiled(self, dtype):
        if not self.on_disk(dtype):
            say_compiling(f"{self.name}, and other kernels as they are needed,")
        folder, real = cache_folder(), FLOATS[dtype]
        define_tiles(dtype, folder)
        dispatcher = _njit(self._entry, folder and folder / str(dtype))
        kinds = [SCALARS[kind] if kind in SCALARS else kind(real) for kind in self._kinds]
        with _interruptible():
            try:
                dispatcher.compile(types.void(*kinds))
            except OSError:             # it is compiled, and cannot be kept
                if not dispatcher.signatures:
                    raise
        dispatcher.disable_compile()    # every call is matched to this one version
        return dispatcher


def _entry_of(f):
    """Return a function that takes the fields of named tuples one by one, and the kinds of its
    arguments: Numba takes 15 us to unpack a tuple that Python passes."""
    parameters = dict(inspect.signature(f).parameters)
    on_each_thread = list(parameters)[:2] == ["thread", "threads"]
    if on_each_thread:
        del parameters["thread"], parameters["threads"]
    kinds, passed = {}, []
    known = {"__name__": f.__module__, "on_threads": on_threads,
             "f": inlined(f) if on_each_thread else allocating(f)}
    for name, kind in ((name, p.annotation) for name, p in parameters.items()):
        if isinstance(kind, type) and issubclass(kind, tuple):
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
    # Numba wants a function of a file, by whose name and time of change it keeps what it compiles.
    exec(compile(f"def {f.__name__}({', '.join(kinds)}):\n    {call}\n",
                 f.__code__.co_filename, "exec"), known)
    return known[f.__name__], list(kinds.values())


def _njit(f, kept_in):
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(kept_in)
    try:
        # Without fastmath: a kernel gives the same bits however and wherever it is compiled.
        return numba.njit(cache=kept_in is not None, nogil=True, error_model="numpy",
                          no_cfunc_wrapper=True)(f)
    finally:
        numba.config.CACHE_DIR = before


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end callbacks from C, where Python would print the KeyboardInterrupt and go on."""
    swallowed, report = [], sys.unraisablehook

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


class CannotCompile(RuntimeError):
    """Numba could not compile a kernel on this machine."""


def stands_in_for(formula: Callable) -> Callable:
    """Have a function, which takes the same arguments, run kernels in place of a formula, once
    `minigrad.use_kernels` is called.  If Numba cannot compile them, the formula is put back, with a
    warning."""
    def decorate(compiled):
        @wraps(compiled)
        def call(*args, **settings):
            try:
                return compiled(*args, **settings)
            except CannotCompile as error:
                put_in_place_of(formula, formula)
                warnings.warn(f"{formula.__name__} is left to NumPy, which gives the same and "
                              f"takes longer, because Numba could not compile {error}",
                              RuntimeWarning, stacklevel=2)
                return formula(*args, **settings)

        STAND_INS[formula] = call
        return call

    return decorate


def put_in_place_of(formula: Callable, function: Callable) -> None:
    """Have a function be called under a formula's name."""
    setattr(sys.modules[formula.__module__], formula.__name__, function)


def threads_for(steps: int) -> int:
    """Return how many threads are worth using for a number of elementary steps."""
    return 1 if steps < FEW else threads.count()


def dense(x: np.ndarray) -> np.ndarray:
    """Return x if it is C-contiguous and writable, else a copy that is: `C` arguments need this."""
    return x if x.flags.carray else np.require(x, requirements="CAW")


def writable(x: np.ndarray) -> np.ndarray:
    """Return x if it is writable, else a copy: `A` arguments need this."""
    return x if x.flags.behaved else np.require(x, requirements="AW")


def rows(x: np.ndarray) -> np.ndarray:
    """Return x as (R, C), dense: all axes but the last are folded into one."""
    return dense(x).reshape(math.prod(x.shape[:-1]), x.shape[-1])


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
    if _say and cache_folder():
        _say(f"{what} for this machine")
    elif _say:
        _say("kernels at each start, since no folder can be written to that would keep them; name "
             "one with NUMBA_CACHE_DIR")
    _say = None


def cache_folder() -> pathlib.Path | None:
    """Return where compiled kernels are kept: in NUMBA_CACHE_DIR, else beside their sources, else
    in the user's cache folder; None if none of these is writable.

    Its name is a digest of the compiler, the processor and the sources of all kernels: Numba itself
    would run old machine code of a function in another file that has changed since.  A new folder
    replaces those of older sources.
    """
    machine, sources = _digests()
    for place in _places():
        path = pathlib.Path(place, f"minigrad-{machine}-{sources}")
        with contextlib.suppress(OSError):
            if not path.exists():
                path.mkdir(parents=True, exist_ok=True)
                for older in set(path.parent.glob(f"minigrad-{machine}-*")) - {path}:
                    shutil.rmtree(older, ignore_errors=True)
            if os.access(path, os.W_OK):
                return path
    return None


@cache
def _digests():
    """Return digests of the machine, which includes this copy of the program, and of all that
    kernels are made of."""
    files = [*sorted(_HERE.rglob("*.py")), pathlib.Path(formulas.__file__)]
    parts = ((numba.__version__, processor.name_and_features(), str(_HERE)),
             [path.read_text(encoding="utf-8") for path in files])
    return [hashlib.sha256(repr(part).encode()).hexdigest()[:16] for part in parts]


def _places():
    if numba.config.CACHE_DIR:
        return [numba.config.CACHE_DIR]
    return [_HERE / "__pycache__", AppDirs("minigrad", appauthor=False).user_cache_dir]


if hasattr(os, "register_at_fork"):     # in a child, no other thread is left to release the lock
    os.register_at_fork(before=_compiling.acquire, after_in_parent=_compiling.release,
                        after_in_child=_compiling.release)
