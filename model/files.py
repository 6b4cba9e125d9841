"""Files that are whole or absent, and a folder into which one run at a time writes.

This module knows nothing of models and runs.
"""
import contextlib
import errno
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO

try:
    import fcntl
except ImportError:         # Windows
    fcntl = None
    import msvcrt

LOCK = ".lock"
NO_SUCH_CALL = {errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


class FolderInUse(ValueError):
    """Another run writes into the folder; the message says which one, and what to do, in a line."""


@contextlib.contextmanager
def replacing(path: str | os.PathLike, before: str | os.PathLike | None = None
              ) -> Iterator[BinaryIO]:
    """Open a file to write and read, which replaces `path` once it is on the disk.

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
        _sync_folder(path.parent)
    except BaseException as error:
        aside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)      # the name that the user knows
        raise


def _sync_folder(folder):
    """Write the names in a folder to the disk, too."""
    if os.name == "nt":     # Windows opens no folders
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in NO_SUCH_CALL:
            raise
    finally:
        os.close(number)


@contextlib.contextmanager
def claimed(folder: pathlib.Path) -> Iterator[None]:
    """Lock a folder for this process; the lock ends with the process, however it ends.  Remove
    files that dead processes left half written.

    Raises
    ------
    FolderInUse : another process has claimed it.
    """
    # Open it for reading too, without truncating it: it may say who holds the folder.
    with open(os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666), "r+b") as file:
        if not _lock(file):
            holder = file.read(200).decode("utf-8", "replace").split("\n")[0]
            raise FolderInUse(f"another run writes into {folder} ({holder or 'just begun'}); wait "
                              "for its end, stop it, or give another --out_dir")
        file.truncate()
        file.write(f"process {os.getpid()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}\n".encode())
        file.flush()
        for part in folder.glob("*.part"):
            remove_if_left(part)
        yield


def _lock(file):
    """Lock an open file; return whether this process has it.  True if the file system has no
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
    except OSError as error:
        if error.errno not in NO_SUCH_CALL:
            raise
        print(f"warning: the file system of {file.name} has no locks ({error.strerror}); see to it "
              "that no other run writes there", file=sys.stderr)
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
