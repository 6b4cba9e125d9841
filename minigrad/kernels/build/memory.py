"""Freed memory is kept for the arrays to come.

A training step makes the same arrays as the one before.  Left to itself, the C library gives large
ones back to the system when they are freed, and each page of the next one must be fetched and
zeroed again, which took a fifth of a step.
"""
import ctypes

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4    # GNU's malloc.h
TOP_PAD = 64 << 20      # ask the system for so many bytes more than needed, to ask less often


def keep_freed_memory() -> bool:
    """Have this process reuse what it frees; returns whether its C library can be told so (GNU's
    can; others reuse more by themselves)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    # No array apart in pages of its own, and no page given back (-1 is the largest threshold).
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, -1)
                and mallopt(M_TOP_PAD, TOP_PAD))
