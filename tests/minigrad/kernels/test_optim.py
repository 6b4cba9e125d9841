"""What the kernels of optimisers ask of arrays."""
import pickle

import numpy as np
import pytest

from minigrad.kernels.optim import addresses
from tests.kit import compiled_only, refusal

pytestmark = compiled_only
ARRAYS = [
    np.ones((2, 3), np.float32),
    np.ones(5, np.float32)[1:],
    np.ones((4, 1, 2), np.float32).T.copy(),
    np.ones((), np.float32),
    np.ones((0, 3), np.float32)]


def test_addresses_are_those_that_numpy_says():
    others = [x.copy() for x in ARRAYS]
    expected = [[x.ctypes.data for x in arrays] for arrays in (ARRAYS, others)]
    assert addresses(ARRAYS, others).tolist() == expected


class Subclass(np.ndarray):
    pass


def test_addresses_takes_an_array_of_a_subclass_or_of_an_equal_type():
    x = np.ones(3, np.float32)
    unpickled = x.view(pickle.loads(pickle.dumps(np.dtype(np.float32))))
    assert addresses([x], [x.view(Subclass)], [unpickled]).tolist() == 3 * [[x.ctypes.data]]


@pytest.mark.parametrize("bad, error, says", [
    (np.ones(4, np.float32), ValueError, "takes 3 numbers of float32 from an array that has 4"),
    (np.ones((3, 0), np.float32), ValueError, "has 0 of float32"),
    (np.ones(3), ValueError, "has 3 of float64"),
    (np.ones(3, np.int32), ValueError, "has 3 of int32"),
    (np.ones(6, np.float32)[::2], TypeError, "not C contiguous"),
    (np.broadcast_to(np.ones(3, np.float32), 3), TypeError, "not writable"),
    ([1, 1, 1], AttributeError, "size"),
    (None, AttributeError, "size")])
def test_addresses_refuses_another_array_in_any_place(bad, error, says):
    x = np.ones(3, np.float32)
    for last in ([bad, x, x], [x, bad, x], [x, x, bad]):
        assert says in refusal(error, addresses, [x, x, x], [x, x, x], last)
