"""Packed weights: their numbers, and when a parameter that holds them becomes one of float32."""
import pickle
import weakref

import numpy as np
import pytest

import minigrad as mg
from minigrad import Tensor
from minigrad.packed import (BLOCKS, NUMBERS, Packed, PackedTensor, below, freeze, hold, is_finite,
                             kind_of, rows_of_blocks, shape_of, unpacked)
from tests.kit import blocks, normal, scales


@pytest.mark.needs("gguf")
@pytest.mark.parametrize("kind", BLOCKS)
def test_unpacked_gives_the_bits_of_the_library(kind):
    import gguf
    a = blocks(kind, 7, 4)
    of = gguf.GGMLQuantizationType[kind]
    theirs = gguf.dequantize(a.view(np.uint8), of)
    np.testing.assert_array_equal(unpacked(a).view(np.uint32), theirs.view(np.uint32))


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_packed_parameter_is_unpacked_when_its_data_are_asked_for(kind):
    a = blocks(kind, 7, 4)
    for look in (lambda p: p.data, lambda p: (p + 0).data, lambda p: Tensor(p).data):
        p = Tensor(np.broadcast_to(np.float32(0), unpacked(a).shape), requires_grad=True)
        hold(p, a)
        assert isinstance(p, PackedTensor) and p.packed.kind == kind and p.requires_grad
        assert (p.shape, p.ndim, p.size, p.dtype) == (unpacked(a).shape, 2, unpacked(a).size,
                                                      np.float32)
        np.testing.assert_array_equal(look(p), unpacked(a))
        assert type(p) is Tensor


def test_a_packed_parameter_whose_data_are_set_is_a_tensor_of_them():
    p = Tensor(np.zeros((7, 64), np.float32), requires_grad=True)
    hold(p, blocks("Q8_0", 7, 2))
    p.data = np.ones((7, 64), np.float32)
    assert type(p) is Tensor and (p.data == 1).all()


@pytest.mark.parametrize("kind", BLOCKS)
def test_panels_take_the_place_of_the_blocks_and_give_the_same_numbers(kind):
    a = blocks(kind, 7, 4)
    packed = Packed(a)
    panels = packed.in_panels(4)
    assert packed.in_panels(4) is panels and packed.nbytes == panels.nbytes
    assert len(panels) == 2 and (panels[1, :, 3] == 0).all()
    np.testing.assert_array_equal(packed.unpacked(), unpacked(a))
    held = weakref.ref(a)
    del a
    assert held() is None               # else its weights would take twice the memory


def test_hold_gives_a_parameter_floats_that_can_be_written_to():
    a = np.ones((2, 3), np.float32)
    p = Tensor(np.zeros((2, 3), np.float32), requires_grad=True)
    hold(p, a)
    assert p.data is a                  # which is not copied
    a.flags.writeable = False
    hold(p, a)
    p.data[...] = 0
    assert (a == 1).all()
    assert (p.data == 0).all()


@pytest.mark.parametrize("kind", BLOCKS)
def test_in_panels_lets_go_of_the_blocks(kind):
    a = blocks(kind, 7, 4)
    packed = Packed(a)
    held = weakref.ref(a)
    del a
    assert held() is not None
    packed.in_panels(4)
    assert held() is None


@pytest.mark.parametrize("kind", BLOCKS)
def test_is_finite_sees_an_infinite_number(kind):
    a = blocks(kind, 7, 4)
    assert is_finite(a)
    for name in scales(a.dtype):
        damaged = a.copy()
        damaged[name][3, 1] = 0x7F80 if name == "upper" else np.inf
        assert not is_finite(damaged)


def test_below_puts_rows_of_several_kinds_into_one_matrix_that_can_be_saved(tmp_path):
    parts = [blocks("Q5_0", 64, 8), blocks("Q5_0", 64, 8, seed=1), blocks("Q6_K", 128, 1)]
    both = below(parts)
    np.save(tmp_path / "a.npy", both)
    again = np.load(tmp_path / "a.npy")
    numbers = np.concatenate([*map(unpacked, parts)])
    assert kind_of(again) == "Q5_0 and Q6_K" and shape_of(again) == numbers.shape == (256, 256)
    np.testing.assert_array_equal(unpacked(again), numbers)
    for begin, part in zip((0, 64, 128), parts):
        rows = rows_of_blocks(again, slice(begin, begin + len(part)))
        assert rows.tobytes() == part.tobytes()
    assert rows_of_blocks(again, slice(100, 200)) is None
    rows = np.array([[0, 255, 127], [128, -1, 3]])
    np.testing.assert_array_equal(Packed(again).take(rows), numbers[rows])
    again["rows1"]["d"][0, 5, 0] = np.inf
    assert is_finite(both) and not is_finite(again)


