"""Where compiled kernels are kept: a sealed file for each, in one folder (kernel cache).

A file begins with a digest of the rest and of its name, its seal.  One that was cut, emptied,
overwritten or renamed does not fit its seal.  It is removed, and its kernel is compiled again.
Numba's own cache would run it, or fail at every start.
"""
import hashlib
import os
import pathlib
import pickle
import shutil
import sys
from contextlib import suppress
from functools import cache

import llvmlite
import numba
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps
from numba.misc.appdirs import AppDirs

from minigrad.kernels.compiler import processor

SEAL = hashlib.sha256().digest_size     # bytes of a seal, before the content of a file
LONGEST = 60        # characters of a file's name, while it is written

# Settings of Numba, from NUMBA_... in the environment, with which other machine code is made.
SETTINGS = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "LLVM_REFPRUNE_PASS", "LLVM_REFPRUNE_FLAGS",
            "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "EXTEND_VARIABLE_LIFETIMES", "DEBUG_NRT",
            "ENABLE_PROFILING", "JIT_COVERAGE", "USING_SVML")

removed = []        # damaged files
_HERE = pathlib.Path(__file__).parents[1]      # of all kernels


class KeptIn(NullCache):
    """Has Numba keep the machine code of a function in a file."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    def load_overload(self, sig, target_context):
        if content := read(self._path):
            target_context.refresh()
            try:
                return CompileResult._rebuild(target_context, *pickle.loads(content))
            except Exception:       # it is whole, and another build of Numba has made it
                remove(self._path)

    def save_overload(self, sig, data):
        if not data.library.has_dynamic_globals:        # addresses of this process
            write(self._path, dumps(data._reduce()))


def read(path: pathlib.Path | None) -> bytes:
    """Return the content of a file, b"" if there is none; remove one that is damaged."""
    if path is None:
        return b""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError:             # such as a folder in its place
        content = b""
    if seal(path, content[SEAL:]) == content[:SEAL]:
        return content[SEAL:]
    remove(path)
    return b""


def seal(path: pathlib.Path, content: bytes) -> bytes:
    """Return the digest of a content under its name in a folder of kernels."""
    return hashlib.sha256(f"{path.parent.name}/{path.name}\n".encode() + content).digest()


def remove(path: pathlib.Path) -> None:
    """Remove a damaged file, or a folder in its place, if that can be done."""
    removed.append(path)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        path.chmod(0o600)       # Windows removes no file that is read-only
        path.unlink()


def write(path: pathlib.Path | None, content: bytes) -> None:
    """Keep a file with this content, whole or not at all, if that can be done."""
    if path:
        new = path.with_name(f"{path.name}.{os.getpid()}")
        with suppress(OSError):
            new.write_bytes(seal(path, content) + content)
            os.replace(new, path)
        with suppress(OSError):
            new.unlink(missing_ok=True)


def cache_folder() -> pathlib.Path | None:
    """Return where compiled kernels are kept: in NUMBA_CACHE_DIR, else beside their sources, else
    in the user's cache folder; None if no file can be written in any of these.

    Its name is a digest of Python, the compiler and its settings, the processor, and the sources of
    all kernels.  A new folder replaces those of older sources.
    """
    machine, sources = _digests()
    for place in places():
        path = pathlib.Path(place, f"minigrad-{machine}-{sources}")
        if _may_write(path, f"minigrad-{machine}-*"):
            return path
    return None


@cache
def _may_write(folder, like):
    """Try it, with a name as long as any: to ask for the rights is not enough on Windows, which
    also refuses paths of more than 259 characters."""
    name = f"{os.getpid()}".ljust(LONGEST, "-")
    try:
        if not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
            for older in set(folder.parent.glob(like)) - {folder}:
                shutil.rmtree(older, ignore_errors=True)
        (folder / name).touch()
        (folder / name).unlink()
    except OSError:
        return False
    return True


@cache
def _digests():
    """Return digests of the machine, which includes this copy of the program, and of all that
    kernels are made of."""
    files = [*sorted(_HERE.rglob("*.py")), *map(_HERE.with_name, ("formulas.py", "packed.py"))]
    versions = sys.version, numba.__version__, llvmlite.__version__
    settings = [getattr(numba.config, name, None) for name in SETTINGS]
    return digest(versions, settings, processor.name_and_features(), str(_HERE)), digest(
        *[path.read_text(encoding="utf-8") for path in files])


def digest(*parts: object) -> str:
    """Return a digest for the name of a file or folder."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:8]


def places():
    if numba.config.CACHE_DIR:
        return [numba.config.CACHE_DIR]
    return [_HERE / "__pycache__", AppDirs("minigrad", appauthor=False).user_cache_dir]
