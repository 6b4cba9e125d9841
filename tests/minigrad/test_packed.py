"""Packed weights: their numbers, and when a parameter that holds them becomes one of float32."""
import weakref

import numpy as np
import pytest

from minigrad import Tensor
from minigrad.packed import BLOCKS, Packed, PackedTensor, hold, is_finite, unpacked
from tests.kit import blocks, scales


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
