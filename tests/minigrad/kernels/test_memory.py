"""Memory that is freed is used again, instead of being fetched from the system page by page."""
import platform
import subprocess
import sys

import pytest

COUNT_FAULTS = """
import resource
import numpy as np
{first}
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
np.ones(8_000_000)
before = faults()
for _ in range(5):
    np.ones(8_000_000)
print(faults() - before)
"""


def page_faults(first):
    return int(subprocess.run([sys.executable, "-c", COUNT_FAULTS.format(first=first)],
                              capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only GNU's C library can be told so")
def test_arrays_made_again_after_being_freed_cost_no_new_pages():
    assert page_faults("import minigrad.kernels") < 100
    assert page_faults("") > 100                        # so that the count can tell
