"""Files that are whole or absent, arrays in sealed files, and a lock on a folder.

This module knows nothing of models and runs.

A sealed file is an .npz as np.savez writes it.  Its seal is the comment that ends a zip file: the
sha256 of all bytes before it, in 64 hexadecimal digits.  The seal shows that no byte is missing or
changed.  Every size that the file states is compared with the size of the file before memory is
allocated, and nothing is unpickled.  np.load(path, allow_pickle=False) reads the file too.
"""
import contextlib
import functools
import hashlib
import math
import os
import pathlib
import shutil
import sys
import time
import zipfile
from collections import UserDict
from collections.abc import Iterator, Mapping
from typing import BinaryIO

import numpy as np

try:
    import fcntl
except ImportError:         # Windows
    fcntl = None
    import msvcrt

LOCK = ".lock"
SEAL = 64           # bytes
CHUNK = 1 << 20     # bytes read at a time


class Lazy(UserDict):
    """Arrays by name, made of functions that return them.  Each function is called when its array
    is asked for, so that few arrays are in memory at a time."""

    def __getitem__(self, name: str) -> np.ndarray:
        return self.data[name]()


@contextlib.contextmanager
def replacing(path: str | os.PathLike, before: str | os.PathLike | None = None
              ) -> Iterator[BinaryIO]:
    """Open a new file to write and read.  It replaces `path` once it is on the disk.

    Whatever happens, `path` is the old file or the new one, whole.  With `before`, the old file is
    renamed to that, and for a moment `path` does not exist.
    """
    path = pathlib.Path(path)
    aside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(aside, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if before is not None and path.exists():
            os.replace(path, before)
        os.replace(aside, path)
        _sync(path.parent)
    except BaseException as error:
        aside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)      # the name that the user knows
        raise


def _sync(folder):
    """Write the names in a folder to the disk, too, where the system can do that."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def write_arrays(file: BinaryIO, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays, one at a time, and a seal into an empty file that is also open for reading."""
    with zipfile.ZipFile(file, "w") as archive:
        for name in arrays:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(arrays[name]), allow_pickle=False)
        archive.comment = bytes(SEAL)       # which the seal replaces
    file.truncate(file.seek(-SEAL, os.SEEK_END))
    file.seek(0)
    seal = hashlib.file_digest(file, "sha256").hexdigest().encode()
    file.seek(0, os.SEEK_END)
    file.write(seal)


def read_arrays(path: str | os.PathLike, lazy: bool = False) -> Mapping[str, np.ndarray]:
    """Return the arrays in a sealed file, by name; if `lazy`, each is read when it is asked for.

    Raises
    ------
    ValueError : the file is damaged, or claims more than it holds, or has been replaced since it
        was opened.  A file that somebody changed and sealed again may raise other errors.
    """
    with open(path, "rb") as file:
        identity, members = _identity(file), _members(file)
        if not lazy:
            return {name: _read(file, *place) for name, place in members.items()}

    def read(start, size):
        with open(path, "rb") as file:
            if _identity(file) != identity:
                raise ValueError(f"{path} has changed while it was read; read it again")
            return _read(file, start, size)
    return Lazy({name: functools.partial(read, *place) for name, place in members.items()})


def _identity(file):
    """Return what changes when a file is replaced or written."""
    status = os.fstat(file.fileno())
    return status.st_ino, status.st_size, status.st_mtime_ns


def _members(file):
    """Check the seal of a file.  Return where each array begins, and its number of bytes."""
    size, sha256 = max(file.seek(0, os.SEEK_END) - SEAL, 0), hashlib.sha256()
    file.seek(0)
    while file.tell() < size:
        sha256.update(file.read(min(size - file.tell(), CHUNK)))
    if file.read() != sha256.hexdigest().encode():
        raise ValueError("its seal is missing or does not match, so it is cut short or changed, or "
                         "not of this program, or of one of its first versions")
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
    if sum(member.file_size for member in members) > size:
        raise ValueError("its arrays claim more bytes than it has")
    found = {}
    for member in members:
        file.seek(member.header_offset + 26)        # the lengths of its name and of what follows
        lengths = np.frombuffer(file.read(4), "<u2")
        start = member.header_offset + 30 + int(lengths.sum())
        found[member.filename.removesuffix(".npy")] = start, member.file_size
    return found


def _read(file, start, size):
    """Return the array that np.save wrote there, if it has this number of bytes."""
    file.seek(start)
    np.lib.format.read_magic(file)
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if file.tell() - start + math.prod(shape) * max(dtype.itemsize, 1) != size:
        raise ValueError("one of its arrays claims another size than it has")
    file.seek(start)
    return np.lib.format.read_array(file, allow_pickle=False)


@contextlib.contextmanager
def claimed(folder: pathlib.Path) -> Iterator[None]:
    """Lock a folder for this process.  The lock ends with the process, however it ends.  Remove
    files that dead processes left half written.

    Raises
    ------
    ValueError : another process has locked it; the message names it and says what to do.
    """
    # Open it for reading too, without truncating it: it may say who holds the folder.
    with open(os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666), "r+b") as file:
        if not _lock(file):
            holder = file.read(200).decode("utf-8", "replace").split("\n")[0]
            raise ValueError(f"another run writes into {folder} ({holder or 'just begun'}); wait "
                             "for its end, stop it, or give another --out_dir")
        file.truncate()
        file.write(f"process {os.getpid()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}\n".encode())
        file.flush()
        for part in folder.glob("*.part"):
            remove_if_left(part)
        yield


def _lock(file):
    """Lock an open file.  Return whether this process has it; True where the file system has no
    locks."""
    try:
        if fcntl:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            file.seek(1 << 30)      # beyond its text, so that others may read that
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            file.seek(0)
    except (BlockingIOError, PermissionError):      # the latter on Windows
        file.seek(0)
        return False
    except OSError as error:        # some file systems have no locks
        print(f"warning: {file.name} cannot be locked ({error.strerror}); make sure that no other "
              "run writes there", file=sys.stderr)
    return True


def remove_if_left(part: pathlib.Path) -> None:
    """Remove a file or folder NAME.PID.part, unless the process PID, which writes it, is alive."""
    number = part.name.split(".")[-2]
    if number.isdecimal() and not _is_alive(int(number)):
        if part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):      # on Windows, a file that is being written
                part.unlink()


def _is_alive(process):
    """Whether a process other than this one exists."""
    if process == os.getpid() or os.name == "nt":   # on Windows, signal 0 would end it
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:         # another user's
        pass
    return True
