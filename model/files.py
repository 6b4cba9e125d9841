"""A file that is written whole, or not at all."""
import contextlib
import os
import pathlib
from collections.abc import Iterator
from typing import BinaryIO


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` once it is on the disk; whatever happens,
    `path` is the old file or the new one, whole."""
    path = pathlib.Path(path)
    aside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(aside, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException as error:
        aside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)      # which is what the user knows
        raise
