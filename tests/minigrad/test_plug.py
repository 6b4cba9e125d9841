"""What stands in for a formula, and what is left when it cannot be compiled."""
import numpy as np
import pytest

import minigrad as mg
from minigrad import formulas
from minigrad.kernels.compiler import compiling
from minigrad.plug import CannotCompile, formula
from tests.kit import compiled_only, python
from tests.minigrad.test_ops import r


@formula
def square(x, times=1):
    """x^2, so many times."""
    return x ** 2 * times


@pytest.fixture(autouse=True)
def plain_again(monkeypatch):
    """A kernel that a test plugs in is taken out after it."""
    for f in (square, formulas.softmax):
        monkeypatch.setattr(f, "kernel", f.kernel)


def test_formula_computes_by_its_kernel_if_there_is_one():
    assert square.kernel is None and square(3) == square.plain(3) == 9
    square.kernel = lambda x, times=1: -x * times
    assert square(3) == -3 and square(3, times=2) == -6 and square.plain(3) == 9
    assert square.__name__ == "square" and square.__doc__ == "x^2, so many times."


def test_formula_leaves_any_other_error_of_a_kernel_to_the_caller():
    def wrong(x):
        raise ValueError("x")
    square.kernel = wrong
    with pytest.raises(ValueError, match="x"):
        square(3)
    assert square.kernel is wrong


@compiled_only
def test_formula_unplugs_a_kernel_that_cannot_be_compiled_and_says_so_once(monkeypatch):
    def broken(f):
        raise RuntimeError("no such instruction")
    monkeypatch.setattr(compiling, "_njit", broken)
    monkeypatch.setattr(compiling, "KERNELS", {})

    @compiling.kernel
    def never_compiled(x: compiling.C2, out: compiling.C2):
        out[:] = 0

    @compiling.stands_in_for(formulas.softmax)
    def by_kernel(x):
        never_compiled(x, np.empty_like(x))
    assert formulas.softmax.kernel is by_kernel
    x = r((3, 4))
    with pytest.warns(RuntimeWarning, match="softmax is left to NumPy.*no such in") as said:
        assert np.array_equal(mg.softmax(x).data, formulas.softmax.plain(x))
    assert said[0].filename == mg.ops.network.__file__      # the caller of the formula
    assert formulas.softmax.kernel is None
    assert np.array_equal(mg.softmax(x).data, formulas.softmax.plain(x))


def test_formula_computes_itself_where_its_kernel_calls_one_that_cannot_be_compiled():
    def by_kernel(x, times=1):
        raise CannotCompile("square_kernel: no such instruction")

    @formula
    def cube(x):
        return x * square(x)
    square.kernel = by_kernel
    cube.kernel = lambda x: x * by_kernel(x)
    with pytest.warns(RuntimeWarning, match="could not compile square_kernel") as said:
        assert cube(2) == 8
    assert len(said) == 2 and cube.kernel is None and square.kernel is None


FAILS_LATE = """
import sys
sys.modules["minigrad.kernels.rows"] = None         # is imported after others have been plugged in
import warnings
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import minigrad
from minigrad import plug
print(minigrad.COMPILED, len(said), {f.kernel for f in plug.FORMULAS})
"""


def test_no_kernel_stays_plugged_in_where_one_of_their_files_cannot_be_loaded():
    assert python("-c", FAILS_LATE, NUMBA_DISABLE_JIT="0").stdout == "False 1 {None}\n"
