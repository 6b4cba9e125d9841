"""What loops of kernels do: none counts references, and vectors are found in them."""
import numba
import pytest

from minigrad.kernels.compiler import compiling, processor
from minigrad.kernels.compiler.parallel import on_threads, share
from minigrad.kernels.compiler.simd import part
from tests.minigrad.kernels.loops import counted, vector_bits

# They slice whole blocks, heads or matrices.  Arrays that `on_threads` hands out have no owner, so
# that such a count finds nothing to change, or belong to one thread.
BY_BLOCKS = {"matmul", "attention", "attention_vjp", "decode", "draw", "muon"}
pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="Numba is told not to compile")


@compiling.serial
def add_copies(thread, threads, x):
    for r in share(len(x), thread, threads):
        if x[r, 0] > 0:
            row = x[r].copy()       # of a slice alone, some Pythons' bytecode needs no count
            for i in range(row.size):
                x[r, i] += row[i]


@compiling.serial
def double_parts(thread, threads, x):
    for r in share(len(x), thread, threads):
        if x[r, 0] > 0:
            row = part(x, r * x.shape[1], x.shape[1])
            for i in range(row.size):
                row[i] *= 2


@compiling.serial
def add_one_by_one(thread, threads, x):
    """Each number waits for the one before it."""
    for i in range(1, x.shape[1]):
        x[0, i] += x[0, i - 1]


def code_of(function):
    """The code of a kernel that nobody has compiled, and that runs a function on threads."""
    def run(x, threads):
        on_threads(threads, function, x)
    run.__name__ = f"run_{function.__name__}"       # by which it is kept
    return compiling.kernel("C2 threads")(run).code("float32")


@pytest.fixture(autouse=True)
def kept_in(monkeypatch, tmp_path):
    """Where kernels of these tests are kept, which nobody else knows."""
    monkeypatch.setattr(compiling, "_places", lambda: [tmp_path])
    monkeypatch.setattr(compiling, "KERNELS", {})


@pytest.mark.meanwhile("-m", "tests.minigrad.kernels.loops")
def test_no_loop_over_rows_counts_references(ended):
    assert ended.returncode == 0, ended.stderr
    calls = {name: calls for name, _, *calls in map(str.split, ended.stdout.splitlines())}
    assert len(calls) > 20 and BY_BLOCKS <= calls.keys()
    assert {name: its for name, its in calls.items() if its and name not in BY_BLOCKS} == {}


def test_a_copy_in_a_loop_is_found_and_a_part_is_none():
    assert counted(code_of(add_copies)) and not counted(code_of(double_parts))


def test_the_width_of_vectors_is_that_in_loops():
    assert vector_bits(code_of(double_parts)) == 8 * processor.vector_bytes()
    assert vector_bits(code_of(add_one_by_one)) == 0
