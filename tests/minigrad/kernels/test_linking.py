"""Functions that only kernels call: what becomes of them in machine code."""
import re

import numpy as np
import pytest
from llvmlite import ir
from numba.core import cgutils
from numba.core.codegen import JITCodeLibrary
from numba.extending import intrinsic

from minigrad.kernels.compiler import compiling, processor
from minigrad.kernels.compiler.compiling import C1, C2, kernel
from minigrad.kernels.compiler.linking import by_pointers, serial
from minigrad.kernels.compiler.parallel import share
from tests.kit import both_types, compiled_only
from tests.minigrad.kernels.newly import code_of

pytestmark = compiled_only


KERNELS = dict(compiling.KERNELS)


def vector_bits(code):
    """The width of the widest vectors of floats, at most the processor's."""
    widths = [int(n) * (32 if kind == "float" else 64)
              for n, kind in re.findall(r"<(\d+) x (float|double)>", code)]
    return min(max(widths, default=0), 8 * processor.vector_bytes())


def double_rows(thread, threads, x: C2):
    for r in share(len(x), thread, threads):
        row = x[r]
        if row[0] > 0:
            for i in range(row.size):
                row[i] *= 2


def add_one_by_one(thread, threads, x: C2):
    """Each number waits for the one before it."""
    for i in range(1, x.shape[1]):
        x[0, i] += x[0, i - 1]


def add_copies(thread, threads, x: C2):
    for r in share(len(x), thread, threads):
        row = x[r].copy()
        for i in range(row.size):
            x[r, i] += row[i]


def code_with(function):
    """The code of a new kernel of which each thread runs a function."""
    kernel(function)
    return code_of(compiling.KERNELS[function.__name__])


def task_of(code):
    """What a thread runs, and what LLVM has not put into it."""
    return re.search(r"^define [^\n]*@minigrad_task.*?^}", code, re.MULTILINE | re.DOTALL)[0]


@both_types
def test_no_kernel_makes_a_pointer_of_an_integer_that_it_computes(dtype):
    """LLVM 22 may take such a pointer for another one."""
    made = {name: re.findall(r"= inttoptr i\d+ %.*", code_of(known, dtype))
            for name, known in KERNELS.items()}
    assert len(made) >= 20 and not any(made.values()), made


def test_by_pointers_leaves_numba_as_it_was_for_others():
    before = cgutils.pointer_add
    with pytest.raises(ZeroDivisionError), by_pointers():
        assert cgutils.pointer_add is not before
        1 / 0
    code_with(double_rows)
    assert cgutils.pointer_add is before


def test_a_pointer_made_of_an_integer_is_seen():
    @intrinsic
    def next_to(typingctx, x):
        def codegen(context, builder, signature, values):
            data = context.make_array(x)(context, builder, values[0]).data
            number = builder.add(builder.ptrtoint(data, ir.IntType(64)), ir.IntType(64)(4))
            return builder.load(builder.inttoptr(number, data.type))
        return x.dtype(x), codegen

    @kernel
    def reads_the_next(x: C1):
        x[0] = next_to(x)
    assert "= inttoptr i64 %" in code_of(compiling.KERNELS["reads_the_next"])


@pytest.fixture(autouse=True)
def kernels_of_these_tests(request):
    """Keep them where nobody else knows them."""
    if "dtype" not in request.fixturenames:         # which asks for the program's own kernels
        request.getfixturevalue("folder")


def test_a_serial_function_counts_no_references():
    counts = re.compile(r"call .*@NRT_(in|de)cref\(")
    assert not counts.search(task_of(code_with(double_rows)))


def test_a_serial_function_that_would_make_an_array_is_not_compiled():
    with pytest.raises(compiling.CannotCompile, match="NRT"):
        code_with(add_copies)


def test_the_width_of_vectors_is_that_in_loops():
    assert vector_bits(code_with(double_rows)) == 8 * processor.vector_bytes()
    assert vector_bits(code_with(add_one_by_one)) == 0


def test_a_function_that_only_kernels_call_is_no_machine_code_of_its_own(monkeypatch):
    translated = []
    translate = JITCodeLibrary._finalize_specific
    monkeypatch.setattr(JITCodeLibrary, "_finalize_specific",
                        lambda library: (translated.append(library.name), translate(library)))

    @serial
    def inner(x):
        return x * 3

    @serial
    def outer(x):
        return inner(x) + inner(x)

    @kernel
    def six_times(x: C1):
        x[0] = outer(x[0])
    six_times(x := np.ones(1))
    assert x[0] == 6 and len(translated) == 1 and "six_times" in translated[0]