def test_below_refuses_floats_and_rows_that_are_no_whole_panels():
    assert below([blocks("Q5_0", 64, 8), np.zeros((64, 256), np.float32)]) is None
    assert below([blocks("Q5_0", 63, 8), blocks("Q6_K", 64, 1)]) is None


def test_kind_of_is_none_of_a_record_whose_rows_differ_in_width():
    assert kind_of(below([blocks("Q5_0", 64, 8), blocks("Q6_K", 64, 2)])) is None


# Frozen: constants that stay packed

def frozen(kind, P=7, count=4):
    """A packed constant, and its numbers."""
    a = blocks(kind, P, count)
    p = Tensor(np.broadcast_to(np.float32(0), unpacked(a).shape), requires_grad=True)
    hold(p, a)
    freeze(p)
    return p, unpacked(a)


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_frozen_parameter_stays_packed_and_gives_copies_of_its_numbers(kind):
    p, numbers = frozen(kind)
    np.testing.assert_array_equal(p.data, numbers)
    p.data[:] = 0
    np.testing.assert_array_equal(p.data, numbers)
    assert isinstance(p, PackedTensor) and not p.requires_grad


def test_freeze_makes_a_constant_of_a_parameter_of_floats():
    p = Tensor(np.ones((2, 3), np.float32), requires_grad=True)
    freeze(p)
    assert not p.requires_grad and type(p) is Tensor


@pytest.mark.parametrize("kind", BLOCKS)
def test_packed_parameters_are_packed_again_after_they_were_pickled(kind):
    p, numbers = frozen(kind)
    q = Tensor(np.zeros((7, 4 * NUMBERS[kind]), np.float32), requires_grad=True)
    hold(q, blocks(kind, 7, 4))
    for one in (p, q):
        again = pickle.loads(pickle.dumps(one))
        assert type(again) is type(one) and again.requires_grad == one.requires_grad
        np.testing.assert_array_equal(again.data, numbers)


@pytest.mark.parametrize("kind", BLOCKS)
def test_take_gives_the_same_rows_of_blocks_and_of_panels(kind):
    a = blocks(kind, 7, 4)
    packed = Packed(a)
    rows = np.array([[6, 0], [3, -1]])
    for _ in range(2):
        np.testing.assert_array_equal(packed.take(rows), unpacked(a)[rows])
        packed.in_panels(4)


@pytest.mark.parametrize("kind", BLOCKS)
def test_embedding_takes_the_rows_of_a_frozen_table(kind):
    p, numbers = frozen(kind)
    ids = np.array([[1, 6, 1]])
    taken = mg.embedding(ids, p)
    np.testing.assert_array_equal(taken.data, numbers[ids])
    assert not taken.requires_grad and isinstance(p, PackedTensor)


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("has_bias", [False, True])
def test_linear_with_a_frozen_weight_has_the_gradient_of_its_numbers(kind, has_bias, monkeypatch):
    """Piece by piece: here of two rows."""
    monkeypatch.setattr("minigrad.packed.PIECE", 8 * NUMBERS[kind])
    a = blocks(kind, 7, 4)
    for name in scales(a.dtype):
        numbers = normal(*a[name].shape, dtype=np.float32)
        a[name] = numbers.view("<u4") >> 16 if name == "upper" else numbers
    p = Tensor(np.zeros(unpacked(a).shape, np.float32), requires_grad=True)
    hold(p, a)
    freeze(p)
    x = normal(2, 3, p.shape[1], seed=1)
    bias = normal(7, seed=2) if has_bias else None
    y = mg.linear(x, p, bias)
    np.testing.assert_allclose(y.data, mg.linear(x, unpacked(a), bias).data, rtol=1e-12, atol=1e-12)
    assert mg.gradcheck(lambda x: mg.linear(x, p, bias), x)
    if has_bias:
        assert mg.gradcheck(lambda bias: mg.linear(x, p, bias), bias)
    assert isinstance(p, PackedTensor)


def test_linear_refuses_an_input_that_does_not_fit_a_frozen_weight():
    p, _ = frozen("Q8_0")
    said = str(pytest.raises(ValueError, mg.linear, np.zeros((2, 5), np.float32), p).value)
    assert "each name of one size; shapes are [2, 5], [7, 128]" in said
