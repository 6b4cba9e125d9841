"""Keep freed memory for the next arrays, in large pages.

A training step makes the same arrays as the one before.  By default, the C library returns large
ones to the system when they are freed.  Each page of the next one must then be fetched and zeroed
again, which took a fifth of a step.  And of pages of 4 KB the processor cannot keep the addresses
of all that a step uses: in pages of 2 MB, it looks up fewer.
"""
import ctypes
import mmap

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4    # GNU's malloc.h
TOP_PAD = 64 << 20      # request so many bytes more than needed, to request less often
IN_LARGE_PAGES = 256 << 20      # bytes, for the arrays of a step; none is used before it is needed


def keep_freed_memory() -> bool:
    """Make this process reuse freed memory; return whether its C library can be told so (GNU's can;
    others reuse more by themselves)."""
    try:
        libc = ctypes.CDLL(None)
        mallopt = libc.mallopt
    except (AttributeError, OSError, TypeError):
        return False
    # Give no array pages of its own, and return no page (-1 is the largest threshold).
    keeps = bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, -1)
                 and mallopt(M_TOP_PAD, TOP_PAD))
    if keeps and hasattr(mmap, "MADV_HUGEPAGE"):
        use_large_pages(libc, IN_LARGE_PAGES)
    return keeps


def use_large_pages(libc: ctypes.CDLL, size: int) -> bool:
    """Ask the system for large pages in the next `size` bytes of the heap, where arrays will lie;
    return whether it has agreed.  Without, all works as well, and takes a little longer."""
    libc.malloc.restype = ctypes.c_void_p
    address = libc.malloc(ctypes.c_size_t(size))
    if address is None:
        return False
    first = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    refused = libc.madvise(
        ctypes.c_void_p(first),
        ctypes.c_size_t(size - mmap.PAGESIZE),
        mmap.MADV_HUGEPAGE)
    libc.free(ctypes.c_void_p(address))
    return not refused
