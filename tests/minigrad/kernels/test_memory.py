"""The memory of arrays: freed memory is used again, and lies in large pages."""
import ctypes
import mmap
import os
import platform
import sys

import pytest

from minigrad.kernels.compiler import memory
from tests.kit import compiled_only

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc",
                           reason="only GNU's C library can be told so")
large_pages = pytest.mark.skipif(not os.path.exists("/sys/kernel/mm/transparent_hugepage"),
                                 reason="this system gives no large pages")

FAULTS = """
import resource
import numpy as np
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        np.ones(8_000_000)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
np.ones(8_000_000)
faults()
import minigrad.kernels
np.ones(8_000_000)
faults()
"""


@glibc
@pytest.mark.meanwhile("-c", FAULTS)
def test_arrays_made_again_after_being_freed_cost_no_new_pages(ended):
    untold, told = map(int, ended.stdout.split())
    assert told < 100 < untold          # so that the count can tell


# The flags of the pages in which an array of 1 MB lies: NumPy itself asks for large pages for those
# of 4 MB and more.
PAGES = """
import minigrad
import numpy as np
array = np.ones(1 << 17)
address = array.ctypes.data + array.nbytes // 2
with open("/proc/self/smaps") as file:
    for line in file:
        first, _, end = line.split()[0].partition("-")
        if end:
            holds = int(first, 16) <= address < int(end, 16)
        elif holds and line.startswith("VmFlags:"):
            print(line)
"""


@compiled_only
@glibc
@large_pages
@pytest.mark.meanwhile("-c", PAGES)
def test_arrays_lie_in_large_pages(ended):
    assert "hg" in ended.stdout.split()


@large_pages
def test_use_large_pages_says_where_there_is_no_memory_left():
    assert not memory.use_large_pages(ctypes.CDLL(None), sys.maxsize)


@large_pages
def test_use_large_pages_says_where_the_system_refuses(monkeypatch):
    libc = ctypes.CDLL(None)
    assert memory.use_large_pages(libc, 1 << 20)
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", -1)      # no advice
    assert not memory.use_large_pages(libc, 1 << 20)
