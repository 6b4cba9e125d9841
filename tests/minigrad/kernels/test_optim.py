"""What the kernels of optimisers ask of arrays."""
import pickle

import numpy as np
import pytest

from minigrad import AdamW, Tensor
from minigrad.gradients import Rows
from minigrad.kernels import optim
from minigrad.kernels.compiler.tiles import MR, VECTOR_BYTES
from minigrad.kernels.optim import (STRIP, addresses, known_addresses, layout_of, layout_of_sizes,
                                    rows_of_gradients)
from minigrad.optim import KEPT
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


def test_known_addresses_are_those_of_the_arrays_also_where_others_have_taken_their_place():
    stays = np.ones(300, np.float32)
    for seed in range(50):
        freed = [np.full(300, seed, np.float32) for _ in range(seed % 4)]
        lists = [stays, *freed], [*freed, stays]
        for _ in range(2):
            assert known_addresses(*lists).tolist() == addresses(*lists).tolist()
        del freed, lists


def test_known_addresses_are_forgotten_with_an_array_and_never_become_many():
    optim._known.clear()
    arrays = [np.ones(3), np.ones(3)]
    known_addresses(arrays)
    assert len(optim._known) == 1
    del arrays[1]
    assert not optim._known
    arrays = [np.ones(3) for _ in range(2 * KEPT)]
    for x in arrays:
        known_addresses([x])
        assert 0 < len(optim._known) <= KEPT


@pytest.mark.parametrize("bad", [np.ones(4, np.float32), np.ones(3)])
def test_known_addresses_refuses_another_array_in_the_place_of_one_that_it_knows(bad):
    x, y = np.ones(3, np.float32), np.ones(3, np.float32)
    known_addresses([x], [y])
    for lists in ([[x], [bad]], [[bad], [y]]):
        refusal(ValueError, known_addresses, *lists)


def test_rows_of_gradients_are_where_the_arrays_lie_also_where_others_have_taken_their_place():
    stays = np.ones(300, np.float32)
    for seed in range(50):
        gs = [stays, *[np.full(300, seed, np.float32) for _ in range(1 + seed % 4)]]
        for given in 2 * [gs, gs[::-1]]:
            table = rows_of_gradients(given, *layout_of(given))
            assert table[optim.VALUES].tolist() == [x.ctypes.data for x in given]
        del gs, given


@pytest.mark.parametrize("sizes, dtype", [((7, 2), "f"), ((2, 8), "f"), ((2,), "f"), ((2, 7), "d")])
def test_rows_of_gradients_refuses_known_arrays_for_other_sizes_and_types(sizes, dtype):
    gs = [np.ones(2, np.float32), np.ones(7, np.float32)]
    for _ in range(2):
        rows_of_gradients(gs, *layout_of(gs))
        refusal(ValueError, rows_of_gradients, gs, layout_of_sizes(sizes), np.dtype(dtype))


@pytest.mark.parametrize("bad, says", [
    (np.ones((3, 1), np.float32), "takes 6 numbers of float32 from an array that has 3"),
    (np.ones((5, 2), np.float32), "has 10 of float32"),
    (np.ones((3, 2)), "has 6 of float64"),
    (np.ones((3, 2), np.int32), "has 6 of int32"),
    (Rows(np.array([1]), np.ones((1, 2), np.float32), (4, 2)), "has 8 of float32"),
    (Rows(np.array([1]), np.ones((1, 2)), (3, 2)), "has 6 of float64")])
def test_step_refuses_a_gradient_of_another_size_or_type_before_anything_is_stepped(bad, says):
    first, p = parameters = [Tensor(np.ones((3, 2), np.float32), True) for _ in range(2)]
    optimizer = AdamW(parameters)
    first.grad = np.ones((3, 2), np.float32)
    for _ in range(2):              # of arrays that no step knows, and of those that one knows
        p.node.grad = bad           # as no setter allows
        before = [x.data.copy() for x in parameters]
        assert says in refusal(ValueError, optimizer.step)
        assert all(map(np.array_equal, before, [x.data for x in parameters]))
        p.grad = np.ones((3, 2), np.float32)
        optimizer.step()


@pytest.mark.parametrize("size", [4, 10**6])
@pytest.mark.parametrize("check", [True, False])
def test_NumPy_moves_no_array_whose_address_is_known(size, check):
    known, other = np.ones(3), np.ones(3)
    known_addresses([known])
    with pytest.raises(ValueError, match="cannot resize"):
        known.resize(size, refcheck=check)
    other.resize(size, refcheck=False)


def test_strip_ends_with_a_whole_tile_and_a_whole_vector():
    assert STRIP % MR == 0
    assert 4 * STRIP % VECTOR_BYTES == 0        # in float32; else the edge is copied
