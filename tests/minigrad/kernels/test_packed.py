"""Packed weights in kernels: the bits of the float32 weights, on every processor."""
import ctypes

import llvmlite.binding as llvm
import numpy as np
import pytest

from minigrad import formulas
from minigrad.kernels.compiler import processor
from minigrad.kernels.compiler.tiles import SIZES
from minigrad.kernels.packed import NAMES, functions_of, module_of
from minigrad.packed import BLOCKS, NUMBERS, Packed, unpacked
from tests.benchmarks.tiles import PROCESSORS, loops
from tests.kit import blocks, compiled_only

ALL_HALVES = np.arange(1 << 16, dtype="<u2")
FUNCTION = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)


def compiled(kind, size):
    """A kind's two functions.  Where this processor lacks a vector, LLVM takes smaller ones."""
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(module_of(kind, size))),
                                        processor.target_machine())
    engine.finalize_object()
    return engine, *(FUNCTION(engine.get_function_address(name)) for name in NAMES)


@compiled_only
@pytest.mark.parametrize("size", SIZES.values(), ids=str)
@pytest.mark.parametrize("kind", BLOCKS)
def test_the_functions_of_every_processor_give_the_bits_of_float32(kind, size):
    engine, multiply, unpack = compiled(kind, size)
    NR, count = size.vector_bytes * size.NV // 4, 6
    a = blocks(kind, NR, count)
    if kind == "F16":
        finite = ALL_HALVES[np.isfinite(ALL_HALVES.view("<f2"))]
        count = len(finite) // 2 // NR
        a = finite[:2 * count * NR].view(BLOCKS[kind]).reshape(NR, count)
    b, expected = Packed(a).in_panels(NR), unpacked(a).T.copy()             # (K, NR)
    found = np.empty_like(expected)
    unpack(None, b.ctypes.data, found.ctypes.data, len(found))
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))
    x = np.random.default_rng(1).standard_normal((1, len(found))).astype(np.float32)
    c = np.empty(NR, np.float32)
    with np.errstate(all="ignore"):         # bfloat16 numbers are large
        product = formulas.matmul(x, expected)[0]
    multiply(x.ctypes.data, b.ctypes.data, c.ctypes.data, len(found))
    np.testing.assert_array_equal(c, product)


@pytest.mark.parametrize("name", ["haswell", "skylake-avx512", "neoverse-v1"])
@pytest.mark.parametrize("kind", BLOCKS)
def test_a_loop_uses_the_stack_for_fewer_vectors_than_it_unpacks(kind, name):
    """Where it kept its sums there, it would use the stack four times or more for each number."""
    module = module_of(kind, SIZES[PROCESSORS[name][1]])
    module.globals.pop(NAMES[1])        # which has no sums
    found, = loops(name, module=module)
    assert len(found.spills) < NUMBERS[kind]


@compiled_only
def test_functions_of_a_kind_are_compiled_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("minigrad.kernels.packed.cache_folder", lambda: tmp_path)
    asked = []
    monkeypatch.setattr("minigrad.kernels.packed.module_of",
                        lambda kind: asked.append(kind) or module_of(kind))
    for _ in range(2):
        functions_of.cache_clear()
        functions_of("Q4_1")
    assert asked == ["Q4_1"] and [path.name for path in tmp_path.iterdir()] == ["packed.Q4_1"]
