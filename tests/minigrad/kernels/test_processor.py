"""What is known of the processor that kernels are compiled for."""
import os
import platform
import subprocess
import sys

import pytest
from numba.core import config

from minigrad.kernels.compiler import processor


@pytest.fixture
def compile_for(monkeypatch):
    """Have NUMBA_CPU_NAME name another processor."""
    def name(cpu):
        monkeypatch.setattr(config, "CPU_NAME", cpu)
        monkeypatch.setattr(config, "CPU_FEATURES", "")
        processor._probe.cache_clear()
    yield name
    processor._probe.cache_clear()


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="this is no x86-64")
def test_the_processor_that_numba_is_told_of_decides_on_vectors(compile_for):
    found = {}
    for cpu in ("nehalem", "sandybridge", "haswell", "znver3", "skylake-avx512", "znver4"):
        compile_for(cpu)
        found[cpu] = (processor.vector_bytes(), processor.vector_registers(),
                      processor.fuses())
    assert found == {"nehalem": (16, 16, False), "sandybridge": (32, 16, False),
                     "haswell": (32, 16, True), "znver3": (32, 16, True),
                     "skylake-avx512": (64, 32, True), "znver4": (64, 32, True)}


LOOP = """
import minigrad.kernels, numba
@numba.njit("void(float32[::1], float32[::1])")
def square(x, y):
    for i in range(x.size):
        y[i] = x[i] * x[i]
print(*square.inspect_asm().values())
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="this is no x86-64")
def test_a_plain_loop_takes_whole_vectors_where_llvm_would_take_half_of_them():
    environment = os.environ | {"NUMBA_CPU_NAME": "sapphirerapids", "NUMBA_CPU_FEATURES": "",
                                "NUMBA_DISABLE_JIT": "0"}
    code = subprocess.run([sys.executable, "-c", LOOP], env=environment, capture_output=True,
                          text=True, check=True).stdout
    assert any("vmulps" in line and "zmm" in line for line in code.splitlines())
