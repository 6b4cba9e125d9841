"""Files that are whole or absent, arrays in sealed files, and a lock on a folder.

This module knows nothing of models and runs.

A sealed file is an .npz as np.savez writes it.  Its seal is the comment that ends a zip file: the
sha256 of all bytes before it, in 64 hexadecimal digits.  The seal shows that no byte is missing or
changed.  Every size that the file states is compared with the size of the file before memory is
allocated, and nothing is unpickled.  np.load(path, allow_pickle=False) reads the file too.

A file may be deflated.  Then each array of numbers is stored by bytes: the first byte of all its
numbers, then the second one, and so on.  For the exponents of floats are alike, and take less
together; the rest is random.  The array is (bytes, *shape) uint8, and the text `BY_BYTES` has the
dtypes of such arrays, by name, as the header of an .npy file has one.
"""
import ast
import contextlib
import errno
import glob
import hashlib
import math
import os
import pathlib
import shutil
import sys
import time
import zipfile
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import numpy as np
from numpy.lib.npyio import NpzFile

try:
    import fcntl
except ImportError:         # Windows
    fcntl = None
    import msvcrt

AnyPath = str | os.PathLike
LOCK = ".lock"
SEAL = 64           # bytes
CHUNK = 1 << 20     # bytes read at a time
BY_BYTES = "by_bytes"
EXPANDS = 64        # times, at most, when a file is inflated; zeros in it do by a thousand
PAUSES = (0.05, 0.1, 0.2, 0.4, 0.5, 0.75)       # seconds between attempts to rename a file


@contextlib.contextmanager
def replacing(path: AnyPath, before: AnyPath | None = None) -> Iterator[BinaryIO]:
    """Open a new file to write and read.  It replaces `path` once it is on the disk.

    Whatever happens, `path` is the old file or the new one, whole.  With `before`, the old file is
    renamed to that, and for a moment `path` does not exist.  A folder is refused at once.  What
    killed processes have left of such a file is removed.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    remove_left(path.parent, f"{glob.escape(path.name)}.*.part")
    aside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(aside, "w+b") as file:
            yield file
            file.flush()
            _to_disk(file.fileno())
        kept = before and path.exists()
        if kept:
            rename(path, before)
        try:
            rename(aside, path)
        except BaseException:
            if kept:
                rename(before, path)
            raise
        _sync(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):      # what went wrong is said, and not this
            aside.unlink()
        if isinstance(error, OSError):
            error.filename = str(path)      # the name that the user knows
        raise


def rename(path: AnyPath, target: AnyPath) -> None:
    """Rename a file or folder; a file with the new name is replaced.

    Windows refuses that while another program has the file open.  A virus scanner has it for some
    milliseconds, so this tries again for two seconds.
    """
    for pause in PAUSES:
        try:
            return os.replace(path, target)
        except PermissionError as error:
            if not is_in_use(error):
                raise
        time.sleep(pause)
    os.replace(path, target)


def is_in_use(error: OSError) -> bool:
    """Whether Windows refused a file because another program has it open."""
    return getattr(error, "winerror", None) in (5, 32, 33)


def _to_disk(number):
    """Wait until an open file is on the disk, on macOS not only in the disk's cache."""
    if hasattr(fcntl, "F_FULLFSYNC"):
        with contextlib.suppress(OSError):      # some file systems have only the other
            fcntl.fcntl(number, fcntl.F_FULLFSYNC)
            return
    os.fsync(number)


