"""Compile each kernel once per float type, for named layouts, on first use; keep it on disk.

Numba compiles a function again for every layout that it gets (C, Fortran, strided, read-only).
Named layouts limit that to one version per float type, which keeps a new user's wait short.
"""
import contextlib
import gzip
import hashlib
import math
import os
import pathlib
import re
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

from minigrad.kernels.compiler import processor, threads
from minigrad.kernels.compiler.linking import Linked
from minigrad.kernels.compiler.tiles import define_tiles, tiles_of

FLOATS = {np.dtype(np.float32): types.float32, np.dtype(np.float64): types.float64}
INTEGERS = np.dtype(np.int64)
FEW = 1 << 14       # elementary steps (one exp, 16 multiplications) not worth waking threads for
SECONDS = "seconds"     # the file of how many kernels were compiled last, and how long it took
CODE = "{}.ll.gz"       # the file of a kernel's code, for a float type, in its folder
# An import from a file of minigrad.  Parsing all files would take a second at every start.
IMPORT = re.compile(r"^ *from (minigrad[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)

KERNELS = {}        # name -> kernel
STAND_INS = {}      # formula -> the function that runs kernels in its place
seconds = 0.0       # this process has spent them on compiling and loading kernels
elsewhere = {}      # name -> the process that is compiling it to disk; see ahead.py
_say = None         # prints that kernels are compiled, if that is still to be announced
_compiled = None    # kernels that were not on disk, since that was announced
_compiling = threading.RLock()      # held by the Python thread that compiles
_HERE = pathlib.Path(__file__).parents[1]      # of all kernels


def _digest(*parts):
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


_MACHINE = _digest(numba.__version__, processor.name_and_features(), str(_HERE))


def serial(f: Callable, **options) -> Callable:
    """Compile a function that only kernels call, for any argument types; Python cannot call it."""
    return numba.njit(error_model="numpy", nogil=True, no_cpython_wrapper=True,
                      no_cfunc_wrapper=True, pipeline_class=Linked, **options)(f)


def inlined(f: Callable) -> Callable:
    """As `serial`, for a function of single rows: LLVM puts it in place of its calls, each of which
    would first copy seven numbers for every array."""
    return serial(f, forceinline=True)


def kernel(signature: str) -> Callable:
    """Compile `f(*arguments) -> None` for the argument types that `signature` names, one word each.

    `A2` is a writable array of two axes and any strides; `R2` the same, but perhaps read-only; `C2`
    a writable C-contiguous array; all have the float type of the call's first argument.  `D1` is
    dense float64, `I1` dense int64, `ids1` the same, read-only.  `bool`, `int`, `key` (uint32) and
    `double` are scalars.  If the last argument is `threads`, `on_threads` runs on that many.  A
    kernel whose first argument is ids has no floats, and a single version.
    """
    words = signature.split()
    of_integers = words[0].startswith("ids")

    def decorate(f):
        name, versions = f.__name__.removesuffix("_kernel"), {}

        def float_type(dtype):
            return INTEGERS if of_integers else np.dtype(dtype)

        def compile_version(dtype):
            global seconds
            dtype = float_type(dtype)
            if dtype not in FLOATS and not of_integers:
                raise TypeError(f"{f.__name__} computes in float32 or float64, not in {dtype}")
            with _compiling:            # one that waits for another's compiling does not count it
                started = time.perf_counter()
                try:
                    if dtype not in versions:
                        versions[dtype] = compiled(dtype)
                finally:
                    seconds += time.perf_counter() - started
            _note_seconds()

        def compiled(dtype):
            global _compiled
            process = elsewhere.get(name)
            while process and process.poll() is None and not on_disk(dtype):
                time.sleep(0.01)
            if not on_disk(dtype):
                say_compiling(f"{name}, and other kernels as they are needed,")
            if _compiled is not None:
                _compiled += process is not None or not on_disk(dtype)
            try:
                if dtype in FLOATS:
                    define_tiles(dtype, folder(tiles_of))
                dispatcher = _njit(f)
                arguments = [_type_of(word, FLOATS.get(dtype)) for word in words]
                with interruptible():
                    try:
                        dispatcher.compile(types.void(*arguments))
                    except OSError:             # it is compiled, and cannot be kept
                        if not dispatcher.signatures:
                            raise
                dispatcher.disable_compile()    # every call is matched to this one version
                if not dispatcher.stats.cache_hits and (kept_in := folder(f)):
                    _keep_code(kept_in, dtype, *dispatcher.inspect_llvm().values())
                return dispatcher
            except Exception as error:          # Numba and LLVM have many ways to fail
                raise CannotCompile(f"{f.__name__}: {type(error).__name__}: {error}") from error

        @wraps(f)
        def call(*arguments):
            dtype = arguments[0].dtype
            if dtype not in versions:
                compile_version(dtype)
            versions[dtype](*arguments)

        def on_disk(dtype=np.float32):
            kept_in = folder(f)
            return kept_in is not None and (kept_in / CODE.format(float_type(dtype))).exists()

        def code(dtype):
            """Return LLVM's optimised code of a version; compile that if the code was not kept."""
            dtype = float_type(dtype)
            path = folder(f) / CODE.format(dtype)
            if not path.exists():
                shutil.rmtree(path.parent)
                versions.pop(dtype, None)
                compile_version(dtype)
            return gzip.decompress(path.read_bytes()).decode()

        call.versions, call.compile, call.on_disk = versions, compile_version, on_disk
        call.code = code
        KERNELS[name] = call
        return call

    return decorate


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


def _type_of(word, scalar):
    if word.startswith("ids"):
        return types.Array(types.int64, int(word[3:]), "C", readonly=True)
    if word[0] == "I":
        return types.Array(types.int64, int(word[1:]), "C")
    if word[0] == "D":
        return types.Array(types.float64, int(word[1:]), "C")
    if word[0] in "ARC" and word[1:].isdigit():
        return types.Array(scalar, int(word[1:]), "C" if word[0] == "C" else "A",
                           readonly=word[0] == "R")
    return {"bool": types.boolean, "int": types.int64, "threads": types.int64,
            "key": types.uint32, "double": types.float64}[word]


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
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


def announce(label: str | None, file: TextIO | None = None) -> None:
    """Print a line that begins with `label`, once, when kernels must be compiled that are not on
    disk; without a label print none."""
    global _say
    _say = label and partial(print, label, file=file, flush=True)


def say_compiling(what: str) -> None:
    """Announce that kernels are compiled, if that was asked for and not done yet."""
    global _say, _compiled
    if _say is None:
        return
    kept_in = cache_folder()
    if kept_in is None:
        _say("kernels at each start, since no folder can be written to that would keep them; name "
             "one with NUMBA_CACHE_DIR")
    else:
        last = ""
        with contextlib.suppress(OSError, ValueError):      # nothing was measured yet
            number, took = (kept_in / SECONDS).read_text().split()
            last = f"; {number} took {took} s the last time"
        _say(f"{what} for this machine{last}")
    _say, _compiled = None, _compiled or 0


def _note_seconds():
    """Keep how many kernels this process had to compile, and how many seconds that took."""
    if _compiled and (kept_in := cache_folder()):
        with contextlib.suppress(OSError):
            (kept_in / SECONDS).write_text(f"{_compiled} {seconds:.0f}")


def cache_folder() -> pathlib.Path | None:
    """Return where compiled kernels are kept for this compiler and processor: in NUMBA_CACHE_DIR,
    else beside their sources, else in the user's cache folder; None if none of them is writable."""
    for place in _places():
        path = pathlib.Path(place, f"minigrad-{_MACHINE}")
        with contextlib.suppress(OSError):
            path.mkdir(parents=True, exist_ok=True)
            if os.access(path, os.W_OK):
                return path
    return None


def folder(f: Callable) -> pathlib.Path | None:
    """Return where a kernel is kept once it is compiled; remove what was made of older sources.

    Numba's cache identifies functions by their own file and signature only.  A folder named after
    all sources that the kernel is made of keeps it from running old machine code of a helper that
    has changed since.
    """
    kept_in = cache_folder()
    if kept_in is None:
        return None
    path = kept_in / f"{f.__name__}-{_sources(f.__code__.co_filename)}"
    if not path.exists():
        for older in kept_in.glob(f"{f.__name__}-{'[0-9a-f]' * 16}"):
            shutil.rmtree(older, ignore_errors=True)
        with contextlib.suppress(OSError):
            path.mkdir()
    return path


def _keep_code(kept_in, dtype, code):
    """Keep the code that LLVM has optimised beside the machine code: it can be read."""
    with contextlib.suppress(OSError):
        (kept_in / CODE.format(dtype)).write_bytes(gzip.compress(code.encode(), 1))


@cache
def _sources(file):
    """Return a digest of a file and of all files of minigrad that it imports, directly or not."""
    found, new = {}, [pathlib.Path(file)]
    while new:
        path = new.pop()
        if path in found or not path.is_file():
            continue
        found[path] = path.read_text(encoding="utf-8")
        for module, names in IMPORT.findall(found[path]):
            for name in [module, *(f"{module}.{name}" for name in re.findall(r"\w+", names))]:
                new.append(_HERE.parent.joinpath(*name.split(".")[1:]).with_suffix(".py"))
    return _digest(*(found[path] for path in sorted(found)))


def _places():
    if numba.config.CACHE_DIR:
        return [numba.config.CACHE_DIR]
    return [_HERE / "__pycache__", AppDirs("minigrad", appauthor=False).user_cache_dir]


def _njit(f):
    kept, kept_in = numba.config.CACHE_DIR, folder(f)
    numba.config.CACHE_DIR = str(kept_in)
    try:
        # Without fastmath: a kernel gives the same bits however and wherever it is compiled.
        return numba.njit(cache=kept_in is not None, nogil=True, error_model="numpy",
                          no_cfunc_wrapper=True)(f)
    finally:
        numba.config.CACHE_DIR = kept


if hasattr(os, "register_at_fork"):     # in a child, no other thread is left to release the lock
    os.register_at_fork(before=_compiling.acquire, after_in_parent=_compiling.release,
                        after_in_child=_compiling.release)
