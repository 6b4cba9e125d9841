"""Keep freed memory for the next arrays.

A training step makes the same arrays as the one before.  By default, the C library returns large
ones to the system when they are freed.  Each page of the next one must then be fetched and zeroed
again, which took a fifth of a step.
"""
import ctypes

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4    # GNU's malloc.h
TOP_PAD = 64 << 20      # request so many bytes more than needed, to request less often


def keep_freed_memory() -> bool:
    """Make this process reuse freed memory; return whether its C library can be told so (GNU's can;
    others reuse more by themselves)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    # Give no array pages of its own, and return no page (-1 is the largest threshold).
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, -1)
                and mallopt(M_TOP_PAD, TOP_PAD))