def _sync(folder):
    """Write the names in a folder to the disk, too, where the system can do that."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def write_arrays(
        file: BinaryIO,
        arrays: Iterable[tuple[str, np.ndarray]],
        deflated: bool = False) -> None:
    """Write named arrays, one at a time, and a seal into an empty file that is also open for
    reading."""
    method = zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
    dtypes = {}
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, array in arrays:
            array = np.asanyarray(array)
            if deflated and array.dtype.kind in "fV":
                dtypes[name] = np.lib.format.dtype_to_descr(array.dtype)
                array = _by_bytes(array)
            _write_array(archive, name, array)
        if deflated:
            _write_array(archive, BY_BYTES, np.array(repr(dtypes)))
        archive.comment = bytes(SEAL)       # which the seal replaces
    file.truncate(file.seek(-SEAL, os.SEEK_END))
    file.seek(0)
    seal = hashlib.file_digest(file, "sha256").hexdigest().encode()
    file.seek(0, os.SEEK_END)
    file.write(seal)


def _write_array(archive, name, array):
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array(member, array, allow_pickle=False)


def _by_bytes(array):
    """Return the bytes of numbers: shape -> (bytes, *shape)."""
    numbers = np.ascontiguousarray(array).reshape(-1)
    of_each = numbers.view(np.uint8).reshape(*array.shape, array.dtype.itemsize)
    return np.moveaxis(of_each, -1, 0)


class Arrays(NpzFile):
    """The arrays of a sealed file, by name, also of one that is deflated."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file, own_fid=True)
        self._dtypes = {}
        if BY_BYTES in self.files:
            with _as_written("its list of dtypes"):
                stored = ast.literal_eval(str(super().__getitem__(BY_BYTES)))
                self._dtypes = {name: np.lib.format.descr_to_dtype(descr)
                                for name, descr in stored.items()}
            self.files.remove(BY_BYTES)     # NumPy 2.2 reads no array that is not among them

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self:
            raise KeyError(name)
        with _as_written(f"its array {name}", MemoryError):
            array = super().__getitem__(name)
            if name not in self._dtypes:
                return array
            of_each = np.ascontiguousarray(np.moveaxis(array, 0, -1))
            return of_each.view(self._dtypes[name]).reshape(array.shape[1:])


@contextlib.contextmanager
def _as_written(part, *passed):
    """Say of any error that this part of a file is not as it was written; but let these errors
    pass, and those of the disk."""
    try:
        yield
    except passed:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # a place outside of it
            raise
        raise ValueError(f"{part} cannot be read, though the seal was right, so somebody has "
                         "changed it meanwhile, or sealed it again") from error


def read_arrays(path: AnyPath) -> Arrays:
    """Return the arrays of a sealed file, by name.  Each is read when it is asked for; close them.

    Raises
    ------
    ValueError : the file is damaged, or claims more than it holds.  If somebody changed it and
        sealed it again, this may be raised when an array is read.
    """
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open(path, "rb"))
        size = _check_seal(file)
        with _as_written("its list of arrays"):
            archive = zipfile.ZipFile(file)
        with archive:
            _check_claims(archive, size)
        arrays = Arrays(file)
        stack.pop_all()         # whoever closes the arrays closes the file
    return arrays


def _check_seal(file):
    """Refuse a file without its seal.  Return the number of bytes before it."""
    size = max(os.fstat(file.fileno()).st_size - SEAL, 0)
    sha256 = hashlib.sha256()
    remaining = size
    while chunk := file.read(min(remaining, CHUNK)):
        sha256.update(chunk)
        remaining -= len(chunk)
    if file.read() != sha256.hexdigest().encode():
        raise ValueError("its seal is missing or does not match, so it is cut short or changed, or "
                         "not of this program, or of one of its first versions")
    return size


def _check_claims(archive, size):
    """Refuse arrays that would take more memory than a file of this size holds."""
    members = archive.infolist()
    methods = {member.compress_type for member in members}
    if methods - {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise ValueError("its arrays are compressed in another way than ours")
    times = EXPANDS if zipfile.ZIP_DEFLATED in methods else 1
    if sum(member.file_size for member in members) > times * size:
        raise ValueError("its arrays claim more bytes than it has")
    for member in members:
        with _as_written(f"its array {member.filename}"), archive.open(member) as file:
            np.lib.format.read_magic(file)
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            start = file.tell()
        if start + math.prod(shape) * max(dtype.itemsize, 1) != member.file_size:
            raise ValueError("one of its arrays claims another size than it has")


@contextlib.contextmanager
def claimed(folder: pathlib.Path) -> Iterator[None]:
    """Lock a folder for this process.  The lock ends with the process, however it ends.  Remove
    files that dead processes left half written.

    Raises
    ------
    ValueError : another process has locked it; the message names it and says what to do.
    """
    # Open it for reading too, without truncating it: it may say who holds the folder.
    with open(os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666), "r+b", 0) as file:
        if not _lock(file):
            holder = file.read(200).decode("utf-8", "replace").split("\n")[0]
            raise ValueError(f"another run writes into {folder} ({holder or 'just begun'}); wait "
                             "for its end, stop it, or give another --out_dir")
        file.truncate()
        try:
            file.write(f"process {os.getpid()}, since {time.ctime()}\n".encode())
        except OSError as error:        # a full disk
            error.filename = folder
            raise
        remove_left(folder, "*.part")
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


def remove_left(folder: pathlib.Path, pattern: str) -> None:
    """Remove the files and folders NAME.PID.part that match a pattern, but none whose process PID,
    which writes it, is alive."""
    for part in folder.glob(pattern):
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
