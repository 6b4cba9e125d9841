"""The one exception of this package, and advice on those of the system.  This module knows nothing
of networks or arrays."""
import errno

# By the names of the error numbers; some systems lack some of them.
REMEDIES = {
    "make its folder first": "ENOENT",
    "remove the folder that has its name": "EISDIR",
    "remove the file that has its folder's name": "ENOTDIR EEXIST",
    "have its rights or its folder's changed": "EACCES EPERM",
    "have its disk made writable": "EROFS",
    "make room": "ENOSPC EDQUOT EFBIG",
    "take a shorter name": "ENAMETOOLONG",
    "end the program that uses it": "EBUSY ETXTBSY",
    "end other programs": "EMFILE ENFILE ENOMEM",
    "have its disk looked at": "EIO",
}


class TextError(ValueError):
    """A mistake with a text that the user can correct.

    Its message is one line in the user's words: what was expected, what came, what to do.
    """


def remedy(error: OSError, otherwise: str) -> str:
    """Return what to do about a file or folder that could not be used: how to remove the cause, if
    it is known, or `otherwise`."""
    name = errno.errorcode.get(error.errno, "unknown")
    return ", or ".join([do for do, names in REMEDIES.items() if name in names.split()]
                        + [otherwise])
